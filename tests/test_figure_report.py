"""Reports and recorded verdicts drawn: every position is there once, told apart by more than colour."""

import numpy as np
import pandas as pd
import pytest

from kvcore.figures import architectures
from kvcore.figures import report as figures
from kvcore.figures.report import BEYOND, EQUAL, FIRST, MARK, ROUNDING, ZERO
from kvcore.integrations.record import COLUMNS, VERDICTS
from kvcore.verification.report import Report
from kvcore.verification.tolerance import Tolerance

TOLERANCE = Tolerance(1e-12, 5e-5, 1.0, "float64", "given")
GAPS = {
    "token by token": np.array([0, 1e-16, 1e-12, 1e-7, 5e-5, 0.25]),
    "one call": np.zeros(6),
    "3+3": np.array([1e-3, 0, 0, np.inf, 30.0, 1e-16]),
}


def report(differences, n_tokens=6):
    return Report(False, n_tokens, TOLERANCE, (), (), (), differences, 0, 0.0, 0.0)


def drawn(differences=GAPS, n_tokens=6):
    found = figures.figure(report(differences, n_tokens))
    return found, {trace.name or BEYOND: trace for trace in found.data}


def places(trace):
    return set(zip(trace.y, trace.x, strict=True))


def test_every_position_of_every_split_is_drawn_once_by_its_kind():
    _, traces = drawn()
    assert places(traces[ZERO]) == {(0, 0), *((1, x) for x in range(6)), (2, 1), (2, 2)}
    assert places(traces[EQUAL]) == {(0, 1), (0, 2), (2, 5)}
    assert places(traces[ROUNDING]) == {(0, 3), (0, 4)}
    filled = {tuple(cell) for cell in np.argwhere(np.isfinite(np.array(traces[BEYOND].z, dtype=float)))}
    assert filled == {(0, 5), (2, 0), (2, 3), (2, 4)}
    kinds = [places(traces[kind]) for kind in (ZERO, EQUAL, ROUNDING)] + [filled]
    assert sum(map(len, kinds)) == len(set.union(*kinds)) == 18


def test_cells_hold_the_logarithm_and_what_is_not_finite_has_the_last_colour():
    _, traces = drawn()
    cells = traces[BEYOND]
    assert (cells.zmin, cells.zmax) == (-3, 2)
    np.testing.assert_allclose([cells.z[0][5], cells.z[2][0], cells.z[2][4]], np.log10([0.25, 1e-3, 30]))
    assert cells.z[2][3] == cells.zmax
    assert cells.customdata[2][3] == np.inf
    assert "1e-3" in cells.colorbar.ticktext


def test_the_first_bad_position_of_each_split_is_marked():
    _, traces = drawn()
    assert places(traces[FIRST]) == {(0, 5), (2, 0)}


def test_kinds_differ_by_their_marks_and_not_by_colour_alone():
    _, traces = drawn()
    symbols = [traces[name].marker.symbol for name in (*MARK, FIRST)]
    assert len(set(symbols)) == len(symbols)
    assert traces[BEYOND].type == "heatmap"


def test_a_report_without_differences_has_no_cells_and_no_mark_of_a_first():
    found, traces = drawn({"one call": np.zeros(6)})
    assert set(traces) == {ZERO}
    assert found.layout.xaxis.title.text == "absolute position"
    assert found.layout.yaxis.title.text == "split into calls"


def test_an_empty_report_is_a_figure_with_a_sentence():
    found, traces = drawn({})
    assert not traces
    assert found.layout.annotations[0].text.endswith(".")


def test_long_names_are_cut_and_rows_stay_apart():
    names = {"1+2+3+4+5+6+7+8+9+" + str(n): np.zeros(6) for n in range(3)}
    found, traces = drawn(names)
    assert max(map(len, found.layout.yaxis.ticktext)) <= figures.LONGEST_NAME
    assert len(places(traces[ZERO])) == 18


@pytest.mark.parametrize("length", [2, 40, 256])
def test_marks_shrink_with_the_number_of_positions(length):
    _, traces = drawn({"one call": np.zeros(length)}, length)
    assert traces[ZERO].marker.size == {2: 8, 40: 5, 256: 3}[length]


def test_the_report_draws_itself():
    assert len(report(GAPS).figure().data) == len(drawn()[0].data)


def row(name, cache, verdict, difference=None, position=None):
    return dict(
        zip(COLUMNS, (name, "type", cache, "eager", verdict, difference, position, "one call", ""), strict=True)
    )


TABLE = pd.DataFrame(
    [
        row("Right", "dynamic", "equal", 1e-7),
        row("Right", "static", "not supported"),
        row("Wrong", "dynamic", "fault", 0.5, 7),
        row("Wrong", "static", "rounding", 2e-5),
    ]
).astype({"first_bad_position": "Int64"})


def test_each_combination_is_one_cell_with_the_mark_of_its_verdict():
    found = architectures.figure(TABLE)
    [cells] = found.data
    assert list(found.layout.yaxis.ticktext) == ["Wrong", "Right"]
    assert list(found.layout.xaxis.ticktext) == ["dynamic, eager", "static, eager"]
    assert [list(line) for line in cells.text] == [["✗", "≈"], ["=", "–"]]
    assert [list(line) for line in cells.z] == [[2, 1], [0, 3]]
    assert "first at position 7 under one call" in cells.customdata[0][0]
    assert "position" not in cells.customdata[1][1]


def test_every_verdict_has_a_mark_of_its_own():
    assert tuple(architectures.LOOK) == VERDICTS
    assert len({mark for mark, _ in architectures.LOOK.values()}) == len(VERDICTS)
    scale = architectures.figure(TABLE).data[0].colorscale
    assert [color for _, color in scale][::2] == [color for _, color in architectures.LOOK.values()]


def test_an_empty_table_is_a_figure_with_a_sentence():
    found = architectures.figure(TABLE.head(0))
    assert not found.data
    assert found.layout.annotations[0].text.endswith(".")
