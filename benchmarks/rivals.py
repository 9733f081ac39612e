"""The paper's cells as a person would write them in torch: gates of all steps at once, then a loop over steps.

Each takes the pre-activations, parameters and first states by the names that the cell gives them, (T, B, D), (D) and
(B, D), and returns the output (T, B, D). A test compares them with the compiled cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rrnn import Cell, get_cell, linear, log_sigmoid, one, score, tanh
from rrnn.ir import Program, lower

Named = dict[str, Tensor]
Eager = Callable[[Named, Named, Named], Tensor]


def steps(*sequences: Tensor) -> zip[tuple[Tensor, ...]]:
    return zip(*(s.unbind(0) for s in sequences), strict=True)


def b(x: Named, p: Named, state: Named) -> Tensor:
    f = torch.sigmoid(x["f"] + p["f.bias"])
    u = (1 - f) * x["u"]
    c, cs = state["q1"], []
    for f_t, u_t in steps(f, u):
        c = f_t * c + u_t
        cs.append(c)
    return torch.tanh(torch.stack(cs))


def b_max_plus(x: Named, p: Named, state: Named) -> Tensor:
    f = logsigmoid(x["f"] + p["f.bias"])
    c, cs = state["q1"], []
    for f_t, u_t in steps(f, x["u"]):
        c = torch.maximum(f_t + c, u_t)
        cs.append(c)
    return torch.tanh(torch.stack(cs))


def b_log(x: Named, p: Named, state: Named) -> Tensor:
    f = logsigmoid(x["f"] + p["f.bias"])
    c, cs = state["q1"], []
    for f_t, u_t in steps(f, x["u"]):
        c = torch.logaddexp(f_t + c, u_t)
        cs.append(c)
    return torch.tanh(torch.stack(cs))


def c(x: Named, p: Named, state: Named) -> Tensor:
    f1, f2 = torch.sigmoid(x["f1"] + p["f1.bias"]), torch.sigmoid(x["f2"] + p["f2.bias"])
    u1, u2 = (1 - f1) * x["u1"], (1 - f2) * x["u2"]
    c1, c2, cs = state["q1"], state["q2"], []
    for f1_t, u1_t, f2_t, u2_t in steps(f1, u1, f2, u2):
        c2 = f2_t * c2 + c1 * u2_t
        c1 = f1_t * c1 + u1_t
        cs.append(c2)
    return torch.tanh(torch.stack(cs))


def f(x: Named, p: Named, state: Named) -> Tensor:
    f1, f2 = torch.sigmoid(x["f1"] + p["f1.bias"]), torch.sigmoid(x["f2"] + p["f2.bias"])
    u1, u2 = (1 - f1) * x["u1"], (1 - f2) * x["u2"]
    r, p1, p2 = torch.sigmoid(p["r"]), torch.sigmoid(p["p1"]), torch.sigmoid(p["p2"])
    c1, c2, c1s, c2s = state["q1"], state["q2"], [], []
    for f1_t, u1_t, f2_t, u2_t in steps(f1, u1, f2, u2):
        c2 = f2_t * c2 + (c1 + r) * u2_t
        c1 = f1_t * c1 + u1_t
        c1s.append(c1)
        c2s.append(c2)
    return torch.tanh(p1 * torch.stack(c1s) + p2 * torch.stack(c2s))


def log_b() -> Cell:
    """B over the log semiring: a soft B over max-plus."""
    return (
        Cell("B_log", semiring="log")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", linear("u")).loop("q1", log_sigmoid(linear("f", bias=True)))
        .final("q1")
        .output(tanh(score))
    )  # fmt: skip


class Case(NamedTuple):
    """A cell and its rival."""

    name: str
    program: Program
    eager: Eager

    def run_eager(self, x: Tensor, params: Tensor, state: Tensor) -> Tensor:
        """The rival on what `rrnn.ops.rational` takes: x (T, B, K·D), as a matrix product leaves it."""
        names = self.program.projections, self.program.parameters, self.program.states
        parts = x.chunk(len(self.program.projections), -1), params.unbind(0), state.unbind(0)
        return self.eager(*(dict(zip(n, t, strict=True)) for n, t in zip(names, parts, strict=True)))


def cases() -> list[Case]:
    return [
        Case("B", lower(get_cell("B")).program, b),
        Case("B max-plus", lower(get_cell("B-max-plus")).program, b_max_plus),
        Case("C", lower(get_cell("C")).program, c),
        Case("F", lower(get_cell("F")).program, f),
        Case("log-B", lower(log_b()).program, b_log),
    ]
