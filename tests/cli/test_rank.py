"""`rrnn rank`: models, files, trained runs, and what cannot be examined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrnn.automata import to_text
from rrnn.cli import main
from rrnn.wfsa import WFSA
from rrnn.wfsa.io import save
from rrnn.zoo import get_cell

TRAINED = Path(__file__).parents[1] / "fixtures" / "trained"


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["rank", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "B", "F", "GRU", "--states", "6")
    lines = out.splitlines()
    assert (code, err) == (0, "") and lines[0].split()[:2] == ["model", "semiring"]
    assert lines[1].endswith("rational: minimal with 2 states")
    assert lines[2].endswith("rational: minimal with 3 states")
    assert lines[3].endswith("(Proposition 1); these weights need at least 6 states")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "GRU", "--states", "4", "--semiring", "log", "--json")
    (row,) = json.loads(out)["rows"]
    assert code == 0 and (row["lower"], row["semiring"], row["upper"]) == (4, "log", None)
    assert len(row["prefixes"]) == 4 and row["log10"] < 0


def test_trained_units(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(TRAINED / "lm"), "--words", "anna", "likes", "--unit", "5")
    assert code == 0 and "3 (certified)  3 (structural)" in out
    code, out, _ = run(capsys, str(TRAINED / "classify"), "--words", "not", "good")
    assert code == 0 and "max-plus  2 (certified)  2 (structural)" in out


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arcs = [("p", "a", "p", 0.5), ("q", "a", "q", 0.5)]  # two states that do the same
    machine = WFSA(
        "real", alphabet="a", states="pq", arcs=arcs, initial={"p": 1, "q": 1}, final={"p": 1, "q": 1}
    )
    save(machine, tmp_path / "m.json")
    code, out, _ = run(capsys, str(tmp_path / "m.json"))
    assert code == 0 and "1 (exact)  1 (exact)" in out
    cell = tmp_path / "mine.cell"
    cell.write_text(to_text(get_cell("B")), encoding="utf-8")
    code, out, err = run(capsys, str(cell))
    assert code == 0 and "rational: minimal with 2 states" in out, err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((str(TRAINED / "lm"),), "name a few words of the run's 12"),
        ((str(TRAINED / "lm"), "--words", "zebra"), "lacks 'zebra'"),
        (("B", "--words", "good"), "B is not the folder of a run"),
        (("nothing",), "no model is called 'nothing'"),
        (("B", "--unit", "7"), "unit must be a number from 0 to 1; got 7"),
        (("B", "--symbols", "0"), "at least one symbol"),
        (("B", "--precision", "16384"), "must not exceed max_precision, 8192 bits"),
        (("LSTM", "--semiring", "complex"), "complex is neither"),
    ],
)
def test_errors(args: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *args)
    assert code == 2 and out == "" and message in err
