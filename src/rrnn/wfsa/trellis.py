"""An automaton unrolled over the steps of an input: Forward, backward, totals and masses, written once.

A trellis has the same states at every position 0 … T. Step t leads over one of its edges from position t to t + 1; a
*silent* edge stays at its position. Weights are tensors of elements, (edges, *lanes): many units and sentences, the
lanes, are computed together, and one string has no lanes. `rrnn.wfsa.strongest` finds a trellis's strongest paths.

Tables come closed, with the silent edges of their position, or open, without. One closed and one open table meet at
every position: total = ⊕_q forward[t, q] ⊗ backward[t, q]. Two closed ones would count silent edges twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.semirings import Semiring
from rrnn.semirings.epsilon_closure import TensorMatrix, kleene
from rrnn.wfsa.scoring import Scale, scale_by


class Edges:
    """Edges between numbered states. Of edges that tie, the first wins."""

    def __init__(self, states: int, source: Tensor, target: Tensor) -> None:
        self.states, self.source, self.target = states, source, target

    def __len__(self) -> int:
        return self.source.numel()

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """(source, target) of each edge."""
        return list(zip(self.source.tolist(), self.target.tolist(), strict=True))

    @cached_property
    def by_target(self) -> tuple[Tensor, Tensor]:
        """(order, begin): the edges into state q are `order[begin[q] : begin[q + 1]]`."""
        counts = torch.bincount(self.target, minlength=self.states)
        return self.target.argsort(stable=True), torch.cat((counts.new_zeros(1), counts.cumsum(0)))


class Scaled(NamedTuple):
    """Values to be multiplied with 2^exponent, so that those on the way to a score stay in the range of floats."""

    values: Tensor
    exponent: Tensor
    """One for all states or edges: (…, *lanes); 0 wherever the semiring does not scale."""


@dataclass(frozen=True, eq=False)
class Trellis:
    """T steps over S states. A subclass may step and close faster; the results are the same."""

    ring: Semiring
    edges: Sequence[Edges]
    """Of each step."""
    weights: Sequence[Tensor]
    """Of each step: (edges, *lanes)."""
    initial: Tensor
    """(S, *lanes)"""
    ends: Tensor
    """The states in which paths end; a state may have several ends."""
    final: Tensor
    """Of each end: (ends, *lanes)."""
    valid: Tensor | None = None
    """(T, *lanes): whether the lane takes this step; None where all do. A lane that does not stays where it is."""
    silent: tuple[Edges, Tensor] | None = None
    """Edges that stay at their position, and their weights (edges, *lanes)."""

    @property
    def states(self) -> int:
        """How many there are."""
        return self.initial.shape[0]

    @property
    def lanes(self) -> torch.Size:
        """The shape of the lanes."""
        return self.initial.shape[1 : self.initial.dim() - bool(self.ring.components)]

    @cached_property
    def last(self) -> Tensor:
        """(S, *lanes): what it is worth to be in each state after the last step."""
        places = zip(self.ends.tolist(), self.final.unbind(0), strict=True)
        return _gathered(self.ring, self.states, places, self.initial[:1])

    def over(self, ring: Semiring, f: Callable[[Tensor], Tensor]) -> Trellis:
        """Return the same trellis over another semiring, with `f` of every weight."""
        silent = None if self.silent is None else (self.silent[0], f(self.silent[1]))
        weights = [f(weight) for weight in self.weights]
        return Trellis(
            ring, self.edges, weights, f(self.initial), self.ends, f(self.final), self.valid, silent
        )

    # ---- steps ---------------------------------------------------------------------------------------------------

    def ahead(self, t: int, row: Tensor) -> Tensor:
        """Return the row after step t, (S, …, *lanes), given the one before it. Inner dimensions are kept."""
        times, rows = self.ring.t_times, row.unbind(0)
        steps = zip(self.edges[t].pairs, self.weights[t].unbind(0), strict=True)
        return _gathered(self.ring, self.states, ((q, times(rows[p], w)) for (p, q), w in steps), row)

    def back(self, t: int, row: Tensor) -> Tensor:
        """Return what each state is worth before step t, given what it is worth after it."""
        times, rows = self.ring.t_times, row.unbind(0)
        steps = zip(self.edges[t].pairs, self.weights[t].unbind(0), strict=True)
        return _gathered(self.ring, self.states, ((p, times(w, rows[q])) for (p, q), w in steps), row)

    def close(self, row: Tensor) -> Tensor:
        """Return the row with any silent edges after it."""
        if self.silent is None:
            return row
        return self.ring.t_sum(self.ring.t_times(row.unsqueeze(1), self._star), 0)

    def close_back(self, row: Tensor) -> Tensor:
        """Return the row with any silent edges before it."""
        if self.silent is None:
            return row
        return self.ring.t_sum(self.ring.t_times(self._star, row.unsqueeze(0)), 1)

    @cached_property
    def _star(self) -> Tensor:
        assert self.silent is not None
        return star_of(self.ring, *self.silent)

    # ---- tables --------------------------------------------------------------------------------------------------

    def forward(self, *, closed: bool = True) -> Scaled:
        """Return (T + 1, S, *lanes): ⊕ of all beginnings that are in each state after t steps."""
        return self.forward_tables()[closed]

    def forward_tables(self) -> tuple[Scaled, Scaled]:
        """Return the open and the closed forward table."""
        return self._tables(self.initial, range(len(self.edges)), self.ahead, self.close)

    def backward(self, *, closed: bool = True) -> Scaled:
        """Return (T + 1, S, *lanes): ⊕ of all ways from each state after t steps to the end."""
        steps = range(len(self.edges))[::-1]
        table, exponent = self._tables(self.last, steps, self.back, self.close_back)[closed]
        return Scaled(table.flip(0), exponent.flip(0))

    def _tables(
        self,
        landed: Tensor,
        steps: Iterable[int],
        step: Callable[[int, Tensor], Tensor],
        close: Callable[[Tensor], Tensor],
    ) -> tuple[Scaled, Scaled]:
        scale = Scale(self.ring)
        row = close(landed)
        opened, closed, exponents = [landed], [row], [self._exponents(scale)]
        for t in steps:
            landed = self._in_range(scale, self._kept(t, step(t, row), landed))
            row = close(landed)
            opened.append(landed)
            closed.append(row)
            exponents.append(self._exponents(scale))
        exponent = torch.stack(exponents)
        table = Scaled(torch.stack(closed), exponent)
        return table if self.silent is None else Scaled(torch.stack(opened), exponent), table

    def _kept(self, t: int, new: Tensor, old: Tensor) -> Tensor:
        return new if self.valid is None else self.ring.where(self.valid[t], new, old)

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
        """Return the values themselves; `dim` is the dimension of states or edges, if they have one."""
        values, exponent = scaled
        if not bool(exponent.any()):
            return values
        exponent = exponent if dim is None else exponent.unsqueeze(dim)
        return scale_by(values, exponent.unsqueeze(-1) if self.ring.components else exponent)

    # ---- sums over paths -----------------------------------------------------------------------------------------

    def total(self, before: Scaled | None = None) -> Scaled:
        """Return the ⊕ of all paths, (*lanes), from the closed forward table, if it is known."""
        values, exponent = self.forward() if before is None else before
        return Scaled(self.ring.t_sum(self.ring.t_times(values[-1][self.ends], self.final), 0), exponent[-1])

    def masses(self, before: Scaled, after: Scaled) -> Iterator[Scaled]:
        """Yield of each step, (edges, *lanes), the ⊕ of all paths that take the edge there; 0̄ where it does not count.

        `before` and `after` are the two closed tables. Where ⊕ adds, such a mass is weight · ∂total/∂weight; where
        weights are logarithms, it is total + log ∂total/∂weight.
        """
        for t, (edges, weight) in enumerate(zip(self.edges, self.weights, strict=True)):
            mass = self._through(before.values[t], edges, weight, after.values[t + 1])
            yield Scaled(self._valid_only(t, mass), before.exponent[t] + after.exponent[t + 1])

    def silent_masses(self, before: Scaled, after: Scaled) -> Iterator[Scaled]:
        """Yield the same of the silent edges at each position. A path counts once for each time it takes the edge."""
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


def _gathered(ring: Semiring, places: int, terms: Iterable[tuple[int, Tensor]], like: Tensor) -> Tensor:
    """Return for each place the ⊕ of its terms, from left to right; `like` is a stack of such terms."""
    found: list[Tensor | None] = [None] * places
    for place, term in terms:
        total = found[place]
        found[place] = term if total is None else ring.t_plus(total, term)

    def zero() -> Tensor:
        return ring.zeros(*like.shape[1 : like.dim() - bool(ring.components)], dtype=like.dtype)

    return torch.stack([zero() if total is None else total for total in found])


def star_of(ring: Semiring, edges: Edges, weight: Tensor) -> Tensor:
    """Return (S, S, *lanes): ⊕ of all ways from one state to another, the empty one too; NaN where there is no sum."""
    size = edges.states
    places = zip([p * size + q for p, q in edges.pairs], weight.unbind(0), strict=True)
    matrix = _gathered(ring, size * size, places, weight).unflatten(0, (size, size))
    closed = TensorMatrix(ring, matrix, lambda a, _: ring.t_star(a).to(weight.dtype))
    kleene(closed)
    return closed.entries
