"""The demonstration runs, quickly, and leaves pictures."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def test_demo(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--out", str(tmp_path / "pictures")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert "done in" in result.stdout
    (right,) = re.findall(r"step 150: .*, ([0-9.]+)%", result.stdout)
    assert float(right) > 95
    pictures = sorted((tmp_path / "pictures").glob("*.svg"))
    assert {"F.svg", "paper-D1.svg", "negation.svg", "learned.svg"} <= {path.name for path in pictures}
    for path in pictures:
        ET.parse(path)
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]
