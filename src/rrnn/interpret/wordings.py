"""Find the strongest wordings of each unit: what it found in a sentence, whatever states its paths went through.

Paths through different states of a family read the same words: a unit of Mamba has sixteen paths that enter at a word.
A wording is all of them, with the ⊕ of their weights.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rrnn.interpret.moves import Bridge
from rrnn.interpret.paths import SIZES, TokenPath, UnitPaths, k_best
from rrnn.interpret.reading import CellReading, Reading
from rrnn.interpret.trellises import rank, share, trellis
from rrnn.wfsa.trellis import Trellis

Wording = tuple[tuple[str, ...], ...]
"""What a path does at each step, ε-arcs and then a token consumed or skipped, and its ε-arcs at the end."""


def k_best_wordings(reading: Reading, k: int) -> list[UnitPaths]:
    """Return the k strongest wordings of every unit in every sentence, as `k_best` returns paths: each is its strongest
    path, with the ⊕ of the weights of all its paths.

    They are chosen among the wordings of the strongest paths. Cells without families have their k strongest paths.
    """
    most = max((family.size for cell in reading.layer.cell_types for family in cell.families), default=1)
    found = k_best(reading, k * most)
    if most == 1:
        return found
    place = {unit: (part, d) for part in reading.parts for d, unit in enumerate(part.units)}
    return [_together(reading, *place[unit.unit], unit, k) if unit.paths else unit for unit in found]


def _together(reading: Reading, part: CellReading, d: int, unit: UnitPaths, k: int) -> UnitPaths:
    """Return a unit's strongest wordings, given its strongest paths."""
    first: dict[Wording, TokenPath] = {}
    for path in unit.paths:
        first.setdefault(_wording(path), path)
    some = dict(list(first.items())[: 2 * k])  # many weak paths may be stronger together than a strong one
    part = _of_sentence(part, unit.sentence, d, len(reading.tokens[unit.sentence]))
    steps = _restricted(part, list(some))
    ring, weights = part.ring, steps.plain(steps.total())[0]
    order = rank(ring, weights).argsort(descending=True, stable=True)[:k]
    numbers, paths = ring.numbers(weights), list(some.values())
    covered = None
    if unit.covered is not None:
        whole, sizes = (_size(each)[0] for each in (trellis(part, None), steps))
        over = SIZES if ring.cancels else ring
        covered = float(share(over, over.t_sum(sizes[order], 0), whole[0]))
    chosen = tuple(replace(paths[i], weight=numbers[i]) for i in order.tolist())
    return replace(unit, paths=chosen, covered=covered)


def _wording(path: TokenPath) -> Wording:
    """Return the wording of a path."""
    found: list[tuple[str, ...]] = []
    silent: tuple[str, ...] = ()
    for step in path.steps:
        if step.kind == "bridged":
            silent += (step.token,)
        else:
            found.append((*silent, step.kind))
            silent = ()
    return (*found, silent)


def _silent(bridge: Bridge) -> tuple[str, ...]:
    """Return the ε-arcs of a bridge, as `_wording` has them."""
    return ("ε*",) if bridge.star else ("ε",) * len(bridge.arcs)


def _of_sentence(part: CellReading, b: int, d: int, length: int) -> CellReading:
    """Return the reading of one sentence, without padding, by one unit."""
    part = part.only([d])
    return replace(part, weights=part.weights[:length, :, b : b + 1])


def _restricted(part: CellReading, wordings: list[Wording]) -> Trellis:
    """Return a trellis with a lane for each wording, over the moves and ends that the wording allows."""
    moves = [(*_silent(m.bridge), "consumed" if m.consumes else "skipped") for m in part.moves.moves]
    ends = [_silent(end.bridge) for end in part.moves.ends]
    codes = {kinds: n for n, kinds in enumerate(dict.fromkeys([*moves, *ends]))}

    def coded(kinds: list[tuple[str, ...]]) -> Tensor:
        return torch.tensor([codes[each] for each in kinds])

    steps = torch.stack([coded(list(wording)) for wording in wordings], 1)  # (T + 1, wordings)
    ring, zero = part.ring, part.ring.zeros(dtype=part.weights.dtype)
    allowed = coded(moves)[:, None, None] == steps[:-1, None, None]  # (T, moves, 1, wordings)
    ended = coded(ends)[:, None] == steps[-1]  # (ends, wordings)
    lanes = (len(wordings),)
    initial = part.initial.expand(-1, *lanes, *part.initial.shape[2:])
    return trellis(
        CellReading(
            part.moves,
            part.units * len(wordings),
            initial,
            ring.where(allowed, part.weights, zero),
            ring.where(ended, part.ends, zero),
        ),
        None,
    )


def _size(steps: Trellis) -> Tensor:
    """Return the total weight of all paths of each lane, of absolute weights where they can cancel."""
    ring = steps.ring
    if ring.cancels:
        steps = steps.over(SIZES, lambda w: ring.on_tensors(ring.magnitude, w))
    return steps.plain(steps.total())
