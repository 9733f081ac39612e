"""Take the screenshots of docs/report.md: `make demo && python docs/images/make_report.py demo-output/report.html`.

Needs Chromium, Playwright and Pillow.
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
# name → (first and last heading of what is shown, in which section, colour scheme)
SHOTS = {
    "report": ("h1", "#group0 h3:has-text('Samples')", "light"),
    "report-text": ("#group1 h3:has-text('Examples')", "#group1 h3:has-text('Configuration')", "dark"),
}


def main(report: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (first, last, scheme) in SHOTS.items():
            page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
            page.goto(Path(report).resolve().as_uri())
            top, bottom = _top(page, first) - 24, _top(page, last) - 16
            clip: Any = {"x": 0, "y": top, "width": 1280, "height": bottom - top}
            shot = page.screenshot(full_page=True, clip=clip)
            picture = Image.open(BytesIO(shot)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
            picture.save(HERE / f"{name}.png", optimize=True)
        browser.close()


def _top(page: Any, selector: str) -> float:
    box = page.locator(selector).bounding_box()
    return box["y"]


if __name__ == "__main__":
    main(sys.argv[1])
