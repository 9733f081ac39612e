"""An automaton unrolled over the steps of an input, with its forward and backward tables, totals and masses.

A trellis has the same states at every position 0 … T. Step t follows one of its edges from position t to t + 1; a
*silent* edge stays at its position. Weights are tensors of elements, (edges, *lanes): many units and sentences, the
lanes, are computed together, and one string has no lanes. `rrnn.wfsa.strongest` finds the strongest paths of a trellis.

A table is closed (it includes the silent edges at its position) or open (it does not). A closed and an open table give
the total at every position: total = ⊕_q forward[t, q] ⊗ backward[t, q]. Two closed ones would count silent edges twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.semirings import Semiring
from rrnn.semirings.epsilon_closure import TensorMatrix, kleene

_FAR = 2.0**128  # rows whose greatest entry leaves [1/_FAR, _FAR] are rescaled by a power of two
_BLOCK = 32  # steps whose rows are checked for that together


class Scale:
    """Keep rows of plus-times numbers in the range of floats.

    α is stored as α·2⁻ᵏ, with one k for each row, so that a score is correct whenever it fits a float64, whatever the
    weights on the way to it. Multiplying with powers of two does not round.
    """

    def __init__(self, ring: Semiring) -> None:
        self.active = ring.scales
        self.exponent: Tensor | None = None

    def exponents(self, rows: int) -> Tensor:
        return torch.zeros(rows, dtype=torch.int32) if self.exponent is None else self.exponent

    def take(self, rows: Tensor) -> None:
        if self.exponent is not None:
            self.exponent = self.exponent[rows]

    def bring_back(self, alpha: Tensor) -> Tensor:
        if not self.active or not alpha.numel():
            return alpha
        peak = alpha.detach().abs().flatten(1).amax(1)  # one power of two scales all components of a row
        low, high = peak.aminmax()
        if float(low) >= 1 / _FAR and float(high) <= _FAR:
            return alpha
        shift = torch.frexp(peak).exponent
        keep = ((peak >= 1 / _FAR) & (peak <= _FAR)) | (peak == 0) | ~peak.isfinite()
        shift = shift.masked_fill(keep, 0)
        if self.exponent is None:
            self.exponent = torch.zeros_like(shift)
        self.exponent = self.exponent + shift
        return scale_by(alpha, -shift)

    def undo(self, scores: Tensor) -> Tensor:
        return scores if self.exponent is None else scale_by(scores, self.exponent)


def scale_by(values: Tensor, exponent: Tensor) -> Tensor:
    """Return values · 2^exponent, with one exponent for each of the first dimensions.

    The product is taken in two steps, since 2^exponent alone may be out of range.
    """
    exponent = exponent[(...,) + (None,) * (values.dim() - exponent.dim())]
    half = exponent // 2
    two = values.new_tensor(2.0)
    return values * two.pow(half) * two.pow(exponent - half)


class Grouping:
    """Group terms by place, and sum each group from left to right with as many ⊕ on tensors as the largest has terms.

    Places are sorted by the number of their terms, so the n-th terms of all places that have one are the first rows.
    """

    def __init__(self, place: Tensor, places: int) -> None:
        counts = torch.bincount(place, minlength=places)
        by_size = counts.argsort(descending=True, stable=True)
        order = place.argsort(stable=True)  # place by place
        begin = counts.cumsum(0) - counts
        most = int(counts.max()) if counts.numel() else 0
        self.rounds = [int((counts > n).sum()) for n in range(most)]
        nth = [order[begin[by_size[:rows]] + n] for n, rows in enumerate(self.rounds)]
        self.order = torch.cat(nth) if nth else order
        """The terms in the order in which `sum` takes them."""
        self.empty = places - (self.rounds[0] if nth else 0)
        self._row = by_size.argsort()
        self._sorted = bool((self._row == torch.arange(places)).all())

    def sum(self, ring: Semiring, terms: Tensor) -> Tensor:
        """Return the ⊕ of the terms of each place; 0̄ for a place without terms."""
        begin = height = self.rounds[0] if self.rounds else 0
        total = terms[:height]
        for rows in self.rounds[1:]:
            more = ring.t_plus(total[:rows], terms[begin : begin + rows])
            total = more if rows == height else torch.cat((more, total[rows:]))
            begin += rows
        if self.empty:
            lanes = terms.shape[1 : terms.dim() - bool(ring.components)]
            total = torch.cat((total, ring.zeros(self.empty, *lanes, dtype=terms.dtype)))
        return total if self._sorted else total.index_select(0, self._row)


class Edges:
    """Hold edges between numbered states. If edges tie, the first one wins."""

    def __init__(self, states: int, source: Tensor, target: Tensor) -> None:
        self.states, self.source, self.target = states, source, target

    def __len__(self) -> int:
        return self.source.numel()

    @cached_property
    def into(self) -> tuple[Grouping, Tensor]:
        """The edges grouped by the state that they reach, and the source of each in that order."""
        grouping = Grouping(self.target, self.states)
        return grouping, self.source[grouping.order]

    @cached_property
    def out_of(self) -> tuple[Grouping, Tensor]:
        """The edges grouped by the state that they leave, and the target of each in that order."""
        grouping = Grouping(self.source, self.states)
        return grouping, self.target[grouping.order]

    @cached_property
    def by_target(self) -> tuple[Tensor, Tensor]:
        """(order, begin): the edges into state q are `order[begin[q] : begin[q + 1]]`."""
        counts = torch.bincount(self.target, minlength=self.states)
        return self.target.argsort(stable=True), torch.cat((counts.new_zeros(1), counts.cumsum(0)))

    @cached_property
    def incoming(self) -> Tensor:
        """(most, S): the edges into each state, then −1; `most` is the largest number of edges into one."""
        order, begin = self.by_target
        nth = torch.arange(int(begin.diff().max()) if self.states else 0).unsqueeze(1)
        if not len(nth):
            return nth.expand(0, self.states)
        edge = order[(begin[:-1] + nth).clamp_max(len(self) - 1)]
        return edge.where(nth < begin.diff(), -1)


class Scaled(NamedTuple):
    """Hold values that stand for values · 2^exponent and thereby stay in the range of floats."""

    values: Tensor
    exponent: Tensor
    """One exponent for all states or edges: (…, *lanes); 0 if the semiring does not scale."""


@dataclass(frozen=True, eq=False)
class Trellis:
    """Unroll an automaton over T steps and S states. A subclass may step and close faster, with the same results."""

    ring: Semiring
    edges: Sequence[Edges]
    """The edges of each step."""
    weights: Sequence[Tensor] | Tensor
    """The weights of each step, (edges, *lanes), or one tensor (T, edges, *lanes) if all steps have the same edges."""
    initial: Tensor
    """(S, *lanes)"""
    ends: Tensor
    """The states in which paths end; a state may have several ends."""
    final: Tensor
    """The weight of each end: (ends, *lanes)."""
    valid: Tensor | None = None
    """(T, *lanes): whether the lane takes this step, or None if all do. A lane that does not stays in its state."""
    silent: tuple[Edges, Tensor] | None = None
    """Edges that stay at their position, and their weights (edges, *lanes)."""

    @property
    def states(self) -> int:
        """The number of states."""
        return self.initial.shape[0]

    @property
    def lanes(self) -> torch.Size:
        """The shape of the lanes."""
        return self.initial.shape[1 : self.initial.dim() - bool(self.ring.components)]

    @cached_property
    def last(self) -> Tensor:
        """(S, *lanes): the total final weight of each state after the last step."""
        return _gathered(self.ring, Grouping(self.ends, self.states), self.final)

    def over(self, ring: Semiring, f: Callable[[Tensor], Tensor]) -> Trellis:
        """Return the trellis over another semiring, with `f` applied to every weight."""
        silent = None if self.silent is None else (self.silent[0], f(self.silent[1]))
        weights = (
            f(self.weights) if isinstance(self.weights, Tensor) else [f(weight) for weight in self.weights]
        )
        return Trellis(
            ring, self.edges, weights, f(self.initial), self.ends, f(self.final), self.valid, silent
        )

    # ---- steps ---------------------------------------------------------------------------------------------------

    def ahead(self, t: int, row: Tensor) -> Tensor:
        """Return the forward row after step t, (S, …, *lanes), given the one before it. Inner dimensions are kept."""
        into, source = self.edges[t].into
        weight = _alongside(row, self._weights_into[t])
        return into.sum(self.ring, self.ring.t_times(row.index_select(0, source), weight))

    def back(self, t: int, row: Tensor) -> Tensor:
        """Return the backward row before step t, given the one after it."""
        out_of, target = self.edges[t].out_of
        weight = _alongside(row, self._weights_out_of[t])
        return out_of.sum(self.ring, self.ring.t_times(weight, row.index_select(0, target)))

    @cached_property
    def _weights_into(self) -> Sequence[Tensor]:
        return self._in_order([edges.into[0].order for edges in self.edges])

    @cached_property
    def _weights_out_of(self) -> Sequence[Tensor]:
        return self._in_order([edges.out_of[0].order for edges in self.edges])

    def _in_order(self, orders: list[Tensor]) -> Sequence[Tensor]:
        """Return the weights of each step in the order of its edges."""
        if isinstance(self.weights, Tensor) and orders:
            return self.weights.index_select(1, orders[0]).unbind(0)
        return [weight.index_select(0, order) for weight, order in zip(self.weights, orders, strict=True)]

    def close(self, row: Tensor) -> Tensor:
        """Return the forward row followed by any number of silent edges."""
        if self.silent is None:
            return row
        return self.ring.t_sum(self.ring.t_times(row.unsqueeze(1), self._star), 0)

    def close_back(self, row: Tensor) -> Tensor:
        """Return the backward row preceded by any number of silent edges."""
        if self.silent is None:
            return row
        return self.ring.t_sum(self.ring.t_times(self._star, row.unsqueeze(0)), 1)

    @cached_property
    def _star(self) -> Tensor:
        assert self.silent is not None
        return star_of(self.ring, *self.silent)

    # ---- tables --------------------------------------------------------------------------------------------------

    def forward(self, *, closed: bool = True) -> Scaled:
        """Return (T + 1, S, *lanes): the ⊕ of all path prefixes that end in each state after t steps."""
        return self.forward_tables()[closed]

    def forward_tables(self) -> tuple[Scaled, Scaled]:
        """Return the open and the closed forward table."""
        return self._tables(self.initial, range(len(self.edges)), self.ahead, self.close)

    def backward(self, *, closed: bool = True) -> Scaled:
        """Return (T + 1, S, *lanes): the ⊕ of all path suffixes from each state after t steps to the end."""
        steps = range(len(self.edges))[::-1]
        table, exponent = self._tables(self.last, steps, self.back, self.close_back)[closed]
        return Scaled(table.flip(0), exponent.flip(0))

    def _tables(
        self,
        landed: Tensor,
        steps: range,
        step: Callable[[int, Tensor], Tensor],
        close: Callable[[Tensor], Tensor],
    ) -> tuple[Scaled, Scaled]:
        scale = Scale(self.ring)
        opened, closed, exponents = [landed], [close(landed)], [self._exponents(scale)]

        def run(block: range, in_range: Callable[[Tensor], Tensor]) -> None:
            for t in block:
                opened.append(in_range(self._kept(t, step(t, closed[-1]), opened[-1])))
                closed.append(close(opened[-1]))
                exponents.append(self._exponents(scale))

        for begin in range(0, len(steps), _BLOCK):
            block, done = steps[begin : begin + _BLOCK], len(opened)
            run(block, lambda row: row)
            if scale.active and not self._are_in_range(opened[done:]):
                del opened[done:], closed[done:], exponents[done:]
                run(block, lambda row: self._in_range(scale, row))
        exponent = torch.stack(exponents)
        table = Scaled(torch.stack(closed), exponent)
        return table if self.silent is None else Scaled(torch.stack(opened), exponent), table

    def _kept(self, t: int, new: Tensor, old: Tensor) -> Tensor:
        return new if self.valid is None else self.ring.where(self.valid[t], new, old)

    def _are_in_range(self, rows: list[Tensor]) -> bool:
        """Return whether `_in_range` would leave all of these rows as they are."""
        values = torch.stack(rows).detach().abs()
        dims = (1, -1) if self.ring.components else (1,)
        peak = values.amax(dims) if values.numel() else values
        return bool((((peak >= 1 / _FAR) & (peak <= _FAR)) | (peak == 0)).all())

    def _in_range(self, scale: Scale, row: Tensor) -> Tensor:
        if not scale.active or not row.numel():
            return row
        inner = row.shape[row.dim() - bool(self.ring.components) :]
        lanes = row.reshape(self.states, -1, *inner).transpose(0, 1)
        kept = scale.bring_back(lanes)
        return row if kept is lanes else kept.transpose(0, 1).reshape(row.shape)

    def _exponents(self, scale: Scale) -> Tensor:
        return scale.exponents(self.lanes.numel()).view(self.lanes)

    def plain(self, scaled: Scaled, dim: int | None = None) -> Tensor:
        """Return the values without their scale; `dim` is the dimension of states or edges, if there is one."""
        values, exponent = scaled
        if not bool(exponent.any()):
            return values
        exponent = exponent if dim is None else exponent.unsqueeze(dim)
        return scale_by(values, exponent.unsqueeze(-1) if self.ring.components else exponent)

    # ---- sums over paths -----------------------------------------------------------------------------------------

    def total(self, before: Scaled | None = None) -> Scaled:
        """Return the ⊕ of all paths, (*lanes); `before` is the closed forward table, if it is known."""
        values, exponent = self.forward() if before is None else before
        return Scaled(self.ring.t_sum(self.ring.t_times(values[-1][self.ends], self.final), 0), exponent[-1])

    def masses(self, before: Scaled, after: Scaled) -> Iterator[Scaled]:
        """Yield for each step the ⊕ of all paths that take each edge there, (edges, *lanes); 0̄ for invalid steps.

        `before` and `after` are the two closed tables. If ⊕ adds, such a mass is weight · ∂total/∂weight; if weights
        are logarithms, it is total + log ∂total/∂weight.
        """
        for t, (edges, weight) in enumerate(zip(self.edges, self.weights, strict=True)):
            mass = self._through(before.values[t], edges, weight, after.values[t + 1])
            yield Scaled(self._valid_only(t, mass), before.exponent[t] + after.exponent[t + 1])

    def silent_masses(self, before: Scaled, after: Scaled) -> Iterator[Scaled]:
        """Yield the same for the silent edges at each position. A path counts once for each time it takes the edge."""
        assert self.silent is not None
        for t in range(len(self.edges) + 1):
            mass = self._through(before.values[t], *self.silent, after.values[t])
            yield Scaled(self._valid_only(t - 1, mass) if t else mass, before.exponent[t] + after.exponent[t])

    def _through(self, before: Tensor, edges: Edges, weight: Tensor, after: Tensor) -> Tensor:
        middle = self.ring.t_times(before[edges.source], weight)
        return self.ring.t_times(middle, after[edges.target])

    def _valid_only(self, t: int, mass: Tensor) -> Tensor:
        if self.valid is None:
            return mass
        zero = self.ring.zeros(dtype=mass.dtype, device=mass.device)
        return self.ring.where(self.valid[t], mass, zero)


def _alongside(row: Tensor, weight: Tensor) -> Tensor:
    """Return the weights (edges, *lanes) with a dimension for each inner one of a row (S, …, *lanes)."""
    inner = row.dim() - weight.dim()
    return weight[(slice(None), *(None,) * inner)] if inner else weight


def _gathered(ring: Semiring, grouping: Grouping, terms: Tensor) -> Tensor:
    """Return the ⊕ of the terms of each place."""
    return grouping.sum(ring, terms.index_select(0, grouping.order))


def star_of(ring: Semiring, edges: Edges, weight: Tensor) -> Tensor:
    """Return (S, S, *lanes): the ⊕ of all ways from one state to another, the empty way included; NaN if that sum
    does not exist."""
    size = edges.states
    places = Grouping(edges.source * size + edges.target, size * size)
    matrix = _gathered(ring, places, weight).unflatten(0, (size, size))
    closed = TensorMatrix(ring, matrix, lambda a, _: ring.t_star(a).to(weight.dtype))
    kleene(closed)
    return closed.entries
