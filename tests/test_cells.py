"""Cells as text: what is read, what is refused, and how positions are named."""

import numpy as np
import pytest

from kvcore.cells import MAX_FLIPPED, in_ranges, inside, mask_text, named, parse_cells, write_cells


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("", set()),
        ("  ", set()),
        ("5:3", {(5, 3)}),
        ("5:3,6:7", {(5, 3), (6, 7)}),
        (" 6:7; 5:3 ,", {(5, 3), (6, 7)}),
        ("5:3,5:3", {(5, 3)}),
    ],
)
def test_cells_are_read_as_a_set(text, cells):
    assert parse_cells(text) == cells


@pytest.mark.parametrize("text", ["x", "5", "5:", ":3", "5:3:1", "-1:3", "5.0:3", "5:3,nine", "٣:1", "5：3"])
def test_text_that_is_no_cell_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"is no cell; flipped cells are written query:key .* such as 5:3,6:7"):
        parse_cells(text)


def test_too_many_cells_are_refused_and_the_most_is_not():
    text = ",".join(f"70:{key}" for key in range(MAX_FLIPPED))
    assert len(parse_cells(text)) == MAX_FLIPPED
    with pytest.raises(ValueError, match=f"at most {MAX_FLIPPED}"):
        parse_cells(f"{text},71:0")


def test_written_cells_are_read_back_in_order():
    cells = {(10, 2), (9, 30), (9, 4)}
    assert write_cells(cells) == "9:4,9:30,10:2"
    assert parse_cells(write_cells(cells)) == cells


def test_inside_keeps_the_new_rows_and_all_keys():
    cells = frozenset({(4, 0), (5, 0), (7, 7), (7, 8), (8, 0)})
    assert inside(cells, n_cached=5, n_new=3) == {(5, 0), (7, 7)}


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1, 2], "0–2"),
        ([0, 4, 5, 6], "0 and 4–6"),
        ([0, 1, 3, 5, 6], "0–1, 3 and 5–6"),
    ],
)
def test_positions_are_named_as_ranges(positions, words):
    assert in_ranges(positions) == words


@pytest.mark.parametrize(("positions", "words"), [([], "no key"), ([3], "key 3"), ([0, 1], "keys 0–1")])
def test_the_noun_follows_the_number(positions, words):
    assert named("key", np.array(positions)) == words


def test_mask_text_has_one_line_a_query():
    visible = np.array([[True, True, False], [True, False, True]])
    assert mask_text(np.array([1, 2]), visible) == "q1: 1 1 0\nq2: 1 0 1"
