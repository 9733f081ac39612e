"""docs/data.md: its tables and its commands are right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rrnn.cli import COMMANDS, main
from rrnn.tasks.data.labelled import load_dataset
from rrnn.tasks.data.text_files import CLEANINGS, tokenise

PAGE = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_table_of_cleanings() -> None:
    text = re.search(r'^\| cleaning \| "(.*)" becomes', PAGE, re.MULTILINE)
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.*?) ?\|$", PAGE.split("| cleaning |")[1], re.MULTILINE)
    assert text and {name for name, _, _ in rows} == set(CLEANINGS)
    for name, words, _ in rows:
        assert tokenise(text[1], name) == words.split()
    defaults = {name: users for name, _, users in rows}
    assert "synthetic" in defaults[load_dataset("synthetic:not-good").cleaning]


def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each, with its data sets at hand, does what it says; downloads are tried elsewhere."""
    monkeypatch.setenv("RRNN_DATA", str(tmp_path / "data"))
    ptb = [f"ptb/{split}.txt" for split in ("train", "valid", "test")]
    sst = [f"sst/stsa.binary.{split}" for split in ("train", "dev", "test")]
    for path in (*ptb, *sst):
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / path).write_text("0 a\n")
    commands = re.findall(r"^rrnn (data [^#\n]*)", PAGE, re.MULTILINE)
    assert {" ".join(command.split()[:2]) for command in commands} == {
        name for name in COMMANDS if name.startswith("data")
    }
    for command in commands:
        assert main(shlex.split(command)) == 0
        assert str(tmp_path / "data") in capsys.readouterr().out
