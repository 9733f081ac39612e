"""Time the matrix schedule beside the scalar one, to see where each of the two is faster.

    python benchmarks/matrix_or_scalar.py --json docs/results/matrix-or-scalar-h200.json [--models GLA …]
    python benchmarks/matrix_or_scalar.py --json docs/results/matrix-or-scalar-steps-h200.json --forward
                                          --steps 1 16 64 256 --dtypes bfloat16
    python benchmarks/matrix_or_scalar.py --json docs/results/matrix-or-scalar-cpu.json --device cpu --steps 1 64 512
                                          --dtypes float32 --states 16 64 128 [--threads 2]

On a GPU, Triton kernels run both; on a CPU, torch's products and compiled loops. Both run on the same numbers, forward
and backward, or with --forward as layers do that predict; with as many units as states in each head. "float32" is at
full precision, "tf32" the same inputs with torch's setting for TF32.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch
from cuda_timing import Clock, CudaClock, Function, describe, hardware
from matrix_cases import MODELS, Case, ratio
from quiet import Watch
from results import Row, best_of, print_table, write

import rrnn

DTYPES = {"bfloat16": torch.bfloat16, "tf32": torch.float32, "float32": torch.float32}
SCALAR = {"cuda": "triton", "cpu": "native"}
"""Device → the backend of the scalar schedule."""
SIZES = {"cuda": (8, 1024), "cpu": (4, 512)}
"""Device → batch, and units of all heads together."""
USUAL = ["GLA", "retention", "linear attention"]
"""A decay per state, one per head, and none."""


class CpuClock:
    """The best of ten turns."""

    def graph(self, run: Function) -> float:
        return best_of({"": run}, rounds=10, warm_up=2)[""]

    plain = graph


def row_of(
    name: str,
    states: int,
    dtype: str,
    clock: Clock,
    device: str = "cuda",
    steps: int = 2048,
    forward: bool = False,
) -> Row:
    """Return the times of both schedules, and how far their gradients of the projections, or outputs, are apart."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    batch, units = SIZES[device]
    shape = batch, steps, units // states, states, states
    case = Case(MODELS[name], shape, DTYPES[dtype], device)
    found: Row = {"model": name, "shape": list(shape), "dtype": dtype}
    found["pass"] = "forward" if forward else "forward_backward"
    results, call = list[torch.Tensor](), case.ours if forward else lambda: case.our_gradients()[0]
    for backend, key in (("matrix", "ms"), (SCALAR[device], "scalar_ms")):
        with rrnn.use_backend(backend), torch.set_grad_enabled(not forward):
            results.append(call())
            found[key] = clock.graph(call)
    found["difference"] = ratio(*results)
    found["ratio"] = found["scalar_ms"] / found["ms"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=USUAL, choices=list(MODELS))
    parser.add_argument("--states", nargs="*", type=int, default=[16, 32, 64])
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--steps", nargs="*", type=int, default=[2048])
    parser.add_argument("--forward", action="store_true", help="without gradients")
    parser.add_argument("--device", default="cuda", choices=list(SCALAR))
    parser.add_argument("--threads", type=int, default=2, help="on a CPU")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with Watch() as watch:
        rows = rows_of(options)
    table = [
        ["model", "dtype", "states", "steps", "matrix, ms", "scalar, ms", "scalar / matrix", "difference"]
    ]
    for r in rows:
        numbers = [f"{r['ms']:.4f}", f"{r['scalar_ms']:.4f}", f"{r['ratio']:.2f}", f"{r['difference']:.0e}"]
        table.append([r["model"], r["dtype"], str(r["shape"][3]), str(r["shape"][1]), *numbers])
    print_table(table)
    if options.device == "cpu":
        print(watch.note)


def rows_of(options: argparse.Namespace) -> list[Row]:
    """Time all that is asked for."""
    torch.set_num_threads(options.threads)
    gpu = options.device == "cuda"
    rows, clock = list[Row](), CudaClock() if gpu else CpuClock()
    for dtype, name, states, steps in product(options.dtypes, options.models, options.states, options.steps):
        size = {"steps": steps, "forward": options.forward}
        try:
            rows.append(row_of(name, states, dtype, clock, options.device, **size))
        except Exception as error:
            print(name, states, dtype, steps, describe(error), flush=True)
        if options.json is not None:  # so that whoever ends this process leaves what was measured
            write(options.json, rows, **({"device": hardware()} if gpu else {"threads": options.threads}))
    return rows


if __name__ == "__main__":
    main()
