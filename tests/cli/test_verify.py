"""`rrnn verify`, as users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrnn import theory, zoo
from rrnn.cli import main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str], str]:
    code = main(["verify", *args])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_the_zoo_holds(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = run(capsys)
    assert (code, err) == (0, "")
    assert lines[0].split("  ")[0].strip() == "model" and len(lines) == 1 + len(zoo.CELLS)
    assert [line.split()[0] for line in lines[1:]] == list(zoo.CELLS)
    assert all(line.endswith("equal") for line in lines[1:])
    assert "F           real      4 states, 7 arcs  2 " in lines[4]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, "B", "F+o", "--json", "--seed", "3", "--backend", "reference")
    found = [json.loads(line) for line in lines]
    assert code == 0 and [each["model"] for each in found] == ["B", "F+o"]
    assert all(each["holds"] and each["max_error"] < 1e-13 for each in found)


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.cell"
    path.write_text(zoo.get_cell("C").to_text(), encoding="utf-8")
    code, lines, _ = run(capsys, str(path))
    assert code == 0 and lines[1].startswith(str(path))


def test_a_mismatch_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrnn.theory.verify.scores", lambda rnn, x: theory.scores(rnn, x) * (1 + 1e-7))
    code, lines, _ = run(capsys, "B", "C")
    assert code == 1 and all(line.endswith("DIFFERENT") for line in lines[1:])
    code, lines, _ = run(capsys, "B", "--json")
    assert code == 1 and json.loads(lines[0])["holds"] is False
    assert run(capsys, "B", "--tolerance", "1e-5")[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("G",), "no cell is called 'G'"),
        (("no.cell",), "no.cell: cannot read the cell"),
        (("F", "--backend", "cuda"), "unknown backend 'cuda'"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str) -> None:
    code, lines, err = run(capsys, *args)
    assert (code, lines) == (2, []) and err.startswith("error: ") and message in err
