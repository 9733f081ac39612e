"""Divide the score after each token among the tokens at which its paths enter: the attention that a recurrence implies.

Row t of an entry map belongs to the score after token t, column s to the paths that enter for the first time at token
s: B's mass is u_s·∏f, where the product runs over the tokens after s up to t. The masses of a row and its constant, the
paths that enter at no token, add up to the score, over any semiring. Where paths enter several times (C, F), only the
first entry counts; `decompose` divides among all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.automata import Cell, CellArc, reachable
from rrnn.automata import expressions as ex
from rrnn.errors import ShapeError
from rrnn.interpret.moves import Move, Moves
from rrnn.interpret.paths import finite
from rrnn.interpret.reading import CellReading, Reading
from rrnn.interpret.trellises import share, side_by_side
from rrnn.semirings import Semiring

MAX_NUMBERS = 2**27
"""Numbers of a map, one gigabyte in float64."""
_ROUNDS = 4  # up to so many moves into a state are taken one after the other, for all states at once


@dataclass(frozen=True, eq=False)
class EntryMap:
    """The result of `entry_map`, for T positions, B sentences and D units in the order of `units`.

    Entries are weights of the semiring: signed numbers over the reals, logarithms over log. They are 0̄ where a token
    comes after the row's, and after the end of a sentence. In a backward reading rows and columns are positions, too,
    and a row's tokens come after it.
    """

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    score: Tensor
    """(T, B, D): the score after each token."""
    mass: Tensor
    """(T, T, B, D): the mass of the paths to the score after token t that enter first at token s."""
    constant: Tensor
    """(T, B, D): the mass of the paths that enter at no token."""
    parts: tuple[Shown, ...]
    """How each cell's units are shown."""

    @cached_property
    def share(self) -> Tensor:
        """(T, T, B, D): each token's share in the paths of its row, as plain numbers.

        Where masses can cancel, they are divided by the sum of absolute masses, so that shares have signs, and absolute
        shares and that of the constant add up to one. Over log they are probabilities. Where ⊕ selects, the best path
        has share one. Of complex numbers, the part that the cell's output reads is taken.
        """
        found, start = [], 0
        for part in self.parts:
            here = slice(start, start + part.units)
            start += part.units
            found.append(part.shares(self.mass[:, :, :, here], self.constant[:, :, here]))
        return torch.cat(found, 3)

    def rows(self, unit: int, sentence: int = 0) -> list[list[float]]:
        """Return the shares of one unit in one sentence, a row for each token."""
        return rows_of(self.share, self.tokens, sentence, place_of(unit, self.units, "unit"))

    def to_json(self) -> list[dict[str, Any]]:
        """Return scores, masses and constants of every unit, for each sentence."""
        return [
            finite(
                {
                    "tokens": list(words),
                    "units": [
                        {
                            "unit": unit,
                            "score": self.score[: len(words), b, d].tolist(),
                            "constant": self.constant[: len(words), b, d].tolist(),
                            "mass": self.mass[: len(words), : len(words), b, d].tolist(),
                        }
                        for d, unit in enumerate(self.units)
                    ],
                }
            )
            for b, words in enumerate(self.tokens)
        ]


def entry_map(reading: Reading) -> EntryMap:
    """Divide the score after each token among the tokens at which its paths enter first: T² numbers for each unit."""
    check_size(reading, len(reading.units), "Read fewer units: entry_map(reading.of_units([…])).")
    parts, valid = reading.parts, reading.valid
    found = [first_entries(part, valid) for part in parts]
    score, mass, constant = (
        side_by_side(parts, [each[i] for each in found], dim) for i, dim in enumerate((2, 3, 2))
    )
    return EntryMap(
        reading.tokens,
        reading.units,
        reading.in_order(score),
        reading.both_in_order(mass),
        reading.in_order(constant),
        tuple(shown(part.ring, part.cell, len(part.units)) for part in parts),
    )


def first_entries(part: CellReading, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return by steps the scores (T, B, D), masses (T, T, B, D) and constants (T, B, D); 0̄ after the end.

    `begun` holds, for each state, the paths whose first entry was at each step so far; all of them advance at once.
    """
    ring, moves, (steps, _, batch, width) = part.ring, part.moves, part.weights.shape[:4]
    before, after = before_entering(moves), after_entering(moves)
    whole = _Step(part, lambda _: True)
    idling = _Step(part, lambda move: move.source in before and not move.enters)
    entering = _Step(part, lambda move: move.source in before and move.enters)
    begin = _Step(part, lambda move: move.source in after)
    reached = idle = part.initial[:, None, None].expand(-1, 1, batch, *part.initial.shape[1:])
    begun = ring.zeros(len(moves.states), steps, batch, width, dtype=reached.dtype)
    mass = ring.zeros(steps, steps, batch, width, dtype=reached.dtype)
    score, constant = [], []
    for t in range(steps):
        begun[:, :t] = begin(t, begun[:, :t])
        begun[:, t : t + 1] = entering(t, idle)
        idle, reached = idling(t, idle), whole(t, reached)
        mass[t, : t + 1] = _ended(part, begun[:, : t + 1])
        score.append(_ended(part, reached)[0])
        constant.append(_ended(part, idle)[0])
    found = (
        torch.stack(score) if steps else mass[:, 0],
        mass,
        torch.stack(constant) if steps else mass[:, 0],
    )
    if valid is None:
        return found
    zero, there = ring.zeros(dtype=mass.dtype), valid.unsqueeze(-1)
    masks = (there, there.unsqueeze(1), there)
    score, mass, constant = (ring.where(m, value, zero) for m, value in zip(masks, found, strict=True))
    return score, mass, constant


def _ended(part: CellReading, rows: Tensor) -> Tensor:
    """Return the ⊕ (n, B, D) of the paths that end here, given those that reached each state, (S, n, B, D)."""
    ring, ends = part.ring, [part.moves.index[end.source] for end in part.moves.ends]
    return ring.t_sum(ring.t_times(rows[ends], part.ends[:, None, None]), 0)


class _Step:
    """Advance rows of states (S, n, B, D) over some moves of a reading, in a few operations however many there are."""

    def __init__(self, part: CellReading, which: Callable[[Move], bool]) -> None:
        self.ring, index = part.ring, part.moves.index
        into: dict[int, list[tuple[int, int]]] = {}
        for m, move in enumerate(part.moves.moves):
            if which(move):
                into.setdefault(index[move.target], []).append((index[move.source], m))
        # The first move into each state, then the second, …: moves of a round lead to different states.
        few = {target: came for target, came in into.items() if len(came) <= _ROUNDS}
        self.rounds = []
        for k in range(max(map(len, few.values()), default=0)):
            here = [(target, *came[k]) for target, came in few.items() if len(came) > k]
            targets, sources, numbers = ([each[i] for each in here] for i in range(3))
            self.rounds.append((_places(targets), _places(sources), part.weights[:, numbers].unsqueeze(2)))
        self.gathered = [
            (target, _places([p for p, _ in came]), part.weights[:, [m for _, m in came]].unsqueeze(2))
            for target, came in into.items()
            if target not in few
        ]

    def __call__(self, t: int, rows: Tensor) -> Tensor:
        """Return the rows after step t."""
        ring = self.ring
        found = ring.zeros(*rows.shape[: rows.dim() - bool(ring.components)], dtype=rows.dtype)
        for k, (targets, sources, weights) in enumerate(self.rounds):
            came = ring.t_times(rows[sources], weights[t])
            found[targets] = came if not k else ring.t_plus(found[targets], came)
        for target, sources, weights in self.gathered:
            found[target] = ring.t_sum(ring.t_times(rows[sources], weights[t]), 0)
        return found


def _places(numbers: list[int]) -> slice | list[int]:
    """Return places as a slice if they follow each other, which saves a copy."""
    first = numbers[0] if numbers else 0
    span = slice(first, first + len(numbers))
    return span if numbers == list(range(span.start, span.stop)) else numbers


def before_entering(moves: Moves) -> set[str]:
    """Return the states in which a path may be before it enters."""
    return reachable(
        [q for q, _ in moves.initials],
        [CellArc(m.source, m.target, ex.one) for m in moves.moves if not m.enters],
    )


def after_entering(moves: Moves) -> set[str]:
    """Return the states in which a path may be after it entered."""
    arcs = [CellArc(m.source, m.target, ex.one) for m in moves.moves]
    return reachable([m.target for m in moves.moves if m.enters], arcs)


# ---- how maps are shown ---------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """How masses of one cell's units become plain numbers."""

    ring: Semiring
    component: int | None
    """The component that the cell's output reads first; None for a semiring whose weights are one number."""
    units: int

    def shares(self, mass: Tensor, constant: Tensor | None) -> Tensor:
        """Return the share of each mass (T, T, …) in its row, given the constants (T, …), if there are any."""
        ring = self.ring
        if not ring.cancels:
            whole = ring.t_sum(mass, 1)
            whole = whole if constant is None else ring.t_plus(whole, constant)
            return share(ring, mass, whole.unsqueeze(1)).nan_to_num(0.0, 0.0, 0.0)
        real = self._real(mass)
        size = real.abs().sum(1)
        size = size if constant is None else size + self._real(constant).abs()
        return torch.where(size.unsqueeze(1) > 0, real / size.unsqueeze(1), 0.0)

    def _real(self, mass: Tensor) -> Tensor:
        if self.component is not None and self.ring.scales:
            return mass[..., self.component]
        return self.ring.on_tensors(self.ring.to_real, mass)


def shown(ring: Semiring, cell: Cell, units: int) -> Shown:
    read = [node for expr in cell.output_exprs for node in ex.walk(expr) if isinstance(node, ex.Component)]
    component = ring.components.index(read[0].name) if read else 0
    return Shown(ring, component if ring.components else None, units)


def rows_of(share: Tensor, tokens: Sequence[Sequence[str]], sentence: int, column: int) -> list[list[float]]:
    n = len(tokens[place_of(sentence, range(len(tokens)), "sentence")])
    return share[:n, :n, sentence, column].tolist()


def place_of(number: Any, known: Sequence[int], what: str) -> int:
    """Return the place of a number in a list, or raise a `ShapeError`."""
    if number not in known:
        raise ShapeError(
            f"{what} must be one of the {len(known)} of this map, from {min(known)} to {max(known)}; got {number!r}"
        )
    return known.index(number)


def check_size(reading: Reading, columns: int, fix: str) -> None:
    steps, batch = reading.x.shape[:2]
    size = max((part.ring.size for part in reading.parts), default=1)
    if (count := steps * steps * batch * columns * size) > MAX_NUMBERS:
        raise ShapeError(
            f"a map of {steps:,} tokens has {steps * steps:,} numbers for each unit and sentence, here {count:,} in "
            f"all; the limit is {MAX_NUMBERS:,}. {fix}"
        )
