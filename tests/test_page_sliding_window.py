"""The sliding-window page through app.py: shown numbers are the engine's, every control reaches it."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.studies.sliding_window import MAX_LENGTH, Config, run

APP = str(Path(__file__).resolve().parent.parent / "app.py")


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    at.run()
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page("pages/sliding_window.py")
    return at.run()


def charts(at):
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def notes(chart):
    return [note["text"] for note in chart["layout"]["annotations"]]


def test_default_page_shows_the_engines_reading_slots_and_two_charts():
    at, result = open_page(), run(Config())
    assert not at.exception
    assert [info.value for info in at.info] == [result.answer, result.slots_reading]
    assert len(charts(at)) == 2
    assert at.dataframe[0].value["layer 2 saw"].tolist() == result.tables()["slots"]["layer 2 saw"].tolist()


@pytest.mark.parametrize(
    ("field", "value"), [("window", 3), ("n_layers", 3), ("crop", 7), ("length", 30), ("seed", 41), ("step", 2)]
)
def test_each_control_reaches_the_engine(field, value):
    at = open_page()
    at.slider(key=f"slide_{field}").set_value(value)
    at.run()
    assert at.slider(key=f"slide_{field}").value == value
    assert not at.exception
    result = run(Config(**{field: value}))
    assert [info.value for info in at.info] == [result.answer, result.slots_reading]
    assert result.reading != run(Config()).reading


@pytest.mark.parametrize(("view", "reading"), [("Reach", "reach_reading"), ("Crop sweep", "sweep_reading")])
def test_other_views_open_from_the_address(view, reading):
    at, result = open_page(slide_view=view), run(Config())
    assert not at.exception
    assert at.info[1].value == getattr(result, reading)
    assert notes(charts(at)[1])[-1] == ("p − L(W − 1) = 5" if view == "Reach" else "L(W − 1) + 1 = 7")


def test_address_opens_the_same_state():
    at = open_page(slide_window="2", slide_n_layers="5", slide_step="20", slide_crop="6", slide_seed="19")
    result = run(Config(window=2, n_layers=5, step=20, crop=6, seed=19))
    assert [info.value for info in at.info] == [result.answer, result.slots_reading]


@pytest.mark.parametrize(
    ("field", "value"), [("window", "0"), ("n_layers", "7"), ("length", "10000"), ("step", "24"), ("crop", "x")]
)
def test_an_address_a_slider_can_reject_opens_its_default(field, value):
    at = open_page(**{f"slide_{field}": value})
    assert not at.exception
    assert not at.error
    assert at.info[0].value == run(Config()).answer


def test_a_step_that_a_shorter_length_leaves_outside_goes_back_to_its_default():
    at = open_page()
    at.slider(key="slide_step").set_value(20)
    at.run()
    at.slider(key="slide_length").set_value(12)
    at.run()
    assert not at.exception
    assert not at.error
    assert at.slider(key="slide_step").value == 11
    assert at.info[1].value == run(Config(length=12)).slots_reading
    at.slider(key="slide_length").set_value(30)
    at.run()
    assert at.info[1].value == run(Config(length=30)).slots_reading


def test_length_is_capped():
    assert open_page().slider(key="slide_length").max == MAX_LENGTH
