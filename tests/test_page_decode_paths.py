"""The decode paths page through app.py: shown numbers are the engine's, bad input gets one sentence."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.studies.decode_paths import Config, run

APP = str(Path(__file__).resolve().parent.parent / "app.py")


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    at.run()
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page("pages/decode_paths.py")
    return at.run()


def charts(at):
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def test_default_page_shows_the_engines_reading_and_its_differences():
    at = open_page()
    assert not at.exception
    result = run(Config())
    assert at.info[0].value == result.reading
    (drawn,) = charts(at)
    assert [trace["name"] for trace in drawn["data"]] == [outcome.name for outcome in result.outcomes]


@pytest.mark.parametrize(
    ("kind", "key", "value", "field"),
    [
        ("slider", "paths_seed", 41, "seed"),
        ("slider", "paths_n_layers", 1, "n_layers"),
        ("slider", "paths_length", 30, "length"),
        ("slider", "paths_window", 7, "window"),
        ("selectbox", "paths_dtype", "float32", "dtype"),
        ("selectbox", "paths_d_model", 32, "d_model"),
        ("selectbox", "paths_n_heads", 4, "n_heads"),
        ("text_input", "paths_chunks", "12,12", "chunks"),
        ("text_input", "paths_token_ids", "3,10,17,24", "token_ids"),
    ],
)
def test_each_control_reaches_the_engine(kind, key, value, field):
    at = open_page()
    getattr(at, kind)(key=key).set_value(value)
    at.run()
    assert getattr(at, kind)(key=key).value == value
    assert not at.exception
    assert at.info[0].value == run(Config(**{field: value})).reading


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("paths_chunks", "5,3,x", "no whole number"),
        ("paths_chunks", "5,3", "add 16 more"),
        ("paths_token_ids", "1,2,99", "from 0 to 31"),
        ("paths_token_ids", "1 " * 900, "at most 256"),
    ],
)
def test_unusable_text_gets_one_sentence_and_leaves_the_page(key, value, says):
    at = open_page()
    at.text_input(key=key).set_value(value)
    at.run()
    assert not at.exception
    assert len(at.error) == 1
    assert says in at.error[0].value
    assert at.title[0].value == "Decode paths"
    assert at.slider(key="paths_seed").value == 7


def test_an_empty_choice_gets_one_sentence():
    at = open_page()
    at.multiselect(key="paths_paths").set_value([])
    at.multiselect(key="paths_controls").set_value([])
    at.run()
    assert not at.exception
    assert "choose at least one" in at.error[0].value


def test_multi_head_layer_is_shown_as_a_second_system():
    at = open_page()
    at.selectbox(key="paths_model").set_value("multi-head layer")
    at.run()
    assert not at.exception
    assert at.info[0].value == run(Config(model="multi-head layer")).reading


@pytest.mark.parametrize("view", ["By layer", "By dimension", "From float64"])
def test_each_view_draws_one_chart(view):
    at = open_page(paths_view=view, paths_dtype="bfloat16")
    assert not at.exception
    (drawn,) = charts(at)
    assert drawn["layout"]["xaxis"]["title"]["text"]
    assert drawn["layout"]["yaxis"]["title"]["text"]
    assert at.get("plotly_chart")[0].proto.alt


def test_table_view_has_one_row_a_path():
    at = open_page(paths_view="Table")
    assert at.dataframe[0].value["path"].tolist() == [outcome.name for outcome in run(Config()).outcomes]


def test_address_opens_the_same_state():
    at = open_page(paths_seed="19", paths_chunks="10,14", paths_dtype="float32")
    assert at.info[0].value == run(Config(seed=19, chunks="10,14", dtype="float32")).reading
