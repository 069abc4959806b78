"""The sliding window drawn: the figures hold the result's numbers, zeros apart, laws marked, axes named."""

from dataclasses import replace

import numpy as np
import pytest

from kvcore.figures import reach_cone
from kvcore.figures import sliding_window as figures
from kvcore.figures.theme import EXACT_ZERO
from kvcore.reach import Slots
from kvcore.studies.sliding_result import Result
from kvcore.studies.sliding_window import Config, run


@pytest.fixture(scope="module")
def result():
    return run(Config())


def texts(drawn):
    return [note.text for note in drawn.layout.annotations]


def test_differences_hold_three_ways_and_mark_tolerance_and_step(result):
    drawn = figures.differences(result)
    assert [trace.name for trace in drawn.data] == ["sliding cache", "positions reset", "last 4 recomputed"]
    for trace, found in zip(drawn.data, [result.sliding, result.reset, result.cropped], strict=True):
        np.testing.assert_array_equal(trace.customdata, found)
        np.testing.assert_array_equal(trace.y, np.where(found == 0, EXACT_ZERO, found))
    assert drawn.layout.shapes[0].y0 == result.tolerance
    assert drawn.layout.shapes[1].x0 == 11
    assert texts(drawn) == ["tolerance 1e-12", "p = 11"]


def test_movement_holds_both_ways_on_a_log_axis_with_zeros_in_their_lane(result):
    drawn = figures.movement(result)
    np.testing.assert_array_equal(drawn.data[0].customdata, result.moved_by_cache)
    np.testing.assert_array_equal(drawn.data[1].customdata, result.moved_by_crop)
    assert (np.array(drawn.data[0].y)[:5] == EXACT_ZERO).all()
    assert drawn.layout.shapes[0].x0 == 4.5
    assert texts(drawn) == ["p − L(W − 1) = 5"]
    assert "edited token" in drawn.data[0].hovertemplate


def test_reach_before_the_first_token_is_marked_at_the_first():
    drawn = figures.movement(run(Config(step=2)))
    assert drawn.layout.shapes[0].x0 == -0.5
    assert texts(drawn) == ["p − L(W − 1) = −4"]


def test_crops_hold_the_largest_the_step_and_the_chosen_one(result):
    drawn = figures.crops(result)
    np.testing.assert_array_equal(drawn.data[0].customdata, result.sweep.max(axis=1))
    np.testing.assert_array_equal(drawn.data[1].customdata, result.sweep[:, 11])
    assert drawn.data[2].x == (4,)
    assert drawn.data[2].y == (result.sweep[3].max(),)
    assert texts(drawn) == ["tolerance 1e-12", "L(W − 1) + 1 = 7"]
    assert texts(figures.crops(run(Config(window=32))))[1] == "all tokens = 24"


def test_cone_marks_every_hidden_state_once_by_kind(result):
    drawn = reach_cone.cone(result)
    marks = {trace.name: set(zip(trace.x, trace.y, strict=True)) for trace in drawn.data}
    assert marks[reach_cone.NEW] == {(11, 0), (11, 1), (11, 2)}
    assert marks[reach_cone.KEPT] == {(x, y) for x in (8, 9, 10) for y in (0, 1)}
    assert marks[reach_cone.EVICTED] == {(5, 0), (6, 0), (7, 0)}
    assert sum(map(len, marks.values())) == 3 * 9
    assert len({trace.marker.symbol for trace in drawn.data}) == len(drawn.data)
    slots, crop = drawn.layout.shapes
    assert (slots.x0, slots.x1) == (7.5, 11.5)
    assert crop.x0 == 7.5


@pytest.mark.parametrize("config", [Config(), Config(step=0), Config(window=1, n_layers=1), Config(window=32, step=23)])
def test_every_axis_has_a_title(config):
    found = run(config)
    for draw in (figures.differences, reach_cone.cone, figures.movement, figures.crops):
        drawn = draw(found)
        assert drawn.layout.xaxis.title.text
        assert drawn.layout.yaxis.title.text


def test_empty_results_give_a_figure_with_a_sentence():
    none, no_slots = np.empty(0), np.empty(0, dtype=int)
    slots = Slots(no_slots, no_slots, no_slots, np.empty((2, 0, 0), dtype=bool))
    empty = Result(Config(), none, none, np.empty((0, 0)), slots, np.zeros((3, 0), dtype=bool), none, none)
    for draw in (figures.differences, reach_cone.cone, figures.movement, figures.crops):
        drawn = draw(empty)
        assert not drawn.data
        assert texts(drawn)[0].endswith(".")


def test_a_fault_is_drawn_as_one(result):
    drawn = figures.differences(replace(result, sliding=result.reset))
    assert max(drawn.data[0].y) > result.tolerance
