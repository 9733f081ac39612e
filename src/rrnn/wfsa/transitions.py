"""One time step of Forward for many strings at once: α ← α ⊗ τ(x_t), then closed under ε.

`Matrices` multiplies rows α with one matrix for each symbol. `Closure` closes rows under arcs that consume nothing:
α ← α ⊗ A*, where A is the matrix of those arcs. It takes states in topological order of the strongly connected
components of A. Inside a component that is a cycle, the sum over all ways round is the star of its block; where that
does not exist, the error names the cycle. Forward closes under the ε-arcs, and `total_weight` under all arcs at once,
whatever they consume. `Transitions` combines the two for the arcs of a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.semirings import Semiring
from rrnn.semirings.tensor_products import BLOCK, DivergesError
from rrnn.wfsa.automaton import Automaton
from rrnn.wfsa.graph import components, cycle_through, successors

_DENSE = 1 << 22  # the most numbers in the matrices of all symbols; larger machines are walked arc by arc, …
_CROWDED = 0.25  # … unless at least this share of the numbers belongs to arcs
_PAIRS = 1 << 20  # the (string, arc) pairs that are walked at a time
_LARGEST_MATRIX = (
    1024  # the most states for which A* is stored as a matrix; otherwise it is applied arc by arc
)

Groups = list[tuple[int, int]]
"""(symbol, number of rows) of rows that are grouped by symbol."""


# ---- products ----------------------------------------------------------------------------------------------


class Matrices:
    """Multiply rows with a stack of matrices over one semiring, stored as columns: (S, targets, sources)."""

    def __init__(self, ring: Semiring, columns: Tensor) -> None:
        self.ring, self.columns = ring, columns
        self._split: tuple[Tensor, ...] | None = None
        self._prepared = ring.products.prepare(ring, columns)

    def times(self, rows: Tensor, groups: Groups) -> Tensor:
        """Return the rows (n, sources), each times the matrix of its group: (n, targets)."""
        per_row = self.columns[0].numel()
        if rows.shape[0] * per_row < self.ring.products.gather * (len(groups) - 1):
            return self._one_matrix_per_row(rows, groups, per_row)
        if self._split is None:  # one node of the graph: the gradient of each slice would be a whole stack
            self._split = self.columns.unbind(0)
        if len(groups) == 1:
            return self._product(rows, groups[0][0])
        blocks = rows.split([count for _, count in groups])
        return torch.cat([self._product(block, s) for block, (s, _) in zip(blocks, groups, strict=True)])

    def _product(self, rows: Tensor, s: int) -> Tensor:
        assert self._split is not None
        prepared = None if self._prepared is None else self._prepared[s]
        return self.ring.products.product(self.ring, rows, self._split[s], prepared)

    def _one_matrix_per_row(self, rows: Tensor, groups: Groups, per_row: int) -> Tensor:
        """Copy a matrix for every row and take all products at once, which is faster for many small groups."""
        symbols = symbol_of_each_row(groups)
        step = max(1, 8 * BLOCK // per_row)
        parts = []
        for block, which in zip(rows.split(step), symbols.split(step), strict=True):
            parts.append(self.ring.products.each(self.ring, block, self.columns.index_select(0, which)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def symbol_of_each_row(groups: Groups) -> Tensor:
    """Return the symbol of each row."""
    return torch.from_numpy(np.repeat(*np.array(groups, dtype=np.int64).T))


def segment_plus(ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
    """Return the ⊕ of the (m,) values of each segment: (size,), with 0̄ for an empty segment."""
    return ring.products.segments(ring, values, segment, size)


# ---- closure under arcs that consume nothing ---------------------------------------------------------------


@dataclass
class _Level:
    """Hold components that have no arcs between them, and the arcs that leave them."""

    stars: list[tuple[Tensor, Matrices]]
    source: Tensor
    target: Tensor
    weight: Tensor


class Closure:
    """Map n rows α of Q elements each to α ⊗ A*."""

    def __init__(self, ring: Semiring, states: int, levels: list[_Level], touched: Tensor) -> None:
        self.ring, self.states, self.levels, self.touched = ring, states, levels, touched
        self.matrix: Matrices | None = None
        if touched.numel() <= _LARGEST_MATRIX:
            unit = ring.zeros(touched.numel(), states)
            unit[torch.arange(touched.numel()), touched] = ring.ones(touched.numel())
            rows = self._by_levels(unit)[:, touched]
            self.matrix = Matrices(ring, rows.transpose(0, 1).contiguous().unsqueeze(0))

    def __call__(self, alpha: Tensor) -> Tensor:
        if self.matrix is None:
            return self._by_levels(alpha)
        n = alpha.shape[0]
        if self.touched.numel() == self.states:
            return self.matrix.times(alpha, [(0, n)])
        return alpha.index_copy(1, self.touched, self.matrix.times(alpha[:, self.touched], [(0, n)]))

    def _by_levels(self, alpha: Tensor) -> Tensor:
        n = alpha.shape[0]
        for level in self.levels:
            for members, star in level.stars:
                alpha = alpha.index_copy(1, members, star.times(alpha[:, members], [(0, n)]))
            if level.source.numel():
                targets, place = level.target.unique(return_inverse=True)
                arrived = self.ring.t_times(alpha[:, level.source], level.weight)
                row = torch.arange(n).unsqueeze(1) * targets.numel()
                arrived = segment_plus(
                    self.ring, arrived.flatten(0, 1), (row + place).flatten(), n * targets.numel()
                ).unflatten(0, (n, targets.numel()))
                alpha = alpha.index_copy(1, targets, self.ring.t_plus(alpha[:, targets], arrived))
        return alpha


def closure_under(
    ring: Semiring,
    names: Sequence[Any],
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    label: str = "ε",
) -> Closure | None:
    """Return the closure under arcs (each source → target at most once), or None if there are none.

    The message for a closure that does not exist uses the `names` of the states and the `label` of the arcs.
    """
    if not source.numel():
        return None
    edges = list(zip(source.tolist(), target.tolist(), strict=True))
    follows = successors(len(names), edges)
    parts = components(follows)
    part_of = {q: i for i, part in enumerate(parts) for q in part}
    depth = [0] * len(parts)
    for i, part in enumerate(parts):
        for q in part:
            for p in follows[q]:
                if part_of[p] != i:
                    depth[part_of[p]] = max(depth[part_of[p]], depth[i] + 1)
    inside = torch.tensor([part_of[q] == part_of[p] for q, p in edges])
    arc_part = torch.tensor([part_of[q] for q, _ in edges])
    arc_depth = torch.tensor([depth[part_of[q]] for q, _ in edges])
    blocks: dict[int, list[tuple[Tensor, Matrices]]] = {}
    for i in sorted(set(arc_part[inside].tolist())):
        arcs = (inside & (arc_part == i)).nonzero().flatten()
        members = torch.tensor(parts[i])
        position = torch.searchsorted(members, torch.stack((source[arcs], target[arcs])))
        block = ring.zeros(len(parts[i]), len(parts[i]))
        block = block.index_put((position[0], position[1]), weight[arcs])
        star = _star(ring, block, follows, parts[i], names, label)
        blocks.setdefault(depth[i], []).append(
            (members, Matrices(ring, star.transpose(0, 1).contiguous().unsqueeze(0)))
        )
    levels = []
    for d in sorted({*arc_depth.tolist()}):
        arcs = (~inside & (arc_depth == d)).nonzero().flatten()
        arcs = arcs[source[arcs].argsort(stable=True)]  # if arcs tie, the first source wins
        levels.append(_Level(blocks.get(d, []), source[arcs], target[arcs], weight[arcs]))
    return Closure(ring, len(names), levels, torch.cat((source, target)).unique())


def _star(
    ring: Semiring, block: Tensor, follows: list[list[int]], part: list[int], names: Sequence[Any], label: str
) -> Tensor:
    """Return A* = I ⊕ A ⊕ A² ⊕ … of one strongly connected block."""

    def diverges(k: int, why: str) -> AutomatonError:
        cycle = f" →{label} ".join(str(names[q]) for q in cycle_through(follows, part[k], part))
        what = "ε-arcs form" if label == "ε" else "arcs form"
        return AutomatonError(
            f"{what} the cycle {cycle}, and the sum over all ways round it does not exist in {ring.name}: "
            f"a star exists only for {ring.star_domain}; {why}. Make the weights of the cycle smaller, or "
            "remove one of its arcs."
        )

    try:
        return ring.products.star(ring, block)
    except DivergesError as error:
        raise diverges(error.state, error.why) from None


# ---- steps -------------------------------------------------------------------------------------------------


class Transitions:
    """Step over the arcs of a machine: as matrices, or arc by arc. Results are differentiable in the weights."""

    def __init__(self, machine: Automaton) -> None:
        self.machine, self.ring = machine, machine.semiring
        consuming = (machine.arc_symbol >= 0).nonzero().flatten()
        numbers = len(machine.alphabet) * machine.num_states**2 * self.ring.size
        self.dense = numbers <= _DENSE or consuming.numel() * self.ring.size >= _CROWDED * numbers
        if self.dense:
            shape = (len(machine.alphabet), machine.num_states, machine.num_states)
            place = (
                machine.arc_symbol[consuming],
                machine.arc_target[consuming],
                machine.arc_source[consuming],
            )
            empty = self.ring.zeros(*shape)
            self.matrices = Matrices(self.ring, empty.index_put(place, machine.arc_weight[consuming]))
        else:
            # Sort by symbol, then by source, so that the first source wins if arcs tie.
            code = machine.arc_symbol[consuming] * machine.num_states + machine.arc_source[consuming]
            self.order = consuming[code.argsort(stable=True)]
            counts = torch.bincount(machine.arc_symbol[consuming], minlength=len(machine.alphabet))
            self.counts, self.starts = counts, counts.cumsum(0) - counts
        self.close: Closure | None = epsilon_closure(machine)

    def initial(self, rows: int, *, closed: bool = True) -> Tensor:
        """Return λ for each of the rows, (rows, Q), closed under ε by default."""
        alpha = self.machine.initial_weight.unsqueeze(0)
        alpha = self.close(alpha) if closed and self.close else alpha
        return alpha.expand(rows, *alpha.shape[1:])

    def step(self, alpha: Tensor, groups: Groups) -> Tensor:
        """Return the rows (n, Q) after one more symbol each, before any ε-arcs."""
        return self.matrices.times(alpha, groups) if self.dense else self._walk(alpha, groups)

    def _walk(self, alpha: Tensor, groups: Groups) -> Tensor:
        machine, states = self.machine, self.machine.num_states
        symbols = symbol_of_each_row(groups)
        most = max(1, max(int(self.counts[s]) for s, _ in groups))
        parts = []
        for block, which in zip(
            alpha.split(max(1, _PAIRS // most)), symbols.split(max(1, _PAIRS // most)), strict=True
        ):
            counts = self.counts[which]
            row = torch.arange(which.numel()).repeat_interleave(counts)
            first = (self.starts[which] - (counts.cumsum(0) - counts)).repeat_interleave(counts)
            arc = self.order[first + torch.arange(row.numel())]
            values = self.ring.t_times(block[row, machine.arc_source[arc]], machine.arc_weight[arc])
            into = row * states + machine.arc_target[arc]
            landed = segment_plus(self.ring, values, into, which.numel() * states)
            parts.append(landed.unflatten(0, (which.numel(), states)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def epsilon_closure(machine: Automaton) -> Closure | None:
    """Return the closure under the ε-arcs of a machine, or None if it has none."""
    arcs = (machine.arc_symbol < 0).nonzero().flatten()
    return closure_under(
        machine.semiring,
        machine.states,
        machine.arc_source[arcs],
        machine.arc_target[arcs],
        machine.arc_weight[arcs],
    )


def transitions(machine: Automaton) -> Transitions:
    """Return the machine's transitions, cached."""
    return machine.cached("transitions", lambda: Transitions(machine))
