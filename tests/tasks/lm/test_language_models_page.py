"""docs/language-models.md: its code runs, its table and its commands are right."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from rrnn.cli import COMMANDS, lm
from rrnn.tasks.lm.config import LMConfig

PAGE = (Path(__file__).parents[3] / "docs" / "language-models.md").read_text(encoding="utf-8")
LINES = [
    line.split("  #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
OPTIONS = {"train": lm.Train, "eval": lm.Eval, "generate": lm.Generate, "table": lm.Table}


def test_the_code_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dev ppl" in done.stdout and (tmp_path / "runs" / "c" / "loss.png").exists()


@pytest.mark.parametrize("line", LINES)
def test_the_commands_are_understood(line: str) -> None:
    words = shlex.split(line)
    command = words[words.index("lm") + 1]
    assert f"lm {command}" in COMMANDS
    tyro.cli(OPTIONS[command], args=words[words.index("lm") + 2 :])  # exits where it does not understand


def test_the_table_is_the_configuration() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (.*?) \|$", PAGE, re.MULTILINE)
    fields = [
        (f.name, "" if f.default in (None, ()) else str(f.default), f.metadata["help"])
        for f in dataclasses.fields(LMConfig)
    ]
    assert rows == fields
