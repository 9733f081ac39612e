"""Provide cells by name (of the zoo, and random ones of every semiring) and random arguments of `rational`."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from rrnn import zoo
from rrnn.automata import (
    Cell,
    Expr,
    complex,
    input,
    linear,
    log_sigmoid,
    one,
    pair,
    parameter,
    polar,
    score,
    sigmoid,
    softplus,
    tanh,
)
from rrnn.automata import exp as exp_
from rrnn.ir import Program, lower
from rrnn.ops import initial_state

GRADIENT_SEMIRINGS = (
    "real",
    "log",
    "max-plus",
    "min-plus",
    "max-times",
    "complex",
    "expectation",
    "signed-log",
)
CORE = ("B", "B-max-plus", "C", "F", "ngram4", "SRU")
"""The cells of the zoo that every backend and option is tested with; tests/zoo tests the equations of every model."""
RANDOM_CELLS = tuple(f"{semiring}-{seed}" for semiring in GRADIENT_SEMIRINGS for seed in (1, 2, 3))
ALL_CELLS = (*CORE, "F+o", "B-max-plus+o", *RANDOM_CELLS)
"""Names that `cell` knows: adding one here puts it through the tests of every op and backend."""
MECHANICS_CELLS = ("B-max-plus", "F", "complex-1")
"""The cells that stand for all others where a test is about what all cells share: padding, layouts, pieces of a
sequence, saved states. The first has one state, whose zero is infinite. The second has two, learned parameters and an
ε-arc. The third has four states of two components each, two outputs, and reads the layer's input. Equations and
gradients are tested on every cell."""
ALL_CELLS_SOME_SLOW = [
    name
    if name not in RANDOM_CELLS or name in MECHANICS_CELLS
    else pytest.param(name, marks=pytest.mark.slow)
    for name in ALL_CELLS
]
"""All cells for tests that compile or differentiate: `make quick` leaves random ones out."""


@cache
def cell(name: str) -> Cell:
    """Return the cell of a name: a random one such as "log-2", or one of the zoo."""
    if name in RANDOM_CELLS:
        semiring, _, seed = name.rpartition("-")
        return random_cell(semiring, int(seed))
    return zoo.get_cell(name)


def _weight(rng: random.Random, semiring: str, name: str) -> Expr:
    """Return a random weight of an arc, made of gates and inputs, small enough not to explode over many steps."""
    gate, plain = linear(name, bias=rng.random() < 0.5), linear(f"{name}_v")
    if semiring == "complex":
        return rng.choice(
            [polar(sigmoid(gate), plain), complex(0.5 * tanh(plain), 0.3 * plain), sigmoid(gate)]
        )
    if semiring == "expectation":
        return rng.choice([pair(sigmoid(gate), 0.3 * plain), sigmoid(gate)])
    if semiring == "signed-log":  # all of one sign, because terms that cancel lose digits in any arithmetic
        return rng.choice([sigmoid(gate), exp_(0.2 * plain - 0.3)])
    if semiring == "real":
        return rng.choice([sigmoid(gate), (1 - sigmoid(gate)) * plain, 0.5 * tanh(plain)])
    if semiring in ("log", "max-plus"):
        return rng.choice([log_sigmoid(gate), 0.3 * plain - 0.5])
    if semiring == "min-plus":
        return rng.choice([softplus(gate), 0.3 * plain + 0.5])
    return rng.choice([sigmoid(gate), exp_(0.2 * plain - 0.3)])


def _constant(rng: random.Random, semiring: str, name: str) -> Expr:
    """Return a random initial, ε or final weight."""
    if rng.random() < 0.4:
        return one
    if semiring in ("log", "max-plus"):
        return log_sigmoid(parameter(name))
    return softplus(parameter(name)) if semiring == "min-plus" else sigmoid(parameter(name))


def random_cell(semiring: str, seed: int, *, states: int = 4, density: float = 0.35) -> Cell:
    """Return a random cell: a chain, so that some path always accepts, more arcs, acyclic ε-arcs, and an output
    that reads the score, a projection and, for odd seeds, the layer's input."""
    rng = random.Random(f"{semiring} {seed}")
    names = [f"q{i}" for i in range(states)]
    cell = Cell(f"random{seed}", semiring).initial("q0")
    if rng.random() < 0.5:
        cell = cell.loop("q0", one)
    for i, p in enumerate(names):
        for j, q in enumerate(names):
            if (i == j and (i or not cell.arcs)) or j == i + 1 or rng.random() < density:
                cell = cell.arc(p, q, _weight(rng, semiring, f"a{i}{j}"), merge="plus")
            if i < j and rng.random() < density / 2:
                cell = cell.epsilon(p, q, _constant(rng, semiring, f"e{i}{j}"))
    if rng.random() < 0.5:
        cell = cell.initial("q1", _constant(rng, semiring, "l1"))
    cell = cell.final(names[-1], _constant(rng, semiring, "r3")).final("q1", _constant(rng, semiring, "r1"))
    scores = [getattr(score, c) for c in cell.semiring.components] or [score]
    outputs = [tanh(s) * sigmoid(linear("o", bias=True)) for s in scores]
    outputs = outputs if seed % 3 else outputs[-1:]
    return cell.output(*(o + 0.5 * input() if seed % 2 else o for o in outputs)).check()


@dataclass
class Call:
    """The arguments of `rrnn.ops.rational` for one or more cells side by side."""

    programs: list[Program]
    x: Tensor
    params: list[Tensor]
    states: list[Tensor]
    inp: Tensor | None
    mask: Tensor | None = None

    @property
    def leaves(self) -> list[Tensor]:
        """Return every tensor that requires a gradient: x, the input if it is read, parameters, states."""
        inp = [] if self.inp is None else [self.inp]
        return [t for t in (self.x, *inp, *self.params, *self.states) if t.requires_grad]

    def to(self, dtype: torch.dtype) -> Call:
        """Return a copy with x and the input in another dtype; parameters and states keep theirs."""
        fresh = self.detached()
        fresh.x, fresh.inp = fresh.x.to(dtype), None if fresh.inp is None else fresh.inp.to(dtype)
        return fresh

    def detached(self) -> Call:
        """Return a copy whose tensors are leaves of their own."""

        def fresh(t: Tensor) -> Tensor:
            return t.detach().clone().requires_grad_(t.requires_grad)

        inp = None if self.inp is None else fresh(self.inp)
        params, states = [fresh(p) for p in self.params], [fresh(s) for s in self.states]
        return replace(self, x=fresh(self.x), params=params, states=states, inp=inp)


def make_call(
    *names: str,
    steps: int = 5,
    batch: int = 2,
    units: int = 3,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    random_state: bool = True,
    grad: bool = True,
) -> Call:
    """Return random arguments for these cells; each cell has one unit more than the one before."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_(grad)

    state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    programs = [lower(cell(name)).program for name in names]
    widths = [units + i for i in range(len(names))]
    params = [draw(len(p.parameters), w, dtype=state_dtype) for p, w in zip(programs, widths, strict=True)]
    states = []
    for program, p, width in zip(programs, params, widths, strict=True):
        drawn = draw(len(program.flat.states), batch, width, dtype=state_dtype)
        if program.semiring_name == "max-times":
            drawn = drawn.detach().abs().requires_grad_(grad)
        if program.semiring_name == "signed-log":
            rows = drawn.detach().clone()
            rows[::2] = 1.0
            drawn = rows.requires_grad_(grad)
        first = initial_state(program, p, batch).detach().requires_grad_(grad)
        states.append(drawn if random_state else first)
    columns = sum(len(p.projections) * w for p, w in zip(programs, widths, strict=True))
    inp = draw(steps, batch, sum(widths)) if any(p.uses_input for p in programs) else None
    return Call(programs, draw(steps, batch, columns), params, states, inp)
