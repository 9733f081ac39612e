"""Choose how many CPU threads a training uses: as many as there are free processors.

Threads of OpenMP spin while they wait for each other. On a busy machine the one they wait for may have no processor, so
that two threads can be ten times slower than one. torch's own loops and those of the native backend use one pool, whose
size is `torch.get_num_threads()`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SECONDS = 5.0
"""How long a choice holds; the next epoch after it chooses again."""
_SAMPLES, _PAUSE = 5, 0.004
_CGROUP = Path("/sys/fs/cgroup")


def allowed_cpus() -> int:
    """Return how many processors this process may use: its affinity, and the quota of its container."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, int(quota)))


def _quota() -> float | None:
    """Return the number of processors that the cgroup (version 2, then 1) grants; None without a limit."""
    try:
        most, period = (_CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            most, period = (
                (_CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        except OSError:
            return None
    try:
        return float(most) / float(period) if float(most) > 0 else None
    except ValueError:  # "max"
        return None


def free_cpus() -> int:
    """Return how many of the allowed processors are free at this moment, at least 1.

    Linux tells how many threads of the whole machine want to run; elsewhere all processors count as free.
    """
    found = []
    for turn in range(_SAMPLES):
        if turn:
            time.sleep(_PAUSE)
        wanted = _running()
        if wanted is None:
            return allowed_cpus()
        found.append(wanted)
    others = round(sum(found) / len(found))
    return max(1, min(allowed_cpus(), (os.cpu_count() or 1) - others))


def _running() -> int | None:
    """Return how many threads of other processes are running or wait for a processor; None if nobody tells."""
    try:
        everyone = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        ours = [_state(task) for task in Path("/proc/self/task").iterdir()]
    except (OSError, ValueError, IndexError):
        return None
    return max(0, everyone - ours.count("R"))


def _state(task: Path) -> str:
    """Return the letter of a thread's state: R if it is running or wants to."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # it has just ended
        return ""


class ThreadChoice:
    """Chooses the number of CPU threads of a training, anew every few seconds: the number that was asked for, else that
    of free processors, but not more than torch uses now. OMP_NUM_THREADS counts as asked for."""

    def __init__(self, asked: int | None = None) -> None:
        self.most = torch.get_num_threads()
        self.is_fixed = asked is not None or self.most == 1 or "OMP_NUM_THREADS" in os.environ
        self._count, self._until = self.most if asked is None else asked, 0.0

    def __call__(self) -> int:
        if not self.is_fixed and time.monotonic() >= self._until:
            self._count, self._until = min(self.most, free_cpus()), time.monotonic() + SECONDS
        return self._count


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Let torch use this many CPU threads. Several Python threads may be inside at once: the last one restores the
    number."""
    global _inside, _before
    with _COUNTING:
        if not _inside:
            _before = torch.get_num_threads()
        _inside += 1
    try:
        torch.set_num_threads(count)
        yield
    finally:
        with _COUNTING:
            _inside -= 1
            if not _inside:
                torch.set_num_threads(_before)


_COUNTING = threading.Lock()
_inside, _before = 0, 1
