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


@pytest.mark.slow
def test_the_zoo_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # a line for each model
    code, lines, err = run(capsys)
    assert (code, err) == (0, "")
    end = next(i for i, line in enumerate(lines) if line.startswith("["))
    rows = {line.split()[0]: line for line in lines[1:end]}
    assert lines[0].split() == ["model", "semiring", "automaton", "states", "error", "verdict"]
    assert list(rows) == list(zoo.MODELS)
    for name, model in zoo.MODELS.items():
        assert ("not rational [" in rows[name]) == bool(model.proved) and "DIFFERENT" not in rows[name]
        assert rows[name].endswith("]" if model.open else "rational")
    assert " B  " in rows["example"]
    notes, summary = " ".join(line.strip() for line in lines[end:]).split("  ")
    assert notes.count("[") == len({model.open for model in zoo.MODELS.values()} - {""})
    assert "hypothesises" in notes and "not obviously" in notes
    rational = sum(model.rational for model in zoo.MODELS.values())
    assert summary.startswith(f"{rational} models agree with their automata: the largest error in ")
    assert summary.endswith(f"{len(zoo.MODELS) - rational} models are proved not to be rational.")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("B", "F+o", "QRNN2", "ISAN", "LSTM")
    code, lines, _ = run(capsys, *names, "--json", "--seed", "3", "--backend", "reference")
    rows = json.loads("\n".join(lines))["rows"]
    assert code == 0 and [row["model"] for row in rows] == list(names)
    assert [row["verdict"] for row in rows] == ["rational"] * 4 + [zoo.MODELS["LSTM"].proved]
    assert [row["automaton"] for row in rows] == ["B", "F", "B over histories of 1", "D", "none known"]
    assert [row["states"] for row in rows] == [2, 4, 9, 6, None]
    assert all(row["holds"] and row["recurrence"] for row in rows)
    assert all(row["max_error"] < 1e-13 for row in rows[:4]) and rows[4]["max_error"] is None


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.cell"
    path.write_text(zoo.get_cell("C").to_text(), encoding="utf-8")
    code, lines, _ = run(capsys, str(path))
    assert code == 0 and lines[1].startswith(str(path))


def test_seeds_of_more_than_64_bits(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "B", "--seed", "9" * 30)
    assert code == 2 and "at most 64 bits" in err


def test_epsilon_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify` takes what `derive` takes."""
    path = tmp_path / "cycle.cell"
    path.write_text(
        'rrnn-cell 1\ncell Cycle\ninitial a\narc a -> b : linear("u")\nloop b : one\nepsilon b -> c : 0.5\n'
        "epsilon c -> b : 0.3\nfinal c\noutput score\n",
        encoding="utf-8",
    )
    assert main(["derive", str(path)]) == 0
    capsys.readouterr()
    code, lines, err = run(capsys, str(path))
    assert (code, err) == (0, "") and lines[1].endswith("rational")


def test_a_mismatch_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrnn.theory.verify.scores", lambda rnn, x: theory.scores(rnn, x) * (1 + 1e-7))
    code, lines, _ = run(capsys, "B", "C")
    assert code == 1 and all(line.endswith("DIFFERENT") for line in lines[1:3])
    assert lines[-1] == "2 of 2 models differ from their automata: B, C."
    code, lines, _ = run(capsys, "B", "--json")
    (row,) = json.loads("\n".join(lines))["rows"]
    assert code == 1 and row["holds"] is False and row["verdict"] == "open"
    assert run(capsys, "B", "--tolerance", "1e-5")[0] == 0


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(capsys, "B")
    assert lines[-2] == "" and lines[-1].startswith(
        "1 model agrees with its automaton: the largest error in 144 "
    )
    _, lines, _ = run(capsys, "LSTM", "GRU")
    assert lines[-1] == "2 models are proved not to be rational."


@pytest.mark.parametrize("width", [80, 60])
def test_it_fits_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, lines, _ = run(capsys, "B-max-plus-coupled", "QRNN2", "RCNN2-additive", "LSTM")
    assert max(map(len, lines)) <= width
    if width == 80:
        assert lines[1].split()[1:4] == ["max-plus", "B", "2"] and lines[1].endswith(" rational")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("G",), "no model is called 'G'"),
        (("no.cell",), "no.cell: cannot read the cell"),
        (("F", "--backend", "cuda"), "unknown backend 'cuda'"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str) -> None:
    code, lines, err = run(capsys, *args)
    assert (code, lines) == (2, []) and err.startswith("error: ") and message in err


def test_the_whole_zoo_fits_80_columns_in_a_pipe() -> None:
    """Names of models, semirings and automata as long as those of the zoo; a sentence ends the report."""
    from rrnn.cli.verify import _table

    verdicts = [
        theory.Verdict(
            name,
            "c = …",
            "a state and a family of 64 states, read at every symbol",
            "max-times",
            66,
            compared=100,
            forward_error=1e-16,
            path_error=1e-16,
            note="" if i % 3 else f"note {i} " * 30,
        )
        for i, name in enumerate(zoo.MODELS)
    ]
    text = _table(verdicts)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[-1].endswith(".") and "agree with their automata" in text
