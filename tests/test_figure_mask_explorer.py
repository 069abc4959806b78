"""The mask explorer's figures hold the result: every cell once, masked cells apart, zeros in their lane."""

import numpy as np
import pytest

from kvcore.figures import mask_explorer as figures
from kvcore.figures.theme import EXACT_ZERO
from kvcore.studies.mask_explorer import Config, run

REFUSED = Config(flipped="5:0,5:1,5:2,5:3,5:4,5:5")


def cells(figure, name):
    """The cells (query, key) marked with one name."""
    return {
        (int(query), int(key))
        for trace in figure.data
        if trace.name == name
        for query, key in zip(trace.y, trace.x, strict=True)
        if query is not None
    }


def positions(result, mask):
    return {(int(row) + result.config.n_cached, int(key)) for row, key in zip(*np.nonzero(mask), strict=True)}


@pytest.mark.parametrize("config", [Config(), Config(numbering="from 0", flipped="5:3,6:7"), REFUSED])
def test_every_cell_carries_exactly_the_mark_of_its_kind(config):
    result = run(config)
    figure = figures.mask(result)
    kinds = {name: cells(figure, name) for name in figures.MARK}
    assert kinds["wrongly hidden"] == positions(result, result.wrongly_hidden)
    assert kinds["wrongly shown"] == positions(result, result.wrongly_shown)
    assert kinds["visible"] == positions(result, result.visible & result.right)
    assert kinds["masked"] == positions(result, ~result.visible & ~result.right)
    assert sum(map(len, kinds.values())) == result.visible.size
    np.testing.assert_array_equal(figure.data[0].z > 0, result.visible)


def test_right_mask_is_drawn_with_the_differing_cells_marked():
    result = run(Config(numbering="from 0", flipped="6:7"))
    figure = figures.right_mask(result)
    np.testing.assert_array_equal(figure.data[0].z > 0, result.right)
    assert cells(figure, "wrongly hidden") == positions(result, result.wrongly_hidden)
    assert cells(figure, "wrongly shown") == {(6, 7)}
    assert list(figure.layout.yaxis.ticktext) == ["5", "▸ 6", "7"]
    assert list(figures.mask(result).layout.yaxis.ticktext) == ["5 as 0", "▸ 6 as 1", "7 as 2"]


def test_one_line_marks_all_of_a_kind_among_many_cells():
    result = run(Config(n_cached=64, n_new=32, numbering="from 0"))
    clicked = [trace for trace in figures.mask(result).data if trace.type == "scatter" and trace.mode == "markers"]
    assert sum(len(trace.x) for trace in clicked) == 32 * 96
    for draw, name, marked, strokes in (
        (figures.mask, "wrongly hidden", result.wrongly_hidden, 2),
        (figures.right_mask, "wrongly hidden", result.wrongly_hidden, 2),
        (figures.right_mask, "masked", ~result.right & ~result.visible, 1),
        (figures.weights, "masked", ~result.visible, 1),
    ):
        (trace,) = (trace for trace in draw(result).data if trace.name == name and trace.showlegend is None)
        middle = {(int(y), int(x)) for y, x in zip(np.round(trace.y[::3]), np.round(trace.x[::3]), strict=True)}
        assert trace.mode == "lines"
        assert middle == positions(result, marked)
        assert np.isnan(trace.x).sum() == strokes * marked.sum()
    np.testing.assert_array_equal(figures.right_mask(result).data[0].z > 0, result.right)
    np.testing.assert_array_equal(figures.weights(result).data[1].z == 0, ~result.visible)


def test_flipped_cells_and_the_chosen_row_are_outlined():
    boxes = [shape for shape in figures.mask(run(Config(flipped="5:3", row=7))).layout.shapes if shape.type == "rect"]
    assert [(box.x0, box.x1, box.y0, box.y1) for box in boxes] == [(-0.5, 7.5, 6.5, 7.5), (2.5, 3.5, 4.5, 5.5)]


def test_weights_share_0_to_1_and_leave_masked_cells_hollow():
    result = run(Config(layer=2, head=1))
    figure = figures.weights(result)
    heat = figure.data[0]
    assert (heat.zmin, heat.zmax) == (0, 1)
    np.testing.assert_array_equal(heat.z, result.shown_weights)
    assert cells(figure, "masked") == positions(result, ~result.visible)


def test_movement_has_a_line_for_the_flips_and_one_from_the_right_mask():
    result = run(Config(numbering="from 0", flipped="5:3"))
    alone, from_right = figures.movement(result).data
    np.testing.assert_array_equal(alone.customdata, result.moved)
    np.testing.assert_array_equal(from_right.customdata, result.from_right)
    assert (alone.y[:5] == EXACT_ZERO).all()
    assert len(figures.movement(run(Config(flipped="5:3"))).data) == 1


def test_future_edit_draws_both_masks_and_the_one_above_where_it_is_wrong():
    result = run(Config(causal=False))
    figure = figures.future_edit(result)
    drawn = {line.name: line.customdata for line in figure.data}
    np.testing.assert_array_equal(drawn["causal"], result.causal_change)
    np.testing.assert_array_equal(drawn["unmasked"], result.unmasked_change)
    np.testing.assert_array_equal(drawn["mask above"], result.mask_change)
    assert (figure.data[0].y[:6] == EXACT_ZERO).all()
    assert len(figures.future_edit(run(Config())).data) == 2


@pytest.mark.parametrize("config", [Config(), Config(n_cached=0, n_new=1), Config(n_cached=64, n_new=32, causal=False)])
@pytest.mark.parametrize("draw", [figures.mask, figures.right_mask, figures.weights, figures.movement])
def test_axes_are_named_and_in_absolute_positions(draw, config):
    layout = draw(run(config)).layout
    assert "absolute position" in layout.xaxis.title.text
    assert layout.yaxis.title.text
    if draw is not figures.movement:
        assert layout.yaxis.range[0] > layout.yaxis.range[1]
        assert list(layout.yaxis.tickvals) == list(range(config.n_cached, config.length))


@pytest.mark.parametrize("draw", [figures.weights, figures.movement])
def test_a_mask_that_is_not_run_gives_a_figure_that_says_so(draw):
    assert "not run" in draw(run(REFUSED)).layout.annotations[0].text
