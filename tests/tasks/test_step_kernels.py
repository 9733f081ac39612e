"""The step's kernels compiled for a GPU, without one: wide loads, no spills, several programs a multiprocessor.

What they compute is compared with torch's ops in `test_loss` and `test_update`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kernel_cases import needs_interpreter
from triton_compiler import Compile

SCRIPT = """
import json, re, subprocess, tempfile
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from rrnn.tasks.step_kernels import gather
from rrnn.tasks import step_kernels as kernels

def built(kernel, types, constants, **options):
    signature, known = {}, {}
    for i, argument in enumerate(kernel.arg_names):
        type = signature[argument] = "constexpr" if argument in constants else types.get(argument, "*fp32")
        for k, each in enumerate(type if isinstance(type, tuple) else [type]):
            if each[0] in "*i":
                known[(i, k) if isinstance(type, tuple) else (i,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, known)
    code = compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True} | options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    accesses = sorted(set(re.findall(r"(?:ld|st)[.](?:global|shared)[.:\\w]*", code.asm["ptx"])))
    registers, stack = re.search(r"REG:(\\d+) STACK:(\\d+)", usage).groups()
    return {"registers": int(registers), "stack": int(stack), "accesses": accesses}

numbers = dict.fromkeys(["clip", "l2", "beta1", "beta2", "epsilon"], "fp32")
pair, sizes = ("*fp32", "*fp32"), ("i32", "i32")
segments = dict(weights=pair, grads=("*fp32", "*bf16"), lows=("*bf16", "*bf16"), averages=pair, moments=pair)
texts = dict.fromkeys(["rows", "tokens", "starts", "sizes", "labels", "ids", "lengths", "answers"], "*i64")
print(json.dumps({
    "softmax": built(
        kernels.softmax_rows,
        {"logits": "*bf16", "targets": "*i64", "words": "i32", "padded": "i32", "scale": "fp32"},
        {"WRITE": True, "HEAD": 4, "TAIL": 1, "INSIDE": True, "CHUNK": 2048}, num_warps=8, maxnreg=128),
    "columns": built(
        kernels.column_sums, {"matrix": "*bf16", "rows": "i32", "width": "i32"},
        {"ROWS": 64, "COLUMNS": 32, "UNROLL": 8}, num_warps=8, maxnreg=80),
    "squares": built(
        kernels.squares, {"grads": ("*fp32", "*bf16"), "sizes": sizes}, {"BLOCK": 4096},
        num_warps=8, maxnreg=80),
    "update": built(
        kernels.update, segments | numbers | {"sizes": sizes},
        {"PARTIALS": 512, "AVERAGES": 1, "EVERY": 5, "ADAM": False, "BLOCK": 1024}, num_warps=4, maxnreg=80),
    "adam": built(  # a classifier's: without copies
        kernels.update, segments | numbers | {"sizes": sizes, "grads": pair, "lows": ("constexpr",) * 2},
        {"PARTIALS": 512, "AVERAGES": 1, "EVERY": 1, "ADAM": True, "BLOCK": 1024, (2, 0): None, (2, 1): None},
        num_warps=4, maxnreg=80),
    "gather": built(gather, texts | {"steps": "i32", "batch": "i32"}, {"BLOCK": 512}),
}))
"""


@pytest.fixture(scope="module")
def compiled(compiled_elsewhere: Compile) -> dict[str, Any]:
    done = compiled_elsewhere(SCRIPT)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@needs_interpreter
@pytest.mark.parametrize(
    ("name", "registers"),
    [("softmax", 80), ("columns", 80), ("squares", 64), ("update", 64), ("adam", 80), ("gather", 64)],
)
def test_registers_leave_room_for_several_programs(
    compiled: dict[str, Any], name: str, registers: int
) -> None:
    """At 256 threads, 80 are three programs a multiprocessor and 64 are four; at 128 threads 64 are eight."""
    assert compiled[name]["stack"] == 0
    assert compiled[name]["registers"] <= registers


@needs_interpreter
def test_logits_are_read_and_written_sixteen_bytes_at_a_time(compiled: dict[str, Any]) -> None:
    accesses = compiled["softmax"]["accesses"]
    # one by one: the target, its score, the row's loss, and what warps tell each other
    assert {a for a in accesses if ".v" in a} == {
        "ld.global.cg.v4.b32",
        "ld.global.v4.b32",
        "st.global.v4.b32",
    }
    assert "ld.global.v4.b32" in compiled["columns"]["accesses"]
    assert {a for a in compiled["squares"]["accesses"] if "ld.global" in a} == {"ld.global.v4.b32"}


@needs_interpreter
def test_no_weight_goes_through_shared_memory(compiled: dict[str, Any]) -> None:
    """fp32 is four numbers a thread and so is bf16: had it eight, fp32's would be handed round between threads."""
    accesses = compiled["update"]["accesses"]
    assert {a for a in accesses if "shared" in a} == {"ld.shared.b32", "st.shared.b32"}  # the norm's sum
    hints = ".L1::evict_first.L2::cache_hint"
    assert {a for a in accesses if "st.global" in a} == {f"st.global{hints}.v4.b32", "st.global.v2.b32"}
