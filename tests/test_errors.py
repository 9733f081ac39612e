"""Suggestions of similar names come from one function."""

from __future__ import annotations

from pathlib import Path

import pytest

import rrnn
from rrnn.errors import nearest


@pytest.mark.parametrize(
    ("name", "names", "sentence"),
    [
        ("layer", ["layers", "lr"], " Did you mean 'layers'?"),
        ("LAYER", ["layers", "lr"], " Did you mean 'layers'?"),
        ("Sru", ["SRU", "Srv"], " Did you mean 'Srv'?"),  # the same case comes first
        ("xyz", ["layers", "lr"], ""),
        (11, [1, 2], " Did you mean 1?"),
        ("", [], ""),
    ],
)
def test_nearest(name: object, names: list[object], sentence: str) -> None:
    assert nearest(name, names) == sentence


def test_nearest_quotes_as_asked() -> None:
    assert nearest("gret", ["greet"], "`rrnn {}`".format) == " Did you mean `rrnn greet`?"


def test_no_other_module_compares_spellings() -> None:
    root = Path(rrnn.__file__).parent
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "difflib" in path.read_text("utf-8")
    }
    assert users == {"errors.py"}
