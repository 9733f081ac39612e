"""Layers of cells with families of states, for tests of all that runs them."""

from __future__ import annotations

from typing import Any

import torch

from rrnn import RationalRNN, zoo
from rrnn.automata import (
    Cell,
    Expr,
    construct,
    family,
    linear,
    log_sigmoid,
    one,
    parameter,
    score,
    sigmoid,
    tanh,
)
from rrnn.semirings import get_semiring

DELTA = {"DeltaNet", "Gated-DeltaNet"}
HEADS = {
    "linear-attention",
    "RetNet",
    "GLA",
    "HGRN2",
    "Mamba-2",
    "Mamba-3",
    "RWKV-6",
    *DELTA,
}  # those that are published with several


def build(name: str, states: int = 5, units: int = 12, **options: Any) -> RationalRNN:
    cell = zoo.get_cell(name) if name == "LRU" else zoo.get_cell(name, states=states)
    if name in HEADS:
        options = {"heads": 4} | options
    if name in ("Mamba-2", "Mamba-3"):
        options = {"groups": 2} | options
    torch.manual_seed(0)
    rnn = RationalRNN(cell, units, units, dtype=options.pop("dtype", torch.float64), **options)
    for value in rnn.parameters():
        if value.requires_grad:
            with torch.no_grad():
                value.add_(torch.randn_like(value) * 0.3)
    if name in DELTA:  # the delta rule is stable for keys of at most length √2
        with torch.no_grad():
            rnn.layers[0].projection(0, "k").weight().mul_(0.4 / units**0.5)  # type: ignore[operator]
    return rnn


def over(semiring: str, single: bool = True) -> Cell:
    """Return a cell with a family and a read-out, over some semiring; `single`: with an arc into one state, too."""
    h = family("h", 4)
    ring = get_semiring(semiring)
    gate = log_sigmoid if ring.logarithmic or semiring == "signed-log" else sigmoid
    sign = -1 if ring.logarithmic and not ring.maximum else 1

    def weight(x: Expr, sign: float = sign) -> Expr:
        return construct("signed", sign, gate(x)) if semiring == "signed-log" else sign * gate(x)

    entry, loop = (weight(linear(n, over=h, per="head", bias=True)) for n in ("a", "f"))
    out, end = (weight(parameter(n, over=h)) for n in ("r", "e"))
    cell = Cell("family", semiring).initial("q0").loop("q0", one).arc("q0", h, entry).loop(h, loop)
    if single:
        cell = cell.arc(h, "q2", end).loop("q2", weight(linear("g"))).read("q2", one)
    cell = cell.read(h, out)
    parts = [getattr(score, name) for name in ring.components] or [score]
    return cell.output(*(tanh(part) for part in parts))
