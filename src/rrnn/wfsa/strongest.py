"""The k strongest paths of a trellis, exactly and without listing them all.

Paths are built from their end to their beginning, k suffixes at a time in each lane. Forward over ranks has already
computed the best way from the beginning to any state, so the value of a suffix is that of its best completion. Keeping
the k best suffixes at each position is therefore exact: k better suffixes mean k better paths. A step costs k times the
edges into a state, and all lanes take it together.

Weights are compared by their ranks (`Semiring.rank`): log₂ of their magnitude (exact for powers of two), or the weights
themselves if the semiring is one of logarithms or costs. Suffixes stay in lexicographic order, by their end and then,
from the end, by their edges: if paths tie, the first one wins.
"""

from __future__ import annotations

import heapq
import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.semirings import Semiring
from rrnn.wfsa.trellis import Edges, Trellis

_HUGE = 1e300  # stands for +∞, since its sum with −∞ is a number


def ranks_of(ring: Semiring, weights: Tensor) -> Tensor:
    """Return the ranks of weights, which add up along a path: −∞ for 0̄ and NaN, and never +∞."""
    ranks = ring.on_tensors(ring.rank, weights.detach().to(torch.float64))
    return ranks.nan_to_num(nan=-math.inf, posinf=_HUGE, neginf=-math.inf)


class Traces(NamedTuple):
    """Hold k paths of each lane, strongest first."""

    rank: Tensor
    """(k, *lanes): −∞ if there is no such path."""
    start: Tensor
    """(k, *lanes): the first state."""
    end: Tensor
    """(k, *lanes): the number of the end."""
    edges: Tensor
    """(T, k, *lanes): the number of the edge of each step, −1 if the lane does not take the step."""
    silent: list[list[list[tuple[int, ...]]]] | None
    """The silent edges by position, lane (flattened) and path; None if the trellis has none."""


class _Link(NamedTuple):
    """Hold which suffix each new suffix extends, and by which edge of a step, both (k, L)."""

    parent: Tensor
    edge: Tensor


class _SilentLink(NamedTuple):
    """Hold which suffix each new suffix extends, (k, L), and by which silent edges of one position."""

    parent: Tensor
    silent: list[list[tuple[int, ...]]]


class _Suffixes(NamedTuple):
    """Hold k suffixes of each lane: the state in which each begins, and its rank, both (k, L)."""

    state: Tensor
    rank: Tensor


def strongest(ranked: Trellis, k: int) -> Traces:
    """Return the k strongest paths of each lane of a trellis over ranks: ⊗ adds them, ⊕ is the greatest."""
    lanes, steps = ranked.lanes, len(ranked.edges)
    width = lanes.numel()
    if not ranked.ends.numel() or not width:
        return _no_paths(ranked)
    opened, closed = (table.values.reshape(steps + 1, -1, width) for table in ranked.forward_tables())
    final = ranked.final.reshape(-1, width)
    end = _first_best(closed[-1][ranked.ends] + final, k)
    now = _Suffixes(ranked.ends[end.which], end.alive(final))
    silent = None if ranked.silent is None else _SilentSearch(*ranked.silent, k)
    links: list[_Link | _SilentLink] = []
    for t in reversed(range(steps + 1)):
        if t < steps:
            new, link = _extended(ranked.edges[t], ranked.weights[t].reshape(-1, width), closed[t], now)
            if ranked.valid is not None:
                going = ranked.valid[t].expand(lanes).reshape(1, width)
                new = _Suffixes(*(torch.where(going, a, b) for a, b in zip(new, now, strict=True)))
                link = _Link(
                    *(
                        torch.where(going, a, b)
                        for a, b in zip(link, (_row_numbers(now.state), -1), strict=False)
                    )
                )
            now = new
            links.append(link)
        if silent is not None:
            arrived = (
                ranked.valid[t - 1].expand(lanes).flatten().tolist()
                if ranked.valid is not None and t
                else None
            )
            now, silent_link = silent.before(now, closed[t], opened[t], arrived)
            links.append(silent_link)
    rank = ranked.initial.reshape(-1, width).gather(0, now.state) + now.rank
    rank, order = rank.sort(dim=0, descending=True, stable=True)
    return _unwound(ranked, links[::-1], rank, now.state.gather(0, order), end.which, order)


class _Chosen(NamedTuple):
    """Hold which k of some values (n, L) are the best, and whether there are that many."""

    which: Tensor
    there: Tensor

    def alive(self, ranks: Tensor) -> Tensor:
        """Return the ranks of the chosen values; −∞ if there are fewer."""
        return ranks.gather(0, self.which).where(self.there, ranks.new_full((), -math.inf))


def _first_best(values: Tensor, k: int) -> _Chosen:
    """Choose the k greatest of the values (n, L), n > 0, in their order; of equal values, the first ones."""
    n, width = values.shape
    if n < k:
        values = torch.cat((values, values.new_full((k - n, width), -math.inf)))
    if n > k:
        least = values.topk(k, 0).values[-1]
        above, tied = values > least, values == least
        chosen = above | (tied & (tied.cumsum(0) <= k - above.sum(0)))
        index = chosen.t().nonzero()[:, 1].view(width, k).t()
    else:
        index = _row_numbers(values)
    return _Chosen(index.clamp_max(n - 1), values.gather(0, index) > -math.inf)


def _row_numbers(values: Tensor) -> Tensor:
    return torch.arange(len(values)).unsqueeze(1).expand(values.shape)


def _extended(edges: Edges, weight: Tensor, before: Tensor, now: _Suffixes) -> tuple[_Suffixes, _Link]:
    """Extend the suffixes by the edges of one step; `before` is the forward row before that step, (S, L)."""
    incoming, (k, width) = edges.incoming, now.state.shape
    most = len(incoming)
    if not most:
        dead = torch.full_like(now.rank, -math.inf)
        return _Suffixes(now.state, dead), _Link(_row_numbers(now.state), torch.full_like(now.state, -1))
    edge = incoming[:, now.state].transpose(0, 1).reshape(-1, width)  # (k · most, L)
    there, edge = edge >= 0, edge.clamp_min(0)
    rank = (weight.gather(0, edge).view(k, most, width) + now.rank.unsqueeze(1)).reshape(-1, width)
    value = before.gather(0, edges.source[edge]) + rank
    best = _first_best(value.where(there, value.new_full((), -math.inf)), k)
    edge = edge.gather(0, best.which)
    return _Suffixes(edges.source[edge], best.alive(rank)), _Link(best.which // most, edge)


class _SilentSearch:
    """Search the silent edges at one position.

    Any number of them may follow one another, also round cycles, so the search is best-first, lane by lane.
    """

    def __init__(self, edges: Edges, weight: Tensor, k: int) -> None:
        self.k, self.source = k, edges.source.tolist()
        order, begin = (places.tolist() for places in edges.by_target)
        self.into = [order[a:b] for a, b in pairwise(begin)]
        self.weight = weight.reshape(len(edges), -1).t().tolist()

    def before(
        self, now: _Suffixes, closed: Tensor, opened: Tensor, arrived: list[bool] | None
    ) -> tuple[_Suffixes, _SilentLink]:
        """Extend the suffixes by any silent edges at a position; `closed` and `opened` are its forward rows, (S, L).

        `arrived[i]`: whether lane i has taken the step before; if not, it is still at its last position.
        """
        found = []
        columns = (now.state, now.rank, closed, opened)
        for i, lane in enumerate(zip(*(column.t().tolist() for column in columns), strict=True)):
            if arrived is None or arrived[i]:
                found.append(self._of_lane(self.weight[i], *lane))
            else:
                found.append([(*suffix, j, ()) for j, suffix in enumerate(zip(*lane[:2], strict=True))])
        state, rank, parent = (
            torch.tensor([[path[i] for path in lane] for lane in found], dtype=dtype).t()
            for i, dtype in enumerate((torch.int64, torch.float64, torch.int64))
        )
        return _Suffixes(state, rank), _SilentLink(parent, [[path[3] for path in lane] for lane in found])

    def _of_lane(
        self,
        weight: list[float],
        state: list[int],
        rank: list[float],
        closed: list[float],
        opened: list[float],
    ) -> list[tuple[int, float, int, tuple[int, ...]]]:
        """Return k suffixes in lexicographic order: (state, rank, suffix that it extends, silent edges before it)."""
        # An entry is (−value, choices, state, rank, silent edges). The choices are the suffix, then the edge taken each
        # time, and −1 to stop. Of equal values the lexicographically first comes first.
        heap: list[tuple[float, tuple[int, ...], int, float, tuple[int, ...]]] = []
        visits = [0] * len(self.into)

        def push(value: float, *entry: Any) -> None:
            if value > -math.inf:
                heapq.heappush(heap, (-value, *entry))

        for i, (q, r) in enumerate(zip(state, rank, strict=True)):
            push(closed[q] + r, (i,), q, r, ())
        found: list[tuple[tuple[int, ...], int, float, tuple[int, ...]]] = []
        while heap and len(found) < self.k:
            _, choices, q, r, taken = heapq.heappop(heap)
            if choices[-1] < 0:
                found.append((choices, q, r, taken))
                continue
            visits[q] += 1
            if visits[q] > self.k:  # k better suffixes begin here, so this one cannot be among the k best
                continue
            push(opened[q] + r, (*choices, -1), q, r, taken)
            for n, e in enumerate(self.into[q]):
                p, more = self.source[e], r + weight[e]
                push(closed[p] + more, (*choices, n), p, more, (e, *taken))
        listed = [(q, r, choices[0], taken) for choices, q, r, taken in sorted(found)]
        return listed + [(0, -math.inf, 0, ())] * (self.k - len(listed))


def _unwound(
    ranked: Trellis, links: list[_Link | _SilentLink], rank: Tensor, start: Tensor, end: Tensor, which: Tensor
) -> Traces:
    """Return the paths that follow the links from the suffixes `which` (k, L) to their ends."""
    lanes, k = ranked.lanes, len(which)
    taken: list[Tensor] = []
    silent: list[list[list[tuple[int, ...]]]] = []
    for link in links:
        if isinstance(link, _Link):
            taken.append(link.edge.gather(0, which))
        else:
            places = which.t().tolist()
            silent.append([[lane[i] for i in place] for lane, place in zip(link.silent, places, strict=True)])
        which = link.parent.gather(0, which)
    edges = torch.stack(taken) if taken else which.new_empty(0, *which.shape)
    return Traces(
        rank.reshape(k, *lanes),
        start.reshape(k, *lanes),
        end.gather(0, which).reshape(k, *lanes),
        edges.reshape(len(taken), k, *lanes),
        silent if ranked.silent is not None else None,
    )


def _no_paths(ranked: Trellis) -> Traces:
    """Return the traces of a trellis without paths or lanes."""
    nothing = torch.empty(0, *ranked.lanes, dtype=torch.int64)
    edges = nothing.new_empty(len(ranked.edges), 0, *ranked.lanes)
    return Traces(nothing.double(), nothing, nothing, edges, None)
