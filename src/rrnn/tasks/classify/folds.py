"""Cross-validate a text classifier: split the data into folds, and test on each a model trained on the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import Summary, train, train_or_read
from rrnn.tasks.classify.prepare import PADDING, read_dataset
from rrnn.tasks.classify.scores import Spread
from rrnn.tasks.runs import CONFIG
from rrnn.tasks.tokenizer import given_tokenizer
from rrnn.tasks.training import Progress

FOLDS = "folds.json"
_FIGURES = ("dev", "test", "dev_macro_f1", "test_macro_f1")


@dataclass(frozen=True)
class CrossValidation:
    """The results of all folds, in their order."""

    folds: tuple[Summary, ...]

    def spread(self, figure: str) -> Spread:
        """Return the mean and the standard deviation of a figure over the folds, such as "test"."""
        return Spread.of([getattr(summary, figure) for summary in self.folds])

    def to_dict(self) -> dict[str, Any]:
        """Return the content of folds.json: mean and deviation of every figure, then the result of each fold."""
        figures = {name: asdict(self.spread(name)) for name in _FIGURES}
        return {**figures, "folds": [asdict(summary) for summary in self.folds]}


def cross_validate(
    config: ClassifyConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    report: Callable[[Summary], None] = lambda _: None,
) -> CrossValidation:
    """Train one model for each of config.folds folds; with a folder, into the runs folder/fold-1, fold-2, … and
    folds.json.

    Folds depend on split_seed, and hold the same share of every label. Each model is tested on its fold; a tenth of the
    other texts is its dev set. `resume` continues a cross-validation in the folder: finished folds are only read.
    `report` gets the result of each fold.
    """
    if config.folds is None:
        raise RunError("a cross-validation needs a number of folds: give folds, such as 10")
    if config.fold is not None:
        raise RunError(f"a cross-validation trains all folds: leave out fold, which is {config.fold}")
    jobs = [config.replace(fold=number) for number in range(1, config.folds + 1)]
    read_dataset(
        jobs[0], given_tokenizer(config, (PADDING,))
    )  # raises errors in the data here, before there is a folder
    if folder is None:
        return CrossValidation(
            tuple(_reported(train(job, progress=progress).summary, report) for job in jobs)
        )
    folder = Path(folder)
    _check_folder(folder, config.folds, resume)
    advice = f"Move it out of {folder} and train again, or choose another --out"
    found = [
        _reported(train_or_read(job, fold_folder(folder, number), advice, progress=progress), report)
        for number, job in enumerate(jobs, start=1)
    ]
    result = CrossValidation(tuple(found))
    write_atomic(folder / FOLDS, (json.dumps(result.to_dict(), indent=2) + "\n").encode())
    return result


def _reported(summary: Summary, report: Callable[[Summary], None]) -> Summary:
    report(summary)
    return summary


def fold_folder(folder: Path, number: int) -> Path:
    """Return the run folder of a fold."""
    return folder / f"fold-{number}"


def _check_folder(folder: Path, folds: int, resume: bool) -> None:
    """Refuse a folder that holds a run, or, without `resume`, a cross-validation."""
    if (folder / CONFIG).exists():
        raise RunError(f"{folder} holds a single run: choose another --out for a cross-validation")
    begun = begun_folds(folder)
    if begun and not resume:
        raise RunError(f"{folder} already holds a cross-validation: add --resume, or choose another --out")
    if too_many := [number for number in begun if number > folds]:
        raise RunError(
            f"{folder} holds a cross-validation with more than {folds} folds, fold-{too_many[0]} among them: choose "
            "another --out"
        )


def begun_folds(folder: Path) -> Sequence[int]:
    """Return the numbers of the folds that have a run in the folder."""
    names = (path.parent.name.removeprefix("fold-") for path in folder.glob(f"fold-*/{CONFIG}"))
    return sorted(int(name) for name in names if name.isdecimal())
