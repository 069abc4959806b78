"""Work counts: formula and count against plain loops, the drawn cells, what is refused and what is said."""

import dataclasses
import pickle

import numpy as np
import pytest

from kvcore import paths, work
from kvcore.budget import estimate
from kvcore.config import lab_token_ids
from kvcore.model import LabDecoder
from kvcore.rules import windowed
from kvcore.studies import work_runs
from kvcore.studies.work_cells import AGAIN, GONE, NEW, NOT_YET, READ, cells
from kvcore.studies.work_counts import DTYPE, MAX_LENGTH, Config, growth_lengths, run
from kvcore.studies.work_paths import MAX_RUN, QUANTITIES, exact_crop
from kvcore.work import Work

CONFIGS = [
    Config(),
    Config(length=1, prompt=1, window=1),
    Config(length=7, n_layers=1, prompt=7, window=2),
    Config(length=9, n_layers=3, n_heads=4, n_kv_heads=2, itemsize=4, prompt=1, window=9),
    Config(length=33, prompt=20, window=40, itemsize=2),
    Config(length=6, prompt=2, window=None),
]


@pytest.fixture(scope="module")
def default():
    return run(Config())


def calls_by_definition(config):
    """For every path its calls as (new tokens, attended keys, entries kept), written as loops."""
    steps = range(1, config.length + 1)
    prompt = config.prompt
    found = {
        "full": [(config.length, config.length, 0)],
        "prefix recomputation": [(t, t, 0) for t in steps],
        "token cache": [(1, t, t) for t in steps],
        "chunk cache": [(prompt, prompt, prompt)] + [(1, t, t) for t in steps if t > prompt],
    }
    if config.window is not None:
        crop = config.n_layers * (config.window - 1) + 1
        kept, sliding = 0, []
        for _ in steps:
            sliding.append((1, kept + 1, min(kept + 1, config.window)))
            kept = sliding[-1][2]
        found["sliding cache"] = sliding
        found["cropped recomputation"] = [(min(t, crop), min(t, crop), 0) for t in steps]
    return found


def sums(config, calls):
    """Cumulative projected rows and score elements, and payload bytes, after each call."""
    rows = scores = 0
    for n_new, n_keys, kept in calls:
        for _ in range(config.n_layers):
            rows += 3 * n_new
            scores += n_new * n_keys
        numbers = kept * config.n_kv_heads * (config.d_model // config.n_heads)
        yield rows, scores, 2 * config.n_layers * numbers * config.itemsize


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_formula_and_count_equal_plain_loops_after_every_call(config):
    found, expected = run(config), calls_by_definition(config)
    assert [count.name for count in found.counts] == list(expected)
    for count in found.counts:
        after = np.array(list(sums(config, expected[count.name])))
        np.testing.assert_array_equal(count.counted, after)
        np.testing.assert_array_equal(count.expected, after)
        np.testing.assert_array_equal(count.formula, after[-1])
        assert count.equal.all()


def test_the_recorded_setting_gives_the_recorded_counts(default):
    prefix, token, sliding = (
        default.path(name).counted[-1].tolist() for name in ("prefix recomputation", "token cache", "sliding cache")
    )
    assert prefix == [1800, 9800, 0]
    assert token == [144, 600, 12288]
    assert sliding[2] == 2048
    for number in ("1,800", "9,800", "144", "600", "12,288 bytes (12 KiB)", "2,048 bytes (2 KiB)"):
        assert number in default.reading


@pytest.mark.parametrize("length", [1, 5, 8, 9, 24])
def test_a_kept_longer_run_begins_with_the_calls_of_the_run_itself(length):
    config = Config(length=length, prompt=min(3, length))
    decoder, ids = LabDecoder(config.decoder), lab_token_ids(length)
    for path in config.paths:
        fresh, kept = path.run(decoder, ids).calls, work_runs.recorded(config.decoder, path, length)
        assert len(fresh) == len(kept)
        for mine, its in zip(kept, fresh, strict=True):
            np.testing.assert_array_equal(mine.cache_position, its.cache_position)
            np.testing.assert_array_equal(mine.key_position, its.key_position)
            assert (mine.work, mine.payload_bytes) == (its.work, its.payload_bytes)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_growth_is_the_formula_and_its_steps_add_up(config):
    for count in run(config).counts:
        path = next(path for path in config.paths if path.name == count.name)
        assert config.length in count.tokens
        np.testing.assert_array_equal(count.cumulative[count.tokens == config.length][0], count.formula)
        added = np.array([path.step_work(t) for t in range(path.first, 30)]).cumsum(axis=0)
        if not path.single_call:
            np.testing.assert_array_equal(added, [path.work(t) for t in range(path.first, 30)])


def test_growth_reaches_the_chosen_length_and_the_prompt():
    lengths = growth_lengths(200_000, 77)
    assert {1, 77, 78, 200_000} <= set(lengths.tolist())
    assert (np.diff(lengths) > 0).all()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_cells_account_for_every_projected_row_and_attended_key(config):
    if config.length > 32:
        config = dataclasses.replace(config, length=32)
    expected = calls_by_definition(config)
    for count in run(config).counts:
        computed = np.isin(count.cells, (NEW, AGAIN)).sum(axis=1)
        attended = np.isin(count.cells, (NEW, AGAIN, READ)).sum(axis=1)
        assert [(n, keys) for n, keys, _ in expected[count.name]] == list(zip(computed, attended, strict=True))
        assert 3 * config.n_layers * computed.sum() == count.counted[-1, 0]
        assert (count.cells == NEW).sum() == config.length


def test_painted_cells_of_a_sliding_cache_and_of_recomputation():
    sliding = run(Config(length=5, prompt=1, window=2)).path("sliding cache").cells
    np.testing.assert_array_equal(
        sliding,
        [
            [NEW, NOT_YET, NOT_YET, NOT_YET, NOT_YET],
            [READ, NEW, NOT_YET, NOT_YET, NOT_YET],
            [READ, READ, NEW, NOT_YET, NOT_YET],
            [GONE, READ, READ, NEW, NOT_YET],
            [GONE, GONE, READ, READ, NEW],
        ],
    )
    prefix = run(Config(length=3, prompt=1)).path("prefix recomputation").cells
    np.testing.assert_array_equal(prefix, [[NEW, NOT_YET, NOT_YET], [AGAIN, NEW, NOT_YET], [AGAIN, AGAIN, NEW]])


def test_cells_beyond_the_drawn_positions_are_left_out():
    calls = paths.full(LabDecoder(Config().decoder), lab_token_ids(10)).calls
    np.testing.assert_array_equal(cells(calls, 4), [[NEW] * 4])


@pytest.mark.parametrize("prompt", [1, 5, 24])
def test_honest_cases_by_loops(prompt):
    prefill, token, both = run(Config(prompt=prompt)).cases
    without = [6 * prompt, 2 * prompt**2]
    assert prefill.counted.tolist() == [without, without]
    assert "no difference" in prefill.reading
    anew = [6 * (prompt + 1), 2 * (prompt + 1) ** 2]
    assert token.counted.tolist() == [[6, 2 * (prompt + 1)], anew]
    assert both.counted.tolist() == [[6 * (prompt + 1), without[1] + 2 * (prompt + 1)], anew]
    assert "the same number of rows" in both.reading
    assert {case.agreement for case in (prefill, token, both)} == {"equal"}


def test_a_long_prompt_gives_its_cases_by_formula_only():
    for case in run(Config(length=MAX_LENGTH, prompt=MAX_LENGTH)).cases:
        assert case.counted is None
        assert case.reading.endswith("by formula.")
        assert "formula" in case.agreement


def test_the_exact_crop_gives_the_windowed_rows_and_a_shorter_one_does_not():
    config = Config(n_layers=3, window=3)
    decoder, ids = LabDecoder(config.decoder), lab_token_ids(20)
    rules = windowed(3)
    whole = paths.full(decoder, ids, rules).hidden
    crop = exact_crop(3, 3)
    assert np.abs(paths.cropped_recomputation(decoder, ids, crop, rules).hidden - whole).max() < 1e-12
    assert np.abs(paths.cropped_recomputation(decoder, ids, crop - 1, rules).hidden - whole).max() > 1e-6


def test_a_wrong_formula_is_seen(monkeypatch):
    monkeypatch.setattr(work, "token_cache", lambda n_layers, length: Work(3 * n_layers * length, length**2))
    found = run(Config())
    token = found.path("token cache")
    assert token.equal.tolist() == [True, False, True]
    assert token.agreement(1) == "DIFFERENT"
    assert "DIFFER for token cache." in found.reading


def test_a_miscounting_engine_is_seen(monkeypatch):
    work_runs._run.cache_clear()
    monkeypatch.setattr(paths, "count_work", lambda step: Work(1, 1))
    try:
        found = run(Config(length=5))
    finally:
        work_runs._run.cache_clear()
    assert not any(count.equal[:2].any() for count in found.counts)
    assert {case.agreement for case in found.cases} == {"DIFFERENT"}
    assert "DIFFER" in found.reading


@pytest.mark.parametrize("length", [MAX_RUN + 1, 10_000, MAX_LENGTH])
def test_large_lengths_show_the_formula_only_and_draw_a_short_run(length):
    found = run(Config(length=length, n_layers=6, d_model=128, n_heads=8, n_kv_heads=8))
    assert not any(count.ran or count.equal.any() for count in found.counts)
    assert found.path("prefix recomputation").formula[0] == 3 * 6 * sum(range(1, length + 1))
    assert f"at most {MAX_RUN} tokens are run" in found.reading
    assert "by formula" in found.reading
    assert found.path("token cache").cells.shape == (32, 32)
    assert (found.path("prefix recomputation").cumulative > -1).all()
    assert all(not row["counted"] for row in found.path("full").rows())


def test_beyond_the_budget_the_sentence_names_what_was_not_run(monkeypatch):
    monkeypatch.setattr(work_runs, "BUDGET", 130_000_000)
    found = run(Config())
    assert {"prefix recomputation", "token cache"} <= {count.name for count in found.counts if count.ran}
    assert "chunk cache" in found.reading.split("Not run")[1]
    assert "Their formulas are shown." in found.reading
    assert found.path("chunk cache").agreement(0) == "only the formula: too large to run"


@pytest.mark.parametrize(("itemsize", "prompt"), [(8, 255), (2, 255), (2, 5)])
def test_everything_that_the_largest_settings_run_stays_within_the_budget(monkeypatch, itemsize, prompt):
    costs, run_calls = [], paths.run_calls

    def charged(decoder, token_ids, spans, **options):
        spans = list(spans)
        costs.append(estimate(decoder.config, spans, with_cache=options["with_cache"]))
        return run_calls(decoder, token_ids, spans, **options)

    monkeypatch.setattr(paths, "run_calls", charged)
    work_runs._run.cache_clear()
    shape = {"n_layers": 6, "d_model": 128, "n_heads": 8, "n_kv_heads": 8, "itemsize": itemsize}
    found = run(Config(length=MAX_RUN, prompt=prompt, **shape))
    assert found.path("token cache").ran
    assert not found.path("prefix recomputation").ran
    assert 0.5 * work_runs.BUDGET < sum(costs) <= work_runs.BUDGET


def test_cases_that_the_budget_leaves_out_are_by_formula(monkeypatch):
    monkeypatch.setattr(work_runs, "BUDGET", 86_000_000)
    for case in run(Config()).cases:
        assert case.counted is None
        assert case.reading.endswith("by formula.")


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_sketch_draws_the_cells_of_the_run_itself(config):
    length = min(config.length, work_runs.DRAWN)
    for path in config.paths:
        drawn, ran = (make(config.decoder, path, length) for make in (work_runs.sketched, work_runs.recorded))
        np.testing.assert_array_equal(cells(drawn, length), cells(ran, length))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Config(length=1, prompt=1), "the same, counted, for the first token has no past"),
        (Config(length=1, prompt=1, n_layers=1), "For 1 token and 1 layer,"),
        (Config(length=2, prompt=1), "1.5 times fewer rows and 1.67 times fewer score elements"),
        (Config(window=24), "a window of 24 holds all of it"),
        (Config(window=23), "a window of 23 keeps 11,776 bytes"),
        (Config(window=None), "all 4 paths equal their formulas"),
    ],
)
def test_the_reading_is_true_at_the_edges(config, says):
    assert says in run(config).reading


def test_without_a_window_nothing_is_said_of_one():
    found = run(Config(window=None))
    assert "window" not in found.reading
    assert found.path("sliding cache") is None


def test_no_sentence_promises_speed(default):
    for text in (default.reading, *(case.reading for case in default.cases)):
        assert not any(word in text for word in ("speed", "faster", "slower", "time a"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"length": 0}, "length is 0; it must be a whole number from 1 to 1000000"),
        ({"length": MAX_LENGTH + 1}, "from 1 to 1000000"),
        ({"length": 24.0}, "must be a whole number"),
        ({"length": True}, "must be a whole number"),
        ({"n_layers": 7}, "n_layers is 7; it must be a whole number from 1 to 6"),
        ({"d_model": 256}, "from 2 to 128"),
        ({"d_model": 15}, "must be even"),
        ({"n_heads": 3}, "cannot be split into 3 heads"),
        ({"n_heads": 2, "n_kv_heads": 4}, "n_kv_heads must divide n_heads"),
        ({"itemsize": 3}, "it must be 8, 4 or 2"),
        ({"itemsize": 16}, "from 2 to 8"),
        ({"window": 0}, "window is 0"),
        ({"prompt": 0}, "prompt is 0"),
        ({"prompt": 25}, "P = 25 does not fit into T = 24"),
    ],
)
def test_refused_settings_say_what_is_allowed(fields, says):
    with pytest.raises(ValueError, match=r"\S") as caught:
        Config(**fields)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_format_is_run_in_its_own_bytes():
    for itemsize, dtype in DTYPE.items():
        found = run(Config(itemsize=itemsize))
        assert found.config.decoder.dtype == dtype
        assert found.path("token cache").counted[-1, 2] == 2 * 2 * 24 * 16 * itemsize


def test_tables_and_arrays_hold_every_count(default):
    tables, arrays = default.tables(), default.arrays()
    counts = tables["counts"]
    assert counts["quantity"].unique().tolist() == list(QUANTITIES)
    assert len(counts) == 3 * len(default.counts)
    assert (counts["by formula"] == counts["counted"]).all()
    assert tables["steps"].query("path == 'prefix recomputation'")["computed again"].sum() == 276
    assert len(tables["cases"]) == 6
    assert set(tables["growth"]["path"]) == {count.name for count in default.counts}
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in arrays.values())


def test_the_table_of_a_large_setting_leaves_counted_empty():
    counts = run(Config(length=10_000)).tables()["counts"]
    assert counts["counted"].isna().all()


def test_a_result_is_small_enough_to_copy_at_each_rerun(default):
    assert len(pickle.dumps(default)) < 100_000
