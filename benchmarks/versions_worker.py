"""Answer `versions.py`: set up cases with the rrnn on PYTHONPATH, and time them when asked.

Requests and answers are lines of JSON on the standard input and output. This file must run with old and new versions
alike, so it uses nothing but `rrnn.get_cell`, `rrnn.RationalRNN`, `rrnn.ops.rational`, `rrnn.ir.lower` and the words
that cells are written with.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Spec = dict[str, Any]
Run = Callable[[], Any]


def make_cell(name: str) -> Any:
    """Return a cell of the zoo, or B over the log semiring, which the zoo lacks."""
    import rrnn

    if name != "log-B":
        return rrnn.get_cell(name)
    gate = rrnn.log_sigmoid(rrnn.linear("f", bias=True))
    cell = rrnn.Cell("B_log", "log").initial("q0").loop("q0", rrnn.one)
    cell = cell.arc("q0", "q1", rrnn.linear("u")).loop("q1", gate).final("q1")
    return cell.output(rrnn.tanh(rrnn.score))


def make_runs(spec: Spec, device: str) -> dict[str, Run]:
    """Return what to time, by the name of the pass, for a case of `versions.py`."""
    return (kernel_runs if spec["kind"] == "kernel" else layer_runs)(spec, device)


def kernel_runs(spec: Spec, device: str) -> dict[str, Run]:
    """Gates, recurrence and output of one cell, after the matrix product."""
    from rrnn.ir import lower
    from rrnn.ops import rational

    program = lower(make_cell(spec["cell"])).program
    steps, batch, units = spec["shape"]
    dtype, g = getattr(torch, spec["dtype"]), torch.Generator(device).manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(*shape, generator=g, device=device, dtype=dtype)

    x = draw(steps, batch, len(program.projections) * units).requires_grad_()
    params = draw(len(program.parameters), units, dtype=torch.float32).requires_grad_()
    inp = draw(steps, batch, units).requires_grad_() if program.uses_input else None
    grad = draw(steps, batch, units)
    leaves = [x, params] if inp is None else [x, params, inp]

    def output() -> Tensor:
        return rational(x, [params], None, [program], inp=inp).output

    return {
        "forward": without_gradient(output),
        "forward_backward": lambda: torch.autograd.grad(output(), leaves, grad),
    }


def layer_runs(spec: Spec, device: str) -> dict[str, Run]:
    """A whole layer, called as users call it: with a state, in a training step, and one token at a time."""
    import rrnn

    (steps, batch, units), dtype = spec["shape"], getattr(torch, spec["dtype"])
    torch.manual_seed(0)
    layer = rrnn.RationalRNN(make_cell(spec["cell"]), units, units, device=device, dtype=dtype)
    g = torch.Generator(device).manual_seed(0)
    x = torch.randn(steps, batch, units, generator=g, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn(steps, batch, units, generator=g, device=device, dtype=dtype)
    with torch.no_grad():
        state = layer(x)[1]
    if spec["kind"] == "step":
        return {"forward": without_gradient(lambda: layer.step(x[0], state)[0])}
    leaves = [x, *layer.parameters()]
    return {
        "forward": without_gradient(lambda: layer(x, state)[0]),
        "forward_backward": lambda: torch.autograd.grad(layer(x, state)[0], leaves, grad),
    }


def without_gradient(run: Run) -> Run:
    """Return the same function, run without autograd."""

    def quiet() -> Any:
        with torch.no_grad():
            return run()

    return quiet


class Worker:
    """Hold one case at a time, so that large ones fit."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.run: Run | None = None
        self.timed: Run | None = None
        self.count = 1

    def synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def clear(self) -> None:
        self.run = self.timed = None
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def hello(self, _: Spec) -> Spec:
        """Say which versions are at work, and on what."""
        import rrnn

        about: Spec = {"file": rrnn.__file__, "rrnn": rrnn.__version__, "torch": torch.__version__}
        about |= {"python": platform.python_version(), "threads": torch.get_num_threads()}
        if self.device == "cuda":
            import triton

            properties = torch.cuda.get_device_properties(0)
            about |= {"triton": triton.__version__, "cuda": torch.version.cuda, "gpu": properties.name}
        return about

    def compile(self, spec: Spec) -> Spec:
        """Run each pass once, to fill the caches on disk."""
        self.clear()
        for run in make_runs(spec, self.device).values():
            run()
        self.synchronise()
        return {}

    def prepare(self, spec: Spec) -> Spec:
        """Set up a case; return a guess of its milliseconds and a digest of its results."""
        self.clear()
        self.run = make_runs(spec, self.device)[spec["pass"]]
        found = self.run()
        tensors = found if isinstance(found, tuple) else (found,)
        digest = [t.detach().abs().mean(dtype=torch.float64).item() for t in tensors]
        del found, tensors
        return {"ms": min(self._plain(self.run, 1) for _ in range(3)), "digest": digest}

    def ready(self, spec: Spec) -> Spec:
        """Settle how many calls one timing holds; on CUDA, record them as a graph."""
        assert self.run is not None
        run, self.count = self.run, spec["count"]
        self.timed = None
        if spec["timing"] == "graph":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(self.count):
                    run()
            self.timed = graph.replay
        self.time({})
        return {}

    def time(self, _: Spec) -> Spec:
        """Return the milliseconds of a call."""
        assert self.run is not None
        if self.timed is None:
            return {"ms": self._plain(self.run, self.count)}
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        self.timed()
        end.record()
        torch.cuda.synchronize()
        return {"ms": start.elapsed_time(end) / self.count}

    def _plain(self, run: Run, count: int) -> float:
        gc.disable()
        self.synchronise()
        began = time.perf_counter()
        for _ in range(count):
            run()
        self.synchronise()
        passed = time.perf_counter() - began
        gc.enable()
        return 1e3 * passed / count

    def first(self, spec: Spec) -> Spec:
        """Time the first training step of a cell, from the cell to its gradients: mostly compiling."""
        torch.ones(8, 8, device=self.device).matmul(
            torch.ones(8, 8, device=self.device)
        )  # the device is awake
        self.synchronise()
        began = time.perf_counter()
        make_runs(spec, self.device)["forward_backward"]()
        self.synchronise()
        return {"ms": 1e3 * (time.perf_counter() - began)}


def main(device: str, threads: int) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints, prints elsewhere
    torch.set_num_threads(threads)
    if device == "cpu" and hasattr(os, "sched_setaffinity"):
        # Both trees' workers on the same cores: whoever else uses these disturbs both alike.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    worker = Worker(device)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(request)
        except Exception as error:
            worker.clear()
            lines = str(error).strip().splitlines() or [""]
            answer = {"error": f"{type(error).__name__}: {lines[0][:200]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
