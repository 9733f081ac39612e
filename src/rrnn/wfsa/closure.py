"""Closing vectors under arcs that consume nothing: α ← α ⊗ A*, A being the matrix of those arcs.

States are taken in topological order of the strongly connected components of A. Inside a component that
is a cycle the sum over all ways round is the star of its block; where that does not exist, the error names
the cycle. Forward closes under the ε-arcs; `total_weight` under all arcs at once, symbols left aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.semirings import Semiring
from rrnn.semirings.tensor_products import DivergesError
from rrnn.wfsa.graph import components, cycle_through, successors
from rrnn.wfsa.products import Matrices, segment_plus

_LARGEST_MATRIX = 1024  # states; beyond it A* is applied arc by arc instead of being written out


@dataclass
class _Level:
    """Components between which there are no arcs, and the arcs that leave them."""

    stars: list[tuple[Tensor, Matrices]]
    source: Tensor
    target: Tensor
    weight: Tensor


class Closure:
    """α ↦ α ⊗ A* for n rows α of Q elements each."""

    def __init__(self, ring: Semiring, states: int, levels: list[_Level], touched: Tensor) -> None:
        self.ring, self.states, self.levels, self.touched = ring, states, levels, touched
        self.matrix: Matrices | None = None
        if touched.numel() <= _LARGEST_MATRIX:
            unit = ring.zeros(touched.numel(), states)
            unit[torch.arange(touched.numel()), touched] = ring.ones(touched.numel())
            rows = self._by_levels(unit)[:, touched]
            self.matrix = Matrices(ring, rows.transpose(0, 1).contiguous().unsqueeze(0))

    def __call__(self, alpha: Tensor) -> Tensor:
        if self.matrix is None:
            return self._by_levels(alpha)
        n = alpha.shape[0]
        if self.touched.numel() == self.states:
            return self.matrix.times(alpha, [(0, n)])
        return alpha.index_copy(1, self.touched, self.matrix.times(alpha[:, self.touched], [(0, n)]))

    def _by_levels(self, alpha: Tensor) -> Tensor:
        n = alpha.shape[0]
        for level in self.levels:
            for members, star in level.stars:
                alpha = alpha.index_copy(1, members, star.times(alpha[:, members], [(0, n)]))
            if level.source.numel():
                targets, place = level.target.unique(return_inverse=True)
                arrived = self.ring.t_times(alpha[:, level.source], level.weight)
                row = torch.arange(n).unsqueeze(1) * targets.numel()
                arrived = segment_plus(
                    self.ring, arrived.flatten(0, 1), (row + place).flatten(), n * targets.numel()
                ).unflatten(0, (n, targets.numel()))
                alpha = alpha.index_copy(1, targets, self.ring.t_plus(alpha[:, targets], arrived))
        return alpha


def closure(
    ring: Semiring,
    names: Sequence[Any],
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    label: str = "ε",
) -> Closure | None:
    """The closure under arcs (each source → target at most once), or None if there are none.

    `names` of the states and the `label` of the arcs are for the message when the closure does not exist.
    """
    if not source.numel():
        return None
    edges = list(zip(source.tolist(), target.tolist(), strict=True))
    follows = successors(len(names), edges)
    parts = components(follows)
    part_of = {q: i for i, part in enumerate(parts) for q in part}
    depth = [0] * len(parts)
    for i, part in enumerate(parts):
        for q in part:
            for p in follows[q]:
                if part_of[p] != i:
                    depth[part_of[p]] = max(depth[part_of[p]], depth[i] + 1)
    inside = torch.tensor([part_of[q] == part_of[p] for q, p in edges])
    arc_part = torch.tensor([part_of[q] for q, _ in edges])
    arc_depth = torch.tensor([depth[part_of[q]] for q, _ in edges])
    blocks: dict[int, list[tuple[Tensor, Matrices]]] = {}
    for i in sorted(set(arc_part[inside].tolist())):
        arcs = (inside & (arc_part == i)).nonzero().flatten()
        members = torch.tensor(parts[i])
        position = torch.searchsorted(members, torch.stack((source[arcs], target[arcs])))
        block = ring.zeros(len(parts[i]), len(parts[i]))
        block = block.index_put((position[0], position[1]), weight[arcs])
        star = _star(ring, block, follows, parts[i], names, label)
        blocks.setdefault(depth[i], []).append(
            (members, Matrices(ring, star.transpose(0, 1).contiguous().unsqueeze(0)))
        )
    levels = []
    for d in sorted({*arc_depth.tolist()}):
        arcs = (~inside & (arc_depth == d)).nonzero().flatten()
        arcs = arcs[source[arcs].argsort(stable=True)]  # of tied arcs the first source wins
        levels.append(_Level(blocks.get(d, []), source[arcs], target[arcs], weight[arcs]))
    return Closure(ring, len(names), levels, torch.cat((source, target)).unique())


def _star(
    ring: Semiring, block: Tensor, follows: list[list[int]], part: list[int], names: Sequence[Any], label: str
) -> Tensor:
    """A* = I ⊕ A ⊕ A² ⊕ … of one strongly connected block."""

    def diverges(k: int, why: str) -> AutomatonError:
        cycle = f" →{label} ".join(str(names[q]) for q in cycle_through(follows, part[k], part))
        what = "ε-arcs form" if label == "ε" else "arcs form"
        return AutomatonError(
            f"{what} the cycle {cycle}, and going round it for ever has no weight in {ring.name}: "
            f"its star exists only for {ring.star_domain}; {why}. Make the weights of the cycle smaller, or "
            "remove one of its arcs."
        )

    try:
        return ring.products.star(ring, block)
    except DivergesError as error:
        raise diverges(error.state, error.why) from None
