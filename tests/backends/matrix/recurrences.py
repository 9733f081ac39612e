"""Recurrences without the products of a layer, so that a comparison sees what the matrix schedule itself computes.

What a layer's projections lose by rounding would hide what the schedule loses: here both sides read the same
pre-activations. These are of size 1, as in trained layers, so that outputs and gradients stay in float16's range.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import rrnn
from rrnn import RationalRNN, zoo
from rrnn.automata import Cell, exp, family, linear, log_sigmoid, one, parameter, score, tanh
from rrnn.backends.interface import compute_dtype, sequence_table
from rrnn.backends.matrix.leaves import Leaf, columns, leaves_of
from rrnn.backends.matrix.schedule import parts_of
from rrnn.ir import Op, Program
from rrnn.ir.separable import LOG_DECAY
from rrnn.ops import rational

MODELS = ("linear-attention", "RetNet", "GLA", "HGRN2", "Mamba-2")
SCORE, FACTOR, GATE = "score", "factor", "gate"
"""Kinds of results: outputs and states, gradients of what decays depend on (GATE), all other gradients."""
LIMITS = {SCORE: 0.005, FACTOR: 0.008, GATE: 0.02}
"""How far results may be off with inputs of half precision, as an RMS ratio."""


def own_cell(states: int = 20) -> Cell:
    """Build a separable cell that no model has: permuted names and factors, an output of its own."""
    z = family("z", states)
    a, b = linear("v", over=z, per="group"), linear("k")
    forget = exp(log_sigmoid(linear("q", over=z, per="head", bias=True)) * 0.5)
    cell = (
        Cell("Own").initial("s").loop("s", one).arc("s", z, (b * 0.5) * (tanh(a) * linear("w", per="head")))
    )
    cell = cell.loop(z, parameter("c", over=z, per="head") * forget).read(
        z, a * linear("r", over=z, per="head")
    )
    return cell.output(tanh(score) * linear("o") + parameter("d"))


class Recurrence(NamedTuple):
    """A program, and what it reads: pre-activations, parameters, the layer's input, first states, which steps exist;
    and the weights of outputs and final states in the loss."""

    program: Program
    y: Tensor
    params: Tensor
    inp: Tensor
    first: Tensor
    seeds: tuple[Tensor, Tensor]
    mask: Tensor | None = None
    offsets: Tensor | None = None

    def run(self, backend: str, dtype: torch.dtype, device: str = "cpu") -> dict[str, tuple[str, Tensor]]:
        """Return outputs, final states and all gradients by name, each with its kind."""
        y, params, inp = (t.to(device, dtype).requires_grad_() for t in (self.y, self.params, self.inp))
        first = self.first.to(device, compute_dtype(dtype)).requires_grad_()
        mask = None if self.mask is None else self.mask.to(device)
        table = None if self.offsets is None else sequence_table(self.offsets, y.shape[0]).to(device)
        given = inp if self.program.uses_input else None
        more: dict[str, Any] = {"mask": mask, "inp": given, "widths": [inp.shape[-1]], "sequences": table}
        with rrnn.use_backend(backend):
            out, (end,) = rational(y, [params], [first], [self.program], **more)
            seeds = [seed.to(value) for seed, value in zip(self.seeds, (out, end), strict=True)]
            wanted = [y, params, first, inp] if given is not None else [y, params, first]
            dy, dparams, dfirst, *dinp = torch.autograd.grad(
                [out, end], wanted, seeds, materialize_grads=True
            )
        found = {"out": (SCORE, out), "end": (SCORE, end), "first": (FACTOR, dfirst)}
        found |= self.named(Op.PREACT, dy) | self.named(Op.PARAM, dparams)
        if dinp:
            found["input"] = FACTOR, dinp[0]
        return {name: (kind, value.detach().double().cpu()) for name, (kind, value) in found.items()}

    def named(self, op: Op, flat: Tensor) -> dict[str, tuple[str, Tensor]]:
        """Return the gradients of all projections, or of all parameters, by name, each with its kind."""
        wide, gates = self.program.wide, self.gates()
        assert wide is not None
        extents, names = (
            (wide.projections, self.program.projections)
            if op is Op.PREACT
            else (wide.parameters, self.program.parameters)
        )
        places = columns(wide, extents, self.inp.shape[-1])
        return {
            f"{op.name.lower()} {name}": (GATE if (op, i) in gates else FACTOR, flat[..., place])
            for i, (name, place) in enumerate(zip(names, places, strict=True))
        }

    def gates(self) -> dict[Leaf, int]:
        """Return what the decays are computed from."""
        factors = parts_of(self.program).factors
        outputs = factors.of_kind("factor")
        return leaves_of(factors, [outputs[LOG_DECAY]] if LOG_DECAY in outputs else [])


def draw(
    name: str,
    dtype: torch.dtype,
    states: int,
    units: int,
    steps: int = 200,
    heads: int = 4,
    offsets: tuple[int, ...] | None = None,
) -> Recurrence:
    """Draw a recurrence of a model, or of `own_cell`, whose numbers are exact in a dtype: of three sequences with
    padding, or of packed ones."""
    torch.manual_seed(2)
    cell = own_cell(states) if name == "own" else zoo.get_cell(name, states=states)
    groups = 2 if name in ("Mamba-2", "own") else 1
    layer: Any = RationalRNN(cell, units, units, dtype=torch.float64, heads=heads, groups=groups).layers[0]
    (program,), ((params,),) = layer.programs, layer.parameter_rows(layer.weight)

    def some(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype).double()

    batch = 3 if offsets is None else 1
    rows = program.flat.state_rows[-1].stop
    n, outputs = batch if offsets is None else len(offsets) - 1, program.output_count * units
    mask = None if offsets else torch.arange(steps)[:, None] < torch.tensor([steps, steps // 3, 1])
    # Small weights of the loss, since gradients of parameters are sums over all steps.
    seeds = some(steps, batch, outputs) / 32, some(rows, n, units) / 32
    if mask is not None:
        seeds = seeds[0] * mask[..., None], seeds[1]
    y = some(steps, batch, program.columns(units))
    if name == "own":  # decays of both signs; and products of five numbers that leave tanh's middle otherwise
        params, y = torch.rand(params.shape) * torch.where(torch.rand(params.shape) < 0.5, -1, 1), y / 2
    return Recurrence(
        program,
        y,
        params.detach().to(dtype).double(),
        some(steps, batch, units),
        some(rows, n, units),
        seeds,
        mask,
        None if offsets is None else torch.tensor(offsets),
    )


def differences(
    ours: dict[str, tuple[str, Tensor]], wanted: dict[str, tuple[str, Tensor]]
) -> dict[str, tuple[str, float]]:
    """Return for each result its kind and the RMS of the difference over that of the right one."""
    found = {}
    for name, (kind, right) in wanted.items():
        norm = max(float(right.norm()), 1e-30)
        found[name] = kind, float((ours[name][1] - right).norm()) / norm if right.numel() else 0.0
    return found
