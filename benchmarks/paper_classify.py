"""Train rows of the paper's table of text classifiers, and keep the evidence.

    RRNN_DATA=… python benchmarks/paper_classify.py docs/results/classify --device cuda --threads 16 --minutes 25
    python benchmarks/paper_classify.py docs/results/classify --models F --set pooling=max --label max-pooling
    python benchmarks/paper_classify.py docs/results/classify --table        only the table, of what is there

The paper's protocol: random settings (those of `rrnn classify search`, the same for every model), each trained on split
0 without looking at test; the best on dev is trained again, and each of these final trainings reads test once. One dev
set is a noisy judge (of cr it has 377 texts), so the --best settings on it are compared once more, still without test:
by their mean over it and --again other splits, or seeds where the split is published. Where it is, other seeds share
the noise of one dev: with --held-out they are compared by their mean over so many parts of the training texts instead,
each judged by a training without it. Final trainings: sst and amazon, which have a published split, with --seeds seeds;
all other data over --splits random splits, each with --seeds-per-split seeds (seed = split for the first, split +
splits for the second, …), since there the split matters more than the seed. The paper does not say how texts become
words: here with the cleaning `glove`, and as in its authors' code every word without a vector has a random one.

MODEL-DATA[+LABEL].jsonl holds a line for the options they share, then one for each training, appended when it ends.
What is there is not run again, and a training that was killed goes on from its last checkpoint (in .ROW-…), so a long
table is filled bit by bit. --minutes begins no training after so many. A setting whose loss becomes NaN is recorded as
tried; a training that fails otherwise is told, and left to the next call.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from evidence import Evidence, changes_of, seconds_before
from paper_classify_table import USUAL, show, write_table
from results import meta

from rrnn.errors import DivergedError, RRNNError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.prepare import Prepared, Split, prepare
from rrnn.tasks.classify.ranges import PAPER as SPACE
from rrnn.tasks.classify.ranges import with_setting
from rrnn.tasks.classify.search import FREE
from rrnn.tasks.classify.trained import cell_of
from rrnn.tasks.experiment import pick_device
from rrnn.tasks.paper_tables import PAPER_ACCURACIES
from rrnn.tasks.search import Setting, draw_setting
from rrnn.tasks.workers import side_by_side

PUBLISHED_SPLIT = ("sst", "sst-fine", "amazon")
MOST_THREADS = 32
AGAIN = 100  # what seeds of settings that are trained again begin with
WHOLE = (0, 1)  # no part of the training texts is held out


@dataclass(frozen=True)
class Job:
    """A training: a numbered "setting" on split 0 without test, one of the best "again" elsewhere or with a part of the
    training texts "held out", still without, or the chosen one, "final", with it."""

    row: str
    base: ClassifyConfig
    number: int
    setting: tuple[tuple[str, float], ...]
    kind: Literal["setting", "again", "held out", "final"] = "setting"
    part: tuple[int, int] = WHOLE  # which is held out, of how many

    @property
    def key(self) -> dict[str, Any]:
        """What tells it from the row's other trainings."""
        if self.kind == "setting":
            return {"kind": "setting", "number": self.number}
        if self.kind == "held out":
            return {"kind": self.kind, "number": self.number, "part": self.part[0], "parts": self.part[1]}
        seed, split = self.base.seed, self.base.split_seed
        return {"kind": self.kind, "number": self.number, "seed": seed, "split": split}


# ---- training --------------------------------------------------------------------------------------------------------

_READING = threading.Lock()
_prepared = lru_cache(maxsize=32)(prepare)


def data_of(config: ClassifyConfig) -> Prepared:
    """Read once a process for all models, settings and seeds."""
    with _READING:
        return _prepared(config.replace(cell="F", seed=0))


def without(data: Prepared, part: int, parts: int) -> Prepared:
    """A part of the training texts as test set, in place of the real one."""
    texts, labels = data.splits["train"]
    order = np.random.default_rng(0).permutation(len(labels))

    def those(numbers: np.ndarray) -> Split:
        return [texts[i] for i in numbers], [labels[i] for i in numbers]

    held = np.sort(order[part::parts])
    rest = np.setdiff1d(order, held)
    return replace(data, splits={"train": those(rest), "dev": data.splits["dev"], "test": those(held)})


def folder_of(table: Path, job: Job) -> Path:
    """Of a training until its line is written: one that is interrupted goes on from there."""
    return table / "-".join(map(str, [f".{job.row}", *job.key.values()]))


def run(deadline: float, table: Path, job: Job) -> dict[str, Any] | None:
    """The line of a training; None: it is too late to begin."""
    return None if time.time() > deadline else run_in(folder_of(table, job), job)


def run_in(folder: Path, job: Job) -> dict[str, Any]:
    """Goes on with what is in the folder."""
    data = data_of(job.base)
    if job.kind == "held out":
        data = without(data, *job.part)
    elif job.kind != "final":
        data = replace(data, splits={name: split for name, split in data.splits.items() if name != "test"})
    about = job.key | ({"setting": dict(job.setting)} if job.kind == "setting" else {})
    earlier = seconds_before(folder)
    try:
        found = train(with_setting(job.base, dict(job.setting)), folder, resume=True, data=data)
    except DivergedError as error:
        return about | {"error": str(error)}
    summary = asdict(found.summary)
    summary["seconds"] = round(earlier + summary["seconds"], 2)
    if job.kind == "held out":
        summary["held_out"] = summary.pop("test")
    names = ("dev", "held_out", "test", "best_epoch", "epochs", "parameters", "seconds")
    line = about | {name: summary[name] for name in names if summary.get(name) is not None}
    if job.kind == "final":
        line["curve"] = [round(record["dev_accuracy"], 2) for record in found.history]
    return line | {"device": device_name(job.base)}


def device_name(config: ClassifyConfig) -> str:
    on_gpu = config.device.startswith("cuda") or (config.device == "auto" and torch.cuda.is_available())
    return torch.cuda.get_device_name() if on_gpu else "CPU"


# ---- rows ------------------------------------------------------------------------------------------------------------


def row_name(model: str, data: str, label: str) -> str:
    return f"{model}-{data.replace(':', '-')}" + (f"+{label}" if label else "")


def base_of(args: argparse.Namespace, model: str, data: str) -> ClassifyConfig:
    own: dict[str, Any] = {"device": args.device}
    if args.vectors:
        own |= {"vectors": args.vectors, "cleaning": args.cleaning or None, "unknown": args.unknown}
        own["vector_length"] = 1.0  # the paper's
    base = ClassifyConfig.for_data(data, **own, cell=model)
    config = base.replace(**args.changes)
    cell_of(config)  # a mistake in its name is said before anything is trained
    return config


def open_row(args: argparse.Namespace, model: str, data: str) -> tuple[ClassifyConfig, Evidence]:
    """The row's options, and its file; the error is of a file that other options began."""
    base = base_of(args, model, data)
    shared = {key: value for key, value in base.to_dict().items() if key not in (*SPACE, *FREE)}
    pinned = {key: value for key, value in args.changes.items() if key in SPACE}
    prepared = data_of(base)
    head = {
        "kind": "row",
        "model": model,
        "dataset": data,
        "label": args.label,
        "search_seed": args.search_seed,
    }
    head |= {"pinned": pinned, "config": shared}
    width = None if prepared.vectors is None else prepared.vectors.shape[1]
    facts = {"vector_width": width, "about": prepared.about, "meta": meta()}
    path = args.folder / f"{row_name(model, data, args.label)}.jsonl"
    return base, Evidence.open(path, head, facts, {"config": ClassifyConfig.defaults()})


def settings_of(args: argparse.Namespace, row: str, base: ClassifyConfig) -> list[Job]:
    """The first settings of the search; what --set names is not drawn."""
    space = {name: values for name, values in SPACE.items() if name not in args.changes}
    drawn: Callable[[int], Setting] = partial(draw_setting, space, args.search_seed)
    return [Job(row, base, number, tuple(drawn(number).items())) for number in range(args.settings)]


def again_of(args: argparse.Namespace, row: str, base: ClassifyConfig, evidence: Evidence) -> list[Job]:
    """The best settings elsewhere, with seeds that no final training has. None before all settings were tried."""
    if len(evidence.settings()) < args.settings:
        return []
    published = base.data in PUBLISHED_SPLIT
    where: list[tuple[ClassifyConfig, Literal["again", "held out"], tuple[int, int]]]
    if published and args.held_out:
        parts = range(args.held_out)
        where = [(base.replace(seed=AGAIN + n), "held out", (n, args.held_out)) for n in parts]
    else:
        places = ((0 if published else n, AGAIN + n) for n in range(1, args.again + 1))
        where = [(base.replace(split_seed=split, seed=seed), "again", WHOLE) for split, seed in places]
    return [
        Job(row, place, line["number"], tuple(line["setting"].items()), kind, part)
        for line in evidence.best(args.best)
        for place, kind, part in where
    ]


def finals_of(args: argparse.Namespace, row: str, base: ClassifyConfig, evidence: Evidence) -> list[Job]:
    """None before all settings were tried, the best of them again."""
    best = evidence.chosen()
    missing = [job for job in again_of(args, row, base, evidence) if not evidence.has(job.key)]
    if best is None or missing or len(evidence.settings()) < args.settings:
        return []
    if base.data in PUBLISHED_SPLIT:
        runs = [(0, seed) for seed in range(args.seeds)]
    else:
        turns = range(args.seeds_per_split)
        runs = [(split, split + turn * args.splits) for turn in turns for split in range(args.splits)]
    setting = tuple(best["setting"].items())
    return [
        Job(row, base.replace(split_seed=split, seed=seed), best["number"], setting, "final")
        for split, seed in runs
    ]


def jobs_of(args: argparse.Namespace, row: str, base: ClassifyConfig, evidence: Evidence) -> list[Job]:
    """Of all stages that what is there allows."""
    later = (stage(args, row, base, evidence) for stage in (again_of, finals_of))
    return [*settings_of(args, row, base), *chain.from_iterable(later)]


def fill(args: argparse.Namespace) -> None:
    """All settings of all rows; a row's best again as soon as its settings are there, then its final trainings."""
    pick_device(args.device)  # what is wrong with it is said here, not taken for a setting that failed
    bases, rows, begun = dict[str, ClassifyConfig](), dict[str, Evidence](), set[Job]()
    for data in args.datasets:
        for model in args.models:
            name = row_name(model, data, args.label)
            bases[name], rows[name] = open_row(args, model, data)

    def ready() -> list[Job]:
        """What can begin and has not."""
        jobs = [job for name, row in rows.items() for job in jobs_of(args, name, bases[name], row)]
        new = [job for job in jobs if job not in begun and not rows[job.row].has(job.key)]
        begun.update(new)
        return new

    one = partial(run, time.time() + 60 * args.minutes, args.folder)
    for job, answer in side_by_side(one, ready(), then=ready, threads=args.threads, processes=args.processes):
        rows[job.row].take(job.key, answer)
        if isinstance(answer, dict):
            shutil.rmtree(folder_of(args.folder, job))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", default=list(PAPER_ACCURACIES), help="of the zoo: %(default)s")
    parser.add_argument("--datasets", nargs="+", default=["sst", "subj", "cr", "amazon"])
    parser.add_argument(
        "--settings", type=int, default=20, help="random settings a row, at least (%(default)s)"
    )
    parser.add_argument("--best", type=int, default=4, help="settings that are trained again (%(default)s)")
    parser.add_argument(
        "--again", type=int, default=4, help="on so many other splits or seeds; 0: never (%(default)s)"
    )
    parser.add_argument(
        "--held-out",
        type=int,
        default=0,
        metavar="PARTS",
        help="with a published split, compare them by parts of the training texts instead",
    )
    parser.add_argument("--search-seed", type=int, default=0, help="draws them (%(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=5, help="final trainings on a published split (%(default)s)"
    )
    parser.add_argument("--splits", type=int, default=10, help="random splits of other data (%(default)s)")
    parser.add_argument(
        "--seeds-per-split", type=int, default=1, help="final trainings on each (%(default)s)"
    )
    parser.add_argument("--vectors", default=USUAL["vectors"], help='(%(default)s); "" trains embeddings')
    parser.add_argument(
        "--cleaning", default=USUAL["cleaning"], help='with vectors (%(default)s); "" is the data\'s own'
    )
    parser.add_argument(
        "--unknown", default=USUAL["unknown"], help="words without a vector: own, or one for all"
    )
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="what differs from the paper's: needs --label",
    )
    parser.add_argument("--label", default="", help="of such a variant: its rows and files bear it")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--threads", type=int, default=1, help="trainings side by side, sharing a GPU")
    parser.add_argument("--processes", type=int, default=1, help="the same, a process and a CPU thread each")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no training after so many")
    parser.add_argument("--table", action="store_true", help="train nothing")
    args = parser.parse_args()
    args.changes = changes_of(args.set)
    if args.changes and not args.label:
        parser.error("--set makes a variant of the paper's protocol: name it with --label")
    if args.held_out < 0 or args.held_out == 1:
        parser.error(f"--held-out needs 2 parts or more, or 0 for none; got {args.held_out}")
    if args.threads > MOST_THREADS:
        parser.error(
            f"at most {MOST_THREADS} trainings share a GPU in one process; got --threads {args.threads}"
        )
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        if not args.table:
            fill(args)
        show(write_table(args.folder))
    except RRNNError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
