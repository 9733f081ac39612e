"""Search for a text classifier's hyper-parameters as the paper does: random settings, the best one trained with
several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.ranges import PAPER, with_setting
from rrnn.tasks.classify.train import RESULT, Summary, read_summary, train
from rrnn.tasks.classify.trained import classify_run, read_config
from rrnn.tasks.runs import CONFIG
from rrnn.tasks.search import Plan, Setting, Standing, search
from rrnn.tasks.workers import side_by_side

JOURNAL, BEST = "study.journal", "best.json"
FREE = {"device", "checkpoint_seconds"}
"""Options that do not change the result of a training."""


@dataclass(frozen=True)
class Found:
    """The best setting of a search, its dev accuracy, and the results of training it with several seeds."""

    config: ClassifyConfig
    dev: float
    seeds: list[Summary]


def search_classifier(
    base: ClassifyConfig,
    folder: str | Path,
    *,
    trials: int = 20,
    seeds: int = 5,
    workers: int = 1,
    threads: bool = False,
    storage: str | None = None,
    study: str = "classify",
    sampler: Literal["random", "tpe"] = "random",
    search_seed: int = 0,
    watch: Callable[[Standing], None] = lambda _: None,
    report: Callable[[Summary], None] = lambda _: None,
) -> Found:
    """Search the paper's ranges, then train the best setting with seeds 0, 1, … into folder/seed-0, …

    The study lies in folder/study.journal, or in `storage`: another journal file, or the URL of a database, such as
    postgresql://user@host/name, that many machines can use. The same call continues an interrupted search; on another
    machine, with the same database, it joins in. `watch` gets the study's standing, `report` the result of each seed.
    """
    folder = Path(folder)
    if trials < 1 or workers < 1 or seeds < 0:
        raise RunError(
            f"trials and workers must be at least 1, and seeds at least 0; got {trials}, {workers} and {seeds}"
        )
    _data(base)  # raises errors in the data here, instead of once for every trial
    folder.mkdir(parents=True, exist_ok=True)
    common = {key: value for key, value in base.to_dict().items() if key not in {*PAPER, *FREE}}
    plan = Plan(storage or str(folder / JOURNAL), study, PAPER, trials, search_seed, sampler, about=common)
    best = search(plan, partial(_dev_accuracy, base), workers=workers, threads=threads, watch=watch)
    config = with_setting(base, best.params)
    record = {"trial": best.number, "dev": best.value, "config": config.to_dict()}
    write_atomic(folder / BEST, (json.dumps(record, indent=2) + "\n").encode())

    results: dict[int, Summary] = {}
    done = [seed for seed in range(seeds) if (_seed_folder(folder, seed) / RESULT).exists()]
    left = [seed for seed in range(seeds) if seed not in done]
    job, count = partial(train_seed, config, folder), max(1, min(workers, len(left)))
    for seed in done:
        report(results.setdefault(seed, job(seed)))
    for seed, answer in side_by_side(
        job, left, threads=count if threads else 1, processes=1 if threads else count
    ):
        if isinstance(answer, Exception):
            raise answer
        report(results.setdefault(seed, answer))
    return Found(config, best.value or 0.0, [results[seed] for seed in range(seeds)])


def _dev_accuracy(base: ClassifyConfig, setting: Setting) -> tuple[float, dict[str, Any]]:
    """Train with a setting and return its dev accuracy. Only numbers are kept of the training."""
    result = train(with_setting(base, setting), data=_data(base)).summary
    return result.dev, {"best_epoch": result.best_epoch, "epochs": result.epochs, "seconds": result.seconds}


@lru_cache(maxsize=2)
def _data(base: ClassifyConfig) -> Prepared:
    """Read the data once per process."""
    return prepare(base)


def train_seed(config: ClassifyConfig, folder: Path, seed: int) -> Summary:
    """Train the best setting with a seed into folder/seed-N, or continue or read the run that is there."""
    run, seeded = _seed_folder(folder, seed), config.replace(seed=seed)
    if (run / RESULT).exists():
        _check_same_setting(run, seeded)
        return read_summary(run)
    return train(seeded, run, data=_data(config), resume=(run / CONFIG).exists()).summary


def _seed_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}"


def _check_same_setting(folder: Path, config: ClassifyConfig) -> None:
    """Raise an error if the run has another setting: since it was trained, the study may have found a better one."""
    run = read_config(classify_run(folder))
    config = config.replace(cleaning=config.cleaning or run.cleaning)  # None stands for the data set's own
    was, now = run.to_dict(), config.to_dict()
    keys = [key for key in now if key not in FREE and was[key] != now[key]]
    if keys:
        changes = ", ".join(f"{key} {_short(was[key])}, not {_short(now[key])}" for key in keys)
        raise RunError(
            f"{folder} was trained with another setting than the best of the study, which is in {BEST}: {changes}. "
            f"Move the folders seed-0, … out of {folder.parent} and search again"
        )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
