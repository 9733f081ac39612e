"""The strongest paths of each unit, traced back: which tokens they consume, skip by a self-loop, or bridge by ε."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.interpret.moves import Bridge
from rrnn.interpret.ranks import rank, share
from rrnn.interpret.reading import Part, Reading
from rrnn.interpret.tables import absolute, forward, last_row, meet

Kind = Literal["consumed", "skipped", "bridged"]


@dataclass(frozen=True)
class Step:
    """One arc of a path. It carries no weight: a factor can move from one arc to another without changing any score,
    so only the product of a whole path means something."""

    kind: Kind
    """Consumed by an arc to another state, skipped by a self-loop (or an arc weighted 1̄), or bridged by an ε-arc."""
    token: str
    position: int | None
    """Where in the sentence, from 0; None for ε."""
    source: str
    target: str


@dataclass(frozen=True)
class Path:
    """A path through a unit's automaton, in the order in which it reads. `weight` is λ ⊗ its arcs ⊗ ρ."""

    weight: float
    start: str
    steps: tuple[Step, ...]

    @property
    def consumed(self) -> tuple[str, ...]:
        return tuple(step.token for step in self.steps if step.kind == "consumed")

    @property
    def states(self) -> tuple[str, ...]:
        return (self.start, *(step.target for step in self.steps))

    @property
    def text(self) -> str:
        """The phrase, in the sentence's order: "not [very] good", skipped words in brackets, ε where it is bridged."""
        inside = [i for i, step in enumerate(self.steps) if step.kind != "skipped"]
        steps = self.steps[inside[0] : inside[-1] + 1] if inside else ()
        places = [step.position for step in steps if step.position is not None]
        words = [f"[{step.token}]" if step.kind == "skipped" else step.token for step in steps]
        return " ".join(reversed(words) if places != sorted(places) else words)

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"text": self.text})


@dataclass(frozen=True)
class UnitPaths:
    """The strongest paths of one unit in one sentence, strongest first."""

    sentence: int
    unit: int
    cell: str
    semiring: str
    score: float
    paths: tuple[Path, ...]
    covered: float | None
    """The share of these paths in Σ|weight| of all paths, since over the reals they may cancel; over log, in
    exp(score). None where one path is the score, and where there are no paths."""

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"paths": [path.to_json() for path in self.paths]})


def finite(value: Any) -> Any:
    """For JSON, which has no infinities and no NaN: None, wherever they are inside."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def best_paths(reading: Reading) -> list[UnitPaths]:
    """The best path of every unit in every sentence: where ⊕ selects, the one whose weight is the score."""
    return k_best(reading, 1)


def k_best(reading: Reading, k: int) -> list[UnitPaths]:
    """The k strongest paths of every unit in every sentence, sentence by sentence, none of weight 0̄.

    The strongest have the greatest weight, the smallest over min-plus; over the reals the greatest absolute value, of
    either sign. All paths that an ε-cycle makes possible over the reals or logs are one, which bridges it whole."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise AutomatonError(f"k_best lists at least one path, a whole number of them; got k = {k!r}")
    found: list[list[UnitPaths]] = [[] for _ in reading.tokens]
    for part in reading.parts:
        traces = _trace(part, reading.valid, k)
        whole = meet(part, forward(part, reading.valid)[-1], torch.stack(last_row(part))).tolist()
        covered = _covered(part, reading.valid, traces.weight)
        columns = [
            t.tolist() for t in (traces.weight, traces.start, traces.end, traces.moves.permute(1, 2, 3, 0))
        ]
        for b, of_sentence in enumerate(found):
            for d, unit in enumerate(part.units):
                paths = [
                    _path(reading, part, b, *(column[i][b][d] for column in columns))
                    for i in range(len(columns[0]))
                    if columns[0][i][b][d] != part.ring.zero
                ]
                of_unit = None if covered is None or math.isnan(covered[b][d]) else covered[b][d]
                of_sentence.append(
                    UnitPaths(b, unit, part.cell.name, part.ring.name, whole[b][d], tuple(paths), of_unit)
                )
    return [each for of_sentence in found for each in of_sentence]


class _Traces(NamedTuple):
    """k paths of each unit and sentence, strongest first; a path that is none has the weight 0̄."""

    weight: Tensor  # (k, B, D)
    start: Tensor  # (k, B, D): the state, by number
    end: Tensor  # (k, B, D): which of the ends
    moves: Tensor  # (T, k, B, D): which of the moves, −1 behind the end


def _trace(part: Part, valid: Tensor | None, k: int) -> _Traces:
    """Viterbi with lists: at each state the k strongest beginnings, and the move and beginning that each came from."""
    ring, steps = part.ring, part.weights[0].shape[0]
    first = rank(ring, part.initial).unsqueeze(1).unsqueeze(1)  # (S, 1, 1, D)
    none = first.new_full((len(first), k - 1, *part.weights[0].shape[1:]), -math.inf)
    values = torch.cat([first.expand(-1, 1, *none.shape[2:]), none], 1)  # (S, k, B, D)
    ranks = [rank(ring, w) for w in part.weights]
    into: list[list[tuple[int, int]]] = [[] for _ in first]
    for m, (source, target, _, _) in enumerate(part.graph):
        into[target].append((m, source))
    origins = []
    for t in range(steps):
        new, origin = [], []
        for arriving in into:
            value, code = _strongest([(m, values[q] + ranks[m][t]) for m, q in arriving], values[0], k)
            new.append(value)
            origin.append(code)
        origins.append(torch.stack(origin))
        kept = torch.stack(new)
        values = kept if valid is None else torch.where(valid[t, :, None], kept, values)
    index = part.moves.index
    ends = [
        (e, values[index[end.source]] + rank(ring, w))
        for e, (end, w) in enumerate(zip(part.moves.ends, part.ends, strict=True))
    ]
    value, code = _strongest(ends, values[0], k)
    traces = _unwind(part, valid, origins, code, k)
    return traces._replace(weight=torch.where(value > -math.inf, traces.weight, ring.zero))


def _strongest(options: list[tuple[int, Tensor]], like: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of the options' values (k, B, D), of equal ones the first, and number · k + place of each."""
    if not options:
        return torch.full_like(like, -math.inf), torch.zeros_like(like, dtype=torch.int64)
    values, order = torch.cat([value for _, value in options]).sort(stable=True, dim=0, descending=True)
    numbers = torch.tensor([number for number, _ in options], device=like.device)
    order = order[:k]
    return values[:k], numbers[order // k] * k + order % k


def _unwind(part: Part, valid: Tensor | None, origins: list[Tensor], code: Tensor, k: int) -> _Traces:
    """From the ends back to the starts; weights are multiplied on the way."""
    ring, index = part.ring, part.moves.index
    sources = torch.tensor([index[m.source] for m in part.moves.moves])
    end, place = code // k, code % k
    state = torch.tensor([index[e.source] for e in part.moves.ends])[end]
    weight = torch.stack(part.ends)[:, None].expand(-1, code.shape[1], -1).gather(0, end)
    taken = []
    for t in reversed(range(len(origins))):
        here = origins[t].flatten(0, 1).gather(0, state * k + place)
        move = here // k
        going = (
            torch.ones_like(move, dtype=torch.bool) if valid is None else valid[t, :, None].expand_as(move)
        )
        weights = torch.stack([w[t] for w in part.weights])
        weight = torch.where(going, ring.t_times(weights.gather(0, move), weight), weight)
        state = torch.where(going, sources[move], state)
        place = torch.where(going, here % k, place)
        taken.append(torch.where(going, move, -1))
    weight = ring.t_times(part.initial[:, None].expand(-1, code.shape[1], -1).gather(0, state), weight)
    moves = torch.stack(taken[::-1]) if taken else state.new_empty(0, *state.shape)
    return _Traces(weight, state, end, moves)


def _covered(part: Part, valid: Tensor | None, weights: Tensor) -> list[list[float]] | None:
    ring = part.ring
    if ring.laws.selective:
        return None
    sizes = absolute(part) if ring.laws.has_negation else part
    whole = meet(sizes, forward(sizes, valid)[-1], torch.stack(last_row(sizes)))
    listed = ring.t_sum(weights.abs() if ring.laws.has_negation else weights, 0)
    return share(ring, listed, whole).tolist()


def _path(
    reading: Reading, part: Part, b: int, weight: float, start: int, end: int, taken: list[int]
) -> Path:
    steps: list[Step] = []
    for t, number in enumerate(taken):
        if number < 0:
            break
        move, position = part.moves.moves[number], reading.position(b, t)
        steps += _over(move.bridge)
        kind: Kind = "consumed" if move.consumes else "skipped"
        steps.append(Step(kind, reading.tokens[b][position], position, move.arc.source, move.arc.target))
    steps += _over(part.moves.ends[end].bridge)
    return Path(weight, part.moves.states[start], tuple(steps))


def _over(bridge: Bridge) -> list[Step]:
    if bridge.star:
        return [Step("bridged", "ε*", None, bridge.source, bridge.target)]
    return [Step("bridged", "ε", None, arc.source, arc.target) for arc in bridge.arcs]
