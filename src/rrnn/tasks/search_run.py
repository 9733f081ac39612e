"""A whole search from one place: workers are started and watched until the study has its trials."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rrnn.errors import RunError
from rrnn.tasks.search import (
    LOOK_SECONDS,
    Objective,
    Plan,
    Setting,
    counted,
    leave_out_the_dead,
    open_study,
    work,
)
from rrnn.tasks.workers import begin_process

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Best:
    """The best trial so far."""

    number: int
    value: float
    setting: Setting
    notes: dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """How far a study is."""

    done: int
    failed: int
    running: int
    wanted: int
    best: Best | None
    first_error: str | None

    @property
    def is_complete(self) -> bool:
        return self.done + self.failed >= self.wanted


def standing(study: optuna.Study, plan: Plan) -> Standing:
    """As the study's storage has it now."""
    from optuna.trial import TrialState

    trials = counted(study.get_trials(deepcopy=False))
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    found = max(complete, key=lambda trial: (trial.value, -trial.number), default=None)
    return Standing(
        done=len(complete),
        failed=len(failed),
        running=len(trials) - len(complete) - len(failed),
        wanted=plan.trials,
        best=found and Best(found.number, found.value or 0.0, dict(found.params), dict(found.user_attrs)),
        first_error=failed[0].user_attrs.get("error") if failed else None,
    )


def search(
    plan: Plan,
    objective: Objective,
    *,
    workers: int = 1,
    threads: bool = False,
    watch: Callable[[Standing], None] = lambda _: None,
) -> Best:
    """Do what is left of the study, wait for what others do of it, and return its best trial.

    Workers are processes (`objective` is pickled; each uses one CPU thread), or, with `threads`, threads of this one:
    on a GPU they share it better. One worker alone is always a thread.
    """
    study = open_study(plan)
    team = [_Worker(plan, objective, threads or workers == 1) for _ in range(workers)]
    try:
        while True:
            # Looking also buries a dead child, so that its pid is gone.
            alive = [worker.is_alive() for worker in team]
            leave_out_the_dead(study)
            now = standing(study, plan)
            watch(now)
            if now.is_complete:
                break
            if not now.running and not any(alive):
                raise RunError(_who_died(team, now))
            time.sleep(LOOK_SECONDS)
    except BaseException:
        for worker in team:
            worker.kill()
        raise
    if now.best is None:
        raise RunError(f"all {now.failed} trials failed; the first: {now.first_error}")
    return now.best


class _Worker:
    """A thread or a process that does trials, and what stopped it, if not the end of the study."""

    def __init__(self, plan: Plan, objective: Objective, thread: bool) -> None:
        self.error: BaseException | None = None
        if thread:
            self.runner: Any = threading.Thread(target=self._work, args=(plan, objective), daemon=True)
        else:  # spawned: a forked child of a process that used OpenMP or CUDA is not to be trusted with either
            spawn = multiprocessing.get_context("spawn")
            self.runner = spawn.Process(target=_work_alone, args=(plan, objective), daemon=True)
        self.runner.start()

    def _work(self, plan: Plan, objective: Objective) -> None:
        try:
            work(plan, objective)
        except BaseException as error:  # shown by who watches
            self.error = error

    def is_alive(self) -> bool:
        return self.runner.is_alive()

    def kill(self) -> None:
        """A daemon thread ends with this process; whoever goes on with the study sees that a killed one is gone."""
        if not isinstance(self.runner, threading.Thread):
            self.runner.terminate()
            self.runner.join()


def _work_alone(plan: Plan, objective: Objective) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides
    begin_process()
    work(plan, objective)


def _who_died(team: list[_Worker], now: Standing) -> str:
    errors = [f"{type(worker.error).__name__}: {worker.error}" for worker in team if worker.error is not None]
    why = errors[0] if errors else "they were killed, or failed to start (see above)"
    left = now.wanted - now.done - now.failed
    return f"all workers are gone, and {left} of {now.wanted} trials are still to do: {why}. Start again to go on."
