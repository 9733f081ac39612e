"""What every test shares: one thread a process, hypothesis profiles, golden files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

# Before anything imports torch: xdist already runs one process a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# Deadlines measure the machine, not the code. CI draws the same examples each time and keeps no database, so
# that a failure there is a failure here; `pytest --hypothesis-profile=thorough` looks much further.
settings.register_profile("dev", deadline=None, max_examples=40)
settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text equals the file tests/golden/NAME, which --update-golden rewrites."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        expected = path.read_text(encoding="utf-8") if path.exists() else None
        if expected is None:
            pytest.fail(
                f"tests/golden/{name} does not exist: run this test with --update-golden and read the file"
            )
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm=""
            )
            message = "\n".join(difference) or "(they differ only in line ends)"
            pytest.fail(f"{message}\nIf the new text is right, rerun with --update-golden.", pytrace=False)

    return check
