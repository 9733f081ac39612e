"""Test the matrix schedule on a GPU, then race it, both within a time limit.

    python benchmarks/matrix_on_gpu.py FOLDER [--minutes 9] [--tests-minutes 5] [--wheels wheels] [-n 14]

Everything is written into FOLDER as it comes: tests.txt (a line for each test that ended), tests.log, race.log and
matrix.json, which has the form of docs/results/matrix-h200.json. Started again with the same FOLDER, it leaves out
tests that passed and rows that the commit in RRNN_COMMIT has. At the end it says what passed, failed, and was not
reached.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from results import print_table

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/backends/matrix"
ENDED = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b")
SELECTED = re.compile(r"collected (\d+) items?(?:.* (\d+) selected)?")
LEAST = {"GLA": 2.0, "attention": 0.0}
"""The least ratio that is wanted, 1 for other models."""


def end(*processes: subprocess.Popen[str]) -> None:
    """End processes and all that they have started: first by an interrupt, upon which pytest tells why tests failed.
    All are told before any is waited for, so that many end as soon as one."""
    for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, how)
        until = time.monotonic() + 10
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))


def start(command: list[str], root: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """Start a process in a session of its own, so that it can be ended with all that it starts."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        command,
        cwd=root,
        env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


class Tests:
    """The tests in several processes, and what came of each."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.root = root
        self.file, self.log = folder / "tests.txt", folder / "tests.log"
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.found = {name: outcome for outcome, name in (line.split(" ", 1) for line in lines)}
        self.selected, self.lock = 0, threading.Lock()

    def read(self, process: subprocess.Popen[str], log: Any) -> None:
        """Note what a process says until it ends."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with self.lock:
                    self.note(line, log)

    def note(self, line: str, log: Any) -> None:
        """Note a line of pytest's."""
        print(line, end="", file=log, flush=True)
        if chosen := SELECTED.search(line):
            self.selected += int(chosen[2] or chosen[1])
        if ended := ENDED.match(line):
            self.found[ended[1]] = ended[2]
            with self.file.open("a") as file:
                print(ended[2], ended[1], file=file)

    def run(self, seconds: float, processes: int, arguments: list[str]) -> None:
        """Run the tests that have not passed yet, until the time is over."""
        passed = [name for name, outcome in self.found.items() if outcome == "PASSED"]
        command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", *arguments]
        command += [option for name in passed for option in ("--deselect", name)]
        until, total = time.monotonic() + seconds, f"{processes}"
        running = [start(command, self.root, RRNN_SHARD=f"{i}/{total}") for i in range(processes)]
        with self.log.open("a") as log:
            threads = [threading.Thread(target=self.read, args=(each, log)) for each in running]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(max(0.0, until - time.monotonic()))
            finally:
                end(*running)
                for thread in threads:
                    thread.join()
        self.selected += len(passed)

    def report(self) -> int:
        """Print what came of the tests; return how many failed."""
        outcomes = list(self.found.values())
        failed = [name for name, outcome in self.found.items() if outcome in ("FAILED", "ERROR")]
        left = max(0, self.selected - len(outcomes))
        told = [outcomes.count("PASSED"), len(failed), outcomes.count("SKIPPED"), left]
        print_table([["tests", "passed", "failed", "skipped", "not reached"], ["", *map(str, told)]])
        for name in failed:
            print("FAILED", name)
        return len(failed)


def run_race(folder: Path, seconds: float, options: list[str]) -> None:
    """Run the race until the time is over; rows that it has written stay."""
    command = [sys.executable, "benchmarks/matrix.py", "--json", str(folder.resolve() / "matrix.json")]
    process = start([*command, "--resume", *options])

    def read() -> None:
        assert process.stdout is not None
        with (folder / "race.log").open("a") as log, process.stdout as lines:
            for line in lines:
                print(line, end="", file=log, flush=True)
                print(line, end="", flush=True)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(seconds)
    end(process)
    thread.join()


def report_race(folder: Path) -> int:
    """Print all rows and those that are missing; return how many are slower than wanted."""
    from matrix_cases import MODELS, SHAPES

    file = folder / "matrix.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    found = {(row["model"], *row["shape"], row["pass"]): row for row in rows}
    table, slow = [["model", "shape", "pass", "ms", "peer ms", "ratio", ""]], 0
    for shape in SHAPES:
        for name in MODELS:
            for which in ("forward", "forward_backward"):
                row = found.get((name, *shape, which))
                told = ["", "", "", "not reached, or no row"]
                if row is not None:
                    enough = row["ratio"] >= LEAST.get(name, 1.0)
                    slow += not enough
                    told = [f"{row[key]:.3f}" for key in ("ms", "peer_ms", "ratio")]
                    told.append("" if enough else "slower than wanted")
                table.append([name, "×".join(map(str, shape)), which, *told])
    print_table(table)
    return slow


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--tests-minutes", type=float, default=5.0)
    parser.add_argument("--wheels", default="wheels")
    parser.add_argument("-n", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes")
    options = parser.parse_args()
    began = time.monotonic()
    options.folder.mkdir(parents=True, exist_ok=True)
    tests = Tests(options.folder)
    tests.run(min(options.tests_minutes, options.minutes) * 60, options.n, ["-m", "gpu", TESTS])
    failed = tests.report()
    left = options.minutes * 60 - (time.monotonic() - began) - 15  # to end it, and to tell
    if left > 0:
        run_race(options.folder, left, ["--wheels", options.wheels, "--workers", str(options.n)])
    tests.report()
    report_race(options.folder)
    print(f"{time.monotonic() - began:.0f} s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
