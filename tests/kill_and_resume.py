"""Kill training processes (SIGKILL) at given moments, and let others resume them."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def kill_at_moments(
    folder: Path, train: Callable[[Path], object], places: Sequence[tuple[Any, str]], *, every: int
) -> None:
    """Train in FOLDER/0 undisturbed, and in FOLDER/n for n = every, 2·every, … with one interruption.

    There a process is killed just before its n-th call of one of the functions in `places` (owner, name), and a second
    process resumes. This ends when n exceeds the number of calls. Each process is a fork of this one, because torch
    takes seconds to import; this one must not have run any torch code yet.
    """
    assert _in_child(lambda: train(folder / "0")) == 0
    for count in itertools.count(every, every):
        place = folder / str(count)
        if _in_child(lambda: _train_and_die(lambda: train(place), count, places)) != signal.SIGKILL:  # noqa: B023
            return
        assert _in_child(lambda: train(place)) == 0  # noqa: B023


def _in_child(function: Callable[[], object]) -> int:
    """Run a function in a forked process; return the signal that ended the process, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status)


def _train_and_die(train: Callable[[], object], count: int, places: Sequence[tuple[Any, str]]) -> None:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count -= 1
            if count == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return wrapped

    for owner, name in places:
        setattr(owner, name, wrap(getattr(owner, name)))
    train()
