"""docs/data.md: its code runs, its tables and its commands are right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rrnn.cli import COMMANDS, main
from rrnn.tasks.data.cleaning import CLEANINGS, tokenise
from rrnn.tasks.data.labelled import load_dataset

PAGE = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page, in the working directory."""
    for name, text in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_code_runs(folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    for code in blocks:
        exec(compile(code, "data.md", "exec"), {})
    assert (folder / "small.npz").exists()


def test_the_table_of_cleanings() -> None:
    text = re.search(r'^\| cleaning \| "(.*)" becomes', PAGE, re.MULTILINE)
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.*?) ?\|$", PAGE.split("| cleaning |")[1], re.MULTILINE)
    assert text and {name for name, _, _ in rows} == set(CLEANINGS)
    for name, words, _ in rows:
        assert tokenise(text[1], name) == words.split()
    defaults = {name: users for name, _, users in rows}
    assert "synthetic" in defaults[load_dataset("synthetic:not-good").cleaning]


def test_commands(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each, with its data sets at hand, does what it says; downloads are tried elsewhere."""
    monkeypatch.setenv("RRNN_DATA", str(folder / "data"))
    ptb = [f"ptb/{split}.txt" for split in ("train", "valid", "test")]
    sst = [f"sst/stsa.binary.{split}" for split in ("train", "dev", "test")]
    for path in (*ptb, *sst):
        (folder / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / path).write_text("0 a\n")
    commands = re.findall(r"^rrnn (data [^#\n]*)", PAGE, re.MULTILINE)
    assert {" ".join(command.split()[:2]) for command in commands} == {
        name for name in COMMANDS if name.startswith("data")
    }
    for command in commands:
        assert main(shlex.split(command)) == 0
        assert str(folder / "data") in capsys.readouterr().out
