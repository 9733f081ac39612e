"""Fill a result file with the rows of independent trainings, bit by bit.

A job is a dataclass that has a `key`, which its row repeats. So a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from results import Row, meta


class Job(Protocol):
    """One training."""

    @property
    def key(self) -> dict[str, Any]:
        """The entries of its row that tell it from all others."""
        ...


J = TypeVar("J", bound=Job)


def rows_of(file: Path) -> list[Row]:
    """Return the rows that a result file has so far."""
    return json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []


def missing(rows: list[Row], jobs: list[J]) -> list[J]:
    """Return the jobs that have no row yet."""
    return [job for job in jobs if not any(row.items() >= job.key.items() for row in rows)]


def fill(
    file: Path,
    rows: list[Row],
    jobs: list[J],
    train: Callable[[J], Row],
    workers: int,
    settings: Row,
    *,
    threads: bool = False,
) -> None:
    """Train the jobs that have no row in `rows`, and write the file anew after each.

    `workers` of them run at the same time, in processes or, where their work is captured as CUDA graphs, in `threads`,
    whose kernels share the GPU.
    """
    for row in _done(missing(rows, jobs), train, workers, threads):
        rows.append(row)
        print(json.dumps(row), flush=True)
        part = file.with_suffix(".part")
        text = json.dumps({"meta": _about(settings), "rows": rows}, indent=1)
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(file)


def _done(jobs: list[J], train: Callable[[J], Row], workers: int, threads: bool) -> Iterator[Row]:
    """Yield the rows of jobs as they are finished."""
    if workers <= 1:
        yield from map(train, jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(workers) if threads else ProcessPoolExecutor(workers, spawn) as pool:
        for future in as_completed([pool.submit(train, job) for job in jobs]):
            yield future.result()


def _about(settings: Row) -> Row:
    """Return what the result file says about its run."""
    known = meta()
    gpu = {"gpu": torch.cuda.get_device_name()} if str(settings.get("device", "")).startswith("cuda") else {}
    return known | {"hardware": known["hardware"] | gpu, "settings": settings}
