"""What units look for: the strongest phrases that each found in many sentences.

A phrase is the stretch of a path from its first entry (leaving the initial state) to its last (reaching a final one):
its weight is λ, the moves between, and ρ. What self-loops multiply before and after, the decay by the rest of the
sentence, is left out, so that a phrase weighs the same wherever it stands (unless a window sees beyond it).

At every position that could be a last entry, the strongest phrase that ends there is a candidate, over the reals the
strongest of either sign; the strongest candidates of all sentences are reported, each wording once.
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
from rrnn.interpret.paths import Kind, finite
from rrnn.interpret.reading import Part, Reading
from rrnn.interpret.trellises import rank, weight_of
from rrnn.semirings import Semiring


@dataclass(frozen=True)
class Phrase:
    """A phrase with its product of weights, without what surrounds it."""

    weight: float
    tokens: tuple[str, ...]
    kinds: tuple[Kind, ...]
    """Of each token: consumed, skipped by a self-loop, or bridged, which is no token but ε."""
    sentence: int
    """The number of the sentence in which it weighs most."""
    position: int
    """Of its first word there."""

    @property
    def text(self) -> str:
        """ "not [very] good", skipped words in brackets, ε where it is bridged."""
        pairs = zip(self.tokens, self.kinds, strict=True)
        return " ".join(f"[{token}]" if kind == "skipped" else token for token, kind in pairs)

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"text": self.text})


@dataclass(frozen=True)
class UnitPhrases:
    """The strongest phrases of a unit. Over semirings without negative weights all are in `positive`, which over
    min-plus begins with the smallest weight, the best there."""

    unit: int
    cell: str
    semiring: str
    positive: tuple[Phrase, ...]
    negative: tuple[Phrase, ...]

    def to_json(self) -> dict[str, Any]:
        lists = {"positive": self.positive, "negative": self.negative}
        return asdict(self) | {name: [phrase.to_json() for phrase in some] for name, some in lists.items()}


def phrases(readings: Reading | Iterable[Reading], top: int = 5) -> list[UnitPhrases]:
    """The `top` strongest phrases of every unit, over all sentences of a reading or of several by one layer."""
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise AutomatonError(f"top is how many phrases to list, a whole number above 0; got {top!r}")
    found: dict[tuple[int, int], _Best] = {}  # (unit, sign) → its best
    names: dict[int, tuple[str, str]] = {}
    before = 0
    for reading in [readings] if isinstance(readings, Reading) else readings:
        if reading.depth:
            raise AutomatonError(
                f"phrases are of words, which the first layer reads; layer {reading.depth} reads the states below it. "
                "Read layer 0, or look at positions with best_paths."
            )
        for part in reading.parts:
            _refuse_components(part.ring)
            names |= dict.fromkeys(part.units, (part.cell.name, part.ring.name))
            if reading.x.shape[0]:
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
    """Raise where a weight has no sign: phrases are ranked among those of their sign."""
    if ring.components:
        raise SemiringError(
            f"phrases need weights that are single numbers, positive or negative; over {ring.name} a weight has the "
            f"components {', '.join(ring.components)}. Look at k_best, which ranks paths by their magnitude."
        )


class _Best:
    """Phrases by wording, each where it is strongest."""

    def __init__(self) -> None:
        self.by_wording: dict[tuple[tuple[str, ...], tuple[Kind, ...]], tuple[float, Phrase]] = {}

    def add(self, value: float, phrase: Phrase) -> None:
        key = (phrase.tokens, phrase.kinds)
        if key not in self.by_wording or value > self.by_wording[key][0]:
            self.by_wording[key] = (value, phrase)

    def phrases(self, top: int) -> tuple[Phrase, ...]:
        ordered = sorted(self.by_wording.values(), key=lambda each: -each[0])
        return tuple(phrase for _, phrase in ordered[:top])

    def bar(self, top: int) -> float:
        """What a new phrase must exceed to be listed."""
        values = sorted((value for value, _ in self.by_wording.values()), reverse=True)
        return values[top - 1] if len(values) >= top else -math.inf


def _collect(
    reading: Reading, part: Part, before: int, top: int, found: dict[tuple[int, int], _Best]
) -> None:
    """Add the phrases of a reading. Frequent ones fill the list of the strongest many times over: look further down it
    until there are enough different ones."""
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
            best = found.setdefault((part.units[d], sign), _Best())
            bar = best.bar(top)
            for value, (tokens, kinds, b, position) in zip(row, words, strict=True):
                if value > bar:
                    weight = weight_of(part.ring, torch.tensor(value, dtype=torch.float64), bool(sign)).item()
                    best.add(value, Phrase(weight, tokens, kinds, before + b, position))
            if row[-1] > best.bar(top):
                left.append((sign, d))
        open_, begin, step = left, begin + step, 2 * step


# ---- the search -----------------------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """Per step: the strongest phrase whose last entry is there, and how it came about. S states with a sign each; a
    code is the number of a move, plus that of all moves if the phrase begins with it."""

    value: Tensor  # (T, signs, B, D): ranks, −∞ where there is none
    state: Tensor  # (T, signs, B, D): sign · S + state after its last entry
    entered: Tensor  # (T, signs · S, B, D): the code of the strongest way to enter the state here
    reached: Tensor  # (T, signs · S, B, D): of the strongest way to be there, self-loops too
    negative: Tensor | None  # (T, moves, B, D)


class _Rows(NamedTuple):
    """The columns of a table, step by step."""

    value: list[Tensor]
    state: list[Tensor]
    entered: list[Tensor]
    reached: list[Tensor]


def _signed(ring: Semiring, weight: Tensor) -> Tensor:
    """Ranks of positive and of negative weights, (signs, …)."""
    ranks = rank(ring, weight)
    if not ring.cancels:
        return ranks.unsqueeze(0)
    none = torch.full_like(ranks, -math.inf)
    return torch.stack([torch.where(weight < 0, none, ranks), torch.where(weight < 0, ranks, none)])


def _beginnings(part: Part, steps: int) -> list[Tensor]:
    """Per step (signs, S, D): what it is worth to begin a phrase in each state, once self-loops have led there."""
    row = _signed(part.ring, part.initial)
    rows = []
    for _ in range(steps):
        rows.append(row)
        row = _stay(part, row, forwards=True)
    return rows


def _endings(part: Part, steps: int) -> Tensor:
    """(T, signs, S, D): what it is worth to have entered a state for the last time, r symbols before the end."""
    zero = torch.full_like(part.initial, part.ring.zero)
    row = _signed(part.ring, zero).clone()
    for end, weight in zip(part.moves.ends, part.ends, strict=True):
        q = part.moves.index[end.source]
        row[:, q] = torch.maximum(row[:, q], _signed(part.ring, weight))
    rows = []
    for _ in range(steps):
        rows.append(row)
        row = _stay(part, row, forwards=False)
    return torch.stack(rows)


def _stay(part: Part, row: Tensor, forwards: bool) -> Tensor:
    """One symbol further over moves that do not enter, whose weights do not count."""
    new = torch.full_like(row, -math.inf)
    for source, target, move, _ in part.graph:
        if not move.enters:
            a, b = (source, target) if forwards else (target, source)
            new[:, b] = torch.maximum(new[:, b], row[:, a])
    return new


def _search(part: Part, reading: Reading) -> _Table:
    ring, (steps, batch) = part.ring, reading.x.shape[:2]
    ranks = rank(ring, part.weights)
    negative = part.weights < 0 if ring.cancels else None
    starts, endings = _beginnings(part, steps), _endings(part, steps)
    lengths = torch.tensor(reading.lengths, dtype=torch.int64)
    signs, size, width = starts[0].shape
    values = part.initial.new_full((signs, size, batch, width), -math.inf)
    found = _Rows([], [], [], [])
    for t in range(steps):
        entered, reached = (
            [_Strongest(values) for _ in range(size)],
            [_Strongest(values) for _ in range(size)],
        )
        for m, (source, target, move, _) in enumerate(part.graph):
            value, begins = values[:, source], None
            if move.enters:
                lead = starts[t][:, source].unsqueeze(1)
                value, begins = torch.maximum(value, lead), lead > value
            if negative is not None:
                here = negative[t, m]
                value = torch.where(here, value.flip(0), value)
                begins = begins if begins is None else torch.where(here, begins.flip(0), begins)
            code = m if begins is None else m + len(part.graph) * begins.int()
            for best in (entered[target], reached[target]) if move.enters else (reached[target],):
                best.add(value + ranks[t, m], code)
        remaining = lengths - 1 - t
        ending = endings[remaining.clamp_min(0)].permute(1, 2, 0, 3)  # (signs, S, B, D)
        ending = torch.where((remaining >= 0)[:, None], ending, -math.inf)
        values = torch.stack([best.value for best in reached], 1)
        ended = _ended([best.value for best in entered], ending, values)
        found.value.append(ended.value)
        found.state.append(ended.code)
        found.entered.append(torch.stack([best.code for best in entered], 1).flatten(0, 1))
        found.reached.append(torch.stack([best.code for best in reached], 1).flatten(0, 1))
    value, state, entries, reaches = (torch.stack(column) for column in found)
    return _Table(value, state, entries, reaches, negative)


def _ended(entered: list[Tensor], ending: Tensor, like: Tensor) -> _Strongest:
    """The strongest phrase over all states in which it may end; negative by negative is positive."""
    best, size = _Strongest(like), len(entered)
    own = torch.arange(len(ending))[:, None, None]
    for q, value in enumerate(entered):
        best.add(value + ending[0, q], own * size + q)
        if len(ending) > 1:
            best.add(value.flip(0) + ending[1, q], own.flip(0) * size + q)
    return best


class _Strongest:
    """The greatest of several values, (signs, B, D), with the code of the first that has it."""

    def __init__(self, like: Tensor) -> None:
        self.value = torch.full_like(like[:, 0], -math.inf)
        self.code = torch.zeros_like(self.value, dtype=torch.int32)

    def add(self, value: Tensor, code: Tensor | int) -> None:
        better = value > self.value
        self.value = torch.where(better, value, self.value)
        self.code = torch.where(better, torch.as_tensor(code, dtype=torch.int32), self.code)


Wording = tuple[tuple[str, ...], tuple[Kind, ...], int, int]
"""Tokens, their kinds, the sentence in the reading, the position of the first token."""


def _wordings(
    reading: Reading, part: Part, table: _Table, signs: Tensor, units: Tensor, picked: Tensor
) -> list[list[Wording]]:
    """The phrases at `picked` (rows, n), places in T·B, of each row's sign and unit: traced back, all at once."""
    steps, batch = reading.x.shape[:2]
    count, size = len(part.graph), len(part.moves.states)
    sources = torch.tensor([source for source, *_ in part.graph])
    d = units.unsqueeze(1).expand_as(picked)
    t, b = picked // batch, picked % batch
    node = table.state[t, signs.unsqueeze(1), b, d].long()
    code = table.entered[t, node, b, d].long()
    taken = []
    going = torch.ones_like(picked, dtype=torch.bool)
    for back in range(steps):
        move, at = code % count, t - back
        taken.append(torch.where(going, move, -1))
        going = going & (code < count) & (at > 0)
        if not going.any():
            break
        at = at.clamp_min(1)
        sign = node // size
        if table.negative is not None:
            sign = sign ^ table.negative[at, move, b, d].long()
        node = torch.where(going, sign * size + sources[move], node)
        code = torch.where(going, table.reached[at - 1, node, b, d].long(), code)
    columns = torch.stack(taken, -1).tolist()
    ways = [_kinds(move) for _, _, move, _ in part.graph]
    return [
        [_wording(reading, ways, *each) for each in zip(moves, ends, sentences, strict=True)]
        for moves, ends, sentences in zip(columns, t.tolist(), b.tolist(), strict=True)
    ]


def _kinds(move: Move) -> list[Kind]:
    """Of the arcs of a move."""
    bridged: list[Kind] = ["bridged"] * (len(move.bridge.arcs) + move.bridge.star)
    return [*bridged, "consumed" if move.consumes else "skipped"]


def _wording(reading: Reading, ways: list[list[Kind]], moves: list[int], end: int, b: int) -> Wording:
    """`moves` are the last one first. In the sentence's order, which a backward reading reads from its end."""
    if end >= len(reading.tokens[b]):
        return (), (), b, 0
    taken = [m for m in reversed(moves) if m >= 0]
    kinds: list[Kind] = [kind for m in taken for kind in ways[m]]
    if reading.backward:
        kinds.reverse()
    first = min(reading.position(b, end - len(taken) + 1), reading.position(b, end))
    words = iter(reading.tokens[b][first:])
    return tuple("ε" if kind == "bridged" else next(words) for kind in kinds), tuple(kinds), b, first
