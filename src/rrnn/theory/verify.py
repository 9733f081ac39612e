"""Check the paper's definition of rational recurrences: every hidden unit of a layer is the score of a WFSA.

A layer with random weights reads random strings over a random alphabet of vectors. Each unit is turned into the WFSA
that it should be. At every step its score is compared with Forward on that WFSA, and on short strings with the sum over
all paths, which is the definition of a WFSA's score.

For models that are not shown to be rational there is nothing to compare. Their verdict is what docs/theory.md proves
about them, or "open", with what the paper says.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rrnn import zoo
from rrnn.automata import Cell
from rrnn.errors import CellError, RunError
from rrnn.ir import lower
from rrnn.ir.equations import Equations, state_symbols
from rrnn.ir.notation import PLAIN
from rrnn.nn import RationalRNN
from rrnn.theory.unit_automata import reach, scores, to_wfsa
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.paths import epsilon_cycle
from rrnn.zoo.mixing import ISAN

TOLERANCE = 1e-10
SYMBOLS, UNITS, INPUTS = 4, 3, 5  # of the random layers
MIXING_STATES = 3  # of a family whose states all lead to each other
LONG, SHORT = 12, 5  # symbols in a string for Forward, and in one for path enumeration
EPSILON_ARCS = (
    10_000  # the most ε-arcs in a row on the paths of a cell with an ε-cycle: weights as 0.997 need them
)


@dataclass(frozen=True)
class Verdict:
    """How far a layer's scores are from those of its automata.

    Errors are relative to the score under absolute weights; where ⊗ is +, they are absolute for scores below one.
    """

    model: str
    recurrence: str
    automaton: str
    """The paper's name of the automaton, or its shape."""
    semiring: str
    states: int | None
    """The number of states of one unit's WFSA; this and the following fields are empty if no automaton is known."""
    arcs: int | None = None
    compared: int = 0
    """The number of scores that were compared with Forward."""
    forward_error: float | None = None
    path_error: float | None = None
    tolerance: float = TOLERANCE
    note: str = ""
    """What the paper says about a recurrence that it does not show to be rational."""
    proved: str = ""
    """What is proved about such a recurrence."""

    @property
    def max_error(self) -> float | None:
        errors = [e for e in (self.forward_error, self.path_error) if e is not None]
        return max(errors) if errors else None

    @property
    def holds(self) -> bool:
        """False if the layer differs from the automata of its units."""
        return self.max_error is None or self.max_error <= self.tolerance

    @property
    def verdict(self) -> str:
        """ "rational" if the automaton agrees with the layer; what is proved about a model without one; else "open"."""
        return "rational" if self.max_error is not None and self.holds else self.proved or "open"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON. An error that is infinite or NaN becomes null, and `holds` is then false."""
        fields = asdict(self) | {"max_error": self.max_error}
        fields = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
        return fields | {"holds": self.holds, "verdict": self.verdict}


def verify_model(name: str | Path, *, seed: int = 0, tolerance: float = TOLERANCE) -> Verdict:
    """Compare a layer of this model of the zoo (or of a `.cell` file) with the automata of its units."""
    model = _layer(name)
    if model is None:
        cell = zoo.get_cell(name)
        if any(arc.full for arc in cell.arcs) and not isinstance(name, Path) and not zoo.names_file(name):
            # Each path is enumerated, and there are as many ways on as states: a small family shows the same.
            size = "units" if "units" in zoo.get_model(name).options else "states"
            cell = zoo.get_cell(name, **{size: MIXING_STATES})
        return verify_cell(cell, name=str(name), seed=seed, tolerance=tolerance)
    text = model.recurrence or " ".join((model.factory.__doc__ or "").split())
    if model.open:
        return Verdict(str(name), text, "none known", "real", None, note=model.open, proved=model.proved)
    switched = model.factory is ISAN
    layer = model.factory(SYMBOLS if switched else INPUTS, UNITS, dtype=torch.float64)
    return verify_layer(layer, str(name), text, "D", seed=seed, tolerance=tolerance)


def _layer(name: str | Path) -> zoo.Model | None:
    """Return the zoo's model of this name if it is not a cell, else None."""
    try:
        model = zoo.get_model(str(name))
    except CellError:
        if isinstance(name, Path) or zoo.names_file(name):
            return None  # get_cell reads it
        raise
    return None if isinstance(name, Path) or model.is_cell else model


def verify_cell(
    cell: Cell, *, name: str | None = None, seed: int = 0, tolerance: float = TOLERANCE
) -> Verdict:
    """Compare a layer of this cell with the automata of its units."""
    layer = RationalRNN(cell, INPUTS, UNITS, dtype=torch.float64)
    words = (name or cell.name, recurrence(cell), automaton(cell))
    return verify_layer(layer, *words, seed=seed, tolerance=tolerance)


def verify_layer(
    layer: nn.Module,
    name: str,
    recurrence: str,
    automaton: str,
    *,
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> Verdict:
    """Fill a float64 layer with random weights and compare it with the automata of its units.

    `name`, `recurrence` and `automaton` are texts for the verdict.
    """
    if not -(2**63) <= seed < 2**64:
        raise RunError(f"a seed must be a whole number of at most 64 bits; got {seed}")
    g, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * (0.5 if p.dim() > 1 else 1.0))
    switched = isinstance(layer, ISAN)
    vectors = torch.randn(SYMBOLS, INPUTS, generator=g, dtype=torch.float64)
    long = [tuple(rng.choices(range(SYMBOLS), k=LONG)) for _ in range(4)]
    short = [tuple(rng.choices(range(SYMBOLS), k=SHORT)) for _ in range(2)]

    def read(strings: list[tuple[int, ...]]) -> list[Any]:
        """Return the scores as lists, [time][string][unit]."""
        x: Tensor = torch.tensor(strings).T
        return scores(layer, x if switched else vectors[x]).tolist()

    with torch.no_grad():
        of_long, of_short = read(long), read(short)
    machines = [to_wfsa(layer, unit, None if switched else vectors) for unit in range(UNITS)]
    forward, paths, compared = [], [], 0
    for unit, machine in enumerate(machines):
        for b, string in enumerate(long):
            ours = [row[b][unit] for row in of_long]
            forward += _errors(
                ours, machine.semiring.numbers(machine.prefix_scores(string))[1:], _sizes(machine, string)
            )
            compared += len(ours)
        for b, string in enumerate(short):
            ours = [row[b][unit] for row in of_short]
            paths += _errors(ours, scores_by_paths(machine, string)[1:], _sizes(machine, string))
    return Verdict(
        model=name,
        recurrence=recurrence,
        automaton=automaton,
        semiring=machines[0].semiring.name,
        states=machines[0].num_states,
        arcs=machines[0].num_arcs,
        compared=compared,
        forward_error=max(forward),
        path_error=max(paths),
        tolerance=tolerance,
    )


def scores_by_paths(machine: WFSA, string: tuple[Any, ...]) -> list[Any]:
    """Return the score of every prefix as the sum over its paths, without the star that Forward and layers take.

    If ε-arcs form a cycle, there are infinitely many paths: they are added in the order of the number of ε-arcs that
    they take in a row, until the sum no longer changes.
    """
    if epsilon_cycle(machine) is None:
        return [machine.score_by_paths(string[:n]) for n in range(len(string) + 1)]
    ring, final = machine.semiring, machine.final

    def follow(weights: dict[Any, Any], symbol: Any) -> dict[Any, Any]:
        after: dict[Any, Any] = {}
        for arc in machine.arcs:
            if arc.symbol == symbol and arc.source in weights:
                step = ring.times(weights[arc.source], arc.weight)
                after[arc.target] = ring.plus(after[arc.target], step) if arc.target in after else step
        return after

    def close(weights: dict[Any, Any]) -> dict[Any, Any]:
        total, taken = dict(weights), weights
        for _ in range(EPSILON_ARCS):
            taken = follow(taken, EPSILON)
            longer = total | {q: ring.plus(total[q], w) if q in total else w for q, w in taken.items()}
            if longer == total:
                break
            total = longer
        return total

    weights, sums = close(machine.initial), []
    for symbol in (*string, None):
        sums.append(ring.sum(ring.times(w, final[q]) for q, w in weights.items() if q in final))
        weights = close(follow(weights, symbol)) if symbol is not None else weights
    return sums


def _sizes(machine: WFSA, string: tuple[int, ...]) -> list[float]:
    """Return what the error at each prefix is relative to: the score under absolute weights, since paths may cancel."""
    ring = machine.semiring
    if ring.cancels:
        machine = machine.with_semiring("real", lambda w: ring.on_tensors(ring.magnitude, w))
    adds = ring.strength_adds or bool(ring.components)  # such numbers, as logarithms, may be near 0 by chance
    smallest = 1.0 if adds else 1e-300
    numbers = machine.semiring.numbers_of
    return [
        max(smallest, *(abs(float(x)) for x in numbers(size)))
        for size in machine.semiring.numbers(machine.prefix_scores(string))[1:]
    ]


def _errors(ours: Sequence[Any], theirs: Sequence[Any], sizes: Sequence[float]) -> list[float]:
    """Return the errors of scores, numbers or tuples of them; infinite ones (a semiring's zero) must be equal."""
    errors = [
        0.0 if x == y else abs(x - y) / size
        for a, b, size in zip(ours, theirs, sizes, strict=True)
        for x, y in zip(_parts(a), _parts(b), strict=True)
    ]
    return [error if math.isfinite(error) else math.inf for error in errors]


def _parts(score: Any) -> Sequence[float]:
    return score if isinstance(score, (tuple, list)) else (score,)


# ---- the words in the rows of the paper's Table 1 -------------------------------------------------------------------
def recurrence(cell: Cell) -> str:
    """Return the updates of a cell's stored states, and of the score unless it is one of them."""
    lines = Equations(lower(cell), PLAIN).lines()
    states = {f"{symbol}ₜ" for symbol in state_symbols(cell).values()}
    return "; ".join(
        f"{left} = {right}"
        for left, right in lines
        if left in states or (left == "cₜ" and right not in states)
    )


def automaton(cell: Cell) -> str:
    """Return the paper's name for a cell's automaton, or its shape; "over histories" if weights see earlier inputs."""
    over = "" if not reach(cell) else f" over histories of {reach(cell)}"
    return f"{_shape(cell)}{over}"


def _shape(cell: Cell) -> str:
    arcs = {(a.source, a.target, a.epsilon) for a in cell.arcs}
    names = cell.states
    chain = {(a, b, False) for a, b in pairwise(names)}
    loops = {(q, q, False) for q in names}
    ends = [q for q, _ in cell.initials] == [names[0]] and [q for q, _ in cell.finals] == [names[-1]]
    if ends and arcs == chain | loops:
        return {2: "B", 3: "C"}.get(len(names), f"chain of {len(names)}")
    if ends and arcs == chain | {(q, q, False) for q in (names[0], names[-1])}:
        return f"chain of {len(names)}"
    f = zoo.get_cell("F")
    if arcs == {(a.source, a.target, a.epsilon) for a in f.arcs} and names == f.states:
        return "F"
    return f"{cell.state_count} states, {len(arcs)} arcs"
