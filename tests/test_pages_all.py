"""Every view of every page through app.py: what must hold for all of them alike."""

import json
import shlex
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore import cli
from kvcore.show import command_line, study
from pages.common.nav import PAGES

APP = str(Path(__file__).resolve().parent.parent / "app.py")

VIEWS = {
    "overview": ("overview", []),
    "mask_explorer": ("mask", ["Movement", "Attention weights", "Future edit"]),
    "decode_paths": ("paths", ["Every position", "By layer", "By dimension", "Table", "From float64"]),
    "work_counts": ("work", ["Formula and count", "Step by step", "Growth", "Payload", "Small savings"]),
    "sliding_window": ("slide", ["Slots", "Reach", "Crop sweep"]),
    "fault_bench": ("bench", ["This fault", "Which check notices"]),
    "prefix_reuse": ("reuse", ["The experiment", "Try it"]),
    "check_your_own": ("own", ["Report", "Your model", "Saved outputs", "Published models"]),
    "published_models": (
        "pub",
        ["By layer", "With and without the cache", "What fits", "Rules", "Conventions"],
    ),
}
"""Page -> prefix of its keys, and its views in order."""

OPTIONS = {"decode_paths": {"dtype": "bfloat16"}}
"""The view from float64 exists only for the other formats."""

FASTER = {("fault_bench", "Which check notices"): {"classes": "C18", "n_models": "2"}}
"""Controls of one view alone, so that it does not run every fault."""

SHOWN = [(stem, view) for stem, (_, views) in VIEWS.items() for view in views or [None]]


def open_page(stem, view=None, **fields):
    at = AppTest.from_file(APP, default_timeout=60)
    prefix = VIEWS[stem][0]
    for field, value in fields.items():
        at.query_params[f"{prefix}_{field}"] = value
    if view is not None:
        at.query_params[f"{prefix}_view"] = view
    at.switch_page(f"pages/{stem}.py")
    return at.run()


@pytest.fixture(scope="module", params=SHOWN, ids=lambda param: " ".join(filter(None, param)))
def shown(request):
    """Page and view, and the run that shows them."""
    stem, view = request.param
    return stem, view, open_page(stem, view, **OPTIONS.get(stem, {}), **FASTER.get((stem, view), {}))


def everything(block):
    """All elements and blocks below a block, in order."""
    for child in block.children.values():
        yield child
        if hasattr(child, "children"):
            yield from everything(child)


def unbound(at):
    """Widgets, whatever their kind, that could live in the address under their key and do not.

    Expanders may, too, and need not: an address opens a state, not what is folded out of it.
    """
    return [
        element.key
        for element in everything(at._tree)
        if not hasattr(element, "children")
        and "query_param_key" in element.proto.DESCRIPTOR.fields_by_name
        and not (element.key and element.proto.query_param_key == element.key)
    ]


def without_words(at):
    """Charts and tables without a text alternative."""
    kinds = ("plotly_chart", "arrow_data_frame", "arrow_table", "table", "dataframe")
    return [element.type for kind in kinds for element in at.get(kind) if not element.proto.alt.strip()]


def without_titles(at):
    """Axes that are drawn and have no title; `no axes` for a chart that has none."""
    found = []
    for chart in at.get("plotly_chart"):
        layout = json.loads(chart.proto.spec)["layout"]
        for letter in "xy":
            axes = [name for name in layout if name.startswith(f"{letter}axis")]
            found += [name for name in axes if not layout[name].get("title", {}).get("text")]
            found += [] if axes else [f"no {letter} axis"]
    return found


def test_all_pages_are_looked_at():
    assert list(VIEWS) == list(PAGES)


def test_a_view_opens_as_the_one_asked_for_without_a_word_of_error(shown):
    stem, view, at = shown
    assert not at.exception
    assert not at.error
    assert at.title[0].value == ("KV Cache Lab" if stem == "overview" else PAGES[stem][0])
    assert at.markdown[0].value == f"**{PAGES[stem][2]}**"
    assert [tab.label for tab in at.tabs] == VIEWS[stem][1]
    if view is not None:
        (tabs,) = (block.proto.tab_container for block in everything(at._tree) if block.type == "tab_container")
        assert at.tabs[tabs.default_tab_index].label == view
        assert tabs.query_param_key == f"{VIEWS[stem][0]}_view"
        assert [bool(tab.children) for tab in at.tabs][tabs.default_tab_index]


def test_every_chart_and_table_is_told_in_words(shown):
    assert without_words(shown[2]) == []


def test_every_axis_has_a_title(shown):
    assert without_titles(shown[2]) == []


def test_every_widget_lives_in_the_address_under_its_key(shown):
    stem, _, at = shown
    assert unbound(at) == []
    widgets = [*at.slider, *at.select_slider, *at.selectbox, *at.multiselect, *at.toggle, *at.text_input]
    widgets += at.number_input
    assert widgets
    assert all(widget.key.startswith(f"{VIEWS[stem][0]}_") for widget in widgets)


def test_the_shell_command_is_the_one_of_what_is_shown(shown):
    stem, _, at = shown
    assert at.code[-1].value == command_line(stem, study(stem).Config(**OPTIONS.get(stem, {})))
    assert at.code[-1].proto.language == "bash"


@pytest.mark.parametrize(
    ("stem", "fields"),
    [
        ("overview", {"dtype": "float32"}),
        ("mask_explorer", {"n_new": 4, "flipped": "5:3,6:7", "causal": False}),
        ("decode_paths", {"seed": 9, "chunks": "5,3,7,..."}),
        ("work_counts", {"length": 40, "window": None}),
        ("sliding_window", {"window": 3, "crop": 5}),
        ("fault_bench", {"fault": "positions_restart", "seed": 5}),
        ("prefix_reuse", {"edit_to": 9}),
        ("check_your_own", {"fault": "positions_restart", "length": 8}),
        ("published_models", {"model": "Llama-3.1-8B", "batch": 8}),
    ],
)
def test_the_shell_command_follows_the_controls(stem, fields):
    words = {None: "off", True: "true", False: "false"}
    at = open_page(stem, **{field: words.get(value, str(value)) for field, value in fields.items()})
    assert not at.error
    command = command_line(stem, study(stem).Config(**fields))
    assert at.code[-1].value == command
    assert len(shlex.split(command)) == 5 + 2 * len(fields)


@pytest.mark.parametrize("stem", list(VIEWS))
def test_the_shell_command_prints_what_the_page_says(stem, capsys):
    at = open_page(stem)
    assert at.code[-1].value == command_line(stem, study(stem).Config())
    python, module, program, *arguments = shlex.split(at.code[-1].value)
    assert (python, module, program) == ("python", "-m", "kvcore")
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert at.info
    for said in at.info:
        assert said.value.removesuffix(" These are counts, not a speed-up.") in printed


def faulty():
    import plotly.graph_objects as go
    import streamlit as st

    st.slider("Bound", 0, 9, 3, key="page_bound", bind="query-params")
    st.slider("Unbound", 0, 9, 3, key="page_unbound")
    st.text_input("Without a key")
    with st.sidebar:
        st.toggle("Beside", key="page_beside")
    st.tabs(["A", "B"], key="page_view", on_change="rerun")
    figure = go.Figure(go.Scatter(y=[1, 2]), {"xaxis": {"title": {"text": "position"}}, "yaxis": {"type": "log"}})
    st.plotly_chart(figure, alt="Two points.")
    st.plotly_chart(go.Figure(go.Scatter(y=[1, 2])))
    st.dataframe({"value": [1]})
    st.table({"value": [1]})


def test_what_is_missing_is_noticed():
    at = AppTest.from_function(faulty).run()
    assert not at.exception
    assert unbound(at) == ["page_unbound", None, "page_beside"]
    assert without_titles(at) == ["yaxis", "no x axis", "no y axis"]
    assert len(without_words(at)) == 3
