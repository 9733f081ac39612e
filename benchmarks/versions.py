"""Compare the speed of two source trees in one run, so that a slow moment of the machine meets both.

    python benchmarks/versions.py OLD_TREE NEW_TREE [--device cuda] [--out FILE.json] [--quick | --calls]

A tree is a checkout: its `src` holds rrnn. Each tree has a process of its own with a cache of its own; the two set up
the same cases and are timed in strict alternation, so that only one of them works at a time. A case is a cell, a shape
(time, batch, units), a number type and a pass: the bare kernels (gates, recurrence and output), on CUDA as replays of a
CUDA graph, and whole layers, called from Python; "step" rows call a layer's `step`, as streaming does, one token at a
time. "first call" rows time a cell's first training step, with an empty cache and in a fresh process each time: that is
mostly compiling. `--calls` leaves out all but calls of one step, which show what a call costs.

Times are medians. `ratio` is the median of new over old in neighbouring timings: above 1, the new tree is slower.
`spread` holds the quartiles of these ratios; a change within it is noise. `of best` is the ratio of the least times,
which others' use of the machine disturbs less. Compare a tree with itself to see what noise looks like.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Spec = dict[str, Any]

CELLS = ["B", "B+o", "C", "C+o", "F", "F+o", "B-max-plus", "log-B", "SRU"]
SHAPES = {
    "cpu": [(512, 16, 512), (64, 32, 256), (1, 1, 64)],
    "cuda": [(512, 32, 1024), (2048, 8, 1024), (4096, 16, 2048), (65536, 1, 1024)],
}
DTYPES = {"cpu": ["float32"], "cuda": ["float32", "bfloat16"]}
LAYER_SHAPES = {"cpu": [(1, 1, 64), (64, 32, 256)], "cuda": [(1, 1, 64), (35, 32, 256)]}
PASSES = ["forward", "forward_backward"]
FIRST = {"cpu": ["B", "F+o"], "cuda": ["F+o"]}
ROUNDS, FIRST_ROUNDS = {"cpu": 21, "cuda": 15}, {"cpu": 5, "cuda": 3}
SECONDS = {"cpu": 2.0, "cuda": 0.2}
FIRST_SHAPE = (512, 16, 512)
BUDGET_MS = {"cpu": 4.0, "cuda": 5.0}
"""How long one timing lasts at least; short cases are called several times in it."""


def cases(device: str, quick: bool) -> list[Spec]:
    """Return every case; a quick run has fewer cells, shapes and number types."""
    cells = ["B", "F+o", "B-max-plus", "log-B"] if quick else CELLS
    shapes = SHAPES[device][1:3] if quick and device == "cpu" else SHAPES[device][: 2 if quick else None]
    dtypes = DTYPES[device][: 1 if quick else None]
    timing = "graph" if device == "cuda" else "plain"
    kernels = [
        {"kind": "kernel", "cell": cell, "shape": shape, "dtype": dtype, "pass": name, "timing": timing}
        for shape, dtype, cell, name in product(shapes, dtypes, cells, PASSES)
    ]
    plain = {"cell": "F+o", "dtype": "float32", "timing": "plain"}
    layers = [
        {"kind": "layer", "shape": shape, "pass": name, **plain}
        for shape, name in product(LAYER_SHAPES[device], PASSES)
    ]
    steps = [{"kind": "step", "shape": LAYER_SHAPES[device][0], "pass": "forward", **plain}]
    return kernels + layers + steps


class Process:
    """A worker of one tree: `ask` sends a request and waits for the answer."""

    def __init__(self, tree: Path, cache: Path, device: str, threads: int) -> None:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        folders = {"RRNN_CACHE": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), **folders}
        script = Path(__file__).resolve().with_name("versions_worker.py")
        # -P: the worker's own folder stays out of its path
        command = [sys.executable, "-P", str(script), device, str(threads)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.tree = tree
        self.process = subprocess.Popen(command, env=environment, cwd=cache, text=True, **pipes)

    def send(self, do: str, spec: Spec | None = None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({**(spec or {}), "do": do}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Row:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker of {self.tree} died with exit status {self.process.wait()}")
        return json.loads(line)

    def ask(self, do: str, spec: Spec | None = None) -> Row:
        self.send(do, spec)
        return self.receive()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Comparison:
    """Two trees on one device, with caches below `scratch`."""

    seconds: float = 0.0
    """How long a case is timed at least, however many rounds that takes."""

    def __init__(self, trees: dict[str, Path], device: str, threads: int, scratch: Path) -> None:
        self.trees, self.device, self.threads, self.scratch = trees, device, threads, scratch

    def start(self, side: str, cache: str = "cache") -> Process:
        return Process(self.trees[side], self.scratch / side / cache, self.device, self.threads)

    def compile(self, specs: list[Spec]) -> None:
        """Compile all cases in many processes, which takes long on CUDA one by one; the caches keep the kernels."""
        variants = {(spec["cell"], tuple(spec["shape"]), spec["dtype"], spec["kind"]): spec for spec in specs}
        workers = max(1, min(6, (os.cpu_count() or 2) // 2 - 1))
        began = time.monotonic()
        running: list[tuple[Process, int]] = []
        for side, number in product(self.trees, range(workers)):
            share = list(variants.values())[number::workers]
            worker = self.start(side)
            for spec in share:
                worker.send("compile", spec)
            running.append((worker, len(share)))
        for worker, count in running:
            for _ in range(count):
                worker.receive()  # what failed will fail again, and say so, when it is timed
            worker.close()
        print(f"compiled {2 * len(variants)} variants in {time.monotonic() - began:.0f} s", flush=True)

    def first_calls(self, cells: list[str], rounds: int) -> Iterator[Row]:
        """Time first calls, each in a fresh process with an empty cache."""
        for cell in cells:
            spec = {"kind": "kernel", "cell": cell, "shape": FIRST_SHAPE, "dtype": "float32"}
            times: dict[str, list[float]] = {side: [] for side in self.trees}
            error = None
            for number in range(rounds):
                for side in in_turn(self.trees, number):
                    worker = self.start(side, f"first-{cell}-{number}")
                    answer = worker.ask("first", spec)
                    worker.close()
                    error = answer.get("error", error)
                    times[side].append(answer.get("ms", math.nan))
            about = {**spec, "kind": "first call", "pass": "forward_backward", "timing": "fresh process"}
            yield {**about, "error": error} if error else {**about, **summarise(times)}

    def rows(self, specs: list[Spec], rounds: int, about: dict[str, Row]) -> Iterator[Row]:
        """Time every case, both trees in turn; `about` gets what each worker says of itself."""
        workers = {side: self.start(side) for side in self.trees}
        for side, worker in workers.items():
            about[side] = worker.ask("hello")
            if not Path(about[side]["file"]).is_relative_to(worker.tree / "src"):
                raise SystemExit(f"{worker.tree} is not what runs: rrnn came from {about[side]['file']}")
        for spec in specs:
            yield {**spec, **self._time(workers, spec, rounds)}
        for worker in workers.values():
            worker.close()

    def _time(self, workers: dict[str, Process], spec: Spec, rounds: int) -> Row:
        answers = {side: worker.ask("prepare", spec) for side, worker in workers.items()}
        if error := _error(answers):
            return {"error": error}
        guess = min(answer["ms"] for answer in answers.values())
        count = max(1, min(500, round(BUDGET_MS[self.device] / guess)))
        ready = {side: worker.ask("ready", {**spec, "count": count}) for side, worker in workers.items()}
        if error := _error(ready):
            return {"error": error}
        times: dict[str, list[float]] = {side: [] for side in workers}
        began, number = time.monotonic(), 0
        while number < rounds or time.monotonic() - began < self.seconds:
            for side in in_turn(workers, number):
                times[side].append(workers[side].ask("time")["ms"])
            number += 1
        digests = [answer["digest"] for answer in answers.values()]
        return {**summarise(times), "calls": count, "difference": difference(*digests)}


def _error(answers: dict[str, Row]) -> str | None:
    found = [f"{side}: {answer['error']}" for side, answer in answers.items() if "error" in answer]
    return "; ".join(found) or None


def in_turn(sides: dict[str, Any], number: int) -> list[str]:
    """Return old and new, and in every other round new and old."""
    return list(sides)[:: -1 if number % 2 else 1]


def summarise(times: dict[str, list[float]]) -> Row:
    """Return medians, and the quartiles of the ratios of neighbouring timings; `ratio` is the middle one."""
    old, new = times["old"], times["new"]
    ratios = [b / a for a, b in zip(old, new, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    medians = statistics.median(old), statistics.median(new)
    found: Row = {"old_ms": medians[0], "new_ms": medians[1], "ratio": middle}
    best = {"best_ms": [min(old), min(new)], "best_ratio": min(new) / min(old)}
    return {**found, "spread": [low, high], **best, "rounds": len(old)}


def difference(old: list[float], new: list[float]) -> float:
    """Return the largest relative difference between digests of the results: both should compute the same."""
    if len(old) != len(new) or not all(map(math.isfinite, [*old, *new])):
        return 0.0 if str(old) == str(new) else math.inf
    return max((abs(a - b) / max(abs(a), 1e-30) for a, b in zip(old, new, strict=True)), default=0.0)


# ---- what is shown and written ---------------------------------------------------------------------------------------


def table(rows: list[Row]) -> list[list[str]]:
    """Return lines of cells, the largest ratio last; cases that failed come first."""
    out = [["case", "shape", "dtype", "pass", "old ms", "new ms", "ratio", "spread", "of best", ""]]
    for row in sorted(rows, key=lambda row: row.get("ratio", -1.0)):
        name = row["cell"] if row["kind"] == "kernel" else f"{row['cell']} {row['kind']}"
        start = [name, "×".join(map(str, row["shape"])), row["dtype"], row["pass"].replace("_", "+")]
        if "error" in row:
            out.append([*start, *[""] * 5, row["error"]])
            continue
        low, high = row["spread"]
        times = [f"{row['old_ms']:.4g}", f"{row['new_ms']:.4g}", f"{row['ratio']:.3f}"]
        loose = 2e-2 if row["dtype"] == "bfloat16" else 1e-4
        note = "RESULTS DIFFER" if row.get("difference", 0.0) > loose else ""
        out.append([*start, *times, f"{low:.2f}–{high:.2f}", f"{row['best_ratio']:.3f}", note])
    return out


def print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def meta(comparison: Comparison, about: dict[str, Row]) -> Row:
    """Return what a result file says of its making; `about` is what the workers say of themselves."""
    old = about["old"]
    versions = {key: old[key] for key in ("python", "torch", "triton", "cuda") if key in old}
    hardware = {"cpu": _cpu(), "cores": os.cpu_count(), "threads": old["threads"]}
    trees = {
        side: {"rrnn": about[side]["rrnn"], "commit": _commit(tree), "source": _digest(tree)}
        for side, tree in comparison.trees.items()
    }
    return {
        "command": " ".join(["python", *sys.argv]),
        "versions": versions,
        "trees": trees,
        "hardware": hardware | ({"gpu": old["gpu"]} if "gpu" in old else {}),
    }


def _commit(tree: Path) -> str | None:
    """Return the checkout's commit; a tree without git has none."""
    try:
        command = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _digest(tree: Path) -> str:
    """Return a hash of the package's sources."""
    digest = hashlib.sha256()
    for path in sorted((tree / "src" / "rrnn").rglob("*.py")):
        digest.update(str(path.relative_to(tree)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def compare(
    comparison: Comparison, specs: list[Spec], rounds: int, first: list[str], first_rounds: int
) -> tuple[Row, list[Row]]:
    """Measure everything; return the file's meta and rows."""
    about: dict[str, Row] = {}
    if comparison.device == "cuda":
        comparison.compile(specs)
    rows: list[Row] = []
    for found in (comparison.rows(specs, rounds, about), comparison.first_calls(first, first_rounds)):
        for row in found:
            rows.append(row)
            print("x" if "error" in row else ".", end="", flush=True)
    print()
    return meta(comparison, about), rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, metavar="OLD_TREE")
    parser.add_argument("new", type=Path, metavar="NEW_TREE")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, help="write the result file here")
    parser.add_argument("--quick", action="store_true", help="fewer cells, shapes and rounds")
    parser.add_argument("--calls", action="store_true", help="only calls of one step, and no first calls")
    parser.add_argument("--rounds", type=int, help="least number of timings of each tree and case")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each worker (default: 1)")
    options = parser.parse_args()
    trees = {"old": options.old.resolve(), "new": options.new.resolve()}
    for tree in trees.values():
        if not (tree / "src" / "rrnn").is_dir():
            raise SystemExit(f"{tree} is no source tree: it has no src/rrnn")
    rounds = options.rounds or (9 if options.quick else ROUNDS[options.device])
    first = [] if options.calls else FIRST[options.device][: 1 if options.quick else None]
    with tempfile.TemporaryDirectory(prefix="rrnn-versions-") as scratch:
        comparison = Comparison(trees, options.device, options.threads, Path(scratch))
        comparison.seconds = SECONDS[options.device] / (2 if options.quick else 1)
        specs = cases(options.device, options.quick)
        specs = [spec for spec in specs if spec["shape"][0] == 1] if options.calls else specs
        first_rounds = 3 if options.quick else FIRST_ROUNDS[options.device]
        about, rows = compare(comparison, specs, max(rounds, 2), first, first_rounds)
    print_table(table(rows))
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{len(ratios)} cases, geometric mean of the ratios {mean:.3f}, largest {max(ratios):.3f}")
    if options.out:
        options.out.write_text(json.dumps({"meta": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    if failed := sum("error" in row for row in rows):
        raise SystemExit(f"{failed} cases failed")


if __name__ == "__main__":
    main()
