"""The paper's definition as a check: every hidden unit of a layer is the score of a WFSA, at every step.

A layer with random weights reads random strings over a random alphabet of vectors. Each unit is turned into the WFSA
it claims to be. Its scores are compared with Forward on that WFSA, and on short strings with the sum over all paths,
the definition of a WFSA's score word by word.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from rrnn.automata import Cell
from rrnn.ir import lower
from rrnn.nn import RationalRNN
from rrnn.theory.layers import scores, to_wfsa
from rrnn.wfsa import WFSA

TOLERANCE = 1e-10
SYMBOLS, UNITS, INPUTS = 4, 3, 5  # of the random layers
LONG, SHORT = 12, 5  # symbols in a string for Forward, and in one for path enumeration


@dataclass(frozen=True)
class Verdict:
    """How far a layer's scores are from those of its automata. Errors are relative to the score under absolute weights,
    and absolute below one where ⊗ is +."""

    model: str
    semiring: str
    states: int
    arcs: int
    stored_states: int
    compared: int
    """How many scores were compared with Forward."""
    forward_error: float
    path_error: float
    tolerance: float

    @property
    def max_error(self) -> float:
        return max(self.forward_error, self.path_error)

    @property
    def holds(self) -> bool:
        return self.max_error <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"max_error": self.max_error, "holds": self.holds}


def verify_cell(
    cell: Cell, *, name: str | None = None, seed: int = 0, tolerance: float = TOLERANCE
) -> Verdict:
    """Compare a layer of this cell with the automata of its units."""
    g, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    rnn = RationalRNN(cell, INPUTS, UNITS, dtype=torch.float64)
    with torch.no_grad():
        for p in rnn.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * (0.5 if p.dim() > 1 else 1.0))
    vectors = torch.randn(SYMBOLS, INPUTS, generator=g, dtype=torch.float64)
    long = [tuple(rng.choices(range(SYMBOLS), k=LONG)) for _ in range(4)]
    short = [tuple(rng.choices(range(SYMBOLS), k=SHORT)) for _ in range(2)]
    with torch.no_grad():
        of_long, of_short = (
            scores(rnn, vectors[torch.tensor(strings)].transpose(0, 1)).tolist() for strings in (long, short)
        )  # [time][string][unit]
    forward, paths, compared = [], [], 0
    for unit in range(UNITS):
        machine = to_wfsa(rnn, unit, vectors)
        for b, string in enumerate(long):
            ours = [row[b][unit] for row in of_long]
            forward += _errors(ours, machine.prefix_scores(string).tolist()[1:], _sizes(machine, string))
            compared += len(ours)
        for b, string in enumerate(short):
            ours = [row[b][unit] for row in of_short]
            by_paths = [float(machine.score_by_paths(string[:n])) for n in range(1, SHORT + 1)]
            paths += _errors(ours, by_paths, _sizes(machine, string))
    program = lower(cell).program
    return Verdict(
        model=name or cell.name,
        semiring=cell.semiring_name,
        states=len(cell.states),
        arcs=len(cell.arcs),
        stored_states=len(program.states),
        compared=compared,
        forward_error=max(forward),
        path_error=max(paths),
        tolerance=tolerance,
    )


def _sizes(machine: WFSA, string: tuple[int, ...]) -> list[float]:
    """What an error at each prefix is compared with: the score under absolute weights, since paths may cancel."""
    if machine.semiring.laws.has_negation:
        machine = machine.map_weights(torch.abs)
    smallest = 1.0 if machine.semiring.one == 0.0 else 1e-300
    return [max(abs(size), smallest) for size in machine.prefix_scores(string).tolist()[1:]]


def _errors(ours: Sequence[float], theirs: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Of numbers that may be infinite, where a semiring's zero is: those must agree."""
    errors = (0.0 if a == b else abs(a - b) / size for a, b, size in zip(ours, theirs, sizes, strict=True))
    return [error if math.isfinite(error) else math.inf for error in errors]
