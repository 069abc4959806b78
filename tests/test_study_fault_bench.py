"""The fault bench: its differences against plain runs, what it says is changed, its settings and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from kvcore import paths
from kvcore.budget import WORK_BUDGET
from kvcore.compare import difference_by_position
from kvcore.faults import FAULTS
from kvcore.masks import Mask
from kvcore.model import LabDecoder
from kvcore.studies.fault_bench import MAX_LAYERS, MAX_LENGTH, Config, cost, run
from kvcore.studies.fault_compare import ASPECTS, CONTENTS, DISTANCE, ENTERED, HEADS, KEPT, MASK, pair
from kvcore.studies.fault_facts import CLASSES, linked
from kvcore.studies.fault_runs import PLAIN, REUSE, scenario
from kvcore.studies.fault_settings import Shape, fitting
from kvcore.studies.fault_sight import Watch
from kvcore.studies.fault_words import apart

CHANGES = {
    "causal_mask_top_left": {MASK},
    "kv_heads_tiled_with_cache": {HEADS},
    "history_of_the_first_layer": {CONTENTS, KEPT},
    "positions_one_ahead": {ENTERED, CONTENTS, KEPT},
    "window_stored_too_short": {KEPT},
    "evict_before_attend": {MASK},
    "appended_twice": {KEPT},
    "cache_not_reset": {MASK, KEPT},
    "alibi_zero_for_single_tokens": {DISTANCE},
    "sinks_at_slots": {CONTENTS},
    "crop_keeps_one_fewer": {MASK, ENTERED, CONTENTS, KEPT},
    "prefix_reused_past_an_edit": {CONTENTS, KEPT},
}
"""What the first differing step of some faults must differ in, from their definitions."""


@pytest.fixture(scope="module")
def found():
    return {name: run(Config(fault=name)) for name in FAULTS}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_shows_in_the_setting_that_it_needs_and_the_right_step_is_right(found, name):
    result = found[name]
    assert result.lacks == ""
    assert result.compared(result.right).equal
    assert not result.compared(result.wrong).equal
    assert result.first == (result.call, result.layer)
    assert result.changed
    assert FAULTS[name].fault_class in CLASSES


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if scenario(fault) == PLAIN])
def test_differences_are_those_of_unwatched_runs(found, name):
    result, fault = found[name], FAULTS[name]
    setting, decoder = result.config.setting, LabDecoder(result.config.setting.decoder)
    full_rules = fault.deviate(setting) if fault.wrong_reference else setting.rules
    full = paths.full(decoder, result.config.tokens, full_rules).by_layer
    wrong = paths.cached(decoder, result.config.tokens, result.config.sizes, fault.deviate(setting)).by_layer
    np.testing.assert_array_equal(result.wrong.difference, difference_by_position(wrong, full))


@pytest.mark.parametrize("name", CHANGES)
def test_the_first_differing_step_differs_in_what_the_fault_is(found, name):
    assert set(found[name].changed) == CHANGES[name]


@pytest.mark.parametrize("name", FAULTS)
def test_the_reading_names_what_differs_and_what_does_not(found, name):
    result = found[name]
    for aspect in result.changed:
        assert aspect in result.step_reading.split("The same on both sides")[0]
    for aspect in result.same:
        assert aspect in result.step_reading.split("The same on both sides")[1]
    assert not set(result.same) & set(result.changed)
    assert apart(result.compared(result.wrong)) in result.answer
    for wrong in ("nan", "  ", " 1 positions", "all 1 positions", "of 1 positions", "-1"):
        assert wrong not in result.reading.replace("e-1", "")


def test_the_masks_are_those_of_the_definition(found):
    result = found["causal_mask_top_left"]
    place, key = np.arange(5, 8)[:, None], np.arange(8)
    np.testing.assert_array_equal(result.pair.place, place[:, 0])
    np.testing.assert_array_equal(result.pair.right_reads[:, :-1], (key <= place).astype(int))
    np.testing.assert_array_equal(result.pair.wrong_reads[:, :-1], (key <= place - 5).astype(int))


def test_kept_entries_are_painted(found):
    pair_of = found["cache_never_grows"].pair
    assert pair_of.kept_right[:-1].tolist() == [1] * 8
    assert pair_of.kept_wrong[:-1].tolist() == [1] * 5 + [0] * 3
    assert np.flatnonzero(pair_of.missing).tolist() == [5, 6, 7]
    twice = found["appended_twice"].pair
    assert twice.kept_wrong[:-1].tolist() == [2] * 5
    short = found["window_stored_too_short"].pair
    assert short.kept_wrong[:-1].tolist() == [0, 0, 0, 1, 1]
    assert np.flatnonzero(short.missing).tolist() == [2]


def test_going_back_is_what_a_caller_would_do(found):
    result = found["crop_keeps_one_more"]
    config, fault = result.config, FAULTS["crop_keeps_one_more"]
    decoder, tokens, rules = LabDecoder(config.setting.decoder), config.tokens, config.setting.rules
    start = sum(config.sizes[: config.event])
    begun = decoder.step(tokens[:start], rules=rules).cache
    drafted = decoder.step((tokens[start : start + 3] + 1) % 32, begun, rules).cache
    rows = decoder.step(tokens[start:], fault.crop(drafted, start, rules), rules).hidden.numpy()
    full = paths.full(decoder, tokens, rules).hidden[start:]
    np.testing.assert_allclose(
        result.wrong.difference[-1, start:], difference_by_position(rows, full), rtol=0, atol=1e-12
    )
    assert result.compared(result.wrong).first_beyond == start


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if scenario(fault) == REUSE])
def test_reused_positions_are_not_compared(found, name):
    result = found[name]
    reused = min(result.wrong.n_reused, result.config.length - 1)
    assert result.wrong.n_reused > result.right.n_reused > 0
    assert np.isnan(result.wrong.difference[:, :reused]).all()
    assert not np.isnan(result.wrong.difference[:, reused:]).any()
    assert result.config.n_calls == 1


def test_a_fault_without_force_says_what_it_needs_and_runs_nothing():
    result = run(Config(fault="cached_keys_turned_again", positions="sinusoidal"))
    assert "needs rotary positions" in result.answer
    assert result.pair is None
    assert set(result.tables()) == {"facts"}
    assert result.step_reading == ""


def test_a_split_that_hides_the_fault_is_said_to():
    result = run(Config(chunks="18"))
    assert result.first is None
    assert "does not show here; what hides it: a single call" in result.answer
    assert "both steps are the same here, as in every other" in result.step_reading


def test_another_call_and_layer_can_be_looked_at():
    result = run(Config(call=4, layer=2))
    assert (result.call, result.layer, result.first) == (4, 1, (1, 0))
    assert "the first that differs is call 1, layer 1" in result.step_reading
    assert "both steps are the same here; the first that differs" in run(Config(call=0)).step_reading
    assert run(Config(layer=2)).call == 1


def test_what_is_left_open_is_filled_by_the_simplest_that_the_fault_needs():
    assert fitting(FAULTS["causal_mask_top_left"]) == Shape("sinusoidal", "none", 1, 1, 0)
    assert fitting(FAULTS["sinks_at_slots"]) == Shape("rotary", "all", 1, 1, 1)
    assert fitting(FAULTS["kv_heads_tiled"]) == Shape("sinusoidal", "none", 4, 2, 0)
    assert fitting(FAULTS["values_turned_too"], Shape(n_heads=2)).n_heads == 2
    lacking = fitting(FAULTS["cached_keys_turned_again"], Shape(positions="none"))
    assert lacking.positions == "none"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"fault": "no_such"}, "fault is 'no_such'"),
        ({"positions": "absolute"}, "positions is 'absolute'"),
        ({"pattern": "some"}, "pattern is 'some'"),
        ({"n_heads": 2, "n_kv_heads": 4}, "2 heads cannot share 4 KV heads"),
        ({"n_heads": 3}, "n_heads is 3; it must be one of"),
        ({"length": MAX_LENGTH + 1}, "tokens is 33"),
        ({"chunks": "5,3"}, "cover 8 of 18 tokens"),
        ({"call": 6}, "call is 6; it must be a whole number from 0 to 5"),
        ({"layer": 3}, "layer is 3; it must be a whole number from 1 to 2"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(fields, says):
    with pytest.raises(ValueError, match=says):
        Config(**fields)


@pytest.mark.parametrize(
    "planted",
    [
        {"visible": Mask(3)},
        {"input_position": lambda position: position + 1},
        {"keep": lambda entries: entries.keep_last(3)},
    ],
    ids=["mask", "positions", "kept"],
)
def test_a_planted_change_is_noticed_and_no_change_is_not(planted):
    """The comparison is able to fail: the right rules against themselves, and against one changed choice."""
    config = Config()
    decoder, tokens, rules = LabDecoder(config.setting.decoder), config.tokens[:5], config.setting.rules

    def seen(pattern):
        watch = Watch(decoder, pattern)
        return watch.see(watch.step(tokens, None), np.arange(5), np.arange(5))

    def changed(pattern):
        return pair(seen(rules), seen(pattern), 0, rules[0].visible, 1e-12).changed

    assert changed(rules) == ()
    expected = {"visible": MASK, "input_position": ENTERED, "keep": KEPT}
    assert expected[next(iter(planted))] in changed(tuple(replace(one, **planted) for one in rules))


def test_largest_settings_fit_the_budget():
    largest = Config(n_layers=MAX_LAYERS, length=MAX_LENGTH, chunks="1,...", n_heads=8, n_kv_heads=8)
    assert cost(Config()) < cost(largest) <= WORK_BUDGET


def test_tables_and_arrays_hold_the_result(found):
    result = found["alibi_of_the_first_rows"]
    tables = result.tables()
    assert set(tables) == {"facts", "differences", "layers", "mask", "entries", "tokens", "heads"}
    np.testing.assert_array_equal(tables["differences"]["wrong step, layer 2"], result.wrong.difference[1])
    assert "right ALiBi distance, last row" in tables["entries"]
    assert tables["layers"]["first bad position"].tolist() == ["5", "5"]
    assert all(isinstance(array, np.ndarray) for array in result.arrays().values())
    assert len(ASPECTS) == 6


def test_reports_become_links_where_the_repository_is_known():
    assert linked("a/b PR 12") == "[a/b PR 12](https://github.com/a/b/pull/12)"
    assert linked("a/b issue 3") == "[a/b issue 3](https://github.com/a/b/issues/3)"
    assert linked("mlx-lm issue 3") == "mlx-lm issue 3"
