"""A unit's score as a sum over what its paths consume: exact, for semirings whose ⊕ adds up.

A path *enters* where it goes on in the pattern: over an arc to another state, not over a self-loop. Grouped by where
they enter, the paths of B are one a token, u_j·∏f; those of C and F are pairs (i, j), the tokens of two entering arcs.

- by token: each path's weight, divided equally among the tokens at which it enters. (For the polynomial that the score
  is of its entering arcs' weights, this is the Aumann–Shapley value.)
- by pair: all paths whose first entry is at i and whose last is at j; i = j for those that enter once.

Either way, what no token enters (a path of self-loops alone) is the constant, and all of it adds up to the score. It
credits tokens that enter and hides those that close a gate: `leave_one_out` shows these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret.paths import finite
from rrnn.interpret.ranks import rank
from rrnn.interpret.reading import Part, Reading
from rrnn.interpret.tables import backward, enters, forward, masses, side_by_side, stays, total, trellis
from rrnn.semirings import get_semiring
from rrnn.semirings.semiring import Element


@dataclass(frozen=True)
class Term:
    """A token, or the first and the last of several, with the weight of all paths that enter there."""

    tokens: tuple[str, ...]
    positions: tuple[int, ...]
    weight: Element

    def to_json(self) -> dict[str, Any]:
        return {"tokens": list(self.tokens), "positions": list(self.positions), "weight": finite(self.weight)}


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Scores taken apart; T positions, B sentences, D units in the order of `units`. Entries are weights of the
    semiring: signed numbers over the reals, logarithms over log; 0̄ behind the end of a sentence."""

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    score: Tensor
    """(B, D)"""
    by_token: Tensor
    """(T, B, D)"""
    constant: Tensor
    """(B, D): paths that no token enters."""
    by_pair: Tensor | None
    """(T, T, B, D), the first position before the last, if pairs were asked for."""
    semirings: tuple[str, ...]
    """Of each unit."""

    def terms(self, unit: int, sentence: int = 0, top: int | None = None) -> list[Term]:
        """The tokens and pairs of a unit (tokens only, where no pairs were asked for), the strongest first."""
        if unit not in self.units:
            raise ShapeError(
                f"terms are of one of the {len(self.units)} units that were read, from {min(self.units)} to "
                f"{max(self.units)}; got unit = {unit!r}. `units` lists them."
            )
        if sentence not in range(len(self.tokens)):
            raise ShapeError(
                f"sentences are numbered from 0 to {len(self.tokens) - 1}; got sentence = {sentence!r}"
            )
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
        """Of each sentence, the score and the strongest terms of every unit."""
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
    """The scores of a reading by token and, on request (they take T² numbers a unit), by pair of tokens."""
    for part in reading.parts:
        if part.ring.selective:
            raise AutomatonError(
                f"over {part.ring.name} a score is the weight of one path, {part.cell.name}'s best, and no sum of "
                "several: best_paths shows it. Decompose the units of other cells with reading.of_units([…])."
            )
        if not part.ring.reads_reals:
            raise AutomatonError(
                f"the weight of a path is divided among its tokens by real numbers; none stands for a weight over "
                f"{part.ring.name}. Give the semiring from_real and to_real, or look at arc_masses and leave_one_out."
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
        None if by_pair is None else _both_in_order(reading, by_pair),
        tuple(p.ring.name for p in parts for _ in p.units),
    )


def _by_token(part: Part, valid: Tensor | None) -> Tensor:
    """(T, B, D) by step. With a factor z at every entry, a path of n entries weighs z^n times as much, and
    ∫₀¹ z^n / z dz is 1/n: the division by n. Gauss's quadrature is exact for such polynomials."""
    ring, (steps, _, batch, width) = part.ring, part.weights.shape[:4]
    found = ring.zeros(steps, batch, width, dtype=part.weights.dtype)
    for scaled, factor in entry_factors(part):
        whole = trellis(scaled, valid)
        mass = masses(scaled, whole.forward(), whole.backward(), valid, enters)
        found = ring.t_plus(found, ring.t_times(mass, mass.new_tensor(factor)))
    return found


def entry_factors(part: Part) -> Iterator[tuple[Part, Any]]:
    """(the part with a factor z at every entry, what to multiply its masses with) at each node z of the quadrature."""
    ring, steps, entries = part.ring, len(part.weights), part.moves.most_entries
    entries = steps if entries is None else min(entries, steps)
    if not entries:
        return
    entering = torch.tensor([move.enters for move in part.moves.moves]).view(1, -1, 1, 1)
    nodes, shares = np.polynomial.legendre.leggauss((entries + 1) // 2)
    for node, share in zip((nodes + 1) / 2, shares / 2, strict=True):
        factor = part.initial.new_tensor(ring.from_real(float(node)))
        weights = ring.where(entering, ring.t_times(part.weights, factor), part.weights)
        yield replace(part, weights=weights), ring.from_real(float(share / node))


def _by_pair(part: Part, valid: Tensor | None) -> Tensor:
    """(T, T, B, D) by step: first entry, last entry."""
    ring, (steps, _, batch, width) = part.ring, part.weights.shape[:4]
    before, after = forward(part, valid, stays), backward(part, valid, stays)
    everywhere, entering = trellis(part, valid), trellis(part, valid, enters)
    found = ring.zeros(steps, steps, batch, width, dtype=before.dtype)
    # begun[:, i]: the paths that entered first at step i, by state (S, T, B, D)
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


def _both_in_order(reading: Reading, pairs: Tensor) -> Tensor:
    """By position: of a backward reading, the last that it enters comes first in the sentence."""
    if not reading.backward:
        return pairs
    by_last = reading.in_order(pairs.transpose(1, 2)).transpose(0, 2)
    return reading.in_order(by_last).transpose(1, 2)
