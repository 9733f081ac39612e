"""The pictures in docs/pictures are those that the code draws today."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
NAMES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.svg"))


@pytest.fixture(scope="module")
def pictures() -> dict[str, str]:
    """Draw all pictures; collecting the tests does not wait for this."""
    return runpy.run_path(str(FOLDER / "make.py"))["pictures"]()


@pytest.mark.parametrize("name", NAMES)
def test_up_to_date(name: str, pictures: dict[str, str]) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == pictures.get(name), f"docs/pictures/{name} is old: run python docs/pictures/make.py"


def test_none_is_missing(pictures: dict[str, str]) -> None:
    assert set(NAMES) == set(pictures)


def test_the_readme_shows_one() -> None:
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "docs/pictures/F.svg" in readme
