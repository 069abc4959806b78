"""Work counts drawn: marks, lines and ticks hold the result's numbers; nothing to draw gives a sentence."""

import dataclasses

import numpy as np
import pytest

from kvcore.figures import work_counts as figures
from kvcore.studies.work_cells import STATES
from kvcore.studies.work_counts import Config, run
from kvcore.studies.work_paths import QUANTITIES


@pytest.fixture(scope="module")
def result():
    return run(Config())


def test_the_picture_has_one_mark_a_cell_in_a_shape_of_its_own(result):
    for count in result.counts:
        drawn = figures.picture(count)
        for state, trace in zip(figures.MARK, drawn.data, strict=True):
            step, position = np.nonzero(count.cells == state)
            np.testing.assert_array_equal(trace.x, position)
            np.testing.assert_array_equal(trace.y, step + 1)
            assert trace.name == f"{STATES[state]}: {len(step):,}"
    assert len({symbol for _, symbol in figures.MARK.values()}) == len(figures.MARK) == len(STATES)


def test_steps_go_down_and_positions_right(result):
    layout = figures.picture(result.path("token cache")).layout
    assert layout.yaxis.range[0] > layout.yaxis.range[1]
    assert layout.xaxis.range[0] < layout.xaxis.range[1]
    assert layout.xaxis.title.text == "absolute position"
    assert layout.yaxis.title.text == "step (call)"


@pytest.mark.parametrize("quantity", [0, 1])
def test_growth_draws_the_cumulative_counts_of_every_path_and_the_steps_of_those_that_have_some(result, quantity):
    drawn = figures.growth(result, quantity)
    below = {trace.name: trace for trace in drawn.data if trace.yaxis == "y2"}
    above = {trace.name: trace for trace in drawn.data if trace.yaxis == "y"}
    assert list(below) == [count.name for count in result.counts]
    assert list(above) == [count.name for count in result.counts if not count.single_call]
    for count in result.counts:
        np.testing.assert_array_equal(below[count.name].x, count.tokens)
        np.testing.assert_array_equal(below[count.name].y, count.cumulative[:, quantity])
        if not count.single_call:
            np.testing.assert_array_equal(above[count.name].y, count.per_step[:, quantity])
    layout = drawn.layout
    assert {layout.xaxis.type, layout.yaxis.type, layout.yaxis2.type} == {"log"}
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("tokens T", "per step")
    assert layout.yaxis2.title.text == "cumulative"
    assert QUANTITIES[quantity] in below["full"].hovertemplate
    assert "T = 24" in layout.annotations[0].text


def test_payload_draws_everything_kept_and_the_window(result):
    drawn = figures.payload(result)
    full, windowed = drawn.data
    np.testing.assert_array_equal(full.y, result.path("token cache").cumulative[:, 2])
    np.testing.assert_array_equal(windowed.y, result.path("sliding cache").cumulative[:, 2])
    assert "12,288 bytes (12 KiB)" in full.customdata
    assert "2,048 bytes (2 KiB)" in windowed.customdata
    assert drawn.layout.yaxis.title.text == "K/V payload, bytes"
    ticks = drawn.layout.yaxis.tickvals
    assert ticks[0] <= min(windowed.y)
    assert all(tick & (tick - 1) == 0 for tick in ticks)
    assert len(ticks) == len(drawn.layout.yaxis.ticktext) <= 8


def test_without_a_window_there_is_one_payload_line():
    assert len(figures.payload(run(Config(window=None))).data) == 1


@pytest.mark.parametrize("length", [1, 1_000_000])
def test_the_smallest_and_the_largest_length_are_drawn(length):
    result = run(Config(length=length, prompt=1, n_layers=6))
    for drawn in (*(figures.growth(result, i) for i in (0, 1)), figures.payload(result)):
        assert all(np.isfinite(trace.y).all() and min(trace.y) > 0 for trace in drawn.data)
    assert figures.growth(result, 1).layout.yaxis2.dtick <= 4


def test_nothing_to_draw_is_said_in_a_sentence(result):
    nothing = dataclasses.replace(result, counts=())
    no_step = dataclasses.replace(result.counts[0], cells=np.empty((0, 0), dtype=np.int8))
    for drawn in (figures.growth(nothing, 0), figures.payload(nothing), figures.picture(no_step)):
        assert not drawn.data
        assert drawn.layout.annotations[0].text.endswith(".")
