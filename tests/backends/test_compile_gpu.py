"""The script that compiles kernels for a GPU that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_cases import needs_interpreter

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent.parent / "compile_gpu.py"


@needs_interpreter
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    sizes = ["--states", "16", "--dtypes", "bfloat16"]
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--models", "linear-attention", "F", *sizes]
    done = subprocess.run(
        [*command, "--backends", "matrix"], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert sum(" launches, " in line for line in lines) == 2, done.stdout
    assert sum("not compiled: the matrix backend cannot run" in line for line in lines) == 2
    assert lines[-1] == "0 failed"
