"""The prefix-reuse study: its numbers against plain computations, its refusals, its words at the edges."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from kvcore.config import POSITIONS
from kvcore.plain import PlainDecoder
from kvcore.prefix import Key, reuse_experiment
from kvcore.studies import prefix_reuse
from kvcore.studies.prefix_reuse import MAX_SUFFIX, Config
from tests import oracle

PREFIX = list(range(1, 9))
run = cache(prefix_reuse.run)

EDGES = [
    Config(),
    Config(edit_at=None),
    Config(edit_at=0),
    Config(edit_at=7),
    Config(edit_at=2, edit_to=3),
    Config(edit_at=1),
    Config(edit_at=None, weight=0.5),
    Config(edit_at=None, weight=1e-15),
    Config(edit_at=None, window=4),
    Config(edit_at=None, window=14),
    Config(edit_at=None, window=4, n_layers=1),
    Config(edit_at=None, other_scope=True),
    Config(other_scope=True, weight=1.0, window=1, positions="rotary"),
    Config(edit_at=None, positions="learned", stored_positions="alibi"),
    Config(window=3, stored_window=3, storage="sliding"),
    Config(edit_at=7, window=3, stored_window=3, storage="sliding"),
    Config(edit_at=None, window=None, stored_window=3, storage="sliding"),
    Config(suffix="0", seed=0),
    Config(n_layers=4, suffix="31 30 29 28 27 26"),
]


@pytest.fixture(scope="module")
def result():
    return run(Config())


def by_oracle(config, tokens):
    """The rows of the request's decoder, weights unchanged."""
    return np.array(
        oracle.decode_setting(config.asked.decoder.config, tokens, [config.window] * config.n_layers, n_sinks=0)
    )


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(positions="rotary", stored_positions="rotary", edit_at=5, n_layers=3, seed=3),
        Config(positions="alibi", window=3, stored_window=3, edit_at=6, suffix="5,5"),
        Config(positions="learned", stored_positions="learned", edit_at=None, other_scope=True),
        Config(window=2, stored_window=2, storage="sliding", edit_at=7),
    ],
)
def test_fresh_and_keyed_rows_are_the_oracles(config):
    found = run(config)
    expected = by_oracle(config, found.asked_ids)[len(PREFIX) :]
    for way in (found.ways.fresh, found.ways.keyed):
        assert np.abs(way.hidden - expected).max() <= 1e-12


@pytest.mark.parametrize(
    "config", [Config(edit_at=4, edit_to=30), Config(edit_at=None, weight=0.1), Config(weight=-2.0)]
)
def test_unchecked_rows_are_those_of_a_plain_decoder_that_read_the_stored_prefix(config):
    plain, found = PlainDecoder(config.stored.decoder.config), run(config)
    for token in PREFIX:
        plain.step(token)
    plain.weights[0][1][0, 0] += config.weight
    rows = np.array([plain.step(token) for token in config.asked.suffix])
    assert np.abs(found.ways.unchecked.hidden - rows).max() <= 1e-12
    assert found.compared(found.ways.unchecked).largest > 1e-3


@pytest.mark.parametrize("config", EDGES)
def test_keyed_reuse_is_always_right_and_counts_are_their_formula(config):
    found = run(config)
    assert found.compared(found.ways.keyed).equal
    for way in found.ways:
        assert way.projected_rows == found.formula(way) == 3 * config.n_layers * (len(found.asked_ids) - way.n_reused)
    assert found.ways.unchecked.n_reused == 8
    assert found.ways.fresh.n_reused == 0
    assert found.ways.keyed.n_reused in (0, found.n_common)
    if found.differing:
        assert found.ways.keyed.n_reused == 0
    elif config.storage == "growing":
        assert found.ways.keyed.n_reused == found.n_common
    if not found.changed:
        assert found.compared(found.ways.unchecked).equal
        assert not found.stale.any()


@pytest.mark.parametrize("config", EDGES)
def test_readings_say_what_the_result_holds(config):
    found = run(config)
    keyed, unchecked = found.ways.keyed, found.compared(found.ways.unchecked)
    assert f"{found.ways.fresh.projected_rows} fresh, {keyed.projected_rows} by the key" in found.verdict
    assert ("may not be used" in found.verdict or "cannot be reused" in found.verdict) == (keyed.n_reused == 0)
    assert ("key differs" in found.verdict) == bool(found.differing)
    assert all(name in found.verdict for name in found.differing)
    assert ("beyond 1e-12, the first" in found.outcome) == (not unchecked.equal)
    assert ("deliberate mistake" in found.outcome) == found.changed
    assert "at fault" not in found.reading
    assert "not a speed-up" in found.verdict
    for wrong in (" 1 tokens", "the 1 token before it are", "nan", "  ", "..", "entrys"):
        assert wrong not in found.reading


def test_the_default_is_the_edit_of_the_experiment(result):
    (row,) = [row for row in reuse_experiment([7]) if row["condition"] == "edited-prefix"]
    assert result.compared(result.ways.unchecked).largest == row["unchecked_error"]
    assert "position 2 holds token 20 where 3 was stored" in result.verdict
    assert "only the 2 tokens before it are reused and 10 are computed" in result.verdict
    assert "72 fresh, 60 by the key, 24 unchecked" in result.verdict
    assert "1 in layer 1 and 6 in layer 2" in result.outcome


def test_reasons_at_the_edges():
    assert "all 8 stored tokens begin the request" in run(Config(edit_at=None)).verdict
    assert "all 8 stored tokens begin the request" in run(Config(edit_to=3)).verdict
    assert "right only because nothing differs" in run(Config(edit_at=None)).outcome
    assert "position 0 holds token 20 where 1 was stored, so all 12" in run(Config(edit_at=0)).verdict
    assert "only the 1 token before it is reused" in run(Config(edit_at=1)).verdict
    several = run(Config(other_scope=True, weight=1.0, window=1, positions="rotary")).verdict
    assert "differs in weights, positions, window and scope (and position 2 holds token 20" in several
    assert "says whose prefix it is" in run(Config(edit_at=None, other_scope=True)).outcome
    assert "does not reach these rows" in run(Config(edit_at=None, window=14)).outcome
    assert "does not reach these rows" in run(Config(edit_at=None, window=4, n_layers=1)).outcome
    assert "does not reach these rows" in run(Config(edit_at=None, weight=1e-15)).outcome
    cut = run(Config(window=3, stored_window=3, storage="sliding"))
    assert "evicted positions 0–4, of which the token at position 2 reads some" in cut.verdict
    assert cut.evicted_too_much
    assert "5 entries had been evicted" not in cut.outcome
    short = run(Config(edit_at=None, window=None, stored_window=3, storage="sliding")).outcome
    assert "10 entries had been evicted" in short


def test_stored_entries_are_compared_one_by_one(result):
    """An edit reaches its own entry in the first layer, and every later one in the second."""
    np.testing.assert_array_equal(result.stale, [[p == 2 for p in range(8)], [p >= 2 for p in range(8)]])
    windowed = run(Config(edit_at=None, window=4))
    np.testing.assert_array_equal(windowed.stale, [[False] * 8, [p >= 4 for p in range(8)]])
    assert run(Config(edit_at=None, weight=0.5)).stale[0].all()
    assert not run(Config(edit_at=None, other_scope=True)).stale.any()
    sliding = run(Config(edit_at=None, window=3, stored_window=3, storage="sliding"))
    np.testing.assert_array_equal(sliding.entries.held, [[p >= 5 for p in range(8)]] * 2)


def test_experiment_reading_holds_the_rows(result):
    reading = result.experiment_reading
    unchecked = [row["unchecked_error"] for row in result.experiment if row["unchecked_error"] > 1e-12]
    assert f"{min(unchecked):.2g} (different weights, seed 41) to {max(unchecked):.2g} (different window" in reading
    assert "under “same prefix” and “new suffix”: 24 projected rows." in reading
    assert "“different window” and “different scope”: 72 projected rows." in reading
    assert "24 rows to project instead of 72" in result.scope_reading
    assert "2.2e-16" in result.scope_reading


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"keyed_error": 0.5}, "off by 0.5 (different window, seed 19), beyond 1e-12: the engine is at fault"),
        ({"keyed_error": float("nan")}, "the engine is at fault"),
        ({"reused": True}, "under “same prefix” and “new suffix” alone: the engine is at fault"),
        ({"projected_rows": 70}, "70 and 72 projected rows"),
    ],
)
def test_experiment_words_notice_a_fault(result, changes, says):
    planted = [
        row | changes if (row["condition"], row["seed"]) == ("different-window", 19) else row
        for row in result.experiment
    ]
    assert says in replace(result, experiment=tuple(planted)).experiment_reading


def test_words_notice_unchecked_reuse_that_shows_nowhere_or_elsewhere(result):
    hidden = tuple(row | {"unchecked_error": 0.0} for row in result.experiment)
    assert "the engine is at fault" in replace(result, experiment=hidden).experiment_reading
    shifted = tuple(row | {"unchecked_error": 1.0} for row in result.experiment)
    assert "Those are the conditions" in result.experiment_reading
    assert "Those are the conditions" not in replace(result, experiment=shifted).experiment_reading


def test_words_notice_a_keyed_way_that_is_wrong(result):
    wrong = result.ways._replace(keyed=result.ways.unchecked._replace(n_reused=2))
    assert "This must not be: the engine is at fault." in replace(result, ways=wrong).outcome


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("edit_at", 8, "the edited position is 8; it must be a whole number from 0 to 7"),
        ("edit_at", -1, "from 0 to 7"),
        ("edit_to", 32, "the token put there is 32; it must be a whole number from 0 to 31"),
        ("weight", 10.5, "added to the weight is 10.5; it must be a number from −10 to 10"),
        ("weight", float("nan"), "a number from −10 to 10"),
        ("weight", float("inf"), "a number from −10 to 10"),
        ("weight", True, "a number from −10 to 10"),
        ("weight", "a", "a number from −10 to 10"),
        ("window", 0, "window is 0; it must be a whole number from 1 to 14"),
        ("stored_window", 15, "the stored window is 15; it must be a whole number from 1 to 14"),
        ("positions", "relative", "positions is 'relative'; it must be one of sinusoidal, learned"),
        ("stored_positions", "", "the stored positions is ''; it must be one of"),
        ("other_scope", 1, "other_scope is 1; it must be true or false"),
        ("suffix", "", "suffix ids are empty"),
        ("suffix", "9,x", "'x' is no whole number"),
        ("suffix", "99", "token id 99 is outside the vocabulary; ids go from 0 to 31"),
        ("suffix", ",".join(["1"] * (MAX_SUFFIX + 1)), "7 suffix ids are too many; at most 6"),
        ("storage", "ring", "storage is 'ring'; it must be one of growing, sliding"),
        ("n_layers", 5, "layers is 5; it must be a whole number from 1 to 4"),
        ("seed", -1, "seed is -1; it must be a whole number 0 or more"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(field, value, says):
    with pytest.raises(ValueError, match=says):
        Config(**{field: value})


@pytest.mark.parametrize(
    ("positions", "stored"), [*zip(POSITIONS, POSITIONS, strict=True), *pairwise((*POSITIONS, POSITIONS[0]))]
)
def test_another_scheme_of_positions_misses_and_the_same_hits(positions, stored):
    found = run(Config(edit_at=None, positions=positions, stored_positions=stored))
    assert (found.ways.keyed.n_reused == 8) == (positions == stored)
    assert found.compared(found.ways.unchecked).equal == (positions == stored)


def test_tables_and_arrays_hold_the_result(result):
    tables, arrays = result.tables(), result.arrays()
    assert set(tables) == {"experiment", "differences", "ways", "key", "entries"}
    assert tables["experiment"]["unchecked"].tolist() == [row["unchecked_error"] for row in result.experiment]
    assert tables["experiment"]["projected rows"].tolist() == [24, 72, 72, 72, 72, 24] * 3
    np.testing.assert_array_equal(tables["differences"]["unchecked"], result.ways.difference(result.ways.unchecked))
    assert tables["ways"]["projected rows"].tolist() == [72, 60, 24]
    assert tables["ways"]["3·L·(T − reused)"].tolist() == [72, 60, 24]
    assert tables["ways"]["within 1e-12"].tolist() == ["yes", "yes", "no"]
    assert len(tables["key"]) == 1 + len(Key._fields)
    assert tables["key"]["same"].tolist() == ["the first 2"] + ["yes"] * len(Key._fields)
    other = run(Config(edit_at=0, other_scope=True, weight=0.5)).tables()["key"].set_index("field")["same"]
    assert [name for name, same in other.items() if same == "no"] == ["tokens", "weights", "scope"]
    assert tables["entries"]["layer 1 holds it"].tolist() == ["yes"] * 8
    np.testing.assert_array_equal(arrays["unchecked_rows"], result.ways.unchecked.hidden)
    np.testing.assert_array_equal(arrays["experiment_reused"], [row["reused"] for row in result.experiment])
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in arrays.values())
