"""Search for hyper-parameters with Optuna: any number of workers, on one machine or many, share one study.

The study lies in a journal file (one machine) or in a database (many machines). Each setting is a trial that waits in
the study until a worker takes it. A trial that raises an error is recorded as failed and counts. A trial whose worker
died is recorded as failed, does not count, and its setting is enqueued again.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rrnn.errors import RunError
from rrnn.tasks.search_storage import is_abandoned, is_database, open_storage, show_alive
from rrnn.tasks.workers import begin_process

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

LOOK_SECONDS = 0.5
_SETTING, _ERROR, _SEEN, _ABOUT = (
    "setting",
    "error",
    "seen",
    "about",
)  # attributes of trials, and of the study


# ---- ranges and settings ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Real:
    """A range of real numbers, drawn uniformly, or log-uniformly with `log`."""

    low: float
    high: float
    log: bool = False

    def at(self, share: float) -> float:
        """Return the number at a share (0 to 1) of the range."""
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)


@dataclass(frozen=True)
class Whole:
    """A range of whole numbers in steps, both ends included."""

    low: int
    high: int
    step: int = 1

    def at(self, share: float) -> int:
        """Return the number at a share (0 to 1) of the range."""
        count = (self.high - self.low) // self.step + 1
        return self.low + self.step * min(int(share * count), count - 1)


Range = Real | Whole
Space = Mapping[str, Range]
Setting = dict[str, float | int]
Objective = Callable[[Setting], tuple[float, dict[str, Any]]]
"""Takes a setting; returns the value to maximise, and notes to record with the trial."""


def draw_setting(space: Space, seed: int, number: int) -> Setting:
    """Draw setting `number` of a random search. A value depends on the seed, the number and its name alone."""
    return {
        name: values.at(np.random.default_rng([seed, number, zlib.crc32(name.encode())]).random())
        for name, values in space.items()
    }


# ---- the study -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Describe a study: where it lies, what it draws from, and how many settings it tries."""

    storage: str = field(repr=False)  # may contain a password
    """A journal file, or the URL of a database: postgresql://user@host/name, or any other that Optuna supports."""
    name: str
    space: Space
    trials: int = 20
    seed: int = 0
    sampler: Literal["random", "tpe"] = "random"
    about: Mapping[str, Any] | None = None
    """What all trials share. A study can only be continued with the same values."""
    heartbeat_seconds: int = 10
    """How often a worker tells the database that it is alive."""
    grace_seconds: int = 60
    """How long after its last heartbeat a worker is taken for dead."""


@contextmanager
def open_study(plan: Plan) -> Iterator[optuna.Study]:
    """Create the study or open it, and enqueue its settings. Errors of its storage are raised as RunError."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise RunError("a search needs Optuna: pip install 'rrnn[tasks]'") from None
    # Failed trials are reported by `Standing`; heartbeats and retries are experimental in Optuna.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    if plan.sampler == "tpe":
        # Workers with the same seed would draw the same settings.
        seed = hash((plan.seed, os.getpid(), threading.get_ident())) % 2**32
        sampler: Any = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    else:
        sampler = optuna.samplers.RandomSampler(plan.seed)  # not asked: enqueued trials have all their values
    with open_storage(plan.storage, plan.heartbeat_seconds, plan.grace_seconds) as (storage, lock):
        with lock:  # searches that start at the same moment enqueue each setting once
            study = optuna.create_study(
                storage=storage,
                study_name=plan.name,
                sampler=sampler,
                direction="maximize",
                load_if_exists=True,
            )
            _check_same_study(study, plan)
            enqueue_missing(study, plan)
        yield study


def _check_same_study(study: optuna.Study, plan: Plan) -> None:
    draws = {"search_seed": plan.seed, "sampler": plan.sampler}
    now = {**(plan.about or {}), **draws}
    if _ABOUT not in study.user_attrs:
        study.set_user_attr(_ABOUT, now)
    known = {**draws, **study.user_attrs[_ABOUT]}  # version 0.1 did not record how a study draws its settings
    keys = sorted(key for key in {**known, **now} if known.get(key) != now.get(key))
    if keys:
        changes = "\n".join(f"  {key}: was {known.get(key)!r}, now {now.get(key)!r}" for key in keys)
        raise RunError(
            f"the study {plan.name!r} was begun with another configuration:\n{changes}\n"
            "Continue it with the values it was begun with, or begin a new study under another name or elsewhere."
        )


def trials_by_setting(study: optuna.Study) -> dict[int, FrozenTrial]:
    """Return, for each setting, the first of its trials that waits, runs, is complete or raised an error.

    A trial that failed without an error is left out: its worker died. A setting that was enqueued twice has its first
    trial in the answer; `work` prunes the others. (This may happen in databases without a lock, and if a worker looks
    for missing settings just when another one fails a trial and enqueues its setting again.)
    """
    from optuna.trial import TrialState

    found: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        is_lost = trial.state == TrialState.FAIL and _ERROR not in trial.user_attrs
        if _SETTING in trial.user_attrs and trial.state != TrialState.PRUNED and not is_lost:
            found.setdefault(trial.user_attrs[_SETTING], trial)
    return found


def enqueue_missing(study: optuna.Study, plan: Plan) -> None:
    """Enqueue a trial for each setting of the plan that has none. (TPE chooses the values when the trial starts.)"""
    known = trials_by_setting(study)
    for number in range(plan.trials):
        if number not in known:
            setting = draw_setting(plan.space, plan.seed, number) if plan.sampler == "random" else {}
            study.enqueue_trial(setting, user_attrs={_SETTING: number})


def retry_abandoned(study: optuna.Study, plan: Plan) -> None:
    """Fail the running trials whose workers have died, and enqueue their settings again."""
    import optuna
    from optuna.trial import TrialState

    storage: Any = study._storage
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        if is_database(plan.storage):
            # Optuna waits forever for a trial without any heartbeat, and its worker may be killed before the first.
            if not trial.params and _SEEN not in trial.user_attrs:
                with suppress(RuntimeError):  # the trial is finished
                    storage.record_heartbeat(trial._trial_id)
                    storage.set_trial_user_attr(trial._trial_id, _SEEN, True)
        elif is_abandoned(plan.storage, trial):
            with suppress(ValueError, RuntimeError):  # its worker, or another one, was faster
                study.tell(trial.number, state=TrialState.FAIL)
                optuna.storages.RetryHeartbeatStaleTrialCallback()(study, trial)
    optuna.storages.fail_stale_trials(study)  # those of a database, whose callback enqueues them again


# ---- a worker --------------------------------------------------------------------------------------------------------


def work(plan: Plan, objective: Objective) -> None:
    """Run trials until all settings of the plan are finished, including those that other workers leave behind."""
    from optuna.trial import TrialState

    with open_study(plan) as study:
        while not standing(study, plan).is_complete:
            retry_abandoned(study, plan)
            enqueue_missing(study, plan)
            if study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                _run_next_trial(study, plan, objective)
            else:
                time.sleep(LOOK_SECONDS)


def _run_next_trial(study: optuna.Study, plan: Plan, objective: Objective) -> None:
    from optuna.exceptions import TrialPruned, UpdateFinishedTrialError

    running: optuna.Trial | None = None

    def run(trial: optuna.Trial) -> float:
        nonlocal running
        running = trial
        first = trials_by_setting(study).get(trial.user_attrs.get(_SETTING, -1))
        if first is None or first.number != trial.number:
            raise TrialPruned  # the queue was empty after all, or the setting was enqueued twice
        held.enter_context(show_alive(plan.storage, trial))
        setting = _suggest(trial, plan.space)
        try:
            value, notes = objective(setting)
            if not math.isfinite(value):
                raise RunError(f"the trial's value is {value}")
        except Exception as error:  # whatever it is, the study goes on
            trial.set_user_attr(_ERROR, f"{type(error).__name__}: {error}"[:1000])
            raise
        for key, note in notes.items():
            trial.set_user_attr(key, note)
        return value

    with ExitStack() as held:  # until the trial's result is stored
        try:
            study.optimize(run, n_trials=1, catch=(Exception,))
        except (ValueError, UpdateFinishedTrialError):
            # Another worker took this one for dead and finished its trial, which is enqueued again.
            if running is None or not study.get_trials(deepcopy=False)[running.number].state.is_finished():
                raise


def _suggest(trial: optuna.Trial, space: Space) -> Setting:
    return {
        name: trial.suggest_int(name, values.low, values.high, step=values.step)
        if isinstance(values, Whole)
        else trial.suggest_float(name, values.low, values.high, log=values.log)
        for name, values in space.items()
    }


# ---- a search --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How many of a plan's settings are complete, failed and running, and the best trial of the study."""

    done: int
    failed: int
    running: int
    wanted: int
    best: FrozenTrial | None
    first_error: str | None

    @property
    def is_complete(self) -> bool:
        return self.done + self.failed >= self.wanted


def standing(study: optuna.Study, plan: Plan) -> Standing:
    """Read from the storage how far the study is."""
    from optuna.trial import TrialState

    trials = trials_by_setting(study)
    complete = [trial for trial in trials.values() if trial.state == TrialState.COMPLETE]
    best = max(complete, key=lambda trial: (trial.value, -trial.number), default=None)
    wanted = [trial for number, trial in trials.items() if number < plan.trials]
    failed = [trial for trial in wanted if trial.state == TrialState.FAIL]
    return Standing(
        done=sum(trial.state == TrialState.COMPLETE for trial in wanted),
        failed=len(failed),
        running=sum(trial.state == TrialState.RUNNING for trial in wanted),
        wanted=plan.trials,
        best=best,
        first_error=failed[0].user_attrs[_ERROR] if failed else None,
    )


def search(
    plan: Plan,
    objective: Objective,
    *,
    workers: int = 1,
    threads: bool = False,
    watch: Callable[[Standing], None] = lambda _: None,
) -> FrozenTrial:
    """Run what is left of the study, wait for trials that run elsewhere, and return the best trial.

    Workers are processes (`objective` is pickled, and each uses one CPU thread) or, with `threads`, threads of this
    process, which share a GPU better. A single worker is always a thread. `watch` is called with the study's standing
    about twice a second.
    """
    errors: list[BaseException] = []
    with open_study(plan) as study:
        team = [_start_worker(plan, objective, threads or workers == 1, errors) for _ in range(workers)]
        try:
            while True:
                is_alive = any([worker.is_alive() for worker in team])
                retry_abandoned(study, plan)
                now = standing(study, plan)
                watch(now)
                if now.is_complete:
                    break
                if not now.running and not is_alive:
                    raise RunError(_why_stopped(now, errors))
                time.sleep(LOOK_SECONDS)
        except BaseException:
            for worker in team:
                if not isinstance(worker, threading.Thread):  # a daemon thread ends with this process
                    worker.terminate()
                    worker.join()
            raise
        for worker in team:
            worker.join(2 * LOOK_SECONDS)
    if now.best is None:
        raise RunError(f"all {now.failed} trials failed; the first: {now.first_error}")
    return now.best


def _why_stopped(now: Standing, errors: list[BaseException]) -> str:
    why = f"{type(errors[0]).__name__}: {errors[0]}" if errors else "they were killed or failed (see above)"
    left = now.wanted - now.done - now.failed
    return f"all workers stopped, and {left} of {now.wanted} trials are not done: {why}. Search again to continue"


def _start_worker(plan: Plan, objective: Objective, thread: bool, errors: list[BaseException]) -> Any:
    if thread:
        worker: Any = threading.Thread(target=_work_in_thread, args=(plan, objective, errors), daemon=True)
    else:  # spawned: a process that used OpenMP or CUDA must not be forked
        spawn = multiprocessing.get_context("spawn")
        worker = spawn.Process(target=_work_in_process, args=(plan, objective), daemon=True)
    worker.start()
    return worker


def _work_in_thread(plan: Plan, objective: Objective, errors: list[BaseException]) -> None:
    try:
        work(plan, objective)
    except BaseException as error:  # raised by the thread that waits
        errors.append(error)


def _work_in_process(plan: Plan, objective: Objective) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent terminates its workers
    begin_process()
    work(plan, objective)
