"""What can be taken from a page: the numbers as CSV and NPZ, the figure as a page that needs no network."""

import io
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from kvcore.show import study
from pages.common import export

APP = str(Path(__file__).resolve().parent.parent / "app.py")


@pytest.fixture
def offered(monkeypatch):
    """What a page offers for download: file name -> (callable that makes the content, MIME type)."""
    found = {}

    def download_button(label, data, file_name, mime, **options):
        found[file_name] = data, mime

    monkeypatch.setattr("streamlit.download_button", download_button)
    return found


def open_page(stem, name, **query):
    """The page with the expander of figure `name` open."""
    at = AppTest.from_file(APP, default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    at.session_state[f"{name}_numbers"] = True
    at.switch_page(f"pages/{stem}.py")
    at.run()
    assert not at.exception
    return at


class References(HTMLParser):
    """What a browser would fetch for a page: sources of its scripts, styles, pictures and frames."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        wanted = "href" if tag == "link" else "src"
        self.found += [value for name, value in attrs if name == wanted and tag != "a"]


def drawn(html):
    """The traces that a standalone page draws."""
    call = html.rindex("Plotly.newPlot(")
    return json.JSONDecoder().raw_decode(html, html.index("[", call))[0]


def same_numbers(csv, frame):
    """Every column and row, every word, and every number to its last bit."""
    read = pd.read_csv(io.StringIO(csv), dtype=str, keep_default_na=False)
    assert list(read.columns) == list(frame.columns)
    assert len(read) == len(frame) > 0
    for column in frame:
        if pd.api.types.is_float_dtype(frame[column]):
            numbers = [float(text or "nan") for text in read[column]]
            np.testing.assert_array_equal(numbers, frame[column], err_msg=column)
        else:
            assert read[column].tolist() == ["" if pd.isna(value) else str(value) for value in frame[column]], column


def same_arrays(content, arrays):
    with np.load(io.BytesIO(content)) as read:
        assert sorted(read.files) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array, err_msg=name)


FIGURES = [
    ("overview", "overview_differences", {}, "to_frame"),
    ("mask_explorer", "mask_cells", {}, "cells"),
    ("mask_explorer", "mask_movement", {}, "movement"),
    ("mask_explorer", "mask_weights", {"mask_view": "Attention weights"}, "weights"),
    ("mask_explorer", "mask_future", {"mask_view": "Future edit"}, "future edit"),
    ("decode_paths", "paths_differences", {}, "differences"),
    ("work_counts", "work_picture_left", {"work_view": "Step by step"}, "steps"),
    ("work_counts", "work_growth_rows", {"work_view": "Growth"}, "growth"),
    ("sliding_window", "slide_differences", {}, "differences"),
    ("sliding_window", "slide_cone", {}, "cone"),
    ("sliding_window", "slide_reach", {"slide_view": "Reach"}, "reach"),
    ("sliding_window", "slide_crops", {"slide_view": "Crop sweep"}, "crops"),
]


@pytest.mark.parametrize(("stem", "name", "query", "table"), FIGURES, ids=[name for _, name, _, _ in FIGURES])
def test_files_of_a_figure_hold_what_the_engine_computed(offered, stem, name, query, table):
    at = open_page(stem, name, **query)
    module = study(stem)
    result = module.run(module.Config())
    frame = result.to_frame() if table == "to_frame" else result.tables()[table]

    csv, csv_type = offered[f"{name}.csv"]
    npz, _ = offered[f"{name}.npz"]
    html, html_type = offered[f"{name}.html"]
    assert (csv_type, html_type) == ("text/csv", "text/html")
    same_numbers(csv(), frame)
    same_arrays(npz(), result.arrays())

    page = html()
    assert References(page).found == []
    specs = [json.loads(chart.proto.spec)["data"] for chart in at.get("plotly_chart")]
    assert drawn(page) in specs


def test_files_of_one_path_hold_that_path(offered):
    open_page("decode_paths", "paths_by_layer", paths_view="By layer", paths_show="token cache")
    module = study("decode_paths")
    (outcome,) = (o for o in module.run(module.Config()).outcomes if o.name == "token cache")
    same_numbers(offered["paths_by_layer.csv"][0](), pd.DataFrame(outcome.rows_by_layer()))
    same_arrays(offered["paths_by_layer.npz"][0](), outcome.arrays())


def test_numbers_without_a_figure_have_no_html(offered):
    open_page("work_counts", "work_counts")
    module = study("work_counts")
    same_numbers(offered["work_counts.csv"][0](), module.run(module.Config()).tables()["counts"])
    assert sorted(offered) == ["work_counts.csv", "work_counts.npz"]


def test_a_table_on_screen_offers_its_files_at_once(offered):
    open_page("decode_paths", "nothing", paths_view="Table")
    module = study("decode_paths")
    result = module.run(module.Config())
    same_numbers(offered["paths_table.csv"][0](), result.tables()["paths"])
    same_arrays(offered["paths_table.npz"][0](), result.arrays())


def test_a_number_in_the_last_bit_is_noticed():
    frame = pd.DataFrame({"value": [0.1, 5.6e-16]})
    same_numbers(frame.to_csv(index=False), frame)
    with pytest.raises(AssertionError):
        same_numbers(frame.assign(value=np.nextafter(frame["value"], 1)).to_csv(index=False), frame)


def test_standalone_html_carries_plotly_and_all_traces_and_needs_no_network():
    figure = go.Figure([go.Scatter(y=[1.0, 5.6e-16], name="one"), go.Scatter(y=[2.0, 3.0], name="two")])
    html = export.standalone_html(figure)
    assert "plotly.js v" in html
    assert len(html) > 1_000_000
    assert References(html).found == []
    assert [(trace["name"], trace["y"]) for trace in drawn(html)] == [("one", [1.0, 5.6e-16]), ("two", [2.0, 3.0])]
    assert figure.layout.paper_bgcolor is None


def test_a_page_that_fetches_plotly_is_noticed():
    assert References(go.Figure().to_html(include_plotlyjs="cdn")).found != []


def one_chart():
    import plotly.graph_objects as go

    from pages.common import export

    def too_early():
        raise AssertionError("made before it was asked for")

    export.chart(go.Figure(), "one", "An empty figure.", too_early, too_early)


def open_arrays():
    import pandas as pd

    from pages.common import export

    def too_early():
        raise AssertionError("made before it was asked for")

    export.numbers("one", "One number.", lambda: pd.DataFrame({"value": [5.6e-16]}), too_early)


def test_nothing_is_made_while_the_expander_is_closed():
    at = AppTest.from_function(one_chart).run()
    assert not at.exception
    assert len(at.get("plotly_chart")) == 1
    assert not at.dataframe
    at.session_state["one_numbers"] = True
    assert at.run().exception


def test_an_open_expander_shows_the_table_and_makes_files_only_when_asked_for():
    at = AppTest.from_function(open_arrays)
    at.session_state["one_numbers"] = True
    at.run()
    assert not at.exception
    assert at.dataframe[0].value["value"].tolist() == [5.6e-16]
    assert [button.label for button in at.get("download_button")] == ["CSV", "NPZ"]
