"""Define two semirings as a user would, a cell and a machine over them, and the loop that layers are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import rrnn
from rrnn import WFSA, Cell, RationalRNN, Semiring, construct, linear, one, parameter, score
from rrnn.arithmetic import TENSORS, Range
from rrnn.automata import Expr
from rrnn.semirings.epsilon_closure import always
from rrnn.wfsa import EPSILON

LUKASIEWICZ = Semiring(
    "Łukasiewicz",
    zero=0.0,
    one=1.0,
    plus=lambda s, a, b: s.max(a, b),
    times=lambda s, a, b: s.max(a + b - 1.0, 0.0),
    star=lambda s, a: 1.0,
    star_exists=lambda s, a: s.ge(a, 0.0),
    star_domain="every a",
    converges=always,
    values=Range(0.0, 1.0),
    set_description="[0, 1]",
    plus_symbol="max",
    selective=True,
    one_absorbs=True,
    has_gradient=True,
    strength=lambda s, a: a - 1.0,  # adds along a path, unless the path is cut off at 0
    strength_adds=True,
)
DUAL = Semiring(
    "dual",
    components=("x", "dx"),
    zero=(0.0, 0.0),
    one=(1.0, 0.0),
    plus=lambda s, a, b: (a[0] + b[0], a[1] + b[1]),
    times=lambda s, a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[0]),
    set_description="pairs ⟨x, dx⟩",
    has_gradient=True,
    strength=lambda s, a: s.abs(a[0]),
    magnitude=lambda s, a: s.abs(a[0]),
    constructors={"dual": (("x", "dx"), lambda s, x, dx: (x, dx))},
)
T, BATCH, INPUTS, UNITS = 7, 2, 3, 4


# ---- the cell, and the loop it is compared with ---------------------------------------------------------------


def weight(ring: Semiring, name: str) -> Expr:
    """Return a weight close to one, so that ⊗ does not cut everything off at 0."""
    gate = rrnn.sigmoid(2 + linear(name, bias=True))
    return construct("dual", gate, linear(f"d{name}")) if ring is DUAL else gate


def constant(ring: Semiring, x: float) -> Any:
    return construct("dual", x, parameter("dr")) if ring is DUAL else x


def bigrams(ring: Semiring) -> Cell:
    """Return a cell like F: unigrams and bigrams with a loop at each state, and an ε-arc that skips the first word."""
    cell = Cell("own", ring).initial("q0").loop("q0", one)
    cell = cell.arc("q0", "q1", weight(ring, "u")).loop("q1", weight(ring, "f"))
    cell = cell.arc("q1", "q2", weight(ring, "v")).loop("q2", weight(ring, "g"))
    cell = cell.epsilon("q0", "q1", constant(ring, 0.75)).final("q1", constant(ring, 0.5)).final("q2")
    return cell if ring is DUAL else cell.output(score, rrnn.tanh(score))


def layer_of(ring: Semiring, dtype: torch.dtype = torch.float64, **options: Any) -> RationalRNN:
    torch.manual_seed(0)
    layer = RationalRNN(bigrams(ring), INPUTS, UNITS, dtype=dtype, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=0.5)
    return layer


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(T, BATCH, INPUTS, generator=torch.Generator().manual_seed(1)).to(dtype)


def by_definition(ring: Semiring, layer: RationalRNN, x: Tensor) -> list[list[list[Any]]]:
    """Return the scores [t][b][unit], made of 0-dimensional tensors with gradients."""
    cell: Any = layer.layers[0]
    biases, learned = cell.cells[0].bias, cell.cells[0].parameter

    def at(t: int, b: int, unit: int) -> Callable[[str], Any]:
        def preact(name: str) -> Tensor:
            return cell.projection(0, name).weight(0)[unit] @ x[t, b]

        def element(name: str) -> Any:
            gate = (2 + preact(name) + biases[name][unit]).sigmoid()
            return (gate, preact(f"d{name}")) if ring is DUAL else gate

        return element

    def fixed(number: float, unit: int) -> Any:
        return (x.new_tensor(number), learned["dr"][unit]) if ring is DUAL else x.new_tensor(number)

    def plus(*terms: Any) -> Any:
        total = terms[0]
        for term in terms[1:]:
            total = ring.plus(total, term, TENSORS)
        return total

    def times(a: Any, b: Any) -> Any:
        return ring.times(a, b, TENSORS)

    nothing = ring.element(x.new_tensor(z) for z in ring.numbers_of(ring.zero))
    found: list[list[list[Any]]] = [[[] for _ in range(BATCH)] for _ in range(T)]
    for b in range(BATCH):
        for unit in range(UNITS):
            q1 = q2 = nothing
            skip = fixed(0.75, unit)
            for t in range(T):
                w = at(t, b, unit)
                before = plus(q1, skip)  # q0 holds 1̄, and an ε-arc leads to q1
                q1, q2 = plus(times(before, w("f")), w("u")), plus(times(q2, w("g")), times(before, w("v")))
                found[t][b].append(plus(times(plus(q1, skip), fixed(0.5, unit)), q2))
    return found


def expected(ring: Semiring, layer: RationalRNN, x: Tensor) -> Tensor:
    """Return the output of the layer, of shape (T, B, 2·units)."""
    table = by_definition(ring, layer, x)
    if ring is DUAL:
        parts = [[[[e[i] for e in row] for row in step] for step in table] for i in range(2)]
    else:
        parts = [table, [[[e.tanh() for e in row] for row in step] for step in table]]
    both = [torch.stack([torch.stack([torch.stack(row) for row in step]) for step in p]) for p in parts]
    return torch.cat(both, -1)


def machine_over(ring: Semiring) -> WFSA:
    def w(x: float, dx: float) -> Any:
        return (x, dx) if ring is DUAL else x

    return WFSA(
        ring,
        alphabet="ab",
        arcs=[
            *((0, "a", 0, w(0.9, 0.5)), (0, "b", 0, w(0.75, -1.0)), (0, "a", 1, w(0.8, 2.0))),
            *((1, "b", 1, w(0.95, 0.0)), (0, EPSILON, 1, w(0.5, 0.25)), (1, "a", 1, w(0.7, 1.0))),
        ],
        initial={0: ring.one},
        final={1: w(0.9, -0.5)},
    )
