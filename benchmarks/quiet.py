"""Is anyone else using the machine? Timings of a busy machine measure the others, so benchmarks say when it was.

with Watch() as watch:
    …
watch.others   # the cores that other processes (and other virtual machines) used meanwhile, on average
"""

from __future__ import annotations

import os
import time
from pathlib import Path

BUSY = 0.15  # cores


class Watch:
    """Processor time that went to others while this was open. Without /proc (not Linux), the load average."""

    others: float = 0.0

    def __enter__(self) -> Watch:
        self._began, self._used, self._own = time.perf_counter(), _used(), _own()
        return self

    def __exit__(self, *_: object) -> None:
        wall = max(time.perf_counter() - self._began, 1e-9)
        now = _used()
        if now is None or self._used is None:
            self.others = os.getloadavg()[0] - 1 if hasattr(os, "getloadavg") else 0.0
        else:
            self.others = max(0.0, (now - self._used) - (_own() - self._own)) / wall

    @property
    def busy(self) -> bool:
        return self.others > BUSY

    @property
    def note(self) -> str:
        return f"others used {self.others:.2f} of {os.cpu_count()} cores" + (
            ": a busy machine, the figures are no figures" if self.busy else ""
        )


def wait_until_quiet(patience: float) -> bool:
    """Wait until others use less than BUSY cores over three seconds, at most `patience` seconds. Whether they do."""
    deadline = time.monotonic() + patience
    while True:
        with Watch() as watch:
            time.sleep(3.0)
        if not watch.busy or time.monotonic() > deadline:
            return not watch.busy


def _used() -> float | None:
    """Seconds that all processors have spent on anything (time stolen by other machines too)."""
    try:
        fields = [int(f) for f in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _, _, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    return sum(os.times()[:4])
