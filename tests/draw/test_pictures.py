"""The pictures in docs/pictures are those that the code draws today."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES: dict[str, str] = runpy.run_path(str(FOLDER / "make.py"))["pictures"]()


@pytest.mark.parametrize("name", PICTURES)
def test_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PICTURES[name], f"docs/pictures/{name} is old: run python docs/pictures/make.py"


def test_no_others() -> None:
    assert {path.name for path in FOLDER.glob("*.svg")} == set(PICTURES)


def test_the_page_about_pictures(tmp_path: Path) -> None:
    page = (FOLDER.parent / "drawing.md").read_text(encoding="utf-8")
    for name in re.findall(r"\]\((pictures/.*?)\)", page):
        assert (FOLDER.parent / name).is_file()
    code = "".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL))
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_readme_shows_one() -> None:
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "docs/pictures/F.svg" in readme
