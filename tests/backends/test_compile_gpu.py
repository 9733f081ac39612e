"""The script that compiles kernels for a GPU that is not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from kernel_cases import needs_interpreter

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent.parent / "compile_gpu.py"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


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


@needs_interpreter
def test_a_benchmark_compiles_into_an_archive(tmp_path: Path) -> None:
    script, archive = SCRIPT.parent.parent / "benchmarks/matrix_or_scalar.py", tmp_path / "kernels.tar.xz"
    sizes = ["--models", "linear attention", "--states", "16", "--dtypes", "bfloat16"]
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "--pack", str(archive), "--script", str(script)]
    cache = tmp_path / "cache"
    done = run(*command, *sizes, TRITON_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    launches, kernels, failed = map(int, re.findall(r"\d+", done.stdout.splitlines()[-2]))
    assert launches > kernels > 5 and failed == 0
    with tarfile.open(archive) as tar:
        found = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        data = {name: file.read() for name, file in found.items() if file is not None}
    for name, code in data.items():
        if name.endswith(".cubin"):
            before = (cache / name).read_bytes()
            assert len(code) == len(before) and b".version" in before and b".version" not in code
        if "__grp__" in name:
            places = json.loads(code)["child_paths"].values()
            assert {str(Path(place).relative_to("/tmp/triton")) for place in places} <= set(data)
