"""Kernels compiled for a GPU, without one: two lanes a thread are read by one instruction, at every step of a turn;
tensors that are not there; parameters in half precision; the shared memory that a plan expects; sums
over few units."""

from __future__ import annotations

import pytest
from kernel_cases import needs_interpreter
from triton_compiler import Compile

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

SHARED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rrnn import get_cell
from rrnn.backends.triton.module import kernels_of
from rrnn.backends.triton.plan import Gpu, plan_of, turn_bytes
from rrnn.ir import lower

program, every = lower(get_cell("B")).program, 4
narrow = Gpu(58, 15 << 10, 16 << 10, 48 << 20)  # an L4 with a sixth of its shared memory
for backward in (False, True):
    how = plan_of(program, 512, 10**6, 4 if backward else 2, every, backward, narrow)
    assert how.stages == 2, how  # on an L4 itself it is 3 forwards
    kernel = getattr(kernels_of(program, how.unroll, every, how.stages).module, "backward" if backward else "forward")
    low = "*fp32" if backward else "*bf16"
    given = {"MASKED": False, "BLOCK": how.block} | {n: None for n in ("ends", "gfirst") if n in kernel.arg_names}
    pointers = ("x", "inp", "out", "go", "gx", "gi"), ("theta", "starts", "mask", "final", "saved", "partial")
    signature = {
        n: "constexpr" if n in given else low if n in pointers[0] else "*fp32" if n in pointers[1] else "i32"
        for n in kernel.arg_names
    }
    odd = *given, "T", "B", "C"
    known = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(kernel.arg_names) if n not in odd}
    source, options = ASTSource(kernel, signature, given, known), {"num_warps": how.warps}
    code = compile(source, target=GPUTarget("cuda", 89, 32), options=options | {"enable_fp_fusion": True})
    turn = turn_bytes(program, every if backward else how.unroll, 4 if backward else 2, backward)
    print(code.metadata.shared, (how.stages - 1) * how.block * turn, narrow.shared())
"""

FEW_UNITS = """
import triton.backends.nvidia.compiler as nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rrnn import zoo
from rrnn.backends.triton import families
from rrnn.backends.triton.plan import H200
from rrnn.ir import lower

nvidia.min_dot_size = lambda target: lambda left, right: (1, 1, 16)  # triton 3.6's; later versions allow 8
program = lower(zoo.get_cell("Mamba-2", states=64)).program.with_heads(4, 2)
how = families.plan_of(program, 70, 3, 64, False, True, H200)
assert how.block == 8, how
kernel = families._module(program, 4, False).backward
given = {"MASKED": False, "BLOCK": how.block, "FULL": True, "STAGES": how.stages, "EXACT": True}
narrow = ("x", "inp", "go", "gx", "gi")
wide = ("shared", "theta", "saved", "gfinal", "gfirst", "gunits", "gshared")
signature = {
    n: "constexpr" if n in given
    else "*fp32" if n in narrow + wide
    else "*u8" if n == "mask"
    else "i32"
    for n in kernel.arg_names
}
code = compile(ASTSource(kernel, signature, given, {}), target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
print("mma.sync" in code.asm["ptx"])
"""


@needs_interpreter
def test_tensors_that_are_not_there(compiled_elsewhere: Compile) -> None:
    done = compiled_elsewhere(WITHOUT)
    names = ["forward", "join", "backward", "reverse_join", "parameters"]
    assert done.stdout.split() == names, done.stdout + done.stderr[-2000:]


@needs_interpreter
def test_two_lanes_are_read_together(compiled_elsewhere: Compile) -> None:
    done = compiled_elsewhere(SCRIPT)
    assert done.stdout.strip() == "['ld.global.v2.b32', 'st.global.v2.b32']", (
        done.stdout + done.stderr[-2000:]
    )


@needs_interpreter
def test_a_pipeline_takes_the_shared_memory_that_its_plan_expects(compiled_elsewhere: Compile) -> None:
    done = compiled_elsewhere(SHARED)
    lines = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(lines) == 2, done.stdout + done.stderr[-2000:]
    for taken, expected, room in lines:
        assert (
            0 < taken <= expected < 2 * taken and expected <= room
        )  # the expectation is an upper bound, and a close one


@needs_interpreter
def test_sums_of_few_units_compile_for_every_triton(compiled_elsewhere: Compile) -> None:
    """Mamba-2 with 64 states has tiles of 8 units, and triton 3.6 wants 16 rows of a product."""
    done = compiled_elsewhere(FEW_UNITS)
    assert done.stdout.strip() == "True", done.stdout + done.stderr[-2000:]
