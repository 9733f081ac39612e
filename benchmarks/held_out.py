"""Compare variants of a row's chosen setting on held-out parts of its training texts.

    RRNN_DATA=… python benchmarks/held_out.py docs/results/classify/F-sst+averaged.jsonl \\
        --variants "" "vector_length=3 average=0.999" "vector_length=3 average=0.999 word_dropout=0.15" --processes 2

Dev is a poor judge of variants: of sst it has 872 texts, and the best of a hundred epochs on them is the luckiest, by
more than variants differ. Here the training texts are divided into --parts at random. Each training leaves one of them
out, takes the best epoch on dev as ever, and is judged by the part that it has not seen. Nobody reads test.

tried/ROW-held-out.jsonl has a line for what all share, then one for each training. What is there is not run again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evidence import Evidence, changes_of
from paper_classify import data_of, device_name, without
from results import meta, print_table

from rrnn.errors import RRNNError, RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.ranges import with_setting
from rrnn.tasks.classify.train import train
from rrnn.tasks.workers import side_by_side


@dataclass(frozen=True)
class Job:
    """A training without the part of that number; "" is the row as it is."""

    config: ClassifyConfig
    variant: str
    part: int
    parts: int

    @property
    def key(self) -> dict[str, Any]:
        return {"kind": "held out", "variant": self.variant, "part": self.part}


def run(deadline: float, job: Job) -> dict[str, Any] | None:
    """None: it is too late to begin."""
    if time.time() > deadline:
        return None
    found = train(job.config, data=without(data_of(job.config), job.part, job.parts)).summary
    line = {"dev": found.dev, "held_out": found.test, "best_epoch": found.best_epoch, "epochs": found.epochs}
    return job.key | line | {"seconds": found.seconds, "device": device_name(job.config)}


def show(evidence: Evidence) -> None:
    """Gains over the row as it is, on the parts that both have."""
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for line in evidence.lines[1:]:
        found.setdefault(line["variant"], {})[line["part"]] = line["held_out"], line["dev"]
    body = []
    for variant, parts in found.items():
        held, dev = (statistics.fmean(each) for each in zip(*parts.values(), strict=True))
        both = [parts[part][0] - found[""][part][0] for part in parts if part in found.get("", {})]
        gain = f"{statistics.fmean(both):+.2f}" if both and variant else ""
        body.append([variant or "(the row)", str(len(parts)), f"{dev:.2f}", f"{held:.2f}", gain])
    print_table([["variant", "parts", "dev", "held out", "gain"], *body])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", type=Path, help="a file of paper_classify.py with all its settings")
    parser.add_argument(
        "--variants", nargs="*", default=[], metavar="KEY=VALUE …", help='"" is the row as it is'
    )
    parser.add_argument("--parts", type=int, default=4, help="in which the training texts fall (%(default)s)")
    parser.add_argument("--first", type=int, help="leave out only so many of them, one at a time")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--processes", type=int, default=1, help="trainings side by side")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no training after so many")
    args = parser.parse_args()
    if args.parts < 2:
        parser.error(f"--parts must be 2 or more; got {args.parts}")
    try:
        row = Evidence.read(args.row)
        best = row.chosen()
        if best is None:
            raise RunError(f"{args.row} has no setting yet")
        base = with_setting(
            ClassifyConfig.from_dict(row.head["config"]), best["setting"] | row.head["pinned"]
        )
        head = {"kind": "row", "row": args.row.stem, "parts": args.parts, "config": base.to_dict()}
        path = args.row.parent / "tried" / f"{args.row.stem}-held-out.jsonl"
        path.parent.mkdir(exist_ok=True)
        evidence = Evidence.open(path, head, {"meta": meta()}, {"config": ClassifyConfig.defaults()})
        base = base.replace(device=args.device)
        jobs = [
            Job(base.replace(**changes_of(variant.split()) | {"seed": part}), variant, part, args.parts)
            for part in range(args.parts if args.first is None else args.first)
            for variant in args.variants
        ]
        left = [job for job in jobs if not evidence.has(job.key)]
        one = partial(run, time.time() + 60 * args.minutes)
        for job, answer in side_by_side(one, left, processes=args.processes):
            evidence.take(job.key, answer)
        show(evidence)
    except RRNNError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
