"""Search for a text classifier's hyper-parameters as the paper does: random settings, the best one trained with
several seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import FREE, RESULT, Summary, train, train_or_read
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.ranges import PAPER, with_setting
from rrnn.tasks.configs import FORMER_DEFAULTS
from rrnn.tasks.runs import TOKENIZER
from rrnn.tasks.search import Plan, Setting, Standing, search
from rrnn.tasks.workers import side_by_side

JOURNAL, BEST = "study.journal", "best.json"


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
    if base.folds is not None:
        raise RunError(
            "a search compares settings on one split: leave out folds, and cross-validate the best setting with "
            f"rrnn classify train --config {folder / BEST} --folds {base.folds}"
        )
    _data(base)  # raises errors in the data here, instead of once for every trial
    folder.mkdir(parents=True, exist_ok=True)
    common = {key: value for key, value in base.to_dict().items() if key not in {*PAPER, *FREE}}
    for name, (was, other) in FORMER_DEFAULTS[base.task].items():
        if common[other] is None:  # as version 0.1 recorded it, so that its studies can be continued
            common[name] = was
    tokenizer = _data(base).tokenizer
    if tokenizer is not None:  # its content: the file may lie elsewhere on another machine
        common["tokenizer"] = hashlib.sha256(tokenizer.text.encode()).hexdigest()
    plan = Plan(storage or str(folder / JOURNAL), study, PAPER, trials, search_seed, sampler, about=common)
    best = search(plan, partial(_dev_accuracy, base), workers=workers, threads=threads, watch=watch)
    config = with_setting(base, best.params)
    own = config
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)
        own = config.replace(tokenizer=TOKENIZER)
    record = {"trial": best.number, "dev": best.value, "config": own.to_dict()}
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
    advice = (
        f"The study has found a better one since, which is in {BEST}. Move the folders seed-0, … out of {folder} and "
        "search again"
    )
    return train_or_read(config.replace(seed=seed), _seed_folder(folder, seed), advice, data=_data(config))


def _seed_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}"
