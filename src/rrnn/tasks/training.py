"""Train a model: the one training loop, alone or in several processes under torchrun.

What is trained is a `Task`. Where it is stored, if at all, is a `Run`. In a `Group` of processes each has its share of
every batch, and the first one writes.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from rrnn.errors import DivergedError, RunError
from rrnn.tasks.runs import Run

Record = dict[str, Any]


# ---- the processes that train one model ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The processes that train one model. In a group of one (the default) every method is the identity."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # number of the GPU that this process uses on its machine
    backend: str = "gloo"

    @property
    def is_first(self) -> bool:
        """Whether this process evaluates and writes."""
        return self.rank == 0

    def broadcast(self, value: dict[str, Any] | None) -> dict[str, Any]:
        """Return the first process's dict of JSON values in all processes. The others pass None."""
        if self.size == 1:
            assert value is not None
            return value
        data = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=self._device)
        length = torch.tensor([len(data)], device=self._device)
        dist.broadcast(length, 0)
        data = data if self.is_first else data.new_empty(int(length))
        dist.broadcast(data, 0)
        return json.loads(bytes(data.tolist()))

    def sum(self, values: list[float]) -> list[float]:
        """Return each number summed over the processes."""
        if self.size == 1:
            return values
        totals = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(totals)
        return totals.tolist()

    @property
    def _device(self) -> str:
        return f"cuda:{self.local_rank}" if self.backend == "nccl" else "cpu"


ALONE = Group()


def is_first_process() -> bool:
    """Return whether this is the first of the processes that torchrun started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def local_processes() -> int:
    """Return how many of the processes that torchrun started share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


@contextmanager
def join_group(device: str = "cpu") -> Iterator[Group]:
    """Join the group of processes that torchrun started, or `ALONE` without torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if backend == "nccl":
        torch.cuda.set_device(local_rank)
    dist.init_process_group(backend)
    try:
        yield Group(dist.get_rank(), size, local_rank, backend)
    finally:
        dist.destroy_process_group()


# ---- the loop --------------------------------------------------------------------------------------------------------


class Task(Protocol):
    """What the training loop trains."""

    @property
    def metric(self) -> tuple[str, Literal["min", "max"]]:
        """The number of evaluate("dev") that decides which epoch is best, and whether it should be small or large."""
        ...

    def begin_epoch(self, epoch: int) -> int:
        """Prepare an epoch and return its number of steps. Random numbers depend only on seed, epoch and rank."""
        ...

    def step(self, index: int) -> None:
        """Make one update. Losses are added up on the device, without waiting for it."""
        ...

    def measure(self) -> dict[str, float]:
        """Return the mean training "loss" since the last call, the number of "tokens" or "examples" it was averaged
        over, and other values to log, such as "lr". This may wait for the device, and covers only this process's share
        of the batches."""
        ...

    def evaluate(self, split: str) -> dict[str, float]:
        """Evaluate the model, with averaged weights if averaging is on, without changing the state of the training."""
        ...

    def end_epoch(self, epoch: int, dev: dict[str, float]) -> bool:
        """Apply schedules, such as the learning rate's. Return True to stop."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return everything that resuming needs, between any two steps (weights, optimiser, averages, carried state,
        random numbers), and a JSON part."""
        ...

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Return the weights as they were evaluated, for the checkpoint "best": complete copies that later steps do not
        change, on whatever stream they were made."""
        ...


class Progress:
    """Is told how a training is going. This base class shows nothing."""

    def begin(self, epochs: int, history: list[Record]) -> None: ...
    def step(self, epoch: int, done: int, steps: int, loss: float, speed: float) -> None: ...
    def epoch(self, record: Record, is_best: bool) -> None: ...
    def note(self, text: str) -> None: ...
    def end(self) -> None: ...


@dataclass
class Best:
    """The epoch with the best dev metric, and the weights with which it was evaluated."""

    epoch: int
    value: float
    weights: dict[str, Tensor]


@dataclass
class Outcome:
    """What the training loop returns."""

    history: list[Record] = field(default_factory=list)
    best: Best | None = None


def fit(
    task: Task,
    run: Run | None = None,
    *,
    epochs: int,
    checkpoint_epochs: int | None = None,
    checkpoint_seconds: float | None = 30.0,
    progress: Progress | None = None,
    group: Group = ALONE,
    threads: Callable[[], int] | None = None,
) -> Outcome:
    """Train up to an epoch (epochs count from 1), or until the task stops. Continue from the run's last checkpoint, if
    it has one.

    Checkpoints are written at the end, after the first epoch, every `checkpoint_epochs` epochs, and whenever
    `checkpoint_seconds` have passed, also within an epoch (in a group of processes only at its end). Without a run,
    nothing is written. In a group every process calls this, and the first one evaluates and writes. `threads` is asked
    before each epoch how many CPU threads torch shall use.
    """
    ledger = _Ledger(task, run, progress or Progress(), checkpoint_seconds)
    try:
        ledger.open(epochs)
        while ledger.epoch < epochs and not ledger.stopped:
            epoch, first, meter = ledger.epoch + 1, ledger.index, ledger.meter
            if threads is not None:
                torch.set_num_threads(threads())
            steps = task.begin_epoch(epoch)
            if first:
                ledger.restore()  # within this epoch, not at its beginning, where begin_epoch put it
            meter.start()
            for index in range(first, steps):
                task.step(index)
                if meter.is_time(checkpoint_seconds):
                    meter.read(task, epoch)
                    ledger.progress.step(epoch, index + 1, steps, meter.loss, meter.speed)
                    if group.size == 1 and ledger.is_due():
                        ledger.write(index + 1)
            meter.read(task, epoch)
            meter.join(group)

            dev = group.broadcast(task.evaluate("dev") if group.is_first else None)
            ledger.enter(epoch, dev)
            ledger.stopped = task.end_epoch(epoch, dev)
            is_last = ledger.stopped or epoch == epochs
            if (
                is_last
                or ledger.is_due(epoch_ended=True)
                or (checkpoint_epochs and epoch % checkpoint_epochs == 0)
            ):
                ledger.write(0)
    finally:
        ledger.progress.end()
    return ledger.outcome


class _Ledger:
    """Keeps the records, the best epoch and the position of a training, and stores them in the run's checkpoints."""

    def __init__(self, task: Task, run: Run | None, progress: Progress, seconds: float | None) -> None:
        self.task, self.run, self.progress, self.seconds = task, run, progress, seconds
        self.outcome = Outcome()
        self.epoch, self.index = 0, 0  # epochs finished, and steps finished in the next one
        self.meter = _Meter()  # loss and speed of that next one
        self.stopped = False
        self._state: tuple[dict[str, Tensor], dict[str, Any]] = ({}, {})
        self._is_written, self._best_is_written = False, True
        self._last_write = time.monotonic()

    def open(self, epochs: int) -> None:
        """Continue from the run's checkpoints, if there are any."""
        if self.run is not None and (last := self.run.load("last")):
            meta = last.meta
            self.epoch, self.index, self.stopped = meta["epoch"], meta["index"], meta["stopped"]
            self.meter, self.outcome.history = _Meter(**meta["meter"]), meta["history"]
            self._state, self._is_written = (last.tensors, meta["task"]), True
            self.restore()
            if last.note:
                self.progress.note(last.note)
            steps = f" and {self.index} steps" if self.index else ""
            over = ", when it had already stopped: there is nothing left to train" * self.stopped
            self.progress.note(f"resumed after epoch {self.epoch}{steps}{over}")
        elif self.run is not None and self.run.records():
            self.progress.note(
                "no checkpoint was written before the training was interrupted: it starts again"
            )
        if self.run is not None and (best := self.run.load("best", until=self.epoch)):
            self.outcome.best = Best(best.meta["epoch"], best.meta["value"], best.tensors)
            if best.note:
                self.progress.note(best.note)
        elif self.epoch:
            self._continue_without_best(epochs)
        if self.run is not None and self.run.writable:
            self.run.rewrite_log(self.outcome.history)
        self.progress.begin(epochs, self.outcome.history)

    def _continue_without_best(self, epochs: int) -> None:
        """Note that the checkpoint `best` is lost, or raise an error if no epoch is left to replace it."""
        assert self.run is not None
        lost = f"the run in {self.run.folder} has lost its checkpoint `best`"
        if self.stopped or self.epoch >= epochs:
            raise RunError(
                f"{lost}, and no epoch is left to replace it: put the file back, or train for more epochs"
            )
        self.progress.note(f"{lost}: the best of the remaining epochs will replace it")

    def restore(self) -> None:
        """Put the task where the last checkpoint was written."""
        self.task.load_state(*self._state)

    def enter(self, epoch: int, dev: dict[str, float]) -> None:
        """Record a finished epoch."""
        name, aim = self.task.metric
        value, best = dev[name], self.outcome.best
        _check_finite(value, f"the dev {name}", epoch, self.meter)
        is_best = best is None or (value < best.value if aim == "min" else value > best.value)
        if is_best:
            self.outcome.best, self._best_is_written = Best(epoch, value, self.task.weights()), False
        record = {"epoch": epoch, **self.meter.record(), **{f"dev_{key}": dev[key] for key in dev}}
        self.outcome.history.append(record)
        if self.run is not None and self.run.writable:
            self.run.log(record)
        self.progress.epoch(record, is_best)
        self.epoch, self.index, self.meter = epoch, 0, _Meter()
        self._state = ({}, {})

    def is_due(self, *, epoch_ended: bool = False) -> bool:
        """Return whether a checkpoint is due: by the clock, or after the first epoch, for short trainings."""
        if self.seconds is None:
            return False
        first = epoch_ended and not self._is_written
        return first or time.monotonic() - self._last_write >= self.seconds

    def write(self, index: int) -> None:
        """Write `best`, then `last`: if the process dies in between, the epoch of `best` is trained again."""
        if self.run is not None and self.run.writable:
            best = self.outcome.best
            if best is not None and not self._best_is_written:
                self.run.save("best", best.weights, {"epoch": best.epoch, "value": best.value})
                self._best_is_written = True
            tensors, state = self.task.state()
            meta = {"epoch": self.epoch, "index": index, "stopped": self.stopped, "task": state}
            meta |= {"history": self.outcome.history, "meter": asdict(self.meter)}
            self.run.save("last", tensors, meta)
        self._is_written, self._last_write = True, time.monotonic()


@dataclass
class _Meter:
    """Measures loss and speed of one epoch, which may be interrupted and resumed."""

    loss_sum: float = 0.0
    count: float = 0.0
    unit: str = "tokens"
    seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Start the clock."""
        self._last = time.monotonic()

    def is_time(self, checkpoint_seconds: float | None) -> bool:
        """Return whether to read the losses, which may wait for the device: once a second, or for a checkpoint."""
        return time.monotonic() - self._last >= min(
            1.0, 1.0 if checkpoint_seconds is None else checkpoint_seconds
        )

    def read(self, task: Task, epoch: int) -> None:
        """Add what the task measured since the last call."""
        measured = task.measure()
        now = time.monotonic()
        self.seconds, self._last = self.seconds + now - self._last, now
        self.unit = "examples" if "examples" in measured else "tokens"
        loss, count = measured.pop("loss"), measured.pop(self.unit)
        self.extra |= measured
        _check_finite(loss, "the training loss", epoch, self)
        self.loss_sum, self.count = self.loss_sum + loss * count, self.count + count

    def join(self, group: Group) -> None:
        """Add up the losses of all processes."""
        self.loss_sum, self.count = group.sum([self.loss_sum, self.count])

    @property
    def loss(self) -> float:
        return self.loss_sum / max(self.count, 1)

    @property
    def speed(self) -> float:
        return self.count / max(self.seconds, 1e-9)

    def record(self) -> Record:
        speed = {f"{self.unit}_per_s": round(self.speed, 1)}
        return {"train_loss": self.loss, **self.extra, "seconds": round(self.seconds, 3), **speed}


def _check_finite(value: float, what: str, epoch: int, meter: _Meter) -> None:
    if not math.isfinite(value):
        rate = f" (it is {meter.extra['lr']:g})" if "lr" in meter.extra else ""
        raise DivergedError(
            f"{what} became {value} in epoch {epoch}, so the training stops; its checkpoints are older. Try a "
            f"smaller learning rate{rate}, a smaller clip, precision fp32, or another seed. Also look for extreme "
            "numbers in word vectors, or a cell whose state can grow without bound."
        )
