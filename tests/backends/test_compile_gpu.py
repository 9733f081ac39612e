"""The script that compiles kernels for a GPU that is not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_cases import needs_interpreter

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent.parent / "compile_gpu.py"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)


@needs_interpreter
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    sizes = ["--states", "16", "--dtypes", "bfloat16"]
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--models", "linear-attention", "F", *sizes]
    done = run(*command, "--backends", "matrix")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert sum(" launches, " in line for line in lines) == 2, done.stdout
    assert sum("not compiled: the matrix backend cannot run" in line for line in lines) == 2
    assert lines[-1] == "0 failed"


@needs_interpreter
def test_kernels_of_gpu_tests_compile_without_a_gpu() -> None:
    tests = str(SCRIPT.parent / "backends/matrix/test_gpu_matrix.py")
    done = run(sys.executable, "-W", "ignore", str(SCRIPT), "--tests", tests, "-k", "test_sizes and size0")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    launches, kernels, failed = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1]))
    assert launches > kernels > 6 and failed == 0
