"""Time the kernels of the matrix schedule with several sizes on one GPU, each kernel by itself.

    python benchmarks/matrix_plans.py --json docs/results/matrix-plans-h200.json [--models GLA …] [--shapes 0 1]

A choice changes the sizes of all kernels at once. A kernel's time depends on its own sizes and on the length of
segments alone, so the best sizes of each kernel are found independently for each length. The first choice is the
rule's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).parent))
from cuda_timing import hardware
from matrix_cases import MODELS, SHAPES, Case
from matrix_kernels import recorded, timed
from results import Row, print_table, write

import rrnn
from rrnn.backends.matrix import backend
from rrnn.backends.matrix.factors import Tiles, Walk
from rrnn.backends.matrix.plan import NARROW

LENGTHS = (512, 704, 1024)
"""Steps of a segment."""


def parts(count: int, least: int) -> list[int]:
    """Return the sizes of the parts into which so many rows may be cut."""
    return [part for part in (count // 4, count // 2, count) if part >= least]


def walks(pairs: Iterable[tuple[int, int]], stages: tuple[int, ...], capped: bool = True) -> list[Walk]:
    """Return walks with tiles of these sizes, with fewer registers, too, if `capped`."""
    found = []
    for N, U in pairs:
        for warps, caps in ((4, (0, 168, 128)), (8, (0, 128))):
            if 8 <= N * U // (32 * warps) <= 64:
                found += [
                    Walk(N, U, warps, stage, cap) for stage in stages for cap in (caps if capped else (0,))
                ]
    return found


def choices(base: Tiles, N: int, U: int, decay: str) -> Iterator[Tiles]:
    """Return sizes to try: the plan's own, and others for the same chunks."""
    yield base
    least = 32 if decay == "none" else NARROW
    outputs = walks(((N, part) for part in parts(U, least)), (2, 3))
    queries = walks(((part, U) for part in parts(N, least)), (1, 2))
    keys: list[tuple[Walk, Walk | None]] = [(walk, None) for walk in walks([(N, U)], (1, 2))]
    keys += zip(
        walks(((part, U) for part in parts(N, least)), (1, 2)),
        walks(((N, part) for part in parts(U, least)), (1, 2)),
        strict=N == U,
    )
    enter = walks(((n, u) for n in parts(N, 32) for u in parts(U, 32)), (2, 3), capped=False)
    for o, q, k, w in zip_longest(outputs, queries, keys, enter):
        key, value = k or keys[0]
        own = {"outputs": o or outputs[0], "queries": q or queries[0], "keys": key, "values": value}
        yield base._replace(**own, enter=w or enter[0])


def walk_of(kernel: str, tiles: Tiles) -> Walk | None:
    """Return the sizes of a kernel that walks, None for others."""
    walks_by_name = {
        "segment_states": tiles.enter,
        "outputs": tiles.outputs,
        "query_gradients": tiles.queries,
        "key_gradients V": tiles.values,
    }
    return tiles.keys if kernel in ("key_gradients K", "key_gradients KV") else walks_by_name.get(kernel)


def rows_of(name: str, shape: tuple[int, ...], lengths: Sequence[int], device: str = "cuda") -> list[Row]:
    """Return a row for each launch of a call, forward and backward, each choice and each length of segments."""
    case = Case(MODELS[name], shape, torch.bfloat16, device)
    rule, asked, found, rows = backend.tiles_of, list[tuple[Any, ...]](), list[Tiles](), list[Row]()

    def chosen(*sizes: Any) -> list[Tiles]:
        asked.append(sizes)
        return found[:1] or rule(*sizes)

    with mock.patch.object(backend, "tiles_of", chosen):
        case.our_gradients()
        base, decay = rule(*asked[-1])[0], asked[-1][2]
        for number, tiles in enumerate(choices(base, *shape[3:], decay)):
            for length in sorted({base.segment, *(length for length in lengths if length <= shape[1])}):
                found[:] = [tiles._replace(segment=length)]
                try:
                    launched, times = recorded(case.our_gradients), timed(case.our_gradients)
                except Exception as error:
                    print(name, shape, tiles, repr(error)[:160])
                    if type(error).__name__ == "OutOfResources":
                        break
                    raise  # after an illegal access, nothing runs any more
                where: Row = {"model": name, "shape": list(shape), "choice": number, "segment": length}
                launches = Counter[str]()
                for one in launched:
                    left = times.get(one["own"], [])
                    us, walk = left.pop(0) if left else 0.0, walk_of(one["kernel"], tiles)
                    own = {key: one[key] for key in ("kernel", "registers", "spills", "shared")}
                    launches[one["kernel"]] += 1
                    own["launch"] = launches[one["kernel"]]
                    rows.append({**where, **own, "walk": walk and list(walk), "us": us})
    return rows


def best(rows: list[Row]) -> list[list[str]]:
    """Return a table: for each launch with sizes of its own and each length, the rule's time and the best one."""
    sizes = "states, units, warps, stages, registers"
    table = [["model", "shape", "segment", "kernel", "launch", "rule, µs", "best, µs", sizes]]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["walk"] is not None:
            key = row["model"], tuple(row["shape"]), row["segment"], row["kernel"], row["launch"]
            groups.setdefault(key, []).append(row)
    for (model, shape, segment, kernel, launch), own in groups.items():
        least, rule = min(own, key=lambda r: r["us"]), [r["us"] for r in own if r["choice"] == 0]
        times = [f"{rule[0]:.1f}" if rule else "", f"{least['us']:.1f}"]
        where = [model, "×".join(map(str, shape)), str(segment), kernel, str(launch)]
        table.append([*where, *times, str(least["walk"])])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = ["GLA", "simple GLA", "retention", "Mamba-2"]
    parser.add_argument("--models", nargs="*", default=usual, choices=list(MODELS))
    parser.add_argument("--shapes", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    with rrnn.use_backend("matrix"):
        for index in options.shapes:
            for name in options.models:
                began = time.monotonic()
                rows += rows_of(name, SHAPES[index], options.lengths)
                print(name, index, f"{time.monotonic() - began:.0f} s", flush=True)
                if options.json is not None:  # so that whoever ends this process leaves what was measured
                    write(options.json, rows, device=hardware())
    print_table(best(rows))


if __name__ == "__main__":
    main()
