"""Run many trainings at the same time, in threads (which share a GPU by a stream each) or processes; lock files."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import IO, TypeVar

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
    """Call `function` for each item and yield (item, its result or exception) as they finish.

    After each of them, `then` is asked for further items. Processes get `function` and the items pickled, and use one
    CPU thread each.
    """
    if processes > 1 and threads > 1:
        raise RunError(
            f"trainings run in processes or in threads, not both; got {processes} processes and {threads} threads"
        )
    with _pool(processes, threads) as pool:
        running = {pool.submit(function, item): item for item in items}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [
                each for each in running if each in done
            ]:  # in the order in which they were submitted
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    raise RunError(
                        "a worker process was killed, and its unfinished training is lost"
                    ) from error
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield running.pop(future), error if error is not None else future.result()
                running |= {pool.submit(function, item): item for item in then()}


def _pool(processes: int, threads: int) -> Executor:
    if processes == 1:
        return ThreadPoolExecutor(threads)
    # A process that used OpenMP or CUDA must not be forked.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=spawn, initializer=begin_process)


def begin_process() -> None:
    """Prepare a worker process: one CPU thread, and the process ends when its parent does."""
    import torch

    torch.set_num_threads(1)  # the workers together fill the cores
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent ends. After a kill, workers would otherwise go on beside those of the next start."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def lock_file(file: IO[str], *, wait: bool = False) -> bool:
    """Lock an open file until it is closed or the process ends. Return False if somebody else has locked it."""
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        else:
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
