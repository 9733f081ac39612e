"""The report in a real browser: it fits, is legible in light and dark, and loads nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rrnn.report import write_report

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: run tests/explorer/chromium.sh"),
]
PROBES = (Path(__file__).parents[1] / "explorer" / "probes.js").read_text(encoding="utf-8")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SMALLEST = """() => Math.min(...[...document.querySelectorAll(".chart text")].map(
    (e) => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(lm_runs: list[Path], text_runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([*lm_runs, *text_runs], tmp_path_factory.mktemp("report") / "report.html")


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
)
def test_it_fits_and_is_legible(browser: Any, file: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(f"() => {{ {PROBES} return faint(); }}") == []
    assert page.evaluate(f"() => {{ {PROBES} return nameless(); }}") == []
    assert page.evaluate(SMALLEST) >= 10
    assert page.locator("h2").count() == 3 and page.locator("svg").count() == 15
    assert asked == [file.as_uri()] and said == []
    context.close()
