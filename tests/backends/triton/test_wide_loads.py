"""Kernels compiled for a GPU, without one: two lanes a thread are read by one instruction, at every step of a turn;
tensors that are not there; parameters in half precision."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from kernel_cases import needs_interpreter

pytestmark = pytest.mark.slow

SCRIPT = """
import re
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rrnn import get_cell
from rrnn.backends.triton.module import kernels_of
from rrnn.ir import lower

kernel = kernels_of(lower(get_cell("B")).program, 4, 0, 0).module.forward
signature, known = {}, {}
for i, name in enumerate(kernel.arg_names):
    pointer = name in ("x", "theta", "starts", "mask", "inp", "out", "final", "saved")
    signature[name] = "constexpr" if name.isupper() and len(name) > 1 else "*fp32" if pointer else "i32"
    if signature[name] != "constexpr" and name not in ("T", "B", "C"):
        known[(i,)] = [["tt.divisibility", 16]]
source = ASTSource(kernel, signature, {"MASKED": False, "BLOCK": 64}, known)
code = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1, "enable_fp_fusion": True})
print(sorted(set(re.findall(r"(?:ld|st)[.]global[.\\w]*", code.asm["ptx"]))))
"""

WITHOUT = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rrnn import get_cell
from rrnn.backends.triton.module import kernels_of
from rrnn.ir import lower

module = kernels_of(lower(get_cell("B")).program, 2, 2, 0).module
constants = {"MASKED": False, "BLOCK": 64}
for name in ("forward", "join", "backward", "reverse_join", "parameters"):
    kernel = getattr(module, name)
    given = {n: v for n, v in constants.items() if n in kernel.arg_names}
    given |= {n: None for n in ("first", "ends", "gfirst") if n in kernel.arg_names}
    given |= {"starts": None} if name == "forward" else {"final": None} if name == "reverse_join" else {}
    half, numbers = ("x", "theta", "inp", "out", "go", "gx", "gi", "grad"), ("chunks", "step")
    signature = {
        n: "constexpr" if n in given
        else "*bf16" if n in half
        else "*u8" if n == "mask"
        else "*fp32" if len(n) > 3 and n not in numbers
        else "i32"
        for n in kernel.arg_names
    }
    compile(ASTSource(kernel, signature, given, {}), target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    print(name)
"""


def compiled_elsewhere(script: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@needs_interpreter
def test_tensors_that_are_not_there() -> None:
    done = compiled_elsewhere(WITHOUT)
    names = ["forward", "join", "backward", "reverse_join", "parameters"]
    assert done.stdout.split() == names, done.stdout + done.stderr[-2000:]


@needs_interpreter
def test_two_lanes_are_read_together() -> None:
    done = compiled_elsewhere(SCRIPT)
    assert done.stdout.strip() == "['ld.global.v2.b32', 'st.global.v2.b32']", (
        done.stdout + done.stderr[-2000:]
    )
