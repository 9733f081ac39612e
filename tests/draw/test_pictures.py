"""The pictures in docs/pictures are those that the code draws today."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES: dict[str, str] = runpy.run_path(str(FOLDER / "make.py"))["pictures"]()


@pytest.mark.parametrize("name", PICTURES)
def test_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PICTURES[name], f"docs/pictures/{name} is old: run python docs/pictures/make.py"


def test_no_others() -> None:
    assert {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.svg")} == set(PICTURES)


def test_the_readme_shows_one() -> None:
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "docs/pictures/F.svg" in readme
