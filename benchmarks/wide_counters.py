"""Count the instructions of the kernels of families, compiled for an H200; no GPU is needed.

    python benchmarks/wide_counters.py --json docs/results/wide-counters.json

Triton compiles the kernels with the plans and shapes of `cuda_wide.py`, for bf16, and the disassembler that comes with
Triton shows what they became. A row has the instructions of one step: those of the longest loop without another loop in
it, divided by its steps; `issue` is the least number of cycles that one warp takes to issue them, by the waits that the
assembler wrote into them. Loads, exponentials and shared memory make it longer.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import cuda_wide
import triton
from results import Row, print_table, write
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from rrnn import zoo
from rrnn.backends.triton import families
from rrnn.backends.triton.family_loop import KEPT, TURN
from rrnn.backends.triton.plan import H200
from rrnn.ir import lower

NARROW = {"x", "inp", "out", "go", "gx", "gi"}
"""Pointers to tensors of the layer's dtype; the others are float32."""
WIDE = {"shared", "theta", "first", "final", "saved", "gfinal", "gfirst", "gunits", "gshared", "entries"}
UNALIGNED = {"T", "B", "C", "zero", "mt", "mb"}
"""Numbers that Triton does not know to be multiples of 16."""
SHOWN = {
    "FP": r"F(?:MUL|FMA|ADD)",
    "MUFU": "MUFU",
    "shuffles": "SHFL",
    "shared": r"(?:LD|ST)SM?",
    "spills": "LDL|STL",
}
_LINE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)(.*?)/\* 0x[0-9a-f]{16} \*/")
_REST = re.compile(r"/\* 0x([0-9a-f]{16}) \*/")


def kernel(module: Any, name: str, options: dict[str, Any]) -> Any:
    """Return one kernel, compiled."""
    fn = getattr(module, name)
    kinds, hints = {}, {}
    for i, argument in enumerate(fn.arg_names):
        pointer = argument in NARROW | WIDE | {"mask"}
        kind = "bf16" if argument in NARROW else "u8" if argument == "mask" else "fp32"
        kinds[argument] = "constexpr" if argument in options else f"*{kind}" if pointer else "i32"
        if argument not in options and argument not in UNALIGNED:
            hints[(i,)] = [["tt.divisibility", 16]]
    constants = {argument: options[argument] for argument in fn.arg_names if argument in options}
    source = ASTSource(fn, kinds, constants, hints)
    return triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1, "enable_fp_fusion": True}
    )


def loop_of(cubin: bytes) -> tuple[Counter[str], int, int]:
    """Return (instructions, cycles of issue) of the longest innermost loop, and the registers of the kernel."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [tool, "-c", "-hex", file.name], capture_output=True, text=True, check=True
        ).stdout
    code: list[tuple[str, int]] = []
    places: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    lines = text.split("\n")
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if label := re.match(r"\s*(\.L_\w+):", line):
            places[label[1]] = len(code)
        if (found := _LINE.match(line)) and (rest := _REST.search(after)):
            target = re.search(r"`\((\.L_\w+)\)", found[2])
            if found[1] == "BRA" and target and target[1] in places:
                loops.append((places[target[1]], len(code) + 1))
            code.append((found[1], max(1, int(rest[1], 16) >> 41 & 15)))
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    begin, end = max(inner, key=lambda loop: loop[1] - loop[0])
    counts, cycles = Counter(op for op, _ in code[begin:end]), sum(n for _, n in code[begin:end])
    return counts, cycles, 1 + max(int(r) for r in re.findall(r"\bR(\d+)\b", text))


def rows_of(name: str) -> list[Row]:
    """Return the rows of a model: its forward and its backward kernel."""
    shape = cuda_wide.MODELS[name][0]
    program = lower(zoo.get_cell(name, states=shape.states)).program.with_heads(shape.heads, shape.heads)
    rows: list[Row] = []
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(families.render(program, KEPT))
        file.flush()
        spec = spec_from_file_location(f"kernels_of_{name}", file.name)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for run in ("forward", "backward"):
            how = families.plan_of(program, *shape[:3], False, run == "backward", H200)
            options = how.options(MASKED=False) | {"FULL": True, "STAGES": how.stages, "EXACT": False}
            made = kernel(module, run, options)
            counts, cycles, registers = loop_of(made.asm["cubin"])
            steps = TURN if run == "forward" else KEPT
            row: Row = {"name": name, "pass": run, "triton": triton.__version__, "registers": registers}
            row |= {"instructions": sum(counts.values()) / steps, "issue": cycles / steps}
            for what, ops in SHOWN.items():
                row[what] = sum(n for op, n in counts.items() if re.fullmatch(ops, op)) / steps
            rows.append(row)
    return rows


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", default=["Mamba", "S4D", "GLA"], help="these models alone")
    options = parser.parse_args(argv)
    rows = [row for name in options.only for row in rows_of(name)]
    print_table([[*map(str, rows[0])], *([str(value) for value in row.values()] for row in rows)])
    if options.json:
        write(options.json, rows)


if __name__ == "__main__":
    main()
