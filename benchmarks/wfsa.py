"""How fast WFSAs score strings: 1,000 strings of mean length 20, 60 states, 20 symbols, on one core.

    python benchmarks/wfsa.py [--json FILE]

The rival is Forward as one would write it: string by string, a matrix per symbol, torch for each step.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import torch
from results import Row, best_of, print_table, warn_if_busy, write
from torch import Tensor

from rrnn import WFSA

STATES, SYMBOLS, STRINGS, MEAN = 60, 20, 1000, 20
LIMITS_MS = {"real": 300.0, "max-plus": 300.0, "log": 600.0}


def machine(semiring: str, density: float, *, requires_grad: bool = False) -> WFSA:
    """Random arcs; weights are probabilities, or their logarithms."""
    rng = torch.Generator().manual_seed(0)
    arcs = (torch.rand(STATES, SYMBOLS, STATES, generator=rng) < density).nonzero()
    weight = torch.rand(len(arcs), generator=rng, dtype=torch.float64) / (STATES * density)
    ends = torch.rand(2, STATES, generator=rng, dtype=torch.float64)
    if semiring != "real":
        weight, ends = weight.log(), ends.log()
    if requires_grad:
        weight.requires_grad_()
    columns = [arcs[:, i].contiguous() for i in range(3)]
    return WFSA.from_tensors(semiring, range(SYMBOLS), range(STATES), *columns, weight, ends[0], ends[1])


def strings(n: int = STRINGS, mean: int = MEAN, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [rng.choices(range(SYMBOLS), k=rng.randint(0, 2 * mean)) for _ in range(n)]


def eager(wfsa: WFSA, batch: list[list[int]]) -> Tensor:
    ring = wfsa.semiring
    matrices = ring.zeros(SYMBOLS, STATES, STATES)
    matrices[wfsa.arc_symbol, wfsa.arc_source, wfsa.arc_target] = wfsa.arc_weight
    step: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "real": lambda alpha, matrix: alpha @ matrix,
        "max-plus": lambda alpha, matrix: (alpha.unsqueeze(1) + matrix).amax(0),
        "log": lambda alpha, matrix: (alpha.unsqueeze(1) + matrix).logsumexp(0),
    }
    scores = []
    for string in batch:
        alpha = wfsa.initial_weight
        for symbol in string:
            alpha = step[ring.name](alpha, matrices[symbol])
        scores.append(ring.t_sum(ring.t_times(alpha, wfsa.final_weight), 0))
    return torch.stack(scores)


def run() -> tuple[list[Row], list[list[str]]]:
    rows: list[Row] = []
    table = [["score", "ms", "limit", "rival ms", "ratio", "ns/symbol"]]

    def add(
        name: str, semiring: str, batch: list[list[int]], ms: float, rival: float | None = None, **more: str
    ) -> None:
        total = sum(len(string) for string in batch)
        shape = [round(total / len(batch)), len(batch), STATES]
        row: Row = {
            "name": name,
            "semiring": semiring,
            "shape": shape,
            "dtype": "float64",
            "backend": "torch",
        }
        row |= {"pass": "forward", "ms": ms, **more}
        row |= {} if rival is None else {"baseline": "eager", "ratio": rival / ms}
        rows.append(row)
        limit = f"{LIMITS_MS[semiring]:.0f}" if rival is not None else ""
        ratio = ("", "") if rival is None else (f"{rival:.0f}", f"{rival / ms:.1f}×")
        table.append([f"{name}, {semiring}", f"{ms:.1f}", limit, *ratio, f"{1e6 * ms / max(total, 1):.0f}"])

    batch = strings()
    for density, kind in ((1.0, "dense"), (0.05, "sparse")):
        for semiring in LIMITS_MS:
            wfsa = machine(semiring, density)
            torch.testing.assert_close(wfsa.score(batch), eager(wfsa, batch), rtol=1e-9, atol=0)
            best = best_of({"ours": lambda w=wfsa: w.score(batch), "eager": lambda w=wfsa: eager(w, batch)})
            add(f"1,000 strings, {kind}", semiring, batch, best["ours"], best["eager"])
    for semiring in LIMITS_MS:
        trained = machine(semiring, 1.0, requires_grad=True)
        best = best_of({"ours": lambda w=trained: torch.autograd.grad(w.score(batch).sum(), w.arc_weight)})
        add("the same with gradient, dense", semiring, batch, best["ours"], **{"pass": "forward_backward"})
    for semiring in LIMITS_MS:  # cost follows the total length, however it is spread
        wfsa = machine(semiring, 1.0)
        spread = {
            "2,000 strings": strings(2000),
            "4,000 strings": strings(4000),
            "1,000 strings, twice as long": strings(mean=2 * MEAN),
            "990 of length 10, 10 of length 1,000": [
                *([s % SYMBOLS for s in range(i, i + 10)] for i in range(990)),
                *([s % SYMBOLS for s in range(i, i + 1000)] for i in range(10)),
            ],
        }
        for name, other in spread.items():
            add(
                name, semiring, other, best_of({"ours": lambda w=wfsa, b=other: w.score(b)}, rounds=3)["ours"]
            )
    return rows, table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warn_if_busy()
    rows, table = run()
    print_table(table)
    if arguments.json:
        write(arguments.json, rows)


if __name__ == "__main__":
    main()
