"""The strongest paths of each unit, traced back: which tokens they consume, skip by a self-loop, or bridge by ε."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from rrnn.interpret.moves import Bridge
from rrnn.interpret.ranks import share
from rrnn.interpret.reading import Part, Reading
from rrnn.interpret.tables import trellis
from rrnn.semirings import Semiring, get_semiring
from rrnn.semirings.semiring import Element
from rrnn.wfsa.kbest import check_k
from rrnn.wfsa.strongest import Traces, ranks_of, strongest
from rrnn.wfsa.trellis import Trellis

RANKS, SIZES = get_semiring("max-plus"), get_semiring("real")

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
class TokenPath:
    """A path through a unit's automaton, in the order in which it reads tokens. `weight` is λ ⊗ its arcs ⊗ ρ."""

    weight: Element
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
    score: Element
    paths: tuple[TokenPath, ...]
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
    """Return the best path of every unit in every sentence: where ⊕ selects, the one whose weight is the score."""
    return k_best(reading, 1)


def k_best(reading: Reading, k: int) -> list[UnitPaths]:
    """Return the k strongest paths of every unit in every sentence, sentence by sentence, none of weight 0̄.

    The strongest have the greatest weight, the smallest over min-plus; over real and complex numbers the greatest
    absolute value. Of tied paths the first wins: by how they end, then, from the end, by their moves, self-loops before
    others. All paths that an ε-cycle makes possible where ⊕ does not select are one, which bridges it whole.
    """
    check_k(k)
    found: list[list[UnitPaths]] = [[] for _ in reading.tokens]
    for part in reading.parts:
        steps, ring = trellis(part, reading.valid), part.ring
        traces = strongest(steps.over(RANKS, lambda w, ring=ring: ranks_of(ring, w)), k)
        weights = _weights(steps, traces)
        score = ring.numbers(steps.plain(steps.total()))
        covered = _covered(steps, weights)
        weight, start, end = ring.numbers(weights), traces.start.tolist(), traces.end.tolist()
        taken = traces.edges.permute(2, 3, 1, 0).tolist()
        passages = _Passages(reading, part)
        for b, of_sentence in enumerate(found):
            for d, unit in enumerate(part.units):
                paths = tuple(
                    TokenPath(
                        weight[i][b][d], part.moves.states[start[i][b][d]], passages(b, moves, end[i][b][d])
                    )
                    for i, moves in enumerate(taken[b][d])
                    if weight[i][b][d] != ring.zero
                )
                share_of = None if covered is None or math.isnan(covered[b][d]) else covered[b][d]
                of_sentence.append(
                    UnitPaths(b, unit, part.cell.name, ring.name, score[b][d], paths, share_of)
                )
    return [each for of_sentence in found for each in of_sentence]


def _weights(steps: Trellis, traces: Traces) -> Tensor:
    """Return the weights of paths, (k, B, D), multiplied in the order of reading; 0̄ where there is no path."""
    ring = steps.ring
    weight = _picked(ring, steps.initial, traces.start)
    for t, edge in enumerate(traces.edges):
        more = ring.t_times(weight, _picked(ring, steps.weights[t], edge.clamp_min(0)))
        weight = more if steps.valid is None else ring.where(edge >= 0, more, weight)
    weight = ring.t_times(weight, _picked(ring, steps.final, traces.end))
    return ring.where(traces.rank > -math.inf, weight, ring.zeros(dtype=weight.dtype))


def _picked(ring: Semiring, weights: Tensor, index: Tensor) -> Tensor:
    """Return those of the weights (n, B, D) that an index (k, B, D) names."""
    if ring.components:
        index = index.unsqueeze(-1).expand(*index.shape, ring.size)
    return weights.gather(0, index)


def _covered(steps: Trellis, weights: Tensor) -> list[list[float]] | None:
    """Return the share (B, D) of paths in the total, or in that of all sizes where paths can cancel."""
    ring = steps.ring
    if ring.selective:
        return None
    if ring.cancels:
        steps = steps.over(SIZES, lambda w: ring.on_tensors(ring.magnitude, w))
        weights = ring.on_tensors(ring.magnitude, weights)
    whole = steps.plain(steps.total())
    return share(steps.ring, steps.ring.t_sum(weights, 0), whole).tolist()


class _Passages:
    """The steps of paths. Those of a move at a position are the same in all of them, and made once."""

    def __init__(self, reading: Reading, part: Part) -> None:
        self.reading, self.moves = reading, part.moves
        self.known: dict[tuple[int, int, int], list[Step]] = {}

    def __call__(self, b: int, moves: list[int], end: int) -> tuple[Step, ...]:
        """Return the steps of a path in sentence b; moves are −1 behind its end."""
        steps: list[Step] = []
        for t, number in enumerate(moves):
            if number < 0:
                break
            key = (b, t, number)
            if key not in self.known:
                self.known[key] = self._of_move(*key)
            steps += self.known[key]
        return (*steps, *_over(self.moves.ends[end].bridge))

    def _of_move(self, b: int, t: int, number: int) -> list[Step]:
        move, position = self.moves.moves[number], self.reading.position(b, t)
        kind: Kind = "consumed" if move.consumes else "skipped"
        token = self.reading.tokens[b][position]
        return [*_over(move.bridge), Step(kind, token, position, move.arc.source, move.arc.target)]


def _over(bridge: Bridge) -> list[Step]:
    if bridge.star:
        return [Step("bridged", "ε*", None, bridge.source, bridge.target)]
    return [Step("bridged", "ε", None, arc.source, arc.target) for arc in bridge.arcs]
