"""What `rrnn doctor --bench` measures: kernels beside a copy of the bytes that they move, and layers beside `nn.LSTM`.

Rivals take turns, so that a slow moment of the machine meets all of them, and the best time of each counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CELLS = ("B", "F", "B-max-plus")
SECONDS = 2.0
"""How long each comparison may take; there are nine for each dtype of a device."""
Shape = tuple[int, int, int]  # steps, batch, units
SHAPES: dict[str, tuple[Shape, Shape]] = {
    "cpu": ((256, 16, 512), (64, 16, 512)),
    "cuda": ((2048, 16, 2048), (512, 32, 1024)),
}
"""Device → the shape of kernels, whose tensors are larger than the caches, and that of layers."""


@dataclass(frozen=True)
class KernelRow:
    """The kernel of a cell, without the matrix product before it. `of_copy`: its share of a copy's bandwidth."""

    device: str
    dtype: str
    backend: str
    cell: str
    training: bool
    ms: float
    gb_per_s: float
    of_copy: float


@dataclass(frozen=True)
class LayerRow:
    """A training step (forward and backward) of a layer and of `nn.LSTM` of the same sizes; `ratio`: LSTM over ours."""

    device: str
    dtype: str
    cell: str
    ms: float
    lstm_ms: float
    ratio: float


def best_of(
    functions: dict[str, Callable[[], object]],
    rounds: int = 5,
    warm_up: int = 1,
    before: Callable[[], object] | None = None,
    *,
    seconds: float | None = None,
    wait: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the least time of each function, in ms. They take turns for so many rounds, or, after the first round,
    until `seconds` are over. `before` runs before each turn, outside the time; `wait` after it, inside: it waits for a
    device that works on its own. With `time.process_time` as the clock, other processes count little."""
    best = dict.fromkeys(functions, float("inf"))
    end = None if seconds is None else time.perf_counter() + seconds
    for turn in range(-warm_up, rounds):
        if turn > 0 and end is not None and time.perf_counter() > end:
            break
        for name, function in functions.items():
            if before is not None:
                before()
            began = clock()
            function()
            if wait is not None:
                wait()
            if turn >= 0:
                best[name] = min(best[name], 1e3 * (clock() - began))
    return best


def busy() -> str | None:
    """Return a warning if others use the machine, since figures then measure them as well."""
    if not hasattr(os, "getloadavg"):
        return None
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= 0.5 * cores:
        return None
    return f"note: the machine is busy (load {load:.1f} on {cores} cores); figures may be too slow"


def dtypes(device: str) -> tuple[str, ...]:
    """Return the dtypes to measure on a device."""
    return ("float32",) if device == "cpu" else ("float32", "bfloat16")


def kernel_rows(device: str, shape: Shape | None = None, seconds: float = SECONDS) -> Iterator[KernelRow]:
    """Yield how fast the kernels of some cells run on a device, forwards and in training. The bytes that count are
    those that must move: every input is read once and every result written once."""
    import torch

    from rrnn.backends import resolve
    from rrnn.ir import lower
    from rrnn.ops import rational
    from rrnn.zoo import get_cell

    steps, batch, units = shape or SHAPES[device.split(":")[0]][0]
    generator = torch.Generator(device).manual_seed(0)
    for dtype in dtypes(device):
        kind = getattr(torch, dtype)
        for name in CELLS:
            program = lower(get_cell(name)).program
            k = len(program.projections)
            backend = resolve("auto", torch.device(device), kind, [program]).name
            options = {"device": device, "generator": generator}
            x = torch.randn(steps, batch, k * units, dtype=kind, **options).requires_grad_()
            params = torch.randn(len(program.parameters), units, **options).requires_grad_()
            grad = torch.randn(steps, batch, units, dtype=kind, **options)

            def forward(x: torch.Tensor = x, params: torch.Tensor = params, program=program) -> object:
                with torch.no_grad():
                    return rational(x, [params], None, [program]).output

            def both(
                x: torch.Tensor = x, params: torch.Tensor = params, grad: torch.Tensor = grad, program=program
            ) -> object:
                out = rational(x, [params], None, [program]).output
                return torch.autograd.grad(out, (x, params), grad)

            for training, run, tensors in ((False, forward, k + 1), (True, both, 3 * k + 2)):
                half = torch.ones(tensors * grad.numel() // 2, dtype=kind, device=device)
                into = torch.zeros_like(half)
                rivals = {"ours": run, "copy": lambda half=half, into=into: into.copy_(half)}
                best = best_of(rivals, 1000, 2, seconds=seconds, wait=_wait(device))
                moved = tensors * grad.numel() * grad.element_size()
                speed, share = moved / best["ours"] / 1e6, best["copy"] / best["ours"]
                yield KernelRow(device, dtype, backend, name, training, best["ours"], speed, share)


def layer_rows(device: str, shape: Shape | None = None, seconds: float = SECONDS) -> Iterator[LayerRow]:
    """Yield how long a training step of a layer takes on a device, beside `nn.LSTM` with as many units."""
    import torch

    from rrnn.nn import RationalRNN
    from rrnn.zoo import get_cell

    steps, batch, units = shape or SHAPES[device.split(":")[0]][1]
    for dtype in dtypes(device):
        options = {"device": device, "dtype": getattr(torch, dtype)}
        x = torch.randn(steps, batch, units, **options)
        grad = torch.randn_like(x)
        lstm = torch.nn.LSTM(units, units, **options)
        for name in CELLS:
            layers = {"ours": RationalRNN(get_cell(name), units, units).to(**options), "lstm": lstm}

            def step(layer: torch.nn.Module, x: torch.Tensor = x, grad: torch.Tensor = grad) -> object:
                return torch.autograd.grad(layer(x)[0], list(layer.parameters()), grad)

            rivals = {which: lambda layer=layer, step=step: step(layer) for which, layer in layers.items()}
            best = best_of(rivals, 1000, 2, seconds=seconds, wait=_wait(device))
            yield LayerRow(device, dtype, name, best["ours"], best["lstm"], best["lstm"] / best["ours"])


def _wait(device: str) -> Callable[[], object] | None:
    """Return what waits for a device, None for the CPU, whose calls return when they are done."""
    import torch

    if device == "cpu":
        return None
    return lambda: torch.cuda.synchronize(device)
