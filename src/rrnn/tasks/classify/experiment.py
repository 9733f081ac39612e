"""Train a text classifier from a configuration: read the data, train, evaluate."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rrnn.automata import Cell
from rrnn.automata.expressions import score, tanh
from rrnn.errors import RunError
from rrnn.files import read_bytes, read_json
from rrnn.tasks import experiment
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.trained import EMBEDDING, TrainedClassifier, cell_of, classify_run, read_config
from rrnn.tasks.classify.trainer import ClassifyTask
from rrnn.tasks.configs import OFF
from rrnn.tasks.experiment import open_run, pick_device, train_in_run
from rrnn.tasks.runs import CONFIG, RESULT, TOKENIZER
from rrnn.tasks.threads import ThreadChoice
from rrnn.tasks.training import Outcome, Progress

FREE = {"device", "threads", "checkpoint_seconds"}
"""Options that do not change the result of a training."""
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
    dev_macro_f1: float | None = None
    """Macro-averaged F1 in per cent; None in results of version 0.1."""
    test_macro_f1: float | None = None
    """Macro-averaged F1 in per cent; None in results of version 0.1, and if there are no test examples."""
    folds: int | None = None
    """The number of folds of the cross-validation to which this training belongs."""
    fold: int | None = None
    """The fold on which it was tested."""


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
    if config.folds is not None and config.fold is None:
        raise RunError(
            f"one training has one test fold, of 1 to {config.folds}: give fold, or call cross_validate"
        )
    device = pick_device(config.device)
    kept = Path(folder) if folder is not None and resume else None
    data = prepare(config, kept=kept) if data is None else data.of(config)
    config = data.config
    for line in data.about:
        progress.note(line)
    cell = cell_of(config)
    task = ClassifyTask(data, cell=cell, device=device, capture=capture)
    progress.note(_describe(task))
    if hint := exactness_hint(config, cell):
        progress.note(hint)
    run = open_run(
        folder, config, _facts(data), cell, data.vocabulary, tokenizer=data.tokenizer, resume=resume
    )
    try:
        if run is not None and not task.model.trained and run.load(EMBEDDING) is None:
            run.save(EMBEDDING, {"embedding": task.model.embedding}, {})  # once, not in every checkpoint
        summary, history = train_in_run(
            task,
            run,
            lambda outcome: _summarise(task, outcome, time.monotonic() - start),
            epochs=config.epochs,
            checkpoint_seconds=config.checkpoint_seconds,
            progress=progress,
            threads=_threads_for(task),
        )
    finally:
        task.graphs.close()
        if run is not None:
            run.close()
    model = TrainedClassifier(task.model.eval(), data.vocabulary, data.labels, config, data.tokenizer)
    return Result(summary, model, history, None if folder is None else Path(folder))


def _summarise(task: ClassifyTask, outcome: Outcome, seconds: float) -> Summary:
    """Load the best weights into the model, where they stay, and evaluate them."""
    best, config = outcome.best, task.config
    assert best is not None
    task.load_weights(best.weights)
    task.model.zero_grad()  # the gradients lie in the memory of the CUDA graphs
    record = next(record for record in outcome.history if record["epoch"] == best.epoch)
    test = task.evaluate("test") if "test" in task.splits else {}
    return Summary(
        cell=config.cell,
        data=config.data,
        seed=config.seed,
        best_epoch=best.epoch,
        epochs=len(outcome.history),
        dev=best.value,
        test=test.get("accuracy"),
        parameters=task.count_parameters(),
        seconds=round(seconds, 2),
        dev_macro_f1=record.get("dev_macro_f1"),
        test_macro_f1=test.get("macro_f1"),
        folds=config.folds,
        fold=config.fold,
    )


def _threads_for(task: ClassifyTask) -> ThreadChoice | None:
    """Return who chooses the number of CPU threads. Small steps use one: more threads would wait for each other."""
    if task.device.type != "cpu":
        return None
    weights = sum(parameter.numel() for parameter in task.model.layers.parameters())
    words = task.config.batch_size * float(task.splits["train"].padded.mean())
    is_small = weights * words < SMALL_STEP
    return ThreadChoice(1 if is_small and task.config.threads is None else task.config.threads)


def _describe(task: ClassifyTask) -> str:
    c = task.config
    both = " in both directions" if c.bidirectional else ""
    return (
        f"{c.cell}: {c.layers} × {c.hidden_size} units{both}, {task.count_parameters():,} trained parameters"
    )


def exactness_hint(config: ClassifyConfig, cell: Cell | None) -> str:
    """Return what would make explanations exact; "" if they are, or if they cannot be: scores must add up, and be the
    cell's output, perhaps inside a tanh."""
    if config.block != OFF or cell is None:
        return ""
    if not cell.semiring.adds or cell.output_exprs not in ((score,), (tanh(score),)):
        return ""
    wanted = [f"--{name} {value}" for name, value in config.changes_for_affine_readout().items()]
    if cell.output_exprs != (score,):
        wanted.append("a .cell file with `output score` instead of `output tanh(score)`")
    return f"hint: `rrnn explain` would be exact with {' and '.join(wanted)}" if wanted else ""


def _facts(data: Prepared) -> dict[str, Any]:
    """Return what a resumed training must find again."""
    digest = hashlib.sha256()
    for texts, labels in data.splits.values():
        digest.update(np.concatenate([*texts, labels]).tobytes())
    if data.vectors is not None:
        digest.update(data.vectors.numpy().tobytes())
    sizes = {name: len(labels) for name, (_, labels) in data.splits.items()}
    facts = {"labels": data.labels, "texts": sizes, "data_sha256": digest.hexdigest()}
    return facts if data.rules is None else facts | {"rules": data.rules.text}


def train_or_read(
    config: ClassifyConfig,
    folder: Path,
    advice: str,
    *,
    data: Prepared | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Train into a folder, or continue the run that is there, or read its result if it is finished.

    A finished run with another setting is an error, which ends with `advice`.
    """
    if (folder / RESULT).exists():
        _check_same_setting(folder, config, advice)
        return read_summary(folder)
    resume = (folder / CONFIG).exists()
    return train(config, folder, data=data, resume=resume, progress=progress).summary


def _check_same_setting(folder: Path, config: ClassifyConfig, advice: str) -> None:
    run = read_config(classify_run(folder))
    config = config.replace(cleaning=config.cleaning or run.cleaning)  # None stands for the data set's own
    if config.tokenizer is not None and _is_same_file(Path(config.tokenizer), folder / TOKENIZER):
        config = config.replace(tokenizer=TOKENIZER)
    was, now = run.to_dict(), config.to_dict()
    keys = [key for key in now if key not in FREE and was[key] != now[key]]
    if keys:
        changes = ", ".join(f"{key} {_short(was[key])}, not {_short(now[key])}" for key in keys)
        raise RunError(f"{folder} was trained with another setting: {changes}. {advice}")


def _is_same_file(given: Path, own: Path) -> bool:
    """Return whether a given file is gone, or holds what the run's own copy does."""
    return own.exists() and (not given.exists() or read_bytes(given) == read_bytes(own))


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


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
