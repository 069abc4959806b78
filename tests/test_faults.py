"""Every fault of the bench: in force where it says, right where it says that it hides, one for each class."""

import numpy as np
import pytest

from kvcore.config import DecoderConfig
from kvcore.faults import FAULTS
from kvcore.faults.example import example
from kvcore.faults.fault import restricted
from kvcore.model import LabDecoder
from kvcore.paths import cached, full
from kvcore.setting import Setting

TOKENS = np.array([1, 5, 9, 13, 17, 21, 25, 29, 2, 6, 10, 14])
SPLITS = ([12], [1] * 12, [6, *[1] * 6], [6, 6], [5, 4, 3], [2] * 6, [1] * 6 + [2, 2, 2])
PLAIN = [name for name, fault in FAULTS.items() if not fault.shown_by and not fault.across_sequences]
MISMATCH = 1e-3


def in_short(setting):
    return f"{setting.decoder.positions}, windows {setting.windows}, {setting.n_sinks} sinks"


def gaps(name, setting, splits=SPLITS):
    """Largest difference from the right full path at each position, a row a split."""
    decoder = LabDecoder(setting.decoder)
    reference = full(decoder, TOKENS, setting.rules).hidden
    rules = FAULTS[name].deviate
    return np.array(
        [np.abs(cached(decoder, TOKENS, s, rules(setting)).hidden - reference).max(axis=-1) for s in splits]
    )


def test_there_are_25_or_more_and_one_for_each_class_that_one_sequence_can_show():
    classes = {fault.fault_class for fault in FAULTS.values()}
    assert len(FAULTS) >= 25
    assert classes == {f"C{n}" for n in range(1, 19)} - {"C2", "C14", "C16"}


@pytest.mark.parametrize("name", FAULTS)
def test_each_says_what_it_is_where_it_was_reported_and_what_hides_it(name):
    fault = FAULTS[name]
    assert name == fault.name == name.lower()
    assert fault.sentence.endswith(".")
    assert fault.wrong != fault.right
    assert fault.wrong
    assert fault.hidden_by
    assert fault.reported
    assert all(" issue " in ref or " PR " in ref for ref in fault.reported)


@pytest.mark.parametrize("name", PLAIN)
def test_each_is_in_force_in_its_example_for_three_seeds(name):
    for seed in range(3):
        assert gaps(name, example(FAULTS[name], seed)).max() > MISMATCH


@pytest.mark.parametrize("setting", list({example(FAULTS[name]): name for name in PLAIN}), ids=in_short)
def test_the_right_rules_of_every_example_are_right(setting):
    decoder = LabDecoder(setting.decoder)
    reference = full(decoder, TOKENS, setting.rules).hidden
    for sizes in SPLITS:
        assert np.abs(cached(decoder, TOKENS, sizes, setting.rules).hidden - reference).max() <= 1e-12


HIDDEN = {
    "causal_mask_top_left": [12],
    "causal_mask_top_left_in_chunks": [6, *[1] * 6],
    "causal_mask_dropped_with_cache": [6, *[1] * 6],
    "causal_mask_dropped_in_every_call": [1] * 12,
    "history_of_the_first_layer": [12],
    "kv_heads_tiled_with_cache": [12],
    "positions_restart": [12],
    "positions_remembered_by_length": [5, 4, 3],
    "calls_counted_as_positions": [12],
    "length_read_after_the_first_layer": [2] * 6,
    "window_missing_in_decode": [6, 6],
    "window_only_in_storage": [1] * 12,
    "window_of_the_last_row": [1] * 12,
    "evict_before_attend": [1] * 12,
    "ring_overwritten_by_a_chunk": [2] * 6,
    "slots_taken_for_time": [1] * 12,
    "ring_trimmed_by_slot": [1] * 12,
    "unwritten_slots_attended_in_decode": [6, 6],
    "appended_twice": [12],
    "cache_never_grows": [6, 6],
    "chunks_share_a_scratch": [5, 4, 3],
    "alibi_zero_for_single_tokens": [6, 6],
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_said_to_hide_a_fault_hides_it(name):
    assert gaps(name, example(FAULTS[name]), [HIDDEN[name]]).max() <= 1e-12


SIGNATURES = {
    ("causal_mask_top_left", (6, 6)): (6, 6),
    ("causal_mask_top_left", (1,) * 12): (1, 11),
    ("causal_mask_dropped_with_cache", (6, 6)): (6, 6),
    ("positions_remembered_by_length", (6, *(1,) * 6)): (7, 5),
    ("cached_keys_turned_again", (1,) * 12): (2, 10),
    ("own_tokens_missing", (6, *(1,) * 6)): (6, 6),
    ("window_one_too_wide", (1,) * 12): (4, 8),
    ("window_one_too_narrow", (1,) * 12): (3, 9),
    ("window_only_in_storage", (6, 6)): (4, 8),
    ("cache_never_grows", (6, *(1,) * 6)): (7, 5),
}
"""First bad position and how many are bad, as the catalogue of reports measured them on another decoder."""


@pytest.mark.parametrize(("name", "sizes"), SIGNATURES)
def test_first_bad_position_and_count_are_those_of_the_catalogue(name, sizes):
    (gap,) = gaps(name, example(FAULTS[name]), [list(sizes)])
    bad = np.flatnonzero(gap > 1e-9)
    assert (int(bad[0]), len(bad)) == SIGNATURES[name, sizes]


def test_a_fault_says_what_its_setting_lacks():
    plain = Setting(DecoderConfig())
    said = {FAULTS[name].needs(plain) for name in PLAIN} - {""}
    assert {"needs a window", "needs rotary positions", "needs ALiBi"} <= said
    turned = Setting(DecoderConfig(positions="rotary"))
    assert FAULTS["sinks_at_slots"].needs(turned) == "needs attention sinks"
    one_layer = Setting(DecoderConfig(n_layers=1))
    assert FAULTS["one_store_for_all_layers"].needs(one_layer) == "needs two layers or more"


@pytest.mark.parametrize("name", ["positions_restart", "values_from_keys", "causal_mask_top_left", "appended_twice"])
def test_a_fault_restricted_to_single_tokens_leaves_chunks_right(name):
    setting = example(FAULTS[name])
    decoder = LabDecoder(setting.decoder)
    reference = full(decoder, TOKENS, setting.rules).hidden

    def rules():
        return restricted(FAULTS[name].deviate(setting), setting.rules, lambda position: len(position) == 1)

    assert np.abs(cached(decoder, TOKENS, [6, 6], rules()).hidden - reference).max() <= 1e-12
    assert np.abs(cached(decoder, TOKENS, [1] * 12, rules()).hidden - reference).max() > MISMATCH


def test_two_branches_of_one_buffer_disturb_each_other_and_a_second_sequence_finds_the_first():
    for name, disturbed in (("branches_share_a_buffer", "branch"), ("cache_not_reset", "sequence")):
        setting = example(FAULTS[name])
        decoder, rules = LabDecoder(setting.decoder), FAULTS[name].deviate(setting)
        reference = full(decoder, TOKENS, setting.rules).hidden
        if disturbed == "sequence":
            first, second = (cached(decoder, TOKENS, rules=rules).hidden for _ in range(2))
            assert np.abs(first - reference).max() <= 1e-12
            assert np.abs(second - reference).max() > MISMATCH
            continue
        prefix = decoder.step(TOKENS[:6], rules=rules).cache
        mine = decoder.step(TOKENS[6:8], prefix, rules).cache
        decoder.step(TOKENS[8:11], prefix, rules)
        row = decoder.step(TOKENS[8:9], mine, rules).hidden.numpy()
        assert np.abs(row - reference[8:9]).max() > MISMATCH
