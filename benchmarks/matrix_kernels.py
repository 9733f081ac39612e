"""Say where the time of the matrix schedule goes: each kernel of a call, forward and backward, on one GPU.

    python benchmarks/matrix_kernels.py --json docs/results/matrix-kernels-h200.json [--models GLA …] [--shapes 0 1 2]

Times are those of torch's profiler. Bytes are those of the tensors that a kernel is given, once each: what it has to
read and write if nothing is read twice. The share of the bandwidth is against a large copy in the same run. Registers
and spills are what Triton says of the compiled kernel.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cuda_timing import CudaClock, copy_bandwidth, hardware
from matrix_cases import MODELS, SHAPES, Case
from results import Row, print_table, write
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from triton.runtime.jit import JITFunction

import rrnn

CALLS = 5


def recorded(run: Callable[[], object]) -> list[dict[str, Any]]:
    """Run something; return what Triton launched: names, bytes of all tensors, registers, spills, shared memory."""
    found: list[dict[str, Any]] = []
    original: Callable[..., Any] = JITFunction.run

    def launch(self: Any, *args: Any, **options: Any) -> Any:
        compiled = original(self, *args, **options)
        tensors = [t for t in (*args, *options.values()) if isinstance(t, Tensor)]
        numbers = {"registers": compiled.n_regs, "spills": compiled.n_spills}
        numbers |= {"bytes": sum(t.numel() * t.element_size() for t in tensors)}
        flags = ["".join(name[0] for name in ("KEYS", "VALUES") if options.get(name))]
        name = f"{self.__name__} {flags[0]}".strip()
        found.append({"kernel": name, "own": self.__name__, **numbers, "shared": compiled.metadata.shared})
        return compiled

    JITFunction.run = launch
    try:
        run()
    finally:
        JITFunction.run = original
    return found


def timed(run: Callable[[], object]) -> dict[str, list[float]]:
    """Return the microseconds of each kernel's launches, in their order, as means over some calls."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
    events = [e for e in seen.events() or () if e.device_type.name == "CUDA" and e.device_time]
    by_name: dict[str, list[float]] = defaultdict(list)
    for event in sorted(events, key=lambda e: e.time_range.start):
        by_name[event.name].append(event.device_time)
    found = {}
    for name, times in by_name.items():
        each = len(times) // CALLS
        found[name] = [sum(times[i::each]) / CALLS for i in range(each)] if each else [sum(times) / CALLS]
    return found


def rows_of(name: str, shape: tuple[int, ...], roof: float) -> list[Row]:
    """Return a row for each kernel of a call, forward and backward; torch's own are one row."""
    case = Case(MODELS[name], shape, torch.bfloat16, "cuda")
    case.our_gradients()
    launched, times = recorded(case.our_gradients), timed(case.our_gradients)
    rows, left = [], {name: list(each) for name, each in times.items()}
    for one in launched:
        own = one.pop("own")
        us = left[own].pop(0) if left.get(own) else 0.0
        share = one["bytes"] / us / 1e3 / roof if us else 0.0
        rows.append({"model": name, "shape": list(shape), "us": us, "of_copy": share, **one})
    rest = sum(sum(each) for each in left.values())
    rows.append({"model": name, "shape": list(shape), "kernel": "torch", "us": rest})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["GLA", "retention", "Mamba-2"], choices=list(MODELS))
    parser.add_argument("--shapes", nargs="*", type=int, default=range(len(SHAPES)))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    roof = copy_bandwidth(CudaClock())
    rows: list[Row] = []
    with rrnn.use_backend("matrix"):
        for index in options.shapes:
            for name in options.models:
                rows += rows_of(name, SHAPES[index], roof)
    head = ["kernel", "µs", "MB", "of copy", "registers", "spills", "shared"]
    for name, shape in dict.fromkeys((r["model"], tuple(r["shape"])) for r in rows):
        print(f"\n{name} {shape}")
        own = [r for r in rows if (r["model"], tuple(r["shape"])) == (name, shape)]
        table = [
            [
                r["kernel"],
                f"{r['us']:.1f}",
                f"{r.get('bytes', 0) / 1e6:.0f}",
                f"{r.get('of_copy', 0):.0%}",
                *(str(r.get(k, "")) for k in ("registers", "spills", "shared")),
            ]
            for r in own
        ]
        print_table([head, *table])
    if options.json is not None:
        write(options.json, rows, device=hardware(), copy_gb_per_s=roof)


if __name__ == "__main__":
    main()
