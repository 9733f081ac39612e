"""Find what units look for: the strongest phrases that each of them found in many sentences.

A phrase is the stretch of a path from its first entry (leaving the initial state) to its last (reaching a final one).
Its weight is the product of λ, the moves between, and ρ. The weights of self-loops before and after it, the decay over
the rest of the sentence, are left out, so a phrase has the same weight wherever it occurs (unless a window sees beyond
it).

At every position where a phrase may end, the strongest one is a candidate, over the reals the strongest of either sign.
The strongest candidates of all sentences are reported, each wording once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.errors import AutomatonError, SemiringError
from rrnn.interpret.moves import Move
from rrnn.interpret.paths import RANKS, StepKind, finite
from rrnn.interpret.reading import CellReading, Reading
from rrnn.interpret.trellises import rank, weight_of
from rrnn.semirings import Semiring
from rrnn.wfsa.trellis import Edges, Trellis


@dataclass(frozen=True)
class Phrase:
    """A phrase and its weight, without the weights of what surrounds it."""

    weight: float
    tokens: tuple[str, ...]
    kinds: tuple[StepKind, ...]
    """For each token: consumed, skipped by a self-loop, or bridged, which means ε instead of a token."""
    sentence: int
    """The number of the sentence in which it is strongest."""
    position: int
    """The position of its first word there."""

    @property
    def text(self) -> str:
        """The phrase as text, "not [very] good", with skipped words in brackets and ε for ε-arcs."""
        pairs = zip(self.tokens, self.kinds, strict=True)
        return " ".join(f"[{token}]" if kind == "skipped" else token for token, kind in pairs)

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"text": self.text})


@dataclass(frozen=True)
class UnitPhrases:
    """The strongest phrases of a unit, the strongest first.

    Over semirings without negative weights all are in `positive`; over min-plus the strongest has the smallest weight.
    """

    unit: int
    cell: str
    semiring: str
    positive: tuple[Phrase, ...]
    negative: tuple[Phrase, ...]

    def to_json(self) -> dict[str, Any]:
        lists = {"positive": self.positive, "negative": self.negative}
        return asdict(self) | {name: [phrase.to_json() for phrase in some] for name, some in lists.items()}


def phrases(readings: Reading | Iterable[Reading], top: int = 5) -> list[UnitPhrases]:
    """Return the `top` strongest phrases of every unit in all sentences of a reading, or of several by one layer."""
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise AutomatonError(
            f"top, the number of phrases to list, must be a whole number above 0; got {top!r}"
        )
    found: dict[tuple[int, int], _StrongestWordings] = {}  # (unit, sign) → its best phrases
    names: dict[int, tuple[str, str]] = {}
    before = 0
    for reading in [readings] if isinstance(readings, Reading) else readings:
        if reading.depth:
            raise AutomatonError(
                f"phrases consist of words, which the first layer reads; layer {reading.depth} reads the states below "
                "it. Read layer 0, or look at positions with best_paths."
            )
        for part in reading.parts:
            _refuse_components(part.ring)
            names |= dict.fromkeys(part.units, (part.cell.name, part.ring.name))
            if reading.x.shape[0] and part.moves.moves:
                _collect(reading, part, before, top, found)
        before += len(reading.tokens)
    return [
        UnitPhrases(
            unit,
            *names[unit],
            *(found[unit, sign].phrases(top) if (unit, sign) in found else () for sign in (0, 1)),
        )
        for unit in sorted(names)
    ]


def _refuse_components(ring: Semiring) -> None:
    """Raise if weights have several components, and thus no sign by which to separate phrases."""
    if ring.components:
        raise SemiringError(
            f"phrases need weights that are single numbers, positive or negative; over {ring.name} a weight has the "
            f"components {', '.join(ring.components)}. Use k_best, which ranks paths by their magnitude."
        )


class _StrongestWordings:
    """Phrases by wording, each where it is strongest."""

    def __init__(self) -> None:
        self.by_wording: dict[tuple[tuple[str, ...], tuple[StepKind, ...]], tuple[float, Phrase]] = {}

    def add(self, value: float, phrase: Phrase) -> None:
        key = (phrase.tokens, phrase.kinds)
        if key not in self.by_wording or value > self.by_wording[key][0]:
            self.by_wording[key] = (value, phrase)

    def phrases(self, top: int) -> tuple[Phrase, ...]:
        ordered = sorted(self.by_wording.values(), key=lambda each: -each[0])
        return tuple(phrase for _, phrase in ordered[:top])

    def bar(self, top: int) -> float:
        """Return the rank that a new phrase must exceed to be listed."""
        values = sorted((value for value, _ in self.by_wording.values()), reverse=True)
        return values[top - 1] if len(values) >= top else -math.inf


def _collect(
    reading: Reading,
    part: CellReading,
    before: int,
    top: int,
    found: dict[tuple[int, int], _StrongestWordings],
) -> None:
    """Add the strongest phrases of a reading.

    A frequent phrase may occur many times among the strongest, so look further down until there are enough different
    wordings.
    """
    table = _search(part, reading)
    values = table.value.permute(1, 3, 0, 2).flatten(2)  # (signs, D, T·B)
    order = values.sort(-1, descending=True)
    open_, begin, step = [(s, d) for s in range(values.shape[0]) for d in range(values.shape[1])], 0, 2 * top
    while open_ and begin < values.shape[-1]:
        signs, units = (torch.tensor(column) for column in zip(*open_, strict=True))
        picked = order.indices[signs, units, begin : begin + step]
        ranks = order.values[signs, units, begin : begin + step]
        wordings = _wordings(reading, part, table, signs, units, picked)
        left = []
        for (sign, d), row, words in zip(open_, ranks.tolist(), wordings, strict=True):
            best = found.setdefault((part.units[d], sign), _StrongestWordings())
            bar = best.bar(top)
            for value, (tokens, kinds, b, position) in zip(row, words, strict=True):
                if value > bar:
                    weight = weight_of(part.ring, torch.tensor(value, dtype=torch.float64), bool(sign)).item()
                    best.add(value, Phrase(weight, tokens, kinds, before + b, position))
            if row[-1] > best.bar(top):
                left.append((sign, d))
        open_, begin, step = left, begin + step, 2 * step


# ---- the search -----------------------------------------------------------------------------------------------------


class _Search(NamedTuple):
    """The strongest phrase that ends at each step, and what is needed to trace it back.

    Ranks add up along a path, so the search is Forward over max-plus. Where weights can be negative, a node is a state
    with the sign of the path so far, sign · S + state, and an edge is a move with the sign of its weight.
    """

    value: Tensor  # (T, signs, B, D): its rank, −∞ where there is none
    node: Tensor  # (T, signs, B, D): the node after its last entry
    begun: Tensor  # (T, nodes, 1, D): what it is worth to begin a phrase at each node
    inside: Tensor  # (T, nodes, B, D): what it is worth to be inside a phrase at each node
    edges: Edges
    moves: Tensor  # (edges,): the number of each edge's move
    enters: Tensor  # (edges,): whether that move enters
    weights: Tensor  # (T, edges, B, D): ranks


def _search(part: CellReading, reading: Reading) -> _Search:
    """Find the strongest phrases of either sign that end at each step, in all sentences and units at once."""
    steps = len(part.weights)
    begun, ending = _outside(part, steps)
    edges, moves, weights = _signed_edges(part)
    enters = torch.tensor([move.advances for move in part.moves.moves], dtype=torch.bool)[moves]
    entering, staying = (_over(edges, weights, chosen, begun) for chosen in (enters, ~enters))
    remaining = torch.tensor(reading.lengths, dtype=torch.int64) - 1
    signs, size = ending.shape[1:3]
    row = begun.new_full((begun.shape[1], *part.weights.shape[2:]), -math.inf)
    rows, entries = [], []
    for t in range(steps):
        rows.append(row)
        entries.append(entering.ahead(t, torch.maximum(row, begun[t])))
        row = torch.maximum(staying.ahead(t, row), entries[t])
    entered, left = torch.stack(entries), remaining - torch.arange(steps)[:, None]  # (T, nodes, B, D), (T, B)
    last = torch.where(left[..., None, None, None] >= 0, ending[left.clamp_min(0)], -math.inf)
    last = last.permute(0, 2, 3, 1, 4)  # (T, signs, S, B, D)
    by_sign = entered.unflatten(1, (signs, size))
    # By the sign of the phrase, then by state and by the sign of what follows: two negatives make a positive.
    ended = torch.stack(
        [
            torch.stack([by_sign[:, s ^ k] + last[:, k] for k in range(signs)], 2).flatten(1, 2)
            for s in range(signs)
        ],
        1,
    )
    value, which = ended.max(2)
    state, sign = which // signs, which % signs ^ torch.arange(signs)[:, None, None]
    return _Search(value, sign * size + state, begun, torch.stack(rows), edges, moves, enters, weights)


def _outside(part: CellReading, steps: int) -> tuple[Tensor, Tensor]:
    """Return what beginnings and endings are worth, over moves that do not enter, whose weights do not count.

    The first is (T, nodes, 1, D), to begin a phrase at each node before step t; the second (T + 1, signs, S, D), to
    have entered a state for the last time, r symbols before the end.
    """
    ring, index = part.ring, part.moves.index
    idle = [move for move in part.moves.moves if not move.advances]
    ends = ([index[move.source] for move in idle], [index[move.target] for move in idle])
    edges = Edges(len(index), *(torch.tensor(states, dtype=torch.int64) for states in ends))
    for changing in (min(steps, len(index) + 1), steps):
        outside = Trellis(
            RANKS,
            [edges] * changing,
            [part.initial.new_zeros(len(idle), 1, 1)] * changing,
            _signed(ring, part.initial).transpose(0, 1),
            torch.tensor([index[end.source] for end in part.moves.ends], dtype=torch.int64),
            _signed(ring, part.ends).transpose(0, 1),
        )
        tables = outside.forward().values, outside.backward().values.flip(0)
        if all(
            table[-1].equal(table[-2]) for table in tables
        ):  # every step is the same: nothing changes any more
            break
    begun, ending = (table[torch.arange(steps + 1).clamp_max(changing)] for table in tables)
    return begun[:steps].transpose(1, 2).flatten(1, 2).unsqueeze(2), ending.transpose(1, 2)


def _signed_edges(part: CellReading) -> tuple[Edges, Tensor, Tensor]:
    """Return the edges between nodes, the number of each one's move, and their ranks (T, edges, B, D)."""
    index, signed = part.moves.index, _signed(part.ring, part.weights)
    signs, size = range(len(signed)), len(index)
    columns = [
        (s * size + index[move.source], (s ^ k) * size + index[move.target], m, k)
        for m, move in enumerate(part.moves.moves)
        for s in signs
        for k in signs
    ]
    source, target, moves, sign = torch.tensor(columns, dtype=torch.int64).view(-1, 4).unbind(1)
    return Edges(len(signs) * size, source, target), moves, signed[sign, :, moves].transpose(0, 1)


def _signed(ring: Semiring, weight: Tensor) -> Tensor:
    """Return the ranks of positive and, where weights can cancel, of negative weights, (signs, …)."""
    ranks = rank(ring, weight)
    if not ring.cancels:
        return ranks.unsqueeze(0)
    none = torch.full_like(ranks, -math.inf)
    return torch.stack([torch.where(weight < 0, none, ranks), torch.where(weight < 0, ranks, none)])


def _over(edges: Edges, weights: Tensor, chosen: Tensor, initial: Tensor) -> Trellis:
    """Return a trellis over some of the edges, for its steps alone."""
    some = Edges(edges.states, edges.source[chosen], edges.target[chosen])
    nothing = initial.new_empty(0, dtype=torch.int64)
    return Trellis(RANKS, [some] * len(weights), weights[:, chosen], initial[0], nothing, initial[0][:0])


# ---- tracing back ---------------------------------------------------------------------------------------------------

Wording = tuple[tuple[str, ...], tuple[StepKind, ...], int, int]
"""Tokens, their kinds, the sentence in the reading, the position of the first token."""


def _wordings(
    reading: Reading, part: CellReading, found: _Search, signs: Tensor, units: Tensor, picked: Tensor
) -> list[list[Wording]]:
    """Trace back the phrases at `picked` (rows, n), places in T·B, of each row's sign and unit, all at once."""
    batch, edges = reading.x.shape[1], found.edges
    d = units.unsqueeze(1).expand_as(picked)
    t, b = picked // batch, picked % batch
    node = found.node[t, signs.unsqueeze(1), b, d]
    order, begin = edges.by_target
    nth = torch.arange(int((begin[1:] - begin[:-1]).max())).view(-1, 1, 1)
    taken: list[Tensor] = []
    going = torch.ones_like(picked, dtype=torch.bool)
    while going.any():
        at = (t - len(taken)).clamp_min(0)
        into = order[(begin[node] + nth).clamp_max(len(edges) - 1)]  # (edges into the node, rows, n)
        there, enters, source = nth < begin[node + 1] - begin[node], found.enters[into], edges.source[into]
        before = torch.stack([found.inside[at, source, b, d], found.begun[at, source, 0, d]], 1)
        value = before + found.weights[at, into, b, d].unsqueeze(1)
        # The last move of a phrase enters, and so does the first.
        possible = torch.stack([there if taken else there & enters, there & enters], 1)
        best = torch.where(possible, value, -math.inf).flatten(0, 1).argmax(0)  # edges × inside or begun
        edge, begins = into.gather(0, best.unsqueeze(0) // 2).squeeze(0), best % 2 == 1
        taken.append(torch.where(going, found.moves[edge], -1))
        going = going & ~begins & (at > 0)
        node = torch.where(going, edges.source[edge], node)
    columns = torch.stack(taken, -1).tolist()
    ways = [_kinds(move) for move in part.moves.moves]
    return [
        [_wording(reading, ways, *each) for each in zip(moves, ends, sentences, strict=True)]
        for moves, ends, sentences in zip(columns, t.tolist(), b.tolist(), strict=True)
    ]


def _kinds(move: Move) -> list[StepKind]:
    """Return the kinds of a move's arcs."""
    bridged: list[StepKind] = ["bridged"] * (len(move.bridge.arcs) + move.bridge.star)
    return [*bridged, "consumed" if move.consumes else "skipped"]


def _wording(reading: Reading, ways: list[list[StepKind]], moves: list[int], end: int, b: int) -> Wording:
    """Return the wording of a phrase in the sentence's order, given its moves, the last one first."""
    if end >= len(reading.tokens[b]):
        return (), (), b, 0
    taken = [m for m in reversed(moves) if m >= 0]
    kinds: list[StepKind] = [kind for m in taken for kind in ways[m]]
    if reading.backward:
        kinds.reverse()
    first = min(reading.position(b, end - len(taken) + 1), reading.position(b, end))
    words = iter(reading.tokens[b][first:])
    return tuple("ε" if kind == "bridged" else next(words) for kind in kinds), tuple(kinds), b, first
