"""Deliberately wrong paths are caught, and equal the same mistake written by definition in the oracle."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.masks import Mask
from kvcore.model import LabDecoder
from kvcore.paths import cached, cropped_recomputation, full
from kvcore.rules import RIGHT, UNMASKED, Rules, from_zero, reset_position, sliding, windowed, wrong_chunk_mask
from tests import oracle

TOKENS = lab_token_ids(24)
SEEDS = [7, 19, 41]


def decoder(seed=7, **setting):
    return LabDecoder(DecoderConfig(seed=seed, **setting))


def by_position(rows, reference):
    return np.abs(rows - np.asarray(reference)).max(axis=-1)


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_chunk_mask_is_caught_and_is_the_mistake_that_is_defined(seed):
    token_ids = TOKENS[:8]
    wrong = cached(decoder(seed), token_ids, [5, 3], wrong_chunk_mask())
    right = cached(decoder(seed), token_ids, [5, 3])
    defined = oracle.hidden_states(token_ids.tolist(), seed=seed, visible=oracle.chunk_numbered_from_zero(5))
    assert by_position(wrong.by_layer, defined).max() <= 1e-12
    assert by_position(wrong.hidden, right.hidden)[:5].max() == 0
    assert by_position(wrong.hidden, right.hidden)[5:].min() > 1e-2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sizes", [None, [5, 3, 7, 9]])
def test_reset_position_is_caught_and_is_the_mistake_that_is_defined(seed, sizes):
    wrong = cached(decoder(seed), TOKENS, sizes, reset_position(sliding(4)))
    entered = [position for size in sizes or [1] * 24 for position in range(size)]
    defined = oracle.hidden_states(TOKENS.tolist(), seed=seed, visible=oracle.windowed(4), input_position=entered)
    assert by_position(wrong.by_layer, defined).max() <= 1e-12
    gap = by_position(wrong.hidden, full(decoder(seed), TOKENS, windowed(4)).hidden)
    first_call = sizes[0] if sizes else 1
    assert gap[:first_call].max() <= 1e-12
    assert gap[first_call:].min() > 1e-2


@pytest.mark.parametrize("seed", SEEDS)
def test_cropped_recomputation_is_caught_and_is_the_mistake_that_is_defined(seed):
    wrong = cropped_recomputation(decoder(seed), TOKENS, 4, windowed(4))
    defined = oracle.cropped(TOKENS.tolist(), 4, seed=seed, visible=oracle.windowed(4))
    assert by_position(wrong.by_layer, defined).max() <= 1e-12
    gap = by_position(wrong.hidden, full(decoder(seed), TOKENS, windowed(4)).hidden)
    assert gap[:4].max() <= 1e-12
    assert gap[4:].min() > 1e-6
    assert gap.max() > 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_unmasked_is_caught_by_editing_the_future_and_is_the_mistake_that_is_defined(seed):
    edited = TOKENS.copy()
    edited[12:] = (edited[12:] + 1) % 32
    before, after = (full(decoder(seed), ids, UNMASKED) for ids in (TOKENS, edited))
    defined = oracle.hidden_states(edited.tolist(), seed=seed, visible=oracle.everything)
    assert by_position(after.by_layer, defined).max() <= 1e-12
    assert by_position(before.hidden, after.hidden)[:12].min() > 1e-3


@pytest.mark.parametrize("rules", [RIGHT, windowed(4), windowed(3, 2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_editing_the_future_changes_earlier_rows_by_exactly_zero(seed, rules):
    for first in (1, 12, 23):
        edited = TOKENS.copy()
        edited[first:] = (edited[first:] + 1) % 32
        before, after = (full(decoder(seed), ids, rules).by_layer for ids in (TOKENS, edited))
        assert np.array_equal(before[:, :first], after[:, :first])
        assert by_position(before, after)[-1, first] > 1e-3


@pytest.mark.parametrize(
    ("n_layers", "window", "crop"),
    [
        pytest.param(1, 4, 4, id="one layer"),
        pytest.param(1, 7, 7, id="one layer, another window"),
        pytest.param(2, 1, 1, id="window 1"),
        pytest.param(6, 1, 1, id="window 1, six layers"),
        pytest.param(2, 24, 24, id="window T"),
        pytest.param(3, 30, 30, id="window beyond T"),
        pytest.param(2, 4, 7, id="two layers at their reach"),
        pytest.param(2, 4, 12, id="two layers beyond it"),
        pytest.param(3, 5, 13, id="three layers at their reach"),
        pytest.param(4, 3, 9, id="four layers at their reach"),
    ],
)
def test_cropped_recomputation_is_right_from_the_reach_on(n_layers, window, crop):
    lab = decoder(n_layers=n_layers)
    run = cropped_recomputation(lab, TOKENS, crop, windowed(window))
    assert by_position(run.hidden, full(lab, TOKENS, windowed(window)).hidden).max() <= 1e-12


@pytest.mark.parametrize(("n_layers", "window"), [(2, 4), (2, 2), (3, 5), (4, 3)])
def test_one_raw_token_short_of_the_reach_is_beyond_tolerance(n_layers, window):
    lab, crop = decoder(n_layers=n_layers), n_layers * (window - 1)
    run = cropped_recomputation(lab, TOKENS, crop, windowed(window))
    gap = by_position(run.hidden, full(lab, TOKENS, windowed(window)).hidden)
    assert gap[:crop].max() <= 1e-12
    assert gap[crop:].min() > 1e-9


@pytest.mark.parametrize(("n_layers", "window"), [(1, 4), (2, 4), (3, 3)])
def test_the_reach_measured_by_editing_one_token_is_layers_times_window_less_one(n_layers, window):
    lab, last = decoder(n_layers=n_layers), 23
    reference = cached(lab, TOKENS, None, sliding(window)).hidden[last]
    moves = []
    for position in range(24):
        edited = TOKENS.copy()
        edited[position] = (edited[position] + 1) % 32
        if np.abs(cached(lab, edited, None, sliding(window)).hidden[last] - reference).max() > 0:
            moves.append(position)
    assert moves == list(range(last - n_layers * (window - 1), last + 1))


@dataclass(frozen=True)
class TrimmedFirst:
    """Deliberately wrong: the window is cut to its last entries before the call attends, not after."""

    right: Mask

    def __call__(self, query_position, key_position):
        kept = key_position > key_position.max() - self.right.window
        return self.right(query_position, key_position) & kept


def test_a_window_trimmed_before_attending_escapes_every_check_but_every_position():
    """One layer, chunks no longer than the window: each call's last row is right, the rows before it are not."""
    lab, sizes = decoder(n_layers=1), [4] * 6
    wrong = cached(lab, TOKENS, sizes, replace(sliding(4), visible=TrimmedFirst(Mask(window=4))))
    reference = full(lab, TOKENS, windowed(4))
    assert wrong.hidden.shape == reference.hidden.shape
    assert np.isfinite(wrong.hidden).all()

    gap = by_position(wrong.hidden, reference.hidden)
    last_of_a_call = np.arange(24) % 4 == 3
    assert gap[last_of_a_call].max() <= 1e-12, "a comparison of last positions would pass"
    plain = gap[~last_of_a_call][3:]
    assert plain.min() > 1e-3
    assert plain.max() > 0.1


def test_one_token_at_a_time_trimming_first_is_right():
    """What makes the mistake above survive a token-by-token test."""
    lab = decoder()
    wrong = cached(lab, TOKENS, None, replace(sliding(4), visible=TrimmedFirst(Mask(window=4))))
    assert by_position(wrong.hidden, full(lab, TOKENS, windowed(4)).hidden).max() <= 1e-12


def test_a_wrong_rule_replaces_one_choice_and_nothing_else():
    right = sliding(4, 1)
    assert reset_position(right) == replace(right, input_position=from_zero)
    assert wrong_chunk_mask(right) == replace(right, mask_position=from_zero)
    assert wrong_chunk_mask() == Rules(mask_position=from_zero)
    assert replace(right, keep=RIGHT.keep) == windowed(4, 1)
    assert from_zero(np.array([5, 6, 7])).tolist() == [0, 1, 2]
