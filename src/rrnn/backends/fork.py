"""Whether this process was forked. OpenMP's threads do not survive that: a child that asks for them waits for ever."""

from __future__ import annotations

import os

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_forked_child() -> bool:
    return _forked
