"""Which keys a query may read, against the definition cell by cell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.masks import EditedMask, Mask, rows_without_keys
from tests import oracle


def cells(visible, query_position, key_position):
    """A predicate on two positions as a table."""
    return np.array([[visible(int(i), int(j)) for j in key_position] for i in query_position])


def bits(visible):
    return [" ".join(map(str, row)) for row in visible.astype(int).tolist()]


def test_causal_mask_of_five_cached_and_three_new_positions():
    visible = Mask()(np.arange(5, 8), np.arange(8))
    assert bits(visible) == ["1 1 1 1 1 1 0 0", "1 1 1 1 1 1 1 0", "1 1 1 1 1 1 1 1"]


def test_window_counts_the_query_itself():
    assert bits(Mask(window=1)(np.arange(3), np.arange(3))) == ["1 0 0", "0 1 0", "0 0 1"]
    assert bits(Mask(window=2)(np.arange(4), np.arange(4))) == ["1 0 0 0", "1 1 0 0", "0 1 1 0", "0 0 1 1"]


def test_sinks_come_on_top_of_the_window():
    visible = Mask(window=2, n_sinks=1)(np.arange(5), np.arange(5))
    assert bits(visible) == ["1 0 0 0 0", "1 1 0 0 0", "1 1 1 0 0", "1 0 1 1 0", "1 0 0 1 1"]


def test_sinks_are_not_seen_before_they_have_happened():
    assert bits(Mask(window=1, n_sinks=3)(np.arange(3), np.arange(3))) == ["1 0 0", "1 1 0", "1 1 1"]


@given(
    window=st.none() | st.integers(1, 15),
    n_sinks=st.integers(0, 4),
    first=st.integers(0, 10),
    n_queries=st.integers(1, 6),
    key_position=st.lists(st.integers(0, 20), min_size=1, max_size=12, unique=True),
)
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
def test_mask_matches_the_definition_in_whatever_slots_the_keys_lie(window, n_sinks, first, n_queries, key_position):
    query_position, key_position = np.arange(first, first + n_queries), np.array(key_position)
    expected = oracle.causal if window is None else oracle.windowed(window, n_sinks)
    visible = Mask(window, n_sinks)(query_position, key_position)
    assert np.array_equal(visible, cells(expected, query_position, key_position))


def test_unmasked_sees_everything_and_a_window_then_only_limits_the_past():
    assert Mask(causal=False)(np.arange(3), np.arange(5)).all()
    assert bits(Mask(window=2, causal=False)(np.arange(3), np.arange(3))) == ["1 1 1", "1 1 1", "0 1 1"]


@pytest.mark.parametrize("window", [0, -1, 2.0, True])
def test_a_window_has_at_least_the_query_itself(window):
    with pytest.raises(ValueError, match=f"window is {window}; it must be a whole number 1 or more"):
        Mask(window)


@pytest.mark.parametrize("n_sinks", [-1, 1.0, False])
def test_sinks_are_counted_from_none(n_sinks):
    with pytest.raises(ValueError, match=f"n_sinks is {n_sinks}; it must be a whole number 0 or more"):
        Mask(4, n_sinks)


def test_edited_cells_flip_by_position_and_nothing_else_moves():
    query_position, key_position = np.arange(5, 8), np.array([0, 5, 6, 7])
    edited = EditedMask(Mask(), frozenset({(5, 0), (5, 7), (99, 0)}))
    before, after = Mask()(query_position, key_position), edited(query_position, key_position)
    assert bits(after) == ["0 1 0 1", "1 1 1 0", "1 1 1 1"]
    assert np.argwhere(before != after).tolist() == [[0, 0], [0, 3]]


def test_rows_without_keys_are_named():
    visible = np.array([[True, False], [False, False], [False, True], [False, False]])
    assert rows_without_keys(visible).tolist() == [1, 3]
    assert rows_without_keys(Mask(window=1)(np.arange(4), np.arange(4))).size == 0
