"""Decode paths drawn: the figures hold the result's numbers, with zeros apart and axes named."""

import numpy as np
import pytest

from kvcore.figures import decode_paths as figures
from kvcore.figures.theme import EXACT_ZERO
from kvcore.studies.decode_paths import Config, Result, run


@pytest.fixture(scope="module")
def result():
    return run(Config())


def test_one_line_a_path_with_its_differences_and_zeros_in_their_lane(result):
    drawn = figures.differences(result)
    assert [trace.name for trace in drawn.data] == [o.name for o in result.outcomes]
    for trace, outcome in zip(drawn.data, result.outcomes, strict=True):
        np.testing.assert_array_equal(trace.customdata, outcome.by_layer[-1])
        zero = outcome.by_layer[-1] == 0
        np.testing.assert_array_equal(trace.y[zero], np.full(zero.sum(), EXACT_ZERO))
        np.testing.assert_array_equal(trace.y[~zero], outcome.by_layer[-1][~zero])
    assert drawn.layout.yaxis.type == "log"
    assert "exactly 0" in drawn.layout.yaxis.ticktext
    assert drawn.layout.xaxis.title.text == "absolute position"


def test_tolerance_and_chunk_borders_are_marked(result):
    shapes = figures.differences(result).layout.shapes
    assert shapes[0].y0 == result.tolerance
    assert [s.x0 for s in shapes[1:]] == [4.5, 7.5, 14.5]


def test_lines_differ_by_more_than_colour(result):
    drawn = figures.differences(result)
    assert len({(t.marker.symbol, t.line.dash) for t in drawn.data}) == len(drawn.data)


def test_maps_hold_every_cell_and_draw_exact_zeros_apart(result):
    outcome = next(o for o in result.outcomes if o.name == "cropped recomputation")
    for drawn, gap in [(figures.by_layer(outcome), outcome.by_layer), (figures.by_dimension(outcome), outcome.gap)]:
        zeros, sizes = drawn.data
        np.testing.assert_array_equal(np.isnan(zeros.z), gap != 0)
        np.testing.assert_array_equal(np.isnan(sizes.z), gap == 0)
        np.testing.assert_array_equal(sizes.customdata, gap)
        assert drawn.layout.xaxis.title.text
        assert drawn.layout.yaxis.title.text


def test_low_precision_figure_has_full_and_every_path():
    result = run(Config(dtype="bfloat16"))
    names = [trace.name for trace in figures.from_float64(result).data]
    assert names[:2] == ["full", "windowed full"]
    assert "token cache" in names


def test_empty_results_give_a_figure_with_a_sentence(result):
    nothing = Result(Config(), 1e-12, 24, (24,), ())
    assert figures.differences(nothing).layout.annotations[0].text == "No path was run."
    assert "nothing more exact" in figures.from_float64(result).layout.annotations[0].text
