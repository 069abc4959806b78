"""The mask explorer's numbers against the slow oracle, its refusals, and sentences that are true in every setting."""

import numpy as np
import pytest

from kvcore.budget import WORK_BUDGET, estimate
from kvcore.compare import difference_by_position
from kvcore.config import lab_token_ids
from kvcore.studies.mask_explorer import MAX_CACHED, MAX_NEW, Config, run
from tests.oracle import hidden_states


def right(config, i, j):
    """The definition of visibility, one cell at a time."""
    near = config.window is None or i - j < config.window
    return j <= i and (near or j < config.n_sinks)


def chosen(config, i, j):
    """The chosen mask of a new row, before flips: perhaps numbered from 0, perhaps not causal."""
    numbered = i - config.n_cached if config.numbering == "from 0" else i
    near = config.window is None or numbered - j < config.window
    return (j <= numbered or not config.causal) and (near or j < config.n_sinks)


def as_run(config, i, j):
    """Cached rows under the right mask, new ones under the chosen mask with the typed cells flipped."""
    if i < config.n_cached:
        return right(config, i, j)
    typed = [tuple(map(int, cell.split(":"))) for cell in config.flipped.split(",") if cell]
    return chosen(config, i, j) != ((i, j) in typed)


def grid(config, rule):
    rows, columns = range(config.n_cached, config.length), range(config.length)
    return np.array([[rule(config, i, j) for j in columns] for i in rows])


def oracle_rows(config, rule, tokens=None):
    tokens = lab_token_ids(config.length) if tokens is None else tokens
    heads = {"n_heads": config.n_heads, "n_kv_heads": config.n_kv_heads}
    rows = hidden_states(
        tokens, seed=config.seed, n_layers=config.n_layers, **heads, visible=lambda i, j: rule(config, i, j)
    )
    return np.array(rows[-1])


SETTINGS = [
    Config(),
    Config(window=3, n_sinks=1),
    Config(causal=False, window=2),
    Config(numbering="from 0"),
    Config(numbering="from 0", flipped="5:3,6:7", n_heads=4, n_kv_heads=2),
    Config(flipped="5:3,6:7", n_layers=3, seed=19),
    Config(n_cached=0, n_new=4, numbering="from 0", flipped="2:3", n_heads=1, n_kv_heads=1),
]


@pytest.mark.parametrize("config", SETTINGS)
def test_masks_match_the_definition_cell_by_cell(config):
    result = run(config)
    np.testing.assert_array_equal(result.right, grid(config, right))
    np.testing.assert_array_equal(result.unedited, grid(config, chosen))
    np.testing.assert_array_equal(result.visible, grid(config, as_run))
    assert result.wrongly_hidden.sum() == (grid(config, right) & ~grid(config, as_run)).sum()
    assert result.wrongly_shown.sum() == (~grid(config, right) & grid(config, as_run)).sum()


@pytest.mark.parametrize("config", SETTINGS)
def test_movement_and_leaks_match_the_slow_oracle_at_every_position(config):
    result = run(config)

    def unedited(config, i, j):
        return (right if i < config.n_cached else chosen)(config, i, j)

    def open_to_the_future(config, i, j):
        return config.window is None or i - j < config.window or j < config.n_sinks

    rows = oracle_rows(config, as_run)
    changed = lab_token_ids(config.length)
    changed[config.first_edited :] = (changed[config.first_edited :] + 1) % 32
    expected = {
        "moved": difference_by_position(rows, oracle_rows(config, unedited)),
        "from_right": difference_by_position(rows, oracle_rows(config, right)),
        "mask_change": difference_by_position(rows, oracle_rows(config, as_run, changed)),
        "causal_change": difference_by_position(oracle_rows(config, right), oracle_rows(config, right, changed)),
        "unmasked_change": difference_by_position(
            oracle_rows(config, open_to_the_future), oracle_rows(config, open_to_the_future, changed)
        ),
    }
    for name, difference in expected.items():
        np.testing.assert_allclose(getattr(result, name), difference, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("config", SETTINGS)
def test_weights_sum_to_one_and_are_zero_only_where_masked(config):
    result = run(config)
    assert result.weights.shape == (config.n_layers, config.n_heads, config.n_new, config.length)
    np.testing.assert_allclose(result.weights.sum(axis=-1), 1, atol=1e-12)
    masked = np.broadcast_to(~result.visible, result.weights.shape)
    np.testing.assert_array_equal(result.weights == 0, masked)
    np.testing.assert_array_equal(np.isnan(result.shown_weights), ~result.visible)


def test_shown_weights_are_those_of_the_chosen_layer_and_head():
    result = run(Config(layer=2, head=2))
    np.testing.assert_array_equal(result.shown_weights[result.visible], result.weights[1, 1][result.visible])


def test_a_right_mask_moves_nothing_at_all():
    result = run(Config(window=3, n_sinks=1))
    assert result.moved.max() == result.from_right.max() == 0
    assert result.is_right
    assert "This is the right mask." in result.reading


def test_a_flipped_cell_moves_its_row_and_only_rows_that_can_see_it():
    moved = run(Config(flipped="6:3")).moved
    assert (moved[:6] == 0).all()
    assert (moved[6:] > 1e-6).all()


@pytest.mark.parametrize("first", [1, 4, 6, 7])
def test_the_future_moves_earlier_positions_by_exactly_0_under_the_causal_mask_only(first):
    result = run(Config(edit_from=first))
    assert (result.causal_change[:first] == 0).all()
    assert (result.unmasked_change[:first] > 1e-6).all()
    assert (result.causal_change[first:] > 1e-6).all()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            Config(),
            "Query 6 reads keys 0–6, as it should. Of 24 cells, 21 are visible; none is wrongly hidden or shown.",
        ),
        (Config(window=3, n_sinks=1), "Query 6 reads keys 0 and 4–6, as it should."),
        (Config(n_cached=0, n_new=1), "Query 0 reads key 0, as it should. Of 1 cell, 1 is visible; none"),
        (
            Config(numbering="from 0"),
            "Query 6 reads keys 0–1; it should read keys 0–6: keys 2–6 are wrongly hidden."
            " Of 24 cells, 6 are visible; 15 are wrongly hidden and 0 wrongly shown.",
        ),
        (Config(flipped="6:7"), "it should read keys 0–6: key 7 is wrongly shown."),
        (Config(flipped="6:7,6:0"), "key 0 is wrongly hidden and key 7 is wrongly shown."),
        (Config(flipped="6:3"), "1 cell is flipped by hand: against the right mask, positions 6–7 move, by up to"),
        (Config(flipped="7:3"), "1 cell is flipped by hand: against the right mask, position 7 moves, by up to"),
        (Config(numbering="from 0", flipped="5:1"), "1 cell is flipped by hand: by that alone, position 5 moves"),
        (Config(n_new=1, causal=False, flipped="5:0,4:0,9:9"), "2 flipped cells outside this mask are dropped."),
        (Config(causal=False, n_new=2, flipped="5:6"), "1 cell is flipped by hand, and the mask is the right one."),
        (Config(edit_from=0), "The edit starts at position 0, so there is no earlier position to look at."),
        (Config(numbering="from 0"), "with the mask above by exactly 0: this check does not see that it is wrong."),
        (Config(n_cached=0, numbering="from 0"), "This is the right mask."),
    ],
)
def test_the_reading_is_true_of_this_result(config, sentence):
    assert sentence in run(config).reading


def test_numbers_in_the_reading_are_those_of_the_result():
    result = run(Config(causal=False))
    assert f"by up to {result.from_right.max():.2g} at position {result.from_right.argmax()}" in result.reading
    assert f"by up to {result.unmasked_change[:6].max():.2g} without it" in result.reading
    assert f"with the mask above by up to {result.mask_change[:6].max():.2g}." in result.reading


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [((5,), "query 5 sees no key"), ((5, 6), "2 queries, the first of them 5, see no key")],
)
def test_a_row_without_keys_is_refused_in_words_and_the_rest_stands(rows, sentence):
    flipped = ",".join(f"{row}:{key}" for row in rows for key in range(row + 1))
    result = run(Config(flipped=flipped, row=5))
    assert sentence in result.refusal
    assert result.reading.count("sees no key") + result.reading.count("see no key") == 1
    assert "Query 5 reads no key; it should read keys 0–5" in result.reading
    assert result.moved is result.from_right is result.weights is result.mask_change is None
    assert result.causal_change.shape == (8,)
    assert set(result.tables()) == {"rows", "cells", "future edit"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"n_cached": 65}, "from 0 to 64"),
        ({"n_cached": -1}, "from 0 to 64"),
        ({"n_new": 0}, "from 1 to 32"),
        ({"n_new": 33}, "from 1 to 32"),
        ({"n_new": 2.0}, "from 1 to 32"),
        ({"window": 0}, "from 1 to 96"),
        ({"n_sinks": 5}, "from 0 to 4"),
        ({"numbering": "backwards"}, "absolute, from 0"),
        ({"flipped": "5-3"}, "written query:key"),
        ({"row": 4}, "from 5 to 7"),
        ({"row": 8}, "from 5 to 7"),
        ({"edit_from": 8}, "from 0 to 7"),
        ({"seed": -1}, "seed is -1"),
        ({"n_layers": 7}, "from 1 to 6"),
        ({"layer": 3}, "from 1 to 2"),
        ({"head": 3}, "from 1 to 2"),
        ({"n_heads": 3}, "allowed are 1, 2, 4"),
        ({"n_kv_heads": 4}, "must divide n_heads"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(fields, says):
    with pytest.raises(ValueError, match=says):
        Config(**fields)


def test_tables_and_arrays_hold_the_result():
    result = run(Config(flipped="5:3,6:7"))
    tables = result.tables()
    assert tables["rows"]["reads keys"].tolist() == ["0–2 and 4–5", "0–7", "0–7"]
    assert tables["cells"]["visible"].sum() == result.visible.sum()
    assert tables["cells"].query("query == 5 and key == 3")["flipped by hand"].item() == 1
    np.testing.assert_array_equal(tables["movement"]["from the right mask"], result.from_right)
    np.testing.assert_array_equal(tables["future edit"]["mask above"], result.mask_change)
    assert np.isnan(tables["weights"].loc[0, "key 3"])
    np.testing.assert_array_equal(result.arrays()["weights"], result.weights)


def test_text_form_is_one_line_a_query():
    assert run(Config()).text.splitlines()[0] == "q5: 1 1 1 1 1 1 0 0"


def test_the_largest_setting_stays_within_the_work_budget():
    config = Config(n_cached=MAX_CACHED, n_new=MAX_NEW, n_layers=6, n_heads=4, n_kv_heads=4)
    calls = [(0, config.length)] * 4 + [(0, MAX_CACHED)] * 2 + [(MAX_CACHED, config.length)] * 4
    assert estimate(config.decoder, calls, with_cache=True) < WORK_BUDGET
    assert run(config).visible.shape == (32, 96)


@pytest.mark.parametrize(("n_sinks", "says"), [(1, "the 1 attention sink has"), (2, "the 2 attention sinks have")])
def test_sinks_without_a_window_are_said_to_have_no_effect(n_sinks, says):
    assert f"Without a window {says} no effect." in run(Config(n_sinks=n_sinks)).mask_reading
    assert "no effect" not in run(Config(n_sinks=n_sinks, window=3)).mask_reading
    assert "no effect" not in run(Config()).mask_reading
