"""How fast a compiled cell runs: gates, recurrence and output, after the matrix product, against eager torch.

    python benchmarks/kernels.py --device cpu [--threads 1 2] [--dtype float32] [--wait 600] [--json FILE]
    python benchmarks/kernels.py --device cuda [--peers] [--json FILE]        (cuda_kernels.py says what it measures)

Each row is one cell, shape (time, batch, units), pass and number of threads. The rival is `rivals.py`; `copy` is the
time that torch takes to copy as many bytes as the kernel must at least read and write (each input read once, each
output written once). All three take turns, each beginning with its inputs just read; the time of each is its best.
Tensors are made anew in every call, as training does it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from quiet import Watch, wait_until_quiet
from results import Row, best_of, print_table, write
from rivals import Case, cases
from torch import Tensor

from rrnn.backends import chosen, resolve, use_backend
from rrnn.backends.native.compiler import find_compiler
from rrnn.backends.native.render import render_backward, render_forward
from rrnn.ops import rational

SHAPES = [(35, 32, 650), (512, 16, 512), (2048, 4, 512)]
Timer = Callable[[dict[str, Callable[[], object]]], dict[str, float]]


@dataclass
class Bench:
    """One case at one shape: tensors, and what to time."""

    case: Case
    x: Tensor  # (T, B, K·D)
    params: Tensor
    state: Tensor
    grad: Tensor

    @staticmethod
    def make(case: Case, shape: tuple[int, int, int], device: str, dtype: torch.dtype) -> Bench:
        steps, batch, units = shape
        rng = torch.Generator(device).manual_seed(0)
        program, options = case.program, {"device": device, "generator": rng}
        x = torch.randn(steps, batch, len(program.projections) * units, **options)
        params = torch.randn(len(program.parameters), units, **options)
        state = torch.zeros(len(program.states), batch, units, device=device)
        grad = torch.randn(steps, batch, units, **options)
        return Bench(case, x.to(dtype).requires_grad_(), params.requires_grad_(), state, grad.to(dtype))

    def ours(self) -> Tensor:
        return rational(self.x, [self.params], [self.state], [self.case.program]).output

    def eager(self) -> Tensor:
        return self.case.run_eager(self.x, self.params, self.state)

    def passes(self) -> Iterator[tuple[str, Callable[[Callable[[], Tensor]], object], int]]:
        """(pass, how to run a forward in it, numbers that must move)."""
        size, k = self.grad.numel(), len(self.case.program.projections)

        def forward(run: Callable[[], Tensor]) -> object:
            with torch.no_grad():
                return run()

        def both(run: Callable[[], Tensor]) -> object:
            return torch.autograd.grad(run(), (self.x, self.params), self.grad)

        yield "forward", forward, (k + 1) * size
        yield "forward_backward", both, (3 * k + 2) * size

    def check(self) -> None:
        """The rivals compute the same."""
        loose = self.x.dtype == torch.bfloat16
        with torch.no_grad():
            torch.testing.assert_close(
                self.ours().float(), self.eager().float(), rtol=1e-4, atol=0.1 if loose else 1e-4
            )

    def rows(self, timer: Timer, threads: int | None) -> Iterator[Row]:
        backend = resolve(chosen(), self.x.device, self.x.dtype, [self.case.program]).name
        for name, run, numbers in self.passes():
            half = torch.empty(numbers // 2, dtype=self.x.dtype, device=self.x.device).normal_()
            into = torch.empty_like(half).fill_(0.0)
            best = timer(
                {
                    "ours": lambda run=run: run(self.ours),
                    "eager": lambda run=run: run(self.eager),
                    "copy": lambda half=half, into=into: into.copy_(half),
                }
            )
            size = numbers * self.x.element_size()
            yield {
                "name": self.case.name + ("" if threads is None else f", {threads} threads"),
                "cell": self.case.program.name,
                "semiring": self.case.program.semiring_name,
                "shape": list(self.grad.shape),
                "dtype": str(self.x.dtype).removeprefix("torch."),
                "backend": backend,
                "pass": name,
                "ms": best["ours"],
                "gb_per_s": size / best["ours"] / 1e6,
                "percent_of_copy": 100 * best["copy"] / best["ours"],
                "baseline": "eager",
                "ratio": best["eager"] / best["ours"],
                **({} if threads is None else {"threads": threads}),
            }


def compile_rows(case: Case, dtype: torch.dtype) -> Iterator[Row]:
    """How long the first use of a cell waits for its kernels, when no cache has them."""
    compiler = find_compiler()
    if isinstance(compiler, str):
        return
    for name, render in (("forward", render_forward), ("backward", render_backward)):
        began = time.perf_counter()
        compiler.compile(render.__wrapped__(case.program, dtype), compiler.flags)
        yield {
            "name": f"first compile of {case.name}",
            "cell": case.program.name,
            "semiring": case.program.semiring_name,
            "shape": [],
            "dtype": str(dtype).removeprefix("torch."),
            "backend": "native",
            "pass": name,
            "ms": 1e3 * (time.perf_counter() - began),
        }


def settle(bench: Bench) -> None:
    """The same start for all. A large allocation makes malloc sort what has been freed: a loop over steps frees
    thousands of tensors, which would else be sorted on the time of whoever runs next. Reading the inputs leaves them in
    the caches, as far as they fit, as the matrix product before and the layer after would; else who runs after the copy
    would find them cold, and who runs after a rival would find them there."""
    torch.empty(1 << 23)
    bench.x.detach().sum(), bench.grad.sum()


def cpu_timer(bench: Bench, rounds: int) -> Timer:
    return lambda functions: best_of(functions, rounds=rounds, warm_up=2, before=lambda: settle(bench))


def run(arguments: argparse.Namespace) -> list[Row]:
    dtype, rows = getattr(torch, arguments.dtype), []
    shapes = [tuple(int(n) for n in text.split(",")) for text in arguments.shapes] or SHAPES
    for case in cases():
        if arguments.cells and case.name not in arguments.cells:
            continue
        rows += compile_rows(case, dtype)
        for shape in shapes:
            bench = Bench.make(case, shape, arguments.device, dtype)
            bench.check()
            for threads in arguments.threads:
                torch.set_num_threads(threads)
                for row in bench.rows(cpu_timer(bench, arguments.rounds), threads):
                    rows.append(row)
                    print(".", end="", flush=True)
    print()
    return rows


def table(rows: list[Row]) -> list[list[str]]:
    out = [["cell", "shape", "threads", "pass", "ms", "eager ms", "ratio", "GB/s", "% of copy"]]
    for row in rows:
        if "ratio" not in row:
            out.append([row["name"], *[""] * 2, row["pass"], f"{row['ms']:.0f}", *[""] * 4])
            continue
        out.append(
            [
                row["name"].split(",")[0],
                "×".join(map(str, row["shape"])),
                str(row.get("threads", "")),
                "forward" if row["pass"] == "forward" else "forward+backward",
                f"{row['ms']:.2f}",
                f"{row['ratio'] * row['ms']:.2f}",
                f"{row['ratio']:.1f}×",
                f"{row['gb_per_s']:.1f}",
                f"{row['percent_of_copy']:.0f}",
            ]
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--cells", nargs="*", default=[], help="B, 'B max-plus', C, F, log-B; all if left out"
    )
    parser.add_argument("--shapes", nargs="*", default=[], help="T,B,D …")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--backend", default="auto", help="auto, native or reference")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    parser.add_argument("--peers", action="store_true", help="cuda: others' kernels, too")
    parser.add_argument("--dtypes", nargs="*", default=[], help="cuda: float32, bfloat16 …")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        import cuda_kernels

        return cuda_kernels.main(arguments)
    wait_until_quiet(arguments.wait)
    with use_backend(arguments.backend), Watch() as watch:
        rows = run(arguments)
    print_table(table(rows))
    print(f"least ratio: {min(row['ratio'] for row in rows if 'ratio' in row):.2f}×; {watch.note}")
    if arguments.json:
        write(arguments.json, rows, others_used_cores=round(watch.others, 3))


if __name__ == "__main__":
    main()
