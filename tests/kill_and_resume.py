"""Processes that are killed (-9) at given moments, and others that go on where they left off."""

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
    """Trains in FOLDER/0 undisturbed; in FOLDER/n, n = every, 2·every, …, a process is killed just before its n-th call
    of one of the functions in `places` (owner, name), and a second one resumes. Ends where n is more than there are.

    Each is a fork of this process, which must not have run anything of torch yet: torch takes seconds to import.
    """
    assert _in_child(lambda: train(folder / "0")) == 0
    for count in itertools.count(every, every):
        place = folder / str(count)
        if _in_child(lambda: _train_and_die(lambda: train(place), count, places)) != signal.SIGKILL:  # noqa: B023
            return
        assert _in_child(lambda: train(place)) == 0  # noqa: B023


def _in_child(function: Callable[[], object]) -> int:
    """How a forked process ended: 0, or the signal."""
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
