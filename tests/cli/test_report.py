"""`rrnn report`, as users call it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_lm import train_tiny, write_corpus

from rrnn.cli import main


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    train_tiny(
        folder / "B", write_corpus(folder / "corpus.txt", 30), cell="B", epochs=1, emas=(), asgd_from=None
    )
    return folder / "B"


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["report", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


def test_report(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    assert call(capsys, run_folder, "-o", file) == (0, f"written: {file}\n", "")
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "<h1>Report on B</h1>" in text


def test_the_file_is_in_this_folder_unless_told(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, run_folder)[:2] == (0, "written: report.html\n")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_of_runs(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in `rrnn report runs/*`, where a search keeps its runs in a folder of its own."""
    shutil.copytree(run_folder, tmp_path / "search" / "seed-0")
    assert call(capsys, run_folder, tmp_path / "search", "-o", tmp_path / "page.html")[0] == 0
    assert "<h1>Report on 2 runs</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "there is no run to report on"),
        (("nowhere",), "nowhere holds no run: there is no such folder"),
        ((__file__,), "test_report.py is a file, and runs are folders"),
        (("RUN", "-o", "picture.png"), "a report is an HTML file; picture.png does not end in .html"),
        (("RUN", "-o", "/nowhere/at/all.html"), "there is no folder /nowhere/at to write all.html to"),
    ],
)
def test_mistakes(
    run_folder: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    code, out, err = call(capsys, *(run_folder if arg == "RUN" else arg for arg in args))
    assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1
