"""How fast B over the complex numbers runs, after the matrix product, against eager torch with complex tensors.

    python benchmarks/complex_b.py [--threads 1 2] [--json FILE]        CPU, (512, 16, 512)
    python benchmarks/complex_b.py --device cuda [--json FILE]          CUDA, (512, 32, 1024)

The recurrence is c = f ⊙ c' + u with u complex from two projections and f = σ(a) e^(iθ) from two more, which have
biases; the output holds the real parts of all units, then the imaginary ones.

Bytes that must move, in numbers of each unit and step: forwards four pre-activations are read and two outputs written;
backwards four pre-activations and two gradients of outputs are read, and four gradients of pre-activations written.
`percent_of_copy` sets them beside torch's copy of as many bytes (CPU), or beside the bandwidth of a large copy, which
is measured in the same run (CUDA). On the CPU a time is the best of turns that all rivals take. On CUDA `ms` is a
replay of a CUDA graph of the kernels, `plain_ms` and `eager_ms`, whose quotient is `ratio`, are plain calls through
autograd, and of these `backward` is the difference of the other two passes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from cuda_timing import Clock, CudaClock, copy_bandwidth, hardware
from quiet import Watch, wait_until_quiet
from results import Row, best_of, print_table, write
from torch import Tensor

if TYPE_CHECKING:
    from rrnn import Cell

Shape = tuple[int, int, int]
SHAPES: dict[str, Shape] = {"cpu": (512, 16, 512), "cuda": (512, 32, 1024)}
SMALL: Shape = (9, 3, 5)
NUMBERS = {"forward": 6, "backward": 10, "forward_backward": 16}
"""Numbers that a pass must move for each unit and step."""

Inputs = dict[str, Tensor]
"""Pre-activations (T, B, D) by the projections' names, and the biases (D) `f.bias` and `theta.bias`."""


def eager(inputs: Inputs) -> Tensor:
    """Compute the output (T, B, 2·D) as a person would write it: gates of all steps at once, then a loop."""
    f = torch.polar(
        torch.sigmoid(inputs["f"] + inputs["f.bias"]),
        inputs["theta"] + inputs["theta.bias"],
    )
    u = torch.complex(inputs["u"], inputs["v"])
    c, cs = torch.zeros_like(u[0]), []
    for f_t, u_t in zip(f.unbind(0), u.unbind(0), strict=True):
        c = f_t * c + u_t
        cs.append(c)
    states = torch.stack(cs)
    return torch.cat([states.real, states.imag], -1)


@dataclass
class Case:
    """Tensors, and a function of the inputs to time."""

    inputs: Inputs
    leaves: list[Tensor]
    """What gets gradients."""
    grad: Tensor
    """The gradient of the output, (T, B, 2·D)."""
    ours: Callable[[], Tensor]
    kernels: dict[str, Callable[[], object]] = field(default_factory=dict)
    """On CUDA: the bare kernels of each pass, which can be captured in a graph."""

    def eager(self) -> Tensor:
        return eager(self.inputs)

    @property
    def units(self) -> int:
        """How many numbers (T, B, D) has."""
        return self.grad.numel() // 2

    def both(self, run: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        """Run forwards and backwards; return the gradients of the leaves."""
        return torch.autograd.grad(run(), self.leaves, self.grad)


def complex_b() -> Cell:
    """Return B over the complex numbers, with both parts of the score as outputs."""
    from rrnn import Cell, linear, one, score, sigmoid
    from rrnn.automata import complex, polar

    return (
        Cell("B_complex", "complex")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", complex(linear("u"), linear("v")))
        .loop("q1", polar(sigmoid(linear("f", bias=True)), linear("theta", bias=True)))
        .final("q1")
        .output(score.re, score.im)
    )  # fmt: skip


def draw(
    shape: Shape,
    device: str,
    dtype: torch.dtype,
    projections: tuple[str, ...] = ("u", "v", "f", "theta"),
    parameters: tuple[str, ...] = ("f.bias", "theta.bias"),
) -> tuple[Tensor, Tensor, Inputs, Tensor]:
    """Return pre-activations (T, B, 4·D), biases (2, D), views of both by name, and the output's gradient."""
    steps, batch, units = shape
    rng = torch.Generator(device).manual_seed(0)
    options: dict[str, Any] = {"device": device, "dtype": dtype, "generator": rng}
    x = torch.randn(steps, batch, len(projections) * units, **options).requires_grad_()
    biases = torch.randn(len(parameters), units, **options).requires_grad_()
    inputs = dict(zip(projections, x.chunk(len(projections), -1), strict=True))
    inputs |= dict(zip(parameters, biases.unbind(0), strict=True))
    return x, biases, inputs, torch.randn(steps, batch, 2 * units, **options)


def layer_case(shape: Shape, device: str, dtype: torch.dtype) -> Case:
    """Set up the compiled cell and its rival on the same tensors."""
    from rrnn.ir import lower
    from rrnn.ops import rational

    program = lower(complex_b()).program
    x, biases, inputs, grad = draw(shape, device, dtype, program.projections, program.parameters)
    case = Case(inputs, [x, biases], grad, lambda: rational(x, [biases], None, [program]).output)
    if device == "cuda":
        case.kernels = kernels(program, x.detach(), biases.detach(), grad)
    return case


def kernels(program: Any, x: Tensor, biases: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """Return the launches of both passes, as a training step has them: states are saved for the backward pass."""
    from rrnn.backends import get_backend
    from rrnn.backends.interface import CellCall, Gradients
    from rrnn.backends.triton.plan import save_every

    backend, every = get_backend("triton"), save_every(len(program.flat.instructions))
    call = CellCall(program, x.unflatten(-1, (4, -1)), biases, every=every)
    out, to_x = torch.empty_like(grad), torch.empty_like(call.x)
    _, saved = backend.forward(call, None, out)
    assert saved is not None
    grads = Gradients(grad, None, to_x, wants_first=False)

    def both() -> None:
        _, kept = backend.forward(call, None, out)
        assert kept is not None
        backend.backward(call, kept, grads)

    return {
        "forward": lambda: backend.forward(call, None, out),
        "backward": lambda: backend.backward(call, saved, grads),
        "forward_backward": both,
    }


MakeCase = Callable[[Shape, str, torch.dtype], Case]


def check(make: MakeCase, device: str) -> None:
    """Raise an AssertionError unless the rivals agree on outputs and gradients."""
    case = make(SMALL, device, torch.float32)
    torch.testing.assert_close(case.ours(), case.eager(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(case.both(case.ours), case.both(case.eager), rtol=1e-4, atol=1e-4)


def row_of(case: Case, shape: Shape, name: str, ms: float, **more: Any) -> Row:
    """Return a row of the result file."""
    moved = NUMBERS[name] * case.units * case.grad.element_size()
    about = {"name": "complex B", "cell": "B_complex", "semiring": "complex", "shape": list(shape)}
    about |= {"dtype": str(case.grad.dtype).removeprefix("torch."), "pass": name}
    return {**about, "ms": ms, "gb_per_s": moved / ms / 1e6, **more}


def cpu_rows(case: Case, shape: Shape, threads: int, rounds: int) -> list[Row]:
    """Time forward and both passes, ours against eager torch and a copy of as many bytes."""

    def forward(run: Callable[[], Tensor]) -> Tensor:
        with torch.no_grad():
            return run()

    def settle() -> None:
        torch.empty(1 << 23)  # so that malloc sorts what the loop has freed before somebody else's turn
        for tensor in (*case.leaves, case.grad):
            tensor.detach().sum()

    rows = []
    passes: dict[str, Callable[[Callable[[], Tensor]], object]] = {
        "forward": forward,
        "forward_backward": case.both,
    }
    for name, run in passes.items():
        source = torch.randn(NUMBERS[name] * case.units // 2, dtype=case.grad.dtype)
        target = torch.zeros_like(source)
        rivals: dict[str, Callable[[], object]] = {
            "ours": lambda run=run: run(case.ours),
            "eager": lambda run=run: run(case.eager),
            "copy": lambda target=target, source=source: target.copy_(source),
        }
        best = best_of(rivals, rounds=rounds, warm_up=2, before=settle)
        figures = {"percent_of_copy": 100 * best["copy"] / best["ours"], "threads": threads}
        ratio = best["eager"] / best["ours"]
        figures |= {"baseline": "eager", "eager_ms": best["eager"], "ratio": ratio}
        rows.append(row_of(case, shape, name, best["ours"], **figures))
    return rows


def cuda_rows(case: Case, shape: Shape, clock: Clock, roof: float) -> list[Row]:
    """Time training's forward and both passes; `roof` is the copy's GB/s. Rivals are compared by plain calls."""
    passes: dict[str, Callable[[Callable[[], Tensor]], object]] = {
        "forward": lambda run: run(),  # autograd is on: what training saves is saved
        "forward_backward": case.both,
    }
    times = {
        name: (clock.plain(lambda run=run: run(case.ours)), clock.plain(lambda run=run: run(case.eager)))
        for name, run in passes.items()
    }
    pairs = zip(times["forward"], times["forward_backward"], strict=True)
    times["backward"] = tuple(both - forward for forward, both in pairs)
    rows = []
    for name in NUMBERS:
        (plain, theirs), ms = times[name], clock.graph(case.kernels[name])
        row = row_of(case, shape, name, ms, plain_ms=plain)
        figures = {"percent_of_copy": 100 * row["gb_per_s"] / roof, "baseline": "eager"}
        rows.append({**row, **figures, "eager_ms": theirs, "ratio": theirs / plain})
    return rows


def table(rows: list[Row]) -> list[list[str]]:
    """Return the rows as cells of a table, with its head."""
    out = [["pass", "shape", "threads", "ms", "eager ms", "ratio", "GB/s", "% of copy"]]
    for row in rows:
        figures = [f"{row['ms']:.3g}", f"{row['eager_ms']:.3g}", f"{row['ratio']:.1f}×"]
        figures += [f"{row['gb_per_s']:.1f}", f"{row['percent_of_copy']:.0f}"]
        shape = "×".join(map(str, row["shape"]))
        out.append([row["pass"].replace("_", "+"), shape, str(row.get("threads", "")), *figures])
    return out


def main(make: MakeCase = layer_case) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="CPU threads")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each rival on the CPU")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--json", type=Path, help="write the result file here")
    options = parser.parse_args()
    device, shape = options.device, SHAPES[options.device]
    check(make, device)
    case, rows, more = make(shape, device, torch.float32), [], {}
    if device == "cuda":
        clock = CudaClock()
        roof = copy_bandwidth(clock)
        more = {"copy_gb_per_s": roof, "device": hardware()}
        print(f"{more['device']['gpu']}: copy {roof:.0f} GB/s", flush=True)
        rows = cuda_rows(case, shape, clock, roof)
    else:
        wait_until_quiet(options.wait)
        with Watch() as watch:
            for threads in options.threads:
                torch.set_num_threads(threads)
                rows += cpu_rows(case, shape, threads, options.rounds)
        more = {"others_used_cores": round(watch.others, 3)}
        print(watch.note)
    print_table(table(rows))
    if options.json:
        write(options.json, rows, **more)


if __name__ == "__main__":
    main()
