"""Make Triton's interpreter faster, without a change to what it computes.

A launch replaces the functions of triton.language by interpreted ones. The interpreter does this again at each call of
a device function inside the launch, where nothing is left to replace: a third of the time that our kernels take.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any


@cache
def patch_once_a_launch() -> None:
    """Let a launch look for functions to replace once in each module of Triton's language, not at every call."""
    from triton.runtime import interpreter

    executor, patch_lang = interpreter.GridExecutor, interpreter._patch_lang
    run, modules = executor.__call__, {id(interpreter.tl), id(interpreter.tl.core)}
    seen: set[Any] = set()  # functions, and the modules that they see

    @wraps(run)
    def launch(self: Any, *args: Any, **options: Any) -> Any:
        seen.clear()
        return run(self, *args, **options)

    @wraps(patch_lang)
    def patch(fn: Any) -> Any:
        if fn in seen:
            return None
        visible = modules.intersection(map(id, fn.__globals__.values()))
        new = not visible <= seen
        seen.update(visible, [fn])
        return patch_lang(fn) if new else None

    executor.__call__, interpreter._patch_lang = launch, patch
