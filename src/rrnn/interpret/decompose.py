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

import math
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
from rrnn.interpret.tables import (
    ahead,
    backward,
    enters,
    forward,
    last_row,
    masses,
    meet,
    stays,
)
from rrnn.semirings import Semiring, get_semiring


@dataclass(frozen=True)
class Term:
    """A token, or the first and the last of several, with the weight of all paths that enter there."""

    tokens: tuple[str, ...]
    positions: tuple[int, ...]
    weight: float

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
        table = (
            torch.diag(self.by_token[:n, sentence, d])
            if self.by_pair is None
            else self.by_pair[:n, :n, sentence, d]
        )
        if self.by_pair is None and ring.zero:
            table = torch.full((n, n), ring.zero, dtype=table.dtype).diagonal_scatter(table.diagonal())
        order = rank(ring, table).flatten().sort(descending=True, stable=True).indices.tolist()
        found = []
        for at in order[:top]:
            i, j = divmod(at, n)
            weight = table[i, j].item()
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
                        "score": finite(self.score[b, d].item()),
                        "constant": finite(self.constant[b, d].item()),
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
        if part.ring.laws.selective:
            raise AutomatonError(
                f"over {part.ring.name} a score is the weight of one path, {part.cell.name}'s best, and no sum of "
                "several: best_paths shows it. Decompose the units of other cells with reading.of_units([…])."
            )
    valid, parts = reading.valid, reading.parts
    score = [meet(p, forward(p, valid)[-1], torch.stack(last_row(p))) for p in parts]
    constant = [meet(p, forward(p, valid, stays)[-1], torch.stack(last_row(p))) for p in parts]
    by_token = torch.cat([_by_token(p, valid) for p in parts], -1)
    return Decomposition(
        reading.tokens,
        reading.units,
        torch.cat(score, -1),
        reading.in_order(by_token),
        torch.cat(constant, -1),
        _both_in_order(reading, torch.cat([_by_pair(p, valid) for p in parts], -1)) if pairs else None,
        tuple(p.ring.name for p in parts for _ in p.units),
    )


def _number(ring: Semiring, value: float) -> float:
    """A positive real number as a weight."""
    return math.log(value) if ring.name == "log" else value


def _by_token(part: Part, valid: Tensor | None) -> Tensor:
    """(T, B, D) by step. With a factor z at every entry, a path of n entries weighs z^n times as much, and
    ∫₀¹ z^n / z dz is 1/n: the division by n. Gauss's quadrature is exact for such polynomials."""
    total = torch.full_like(part.weights[0], part.ring.zero)
    for scaled, factor in entry_factors(part):
        mass = masses(scaled, forward(scaled, valid), backward(scaled, valid), valid, enters)
        total = part.ring.t_plus(total, part.ring.t_times(mass, torch.full_like(mass, factor)))
    return total


def entry_factors(part: Part) -> Iterator[tuple[Part, float]]:
    """(the part with a factor z at every entry, what to multiply its masses with) at each node z of the quadrature."""
    ring, steps, entries = part.ring, part.weights[0].shape[0], part.moves.most_entries
    entries = steps if entries is None else min(entries, steps)
    if not entries:
        return
    nodes, shares = np.polynomial.legendre.leggauss((entries + 1) // 2)
    for node, share in zip((nodes + 1) / 2, shares / 2, strict=True):
        factor = part.initial.new_tensor(_number(ring, float(node)))
        weights = tuple(ring.t_times(w, factor) if m.enters else w for _, _, m, w in part.graph)
        yield replace(part, weights=weights), _number(ring, float(share / node))


def _by_pair(part: Part, valid: Tensor | None) -> Tensor:
    """(T, T, B, D) by step: first entry, last entry."""
    ring, steps = part.ring, part.weights[0].shape[0]
    before, after = forward(part, valid, stays), backward(part, valid, stays)
    found = part.weights[0].new_full((steps, *part.weights[0].shape), ring.zero)
    # begun[i]: the paths that entered first at step i, by state (S, B, D)
    begun = part.weights[0].new_full((steps, *before.shape[1:]), ring.zero)
    for t in range(steps):
        last = ring.t_sum(
            ring.t_times(torch.stack(ahead(part, list(begun.unbind(1)), t, enters), 1), after[t + 1]), 1
        )
        first = torch.stack(ahead(part, list(before[t].unbind(0)), t, enters))
        last[t] = meet(part, first, after[t + 1])
        begun = torch.stack(ahead(part, list(begun.unbind(1)), t), 1)
        begun[t] = first
        if valid is not None:
            gone = ~valid[t, :, None]
            last = last.masked_fill(gone, ring.zero)
            begun = begun.masked_fill(gone, ring.zero)
        found[:, t] = last
    return found


def _both_in_order(reading: Reading, pairs: Tensor) -> Tensor:
    """By position: of a backward reading, the last that it enters comes first in the sentence."""
    if not reading.backward:
        return pairs
    by_last = reading.in_order(pairs.permute(0, 2, 1, 3)).permute(2, 1, 0, 3)
    return reading.in_order(by_last).permute(0, 2, 1, 3)
