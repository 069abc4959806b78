"""The work counts page through app.py: shown numbers are the engine's, bad input gets one sentence."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.studies.work_counts import MAX_LENGTH, Config, run

APP = str(Path(__file__).resolve().parent.parent / "app.py")


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    at.run()
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page("pages/work_counts.py")
    return at.run()


def charts(at):
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def shown_reading(at):
    return at.info[0].value.removesuffix(" These are counts, not a speed-up.")


def test_default_page_shows_formula_and_count_of_every_path_side_by_side():
    at = open_page()
    assert not at.exception
    assert not at.error
    result = run(Config())
    assert shown_reading(at) == result.reading
    tables = [table.value for table in at.table]
    assert len(tables) == 3
    for i, table in enumerate(tables):
        assert table.iloc[:, 0].tolist() == [count.name for count in result.counts]
        assert table["by formula"].tolist() == [f"{count.formula[i]:,}" for count in result.counts]
        assert table["counted"].tolist() == [f"{count.counted[-1, i]:,} ✓ equal" for count in result.counts]
    assert tables[0]["counted"][1] == "1,800 ✓ equal"


def test_what_is_not_counted_is_said_whatever_tab_is_open():
    said = " ".join(block.value for block in open_page(work_view="Growth").markdown)
    for words in ("feed-forward", "output projections", "weights", "temporaries", "positions", "Python objects"):
        assert words in said
    for words in ("allocator", "masked entries", "a ratio of counts is not a ratio of times"):
        assert words in said


@pytest.mark.parametrize(
    ("kind", "key", "value", "fields"),
    [
        ("select_slider", "work_length", "30", {"length": 30}),
        ("select_slider", "work_length", "10000", {"length": 10_000}),
        ("select_slider", "work_length", "1000000", {"length": MAX_LENGTH}),
        ("select_slider", "work_window", "off", {"window": None}),
        ("select_slider", "work_window", "7", {"window": 7}),
        ("slider", "work_n_layers", 3, {"n_layers": 3}),
        ("selectbox", "work_d_model", 32, {"d_model": 32}),
        ("selectbox", "work_itemsize", 2, {"itemsize": 2}),
    ],
)
def test_each_control_reaches_the_engine(kind, key, value, fields):
    at = open_page()
    before = shown_reading(at)
    getattr(at, kind)(key=key).set_value(value)
    at.run()
    assert getattr(at, kind)(key=key).value == value
    assert not at.exception
    assert not at.error
    assert shown_reading(at) == run(Config(**fields)).reading != before


def test_heads_reach_the_payload():
    at = open_page(work_n_heads="4", work_n_kv_heads="2")
    expected = run(Config(n_heads=4, n_kv_heads=2))
    assert shown_reading(at) == expected.reading
    assert "6,144 bytes" in expected.reading


def test_the_prompt_reaches_the_cases():
    at = open_page(work_prompt="8", work_view="Small savings")
    said = " ".join(block.value for block in at.markdown)
    for case in run(Config(prompt=8)).cases:
        assert case.reading in said


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"work_prompt": "48"}, "does not fit into T = 24"),
        ({"work_length": "3"}, "P = 5 does not fit into T = 3"),
        ({"work_n_kv_heads": "2"}, "n_kv_heads must divide n_heads"),
        ({"work_view": "Step by step", "work_window": "off", "work_left": "sliding cache"}, "needs a window"),
    ],
)
def test_settings_that_cannot_be_get_one_sentence_and_leave_the_page(query, says):
    at = open_page(**query)
    assert not at.exception
    assert len(at.error) == 1
    assert says in at.error[0].value
    assert at.title[0].value == "Work counts"
    assert any("Not counted as work" in block.value for block in at.markdown)


@pytest.mark.parametrize("query", [{"work_length": "100000000"}, {"work_length": "many"}, {"work_n_layers": "99"}])
def test_a_value_the_widget_can_reject_opens_the_default(query):
    at = open_page(**query)
    assert not at.exception
    assert shown_reading(at) == run(Config()).reading


def test_an_address_opens_the_same_state():
    at = open_page(work_length="40", work_window="6", work_prompt="9", work_n_layers="1", work_itemsize="4")
    assert shown_reading(at) == run(Config(length=40, window=6, prompt=9, n_layers=1, itemsize=4)).reading


def test_too_large_to_run_says_that_only_the_formula_is_shown():
    at = open_page(work_length="10000")
    assert set(at.table[0].value["counted"]) == {"formula only"}
    assert any("only the formula is shown" in block.value for block in at.markdown)


def test_step_by_step_draws_the_two_chosen_paths_and_says_what_is_cut():
    at = open_page(work_view="Step by step", work_length="40", work_left="sliding cache")
    left, right = charts(at)
    result = run(Config(length=40))
    for drawn, name in ((left, "sliding cache"), (right, "prefix recomputation")):
        count = result.path(name)
        assert drawn["data"][0]["name"] == f"computed now: {count.n_cells(1)}"
    assert any("first 32 of 40" in block.value for block in at.markdown)


@pytest.mark.parametrize(("view", "n_charts"), [("Growth", 2), ("Payload", 1), ("Formula and count", 0)])
def test_each_view_draws_its_charts(view, n_charts):
    at = open_page(work_view=view)
    assert not at.exception
    assert len(charts(at)) == n_charts
