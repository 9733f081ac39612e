"""The weights of a layer: which rows of its matrices belong to which projection, parameters by name, initialisation.

`weight` holds the projections of each cell in the program's order, `units` rows each. Then follow, only where they are
needed, the projection that stands in for input() (as many rows as the layer has units), and the projected input of a
skip connection and the highway gate (as many rows as the layer has outputs). A projection with a window of K has
further rows in the matrices `lagged.1` … `lagged.K-1`, which hold only the projections that reach that far back, in
the same order.

A projection of low rank r is a product of two matrices, U V: `weight` holds the r rows of V in its place, and
`cells.C.low_rank.NAME` is U (units, r).

By default matrices are drawn uniformly from ±√(3 / (input_size · K)) for a projection that sees K inputs (K = 1 without
a window), so that pre-activations of inputs with unit variance have unit variance. Biases start at 0, and so do the
cell's own parameters, which makes each sigmoid(parameter) a half. `forget_bias` is the first value of the biases of
forget gates, the projections called f, f1, f2, … or forget…: a positive one makes a layer remember longer from the
start.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rrnn.arithmetic import TENSORS
from rrnn.automata import Cell, Evaluator
from rrnn.automata import expressions as ex
from rrnn.errors import ShapeError
from rrnn.ir import Lowered, Program
from rrnn.semirings import get_semiring


class ProjectionRows(NamedTuple):
    """The rows of one projection. `cell` is the cell's place in the layer, −1 for the layer's own rows: "input",
    "skip", "gate"."""

    cell: int
    name: str
    start: int
    stop: int
    lagged: tuple[int, ...] = ()
    """Its first row in `lagged.1`, `lagged.2`, …, as far back as its window reaches."""
    first: int = 0
    """Its first row in `weight`: `start`, unless a projection before it has a low rank."""
    rank: int | None = None
    """The number of rows that `weight` holds for it if it has a low rank."""

    @property
    def window(self) -> int:
        """The number of inputs that the projection sees."""
        return 1 + len(self.lagged)

    def of_lag(self, k: int) -> slice:
        """Return its rows in the matrix of lag k: `weight` for 0, `lagged.k` otherwise."""
        start = self.lagged[k - 1] if k else self.first
        return slice(start, start + (self.rank or self.stop - self.start))


def lay_out_rows(
    cells: Sequence[Lowered],
    programs: Sequence[Program],
    widths: Sequence[int],
    extra: Mapping[str, int],
    low_rank: Mapping[str, int],
) -> tuple[ProjectionRows, ...]:
    """Return the rows of the projections of all cells, then of the layer's own, `extra`: name → number of rows."""
    wanted = [
        (
            i,
            projection.name,
            width if wide is None else wide.numbers(wide.projections[k], width),
            projection.window,
        )
        for i, (cell, wide, width) in enumerate(zip(cells, [p.wide for p in programs], widths, strict=True))
        for k, projection in enumerate(cell.projections)
    ]
    wanted += [(-1, name, size, 1) for name, size in extra.items()]
    ends = [0] * max((window for *_, window in wanted), default=1)  # the end of each matrix so far
    rows, first = [], 0
    for cell, name, width, window in wanted:
        start, *lagged = ends[:window]
        rank = low_rank.get(name) if cell >= 0 else None
        rows.append(ProjectionRows(cell, name, start, start + width, tuple(lagged), first, rank))
        ends[:window] = [end + width for end in ends[:window]]
        first += rank or width
    return tuple(rows)


def row_count(rows: Sequence[ProjectionRows]) -> int:
    """Return how many rows these are."""
    return sum(r.stop - r.start for r in rows)


def add_columns(y: Tensor, z: Tensor, rows: Sequence[ProjectionRows]) -> Tensor:
    """Return y with the columns of z added in the place of these rows."""
    if z.shape[-1] == y.shape[-1]:
        return y + z
    parts, end, taken = [], 0, 0
    for r in rows:
        width = r.stop - r.start
        parts += [y[..., end : r.start], y[..., r.start : r.stop] + z[..., taken : taken + width]]
        end, taken = r.stop, taken + width
    return torch.cat([*parts, y[..., end:]], -1)


@dataclass(frozen=True, eq=False)
class Projection:
    """The weights of one projection, W₀ x_t + W₁ x_{t−1} + … + b. They are the layer's own parameters: what you write
    into them in place (`with torch.no_grad()`), the layer computes with."""

    rows: ProjectionRows
    matrices: tuple[Tensor, ...]
    """`weight`, `lagged.1`, …: the whole matrices, which this projection shares with others."""
    bias: Tensor | None
    """(units,); None for a projection without one."""
    left: Tensor | None = None
    """U (units, rank) of a projection of low rank, W₀ = U V; None for others."""

    @property
    def window(self) -> int:
        """The number of inputs that the projection sees: the present one and window − 1 earlier ones."""
        return self.rows.window

    def weight(self, lag: int = 0) -> Tensor:
        """Return W_lag (units, inputs), a view of the layer's matrix; a copy, U V, for a projection of low rank."""
        return self.right(lag) if self.left is None else self.left @ self.right(lag)

    def right(self, lag: int = 0) -> Tensor:
        """Return the rows of the layer's matrix, a view: V (rank, inputs) of a projection of low rank, W_lag of
        others."""
        return self.matrices[lag][self.rows.of_lag(lag)]


BIAS = ".bias"  # the end of a bias's name in programs: "f.bias"


class NamedParameters(nn.Module):
    """A table of parameters by name. Names may be anything ("half", "type"), so parameters are items here, not
    attributes."""

    def add(self, name: str, value: nn.Parameter) -> None:
        """Add a parameter under a name."""
        self._parameters[name] = value

    def __getitem__(self, name: str) -> Tensor:
        value = self._parameters[name]
        assert value is not None
        return value

    @property
    def get(self) -> Callable[[str], Tensor | None]:
        """The function that returns the parameter of a name, or None."""
        return self._parameters.get  # the table's own: a function around it would cost as much again

    def train(self, mode: bool = True) -> NamedParameters:
        object.__setattr__(self, "training", mode)  # nn.Module would look for a parameter of that name
        return self

    def __repr__(self) -> str:
        return ", ".join(self._parameters)


Draws = dict[tuple[int, tuple[int, ...]], Tensor]
"""Number of a draw, shape → what was drawn between 0 and 1."""


def first_values(leaf: ex.Linear | ex.Parameter, shape: tuple[int, ...], draws: Draws) -> Tensor:
    """Return the first values of a parameter, or of a projection's bias, in float64. What depends on an index has it
    as the axis that the shape has for it."""
    axes = {leaf.per: len(shape) - 1 if leaf.per == "unit" else 0}
    first = 0 if leaf.per == "unit" else 1
    axes |= {str(index): first + k for k, index in enumerate(ex.indices_of(leaf))}

    def value(node: ex.Expr) -> Tensor:
        if isinstance(node, ex.Uniform):
            drawn = torch.rand(shape, dtype=torch.float64)
            drawn = draws.setdefault((node.draw, shape), drawn) if node.draw else drawn
            return node.low + (node.high - node.low) * drawn
        assert isinstance(node, ex.Index)
        numbers = torch.arange(shape[axes[node.of]], dtype=torch.float64)
        return numbers.view([-1 if k == axes[node.of] else 1 for k in range(len(shape))])

    def number(value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64)

    assert leaf.start is not None
    return Evaluator(TENSORS, get_semiring("real"), value, number)(leaf.start).expand(shape)


def check_read(cell: Cell, leaf: ex.Linear | ex.Parameter, values: Tensor) -> None:
    """Raise a `ShapeError` if `leaf` alone weighs what units read, is not learned, and is zero in all states of a unit:
    the unit's score would be zero whatever is learned."""
    only = not cell.finals and [weight for _, weight in cell.reads] == [leaf] and leaf.per == "unit"
    fixed = isinstance(leaf, ex.Parameter) and not leaf.learned
    if not only or not fixed or cell.semiring.components or values.is_meta:
        return
    dead = (values == cell.semiring.zero).all(0).nonzero()
    if len(dead):
        (states, units), (family,) = values.shape, ex.families_of(leaf)
        raise ShapeError(
            f"each unit of {cell.name} must read a state of {family.name}, by the fixed weights {leaf.name!r}: with "
            f"{states} states and {units} units, unit {int(dead[0])} reads none, and its score would always be "
            f"{cell.semiring.zero:g}. Give {family.name} at least {units} states, or the layer at most {states} units."
        )


class CellParameters(nn.Module):
    """The parameters of one cell: biases of its projections, and its own learned parameters, (units,) each."""

    def __init__(
        self,
        cell: Cell,
        program: Program,
        units: int,
        bias: bool,
        low_rank: Sequence[ProjectionRows],
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.units = units
        self.wide = program.wide
        self.names = tuple((name.endswith(BIAS), name.removesuffix(BIAS)) for name in program.parameters)
        self.shapes = [self._shape(k) for k in range(len(self.names))]
        self.bias, self.parameter, self.low_rank = NamedParameters(), NamedParameters(), NamedParameters()
        for r in low_rank:
            factor = torch.empty(r.stop - r.start, r.rank or 0, device=device, dtype=dtype)
            self.low_rank.add(r.name, nn.Parameter(factor))
        nodes = (node for expression in cell.expressions() for node in ex.walk(expression))
        leaves = {node.name: node for node in nodes if isinstance(node, (ex.Linear, ex.Parameter))}
        self.leaves = [leaves[name] for _, name in self.names]
        for (is_bias, name), shape in zip(self.names, self.shapes, strict=True):
            if bias or not is_bias:
                value = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                (self.bias if is_bias else self.parameter).add(name, value)
        self.cell = cell
        self.freeze_fixed()

    def freeze_fixed(self) -> None:
        """Mark the parameters that the cell does not learn."""
        for leaf in self.leaves:
            if isinstance(leaf, ex.Parameter) and not leaf.learned:
                self.parameter[leaf.name].requires_grad_(False)

    def reset(self, gate_biases: Mapping[str, float]) -> set[str]:
        """Give all parameters their first values, `gate_biases` to the biases of these kinds of gates ("forget",
        "output"); return the kinds that have a bias here."""
        found, draws = set[str](), Draws()
        for factor in self.low_rank.parameters():
            uniform_rows(factor, factor.shape[1])
        for (is_bias, name), leaf, shape in zip(self.names, self.leaves, self.shapes, strict=True):
            value = (self.bias if is_bias else self.parameter).get(name)
            if value is None:
                continue
            kinds = [kind for kind in gate_biases if is_bias and is_gate(name, kind)]
            found.update(kinds)
            first = sum(gate_biases[kind] for kind in kinds)
            if leaf.start is not None and not first:
                values = first_values(leaf, shape, draws)
                check_read(self.cell, leaf, values)
                value.copy_(values)
            else:
                value.fill_(first)
        return found

    def _shape(self, k: int) -> tuple[int, ...]:
        """Return the shape of parameter k: (units,), with families before units, and after heads or groups."""
        if self.wide is None:
            return (self.units,)
        extent = self.wide.parameters[k]
        sizes = tuple(self.wide.sizes[f][1] for f in extent.over)
        sharers = (self.wide.sharers(extent, self.units),)
        return (*sizes, *sharers) if extent.per == "unit" else (*sharers, *sizes)

    def rows(self, like: Tensor) -> list[Tensor] | Tensor:
        """Return P rows (units,) in the program's order; biases that the layer does not have are zeros. For a program
        of families return one flat row of them all, (1, P)."""
        if not self.names:
            return like.new_zeros(0, self.units) if self.wide is None else like.new_zeros(1, 0)
        biases, learned = self.bias.get, self.parameter.get  # looked up once: attributes of modules are slow
        rows = [biases(name) if is_bias else learned(name) for is_bias, name in self.names]
        if self.wide is not None:
            pairs = zip(rows, self.shapes, strict=True)
            return torch.cat([(like.new_zeros(s) if r is None else r).flatten() for r, s in pairs])[None]
        return [like.new_zeros(self.units) if row is None else row for row in rows]


SATURATED = 1e4  # σ of it is exactly 1, its gradient exactly 0; half precision can hold it


def is_gate(projection: str, kind: str) -> bool:
    """Return whether a projection is a gate of this kind by its name: f, f1, f2, … or forget… for "forget"."""
    return re.fullmatch(rf"{kind[0]}\d*|{kind}\w*", projection) is not None


def is_forget_gate(projection: str) -> bool:
    """Return whether a projection is a forget gate, by its name."""
    return is_gate(projection, "forget")


def uniform_rows(weight: Tensor, input_size: int, window: int = 1) -> None:
    """Fill rows of a matrix with the default initialisation, in place."""
    bound = math.sqrt(3 / (max(input_size, 1) * window))
    nn.init.uniform_(weight, -bound, bound)
