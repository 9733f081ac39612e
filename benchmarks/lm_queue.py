"""Train the planned language models one after another, and go on where the last call stopped.

    RRNN_DATA=… python benchmarks/lm_queue.py docs/results/lm-ptb --minutes 10 [--parts literal averaged]
    python benchmarks/lm_queue.py docs/results/lm-ptb --list          what is there, what is not, how long it takes

The plan is `lm_plan.py`, in the order of what a training is worth. One whose folder is there already is left alone, and
one whose settings are chosen among others waits for these; the list counts it with the settings that lead so far. A
training is begun only if it is expected to end in time, so that none is cut; a shorter one further down is begun
instead. --copy-to also copies each finished training elsewhere, at once.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lm_plan import PARTS, Training, planned
from paper_lm import ROWS, config_of, run_row, write_table
from results import print_table

from rrnn.errors import RRNNError

MARGIN = 1.1
"""How much longer than expected a training may take and still end in time."""
UNKNOWN_PACE = 1.6
"""How much slower the first one may be, since other programs may use the GPU, too."""


def waiting(folder: Path, parts: Sequence[str]) -> list[Training]:
    """Return what is planned, not there, and waits for no choice, in order."""
    left = [training for training in planned(folder, parts) if not (folder / training.place).exists()]
    return [training for training in left if training.ready(folder)]


def next_in_time(trainings: Iterable[Training], seconds: float, pace: float) -> Training | None:
    """Return the first training that takes no longer than this. `pace` is how much slower the last one was than
    expected."""
    return next((t for t in trainings if t.seconds * pace * MARGIN <= seconds), None)


def work(folder: Path, parts: Sequence[str], seconds: float, copy_to: Path | None) -> None:
    """Train what fits into these seconds."""
    end, pace, failed = time.monotonic() + seconds, UNKNOWN_PACE, set[str]()
    if copy_to is not None:  # the last call may have ended between a training and its copy
        for training in planned(folder, parts):
            copy(folder / training.place, copy_to / training.place)
    while True:
        left = [training for training in waiting(folder, parts) if training.place not in failed]
        training = next_in_time(left, end - time.monotonic(), pace)
        if training is None:
            return
        began = time.monotonic()
        print(f"{training.place}: begun, {end - began:.0f} s are left", flush=True)
        try:
            config = config_of(ROWS[training.row], training.seed, training.settings)
            place = folder / training.place
            place.parent.mkdir(parents=True, exist_ok=True)
            print(training.place, run_row(place, config, training.test), flush=True)
        except RRNNError as error:
            failed.add(training.place)
            print(f"{training.place}: {error}", flush=True)
            continue
        pace = max(0.9, (time.monotonic() - began) / training.seconds)
        if copy_to is not None:
            copy(place, copy_to / training.place)
        write_table(folder)


def copy(place: Path, target: Path) -> None:
    """Copy the folder of a finished training, if there is one and it was not copied before."""
    if place.exists() and not target.exists():
        scratch = target.with_name("." + target.name)
        shutil.copytree(place, scratch, dirs_exist_ok=True)
        scratch.rename(target)  # so that what is there is whole


def show(folder: Path, parts: Sequence[str]) -> None:
    """Print the plan: what is there, and how long the rest will take, with what waits for a choice."""
    rows, sum_of_seconds = [["training", "", "seconds", "sum"]], 0.0
    for training in planned(folder, parts):
        there = (folder / training.place).exists()
        sum_of_seconds += 0 if there else training.seconds
        state = "there" if there else "" if training.ready(folder) else "waits"
        seconds = ["", ""] if there else [f"{training.seconds:.0f}", f"{sum_of_seconds:.0f}"]
        rows.append([training.place, state, *seconds])
    print_table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS, help="of the plan")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that takes longer")
    parser.add_argument("--copy-to", type=Path, help="a second folder for finished trainings")
    parser.add_argument("--list", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.list:
        work(arguments.folder, arguments.parts, 60 * arguments.minutes, arguments.copy_to)
    show(arguments.folder, arguments.parts)


if __name__ == "__main__":
    main()
