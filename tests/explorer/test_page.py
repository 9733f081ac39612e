"""docs/explorer.md: its limits are the code's, its screenshots small; commands that the page names can be given."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pages import parse_command

from rrnn.explorer import design, explain, guard, machines, pictures, worker
from rrnn.explorer.jobs import MEMORY

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "explorer.md").read_text(encoding="utf-8")
STATIC = Path(worker.__file__).parent / "static"
COMMANDS = re.findall(r"<pre[^>]*>(rrnn .*?)</pre>", (STATIC / "index.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_can_be_given(line: str) -> None:
    _, *words = shlex.split(line)
    parse_command(words)


def test_limits_are_those_of_the_code() -> None:
    assert worker.LIMITS["design"] == worker.LIMITS["score"] == 10.0 and worker.LIMITS["explain"] == 60.0
    for text in (
        f"ended after {worker.LIMITS['design']:.0f} s ({worker.LIMITS['explain']:.0f} s for Explain",
        f"more than {MEMORY // 2**30} GB",
        f"A picture gets {pictures.SECONDS:.0f} s",
        f"at most {guard.MAX_BODY // 1024} KiB, all of it sent within {guard.MAX_SECONDS:.0f} s",
        f"{design.MAX_TEXT:,} characters, {design.MAX_STATES} states and {design.MAX_ARCS} arcs",
        f"WFSAs up to {machines.MAX_STATES} states and {machines.MAX_ARCS:,} arcs",
        f"strings up to {machines.MAX_STRING} symbols, sentences up to {explain.MAX_WORDS} words",
    ):
        assert text in " ".join(PAGE.split()), text


def test_pictures_are_there_and_small() -> None:
    names = re.findall(r"\((images/[\w-]+\.png)\)", PAGE)
    assert len(names) == 5
    for name in names:
        assert 0 < (DOCS / name).stat().st_size < 200_000
