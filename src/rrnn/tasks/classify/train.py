"""`train(config, folder)`: one training, from data to test accuracy."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.runs import Run
from rrnn.tasks.training import Progress, fit
from rrnn.zoo import get_cell, get_model
from rrnn.zoo.table import MODELS

RESULT = "result.json"


@dataclass(frozen=True)
class Result:
    """What came of a training: the numbers of the epoch that was best on the development set."""

    cell: str
    data: str
    seed: int
    epoch: int
    """The best one, from 1."""
    epochs: int
    """How many there were."""
    dev: float
    """Accuracy in per cent."""
    test: float | None
    """None where there are no test examples."""
    parameters: int
    """Trained numbers."""
    seconds: float


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
    start = time.monotonic()
    data = prepare(config) if data is None else data.of(config)
    cell = cell_of(data.config)
    task = ClassifyTask(data, cell=cell, device=device_of(config), capture=capture)
    run = None if folder is None else _create(folder, data, cell, task, resume)
    try:
        outcome = fit(
            task, run, epochs=config.epochs, checkpoint_seconds=config.checkpoint_seconds, progress=progress
        )
        assert outcome.best is not None
        task.load_weights(outcome.best.weights)
        test = task.evaluate("test")["accuracy"] if "test" in data.splits else None
        result = Result(
            cell=config.cell,
            data=config.data,
            seed=config.seed,
            epoch=outcome.best.epoch,
            epochs=len(outcome.history),
            dev=outcome.best.value,
            test=test,
            parameters=sum(p.numel() for p in task.parameters),
            seconds=round(time.monotonic() - start, 2),
        )
        if run is not None:
            write_atomic(run.folder / RESULT, (json.dumps(asdict(result), indent=2) + "\n").encode())
        return result
    finally:
        if run is not None:
            run.close()


def device_of(config: ClassifyConfig) -> torch.device:
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(config.device)
    except RuntimeError:
        raise RunError(f"a device is cpu, cuda, cuda:1, …, or auto; got {config.device!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RunError(f"device is {config.device}, and there is no GPU that torch can use: say cpu, or auto")
    return device


def cell_of(config: ClassifyConfig) -> Cell | None:
    """The cell that the configuration names; None for a model of the zoo that is no cell, as LSTM."""
    if config.cell in MODELS and not get_model(config.cell).is_cell:
        return None
    return get_cell(config.cell)


def _create(folder: str | Path, data: Prepared, cell: Cell | None, task: ClassifyTask, resume: bool) -> Run:
    values = data.config.to_dict() | {"labels": data.labels}
    run = Run.create(folder, values, None if cell is None else cell.to_text(), data.vocabulary, resume=resume)
    if not task.model.trained and run.load("embedding") is None:  # fixed: once, not in every checkpoint
        run.save("embedding", {"embedding": task.model.embedding}, {})
    return run


def read_result(folder: str | Path) -> Result:
    """Of a finished training."""
    path = Path(folder) / RESULT
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Result(**values)
    except OSError:
        raise RunError(f"{folder} holds no finished training: there is no {RESULT} in it") from None
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
