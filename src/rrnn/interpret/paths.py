"""Find the strongest paths of each unit: which tokens they consume, skip by a self-loop, or bridge by ε-arcs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from rrnn import moved
from rrnn.interpret.moves import Bridge
from rrnn.interpret.reading import CellReading, Reading
from rrnn.interpret.trellises import share, trellis
from rrnn.semirings import Semiring, get_semiring
from rrnn.semirings.semiring import Element
from rrnn.wfsa.paths import check_k
from rrnn.wfsa.strongest import Traces, ranks_of, strongest
from rrnn.wfsa.trellis import Trellis

RANKS, SIZES = get_semiring("max-plus"), get_semiring("real")

StepKind = Literal["consumed", "skipped", "bridged"]


@dataclass(frozen=True)
class PathStep:
    """One arc of a path. It has no weight: factors can move from one arc to another without changing any score, so only
    the product of a whole path has a meaning."""

    kind: StepKind
    """Consumed by an arc to another state, skipped by a self-loop (or an arc of weight 1̄), or bridged by an ε-arc."""
    token: str
    position: int | None
    """The position in the sentence, from 0; None for ε."""
    source: str
    target: str


@dataclass(frozen=True)
class TokenPath:
    """A path through a unit's automaton, in reading order. `weight` is the product λ ⊗ arcs ⊗ ρ."""

    weight: Element
    start: str
    steps: tuple[PathStep, ...]

    @property
    def consumed(self) -> tuple[str, ...]:
        """The consumed tokens."""
        return tuple(step.token for step in self.steps if step.kind == "consumed")

    @property
    def states(self) -> tuple[str, ...]:
        """The states in the order in which the path visits them."""
        return (self.start, *(step.target for step in self.steps))

    @property
    def text(self) -> str:
        """The phrase in the sentence's order: "not [very] good", with skipped words in brackets and ε for ε-arcs."""
        inside = [i for i, step in enumerate(self.steps) if step.kind != "skipped"]
        steps = self.steps[inside[0] : inside[-1] + 1] if inside else ()
        places = [step.position for step in steps if step.position is not None]
        words = [f"[{step.token}]" if step.kind == "skipped" else step.token for step in steps]
        return " ".join(reversed(words) if places != sorted(places) else words)

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"text": self.text})


@dataclass(frozen=True)
class UnitPaths:
    """The strongest paths of one unit in one sentence, the strongest first."""

    sentence: int
    unit: int
    cell: str
    semiring: str
    score: Element
    paths: tuple[TokenPath, ...]
    covered: float | None
    """The fraction of the total path weight that these paths cover: of Σ|weight| where weights can cancel, over log of
    exp(score). None where the score is the weight of one path, and where there are no paths."""

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"paths": [path.to_json() for path in self.paths]})


def finite(value: Any) -> Any:
    """Replace infinities and NaN by None, also inside lists and dicts, since JSON has none."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def best_paths(reading: Reading) -> list[UnitPaths]:
    """Return the best path of every unit in every sentence: where ⊕ selects, its weight is the score."""
    return k_best(reading, 1)


def k_best(reading: Reading, k: int) -> list[UnitPaths]:
    """Return the k strongest paths of every unit in every sentence, sentence by sentence, without those of weight 0̄.

    The strongest paths have the greatest weight, over min-plus the smallest, over real and complex numbers the greatest
    absolute value. Of tied paths the first wins: by their ends, then, from the end, by their moves, self-loops before
    others. Where ⊕ does not select, all paths through an ε-cycle count as one, which bridges the whole cycle.
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
        passages = _StepsOfPaths(reading, part)
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
    """Return the weights of paths, (k, B, D), multiplied in reading order; 0̄ where there is no path."""
    ring = steps.ring
    assert isinstance(steps.weights, Tensor)
    weight = _picked(ring, steps.initial, traces.start)
    along = _picked(ring, steps.weights, traces.edges.clamp_min(0), 1)
    for edge, of_step in zip(traces.edges, along, strict=True):
        more = ring.t_times(weight, of_step)
        weight = more if steps.valid is None else ring.where(edge >= 0, more, weight)
    weight = ring.t_times(weight, _picked(ring, steps.final, traces.end))
    return ring.where(traces.rank > -math.inf, weight, ring.zeros(dtype=weight.dtype))


def _picked(ring: Semiring, weights: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """Select from the weights (…, n, B, D) by an index (…, k, B, D) into dimension `dim`."""
    if ring.components:
        index = index.unsqueeze(-1).expand(*index.shape, ring.size)
    return weights.gather(dim, index)


def _covered(steps: Trellis, weights: Tensor) -> list[list[float]] | None:
    """Return the fraction (B, D) of the total weight that paths cover, of absolute weights where they can cancel."""
    ring = steps.ring
    if ring.selective:
        return None
    if ring.cancels:
        steps = steps.over(SIZES, lambda w: ring.on_tensors(ring.magnitude, w))
        weights = ring.on_tensors(ring.magnitude, weights)
    whole = steps.plain(steps.total())
    return share(steps.ring, steps.ring.t_sum(weights, 0), whole).tolist()


class _StepsOfPaths:
    """Turn the moves of paths into steps. Steps of the same move at the same position are created once."""

    def __init__(self, reading: Reading, part: CellReading) -> None:
        self.reading, self.moves = reading, part.moves
        self.known: dict[tuple[int, int, int], list[PathStep]] = {}

    def __call__(self, b: int, moves: list[int], end: int) -> tuple[PathStep, ...]:
        """Return the steps of a path in sentence b; moves are −1 after its end."""
        steps: list[PathStep] = []
        for t, number in enumerate(moves):
            if number < 0:
                break
            key = (b, t, number)
            if key not in self.known:
                self.known[key] = self._of_move(*key)
            steps += self.known[key]
        return (*steps, *_over(self.moves.ends[end].bridge))

    def _of_move(self, b: int, t: int, number: int) -> list[PathStep]:
        move, position = self.moves.moves[number], self.reading.position(b, t)
        kind: StepKind = "consumed" if move.consumes else "skipped"
        token = self.reading.tokens[b][position]
        return [*_over(move.bridge), PathStep(kind, token, position, move.arc.source, move.arc.target)]


def _over(bridge: Bridge) -> list[PathStep]:
    if bridge.star:
        return [PathStep("bridged", "ε*", None, bridge.source, bridge.target)]
    return [PathStep("bridged", "ε", None, arc.source, arc.target) for arc in bridge.arcs]


__getattr__ = moved.attributes(__name__)
