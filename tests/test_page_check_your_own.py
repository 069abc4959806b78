"""The check-your-own page through app.py: the study, the template, uploads good and bad, and the recorded table."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from kvcore.integrations import record
from kvcore.studies.check_your_own import Config, example, run
from kvcore.verification import saved as saved_report
from kvcore.verification.saved import verify_saved

ROOT = Path(__file__).resolve().parent.parent
APP = str(ROOT / "app.py")
QUICK = {"fault": "none", "length": 6}
"""Nothing is wrong, so no mistakes are simulated."""


def open_page(view=None, **fields):
    at = AppTest.from_file(APP, default_timeout=90)
    at.run()
    for field, value in (QUICK | fields).items():
        at.query_params[f"own_{field}"] = str(value)
    if view is not None:
        at.query_params["own_view"] = view
    at.switch_page("pages/check_your_own.py")
    return at.run()


def charts(at):
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def upload(at, content, name="outputs.npz"):
    at.file_uploader(key="own_file").set_value((name, content, "application/octet-stream"))
    return at.run()


def test_the_page_shows_the_studys_reading_chart_and_checks():
    at, result = open_page(), run(Config(**QUICK))
    assert not at.exception
    assert [info.value for info in at.info] == [result.reading]
    [chart] = charts(at)
    assert chart["layout"]["yaxis"]["ticktext"] == list(result.report.differences)
    assert at.dataframe[0].value["check"].tolist() == [check.name for check in result.report.checks]
    assert str(result.report) in [code.value for code in at.code]


def test_the_first_thing_shown_is_a_report_with_a_ranking():
    at = AppTest.from_file(APP, default_timeout=90)
    at.switch_page("pages/check_your_own.py")
    at.run()
    result = run(Config())
    assert [info.value for info in at.info] == [result.reading]
    shown = "\n".join(text.value for text in at.markdown)
    assert "rank 1: **C1 causal mask top left.**" in shown
    assert "one deliberate mistake" in at.info[0].value


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("selectbox", "positions", "learned"),
        ("select_slider", "window", "off"),
        ("slider", "length", 9),
        ("slider", "seed", 41),
    ],
)
def test_each_control_reaches_the_engine(kind, field, value):
    at = open_page()
    getattr(at, kind)(key=f"own_{field}").set_value(value)
    at.run()
    assert not at.exception
    fields = QUICK | {field: None if value == "off" else value}
    assert at.info[0].value == run(Config(**fields)).reading


def test_a_mistake_that_the_decoder_cannot_have_is_one_sentence_and_the_rest_stands():
    at = open_page("Your model", fault="alibi_of_the_first_rows")
    assert not at.exception
    [error] = at.error
    assert "needs ALiBi; change the decoder or choose another mistake" in error.value
    assert not at.info
    assert ["def make_model" in code.value for code in at.code] == [True]


def test_the_template_on_the_page_is_the_file_that_the_tests_run():
    at = open_page("Your model")
    assert at.code[0].value == (ROOT / "kvcore/verification/template.py").read_text(encoding="utf-8").rstrip("\n")


def test_a_right_file_gets_its_report():
    full = np.random.default_rng(0).normal(size=(6, 3))
    content = npz(full=full, **{"1,1,1,1,1,1": full, "3,3": full})
    at = upload(open_page("Saved outputs"), content)
    assert not at.exception
    assert not at.error
    assert verify_saved(content).verdict in at.info[1].value
    assert charts(at)[1]["layout"]["yaxis"]["ticktext"] == ["token by token", "two halves"]
    assert at.dataframe[0].value["verdict"].tolist()[:2] == ["equal", "equal"]


def test_a_wrong_file_gets_its_ranking(monkeypatch):
    asked = []
    monkeypatch.setattr(saved_report, "diagnose", lambda trial: asked.append(trial) or [])
    at = upload(open_page("Saved outputs"), example(Config(length=7)))
    assert not at.exception
    assert "FAULT: " in at.info[1].value
    assert asked[0].length == 7


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "The file is empty"),
        (b"<script>alert(1)</script>", "cannot be read"),
        (npz(full=np.zeros((6, 2)), **{"5,4": np.zeros((6, 2))}), "add up to 9"),
        (npz(full=np.full((6, 2), np.nan), **{"3,3": np.zeros((6, 2))}), "not finite at position 0"),
        (npz(full=np.zeros((6, 2)), **{"3,3": np.array([object()])}), "pickled objects"),
        (npz(full=np.zeros((6, 2)), **{"[x](a.example)": np.zeros((6, 2))}), "names no chunk sizes"),
    ],
    ids=["empty", "text", "sizes", "nan", "pickle", "markdown"],
)
def test_a_bad_file_is_one_sentence_and_the_rest_stands(content, says):
    at = upload(open_page("Saved outputs"), content)
    assert not at.exception
    [error] = at.error
    assert says in error.value
    assert "Traceback" not in error.value
    assert re.search(r"(?<!\\)\]\(", error.value) is None
    assert len(at.info) == 1
    assert at.code[-1].value.startswith("python -m kvcore show check-your-own")


def test_the_uploader_names_and_sets_its_limits():
    [uploader] = open_page("Saved outputs").file_uploader
    assert "20 MB" in uploader.label
    assert uploader.proto.max_upload_size_mb == 20
    assert list(uploader.proto.type) == [".npz"]


def test_published_models_show_the_recorded_table_and_say_that_it_is_recorded():
    at, stored = open_page("Published models"), record.load()
    assert not at.exception
    assert at.info[1].value == record.in_words(stored)
    shown = "\n".join(text.value for text in at.markdown)
    assert "Recorded, and not computed here" in shown
    assert shown.count("off by up to") == len(record.wrong(stored))
    [_, matrix] = charts(at)
    names = {row["architecture"] for row in stored["rows"]}
    assert set(matrix["layout"]["yaxis"]["ticktext"]) == names


@pytest.mark.parametrize(("field", "value"), [("fault", "no such"), ("window", "99"), ("length", "10000")])
def test_an_address_a_control_can_reject_opens_its_default(field, value):
    at = open_page(**{field: value})
    assert not at.exception
    assert not at.error
