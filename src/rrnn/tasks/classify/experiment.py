"""Train a text classifier from a configuration: read the data, train, evaluate."""

from __future__ import annotations

import hashlib
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rrnn.errors import RunError
from rrnn.files import read_json
from rrnn.tasks import experiment
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.trained import EMBEDDING, TrainedClassifier, cell_of
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.experiment import open_run, pick_device, train_in_run
from rrnn.tasks.runs import RESULT
from rrnn.tasks.training import Outcome, Progress
from rrnn.tasks.workers import one_cpu_thread

SMALL_STEP = 5e7
"""Multiplications of a forward pass below which a step is small."""


@dataclass(frozen=True)
class Summary:
    """The content of result.json: the figures of the epoch with the best dev accuracy."""

    cell: str
    data: str
    seed: int
    best_epoch: int
    epochs: int
    dev: float
    """Accuracy in per cent."""
    test: float | None
    """Accuracy in per cent; None if there are no test examples."""
    parameters: int
    """Number of trained parameters."""
    seconds: float
    """Duration of the training, since it was last resumed."""


Result = experiment.Result[Summary, TrainedClassifier]


def train(
    config: ClassifyConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    data: Prepared | None = None,
    capture: bool = True,
) -> Result:
    """Train a classifier; with a folder, store it there (config, cell, vocabulary, metrics, checkpoints, result).

    `resume` continues the training in the folder. `data` saves reading the same data again for many trainings.
    `capture=False` does not use CUDA graphs on a GPU.
    """
    start, progress = time.monotonic(), progress or Progress()
    device = pick_device(config.device)
    data = prepare(config) if data is None else data.of(config)
    config = data.config
    for line in data.about:
        progress.note(line)
    cell = cell_of(config)
    task = ClassifyTask(data, cell=cell, device=device, capture=capture)
    progress.note(_describe(task))
    run = open_run(folder, config, _facts(data), cell, data.vocabulary, resume=resume)
    try:
        if run is not None and not task.model.trained and run.load(EMBEDDING) is None:
            run.save(EMBEDDING, {"embedding": task.model.embedding}, {})  # once, not in every checkpoint
        with _threads_for(task):
            summary, history = train_in_run(
                task,
                run,
                lambda outcome: _summarise(task, outcome, time.monotonic() - start),
                epochs=config.epochs,
                checkpoint_seconds=config.checkpoint_seconds,
                progress=progress,
            )
    finally:
        task.graphs.close()
        if run is not None:
            run.close()
    model = TrainedClassifier(task.model.eval(), data.vocabulary, data.labels, config)
    return Result(summary, model, history, None if folder is None else Path(folder))


def _summarise(task: ClassifyTask, outcome: Outcome, seconds: float) -> Summary:
    """Load the best weights into the model, where they stay, and evaluate them."""
    best, config = outcome.best, task.config
    assert best is not None
    task.load_weights(best.weights)
    task.model.zero_grad()  # the gradients lie in the memory of the CUDA graphs
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


def _threads_for(task: ClassifyTask) -> AbstractContextManager[None]:
    """Use one CPU thread for small steps: more threads gain nothing, and on a busy machine they wait for each other."""
    weights = sum(parameter.numel() for parameter in task.model.layers.parameters())
    words = task.config.batch_size * float(task.splits["train"].padded.mean())
    return one_cpu_thread() if weights * words < SMALL_STEP else nullcontext()


def _describe(task: ClassifyTask) -> str:
    c = task.config
    both = " in both directions" if c.bidirectional else ""
    return (
        f"{c.cell}: {c.layers} × {c.hidden_size} units{both}, {task.count_parameters():,} trained parameters"
    )


def _facts(data: Prepared) -> dict[str, Any]:
    """Return what a resumed training must find again."""
    digest = hashlib.sha256()
    for texts, labels in data.splits.values():
        digest.update(np.concatenate([*texts, labels]).tobytes())
    if data.vectors is not None:
        digest.update(data.vectors.numpy().tobytes())
    sizes = {name: len(labels) for name, (_, labels) in data.splits.items()}
    return {"labels": data.labels, "texts": sizes, "data_sha256": digest.hexdigest()}


def read_summary(folder: str | Path) -> Summary:
    """Read the result of a finished training from its run folder."""
    path = Path(folder) / RESULT
    try:
        summary = Summary(**read_json(path))
        for name in ("cell", "data"):
            if not isinstance(getattr(summary, name), str):
                raise TypeError(f"{name} must be a text; got {getattr(summary, name)!r}")
        for name in ("seed", "best_epoch", "epochs", "dev", "parameters", "seconds"):
            if type(getattr(summary, name)) not in (int, float):
                raise TypeError(f"{name} must be a number; got {getattr(summary, name)!r}")
        return summary
    except OSError:
        raise RunError(f"{folder} contains no finished training: it has no {RESULT}") from None
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
