"""What docs/interpret.md prints as code runs as printed, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "interpret.md").read_text(encoding="utf-8")


def test_code(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(first, names)
    assert capsys.readouterr().out == shown
    exec(second, names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 0 ") and "'consumed'" in lines[0] and len(lines) == 3
