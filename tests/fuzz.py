"""Feed every command and every reader mangled files, flags and sizes: only clean errors may come out.

    python tests/fuzz.py --calls 10000             # at most five minutes on two cores; prints the seed
    python tests/fuzz.py --seed 7 --call 123       # one call again, alone, with its files kept

A call is clean if it succeeds, or fails with an `RRNNError` or an `OSError` that names its file (a command: with a
message and exit code 1 or 2), within its time, and leaves no file but those that it was told to write. Each call
depends on the seed and its number alone. `tests/test_fuzz.py` runs a smaller dose.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fuzz_cases import COMMANDS, World, listed, make_good_files, random_text, readers

from rrnn.cli import main as rrnn_main
from rrnn.errors import RRNNError

SECONDS = 20
"""The time that one call may take, on a busy machine."""
MEMORY = 6 * 2**30
"""Beyond what is in use at the start, so that sizes which do not fit fail here as on any machine."""


class Hang(BaseException):
    """A call that took too long. It is no `Exception`, so that nothing in the library catches it."""


class Call:
    """One call: a command line, or a reader and its file."""

    def __init__(self, seed: int, number: int, good: Path, here: Path) -> None:
        self.rng = random.Random(f"{seed}:{number}")
        self.world = World(self.rng, good, here)
        self.argv: list[str] | None = None
        if self.rng.random() < 0.6:
            weights, makers = zip(*COMMANDS, strict=True)
            (make,) = self.rng.choices(makers, weights)
            self.argv = make(self.world)
            self.name, self.kind = "rrnn " + shlex.join(self.argv), make.__name__.strip("_")
            self.input = random_text(self.rng)
        else:
            self.kind = self.rng.choice(list(_READERS))
            files, self.reader = _READERS[self.kind]
            self.file = self.world.given(*files)
            self.name = f"{self.kind}({self.file!r})"

    def run(self) -> str | None:
        """Run the call; return what is wrong with how it ended, or None."""
        before = listed(self.world.here)
        with _limited_time(SECONDS):
            wrong = self._read() if self.argv is None else self._command()
        created = {Path(path) for path in listed(self.world.here) - before}
        strange = [p for p in created if p.relative_to(self.world.here).parts[0] not in self.world.outputs]
        if wrong is None and strange:
            return f"left {', '.join(map(str, strange[:5]))} behind"
        return wrong

    def _read(self) -> str | None:
        try:
            self.reader(Path(self.file))
        except RRNNError:
            return None
        except OSError as error:
            return None if error.filename is not None else f"an OSError without a file name: {error!r}"
        except ValueError as error:  # what Python raises for a path with a NUL
            return None if "null byte" in str(error) else traceback.format_exc()
        except Exception:
            return traceback.format_exc()
        return None

    def _command(self) -> str | None:
        assert self.argv is not None
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(self.input), "utf-8")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _replaced_stdin(stdin):
                code = rrnn_main(self.argv)
        except Exception:
            return traceback.format_exc()
        out.seek(0)
        said = err.getvalue() + out.read()
        if "Traceback" in said:
            return f"it printed a traceback:\n{said[-2000:]}"
        if code not in (0, 1, 2):
            return f"exit code {code}"
        if code == 2 and not said.strip():
            return "exit code 2 without a message"
        left = [name for name in self.world.outputs if (self.world.here / name).exists()]
        if code == 2 and left and not list((self.world.here / left[0]).rglob("config.json")):
            return f"a failed command left {left[0]}: {said[-300:]}"
        return None


@contextlib.contextmanager
def _replaced_stdin(stdin: io.TextIOWrapper) -> Iterator[None]:
    before, sys.stdin = sys.stdin, stdin
    try:
        yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _limited_time(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


_READERS: dict[str, tuple[Any, Callable[[Path], Any]]] = {}


def fuzz(seed: int, numbers: range, place: Path, *, keep: bool = False) -> list[str]:
    """Make these calls in the folder `place`, and return reports of those that were not clean."""
    warnings.simplefilter("ignore")
    good = place / "good"
    good.mkdir()
    with contextlib.redirect_stdout(io.StringIO()):
        make_good_files(good)
    _READERS.update(readers())
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    reports: list[str] = []
    spent: Counter[str] = Counter()
    for number in numbers:
        here = place / f"call-{number}"
        here.mkdir()
        os.chdir(here)
        call, start = Call(seed, number, good, here), time.monotonic()
        try:
            wrong = call.run()
        except Hang:
            wrong = f"it took more than {SECONDS} s:\n{traceback.format_exc()}"
        spent[call.kind] += round(1000 * (time.monotonic() - start))
        if wrong is not None:
            again = f"python tests/fuzz.py --seed {seed} --call {number}"
            reports.append(f"call {number}: {call.name[:1000]}\n{wrong}\nagain: {again}\n")
            print(reports[-1], flush=True)
        os.chdir(place)
        if not keep:
            shutil.rmtree(here)
    if os.environ.get("FUZZ_TIMES"):
        print(spent.most_common())
    return reports


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--call", type=int, default=None, help="make only this call, and keep its files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    seed = random.randrange(10**6) if options.seed is None else options.seed
    if options.call is not None or options.part is not None:
        numbers = (
            range(options.call, options.call + 1)
            if options.call is not None
            else range(options.part, options.calls, options.jobs)
        )
        place = Path(tempfile.mkdtemp(prefix="rrnn-fuzz-"))
        try:
            reports = fuzz(seed, numbers, place, keep=options.call is not None)
        finally:
            os.chdir("/")
            if options.call is None:
                shutil.rmtree(place, ignore_errors=True)
        if options.call is not None:
            print(f"{'not clean' if reports else 'clean'}; files: {place}")
        return int(bool(reports))
    print(f"seed {seed}, {options.calls} calls", flush=True)
    start = time.monotonic()
    command = [
        sys.executable,
        __file__,
        "--seed",
        str(seed),
        "--calls",
        str(options.calls),
        "--jobs",
        str(options.jobs),
    ]
    jobs = [subprocess.Popen([*command, "--part", str(part)]) for part in range(options.jobs)]
    codes = [job.wait() for job in jobs]
    verdict = "all clean" if not any(codes) else "NOT clean"
    print(f"seed {seed}, {options.calls} calls: {verdict}, {time.monotonic() - start:.0f} s")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
