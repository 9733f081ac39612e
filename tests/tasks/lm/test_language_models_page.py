"""docs/language-models.md: its table is the configuration."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from rrnn.tasks.lm.config import LMConfig

PAGE = (Path(__file__).parents[3] / "docs" / "language-models.md").read_text(encoding="utf-8")


def test_the_table_is_the_configuration() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (.*?) \|$", PAGE, re.MULTILINE)
    fields = [
        (f.name, "" if f.default in (None, ()) else str(f.default), f.metadata["help"])
        for f in dataclasses.fields(LMConfig)
    ]
    assert rows == fields
