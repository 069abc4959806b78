"""Typed text becomes numbers, or one sentence that says what is allowed."""

import pytest

from kvcore import parse


@pytest.mark.parametrize("text", ["5,3,7,9", " 5, 3 ,7 ,9 ", "5 3 7 9", "5;3;7;9", "5,3,7,9,"])
def test_chunk_sizes_are_read_in_any_common_spelling(text):
    assert parse.chunk_sizes(text, 24) == (5, 3, 7, 9)


@pytest.mark.parametrize(
    ("length", "sizes"),
    [(24, (5, 3, 7, 9)), (26, (5, 3, 7, 9, 2)), (10, (5, 3, 2)), (2, (2,)), (30, (5, 3, 7, 9, 5, 1))],
)
def test_dots_repeat_the_sizes_until_all_tokens_are_covered(length, sizes):
    assert parse.chunk_sizes("5,3,7,9...", length) == sizes
    assert parse.chunk_sizes("5,3,7,9…", length) == sizes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5,3,x", "'x' is no whole number"),
        ("5,3", "add 16 more"),
        ("5,30", "remove 11"),
        ("5.5,3", "'5.5' is no whole number"),
        ("", "are empty"),
        ("...", "are empty"),
        (" , ,", "are empty"),
        ("0,24", "whole number 1 or more"),
        ("-5,29", "whole number 1 or more"),
        ("0...", "whole number 1 or more"),
        ("1" * 40, "is no whole number"),
        ("٣,21", "is no whole number"),
        (",".join(["1"] * 300), "at most 256"),
    ],
)
def test_unusable_chunk_sizes_get_one_sentence(text, says):
    with pytest.raises(ValueError, match=says) as refused:
        parse.chunk_sizes(text, 24)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


def test_ten_thousand_tokens_are_refused_by_count():
    with pytest.raises(ValueError, match="10,000 token ids are too many; at most 256"):
        parse.integers(" ".join(["3"] * 10_000), "token ids", "3,10,17", at_most=256)


def test_names_come_once_in_the_allowed_order():
    allowed = ("token cache", "chunk cache")
    assert parse.names("chunk cache, token cache,chunk cache", "path", allowed) == allowed
    assert parse.names("", "path", allowed) == ()
    with pytest.raises(ValueError, match="'ring' is no path; allowed are token cache, chunk cache"):
        parse.names("ring", "path", allowed)
