"""Time the matrix schedule beside the scalar one on one GPU, to see where each of the two is faster.

    python benchmarks/matrix_or_scalar.py --json docs/results/matrix-or-scalar-h200.json [--models GLA …]

Both run forward and backward on the same numbers, with as many units as states in each head. "float32" is at full
precision, "tf32" the same inputs with torch's setting for TF32.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from cuda_timing import Clock, CudaClock, describe, hardware
from matrix_cases import MODELS, Case, ratio
from results import Row, print_table, write

import rrnn

DTYPES = {"bfloat16": torch.bfloat16, "tf32": torch.float32, "float32": torch.float32}
BACKENDS = {"matrix": "ms", "triton": "scalar_ms"}
SIZES = (8, 2048, 1024)
"""Batch, steps, and units of all heads together."""
USUAL = ["GLA", "retention", "linear attention"]
"""A decay per state, one per head, and none."""


def row_of(name: str, states: int, dtype: str, clock: Clock, device: str = "cuda") -> Row:
    """Return the times of both schedules, and how far their gradients of the projections are apart."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    batch, steps, units = SIZES
    shape = batch, steps, units // states, states, states
    case = Case(MODELS[name], shape, DTYPES[dtype], device)
    found: Row = {"model": name, "shape": list(shape), "dtype": dtype, "pass": "forward_backward"}
    gradients = []
    for backend, key in BACKENDS.items():
        with rrnn.use_backend(backend):
            gradients.append(case.our_gradients()[0])
            found[key] = clock.graph(case.our_gradients)
    found["difference"] = ratio(*gradients)
    found["ratio"] = found["scalar_ms"] / found["ms"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=USUAL, choices=list(MODELS))
    parser.add_argument("--states", nargs="*", type=int, default=[16, 32, 64])
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, clock = list[Row](), CudaClock()
    for dtype in options.dtypes:
        for name in options.models:
            for states in options.states:
                try:
                    rows.append(row_of(name, states, dtype, clock))
                except Exception as error:
                    print(name, states, dtype, describe(error), flush=True)
                if options.json is not None:  # so that whoever ends this process leaves what was measured
                    write(options.json, rows, device=hardware())
    table = [["model", "dtype", "states", "matrix, ms", "scalar, ms", "scalar / matrix", "difference"]]
    for r in rows:
        numbers = [f"{r['ms']:.2f}", f"{r['scalar_ms']:.2f}", f"{r['ratio']:.2f}", f"{r['difference']:.0e}"]
        table.append([r["model"], r["dtype"], str(r["shape"][3]), *numbers])
    print_table(table)


if __name__ == "__main__":
    main()
