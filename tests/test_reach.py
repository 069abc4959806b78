"""Measured reach: the law p − L(W − 1) holds, what lies outside moves by exactly 0, slots are painted."""

import numpy as np
import pytest

from kvcore import paths
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.reach import earliest_token, edited_copies, feeds, through_cache, through_crop
from kvcore.rules import sliding, windowed

LENGTH = 20


def decoder_of(n_layers):
    return LabDecoder(DecoderConfig(n_layers=n_layers))


@pytest.mark.parametrize("n_layers", [1, 2, 4])
@pytest.mark.parametrize("window", [1, 2, 4, 25])
@pytest.mark.parametrize("position", [0, 1, 9, 19])
def test_output_moves_for_tokens_within_the_law_and_by_exactly_0_outside(n_layers, window, position):
    moved, slots = through_cache(decoder_of(n_layers), lab_token_ids(LENGTH), position, window)
    token = np.arange(position + 1)
    np.testing.assert_array_equal(moved > 0, token >= earliest_token(position, n_layers, window))
    for layer, seen in enumerate(slots.seen):
        for entry, row in zip(slots.position, seen, strict=True):
            expected = (token >= entry - layer * (window - 1)) & (token <= entry)
            np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("position", [3, 12])
def test_movement_is_that_of_the_one_token_at_a_time_sliding_cache(position):
    decoder, tokens = decoder_of(2), lab_token_ids(LENGTH)
    moved, _ = through_cache(decoder, tokens, position, 4)
    right = paths.cached(decoder, tokens[: position + 1], rules=sliding(4)).hidden[-1]
    for token in range(position + 1):
        edited = tokens[: position + 1].copy()
        edited[token] = (edited[token] + 1) % 32
        change = np.abs(paths.cached(decoder, edited, rules=sliding(4)).hidden[-1] - right).max()
        assert moved[token] == pytest.approx(change, abs=1e-14)


@pytest.mark.parametrize(("crop", "first"), [(1, 12), (4, 9), (7, 6), (9, 6), (30, 6)])
def test_recomputation_reaches_the_crop_and_never_past_the_law(crop, first):
    moved = through_crop(decoder_of(2), lab_token_ids(LENGTH), 12, 4, crop)
    np.testing.assert_array_equal(np.flatnonzero(moved), np.arange(first, 13))


def test_slots_before_and_after_a_step_that_evicts():
    _, slots = through_cache(decoder_of(2), lab_token_ids(LENGTH), 11, 4)
    assert slots.position.tolist() == [7, 8, 9, 10, 11]
    assert slots.before.tolist() == [0, 1, 2, 3, -1]
    assert slots.after.tolist() == [-1, 0, 1, 2, 3]


def test_slots_of_a_step_that_evicts_nothing():
    _, slots = through_cache(decoder_of(2), lab_token_ids(LENGTH), 2, 4)
    assert slots.position.tolist() == [0, 1, 2]
    assert slots.before.tolist() == [0, 1, -1]
    assert slots.after.tolist() == [0, 1, 2]


def test_copy_j_differs_from_the_tokens_at_j_alone():
    tokens = np.array([3, 31, 0])
    np.testing.assert_array_equal(edited_copies(tokens, 32), [[4, 31, 0], [3, 0, 0], [3, 31, 1]])
    assert tokens.tolist() == [3, 31, 0]


@pytest.mark.parametrize(("n_layers", "window", "position"), [(1, 4, 9), (3, 3, 15), (2, 1, 5), (2, 30, 7)])
def test_cone_is_the_triangle_of_the_law(n_layers, window, position):
    run = paths.full(decoder_of(n_layers), lab_token_ids(LENGTH), windowed(window), record_attention=True)
    cone = feeds(run.calls[0].attention[:, 0], position)
    place = np.arange(LENGTH)
    for row, fed in enumerate(cone):
        first = earliest_token(position, n_layers - row, window)
        np.testing.assert_array_equal(fed, (place >= first) & (place <= position))


def test_cone_skips_keys_whose_weight_is_0():
    attention = np.zeros((1, 1, 3, 3))
    attention[0, 0, 2] = [0.5, 0, 0.5]
    np.testing.assert_array_equal(feeds(attention, 2), [[True, False, True], [False, False, True]])
