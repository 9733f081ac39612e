"""Hyper-parameter search with optuna: any number of workers, in this process, in others, on other machines, share a
study that lies in a journal file or a database. Whoever comes takes up what is left to do.

A trial that fails is recorded and counts; one whose worker was killed is recorded and done anew by whoever is free.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rrnn.errors import RunError

if TYPE_CHECKING:
    import optuna

# ---- what is drawn ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Real:
    """A real number between two; with `log` its logarithm is drawn evenly."""

    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float:
        """The number at a share (0 to 1) of the range."""
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)


@dataclass(frozen=True)
class Whole:
    """A whole number between two, both included, in steps."""

    low: int
    high: int
    step: int = 1

    def at(self, share: float) -> int:
        count = (self.high - self.low) // self.step + 1
        return self.low + self.step * min(int(share * count), count - 1)


Range = Real | Whole
Space = Mapping[str, Range]
Setting = dict[str, float | int]


def draw(name: str, values: Range, seed: int, number: int) -> float | int:
    """One value of trial `number`: other ranges, and their order, do not matter."""
    return values.at(np.random.default_rng([seed, number, zlib.crc32(name.encode())]).random())


def draw_setting(space: Space, seed: int, number: int) -> Setting:
    """The setting of trial `number`."""
    return {name: draw(name, values, seed, number) for name, values in space.items()}


Objective = Callable[[Setting], tuple[float, dict[str, Any]]]
"""From a setting to the value that is to become large, and what else is to be recorded of the trial."""

LOOK_SECONDS, LINE_SECONDS = 0.5, 0.02
BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0  # without a beat: a worker on another machine is gone
_OWNER, _SETTING, _BEAT, _ERROR, _LEFT_OUT = "owner", "setting", "beat", "error", "left_out"


@dataclass(frozen=True)
class Plan:
    """A study: where it lies, what it draws from, how many trials it has."""

    storage: str
    """A journal file, or the address of a database (sqlite:///study.db, postgresql://…)."""
    name: str
    space: Space
    trials: int = 20
    seed: int = 0
    sampler: Literal["random", "tpe"] = "random"
    about: Mapping[str, Any] | None = None
    """What the trials have in common; a study is not continued with another."""


# ---- the study -------------------------------------------------------------------------------------------------------


def open_study(plan: Plan) -> optuna.Study:
    """Creates it, or takes it up."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise RunError("a search needs optuna: pip install rrnn[tasks]") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            study_name=plan.name,
            storage=_storage(plan.storage),
            sampler=_sampler(plan),
            direction="maximize",
            load_if_exists=True,
        )
    except RunError:
        raise
    except Exception as error:  # of optuna, of sqlalchemy, of any database's driver
        raise RunError(f"the study cannot be opened in {plan.storage}: {error}") from error
    about = dict(plan.about or {})
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", about)
    elif known != about:
        keys = sorted(key for key in {**known, **about} if known.get(key) != about.get(key))
        changes = "\n".join(f"  {key}: was {known.get(key)!r}, now {about.get(key)!r}" for key in keys)
        raise RunError(
            f"the study {plan.name!r} in {plan.storage} was begun with another configuration:\n{changes}\n"
            "Continue it with its own, or begin a new one elsewhere."
        )
    return study


def _storage(where: str) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if "://" in where:
        return where
    Path(where).parent.mkdir(parents=True, exist_ok=True)
    _check_journal(Path(where))
    return optuna.storages.JournalStorage(JournalFileBackend(where))


def _check_journal(path: Path) -> None:
    """A line that is cut, by a full disk or a loss of power, would spoil what is written after it."""
    deadline = time.monotonic() + LOOK_SECONDS
    while True:
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        number = next((i for i, line in enumerate(lines[:-1], start=1) if not _is_json(line)), None)
        if number is None and lines[-1] == b"":
            return
        if number is not None or time.monotonic() > deadline:  # else somebody may be writing just now
            raise RunError(
                f"{path}:{number or len(lines)}: the study's journal is damaged here. Delete this line and all that "
                "follow, and search again: what they said is done anew"
            )
        time.sleep(LINE_SECONDS)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _sampler(plan: Plan) -> optuna.samplers.BaseSampler:
    import optuna

    if plan.sampler == "tpe":
        mine = hash((plan.seed, os.getpid(), threading.get_ident())) % 2**32  # workers must not draw the same
        return optuna.samplers.TPESampler(seed=mine, constant_liar=True)

    class Numbered(optuna.samplers.RandomSampler):
        """A random sampler whose draws depend on the seed and the setting's number, not on who asks."""

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return draw(param_name, plan.space[param_name], plan.seed, trial.user_attrs[_SETTING])

    return Numbered(seed=plan.seed)


def suggest(trial: optuna.Trial, space: Space) -> Setting:
    """The trial's setting."""
    return {
        name: trial.suggest_int(name, values.low, values.high, step=values.step)
        if isinstance(values, Whole)
        else trial.suggest_float(name, values.low, values.high, log=values.log)
        for name, values in space.items()
    }


# ---- which trials count ----------------------------------------------------------------------------------------------


def counted(trials: Iterable[optuna.trial.FrozenTrial]) -> list[optuna.trial.FrozenTrial]:
    """Those that are done or under way, failures included; not those whose worker was killed."""
    from optuna.trial import TrialState

    complete = TrialState.COMPLETE  # even if its worker was given up: it was only silent
    return [trial for trial in trials if trial.state == complete or _LEFT_OUT not in trial.user_attrs]


def leave_out_the_dead(study: optuna.Study) -> None:
    """Mark the trials whose workers are gone, so that others can do their settings anew."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not _is_alive(trial):
            _leave_out(study, trial, "its worker was killed", TrialState.FAIL)


def _is_alive(trial: optuna.trial.FrozenTrial) -> bool:
    host, pid = trial.user_attrs.get(_OWNER, (None, None))
    if host == socket.gethostname() and os.name == "posix":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
    return time.time() - max(trial.user_attrs.get(_BEAT, 0.0), begun) < STALE_SECONDS


def _leave_out(study: optuna.Study, trial: Any, why: str, state: Any) -> None:
    with unless_finished():
        study._storage.set_trial_user_attr(trial._trial_id, _LEFT_OUT, why)
        study.tell(trial.number, state=state, skip_if_finished=True)


def unless_finished() -> AbstractContextManager[None]:
    """For what is said of a trial that others may finish at any moment: its worker, or whoever takes that for dead.
    (tell's skip_if_finished looks first and writes then.)"""
    return suppress(RuntimeError)


# ---- a worker --------------------------------------------------------------------------------------------------------


def work(plan: Plan, objective: Objective) -> None:
    """Do trials until enough are done, by whomever: those that others have begun may yet fall to this one."""
    study = open_study(plan)
    while not _is_done(study, plan):
        trial = _claim(study, plan)
        if trial is None:
            time.sleep(LOOK_SECONDS)
            continue
        with _Beating(trial):
            _run(study, trial, plan, objective)


def _is_done(study: optuna.Study, plan: Plan) -> bool:
    return (
        sum(trial.state.is_finished() for trial in counted(study.get_trials(deepcopy=False))) >= plan.trials
    )


def _claim(study: optuna.Study, plan: Plan) -> optuna.Trial | None:
    """A trial of one's own, or None while all are taken. Several may ask at once: the trials' numbers are the line in
    which they stand, and each takes the first setting that is left when all before it have theirs."""
    from optuna.trial import TrialState

    leave_out_the_dead(study)
    if len(counted(study.get_trials(deepcopy=False))) >= plan.trials:
        return None
    trial = study.ask()
    trial.set_user_attr(_OWNER, (socket.gethostname(), os.getpid()))
    while True:
        before = counted(each for each in study.get_trials(deepcopy=False) if each.number < trial.number)
        if len(before) >= plan.trials:
            _leave_out(study, trial, "there were enough", TrialState.PRUNED)
            return None
        taken = {each.user_attrs.get(_SETTING) for each in before}
        if None not in taken:
            trial.set_user_attr(_SETTING, min(set(range(plan.trials)) - taken))
            return trial
        time.sleep(LINE_SECONDS)
        leave_out_the_dead(study)


def _run(study: optuna.Study, trial: optuna.Trial, plan: Plan, objective: Objective) -> None:
    from optuna.trial import TrialState

    try:
        value, notes = objective(suggest(trial, plan.space))
        if not math.isfinite(value):
            raise RunError(f"the trial's value is {value}")
    except Exception as error:  # whatever it is: the study goes on
        with unless_finished():
            trial.set_user_attr(_ERROR, f"{type(error).__name__}: {error}"[:1000])
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        return
    with unless_finished():
        for key, note in notes.items():
            trial.set_user_attr(key, note)
        study.tell(trial, value, skip_if_finished=True)


class _Beating:
    """Says every few seconds that the trial's worker is alive."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial, self.done = trial, threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)

    def _beat(self) -> None:
        while not self.done.wait(BEAT_SECONDS):
            with unless_finished():
                self.trial.set_user_attr(_BEAT, time.time())

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
