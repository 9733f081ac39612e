"""docs/formats.md: its files and its table of costs are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rrnn.semirings import SEMIRINGS
from rrnn.wfsa.io import from_openfst, load, to_dot

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page, in the working directory."""
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert len(files) == 6
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_json_is_what_the_page_says(folder: Path) -> None:
    machine = load("ab.json")
    assert machine.states == ("q0", ("q", 1)) and machine.alphabet == ("a", 7)
    assert machine.score([("a",), ()]).tolist() == [-1.75, -3.5]
    assert "bold" in to_dot(machine) and "doublecircle" in to_dot(machine)


def test_the_table_of_costs(folder: Path) -> None:
    """The columns "a missing cost, or 0" and "the cost Infinity", read back from files."""
    rows = re.findall(
        r"^\| ([\w-]+) \| [^|]* \| (?:standard|log, log64) \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE
    )
    assert {name for name, _, _ in rows} == {ring.name for ring in SEMIRINGS.values() if ring.costs}
    for name, nothing, infinity in rows:
        machine = from_openfst("0 1 1\n0 1 2 0\n0 1 3 Infinity\n1\n", semiring=name)
        zero = float(infinity.replace("∞", "inf").replace("−", "-"))
        assert machine.arc_weight.tolist() == [float(nothing), float(nothing), zero]
