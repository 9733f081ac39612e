"""`train(config, folder)`: one training, from data to test accuracy."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.trained import EMBEDDING, FACTS, TrainedClassifier, cell_of
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.plots import plot_losses
from rrnn.tasks.runs import Run
from rrnn.tasks.training import Outcome, Progress, Record, fit
from rrnn.tasks.workers import one_cpu_thread

RESULT = "result.json"
SMALL_STEP = 5e7
"""Multiplications of a forward pass below which a step is small."""


@dataclass(frozen=True)
class Summary:
    """What result.json says: of the epoch that was best on the development set."""

    cell: str
    data: str
    seed: int
    best_epoch: int
    epochs: int
    dev: float
    """Accuracy in per cent."""
    test: float | None
    """None where there are no test examples."""
    parameters: int
    """Trained numbers."""
    seconds: float
    """Of this sitting."""


@dataclass(frozen=True)
class Result:
    summary: Summary
    model: TrainedClassifier
    """With the best weights, on the device it was trained on."""
    history: list[Record]
    folder: Path | None


def train(
    config: ClassifyConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    data: Prepared | None = None,
    capture: bool = True,
) -> Result:
    """Train a classifier; with a folder, keep it there (config, cell, vocabulary, metrics, checkpoints, result).

    `resume` goes on with the training in the folder. `data` saves reading it again, for many trainings on one.
    `capture=False` does without CUDA graphs on a GPU.
    """
    start, progress = time.monotonic(), progress or Progress()
    device = pick_device(config.device)
    data = prepare(config) if data is None else data.of(config)
    for line in data.about:
        progress.note(line)
    cell = cell_of(data.config)
    task = ClassifyTask(data, cell=cell, device=device, capture=capture)
    progress.note(_describe(task))
    run = None if folder is None else _open_run(folder, data, cell, task, resume)
    try:
        with _threads_for(task):
            outcome = fit(
                task,
                run,
                epochs=config.epochs,
                checkpoint_seconds=config.checkpoint_seconds,
                progress=progress,
            )
            summary = _summarise(task, outcome, time.monotonic() - start)
        if run is not None:
            write_atomic(run.folder / RESULT, (json.dumps(asdict(summary), indent=2) + "\n").encode())
            progress.note(plot_losses(outcome.history, run.folder))
    finally:
        task.graphs.close()
        if run is not None:
            run.close()
    model = TrainedClassifier(task.model.eval(), data.vocabulary, data.labels, data.config)
    return Result(summary, model, outcome.history, None if folder is None else Path(folder))


def _summarise(task: ClassifyTask, outcome: Outcome, seconds: float) -> Summary:
    """With the best weights in the model, which stay there."""
    best, config = outcome.best, task.config
    assert best is not None
    task.load_weights(best.weights)
    task.model.zero_grad()  # gradients lie in the graphs' memory
    test = task.evaluate("test")["accuracy"] if "test" in task.splits else None
    return Summary(
        cell=config.cell,
        data=config.data,
        seed=config.seed,
        best_epoch=best.epoch,
        epochs=len(outcome.history),
        dev=best.value,
        test=test,
        parameters=task.count_parameters(),
        seconds=round(seconds, 2),
    )


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RunError(f"device is cpu, cuda or auto; got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RunError(f"the device {name!r} was asked for, and torch finds no GPU here: use cpu, or auto")
    return device


def _threads_for(task: ClassifyTask) -> AbstractContextManager[None]:
    """One CPU thread for small steps: more gain nothing there, and on a busy machine wait for one another."""
    weights = sum(parameter.numel() for parameter in task.model.layers.parameters())
    words = task.config.batch_size * float(task.splits["train"].padded.mean())
    return one_cpu_thread() if weights * words < SMALL_STEP else nullcontext()


def _describe(task: ClassifyTask) -> str:
    c = task.config
    both = " in both directions" if c.bidirectional else ""
    return (
        f"{c.cell}: {c.layers} × {c.hidden_size} units{both}, {task.count_parameters():,} trained parameters"
    )


def _open_run(folder: str | Path, data: Prepared, cell: Cell | None, task: ClassifyTask, resume: bool) -> Run:
    values = data.config.to_dict() | {FACTS: _facts(data)}
    text, defaults = None if cell is None else cell.to_text(), data.config.defaults()
    run = Run.create(folder, values, text, data.vocabulary, resume=resume, defaults=defaults)
    if not task.model.trained and run.load(EMBEDDING) is None:  # fixed: once, not in every checkpoint
        run.save(EMBEDDING, {"embedding": task.model.embedding}, {})
    return run


def _facts(data: Prepared) -> dict[str, Any]:
    """What a resumed run must find again."""
    digest = hashlib.sha256()
    for texts, labels in data.splits.values():
        digest.update(np.concatenate([*texts, labels]).tobytes())
    if data.vectors is not None:
        digest.update(data.vectors.numpy().tobytes())
    sizes = {name: len(labels) for name, (_, labels) in data.splits.items()}
    return {"labels": data.labels, "texts": sizes, "data_sha256": digest.hexdigest()}


def read_summary(folder: str | Path) -> Summary:
    """Of a finished training."""
    path = Path(folder) / RESULT
    try:
        return Summary(**json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise RunError(f"{folder} holds no finished training: there is no {RESULT} in it") from None
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
