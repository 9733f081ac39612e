"""Train the planned language models one after another, and go on where the last call stopped.

    RRNN_DATA=… python benchmarks/lm_queue.py docs/results/lm-ptb --minutes 10 [--parts literal averaged]
    python benchmarks/lm_queue.py docs/results/lm-ptb --list          what is there, what is not, how long it takes

The plan is `lm_plan.py`, in the order of what a training is worth. One whose folder is there already is left alone, and
one whose settings are chosen among others waits for these; the list counts it with the settings that lead so far. A
training is begun only if it is expected to end in time, so that none is cut; a shorter one further down is begun
instead. --copy-to also copies each finished training elsewhere, at once.

Several of these programs may work on one folder; each begins what no other one has begun. If a GPU can run kernels of
several processes at a time (NVIDIA's MPS), they train more in the same time, and --pace says how much slower each is.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lm_plan import PARTS, Training, planned
from paper_lm import ROWS, config_of, run_row, write_table
from results import print_table

from rrnn.errors import RRNNError

MARGIN = 1.1
"""How much longer than expected a training may take and still end in time."""
UNKNOWN_PACE = 1.6
"""How much slower the first one may be, since other programs may use the GPU, too."""


def waiting(folder: Path, parts: Sequence[str], rows: Collection[str] = ROWS) -> list[Training]:
    """Return what is planned, not there, and waits for no choice, in order."""
    left = [training for training in planned(folder, parts) if not (folder / training.place).exists()]
    return [training for training in left if training.row in rows and training.ready(folder)]


def in_time(trainings: Iterable[Training], seconds: float, pace: float) -> list[Training]:
    """Return the trainings that take no longer than this. `pace` is how much slower the last one was than expected."""
    return [t for t in trainings if t.seconds * pace * MARGIN <= seconds]


@contextmanager
def claimed(place: Path) -> Iterator[bool]:
    """Tell whether this process may make what belongs there: no other one does, or has done so, and none will until
    the context or this process ends."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = place.with_name(f".{place.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield not place.exists()
        finally:
            lock.unlink(missing_ok=True)


def work(
    folder: Path,
    parts: Sequence[str],
    seconds: float,
    copy_to: Path | None,
    pace: float = UNKNOWN_PACE,
    rows: Collection[str] = ROWS,
) -> None:
    """Train what fits into these seconds. `pace` is how much slower the first training may be than expected."""
    end, failed = time.monotonic() + seconds, set[str]()
    if copy_to is not None:  # the last call may have ended between a training and its copy
        for training in planned(folder, parts):
            copy(folder / training.place, copy_to / training.place)
    while left := in_time(
        [training for training in waiting(folder, parts, rows) if training.place not in failed],
        end - time.monotonic(),
        pace,
    ):
        for training in left:
            with claimed(folder / training.place) as ours:
                if not ours:
                    continue
                began = time.monotonic()
                print(f"{training.place}: begun, {end - began:.0f} s are left", flush=True)
                if not train(folder, training):
                    failed.add(training.place)
                    break
                pace = max(0.9, (time.monotonic() - began) / training.seconds)
                if copy_to is not None:
                    copy(folder / training.place, copy_to / training.place)
                break
        else:  # others train these; what waits for them may be ready then
            time.sleep(1)


def train(folder: Path, training: Training) -> bool:
    """Train it and write the table anew; return False if its settings are refused."""
    try:
        config = config_of(ROWS[training.row], training.seed, training.settings)
        print(training.place, run_row(folder / training.place, config, training.test), flush=True)
    except RRNNError as error:
        print(f"{training.place}: {error}", flush=True)
        return False
    write_table(folder)
    return True


def copy(place: Path, target: Path) -> None:
    """Copy the folder of a finished training, if there is one and it was not copied before."""
    if place.exists() and not target.exists():
        with claimed(target) as ours:
            if ours:
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
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS), help="models and sizes")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that takes longer")
    parser.add_argument(
        "--pace", type=float, default=UNKNOWN_PACE, help="of the first training, 1 if it is alone"
    )
    parser.add_argument("--copy-to", type=Path, help="a second folder for finished trainings")
    parser.add_argument("--list", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not arguments.list:
        work(
            arguments.folder,
            arguments.parts,
            60 * arguments.minutes,
            arguments.copy_to,
            arguments.pace,
            arguments.rows,
        )
    show(arguments.folder, arguments.parts)


if __name__ == "__main__":
    main()
