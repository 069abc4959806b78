"""The mask explorer page through app.py: shown numbers are the engine's, edits live in one text, bad input is told."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.studies.mask_explorer import Config, run

APP = str(Path(__file__).resolve().parent.parent / "app.py")


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    at.run()
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page("pages/mask_explorer.py")
    return at.run()


def says(at, config):
    """The page shows exactly what the engine finds for this configuration."""
    result = run(config)
    assert not at.exception
    assert at.info[0].value == result.mask_reading
    assert at.code[0].value == result.text


def charts(at):
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def test_default_page_shows_the_classic_mask():
    at = open_page()
    says(at, Config())
    assert at.code[0].value.splitlines() == ["q5: 1 1 1 1 1 1 0 0", "q6: 1 1 1 1 1 1 1 0", "q7: 1 1 1 1 1 1 1 1"]
    assert len(charts(at)) == 2
    assert all(chart.proto.alt for chart in at.get("plotly_chart"))
    assert not at.error


@pytest.mark.parametrize(
    ("kind", "field", "value", "config"),
    [
        ("slider", "n_cached", 9, Config(n_cached=9)),
        ("slider", "n_new", 5, Config(n_new=5)),
        ("select_slider", "window", "3", Config(window=3)),
        ("slider", "n_sinks", 2, Config(n_sinks=2)),
        ("selectbox", "numbering", "from 0", Config(numbering="from 0")),
        ("toggle", "causal", False, Config(causal=False)),
        ("select_slider", "row", "7", Config(row=7)),
        ("text_input", "flipped", "5:3,6:7", Config(flipped="5:3,6:7")),
        ("number_input", "n_layers", 3, Config(n_layers=3)),
        ("selectbox", "n_kv_heads", 1, Config(n_kv_heads=1)),
        ("number_input", "seed", 19, Config(seed=19)),
    ],
)
def test_each_control_reaches_the_engine(kind, field, value, config):
    at = open_page()
    getattr(at, kind)(key=f"mask_{field}").set_value(value)
    at.run()
    assert getattr(at, kind)(key=f"mask_{field}").value == value
    says(at, config)


def test_layer_and_head_choose_the_weights_that_are_drawn():
    at = open_page(mask_view="Attention weights", mask_layer="2", mask_head="2")
    first = open_page(mask_view="Attention weights")
    assert "Attention weights of layer 2, head 2" in at.get("plotly_chart")[1].proto.alt
    assert charts(at)[1]["data"][0]["z"] != charts(first)[1]["data"][0]["z"]


def test_future_edit_is_read_from_the_chosen_position_on():
    at = open_page(mask_view="Future edit")
    assert at.info[1].value == run(Config()).leak_reading
    at.select_slider(key="mask_edit_from").set_value("3")
    at.run()
    assert at.info[1].value == run(Config(edit_from=3)).leak_reading
    assert [trace["name"] for trace in charts(at)[1]["data"]] == ["causal", "unmasked"]


@pytest.mark.parametrize(
    ("query", "beside"), [({}, 0), ({"mask_numbering": "from 0"}, 1), ({"mask_flipped": "6:7"}, 1)]
)
def test_the_right_mask_stands_beside_one_that_differs(query, beside):
    assert len(charts(open_page(**query))) == 2 + beside


def test_flip_button_flips_the_chosen_cell_and_back_and_reset_clears():
    at = open_page(mask_row="6")
    at.number_input(key="mask_key").set_value(3)
    at.run()
    at.button(key="mask_flip").click().run()
    assert at.text_input(key="mask_flipped").value == "6:3"
    says(at, Config(row=6, flipped="6:3"))
    at.button(key="mask_flip").click().run()
    assert at.text_input(key="mask_flipped").value == ""
    at.button(key="mask_flip").click().run()
    at.button(key="mask_reset").click().run()
    says(at, Config(row=6))


def test_cells_outside_after_a_change_of_size_are_dropped_for_good():
    at = open_page(mask_flipped="5:3,6:7")
    at.slider(key="mask_n_new").set_value(2)
    at.run()
    assert at.text_input(key="mask_flipped").value == "5:3"
    at.slider(key="mask_n_new").set_value(3)
    at.run()
    says(at, Config(flipped="5:3"))


@pytest.mark.parametrize("field", ["row", "edit_from"])
def test_a_position_outside_after_a_change_of_size_returns_to_the_middle(field):
    at = open_page(**{f"mask_{field}": "7"})
    at.slider(key="mask_n_new").set_value(1)
    at.run()
    assert at.select_slider(key=f"mask_{field}").value == "middle"
    says(at, Config(n_new=1))


@pytest.mark.parametrize(("text", "sentence"), [("5:3,x", "is no cell"), ("5:3 " * 3 + "6;7", "is no cell")])
def test_text_that_is_not_cells_gets_one_sentence_and_an_unedited_mask(text, sentence):
    at = open_page()
    at.text_input(key="mask_flipped").set_value(text)
    at.run()
    assert len(at.error) == 1
    assert sentence in at.error[0].value
    says(at, Config())


def test_heads_that_do_not_divide_get_one_sentence_and_the_controls_stay():
    at = open_page(mask_n_kv_heads="4")
    assert not at.exception
    assert len(at.error) == 1
    assert "must divide" in at.error[0].value
    assert at.slider(key="mask_n_cached").value == 5


def test_a_row_without_keys_is_refused_in_words_and_the_rest_stands():
    flipped = ",".join(f"5:{key}" for key in range(6))
    at = open_page(mask_flipped=flipped)
    assert len(at.error) == 1
    assert "query 5 sees no key" in at.error[0].value
    says(at, Config(flipped=flipped))
    assert len(charts(at)) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_cached", "65"),
        ("n_new", "0"),
        ("window", "97"),
        ("n_sinks", "x"),
        ("row", "3"),
        ("layer", "9"),
        ("seed", "-1"),
    ],
)
def test_a_value_that_a_widget_can_reject_opens_its_default(field, value):
    at = open_page(**{f"mask_{field}": value})
    says(at, Config())
    assert not at.error


def test_address_opens_the_same_state():
    at = open_page(mask_n_cached="8", mask_n_new="4", mask_window="3", mask_n_sinks="1", mask_flipped="9:0,11:11")
    says(at, Config(n_cached=8, n_new=4, window=3, n_sinks=1, flipped="9:0,11:11"))


def test_largest_mask_is_shown():
    at = open_page(mask_n_cached="64", mask_n_new="32", mask_n_layers="6", mask_causal="false")
    says(at, Config(n_cached=64, n_new=32, n_layers=6, causal=False))


@pytest.mark.parametrize("text", ["5:3,x", ",".join(f"{q}:{k}" for q in range(5, 8) for k in range(100, 190))])
def test_a_flip_leaves_a_text_that_cannot_be_read_as_it_is(text):
    at = open_page()
    at.text_input(key="mask_flipped").set_value(text)
    at.run()
    at.button(key="mask_flip").click().run()
    assert at.text_input(key="mask_flipped").value == text
    assert len(at.error) == 1
    says(at, Config())
