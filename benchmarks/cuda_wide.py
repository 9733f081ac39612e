"""`wide.py --device cuda`: cells of families on a GPU, after the matrix product, gates included.

`ms` is a replay of a CUDA graph of what autograd runs, kernels and reductions alike, `plain_ms` by plain calls. GB/s
counts each input read once and each output written once. `exponentials` is how many a row
needs at least. `first_call_s` is the first call in a new process with nothing compiled before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cuda_timing import Clock, CudaClock, copy_bandwidth, describe, hardware
from results import Row, print_table, write
from torch import Tensor

import rrnn
from rrnn import RationalRNN, zoo
from rrnn.backends.triton import families
from rrnn.backends.triton.family_loop import TURN
from rrnn.backends.triton.plan import Plan
from rrnn.ops import rational


class Shape(NamedTuple):
    """Sizes of a row."""

    steps: int
    batch: int
    units: int
    states: int
    heads: int = 1


SMALL = 70, 3
"""Steps and sequences at which results are compared first."""
MODELS: dict[str, tuple[Shape, list[str]]] = {
    "Mamba": (Shape(2048, 8, 2048, 16), ["bfloat16", "float32"]),
    "GLA": (Shape(2048, 8, 1024, 16, 16), ["bfloat16"]),
    "S4D": (Shape(2048, 8, 1024, 32), ["bfloat16"]),
    "LRU": (Shape(2048, 8, 1024, 1), ["float32", "bfloat16"]),
}
EXPONENTIALS = {"Mamba": {"forward": 1, "forward_backward": 2}}
"""Exponentials of a state and step, where they bound the time."""


class WideCase:
    """One model at one shape on a device, with random pre-activations in a dtype; parameters are float32."""

    def __init__(self, name: str, shape: Shape, dtype: torch.dtype, device: str = "cuda") -> None:
        torch.manual_seed(0)
        self.name, self.shape, self.dtype = name, shape, dtype
        cell = zoo.get_cell(name) if name == "LRU" else zoo.get_cell(name, states=shape.states)
        more: dict[str, Any] = {} if name == "LRU" else {"heads": shape.heads}
        rnn = RationalRNN(cell, shape.units, shape.units, device=device, **more)
        self.layer: Any = rnn.layers[0]
        self.program = self.layer.programs[0]
        columns = self.program.columns(shape.units)
        like = {"device": device, "dtype": dtype}
        self.x = torch.randn(shape.steps, shape.batch, columns, **like, requires_grad=True)
        self.inp = torch.randn(shape.steps, shape.batch, shape.units, **like, requires_grad=True)
        rows = self.layer.parameter_rows(self.x.float())
        self.params = [
            [r.detach().float().requires_grad_() for r in p]
            if isinstance(p, list | tuple)
            else p.detach().float().requires_grad_()
            for p in rows
        ]
        outputs = self.program.output_count
        self.grad = torch.randn(shape.steps, shape.batch, outputs * shape.units, **like)

    @property
    def leaves(self) -> list[Tensor]:
        own = [self.x] if self.x.numel() else []  # S4D projects nothing
        for p in self.params:
            own += [r for r in (p if isinstance(p, list) else [p]) if r.numel()]
        return [*own, self.inp] if self.layer.uses_input else own

    def forward(self, every: int | None = None) -> Tensor:
        inp = self.inp if self.layer.uses_input else None
        given = {"inp": inp, "widths": self.layer.widths, "save_every": every}
        return rational(self.x, self.params, None, self.layer.programs, **given).output

    def both(self, every: int | None = None) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.forward(every), self.leaves, self.grad)

    def numbers(self) -> dict[str, int]:
        """Return how many numbers each pass must move."""
        read = self.x.numel() + self.inp.numel() * self.layer.uses_input
        forward, out = read + self.grad.numel(), self.grad.numel()
        return {"forward": forward, "forward_backward": forward + 2 * read + out}


def check(name: str, shape: Shape, dtype: torch.dtype, device: str) -> float:
    """Return the largest relative error of outputs and gradients, in the norm, against the reference in float64."""
    units = 64 * shape.heads
    case = WideCase(name, Shape(*SMALL, units, shape.states, shape.heads), dtype, device)
    exact = WideCase(name, case.shape, torch.float64, device)
    with torch.no_grad():
        exact.x.copy_(case.x)
        exact.inp.copy_(case.inp)
        exact.grad.copy_(case.grad)
        exact.params = [
            [r.detach().double().requires_grad_() for r in p]
            if isinstance(p, list)
            else p.detach().double().requires_grad_()
            for p in case.params
        ]
    found = [case.forward(), *case.both()]
    with rrnn.use_backend("reference"):
        wanted = [exact.forward(), *exact.both()]
    errors = [
        float((a.double() - b).detach().norm() / (b.detach().norm() + 1e-30))
        for a, b in zip(found, wanted, strict=True)
    ]
    worst = max(errors)
    if not worst < (0.02 if dtype == torch.bfloat16 else 1e-4):
        raise AssertionError(f"{name} {dtype}: errors {errors}")
    return worst


def rows_of(case: WideCase, clock: Clock, roof: float) -> list[Row]:
    """Time training's forward and both passes."""
    rows: list[Row] = []
    runs: dict[str, Callable[[], object]] = {"forward": case.forward, "forward_backward": case.both}
    for name, run in runs.items():
        run()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        peak = torch.cuda.max_memory_allocated() - before
        ms, moved = clock.graph(run), case.numbers()[name] * case.x.element_size()
        about = {"name": case.name, "cell": case.name, "semiring": case.program.semiring_name}
        about |= {"shape": list(case.shape), "dtype": str(case.dtype).removeprefix("torch."), "pass": name}
        figures = {"ms": ms, "plain_ms": clock.plain(run), "gb_per_s": moved / ms / 1e6}
        figures |= {"percent_of_copy": 100 * moved / ms / 1e6 / roof, "peak_mb": peak / 1e6}
        if case.name in EXPONENTIALS:
            s = case.shape
            figures["exponentials"] = EXPONENTIALS[case.name][name] * s.steps * s.batch * s.units * s.states
        rows.append({**about, **figures})
    return rows


def first_call(name: str) -> float:
    """Return the seconds of a first forward and backward pass in a new process with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"RRNN_CACHE": f"{folder}/rrnn", "TRITON_CACHE_DIR": f"{folder}/triton"}
        env["PYTHONPATH"] = os.pathsep.join([*map(os.path.abspath, sys.path)])
        code = f"import cuda_wide; print('seconds', cuda_wide.seconds_of_first_call({name!r}))"
        here = Path(__file__).parent
        done = subprocess.run([sys.executable, "-c", code], cwd=here, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split("seconds")[1])


def seconds_of_first_call(name: str) -> float:
    """Return the seconds that a first call takes in this process; the device itself is warm."""
    shape, (dtype, *_) = MODELS[name]
    case = WideCase(name, shape._replace(steps=64), getattr(torch, dtype))
    (case.x * 2).sum().item()
    began = time.perf_counter()
    case.both()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def _plan(block: int, chunk: int, stages: int) -> Plan:
    return Plan(block, 1, TURN, chunk, stages)


FEW = Shape(2048, 1, 1024, 16)
PLANS: list[tuple[str, Shape | None, Plan, Plan]] = [
    ("Mamba", None, _plan(32, 0, 3), _plan(32, 512, 2)),
    ("Mamba", None, _plan(32, 0, 2), _plan(32, 1024, 2)),
    ("Mamba", None, _plan(32, 0, 4), _plan(32, 256, 2)),
    ("Mamba", None, _plan(32, 0, 1), _plan(32, 512, 1)),
    ("Mamba", None, _plan(16, 0, 3), _plan(32, 512, 3)),
    ("Mamba", None, _plan(32, 1024, 3), _plan(32, 0, 2)),
    ("Mamba", None, _plan(16, 0, 2), _plan(16, 0, 2)),
    ("Mamba", None, _plan(16, 0, 1), _plan(16, 0, 1)),
    *(("S4D", None, _plan(8, chunk, 3), _plan(8, chunk, 2)) for chunk in (0, 1024)),
    *(("Mamba", FEW, _plan(32, chunk, 3), _plan(32, chunk, 2)) for chunk in (0, 64, 128)),
]
"""Model, its shape (None: the usual one), and plans of both passes that `--search` times."""


@contextmanager
def planned(forward: Plan, backward: Plan) -> Iterator[None]:
    """Run kernels of families with these plans."""
    usual = families.plan_of
    families.plan_of = lambda *about: backward if about[5] else forward
    try:
        yield
    finally:
        families.plan_of = usual


def compile_plan(number: int) -> None:
    """Compile the kernels of one of PLANS, which are then in Triton's cache on disk."""
    name, shape, forward, backward = PLANS[number]
    steps = max(64, 2 * forward.chunk, 2 * backward.chunk)
    case = WideCase(name, (shape or MODELS[name][0])._replace(steps=steps), torch.bfloat16)
    with rrnn.use_backend("triton"), planned(forward, backward):
        case.both()
    torch.cuda.synchronize()


def search(json: Path | None) -> None:
    """Time PLANS, on the Triton backend, and write the rows; everything is compiled first, in parallel."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*map(os.path.abspath, sys.path)])}
    code = "import sys, cuda_wide; cuda_wide.compile_plan(int(sys.argv[1]))"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], cwd=Path(__file__).parent, env=env)
        for n in range(len(PLANS))
    ]
    for process in started:
        process.wait()
    clock, rows = CudaClock(), list[Row]()
    for name, shape, forward, backward in PLANS:
        short = [how._replace(chunk=min(how.chunk, SMALL[0] // 2)) for how in (forward, backward)]
        row: Row = {"name": name, "shape": list(shape or MODELS[name][0]), "dtype": "bfloat16"}
        row |= {"plan": list(forward), "backward_plan": list(backward)}
        try:
            with rrnn.use_backend("triton"):
                with planned(*short):
                    row["error"] = check(name, MODELS[name][0], torch.bfloat16, "cuda")
                case = WideCase(name, shape or MODELS[name][0], torch.bfloat16)
                with planned(forward, backward):
                    row |= {"forward_ms": clock.graph(case.forward), "ms": clock.graph(case.both)}
            rows.append(row)
        except Exception as error:
            row["failure"] = describe(error)
        print(*row.values(), flush=True)
        torch.cuda.empty_cache()
    if json:
        write(json, rows, device=hardware())


def main(json: Path | None, only: list[str] | None = None, fresh: bool = True) -> None:
    """Check, time, print and write the rows; `fresh`: time first calls."""
    clock = CudaClock()
    roof = copy_bandwidth(clock)
    about = hardware()
    print(f"{about['gpu']}: copy {roof:.0f} GB/s", flush=True)
    rows: list[Row] = []
    for name, (shape, dtypes) in MODELS.items():
        if only and name not in only:
            continue
        for dtype in dtypes:
            try:
                error = check(name, shape, getattr(torch, dtype), "cuda")
                case = WideCase(name, shape, getattr(torch, dtype))
                own = rows_of(case, clock, roof)
                for row in own:
                    row["error"] = error
                rows += own
                for row in own:
                    print(name, dtype, row["pass"], f"{row['ms']:.3f} ms", flush=True)
            except Exception as error:
                print(f"{name} {dtype}: {describe(error)}", flush=True)
            torch.cuda.empty_cache()
        if not fresh:
            continue
        try:
            seconds = first_call(name)
            for row in rows:
                if row["name"] == name:
                    row["first_call_s"] = seconds
        except Exception as error:
            print(f"first call of {name}: {describe(error)}", flush=True)
    table = [
        ["model", "dtype", "pass", "ms", "plain ms", "GB/s", "% of copy", "peak MB", "first call s", "error"]
    ]
    for row in rows:
        figures = [f"{row['ms']:.3f}", f"{row['plain_ms']:.3f}", f"{row['gb_per_s']:.0f}"]
        figures += [f"{row['percent_of_copy']:.0f}", f"{row['peak_mb']:.0f}"]
        figures += [f"{row.get('first_call_s', 0):.1f}", f"{row['error']:.1e}"]
        table.append([row["name"], row["dtype"], row["pass"].replace("_", "+"), *figures])
    print_table(table)
    if json:
        write(json, rows, copy_gb_per_s=roof, device=about)
