"""The fixture `golden` compares texts with files, shows the difference, and rewrites the files when asked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
CASE = "def test_it(golden):\n    golden('sub/answer.txt', 'forty-two\\n')\n"


def test_golden(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(CASE)
    answer = tmp_path / "golden" / "sub" / "answer.txt"

    def run_pytest(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return result.returncode, result.stdout

    code, out = run_pytest()
    assert code == 1 and "run this test with --update-golden" in out and not answer.exists()

    assert run_pytest("--update-golden")[0] == 0
    assert answer.read_text() == "forty-two\n"
    assert run_pytest()[0] == 0

    answer.write_text("forty-one\n")
    code, out = run_pytest()
    assert code == 1 and "-forty-one" in out and "+forty-two" in out
    assert answer.read_text() == "forty-one\n"
