"""The site builds without a warning, loads nothing from elsewhere, and describes every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented_code import ROOT

import rrnn

REFERENCE = "".join(
    path.read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "reference").glob("*.md")
    if path.name != "index.md"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert not list(site.rglob("*.py"))


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        assert path.relative_to(ROOT / "docs").as_posix() in navigation


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        loads = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?([^\s\">]+)", html)
        assert loads and not [address for address in loads if re.match(r"(https?:)?//", address)]


@pytest.mark.parametrize("name", [name for name in rrnn.__all__ if name != "__version__"])
def test_the_reference_has_every_public_name(name: str) -> None:
    assert re.search(rf"^::: rrnn\.[\w.]+\.{name}$", REFERENCE, re.M) or f"`{name}`" in REFERENCE


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_outside_the_site(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"(?:\]\(|src=\")(?!https?:|#)([^)#\"]+)", text):
        assert (ROOT / target).exists(), target
