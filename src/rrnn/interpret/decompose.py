"""Decompose a unit's score exactly: into terms of tokens, and into the mass that goes through each arc.

A path *enters* at a token where it advances in the pattern: over an arc to another state, not over a self-loop. B has
one path for each token at which it enters, with the weight u_j·∏f; the paths of C and F are pairs (i, j), the tokens of
two entering arcs.

- by token: each path's weight is divided equally among the tokens at which it enters. (The score is a polynomial of
  the weights of entering arcs; this is its Aumann–Shapley value.)
- by pair: all paths whose first entry is at i and whose last is at j; i = j for those that enter once.

A read-out is no entry: where a cell reads its states at every token, a path belongs to the token at which it came into
the state. `rrnn.interpret.entry_maps` divides the score after every token.

Paths that enter at no token (self-loops alone) make up the constant. Terms and constant add up to the score, so this
needs a semiring whose ⊕ adds. Terms credit the tokens that enter, not those that close a gate: `leave_one_out` shows
the latter.

The mass of an arc at a position is the ⊕ of the weights of all paths that take it there. Over the reals it is signed
and not normalised: with weights that cancel it may exceed the score, so it is no probability. Over log (and counting)
weights cannot cancel, and `ArcMasses.posterior` divides by the score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrnn.automata import CellArc
from rrnn.errors import AutomatonError, SemiringError, ShapeError
from rrnn.interpret.paths import finite
from rrnn.interpret.reading import CellReading, Reading
from rrnn.interpret.trellises import (
    backward,
    enters,
    forward,
    masses,
    rank,
    share,
    side_by_side,
    stays,
    total,
    trellis,
)
from rrnn.semirings import get_semiring
from rrnn.semirings.semiring import Element
from rrnn.wfsa.trellis import Scaled


@dataclass(frozen=True)
class Term:
    """A summand of a score: a token, or the first and last of several, and the weight of all paths that enter there."""

    tokens: tuple[str, ...]
    positions: tuple[int, ...]
    weight: Element

    def to_json(self) -> dict[str, Any]:
        return {"tokens": list(self.tokens), "positions": list(self.positions), "weight": finite(self.weight)}


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The result of `decompose`, for T positions, B sentences and D units in the order of `units`.

    Entries are weights of the semiring: signed numbers over the reals, logarithms over log. They are 0̄ after the end of
    a sentence.
    """

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    score: Tensor
    """(B, D)"""
    by_token: Tensor
    """(T, B, D)"""
    constant: Tensor
    """(B, D): the weight of paths that enter at no token."""
    by_pair: Tensor | None
    """(T, T, B, D), indexed by the first and the last position; None unless pairs were requested."""
    semirings: tuple[str, ...]
    """The name of each unit's semiring."""

    def terms(self, unit: int, sentence: int = 0, top: int | None = None) -> list[Term]:
        """Return the terms of a unit, strongest first: tokens and pairs, or only tokens unless pairs were requested."""
        if unit not in self.units:
            raise ShapeError(
                f"unit must be one of the {len(self.units)} units that were read, from {min(self.units)} to "
                f"{max(self.units)}; got {unit!r}. `units` lists them."
            )
        if sentence not in range(len(self.tokens)):
            raise ShapeError(f"sentence must be a number from 0 to {len(self.tokens) - 1}; got {sentence!r}")
        d, words = self.units.index(unit), self.tokens[sentence]
        ring, n = get_semiring(self.semirings[d]), len(words)
        if self.by_pair is not None:
            table = self.by_pair[:n, :n, sentence, d]
        else:
            table = ring.zeros(n, n, dtype=self.by_token.dtype)
            table[range(n), range(n)] = self.by_token[:n, sentence, d]
        order = rank(ring, table).flatten().sort(descending=True, stable=True).indices.tolist()
        found = []
        for at in order[:top]:
            i, j = divmod(at, n)
            weight = ring.numbers(table[i, j])
            if weight == ring.zero:
                break
            places = (i,) if i == j else (i, j)
            found.append(Term(tuple(words[p] for p in places), places, weight))
        return found

    def to_json(self, top: int = 10) -> list[dict[str, Any]]:
        """Return the score and the strongest terms of every unit, for each sentence."""
        return [
            {
                "tokens": list(words),
                "units": [
                    {
                        "unit": unit,
                        "semiring": self.semirings[d],
                        "score": finite(self.score[b, d].tolist()),
                        "constant": finite(self.constant[b, d].tolist()),
                        "by_token": finite(self.by_token[: len(words), b, d].tolist()),
                        "terms": [term.to_json() for term in self.terms(unit, b, top)],
                    }
                    for d, unit in enumerate(self.units)
                ],
            }
            for b, words in enumerate(self.tokens)
        ]


def decompose(reading: Reading, *, pairs: bool = False) -> Decomposition:
    """Decompose the scores of a reading by token and, with `pairs` (T² numbers per unit), by pair of tokens."""
    for part in reading.parts:
        if part.ring.selective:
            raise AutomatonError(
                f"over {part.ring.name} a score is the weight of {part.cell.name}'s best path, not a sum of several: "
                "use best_paths. Decompose the units of other cells with reading.of_units([…])."
            )
        if not part.ring.reads_reals:
            raise AutomatonError(
                f"decompose divides weights by real numbers, which {part.ring.name} cannot represent. Define the "
                "semiring's from_real and to_real, or use arc_masses and leave_one_out."
            )
    valid, parts = reading.valid, reading.parts
    score = [total(p, valid) for p in parts]
    constant = [total(p, valid, stays) for p in parts]
    by_token = side_by_side(parts, [_by_token(p, valid) for p in parts], 2)
    by_pair = side_by_side(parts, [_by_pair(p, valid) for p in parts], 3) if pairs else None
    return Decomposition(
        reading.tokens,
        reading.units,
        side_by_side(parts, score, 1),
        reading.in_order(by_token),
        side_by_side(parts, constant, 1),
        None if by_pair is None else _pairs_in_order(reading, by_pair),
        tuple(p.ring.name for p in parts for _ in p.units),
    )


def _by_token(part: CellReading, valid: Tensor | None) -> Tensor:
    """Return the decomposition by token, (T, B, D) by step.

    With a factor z at every entry, the weight of a path with n entries is multiplied by z^n. As ∫₀¹ z^n / z dz = 1/n,
    integrating divides each path's weight by n; Gaussian quadrature is exact for such polynomials.
    """
    ring, (steps, _, batch, width) = part.ring, part.weights.shape[:4]
    found = ring.zeros(steps, batch, width, dtype=part.weights.dtype)
    for scaled, factor in entry_factors(part):
        whole = trellis(scaled, valid)
        mass = masses(scaled, whole.forward(), whole.backward(), valid, enters)
        found = ring.t_plus(found, ring.t_times(mass, mass.new_tensor(factor)))
    return found


def entry_factors(part: CellReading) -> Iterator[tuple[CellReading, Any]]:
    """Yield at each quadrature node z the reading with a factor z at every entry, and the factor of its masses."""
    ring, steps, entries = part.ring, len(part.weights), part.moves.most_entries
    entries = steps if entries is None else min(entries, steps)
    if not entries:
        return
    entering = torch.tensor([move.enters for move in part.moves.moves]).view(1, -1, 1, 1)
    nodes, shares = np.polynomial.legendre.leggauss((entries + 1) // 2)
    for node, gauss in zip((nodes + 1) / 2, shares / 2, strict=True):
        factor = part.initial.new_tensor(ring.from_real(float(node)))
        weights = ring.where(entering, ring.t_times(part.weights, factor), part.weights)
        yield replace(part, weights=weights), ring.from_real(float(gauss / node))


def _by_pair(part: CellReading, valid: Tensor | None) -> Tensor:
    """Return the decomposition by pair, (T, T, B, D): the steps of the first and of the last entry."""
    ring, (steps, _, batch, width) = part.ring, part.weights.shape[:4]
    before, after = forward(part, valid, stays), backward(part, valid, stays)
    everywhere, entering = trellis(part, valid), trellis(part, valid, enters)
    found = ring.zeros(steps, steps, batch, width, dtype=before.dtype)
    # begun[:, i]: paths whose first entry was at step i, by state (S, T, B, D)
    begun = ring.zeros(everywhere.states, steps, batch, width, dtype=before.dtype)
    for t in range(steps):
        last = ring.t_sum(ring.t_times(entering.ahead(t, begun), after[t + 1].unsqueeze(1)), 0)
        first = entering.ahead(t, before[t])
        last[t] = ring.t_sum(ring.t_times(first, after[t + 1]), 0)
        begun = everywhere.ahead(t, begun)
        begun[:, t] = first
        if valid is not None:
            zero, there = ring.zeros(dtype=before.dtype), valid[t, :, None]
            last, begun = ring.where(there, last, zero), ring.where(there, begun, zero)
        found[:, t] = last
    return found


def _pairs_in_order(reading: Reading, pairs: Tensor) -> Tensor:
    """Return pairs by position. In a backward reading, the last entry is the first in the sentence."""
    found = reading.both_in_order(pairs)
    return found.transpose(0, 1) if reading.backward else found


# ---- the mass of arcs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ArcMasses:
    """The masses of one cell's arcs, for T positions, B sentences and D units in the order of `units`."""

    cell: str
    semiring: str
    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    arcs: tuple[CellArc, ...]
    score: Tensor
    """(B, D)"""
    mass: Tensor
    """(T + 1, arcs, B, D): for an arc that consumes, by the position of its token; for an ε-arc, by the number of
    tokens read before it."""

    @property
    def posterior(self) -> Tensor:
        """The mass divided by the score: the probability of the arc there, for weights that cannot be negative."""
        ring = get_semiring(self.semiring)
        if ring.cancels or not ring.adds_probabilities:
            raise SemiringError(
                f"masses over {ring.name} are no probabilities: "
                + ("paths can cancel" if ring.cancels else "⊕ does not add them")
                + ". Use a cell over log, or look at `mass`."
            )
        return share(ring, self.mass, self.score)


def arc_masses(reading: Reading) -> list[ArcMasses]:
    """Return the masses of all arcs, for each cell of the layer."""
    return [_masses(reading, part) for part in reading.parts]


def _masses(reading: Reading, part: CellReading) -> ArcMasses:
    if any(bridge.star for bridge in part.moves.bridges):
        raise AutomatonError(
            f"the ε-arcs of {part.cell.name} form a cycle, which paths may take any number of times: the masses of its "
            "arcs cannot be separated. Limit it with cell.limit_epsilon(k)."
        )
    ring, arcs, steps = part.ring, part.cell.arcs, trellis(part, reading.valid)
    before, after = steps.forward(), steps.backward()
    found = [steps.plain(mass, 0) for mass in steps.masses(before, after)]
    batch, width = steps.lanes
    mass = ring.zeros(len(found) + 1, len(arcs), batch, width, dtype=part.weights.dtype)

    def add(arc: CellArc, value: Tensor, places: Any = slice(None)) -> None:
        (number,) = (i for i, other in enumerate(arcs) if other is arc)
        mass[places, number] = ring.t_plus(mass[places, number], value)

    for m, move in enumerate(part.moves.moves if found else ()):
        value = torch.stack([of_step[m] for of_step in found])
        for arc in move.bridge.arcs:
            add(arc, value, slice(len(found)))
        add(move.arc, reading.in_order(value), slice(len(found)))
    last = steps.plain(Scaled(before.values[-1], before.exponent[-1]), 0)
    lengths, every = torch.tensor(reading.lengths, dtype=torch.int64), torch.arange(batch)
    for end, weight in zip(part.moves.ends, part.ends, strict=True):
        value = ring.zeros(len(found) + 1, batch, width, dtype=mass.dtype)
        value[lengths, every] = ring.t_times(last[part.moves.index[end.source]], weight)
        for arc in end.bridge.arcs:
            add(arc, value)
    score = steps.plain(steps.total(before))
    return ArcMasses(part.cell.name, ring.name, reading.tokens, part.units, arcs, score, mass)
