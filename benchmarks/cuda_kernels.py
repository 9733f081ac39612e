"""`kernels.py --device cuda`: generated Triton kernels against the memory's limit, and against others' kernels.

Rows: the bare recurrence "B unfused" (f and u given, two dense (T, B, D) tensors), the paper's cells with gates, output
gate and activation in one kernel, and two more semirings. `ms` is by replaying a CUDA graph, `plain_ms` by plain calls.
GB/s counts each input read once and each output written once, per unit and step K + 1 numbers forwards (K projections,
the output) and 2K + 1 backwards; saved states are not counted. Forward is training's, which saves states.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from cuda_timing import Clock, CudaClock, copy_bandwidth, describe, hardware, in_parallel, least_kernel
from peers import PEERS, Peer, peer_jobs
from results import Row, print_table, write
from rivals import log_b
from torch import Tensor

from rrnn import Cell, get_cell, linear, one, score
from rrnn.backends import Backend, get_backend
from rrnn.backends.interface import CellCall, Gradients
from rrnn.backends.triton.plan import save_every
from rrnn.ir import lower

SHAPES = [(35, 32, 1024), (512, 32, 1024), (2048, 8, 1024), (4096, 16, 2048), (65536, 1, 1024)]
TYPICAL = (512, 32, 1024)
DTYPES = ["float32", "bfloat16"]
Shape = tuple[int, int, int]


def unfused() -> Cell:
    """c = f·c' + u, the weights given."""
    cell = Cell("unfused").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).loop("q1", linear("f"))
    return cell.final("q1").output(score)


CELLS: dict[str, Callable[[], Cell]] = {
    "B unfused": unfused,
    "B+o": lambda: get_cell("B+o"),
    "C+o": lambda: get_cell("C+o"),
    "F+o": lambda: get_cell("F+o"),
    "B max-plus": lambda: get_cell("B-max-plus"),
    "log-B": log_b,
}


@dataclass
class Bench:
    """One cell at one shape: tensors, and what to time."""

    name: str
    backend: Backend
    call: CellCall  # its x is a view of K dense (T, B, D) tensors for "B unfused"
    state: Tensor
    grad: Tensor
    grad_state: Tensor

    @staticmethod
    def make(
        name: str, shape: Shape, dtype: torch.dtype, device: str, backend: str, random: bool = True
    ) -> Bench:
        program = lower(CELLS[name]()).program
        (steps, batch, units), k = shape, len(program.projections)
        rng = torch.Generator(device).manual_seed(0)

        def draw(*size: int) -> Tensor:
            made = torch.empty(size, dtype=dtype, device=device)
            return made.uniform_(0.05, 0.95, generator=rng) if random else made

        x = (
            draw(k, steps, batch, units).movedim(0, 2)
            if name == "B unfused"
            else draw(steps, batch, k, units)
        )
        params = torch.randn(len(program.parameters), units, device=device)
        states = (len(program.states), batch, units)
        return Bench(
            name,
            get_backend(backend),
            CellCall(program, x, params, every=save_every(len(program.instructions))),
            torch.full(states, program.semiring.zero, device=device),
            draw(steps, batch, units),
            torch.zeros(states, device=device),
        )

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        """(output, final state, saved states)"""
        out = torch.empty_like(self.grad)
        final, saved = self.backend.forward(self.call, self.state, out)
        assert saved is not None
        return out, final, saved

    def backward(self, saved: Tensor) -> Tensor:
        grad_x = torch.empty_like(self.call.x)
        self.backend.backward(self.call, saved, Gradients(self.grad, self.grad_state, grad_x))
        return grad_x

    def passes(self) -> Iterator[tuple[str, int, Callable[[], object]]]:
        """(pass, numbers that must move, what to time)"""
        size, k = self.grad.numel(), len(self.call.program.projections)
        saved = self.forward()[2]
        yield "forward", (k + 1) * size, self.forward
        yield "backward", (2 * k + 1) * size, lambda: self.backward(saved)
        yield "forward_backward", (3 * k + 2) * size, lambda: self.backward(self.forward()[2])

    @property
    def about(self) -> Row:
        return {
            "name": self.name,
            "cell": self.call.program.name,
            "semiring": self.call.program.semiring_name,
            "shape": list(self.grad.shape),
            "dtype": str(self.grad.dtype).removeprefix("torch."),
        }

    @property
    def f_and_u(self) -> tuple[Tensor, Tensor]:
        """Of the unfused one: dense (T, B, D) tensors."""
        names = self.call.program.projections
        f, u = (self.call.x[:, :, names.index(name)] for name in ("f", "u"))
        assert f.is_contiguous() and u.is_contiguous()
        return f, u


def measure(run: Callable[[], object], numbers: int, size: int, roof: float, clock: Clock) -> Row:
    ms = clock.graph(run)
    rate = numbers * size / ms / 1e6
    return {"ms": ms, "plain_ms": clock.plain(run), "gb_per_s": rate, "percent_of_copy": 100 * rate / roof}


def our_rows(bench: Bench, roof: float, clock: Clock) -> Iterator[Row]:
    for name, numbers, run in bench.passes():
        figures = measure(run, numbers, bench.call.x.element_size(), roof, clock)
        yield {**bench.about, "backend": bench.backend.name, "pass": name, **figures}


def peer_rows(peer: Peer, bench: Bench, roof: float, clock: Clock) -> Iterator[Row]:
    """The unfused recurrence by another; one that is missing, fails or computes something else says so."""
    about = {**bench.about, "backend": peer.name}
    try:
        f, u = bench.f_and_u
        ours, moved = bench.forward()[0].float(), {name: n for name, n, _ in bench.passes()}
        theirs = peer.output(f, u).float()
        error = ((theirs - ours).norm() / ours.norm()).item()
        if not error < 2e-2:
            yield {**about, "error": f"computes something else: relative RMS {error:.2g}"}
            return
        del theirs
        for layout, name, run in peer.passes(f, u, bench.grad):
            figures = measure(run, moved[name], bench.call.x.element_size(), roof, clock)
            yield {**about, "pass": name, "layout": layout, **figures}
    except Exception as error:  # whatever it is, the others go on
        yield {**about, "error": describe(error)}


def peer_job(peer: str, shape: Shape, dtype: str, roof: float) -> list[Row]:
    """The same tensors as ours, drawn from the same seed."""
    torch.cuda.empty_cache()
    bench = Bench.make("B unfused", shape, getattr(torch, dtype), "cuda", "triton")
    return list(peer_rows(PEERS[peer], bench, roof, CudaClock()))


def rows_of_peers(shapes: list[Shape], dtypes: list[str], roof: float) -> Iterator[Row]:
    """Each peer in a process of its own, which a failure ends: a kernel that crashes takes its CUDA context with it.
    They tune themselves at the first shape that they meet: not the smallest."""
    for peer in PEERS:
        alone: ProcessPoolExecutor | None = None
        for shape, dtype in product(sorted(shapes, key=lambda s: s != TYPICAL), dtypes):
            alone = alone or ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            try:
                found = alone.submit(peer_job, peer, shape, dtype, roof).result()
            except Exception as error:
                about = {"name": "B unfused", "shape": list(shape), "dtype": dtype, "backend": peer}
                found = [{**about, "error": describe(error)}]
            if any("error" in row for row in found):
                alone.shutdown(wait=False, cancel_futures=True)
                alone = None
            yield from found
        if alone is not None:
            alone.shutdown()


def compare(rows: list[Row]) -> None:
    """Give each row of ours its best peer from (T,B,D) tensors, where there is one, and the ratio."""

    def key(row: Row) -> tuple[Any, ...]:
        return row["name"], tuple(row["shape"]), row["dtype"], row.get("pass")

    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row.get("layout") == "from (T,B,D)" and row["ms"] < best.get(key(row), {"ms": float("inf")})["ms"]:
            best[key(row)] = row
    for row in rows:
        if row["backend"] not in PEERS and (peer := best.get(key(row))):
            row |= {"baseline": peer["backend"], "ratio": peer["ms"] / row["ms"]}


def compile_one(name: str, shape: Shape, dtype: torch.dtype) -> None:
    bench = Bench.make(name, shape, dtype, "cuda", "triton", random=False)
    bench.backward(bench.forward()[2])
    torch.cuda.synchronize()


def run(
    cells: list[str],
    shapes: list[Shape],
    dtypes: list[str],
    others: Iterable[Row],
    clock: Clock,
    *,
    device: str = "cuda",
    backend: str = "triton",
    roof: float,
    save: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Our rows, then `others`, measured when they are asked for."""
    rows: list[Row] = []

    def add(new: Iterable[Row]) -> None:
        for row in new:
            rows.append(row)
            print("x" if "error" in row else ".", end="", flush=True)

    for shape in shapes:
        for dtype in dtypes:
            for name in cells:
                if device == "cuda":
                    torch.cuda.empty_cache()
                bench = Bench.make(name, shape, getattr(torch, dtype), device, backend)
                add(our_rows(bench, roof, clock))
                del bench
    save(rows)  # now already: what comes after may take long
    add(others)
    compare(rows)
    save(rows)
    print()
    return rows


def main(arguments: argparse.Namespace) -> None:
    from cuda_report import goals, table

    cells = arguments.cells or list(CELLS)
    shapes = [tuple(int(n) for n in text.split(",")) for text in arguments.shapes] or SHAPES
    dtypes = arguments.dtypes or DTYPES
    if unknown := set(cells) - set(CELLS):
        raise SystemExit(f"no cell is called {sorted(unknown)}: there are {', '.join(CELLS)}")
    if not torch.cuda.is_available():
        raise SystemExit("--device cuda needs a CUDA device")
    jobs = peer_jobs(dtypes, sorted({units for _, _, units in shapes})) if arguments.peers else []
    jobs += [(compile_one, (c, s, getattr(torch, d))) for s in shapes for d in dtypes for c in cells]
    for failure in in_parallel(jobs):
        print("failed to compile:", failure)
    clock = CudaClock()
    roof, floor = copy_bandwidth(clock), least_kernel(clock)
    print(f"{hardware()['gpu']}: copy {roof:.0f} GB/s, least kernel {1e3 * floor:.1f} µs", flush=True)

    def save(rows: list[Row]) -> None:
        if arguments.json:
            write(arguments.json, rows, copy_gb_per_s=roof, least_kernel_ms=floor, device=hardware())

    others = rows_of_peers(shapes, dtypes, roof) if arguments.peers else ()
    rows = run(cells, shapes, dtypes, others, clock, roof=roof, save=save)
    print_table(table(rows))
    print()
    print_table(goals(rows))
