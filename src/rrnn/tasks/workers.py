"""Many trainings side by side: in threads, which share a GPU by a stream each, or in processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from rrnn.errors import RunError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(
    function: Callable[[Item], Answer],
    items: Iterable[Item],
    *,
    then: Callable[[], Iterable[Item]] = tuple,
    processes: int = 1,
    threads: int = 1,
) -> Iterator[tuple[Item, Answer | Exception]]:
    """(item, what the function made of it, or the error) as they come. `then` is asked after each for further items. In
    processes, `function` and items are pickled, and each process uses one CPU thread."""
    if processes > 1 and threads > 1:
        raise RunError("trainings run side by side in processes or in threads; got both")
    with _pool(processes, threads) as pool:
        running = {pool.submit(function, item): item for item in items}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [each for each in running if each in done]:  # in their order
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    raise RunError("a worker process was killed; what it had not finished is lost") from error
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield running.pop(future), error if error is not None else future.result()
                running |= {pool.submit(function, item): item for item in then()}


def _pool(processes: int, threads: int) -> Executor:
    if processes == 1:
        return ThreadPoolExecutor(threads)
    # A forked child of a process that used OpenMP or CUDA is not to be trusted with either.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=spawn, initializer=begin_process)


@contextmanager
def one_cpu_thread() -> Iterator[None]:
    """torch's operations run in one CPU thread each, until the last who wants it so is done. Several Python threads may
    want it at once: the number is the process's."""
    import torch

    global _wanting, _before
    with _COUNTING:
        if not _wanting:
            _before = torch.get_num_threads()
        _wanting += 1
    try:
        torch.set_num_threads(1)
        yield
    finally:
        with _COUNTING:
            _wanting -= 1
            if not _wanting:
                torch.set_num_threads(_before)


_COUNTING = threading.Lock()
_wanting, _before = 0, 1


def begin_process() -> None:
    """First thing in a worker process."""
    import torch

    torch.set_num_threads(1)  # as many as cores in each would only wait for one another
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Were it killed, its workers would go on unseen, beside those that it has when it is started again."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
