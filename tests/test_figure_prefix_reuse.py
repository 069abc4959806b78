"""Prefix reuse drawn: the figures hold the result's numbers, zeros apart, kinds told by mark, axes named."""

from dataclasses import replace

import numpy as np
import pytest

from kvcore.figures import prefix_reuse as figures
from kvcore.figures.theme import EXACT_ZERO
from kvcore.prefix_experiment import Way
from kvcore.studies.prefix_result import Entries
from kvcore.studies.prefix_reuse import Config, run


@pytest.fixture(scope="module")
def result():
    return run(Config())


def marks(drawn):
    """Kind -> positions and rows of its marks."""
    return {trace.name: set(zip(trace.x, trace.y, strict=True)) for trace in drawn.data if trace.mode == "markers"}


def test_experiment_has_a_mark_for_every_row_and_way_beside_its_condition(result):
    drawn = figures.experiment(result)
    assert [trace.name for trace in drawn.data] == [
        f"{w}, seed {s}" for w in ("keyed", "unchecked") for s in (7, 19, 41)
    ]
    for trace in drawn.data:
        way, seed = trace.name.split(", seed ")
        rows = [row for row in result.experiment if row["seed"] == int(seed)]
        error = np.array([row[f"{way}_error"] for row in rows])
        np.testing.assert_array_equal(trace.customdata, error)
        np.testing.assert_array_equal(trace.x, np.where(error == 0, EXACT_ZERO, error))
        assert np.round(trace.y).tolist() == list(range(6))
    assert list(drawn.layout.yaxis.ticktext)[:2] == ["same<br>prefix", "edited<br>prefix"]
    assert drawn.layout.shapes[0].x0 == drawn.layout.shapes[0].x1 == 1e-12
    assert drawn.layout.annotations[0].text == "tolerance 1e-12"
    assert drawn.layout.annotations[0].x == -12


def test_ways_and_seeds_differ_by_more_than_colour(result):
    assert len({trace.marker.symbol for trace in figures.experiment(result).data}) == 6
    keyed, unchecked = figures.differences(result).data
    assert (keyed.marker.symbol, keyed.line.dash) != (unchecked.marker.symbol, unchecked.line.dash)
    assert len({mark["symbol"] for mark in figures.MARK.values()}) == len(figures.MARK)


def test_differences_hold_both_ways_at_the_suffix_positions(result):
    drawn = figures.differences(result)
    for trace, way in zip(drawn.data, (result.ways.keyed, result.ways.unchecked), strict=True):
        assert trace.name == ("keyed" if way is result.ways.keyed else "unchecked")
        found = result.ways.difference(way)
        np.testing.assert_array_equal(trace.x, [8, 9, 10, 11])
        np.testing.assert_array_equal(trace.customdata, found)
        np.testing.assert_array_equal(trace.y, np.where(found == 0, EXACT_ZERO, found))
    assert drawn.layout.shapes[0].y0 == 1e-12
    assert "exactly 0" in drawn.layout.yaxis.ticktext


def test_entries_mark_every_position_of_every_layer_once_by_where_it_comes_from(result):
    drawn = figures.entries(result)
    found = marks(drawn)
    assert found[figures.STORED] == {
        *((p, f"keyed,<br>layer {layer}") for p in (0, 1) for layer in (1, 2)),
        *((p, "unchecked,<br>layer 1") for p in (0, 1, 3, 4, 5, 6, 7)),
        *((p, "unchecked,<br>layer 2") for p in (0, 1)),
    }
    assert found[figures.STALE] == {(2, "unchecked,<br>layer 1")} | {(p, "unchecked,<br>layer 2") for p in range(2, 8)}
    assert sum(len(found[kind]) for kind in figures.MARK if kind in found) == 4 * 12
    assert found["another token"] == {(2, "asked token")}
    tokens = [trace for trace in drawn.data if trace.mode == "text"]
    assert [list(trace.text) for trace in tokens] == [
        [str(token) for token in ids] for ids in (result.stored_ids, result.asked_ids)
    ]


def test_evicted_entries_have_their_own_mark_and_nothing_is_drawn_that_is_not_there():
    found = marks(figures.entries(run(Config(edit_at=None, window=3, stored_window=3, storage="sliding"))))
    assert {p for p, _ in found[figures.EVICTED]} == {0, 1, 2, 3, 4}
    assert {p for p, _ in found[figures.STORED]} == {5, 6, 7}
    assert figures.STALE not in found
    assert "another token" not in found


def test_a_miss_is_drawn_as_computed_throughout():
    found = marks(figures.entries(run(Config(other_scope=True))))
    assert {p for p, row in found[figures.COMPUTED] if row.startswith("keyed")} == set(range(12))


@pytest.mark.parametrize("config", [Config(), Config(edit_at=None), Config(n_layers=4, suffix="1"), Config(weight=1.0)])
def test_every_axis_has_a_title(config):
    found = run(config)
    for draw in (figures.experiment, figures.differences, figures.entries):
        drawn = draw(found)
        assert drawn.layout.xaxis.title.text
        assert drawn.layout.yaxis.title.text


def test_empty_results_give_a_figure_with_a_sentence(result):
    none, nothing = np.empty(0, dtype=int), Way(np.empty((0, 16)), 0, 0)
    empty = replace(
        result,
        experiment=(),
        stored_ids=none,
        asked_ids=none,
        ways=result.ways._replace(fresh=nothing, keyed=nothing, unchecked=nothing),
        entries=Entries(np.empty((2, 0)), np.empty((2, 0), dtype=bool)),
    )
    for draw in (figures.experiment, figures.differences, figures.entries):
        drawn = draw(empty)
        assert not drawn.data
        assert drawn.layout.annotations[0].text.endswith(".")


def test_a_fault_is_drawn_as_one(result):
    wrong = replace(result, ways=result.ways._replace(keyed=result.ways.unchecked))
    assert max(figures.differences(wrong).data[0].y) > result.tolerance
