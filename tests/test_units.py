"""Numbers in words."""

import pytest

from kvcore.units import bytes_in_words, plural, short_bytes, times_fewer


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1,024 bytes (1 KiB)"),
        (12288, "12,288 bytes (12 KiB)"),
        (1_572_864, "1,572,864 bytes (1.5 MiB)"),
        (2**30 * 1020, "1,095,216,660,480 bytes (1020 GiB)"),
    ],
)
def test_bytes_are_exact_and_in_their_unit(n_bytes, words):
    assert bytes_in_words(n_bytes) == words


def test_every_power_of_1024_is_one_of_its_unit():
    assert [short_bytes(1024**n) for n in range(5)] == ["1 bytes", "1 KiB", "1 MiB", "1 GiB", "1 TiB"]


def test_one_and_many():
    assert [plural(n, "token") for n in (0, 1, 1800)] == ["0 tokens", "1 token", "1,800 tokens"]


@pytest.mark.parametrize(
    ("many", "few", "words"),
    [
        (1800, 144, "12.5 times fewer"),
        (144, 1800, "12.5 times more"),
        (7, 7, "the same number of"),
        (1_000_003, 1_000_000, "3 fewer"),
        (5_000_000, 1000, "5,000 times fewer"),
    ],
)
def test_two_counts_compared(many, few, words):
    assert times_fewer(many, few) == words
