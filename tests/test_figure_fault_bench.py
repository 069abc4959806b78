"""The fault bench and the check matrix drawn: figures hold the numbers, marks differ, empty ones say why."""

import numpy as np
import pytest

from kvcore.figures import check_matrix as matrix_figures
from kvcore.figures import fault_bench as figures
from kvcore.figures import fault_grids as grids
from kvcore.studies import check_matrix
from kvcore.studies.check_row import CHECKS
from kvcore.studies.fault_bench import Config, run
from kvcore.studies.fault_compare import DISTANCE, ENTERED, HEADS


@pytest.fixture(scope="module")
def result():
    return run(Config())


@pytest.fixture(scope="module")
def matrix():
    return check_matrix.run(check_matrix.Config("C15,C8", 1))


def traces(drawn):
    return {trace.name: trace for trace in drawn.data if trace.name}


def cells(trace):
    return set(zip(trace.x, trace.y, strict=True))


def test_wrong_mask_marks_the_cells_that_differ(result):
    drawn = traces(grids.mask(result, wrong=True))
    differing = np.argwhere(result.pair.wrong_reads < result.pair.right_reads)
    assert cells(drawn[grids.HIDDEN]) == {(column, row) for row, column in differing}
    assert grids.SHOWN not in drawn
    right = grids.mask(result, wrong=False)
    assert grids.HIDDEN not in traces(right)
    np.testing.assert_array_equal(right.data[0].z, result.pair.right_reads[:, :-1])
    assert list(right.layout.yaxis.ticktext) == ["5", "6", "7"]


def test_entries_of_no_position_have_a_column_of_their_own():
    drawn = grids.mask(run(Config(fault="cache_not_reset")), wrong=True)
    assert drawn.layout.xaxis.ticktext[-1] == "other"
    assert "18" in next(trace.text for trace in drawn.data if trace.type == "scatter" and trace.mode == "text")


def test_kept_entries_are_marked_by_what_became_of_them():
    drawn = traces(grids.kept(run(Config(fault="window_stored_too_short"))))
    assert cells(drawn[grids.MISSING]) == {(2, 1)}
    assert cells(drawn[grids.KEPT]) == {(2, 0), (3, 0), (4, 0), (3, 1), (4, 1)}
    assert cells(drawn[grids.SPARE]) == {(0, 0), (1, 0)}
    assert len({trace.marker.symbol for trace in drawn.values()}) == len(drawn)


def test_differences_hold_right_and_wrong_by_layer_and_mark_the_first_bad_position(result):
    drawn = figures.differences(result)
    np.testing.assert_array_equal(drawn.data[0].customdata, result.right.difference[-1])
    np.testing.assert_array_equal(drawn.data[2].customdata, result.wrong.difference[1])
    assert [note.text for note in drawn.layout.annotations] == ["tolerance 1e-12", "first bad: 5"]
    assert drawn.layout.shapes[-1].x0 == 5
    hidden = figures.differences(run(Config(chunks="18")))
    assert [note.text for note in hidden.layout.annotations] == ["tolerance 1e-12"]


@pytest.mark.parametrize(
    ("fault", "aspect", "right", "wrong"),
    [
        ("positions_one_ahead", ENTERED, "right_entered", "wrong_entered"),
        ("kv_heads_tiled", HEADS, None, None),
        ("alibi_of_the_first_rows", DISTANCE, "right_distance", "wrong_distance"),
    ],
)
def test_marks_hold_both_sides(fault, aspect, right, wrong):
    found = run(Config(fault=fault))
    drawn = figures.marks(found, aspect)
    expected = (
        (found.pair.right.heads, found.pair.wrong.heads)
        if right is None
        else tuple(np.atleast_2d(getattr(found.pair, side))[-1] for side in (right, wrong))
    )
    for trace, numbers in zip(drawn.data, expected, strict=True):
        np.testing.assert_array_equal(trace.y, numbers)


def test_contents_hold_keys_and_values():
    found = run(Config(fault="values_from_keys"))
    drawn = figures.contents(found)
    np.testing.assert_array_equal(drawn.data[0].customdata, found.pair.key_gap)
    np.testing.assert_array_equal(drawn.data[1].customdata, found.pair.value_gap)
    assert found.pair.key_gap.max() <= 1e-12 < found.pair.value_gap.max()


def test_every_axis_has_a_title(result, matrix):
    drawn = [grids.mask(result, True), grids.kept(result), figures.contents(result), figures.differences(result)]
    drawn += [matrix_figures.summary(matrix), matrix_figures.faults(matrix, CHECKS[-1])]
    for one in drawn:
        assert one.layout.xaxis.title.text
        assert one.layout.yaxis.title.text


def test_a_fault_without_force_gives_figures_with_a_sentence():
    none = run(Config(fault="values_turned_too", positions="none"))
    drawn = [grids.mask(none, True), grids.kept(none), figures.contents(none), figures.differences(none)]
    for one in [*drawn, figures.marks(none, ENTERED)]:
        assert one.layout.annotations[0].text == grids.NOTHING


def test_matrix_holds_counts_and_writes_them(matrix):
    drawn = matrix_figures.faults(matrix, CHECKS[-1])
    expected = np.vstack([matrix.noticed[:, -1], matrix.false_alarms[-1]])
    np.testing.assert_array_equal(drawn.data[0].text, expected)
    assert list(drawn.data[1].text) == [str(count) for count in expected.ravel()]
    names = drawn.layout.yaxis.ticktext
    assert names[-1] == "right step"
    assert [name.endswith(matrix_figures.NEEDS_MORE) for name in names[:-1]] == [not plain for plain in matrix.plain]
    summary = matrix_figures.summary(matrix)
    np.testing.assert_array_equal(summary.data[0].z, matrix.always / len(matrix.config.faults))
