"""Share one application with one worker among all tests of a process, because starting it takes seconds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explorer") / "runs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def trained(runs: Path) -> Path:
    """Train three classifiers on a few texts: an LSTM, which has no automata, a cell over max-plus, and F, the newest.
    Return the folder of runs."""
    from rrnn.tasks.classify.config import ClassifyConfig
    from rrnn.tasks.classify.experiment import train

    texts = "yes this is good\nno this is not good\nyes that was very good\nno it was not so good\n"
    data = {name: str(runs.parent / f"{name}.txt") for name in ("train", "dev")}
    for path in data.values():
        Path(path).write_text(4 * texts)
    small = {"hidden_size": 4, "embedding_size": 6, "layers": 1, "epochs": 2, "device": "cpu"}
    for cell, name in (("LSTM", "search/seed-0"), ("B-max-plus", "B-max-plus"), ("F", "F")):
        (runs / name).parent.mkdir(exist_ok=True)
        train(ClassifyConfig(data=data["train"], dev=data["dev"], cell=cell, **small), runs / name)
    return runs


@pytest.fixture(scope="session")
def connect() -> Callable[[Path], Any]:
    """Return a function that makes a client of the explorer over a folder of runs, a context manager."""
    with warnings.catch_warnings():
        # Newer versions of starlette ask for a successor of httpx that older versions do not know.
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    from rrnn.explorer import create_app

    return lambda runs: TestClient(create_app(runs), base_url="http://127.0.0.1:8765", follow_redirects=False)


@pytest.fixture(scope="session")
def client(runs: Path, connect: Callable[[Path], Any]) -> Iterator[Any]:
    with connect(runs) as client:
        yield client


@pytest.fixture(scope="module")
def address(trained: Path) -> Iterator[str]:
    """The command itself, on any free port."""
    command = [sys.executable, "-m", "rrnn", "explore", "--port", "0", "--no-open", "--runs", str(trained)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found
            yield found[0]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        pytest.skip("there is no Chromium: run tests/explorer/chromium.sh")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Opens the page, ready and with a picture. What the console complains of, and what it loads from elsewhere, fails
    the test."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def request(asked: Any) -> None:
        if not asked.url.startswith((address, "blob:")):
            complaints.append(f"loads {asked.url}")

    def visit(panel: str = "design", **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("request", request)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        # what the server refuses is logged as an error too, and is no fault of the page
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text)
                if said.type in ("error", "warning") and "status of 4" not in said.text
                else None
            ),
        )
        page.goto(f"{address}#{panel}")
        page.wait_for_selector("body[data-ready]")
        page.wait_for_selector(f"#panel-{panel} .stage svg")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not complaints
