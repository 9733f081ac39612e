"""How many states each model of the zoo needs: the table in docs/theory.md.

    python benchmarks/rank.py [--states 12] [--symbols 2] [--seed 0] [--json docs/results/rank.json]

Every model has random weights; those over semirings of several components are left out.
Bounds do not depend on the machine; seconds are not recorded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from results import Row, print_table, write

from rrnn import zoo
from rrnn.theory import rank_model


def bounds(states: int, symbols: int, seed: int) -> list[Row]:
    """Return one row per model."""
    rows: list[Row] = []
    for name in zoo.MODELS:
        if name in zoo.CELLS and zoo.get_cell(name).semiring.components:
            continue  # a rank is of numbers
        found = rank_model(name, states=states, symbols=symbols, seed=seed).as_dict()
        kept = (
            "semiring", "lower", "lower_kind", "upper", "upper_kind", "searched", "bits", "log10", "minimal", "verdict"
        )  # fmt: skip
        rows.append({"name": name} | {key: found[key] for key in kept})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", type=int, default=12)
    parser.add_argument("--symbols", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = bounds(options.states, options.symbols, options.seed)
    print_table(
        [["model", "semiring", "at least", "verdict"]]
        + [[row["name"], row["semiring"], str(row["lower"]), row["verdict"]] for row in rows]
    )
    if options.json:
        write(options.json, rows)


if __name__ == "__main__":
    main()
