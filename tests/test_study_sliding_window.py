"""The sliding-window study: its numbers against the paths and the laws, its refusals, its words at the edges."""

from dataclasses import replace

import numpy as np
import pytest

from kvcore import paths
from kvcore.budget import WORK_BUDGET
from kvcore.compare import difference_by_position
from kvcore.model import LabDecoder
from kvcore.rules import reset_position, sliding, windowed
from kvcore.studies.sliding_window import MAX_LAYERS, MAX_LENGTH, MAX_WINDOW, Config, cost, run

EDGES = [
    Config(),
    Config(n_layers=1),
    Config(n_layers=1, crop=3),
    Config(window=1),
    Config(window=1, crop=1, n_layers=6),
    Config(window=24),
    Config(window=32, crop=24),
    Config(window=2, n_layers=6, crop=7, step=23),
    Config(step=0),
    Config(length=2, step=1, crop=1),
    Config(crop=64),
]


@pytest.fixture(scope="module")
def result():
    return run(Config())


@pytest.mark.parametrize("config", [Config(), Config(window=3, n_layers=3, crop=5, seed=19), Config(window=1, crop=1)])
def test_differences_are_those_of_the_paths(config):
    decoder, tokens, found = LabDecoder(config.decoder), config.tokens, run(config)
    reference = paths.full(decoder, tokens, windowed(config.window)).hidden
    expected = {
        "sliding": paths.cached(decoder, tokens, rules=sliding(config.window)),
        "reset": paths.cached(decoder, tokens, rules=reset_position(sliding(config.window))),
        "cropped": paths.cropped_recomputation(decoder, tokens, config.crop, windowed(config.window)),
    }
    for name, path in expected.items():
        by_position = difference_by_position(path.hidden, reference)
        np.testing.assert_allclose(getattr(found, name), by_position, rtol=0, atol=1e-14)


@pytest.mark.parametrize("config", EDGES)
def test_sliding_is_equal_and_cropping_is_equal_exactly_where_the_law_says(config):
    found = run(config)
    assert found.compared(found.sliding).equal
    assert found.compared(found.reset).first_beyond == 1
    cropped = found.compared(found.cropped)
    assert cropped.equal == found.cropping_is_right
    assert cropped.first_beyond == (None if found.cropping_is_right else config.crop)
    right = found.sweep.max(axis=1) <= found.tolerance
    np.testing.assert_array_equal(right, found.crops >= config.enough)


def test_four_slots_are_four_tokens_with_one_layer_and_seven_with_two():
    one, two = run(Config(n_layers=1)), run(Config())
    assert (one.config.enough, two.config.enough) == (4, 7)
    assert one.cropping_is_right
    assert "C = W is enough" in one.answer
    assert "expected equal" in one.answer
    assert not two.cropping_is_right
    assert "4 slots know 2·(4 − 1) + 1 = 7 raw tokens" in two.answer


@pytest.mark.parametrize("config", EDGES)
def test_readings_say_what_the_arrays_hold(config):
    found = run(config)
    assert found.compared(found.sliding).in_words() in found.answer
    assert found.compared(found.cropped).in_words() in found.answer
    assert ("expected equal" in found.answer) == found.cropping_is_right
    evicted = found.slots.position[found.slots.after < 0]
    assert ("evicts nothing" in found.slots_reading) == (evicted.size == 0)
    assert "The law gives the same first token" in found.reach_reading
    assert ("before the first token" in found.reach_reading) == (config.earliest < 0)
    assert f" from {config.enough} on" in found.sweep_reading
    for wrong in (" 1 slots", " 1 raw tokens", " 1 entries", "1 positions", "nan", "  ", "-"):
        assert wrong not in found.reading.replace("e-", "e")


def test_degenerate_windows_have_their_own_reason():
    assert "every position reads itself alone" in run(Config(window=1)).answer
    assert "nothing is hidden and nothing evicted" in run(Config(window=24)).answer
    assert "here all 24 there are" in run(Config(window=23)).answer
    assert "more than the 24 tokens there are" in run(Config(window=23)).sweep_reading


def test_words_notice_a_fault_and_what_rounding_hides(result):
    assert "beyond 1e-12" in replace(result, sliding=result.reset).answer.split(". ")[0]
    hidden = replace(result, sweep=result.sweep * 1e-14)
    assert "too little to see" in hidden.answer
    assert "From 1 on it is already within 1e-12" in hidden.sweep_reading
    short = result.moved_by_cache.copy()
    short[5] = 0
    assert "less than rounding keeps" in replace(result, moved_by_cache=short).reach_reading
    assert "within 1e-12 here" in replace(result, reset=result.sliding).answer


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("window", 0, "window is 0; it must be a whole number from 1 to 32"),
        ("window", 33, "from 1 to 32"),
        ("n_layers", 7, "layers is 7; it must be a whole number from 1 to 6"),
        ("crop", 0, "crop is 0"),
        ("crop", 65, "from 1 to 64"),
        ("length", 65, "tokens is 65; it must be a whole number from 2 to 64"),
        ("length", 10000, "from 2 to 64"),
        ("length", 1, "from 2 to 64"),
        ("step", 24, "step is 24; it must be a whole number from 0 to 23"),
        ("step", -1, "from 0 to 23"),
        ("seed", -1, "0 or more"),
        ("window", 4.0, "window is 4.0"),
        ("crop", True, "crop is True"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(field, value, says):
    with pytest.raises(ValueError, match=says):
        Config(**{field: value})


def test_largest_settings_fit_the_budget():
    largest = Config(MAX_WINDOW, MAX_LAYERS, MAX_LENGTH, MAX_LENGTH - 1, MAX_LENGTH)
    assert cost(largest) <= WORK_BUDGET
    assert cost(largest) > cost(Config())


def test_tables_and_arrays_hold_the_result(result):
    tables, arrays = result.tables(), result.arrays()
    assert set(tables) == {"differences", "slots", "cone", "reach", "crops"}
    np.testing.assert_array_equal(tables["differences"]["sliding cache"], result.sliding)
    np.testing.assert_array_equal(tables["differences"]["last 4 recomputed"], result.cropped)
    np.testing.assert_array_equal(tables["crops"]["largest difference"], result.sweep.max(axis=1))
    np.testing.assert_array_equal(tables["reach"]["sliding cache"], result.moved_by_cache)
    assert tables["reach"]["in reach by the law"].tolist() == ["no"] * 5 + ["yes"] * 7
    np.testing.assert_array_equal(arrays["crop_sweep"], result.sweep)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_slot_table_of_the_default_step(result):
    table = result.tables()["slots"]
    assert table["position"].tolist() == [7, 8, 9, 10, 11]
    assert table["token id"].tolist() == [20, 27, 2, 9, 16]
    assert table["slot before"].tolist() == ["0", "1", "2", "3", "new"]
    assert table["slot after"].tolist() == ["evicted", "0", "1", "2", "3"]
    assert table["layer 1 saw"].tolist() == ["7", "8", "9", "10", "11"]
    assert table["layer 2 saw"].tolist() == ["4–7", "5–8", "6–9", "7–10", "8–11"]


@pytest.mark.parametrize("field", ["moved_by_cache", "moved_by_crop"])
def test_words_say_that_a_reach_is_longer_than_the_law_allows(result, field):
    longer = getattr(result, field).copy()
    longer[result.config.earliest - 1] = 1e-3
    reading = replace(result, **{field: longer}).reach_reading
    assert "Token 4 reaches further than the law allows, so the engine is at fault" in reading
    assert "rounding" not in reading
    assert reading.endswith(".")
    assert "further" not in result.reach_reading


def test_words_say_that_no_token_moves_the_output(result):
    still = np.zeros_like(result.moved_by_cache)
    assert "No token moves the output" in replace(result, moved_by_cache=still).reach_reading


@pytest.mark.parametrize("row", [6, -1])
@pytest.mark.parametrize("wrong", [1e-3, np.nan])
def test_words_say_that_enough_raw_tokens_were_not_enough(result, row, wrong):
    sweep = result.sweep.copy()
    sweep[row, 3] = wrong
    reading = replace(result, sweep=sweep).sweep_reading
    assert f"up to {wrong:.2g}, not within 1e-12 as the law has it, so the engine is at fault, from 7 on" in reading
    assert "at fault" not in result.sweep_reading
