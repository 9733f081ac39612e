"""docs/formats.md: its files are good, its commands print what it says, its code runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rrnn.cli import main
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


def test_commands_print_what_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        for command, output in re.findall(r"^\$ rrnn (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
            assert main(shlex.split(command)) == 0
            printed = [float(line) for line in capsys.readouterr().out.splitlines()]
            # not the text: the last digit of a logarithm is the C library's
            assert printed == pytest.approx([float(line) for line in output.splitlines()], rel=1e-14)


def test_code_runs(folder: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "formats.md", "exec"), {})
    assert (folder / "coin.dot").exists()


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
    assert {name for name, _, _ in rows} == set(SEMIRINGS) - {"counting"}
    for name, nothing, infinity in rows:
        machine = from_openfst("0 1 1\n0 1 2 0\n0 1 3 Infinity\n1\n", semiring=name)
        zero = float(infinity.replace("∞", "inf").replace("−", "-"))
        assert machine.arc_weight.tolist() == [float(nothing), float(nothing), zero]
