"""Time on a CUDA device: by replaying a CUDA graph, so that launching is left out, and by plain calls."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Protocol

import torch

Function = Callable[[], object]


class Clock(Protocol):
    """Times are milliseconds."""

    def graph(self, run: Function) -> float: ...
    def plain(self, run: Function) -> float: ...


class CudaClock:
    """Medians. The graph holds as many calls as fit `budget` ms and is replayed ten times; what a call reads may still
    lie in L2 from the call before. Plain calls find the L2 flushed, as training leaves it."""

    def __init__(self, budget: float = 12.0) -> None:
        self.budget = budget

    def graph(self, run: Function) -> float:
        from triton.testing import do_bench_cudagraph

        return float(do_bench_cudagraph(run, rep=int(self.budget), return_mode="median"))

    def plain(self, run: Function) -> float:
        from triton.testing import do_bench

        return float(do_bench(run, warmup=5, rep=int(self.budget), return_mode="median"))


def copy_bandwidth(clock: Clock, size: int = 2**30, device: str = "cuda") -> float:
    """GB/s of a large copy, bytes read plus bytes written: the roof. By plain calls: inside a graph, torch's copy is a
    copy node, which runs at two thirds of the speed."""
    source = torch.empty(size, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * size / clock.plain(lambda: target.copy_(source)) / 1e6


def least_kernel(clock: Clock, device: str = "cuda") -> float:
    """Milliseconds of a kernel that does next to nothing: the floor of any call, inside a graph."""
    source = torch.empty(1024, device=device)
    target = torch.empty_like(source)
    return clock.graph(lambda: target.copy_(source))


Job = tuple[Callable[..., object], tuple[Any, ...]]


def in_parallel(jobs: Iterable[Job], workers: int = 14) -> list[str]:
    """Run every job once in a few processes, so that compiling fills the cores. Compiled kernels stay on disk, where
    the timing process finds them. Returns what failed."""
    began, failed = time.monotonic(), []
    workers = max(1, min(workers, (os.cpu_count() or 2) - 1))
    # not forked: a CUDA context does not survive a fork
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(work, *given): given for work, given in jobs}
        for future in as_completed(futures):
            if error := future.exception():
                failed.append(f"{' '.join(map(str, futures[future]))}: {describe(error)}")
    print(f"compiled {len(futures)} variants in {time.monotonic() - began:.0f} s", flush=True)
    return failed


def describe(error: BaseException) -> str:
    """One line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def hardware() -> dict[str, Any]:
    """For the result file."""
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
    }
