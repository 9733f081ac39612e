"""What docs/layers.md prints as code runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "layers.md").read_text(encoding="utf-8")


def test_code() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert tuple(names["output"].shape) == (8, 35, 256)  # type: ignore[attr-defined]
