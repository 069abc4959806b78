"""The overview through app.py: its figures were computed that moment and equal the engine's."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from kvcore import audit, experiment
from kvcore.config import DTYPES
from kvcore.figures import overview as figures
from kvcore.figures.theme import EXACT_ZERO
from kvcore.measures import FIGURES
from kvcore.protocol import Protocol
from kvcore.recorded import load
from pages.common import cached

APP = str(Path(__file__).resolve().parent.parent / "app.py")


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    return at.run()


@pytest.fixture(scope="module")
def run():
    return experiment.run(Protocol())


def test_overview_says_what_the_engine_says(run):
    at = open_page()
    assert not at.exception
    assert at.title[0].value == "KV Cache Lab"
    assert at.info[0].value == run.reading


def test_all_45_recorded_figures_are_shown_and_agree():
    at = open_page()
    shown = at.dataframe[0].value
    assert len(shown) == 45 == len(FIGURES) * 3
    assert (shown["agrees"] == "✓ agrees").all()
    assert any("45 of 45" in heading.value for heading in at.subheader)
    recorded = {(r["seed"], key): value for r in load()["results"] for key, value in r.items() if key != "seed"}
    for seed, figure, text in zip(shown["seed"], shown["figure"], shown["recorded"], strict=True):
        assert float(text) == pytest.approx(recorded[seed, figure], rel=1e-5)


def test_a_recorded_figure_that_differs_is_marked(monkeypatch):
    data = load()
    data["results"][0]["wrong_chunk_mask_error"] += 1e-6
    monkeypatch.setattr("kvcore.recorded.load", lambda: data)
    cached.overview.clear()
    at = open_page()
    shown = at.dataframe[0].value
    assert shown[shown["agrees"] != "✓ agrees"]["figure"].tolist() == ["wrong_chunk_mask_error"]
    assert any("44 of 45" in heading.value for heading in at.subheader)


def test_work_counts_are_the_counted_ones(run):
    at = open_page()
    counts = run.runs[0].figures
    values = [metric.value for metric in at.metric]
    assert values[0] == f"{counts['prefix_projected_rows']:,} → {counts['cached_projected_rows']:,}" == "1,800 → 144"
    assert values[1:] == ["9,800 → 600", "12,288 → 2,048"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_number_format_changes_the_picture_and_its_sentence(dtype):
    at = open_page()
    at.selectbox(key="overview_dtype").set_value(dtype)
    at.run()
    assert not at.exception
    assert at.info[0].value == experiment.run(Protocol(dtype=dtype)).reading
    again = open_page(overview_dtype=dtype)
    assert again.info[0].value == at.info[0].value


def test_a_number_format_that_does_not_exist_opens_the_default(run):
    assert open_page(overview_dtype="float8").info[0].value == run.reading


def test_picture_holds_every_difference_of_every_seed_with_zeros_apart(run):
    drawn = figures.differences(run)
    assert len(drawn.data) == 6
    values = np.concatenate([trace.customdata for trace in drawn.data])
    expected = [seed.figures[f.key] for seed in run.runs for f in FIGURES if f.kind != "count"]
    assert sorted(values) == sorted(expected)
    for trace in drawn.data:
        zero = np.array(trace.customdata) == 0
        assert (np.array(trace.x)[zero] == EXACT_ZERO).all()
        assert (np.array(trace.x)[~zero] > EXACT_ZERO).all()
    assert drawn.layout.shapes[0].x0 == run.protocol.tolerance
    right, wrong = (
        {t.marker.symbol for t in drawn.data if t.name.startswith(kind)} for kind in ("right", "deliberate")
    )
    assert not right & wrong


def test_picture_without_seeds_is_a_sentence():
    nothing = experiment.Experiment(Protocol(), ())
    assert figures.differences(nothing).layout.annotations[0].text == "No seed was run."


def test_evidence_zip_unpacks_to_a_folder_that_the_audit_accepts(run, tmp_path):
    with zipfile.ZipFile(io.BytesIO(cached.evidence_zip(run))) as archive:
        archive.extractall(tmp_path)
    audit.audit(tmp_path / "evidence")
    manifest = json.loads((tmp_path / "evidence" / "manifest.json").read_text())
    assert manifest["protocol"]["seeds"] == [7, 19, 41]


def test_page_links_name_all_other_pages():
    at = open_page()
    assert [link.proto.label for link in at.get("page_link")] == [
        "**Mask explorer**",
        "**Decode paths**",
        "**Work counts**",
        "**Sliding window**",
        "**Fault bench**",
        "**Prefix reuse**",
        "**Check your own**",
        "**Published models**",
    ]


def test_a_count_that_differs_is_said_to_differ(monkeypatch, run):
    def caption():
        return next(caption.value for caption in open_page().caption if "speed-up" in caption.value)

    assert "are the same for each seed, equal their formulas" in caption()
    first, *others = run.runs
    miscounted = replace(first, figures=first.figures | {"prefix_projected_rows": 1})
    monkeypatch.setattr(cached, "overview", lambda config: replace(run, runs=(miscounted, *others)))
    assert "DIFFER for each seed, DIFFER from their formulas" in caption()
