"""Train single units of B, C, F and max-plus B on tasks that automata define, and write down what they learned.

python benchmarks/single_units.py --json docs/results/single-units-cpu.json
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from results import write

from rrnn.tasks.classify.single_units import CELLS, to_markdown, who_learns_what
from rrnn.tasks.data.synthetic import NAMES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", default=list(CELLS))
    parser.add_argument("--tasks", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    learned = who_learns_what(options.cells, options.tasks, epochs=options.epochs)
    print(to_markdown(learned))
    if options.json:
        write(options.json, [asdict(row) for row in learned])


if __name__ == "__main__":
    main()
