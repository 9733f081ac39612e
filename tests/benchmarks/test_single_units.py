"""The script behind the table of what one unit can learn writes rows that the table reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest


def test_what_is_learned_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import single_units

    from rrnn.tasks.classify.single_units import Learned, to_markdown

    file = tmp_path / "learned.json"
    tiny = ["--cells", "B", "F", "--tasks", "synthetic:not-good", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["single_units.py", *tiny, "--json", str(file)])
    single_units.main()
    rows = [Learned(**row) for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]
    assert [(row.cell, row.longer) for row in rows] == [("B", None), ("F", None)]
    assert to_markdown(rows) in capsys.readouterr().out
