"""Decode paths: the study's numbers against the oracle and the paths, its words, and what it refuses."""

import numpy as np
import pytest

from kvcore import paths
from kvcore.budget import WORK_BUDGET
from kvcore.config import DTYPES, TOLERANCE
from kvcore.model import LabDecoder
from kvcore.rules import Rules, sliding, windowed
from kvcore.studies import decode_paths
from kvcore.studies.decode_paths import Config, run
from kvcore.studies.path_plan import CONTROLS, PATHS, path_plans


def by_name(result):
    return {outcome.name: outcome for outcome in result.outcomes}


def test_default_runs_every_path_and_every_mistake_is_caught():
    result = run(Config())
    assert [o.name for o in result.outcomes] == [*PATHS, *CONTROLS]
    assert [o.verdict for o in result.outcomes] == ["equal"] * len(PATHS) + ["caught"] * len(CONTROLS)
    assert result.not_run == ()


def test_differences_are_those_of_the_paths_at_every_position():
    config = Config(seed=19, n_layers=3, n_heads=4, n_kv_heads=2, window=5, length=20, chunks="6,7,7")
    decoder, tokens = LabDecoder(config.decoder), config.tokens
    found = by_name(run(config))["sliding cache"]
    mine = paths.cached(decoder, tokens, rules=sliding(5)).by_layer
    reference = paths.full(decoder, tokens, windowed(5)).by_layer
    np.testing.assert_array_equal(found.by_layer, np.abs(mine - reference).max(axis=-1))
    np.testing.assert_array_equal(found.gap, np.abs(mine[-1] - reference[-1]))
    assert found.position.tolist() == list(range(20))


def test_wrong_chunk_mask_covers_the_second_chunk_and_enters_in_the_first_layer():
    found = by_name(run(Config()))["wrong chunk mask"]
    assert found.position.tolist() == [5, 6, 7]
    assert (found.by_layer > 1e-3).all()


def test_cropping_to_the_window_is_exact_after_one_layer_and_wrong_after_two():
    found = by_name(run(Config()))["cropped recomputation"]
    assert found.by_layer[0].max() <= 1e-12
    assert found.comparison.first_beyond == 4


@pytest.mark.parametrize("setting", [{"n_layers": 1}, {"window": 1}, {"window": 24}, {"window": 200}])
def test_right_cropping_is_called_expected_equal_and_not_missed(setting):
    result = run(Config(**setting))
    assert by_name(result)["cropped recomputation"].verdict == "expected equal"
    assert "expected equal, and equal" in result.reading
    assert "missed" not in result.reading


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_format_has_its_tolerance_and_the_lower_ones_their_distance_from_float64(dtype):
    result = run(Config(dtype=dtype))
    assert {o.tolerance for o in result.outcomes} == {TOLERANCE[dtype]}
    assert all(o.verdict == "equal" for o in result.outcomes if not o.deliberate)
    distances = [o.from_exact for o in result.outcomes]
    if dtype == "float64":
        assert distances == [None] * len(distances)
        assert result.full_from_exact == {}
    else:
        assert all(d.max() > 0 for d in distances)
        assert set(result.full_from_exact) == {"full", "windowed full"}
        assert f"that is {dtype}, not the cache" in result.reading


def test_a_right_path_that_goes_wrong_is_reported(monkeypatch):
    right = paths.cached

    def broken(decoder, token_ids, chunk_sizes=None, rules=paths.RIGHT):
        return right(decoder, token_ids, chunk_sizes, Rules(mask_position=lambda p: p - p[0]))

    monkeypatch.setattr(paths, "cached", broken)
    result = run(Config(paths="token cache", controls=""))
    assert result.outcomes[0].verdict == "BEYOND TOLERANCE"
    assert "23 of 24 positions are beyond 1e-12, the first is position 1" in result.reading


def test_reading_names_the_worst_position_of_this_result():
    result = run(Config(controls="", paths="token cache"))
    found = result.outcomes[0].comparison
    assert f"{found.largest:.2g} at position {found.worst_position}" in result.reading


def test_multi_head_layer_is_a_second_model_with_its_own_tolerance():
    result = run(Config(model="multi-head layer"))
    (outcome,) = result.outcomes
    assert (outcome.name, outcome.tolerance, outcome.verdict) == ("preallocated cache", 1e-5, "equal")
    assert outcome.by_layer.shape == (1, 8)
    assert result.sizes == (5, 1, 1, 1)


def test_one_chunk_leaves_no_wrong_chunk_mask_and_says_so():
    result = run(Config(chunks="24"))
    assert "wrong chunk mask" not in by_name(result)
    assert "needs a second chunk" in result.reading


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_largest_setting_leaves_out_what_the_budget_cannot_take(dtype):
    config = Config(length=256, n_layers=6, d_model=128, n_heads=8, n_kv_heads=8, dtype=dtype)
    plans = path_plans(LabDecoder(config.decoder), config.tokens, config.sizes, config.window)
    prefix = plans[-1]
    assert prefix.name == "prefix recomputation"
    assert prefix.cost > WORK_BUDGET
    result = run(config)
    assert "prefix recomputation" not in by_name(result)
    assert "Not run, since one request may take 2,000 million multiply-adds" in result.reading
    assert "prefix recomputation" in result.reading


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"chunks": "5,3,7"}, "add 9 more"),
        ({"token_ids": "1,2,32"}, "ids go from 0 to 31"),
        ({"token_ids": "1,2,-1"}, "ids go from 0 to 31"),
        ({"token_ids": "1,2,3.5"}, "no whole number"),
        ({"token_ids": "7"}, "give 2 to 256"),
        ({"token_ids": "1 " * 10_000}, "at most 256"),
        ({"paths": "", "controls": ""}, "choose at least one"),
        ({"paths": "ring"}, "allowed are token cache"),
        ({"n_heads": 3}, "must divide evenly"),
        ({"n_heads": 4, "n_kv_heads": 3}, "must divide n_heads"),
        ({"length": 10_000}, "from 2 to 256"),
        ({"n_layers": 7}, "from 1 to 6"),
        ({"dtype": "float8"}, "must be one of float64"),
        ({"model": "llama"}, "must be one of lab decoder"),
        ({"window": 0}, "from 1 to 256"),
        ({"seed": -1}, "0 or more"),
    ],
)
def test_bad_input_gets_one_sentence_that_says_what_is_allowed(setting, says):
    with pytest.raises(ValueError, match=says) as refused:
        Config(**setting)
    assert "\n" not in str(refused.value)


def test_typed_ids_decide_the_length():
    result = run(Config(token_ids="3, 10, 17, 24, 31, 6", chunks="2,4"))
    assert result.length == 6
    assert by_name(result)["token cache"].position.tolist() == list(range(6))


def test_tables_and_arrays_hold_the_same_numbers():
    result = run(Config(length=9, chunks="4,5"))
    tables, arrays = result.tables(), result.arrays()
    assert len(tables["paths"]) == len(result.outcomes)
    rows = tables["differences"]
    last = rows[(rows["path"] == "chunk cache") & (rows["after layer"] == 2)]
    np.testing.assert_array_equal(last["largest difference"], arrays["chunk_cache_by_layer"][-1])


def test_study_names_are_those_that_figures_can_draw():
    from kvcore.figures.theme import LINE

    assert set(PATHS + CONTROLS) <= set(LINE)
    assert decode_paths.MODELS[0] == Config().model


def test_a_nan_never_counts_as_equal(monkeypatch):
    from kvcore import multihead

    right = multihead.attention

    def planted(query, key, value, visible):
        context, weights = right(query, key, value, visible)
        return (context * float("nan") if len(visible) == 1 else context), weights

    monkeypatch.setattr(multihead, "attention", planted)
    (outcome,) = run(Config(model="multi-head layer")).outcomes
    assert outcome.verdict == "BEYOND TOLERANCE"
    assert outcome.comparison.first_beyond == 5


def test_multi_head_work_is_counted():
    (outcome,) = run(Config(model="multi-head layer")).outcomes
    assert outcome.work == (3 * 8, 25 + 6 + 7 + 8)


def test_rounding_beyond_the_tolerance_is_told_from_a_fault(monkeypatch):
    large = {"dtype": "float32", "n_layers": 6, "d_model": 128, "n_heads": 8, "n_kv_heads": 8, "length": 256}
    monkeypatch.setitem(TOLERANCE, "float32", 1e-9)
    outcome = by_name(run(Config(paths="token cache", controls="", **large)))["token cache"]
    assert outcome.verdict == "rounding"

    right = paths.cached
    wrong = Rules(mask_position=lambda p: p - p[0])
    monkeypatch.setattr(paths, "cached", lambda decoder, ids, sizes=None, rules=None: right(decoder, ids, sizes, wrong))
    result = run(Config(paths="token cache", controls="", dtype="bfloat16"))
    assert result.outcomes[0].verdict == "BEYOND TOLERANCE"
    assert "token cache by more than bfloat16 explains" in result.reading


def test_where_names_the_layer_that_a_difference_enters_in():
    found = by_name(run(Config()))
    assert found["cropped recomputation"].where == "It first passes the tolerance after layer 2, there at position 4."
    assert found["wrong chunk mask"].where == "It first passes the tolerance after layer 1, there at position 5."
    assert found["token cache"].where == "It is within the tolerance after every layer."
