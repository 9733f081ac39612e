"""Kernels compiled for a GPU, without one: two lanes a thread are read by one instruction, at every step of a turn."""

from __future__ import annotations

import os
import subprocess
import sys

from kernel_cases import needs_interpreter

SCRIPT = """
import re
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rrnn import get_cell
from rrnn.backends.triton.backend import _module
from rrnn.ir import lower

kernel = _module(lower(get_cell("B")).program, 4, 0, 0).forward
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


@needs_interpreter
def test_two_lanes_are_read_together() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.stdout.strip() == "['ld.global.v2.b32', 'st.global.v2.b32']", (
        done.stdout + done.stderr[-2000:]
    )
