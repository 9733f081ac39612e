"""The k best paths of a machine that derive a string."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rrnn.errors import AutomatonError
from rrnn.wfsa.paths import Path, paths_of
from rrnn.wfsa.strings import encode
from rrnn.wfsa.strongest import ranks_of, strongest
from rrnn.wfsa.tables import trellis

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def k_best(machine: WFSA, string: Any, k: int) -> list[Path]:
    """Return the k best distinct paths, best first, none of weight 0̄. See `WFSA.k_best` for what best means."""
    check_k(k)
    ids, ring = encode(machine, string), machine.semiring
    ranked = machine.cached(
        "ranked", lambda: machine.detach().with_semiring("max-plus", lambda w: ranks_of(ring, w))
    )
    steps = trellis(ranked, ids)
    traces = strongest(steps, k)
    # By position: the arcs that consume its symbol, one a path, and the ε-arcs before, any number a path.
    there = traces.rank > -math.inf
    consuming = [arcs[edge].tolist() for arcs, edge in zip(steps.arcs, traces.edges[:, there], strict=True)]
    silent = [] if traces.silent is None else [lane for (lane,) in traces.silent]
    epsilons = steps.silent_arcs.tolist()

    def arcs_of(i: int) -> list[int]:
        if not silent:
            return [arcs[i] for arcs in consuming]
        parts = [[epsilons[edge] for edge in edges[i]] for edges in silent]
        for part, arcs in zip(parts, consuming, strict=False):
            part.append(arcs[i])
        return [arc for part in parts for arc in part]

    found = [(start, arcs_of(i)) for i, start in enumerate(traces.start[there].tolist())]
    return sorted(
        paths_of(machine, found), key=lambda path: ring.strength(path.weight), reverse=True
    )  # stable: ties stay


def check_k(k: Any) -> None:
    """Raise unless k is a number of paths."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise AutomatonError(f"k_best lists at least one path, a whole number of them; got k = {k!r}")
