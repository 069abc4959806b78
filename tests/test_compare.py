"""Comparison at every position: what counts as different, where, and in which words."""

import numpy as np
import pytest

from kvcore.compare import Comparison, compare, difference_by_position


def comparison(*difference, tolerance=1e-12, first=0):
    return Comparison(np.arange(first, first + len(difference)), np.array(difference), tolerance)


def test_difference_is_the_largest_of_each_position():
    rows = np.array([[0.0, 1.0], [2.0, -3.0], [0.5, 0.5]])
    reference = np.array([[0.0, 1.0], [2.5, 3.0], [0.5, 0.25]])
    assert difference_by_position(rows, reference).tolist() == [0.0, 6.0, 0.25]
    assert difference_by_position(np.stack([rows, reference]), np.stack([reference, reference])).tolist() == [
        [0.0, 6.0, 0.25],
        [0.0, 0.0, 0.0],
    ]


def test_small_floats_are_compared_in_float64():
    """In float16 this difference would overflow to infinity."""
    rows = np.array([[60000.0]], dtype=np.float16)
    assert difference_by_position(rows, -rows).tolist() == [120000.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["rows", "reference", "both"])
def test_values_that_are_not_finite_count_as_infinitely_different(value, side):
    rows, reference = np.zeros((3, 2)), np.zeros((3, 2))
    if side != "reference":
        rows[1, 0] = value
    if side != "rows":
        reference[1, 0] = value
    assert difference_by_position(rows, reference).tolist() == [0.0, np.inf, 0.0]
    found = compare(rows, reference, np.arange(3), tolerance=1e9)
    assert not found.equal
    assert found.first_beyond == 1


def test_other_shapes_are_refused_and_not_broadcast():
    with pytest.raises(ValueError, match=r"cannot compare \(1, 4\) with \(3, 4\); both need the same positions"):
        difference_by_position(np.zeros((1, 4)), np.zeros((3, 4)))


def test_the_last_position_alone_would_miss_it():
    reference = np.zeros((6, 2))
    rows = reference.copy()
    rows[2] = 0.5
    found = compare(rows, reference, np.arange(10, 16), tolerance=1e-12)
    assert found.difference[-1] == 0
    assert not found.equal
    assert (found.first_beyond, found.worst_position, found.largest) == (12, 12, 0.5)


def test_positions_beyond_tolerance_are_absolute_and_in_order():
    found = comparison(0.0, 2e-12, 1e-12, 5e-12, first=7)
    assert found.beyond.tolist() == [8, 10]
    assert (found.first_beyond, found.worst_position) == (8, 10)
    assert comparison(1e-12).equal, "the tolerance itself is still equal"
    assert comparison(1e-12, 0.0).first_beyond is None


def test_words_name_size_place_and_tolerance():
    assert comparison(0.0, 0.0, 0.0).in_words() == "exactly equal at all 3 positions"
    assert comparison(0.0, 5.55e-16, first=16).in_words() == (
        "largest difference 5.6e-16 at position 17: equal within 1e-12 at all 2 positions"
    )
    assert comparison(0.0, 0.1, 0.32, 0.0).in_words() == (
        "largest difference 0.32 at position 2: 2 of 4 positions are beyond 1e-12, the first is position 1"
    )
    assert "largest difference inf at position 0" in comparison(np.inf).in_words()
