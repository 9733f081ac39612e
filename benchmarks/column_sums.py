"""Measure the kernel `column_sums` alone and within training steps, in three orders: needs a CUDA device.

    python benchmarks/column_sums.py [--json FILE] [--models "B 24M" "F 24M"]

Alone: the profiler's time of the kernel in a graph, just after its matrix was written (so that it lies in L2) and after
L2 was flushed, for several block sizes. In a step: the profiler's time of the kernel and the time of a whole step, with
the sums after the product of the weights' gradient on the side stream (`after`), before it (`before`), and on the main
stream (`main`). The orders are measured in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import cuda_lm
import torch
from cuda_timing import hardware
from results import write
from torch import Tensor

from rrnn.tasks.lm import loss, trainer


def in_order(order: str) -> Any:
    """Return `loss_and_gradients` with the sums in this place."""

    @torch.no_grad()
    def run(
        hidden, weight, bias, targets, vocabulary, *, scale=1.0, low=None, side=None
    ):  # the arguments of loss_and_gradients
        table = weight if low is None else low
        logits = hidden @ table.t()
        losses = loss.softmax_rows(logits, bias, targets, vocabulary, scale)
        sums = loss.column_sums(logits, bias.dtype) if order == "main" else None

        def of_weights(logits, hidden):
            if order == "before":
                first = loss.column_sums(logits, bias.dtype)
                return loss._product(logits.t(), hidden, weight.dtype), first
            product = loss._product(logits.t(), hidden, weight.dtype)
            return product, loss.column_sums(logits, bias.dtype) if sums is None else sums

        done = of_weights(logits, hidden) if side is None else side.run(of_weights, logits, hidden)
        return loss.Gradients(losses, logits @ table, *done)

    return run


def steps_of(task: Any, count: int) -> float:
    """Return the milliseconds of a step, from the first `count` of an epoch."""
    task.begin_epoch(2)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for index in range(count):
        task.step(index)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began) / count


def kernel_us(run: Any, before: Any, names: tuple[str, ...], times: int = 20) -> float:
    """Return the profiler's µs of the kernels of these names in run(), which follows before() in one graph."""
    from torch.profiler import ProfilerActivity, profile

    run()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        before()
        run()
    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(times):
            graph.replay()
        torch.cuda.synchronize()
    found = [
        event.time_range.elapsed_us()
        for event in profiler.events() or []
        if event.device_type == torch.autograd.DeviceType.CUDA  # pyright: ignore[reportPrivateImportUsage]
        and any(name in event.name for name in names)
    ]
    return statistics.median(found) if found else float("nan")


VARIANTS = [
    (64, 32, 8, 80),
    (32, 64, 8, 80),
    (32, 64, 8, None),
    (16, 128, 8, None),
    (64, 64, 16, None),
    (64, 32, 8, None),
]
"""ROWS, COLUMNS, warps, registers; the first is the one in use."""


def alone(matrix: Tensor) -> list[dict[str, Any]]:
    from rrnn.tasks.step_kernels import column_sums as kernel

    launch: Any = kernel
    rows, sums, room = (
        [],
        matrix.new_empty(matrix.shape[1], dtype=torch.float32),
        torch.empty(2**28, device="cuda", dtype=torch.int8),
    )

    def of(height: int, columns: int, warps: int, registers: int | None, unroll: int = 8) -> Any:
        more = {} if registers is None else {"maxnreg": registers}
        grid = (-(-matrix.shape[1] // columns),)
        return lambda: launch[grid](
            matrix, sums, *matrix.shape, ROWS=height, COLUMNS=columns, UNROLL=unroll, num_warps=warps, **more
        )

    runs = [("column_sums", str(v), of(*v), ("column_sums",)) for v in VARIANTS]
    runs += [("column_sums", f"{v} unroll 4", of(*v, unroll=4), ("column_sums",)) for v in VARIANTS[:2]]
    runs.append(("torch.sum", "", lambda: matrix.sum(0, dtype=torch.float32), ("reduce_kernel",)))
    for name, what, run, names in runs:
        for where, before in (("in L2", lambda: matrix.mul_(1.0)), ("flushed", lambda: room.zero_())):
            try:
                us = kernel_us(run, before, names)
            except Exception as error:
                us, what = float("nan"), f"{what} {str(error)[:80]}"
            rows.append({"name": name, "variant": what, "where": where, "us": us})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--models", nargs="*", default=["B 24M", "F 24M"])
    arguments = parser.parse_args()
    matrix = torch.randn(cuda_lm.STEPS * cuda_lm.BATCH, 10_048, device="cuda", dtype=torch.bfloat16)
    rows = alone(matrix)
    splits = cuda_lm.splits_of(None)
    for case in (c for c in cuda_lm.CASES if c.name in arguments.models):
        tasks, steps = {}, 0
        for order in ("after", "before", "main"):
            trainer.loss_and_gradients = in_order(order)
            tasks[order] = cuda_lm.make(case, "bf16", splits)
            steps = tasks[order].begin_epoch(1)
            for index in (0, 1, 2, 3):
                tasks[order].step(index)
        times: dict[str, list[float]] = {order: [] for order in tasks}
        for _ in range(5):
            for order, task in tasks.items():
                times[order].append(steps_of(task, min(300, steps - 1)))
        for order, task in tasks.items():
            kernels = cuda_lm.kernels_of(task)
            us = next((k["us"] for k in kernels if k["kernel"].startswith("column_sums")), None)
            row = {"name": case.name, "where": order, "us": us, "step_ms": statistics.median(times[order])}
            rows.append(row | {"all_step_ms": times[order], "kernels": kernels[:14]})
            print(row, flush=True)
        del tasks
    if arguments.json:
        write(Path(arguments.json), rows, device=hardware())


if __name__ == "__main__":
    main()
