"""The fault bench's page through app.py: shown numbers are the engine's, every control reaches it."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.faults import FAULTS
from kvcore.studies import check_matrix
from kvcore.studies.fault_bench import Config, run

APP = str(Path(__file__).resolve().parent.parent / "app.py")
MATRIX = "Which check notices"


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    for key, value in query.items():
        at.query_params[f"bench_{key}"] = value
    at.switch_page("pages/fault_bench.py")
    return at.run()


def said(at):
    return [info.value for info in at.info]


def readings(config):
    result = run(config)
    return [result.step_reading, result.answer]


def test_default_page_shows_facts_both_steps_and_the_difference():
    at, fault = open_page(), FAULTS[Config().fault]
    assert not at.exception
    assert said(at) == readings(Config())
    assert fault.sentence in at.markdown[1].value
    assert fault.wrong in at.markdown[2].value
    assert fault.right in at.markdown[2].value
    assert len(at.get("plotly_chart")) == 3
    assert at.dataframe[0].value["first bad position"].tolist() == ["5", "5"]


@pytest.mark.parametrize(
    ("kind", "field", "value", "config"),
    [
        ("selectbox", "fault", "window_stored_too_short", {"fault": "window_stored_too_short"}),
        ("selectbox", "positions", "rotary", {"positions": "rotary"}),
        ("selectbox", "pattern", "local, global", {"pattern": "local, global"}),
        ("select_slider", "n_heads", "4", {"n_heads": 4}),
        ("select_slider", "call", "3", {"call": 3}),
        ("select_slider", "layer", "2", {"layer": 2}),
        ("slider", "n_layers", 3, {"n_layers": 3}),
        ("slider", "length", 20, {"length": 20}),
        ("slider", "seed", 41, {"seed": 41}),
        ("text_input", "chunks", "6,4,8", {"chunks": "6,4,8"}),
    ],
)
def test_each_control_reaches_the_engine(kind, field, value, config):
    at = open_page()
    widget = getattr(at, kind)(key=f"bench_{field}")
    widget.set_value(value)
    at.run()
    assert getattr(at, kind)(key=f"bench_{field}").value == value
    assert not at.exception
    assert not at.error
    assert said(at) == readings(Config(**config))
    assert at.code[-1].value.startswith(f"python -m kvcore show fault-bench --{field.replace('_', '-')}")


@pytest.mark.parametrize("fault", ["crop_does_nothing", "prefix_key_without_tokens", "branches_share_a_buffer"])
def test_faults_that_need_more_than_one_sequence_are_shown_in_their_scenario(fault):
    at = open_page(fault=fault)
    assert not at.exception
    assert said(at) == readings(Config(fault=fault))


def test_a_fault_without_force_is_one_sentence_and_the_rest_stands():
    at = open_page(fault="cached_keys_turned_again", positions="none")
    assert not at.exception
    assert [error.value for error in at.error] == [
        "“cached keys turned again” needs rotary positions to be in force; choose that, or leave the setting at"
        " “as the fault needs”."
    ]
    assert at.code[-1].value.endswith("--fault cached_keys_turned_again --positions none")


@pytest.mark.parametrize(("field", "value"), [("chunks", "5,x"), ("n_kv_heads", "8")])
def test_bad_input_is_one_sentence_and_the_default_stands(field, value):
    at = open_page(**{field: value}, n_heads="2")
    assert not at.exception
    assert len(at.error) == 1
    assert said(at) == readings(Config())


def test_a_call_that_another_split_leaves_outside_goes_back_to_the_first_that_differs():
    at = open_page()
    at.select_slider(key="bench_call").set_value("5")
    at.run()
    at.text_input(key="bench_chunks").set_value("9,9")
    at.run()
    assert not at.exception
    assert not at.error
    assert said(at) == readings(Config(chunks="9,9"))


def test_the_matrix_opens_from_the_address_with_the_engines_counts():
    at = open_page(view=MATRIX, classes="C15", n_models="1", row_length="8", check="last position")
    assert not at.exception
    wanted = check_matrix.Config("C15", 1, 8)
    result = check_matrix.run(wanted)
    assert said(at) == [result.reading]
    summary, faults = (json.loads(chart.proto.spec) for chart in at.get("plotly_chart"))
    assert [trace["type"] for trace in summary["data"]] == ["heatmap", "scatter"]
    assert faults["data"][1]["text"][:5] == [str(count) for count in result.noticed[0, 3].tolist()]
    assert at.code[0].value == "python -m kvcore show check-matrix --classes C15 --n-models 1 --length 8"
    assert at.code[-1].value == "python -m kvcore show fault-bench"
