"""Six journeys in a real browser: what only Chromium can show."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kvcore.figures.theme import EXACT_ZERO
from kvcore.studies.decode_paths import Config, run
from tests.serve import ROOT, server

PAGES = (
    "",
    "mask_explorer",
    "decode_paths",
    "work_counts",
    "sliding_window",
    "fault_bench",
    "prefix_reuse",
    "check_your_own",
    "published_models",
)
STREAMLITS_OWN = ("_stcore/health", "_stcore/host-config")
"""Every deep link asks for these under the page's path and gets a 404; both are Streamlit's."""


@pytest.fixture(scope="module")
def address():
    with server(ROOT / "app.py") as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("KVCORE_REQUIRE_BROWSER"):
            pytest.fail("KVCORE_REQUIRE_BROWSER is set and no chromium was found")
        pytest.skip("no chromium was found; install Debian's package chromium to run the browser journeys")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()


def visit(browser: Browser, address: str, width: int = 1280, scheme: str = "light") -> tuple[Page, list[str]]:
    """A new visitor on `address`, and the list that collects what goes wrong."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on(
        "requestfailed",  # leaving a page ends what it was still loading: no error
        lambda r: wrong.append(f"failed: {r.url}") if r.failure != "net::ERR_ABORTED" else None,
    )
    page.on(
        "response",
        lambda r: (
            wrong.append(f"{r.status}: {r.url}") if r.status >= 400 and not r.url.endswith(STREAMLITS_OWN) else None
        ),
    )
    page.on(
        "console",
        lambda m: wrong.append(f"console: {m.text}") if m.type == "error" and "status of 404" not in m.text else None,
    )
    page.set_default_timeout(60_000)
    page.goto(address)
    settled(page)
    return page, wrong


def settled(page: Page) -> None:
    """Wait until a run has finished: the footer is drawn last, and the status widget has gone."""
    expect(page.get_by_text("Counts of work are not a speed-up.", exact=False).last).to_be_visible(timeout=60_000)
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=60_000)


def drawn(page: Page, chart: str) -> list[float]:
    """The heights of a chart's first trace, once it is drawn."""
    plot = f"document.querySelector('.st-key-{chart}_chart .js-plotly-plot')"
    page.wait_for_function(f"{plot}?._fullData?.[0]?.y?.length > 0")
    page.wait_for_timeout(500)  # a chart that is there already takes a moment to take new data
    return page.evaluate(f"Array.from({plot}._fullData[0].y)")


def drawn_when(page: Page, chart: str, wanted: Callable[[list[float]], bool]) -> list[float]:
    """The heights once they are as wanted: a run may still be on its way, so this waits as long as it must."""
    for _ in range(60):
        if wanted(heights := drawn(page, chart)):
            return heights
    raise AssertionError(f"{chart} still shows {heights}")


def reading_other_than(page: Page, before: str) -> str:
    """The sentence of the next run."""
    page.wait_for_function(
        "before => document.querySelector('[data-testid=stAlert]')?.innerText !== before", arg=before
    )
    settled(page)
    return reading(page)


def reading(page: Page) -> str:
    return page.get_by_test_id("stAlert").first.inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_each_page_opens_without_an_error_or_sideways_scrolling(browser, address, width):
    """Light at first, and then dark, as where the visitor's system changes: one visit serves both."""
    for name in PAGES:
        page, wrong = visit(browser, f"{address}/{name}", width, "light")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            settled(page)
            expect(page.locator(".js-plotly-plot, [data-testid=stTable]").first).to_be_visible(timeout=60_000)
            for element in ("document.documentElement", "document.querySelector('[data-testid=stMain]')"):
                assert page.evaluate(f"{element}.scrollWidth <= {element}.clientWidth"), f"{name} scrolls sideways"
            assert page.get_by_test_id("stException").count() == 0
            assert wrong == [], name
        page.context.close()


def test_a_moved_control_changes_number_and_address_and_the_address_opens_the_same(browser, address):
    page, _ = visit(browser, f"{address}/decode_paths")
    before = reading(page)
    slider = page.locator(".st-key-paths_seed").get_by_role("slider")
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_url("**paths_seed=8**")
    after = reading_other_than(page, before)
    again, _ = visit(browser, page.url)
    assert reading(again) == after != before
    page.context.close()
    again.context.close()


def test_a_flipped_mask_cell_moves_the_plot_and_is_in_the_address(browser, address):
    page, wrong = visit(browser, f"{address}/mask_explorer")
    still = max(drawn(page, "mask_movement"))
    assert still == EXACT_ZERO

    squares = page.locator(".st-key-mask_cells_chart .scatterlayer .points path")
    box = squares.first.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**mask_flipped=**")
    settled(page)
    by_click = drawn_when(page, "mask_movement", lambda heights: max(heights) > 1e-6)

    page.get_by_role("button", name="Reset", exact=True).click()
    page.wait_for_url(lambda url: "mask_flipped" not in url)
    drawn_when(page, "mask_movement", lambda heights: max(heights) == still)
    settled(page)

    page.get_by_role("button", name="Flip 6:0", exact=True).press("Enter")
    page.wait_for_url("**mask_flipped=6%3A0**")
    by_button = drawn_when(page, "mask_movement", lambda heights: max(heights) > 1e-6)
    settled(page)
    again, _ = visit(browser, page.url)
    assert reading(again) == reading(page)
    assert drawn(again, "mask_movement") == by_button != by_click
    assert wrong == []
    page.context.close()
    again.context.close()


def test_a_new_server_whose_first_visit_is_a_deep_link_shows_that_page_whole(browser):
    with server(ROOT / "app.py") as port:
        page, wrong = visit(browser, f"http://127.0.0.1:{port}/decode_paths?paths_seed=9")
        expect(page.get_by_role("heading", level=1, name="Decode paths")).to_be_visible()
        links = page.get_by_test_id("stSidebarNavLink")
        expect(links).to_have_count(len(PAGES))
        assert [link.inner_text().split("\n")[-1] for link in links.all()] == [
            "Overview",
            "Mask explorer",
            "Decode paths",
            "Work counts",
            "Sliding window",
            "Fault bench",
            "Prefix reuse",
            "Check your own",
            "Published models",
        ]
        assert run(Config(seed=9)).reading in reading(page)
        assert page.url.endswith("/decode_paths?paths_seed=9")
        assert wrong == []
        page.context.close()


def test_page_links_lead_to_each_view(browser, address):
    page, wrong = visit(browser, address)
    for title in ("Mask explorer", "Sliding window", "Fault bench", "Prefix reuse", "Check your own"):
        page.goto(address)
        settled(page)
        page.get_by_test_id("stMain").get_by_role("link", name=title).first.click()
        expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    assert wrong == []
    page.context.close()


def test_downloaded_evidence_passes_the_audit(browser, address, tmp_path):
    page, _ = visit(browser, address)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Evidence", exact=False).first.click()
    archive = tmp_path / "evidence.zip"
    waiting.value.save_as(archive)
    page.context.close()
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "unpacked")
    (found,) = (tmp_path / "unpacked").rglob("manifest.json")
    assert json.loads(found.read_text())["protocol"]
    audit = [sys.executable, "-m", "kvcore", "audit", str(found.parent)]
    done = subprocess.run(audit, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
