"""Objectives of searches in tests. They are a module of their own, so that worker processes can import them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from rrnn.tasks.search import Real, Setting, Space, Whole

SPACE: Space = {"x": Real(0.0, 1.0), "n": Whole(2, 8, step=2), "rate": Real(1e-4, 1e-2, log=True)}


def plain(setting: Setting) -> tuple[float, dict[str, Any]]:
    return setting["x"], {"pid": os.getpid()}


def moody(setting: Setting) -> tuple[float, dict[str, Any]]:
    """Raise an error for n = 2, and return NaN for n = 4."""
    if setting["n"] == 2:
        raise ValueError("two is too few")
    return float("nan") if setting["n"] == 4 else setting["x"], {}


def failing(setting: Setting) -> tuple[float, dict[str, Any]]:
    raise ValueError("never works")


class Hanging:
    """Write the process id of the first call to `folder`/pid and hang in it; later calls return at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, setting: Setting) -> tuple[float, dict[str, Any]]:
        try:
            (self.folder / "hanging").mkdir()
        except FileExistsError:
            return plain(setting)
        (self.folder / "pid").write_text(str(os.getpid()))
        time.sleep(600)
        raise AssertionError("not reached")


def pid_in(path: Path) -> int:
    """Wait for a file with a process id, for a minute, and return the id."""
    for _ in range(1200):
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.05)
    raise AssertionError("no worker came")
