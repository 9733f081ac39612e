"""Run one training from its configuration to its result: what the trainings of all tasks share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.configs import FACTS, Config
from rrnn.tasks.progress import plot_losses
from rrnn.tasks.runs import RESULT, Run
from rrnn.tasks.threads import ThreadChoice, cpu_threads
from rrnn.tasks.tokenizer import Tokenizer
from rrnn.tasks.training import ALONE, Group, Outcome, Progress, Record, Task, fit, local_processes
from rrnn.tasks.vocabulary import Vocabulary

Summary = TypeVar("Summary")
Model = TypeVar("Model")


@dataclass(frozen=True)
class Result(Generic[Summary, Model]):
    """What a training returns."""

    summary: Summary
    """The content of result.json: the figures of the epoch with the best dev metric."""
    model: Model
    """The trained model with the weights of that epoch, on the device it was trained on."""
    history: list[Record]
    """One record per epoch."""
    folder: Path | None
    """The run folder; None if the training was not stored."""


def pick_device(name: str) -> torch.device:
    """Return the device of this name; "auto" is a GPU if every process of this machine can have one."""
    enough = torch.cuda.device_count() >= local_processes()
    if name == "auto":
        return torch.device("cuda" if enough else "cpu")
    try:
        device = torch.device(name)
        if device.type != "cuda":
            torch.zeros(1, device=device).item()  # torch knows the names of devices that this machine lacks
    except (RuntimeError, AssertionError):
        raise RunError(f"device is cpu, cuda or auto; got {name!r}") from None
    if device.type == "cuda" and not enough:
        found = f"only {torch.cuda.device_count()}" if torch.cuda.is_available() else "no GPU"
        here = local_processes()
        needed = "a GPU" if here == 1 else f"a GPU for each of the {here} processes on this machine"
        raise RunError(f"the device {name!r} needs {needed}, but torch finds {found}: use cpu, or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RunError(
            f"there is no device {name!r}: torch finds {torch.cuda.device_count()} GPUs, counted from 0"
        )
    return device


def open_run(
    folder: str | Path | None,
    config: Config,
    facts: Mapping[str, Any],
    cell: Cell | None,
    vocabulary: Vocabulary,
    *,
    tokenizer: Tokenizer | None = None,
    resume: bool,
    group: Group = ALONE,
) -> Run | None:
    """Create or resume a run in the first process; the others open it read-only, or raise the same error.

    `facts` are what a resumed training must find again: sizes and a checksum of the data. Call this last, so that a
    training that cannot start leaves no run behind.
    """
    if folder is None:
        return None
    run, problem = None, {}
    if group.is_first:
        values = {**config.to_dict(), FACTS: facts}
        text = None if cell is None else cell.to_text()
        try:
            run = Run.create(
                folder,
                values,
                text,
                vocabulary,
                tokenizer=tokenizer,
                resume=resume,
                defaults=config.defaults(),
            )
        except RunError as error:
            problem = {"problem": str(error)}
    problem = group.broadcast(problem if group.is_first else None)
    if problem:
        raise RunError(problem["problem"])
    return run or Run.open(folder)


def train_in_run(
    task: Task,
    run: Run | None,
    summarise: Callable[[Outcome], Summary],
    *,
    epochs: int,
    checkpoint_seconds: float,
    progress: Progress,
    group: Group = ALONE,
    threads: ThreadChoice | None = None,
) -> tuple[Summary, list[Record]]:
    """Train, and return the summary (a dataclass) and the history. The run, which is closed at the end, gets
    result.json and a loss plot. `threads` chooses the number of CPU threads."""
    try:
        count = torch.get_num_threads() if threads is None else threads()
        if threads is not None and not threads.is_fixed and count < threads.most:
            used = f"using {count} of {threads.most} CPU threads"
            progress.note(f"{used}, since other programs are running; --threads {threads.most} uses all")
        with cpu_threads(count):
            outcome = fit(
                task,
                run,
                epochs=epochs,
                checkpoint_seconds=checkpoint_seconds,
                progress=progress,
                group=group,
                threads=threads,
            )
            summary = summarise(outcome)
        if run is not None and run.writable:
            values: Any = summary
            write_atomic(run.folder / RESULT, (json.dumps(asdict(values), indent=2) + "\n").encode())
        return summary, outcome.history
    finally:
        if run is not None and run.writable:
            progress.note(plot_losses(run.records(), run.folder))
            run.close()
