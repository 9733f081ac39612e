"""`rrnn classify`, as users call it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from rrnn.automata import Cell
from rrnn.cli import main
from rrnn.zoo import get_cell

pytestmark = pytest.mark.slow

SMALL = ["--hidden-size", "6", "--embedding-size", "5", "--layers", "1", "--epochs", "2", "--device", "cpu"]


def write_table(path: Path) -> Path:
    lines = [f"{'good fine' if i % 2 else 'bad dull'} film\t{'pos' if i % 2 else 'neg'}" for i in range(80)]
    path.write_text("body\tclass\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "t.tsv")
    (tmp_path / "l.txt").write_text("0 bad\n1 good\n" * 40)
    (tmp_path / "latin.txt").write_bytes(b"0 bad\n1 caf\xe9\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["classify", *args])
    return code, *capsys.readouterr()


COLUMNS = ["--text-column", "body", "--label-column", "class"]


def test_train_eval_predict(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, "train", "--data", "t.tsv", *COLUMNS, *SMALL, "--cell", "B", "--out", "r")
    assert (code, err) == (0, "")
    assert "t: 64 / 8 / 8 texts in train / dev / test" in out and "dev accuracy" in out and "run: r" in out

    code, out, _ = run(capsys, "eval", "r")
    assert code == 0 and out.startswith("test: accuracy ") and "predicted" in out
    code, out, _ = run(capsys, "eval", "r", "--split", "t.tsv", *COLUMNS, "--json")
    assert code == 0 and json.loads(out)["texts"] == 80

    text = io.TextIOWrapper(io.BytesIO(b"good film\n\nbad film\n"))
    monkeypatch.setattr(sys, "stdin", text)
    code, out, err = run(capsys, "predict", "r")
    assert code == 0 and out.splitlines()[0] == "row,label,p(neg),p(pos)" and len(out.splitlines()) == 4
    assert err == "1 of 3 texts have no words, so they got no label\n"
    code, out, _ = run(capsys, "predict", "r", "t.tsv", "--text-column", "body", "--format", "jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == 80 and sum(lines[7]["probabilities"].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow  # compiles a kernel
def test_options_of_the_cell(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = ["--cell", "B:g=tanh,b_u"]
    code, out, _ = run(capsys, "train", "--data", "t.tsv", *COLUMNS, *SMALL, *cell)
    assert code == 0 and "run: runs/classify-t-B-g-tanh-b_u" in out
    folder = here / "runs" / "classify-t-B-g-tanh-b_u"
    assert Cell.from_text((folder / "cell.cell").read_text(encoding="utf-8")) == get_cell(
        "B", g="tanh", b_u=True
    )
    assert run(capsys, "eval", str(folder))[0] == 0
    code, _, err = run(capsys, "train", "--data", "t.tsv", *COLUMNS, *SMALL, "--cell", "B:g=tan")
    assert code == 2 and "got 'tan'. Did you mean 'tanh'?" in err


def test_without_data_a_synthetic_task(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "train", "--epochs", "1", "--cell", "C")
    assert code == 0 and "synthetic:not-good: 2000 / 500 / 1000 texts" in out
    assert (here / "runs" / "classify-synthetic-not-good-C" / "result.json").exists()


def test_resume_and_config_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "train", "--data", "t.tsv", *COLUMNS, *SMALL, "--lr", "1e-4", "--out", "r")[0] == 0
    code, out, _ = run(capsys, "train", "--out", "r", "--resume", "--epochs", "3")
    assert code == 0 and "resumed after epoch 2" in out
    code, _, err = run(capsys, "train", "--out", "r", "--resume", "--cell", "B")
    assert code == 2 and 'cell: was "F", now "B"' in err
    code, out, _ = run(capsys, "train", "--config", "r/config.json", "--epochs", "1", "--out", "s")
    assert code == 0 and json.loads((here / "s" / "config.json").read_text())["lr"] == 1e-4


def test_search_and_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--data", "t.tsv", *COLUMNS, "--layers", "1", "--epochs", "1", "--device", "cpu"]
    code, out, err = run(capsys, "search", *common, "--trials", "2", "--seeds", "2", "--out", "s")
    assert (code, err) == (0, "")
    assert "2/2 trials; best dev accuracy" in out and "seed 1: dev" in out and "best setting: dev" in out
    code, out, _ = run(capsys, "table", "s", "--reference", "F", "--json", "table.json")
    assert code == 0 and "| t.tsv " in out and "86.5 ± 0.6" in out
    assert json.loads((here / "table.json").read_text())[-1]["seeds"] == [0, 1]
    code, _, err = run(capsys, "search", *common, "--cell", "B", "--trials", "2", "--out", "s")
    assert code == 2 and "begun with another configuration" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "--data", "none.csv"], "none.csv"),
        (["train", "--data", "t.tsv"], "names no column 'text'; it names body, class"),
        (["train", "--data", "l.txt", "--text-column", "5"], "l.txt is not a table, so it has no column '5'"),
        (["train", "--data", "l.txt", "--label-column", "0"], "leave out label_column (--label-column)"),
        (["train", "--text-column", "5"], "synthetic:not-good is not a table"),
        (["train", "--data", "latin.txt"], "latin.txt:2: the text must be utf-8, but byte 0xe9 is not"),
        (["train", "--data", "latin.txt"], "give its encoding: --encoding latin-1"),
        (["train", "--hidden-size", "1" + "0" * 21], "hidden_size must be a number below 2⁵³"),
        (["train", "--config", "deep.json"], "nested too deeply"),
        (["train", "--cell", "G"], "no cell is called 'G'"),
        (["train", "--vectors", "none.txt"], "none.txt"),
        (["train", "--config", "t.tsv"], "not a configuration"),
        (["eval", "none"], "holds no run"),
        (["predict", "none"], "holds no run"),
        (["table", "none"], "is not a folder"),
        (["search", "--trials", "0"], "at least 1"),
    ],
)
def test_mistakes(here: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2 and message in err and "Traceback" not in err
    assert not (here / "runs").exists()


def test_a_language_models_run_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "lm").mkdir()
    (here / "lm" / "config.json").write_text('{"task": "lm"}')
    code, _, err = run(capsys, "predict", "lm")
    assert code == 2 and "not a text classifier" in err
