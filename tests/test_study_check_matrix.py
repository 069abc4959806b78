"""The check matrix: its counts against single runs, each check able to notice and to miss, its reading and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from kvcore import paths
from kvcore.compare import difference_by_position
from kvcore.config import lab_token_ids
from kvcore.faults import FAULTS
from kvcore.model import LabDecoder
from kvcore.studies import check_row
from kvcore.studies.check_matrix import Config, assemble, run
from kvcore.studies.check_row import CHECKS, RIGHT_STEP, SPLITS, checked, splits

TABLE = np.eye(3)


@pytest.fixture(scope="module")
def result():
    return run(Config("C1,C8", 2))


def test_a_row_counts_what_plain_runs_show():
    config = check_row.Config("window_of_the_last_row", 2)
    found, fault, tokens = check_row.run(config), FAULTS["window_of_the_last_row"], lab_token_ids(config.length)
    for column, sizes in enumerate(splits(config.length).values()):
        expected = np.zeros(len(CHECKS), dtype=int)
        for seed in range(2):
            setting = config.setting(seed)
            decoder = LabDecoder(setting.decoder)
            full = paths.full(decoder, tokens, setting.rules).hidden
            rows = paths.cached(decoder, tokens, sizes, fault.deviate(setting)).hidden
            beyond = difference_by_position(rows, full) > 1e-12
            best, wrong = ((hidden @ decoder.table.numpy().T).argmax(axis=1) for hidden in (full, rows))
            expected += [0, best[-1] != wrong[-1], (best != wrong).any(), beyond[-1], beyond.any()]
        np.testing.assert_array_equal(found[:, column], expected)


def test_the_last_position_misses_what_every_position_notices():
    found = check_row.run(check_row.Config("length_read_after_the_first_layer", 2))
    assert found[CHECKS.index("last position"), 0] == 0
    unequal = SPLITS.index("unequal chunks")
    assert found[CHECKS.index("every position"), unequal] == 2


@pytest.mark.parametrize(
    ("rows", "notices"),
    [
        ([[1, 0, 0], [0, 1, 0]], [False, False, False, False, False]),
        ([[0.9, 0, 0], [0, 1, 0]], [False, False, False, False, True]),
        ([[1, 0, 0], [0, 0.9, 0]], [False, False, False, True, True]),
        ([[0, 1, 0], [0, 1, 0]], [False, False, True, False, True]),
        ([[1, 0, 0], [1, 0, 0]], [False, True, True, True, True]),
        ([[np.nan, 0, 0], [0, 1, 0]], [True] * 5),
        ([[1, 0, 0]], [True] * 5),
    ],
)
def test_each_check_notices_its_own_and_no_more(rows, notices):
    reference = np.array([[1.0, 0, 0], [0, 1, 0]])
    assert checked(np.array(rows, dtype=float), reference, TABLE, 1e-12).tolist() == notices


def test_the_right_step_is_accused_by_nothing_in_every_format():
    for dtype in ("float64", "float32"):
        found = check_row.run(check_row.Config(RIGHT_STEP, 3, dtype=dtype))
        assert found[[0, 3, 4]].sum() == 0


def test_going_back_shows_in_no_split(result):
    for name, found, is_plain in zip(result.config.faults, result.noticed, result.plain, strict=True):
        assert is_plain == (FAULTS[name].fault_class == "C1")
        assert (found.sum() > 0) == is_plain


def test_the_reading_states_the_counts_of_this_result(result):
    always = (result.noticed == 2).sum(axis=0)
    assert result.reading.startswith(f"Of {len(result.config.faults)} faults, ")
    assert f"every position {always[-1].max()} (" in result.reading
    assert f"One call with all tokens, at every position, notices {always[-1, 1]}." in result.reading
    assert "3 faults can show in no split at all" in result.reading
    assert "The right step is never accused." in result.reading
    accused = replace(result, false_alarms=result.false_alarms + np.eye(5, dtype=int))
    assert "The right step is accused too, in 1 model by shape" in accused.reading
    blind = replace(result, noticed=result.noticed * 0)
    assert "4 more faults are not noticed" in blind.reading


def test_progress_is_told_row_by_row_and_rows_may_come_from_elsewhere():
    config, heard = Config("C15", 1), []
    rows = [check_row.run(row) for row in config.rows]
    kept = dict(zip(config.rows, rows, strict=True))
    found = run(config, kept.__getitem__, lambda done, total: heard.append((done, total)))
    assert heard == [(1, 3), (2, 3), (3, 3)]
    np.testing.assert_array_equal(found.noticed, assemble(config, rows).noticed)
    assert found.share.max() == 1


def test_tables_and_arrays_hold_the_result(result):
    tables = result.tables()
    assert len(tables["matrix"]) == (len(result.config.faults) + 1) * len(CHECKS)
    assert tables["matrix"][list(SPLITS)].to_numpy()[:5].tolist() == result.noticed[0].tolist()
    assert tables["summary"][list(SPLITS)].to_numpy().tolist() == result.always.tolist()
    assert all(isinstance(array, np.ndarray) for array in result.arrays().values())


def test_all_faults_are_there_once_by_class():
    faults = Config().faults
    assert sorted(faults) == sorted(FAULTS)
    numbers = [int(FAULTS[name].fault_class[1:]) for name in faults]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"classes": "C1,C99"}, "'C99' is no class of faults"),
        ({"classes": "C2"}, "'C2' is no class"),
        ({"n_models": 21}, "models is 21; it must be a whole number from 1 to 20"),
        ({"length": 5}, "tokens is 5"),
        ({"dtype": "float8"}, "dtype is 'float8'"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(fields, says):
    with pytest.raises(ValueError, match=says):
        Config(**fields)
