"""The paper's search: random settings, the best of them on the development set trained with several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rrnn.errors import RunError
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.experiment import Summary, read_summary, train
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.ranges import PAPER, with_setting
from rrnn.tasks.classify.trained import classify_run
from rrnn.tasks.runs import CONFIG, RESULT
from rrnn.tasks.search import Plan
from rrnn.tasks.search_run import Standing, search
from rrnn.tasks.search_space import Setting
from rrnn.tasks.search_workers import side_by_side

JOURNAL, BEST = "study.journal", "best.json"
FREE = {"device", "checkpoint_seconds"}
"""What does not matter to a training."""


@dataclass(frozen=True)
class Objective:
    """From a setting to the accuracy on the development set. Nothing is kept of the trainings but numbers."""

    base: ClassifyConfig

    def __call__(self, setting: Setting) -> tuple[float, dict[str, Any]]:
        found = train(with_setting(self.base, setting), data=_data(self.base)).summary
        return found.dev, {"best_epoch": found.best_epoch, "epochs": found.epochs, "seconds": found.seconds}


@dataclass(frozen=True)
class Seeded:
    """One of the final trainings, in a run of its own; goes on where it was interrupted."""

    base: ClassifyConfig
    folder: str

    def run_folder(self, seed: int) -> Path:
        return Path(self.folder) / f"seed-{seed}"

    def __call__(self, seed: int) -> Summary:
        folder, config = self.run_folder(seed), self.base.replace(seed=seed)
        if (folder / RESULT).exists():
            self._check_is_of(config, folder)
            return read_summary(folder)
        return train(config, folder, data=_data(self.base), resume=(folder / CONFIG).exists()).summary

    def _check_is_of(self, config: ClassifyConfig, folder: Path) -> None:
        """More trials, another seed of the search, or another study may have found a better setting than this one's."""
        run = ClassifyConfig.from_run(classify_run(folder).config)
        config = config.replace(
            cleaning=config.cleaning or run.cleaning
        )  # None: the data set's, which the run names
        was, now = run.to_dict(), config.to_dict()
        keys = [key for key in now if key not in FREE and was[key] != now[key]]
        if keys:
            changes = ", ".join(f"{key} {_short(was[key])}, not {_short(now[key])}" for key in keys)
            raise RunError(
                f"{folder} was trained with another setting than the study's best, which is in {BEST}: {changes}. Move "
                f"the runs seed-0, … out of {self.folder}, and search again"
            )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@lru_cache(maxsize=2)
def _data(base: ClassifyConfig) -> Prepared:
    """Read once a process."""
    return prepare(base)


@dataclass(frozen=True)
class Found:
    """What a search found: the best setting, and its trainings with several seeds."""

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
    """Search in the paper's ranges, then train the best setting with seeds 0, 1, … into folder/seed-0, …

    The study lies in folder/study.journal, or in `storage`, another journal file or a database's address: the same
    call elsewhere joins in, the same call later goes on. `watch` sees how the study stands, `report` each final result.
    """
    folder = Path(folder)
    if trials < 1 or workers < 1 or seeds < 0:
        raise RunError(f"trials and workers are at least 1; got {trials} and {workers} (seeds: {seeds})")
    _data(base)  # what is wrong with the data is said here, not once for every trial
    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        storage or str(folder / JOURNAL), study, PAPER, trials, search_seed, sampler, about=_common(base)
    )
    best = search(plan, Objective(base), workers=workers, threads=threads, watch=watch)
    config = with_setting(base, best.setting)
    record = {"trial": best.number, "dev": best.value, "config": config.to_dict()}
    write_atomic(folder / BEST, (json.dumps(record, indent=2) + "\n").encode())
    return Found(config, best.value, _final(config, folder, seeds, workers, threads, report))


def _common(base: ClassifyConfig) -> dict[str, Any]:
    """What all trials share: the rest is drawn, or does not matter."""
    return {key: value for key, value in base.to_dict().items() if key not in {*PAPER, *FREE}}


def _final(
    config: ClassifyConfig,
    folder: Path,
    seeds: int,
    workers: int,
    threads: bool,
    report: Callable[[Summary], None],
) -> list[Summary]:
    job, results = Seeded(config, str(folder)), dict[int, Summary]()
    left = [seed for seed in range(seeds) if not (job.run_folder(seed) / RESULT).exists()]
    done = [seed for seed in range(seeds) if seed not in left]
    count = max(1, min(workers, len(left)))
    side = side_by_side(job, left, threads=count if threads else 1, processes=1 if threads else count)
    answers = chain(((seed, job(seed)) for seed in done), side)
    for seed, answer in answers:
        if isinstance(answer, Exception):
            raise answer
        results[seed] = answer
        report(answer)
    return [results[seed] for seed in sorted(results)]
