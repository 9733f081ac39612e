"""Find the strongest wordings of each unit: what it found in a sentence, whatever states its paths went through.

Paths through different states of a family read the same words: a unit of Mamba has sixteen paths that enter at a word.
A wording is all of them, with the ⊕ of their weights.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    chosen: dict[tuple[int, int], UnitPaths] = {}
    for part in reading.parts:
        place = {unit: d for d, unit in enumerate(part.units)}
        for b, tokens in enumerate(reading.tokens):
            own = [each for each in found if each.sentence == b and each.unit in place and each.paths]
            if own:
                seen = _of_sentence(part.only([place[each.unit] for each in own]), b, len(tokens))
                chosen |= {(b, unit.unit): unit for unit in _together(seen, own, k)}
    return [chosen.get((unit.sentence, unit.unit), unit) for unit in found]


def _together(part: CellReading, units: list[UnitPaths], k: int) -> Iterator[UnitPaths]:
    """Yield each unit's strongest wordings, given its strongest paths in one sentence."""
    some: list[tuple[int, Wording, TokenPath]] = []
    for d, unit in enumerate(units):
        first: dict[Wording, TokenPath] = {}
        for path in unit.paths:
            first.setdefault(_wording(path), path)
        # Many weak paths may be stronger together than a strong one.
        some += [(d, *each) for each in list(first.items())[: 2 * k]]
    columns, ring = [d for d, _, _ in some], part.ring
    steps = _restricted(part.only(columns), [wording for _, wording, _ in some])
    weights = steps.plain(steps.total())[0]
    over, (whole, sizes) = SIZES if ring.cancels else ring, (None, None)
    if any(unit.covered is not None for unit in units):
        whole, sizes = (_size(each)[0] for each in (trellis(part, None), steps))
    for d, unit in enumerate(units):
        begin, count = columns.index(d), columns.count(d)
        order = begin + rank(ring, weights[begin : begin + count]).argsort(descending=True, stable=True)[:k]
        covered = None
        if unit.covered is not None and whole is not None and sizes is not None:
            covered = float(share(over, over.t_sum(sizes[order], 0), whole[d]))
        numbers = ring.numbers(weights[order])
        chosen = (replace(some[i][2], weight=w) for i, w in zip(order.tolist(), numbers, strict=True))
        yield replace(unit, paths=tuple(chosen), covered=covered)


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


def _of_sentence(part: CellReading, b: int, length: int) -> CellReading:
    """Return the reading of one sentence, without padding."""
    return replace(part, weights=part.weights[:length, :, b : b + 1])


def _restricted(part: CellReading, wordings: list[Wording]) -> Trellis:
    """Return a trellis with a unit for each wording, over the moves and ends that the wording allows."""
    moves = [(*_silent(m.bridge), "consumed" if m.consumes else "skipped") for m in part.moves.moves]
    ends = [_silent(end.bridge) for end in part.moves.ends]
    codes = {kinds: n for n, kinds in enumerate(dict.fromkeys([*moves, *ends]))}

    def coded(kinds: list[tuple[str, ...]]) -> Tensor:
        return torch.tensor([codes[each] for each in kinds])

    steps = torch.stack([coded(list(wording)) for wording in wordings], 1)  # (T + 1, wordings)
    ring, zero = part.ring, part.ring.zeros(dtype=part.weights.dtype)
    allowed = coded(moves)[:, None, None] == steps[:-1, None, None]  # (T, moves, 1, wordings)
    ended = coded(ends)[:, None] == steps[-1]  # (ends, wordings)
    weights, final = ring.where(allowed, part.weights, zero), ring.where(ended, part.ends, zero)
    return trellis(replace(part, weights=weights, ends=final), None)


def _size(steps: Trellis) -> Tensor:
    """Return the total weight of all paths of each lane, of absolute weights where they can cancel."""
    ring = steps.ring
    if ring.cancels:
        steps = steps.over(SIZES, lambda w: ring.on_tensors(ring.magnitude, w))
    return steps.plain(steps.total())
