"""The prefix-reuse page through app.py: shown numbers are the engine's, every control reaches it."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.show import command_line
from kvcore.studies.prefix_reuse import Config, run

APP = str(Path(__file__).resolve().parent.parent / "app.py")


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page("pages/prefix_reuse.py")
    return at.run()


def open_play(**query):
    return open_page(reuse_view="Try it", **query)


def charts(at):
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def said(at):
    return [info.value for info in at.info]


def test_the_page_opens_with_the_experiment_and_why_another_scope_misses():
    at, result = open_page(), run(Config())
    assert not at.exception
    assert said(at) == [result.experiment_reading, result.scope_reading]
    assert len(charts(at)) == 1
    table = at.dataframe[0].value
    assert table["unchecked"].tolist() == [row["unchecked_error"] for row in result.experiment]
    assert table["keyed"].tolist() == [row["keyed_error"] for row in result.experiment]
    assert table["projected rows"].tolist() == [row["projected_rows"] for row in result.experiment]


def test_free_play_shows_the_verdict_the_rows_and_the_key():
    at, result = open_play(), run(Config())
    assert not at.exception
    assert said(at) == [result.verdict, result.outcome]
    differences, entries = charts(at)
    assert [trace["name"] for trace in differences["data"]] == ["keyed", "unchecked"]
    assert len(entries["data"]) > 3
    ways, key = (frame.value for frame in at.dataframe)
    assert ways["projected rows"].tolist() == [way.projected_rows for way in result.ways]
    assert key.equals(result.tables()["key"])


@pytest.mark.parametrize(
    ("kind", "field", "shown", "value"),
    [
        ("select_slider", "edit_at", "5", 5),
        ("slider", "edit_to", 9, 9),
        ("selectbox", "weight", 0.5, 0.5),
        ("selectbox", "positions", "rotary", "rotary"),
        ("select_slider", "window", "4", 4),
        ("toggle", "other_scope", True, True),
        ("text_input", "suffix", "20,21,22,23", "20,21,22,23"),
        ("select_slider", "stored_window", "3", 3),
        ("selectbox", "stored_positions", "alibi", "alibi"),
        ("number_input", "n_layers", 3, 3),
        ("number_input", "seed", 41, 41),
    ],
)
def test_each_control_reaches_the_engine(kind, field, shown, value):
    at = open_play()
    widget = getattr(at, kind)(key=f"reuse_{field}")
    widget.set_value(shown)
    at.run()
    assert getattr(at, kind)(key=f"reuse_{field}").value == shown
    assert not at.exception
    config = Config(**{field: value})
    result = run(config)
    assert said(at) == [result.verdict, result.outcome]
    assert result.verdict + result.outcome != run(Config()).verdict + run(Config()).outcome
    assert at.code[-1].value == command_line("prefix_reuse", config)


def test_an_address_opens_the_same_state():
    fields = {"edit_at": 7, "edit_to": 1, "weight": 1e-12, "window": 3, "stored_window": 3, "n_layers": 3, "seed": 19}
    fields |= {"storage": "sliding", "other_scope": True, "suffix": "5 6", "positions": "none"}
    at = open_play(**{f"reuse_{name}": str(value).replace("True", "true") for name, value in fields.items()})
    result = run(Config(**fields))
    assert not at.exception
    assert said(at) == [result.verdict, result.outcome]
    assert at.code[-1].value == command_line("prefix_reuse", result.config)


@pytest.mark.parametrize(("text", "says"), [("9,x", "no whole number"), ("99", "ids go from 0 to 31")])
def test_a_bad_suffix_gets_one_sentence_and_the_rest_stands(text, says):
    at = open_play(reuse_suffix=text)
    assert not at.exception
    (error,) = at.error
    assert says in error.value
    assert said(at) == [run(Config()).verdict, run(Config()).outcome]
    assert at.code[-1].value == "python -m kvcore show prefix-reuse"


def test_an_address_that_controls_can_reject_opens_their_defaults():
    wrong = {"edit_at": "8", "edit_to": "32", "weight": "nan", "window": "0", "n_layers": "inf", "positions": "x"}
    at = open_play(**{f"reuse_{field}": value for field, value in wrong.items()})
    assert not at.exception
    assert not at.error
    assert said(at)[0] == run(Config()).verdict
    assert at.code[-1].value == "python -m kvcore show prefix-reuse"


def test_no_edit_is_a_state_of_the_address():
    at = open_play(reuse_edit_at="off")
    assert said(at)[0] == run(Config(edit_at=None)).verdict


def test_what_is_wrong_is_called_so_and_counts_are_no_speed_up():
    play = open_play()
    assert "a deliberate mistake" in " ".join(block.value for block in play.markdown)
    assert "not a speed-up" in " ".join(said(play))
    assert "not a speed-up" in " ".join(block.value for block in open_page().markdown)
