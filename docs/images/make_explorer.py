"""Take the screenshots of docs/explorer.md: `python docs/images/make_explorer.py RUNS`.

The most accurate run in the folder RUNS must be a classifier of film reviews, such as that of
`rrnn classify train --data sst --vectors glove --layers 1 --readout linear`. Needs Chromium, Playwright and Pillow.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SENTENCE = "a dull story , but the actors are wonderful"


def design(page: Any) -> None:
    page.wait_for_selector("#cell-stage svg")


def score(page: Any) -> None:
    page.click("#back")


def explain(page: Any) -> None:
    page.fill("#sentence", SENTENCE)
    page.keyboard.press("Enter")
    page.locator("#words li", has_text="wonderful").wait_for()
    page.wait_for_selector("#explained[aria-busy=false]")
    page.locator("#units button", has_text="ε").first.click()


# name → (panel, what to do, width, height, colour scheme)
SHOTS = {
    "design": ("design", design, 1280, 860, "light"),
    "score": ("score", score, 1280, 1010, "light"),
    "explain": ("explain", explain, 1280, 1010, "light"),
    "dark": ("design", design, 1280, 860, "dark"),
    "narrow": ("design", design, 400, 1020, "dark"),
}


def main(runs: str) -> None:
    command = [sys.executable, "-m", "rrnn", "explore", "--port", "0", "--no-open", "--runs", runs]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        (address,) = re.findall(r"http://\S+", server.stdout.readline())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, (panel, prepare, width, height, scheme) in SHOTS.items():
            view = {"width": width, "height": height}
            page = browser.new_page(viewport=view, color_scheme=scheme, reduced_motion="reduce")
            page.goto(f"{address}#{panel}")
            page.wait_for_selector(f"#panel-{panel} .stage svg")
            prepare(page)
            page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
            page.mouse.move(0, 0)
            page.wait_for_timeout(300)
            picture = (
                Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(128, dither=Image.Dither.NONE)
            )
            picture.save(HERE / f"explorer-{name}.png", optimize=True)
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
