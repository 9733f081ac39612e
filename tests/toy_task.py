"""Train the smallest task with everything that resuming must restore: momentum, noise, a carried state, an average.

As a program, `python toy_task.py FOLDER`, it trains in FOLDER/0, FOLDER/1, …: see `kill_and_resume.kill_at_moments`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import torch
from kill_and_resume import kill_at_moments
from torch import Tensor

from rrnn.tasks import checkpoints
from rrnn.tasks.runs import Run
from rrnn.tasks.training import Outcome, Progress, fit

CONFIG = {"task": "toy", "seed": 3, "rate": 0.1, "epochs": 3}
STEPS = 2


class ToyTask:
    """Take noisy steps of gradient descent with momentum towards a target, with a state carried from step to step."""

    metric: tuple[str, Literal["min", "max"]] = ("distance", "min")

    def __init__(self, *, explode_at: int | None = None, stop_at: int | None = None) -> None:
        self.weight, self.speed, self.average, self.carried = (torch.zeros(4) for _ in range(4))
        self.generator = torch.Generator()
        self.rate, self.explode_at, self.stop_at = 0.1, explode_at, stop_at
        self.loss, self.count, self.epoch = torch.zeros(()), 0, 0

    def begin_epoch(self, epoch: int) -> int:
        self.epoch = epoch
        self.generator.manual_seed(1000 * epoch)
        self.carried = torch.zeros(4)
        return STEPS

    def step(self, index: int) -> None:
        error = self.weight - torch.arange(4.0) + torch.randn(4, generator=self.generator)
        self.carried = 0.9 * self.carried + error
        self.speed = 0.5 * self.speed + error + 0.01 * self.carried + 0.001 * index
        self.weight = self.weight - self.rate * self.speed
        self.average = 0.8 * self.average + 0.2 * self.weight
        self.loss = self.loss + (error**2).sum() / (0.0 if self.epoch == self.explode_at else 1.0)
        self.count += 1

    def measure(self) -> dict[str, float]:
        found = {"loss": float(self.loss) / max(self.count, 1), "tokens": float(self.count), "lr": self.rate}
        self.loss, self.count = torch.zeros(()), 0
        return found

    def evaluate(self, split: str) -> dict[str, float]:
        return {"distance": float((self.average - torch.arange(4.0)).norm())}

    def end_epoch(self, epoch: int, dev: dict[str, float]) -> bool:
        self.rate *= 0.9
        return epoch == self.stop_at

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        names = ("weight", "speed", "average", "carried")
        tensors = {name: getattr(self, name) for name in names}
        return {**tensors, "generator": self.generator.get_state()}, {"rate": self.rate}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        for name in ("weight", "speed", "average", "carried"):
            setattr(self, name, tensors[name].clone())
        self.generator.set_state(tensors["generator"])
        self.rate = meta["rate"]

    def weights(self) -> dict[str, Tensor]:
        return {"weight": self.average.clone()}


def train(folder: Path, *, seconds: float | None = 0.0, **options: Any) -> Outcome:
    """Train once, or resume what was begun in `folder`; write a checkpoint every `seconds`, by default each step."""
    epochs = options.pop("epochs", CONFIG["epochs"])
    progress: Progress | None = options.pop("progress", None)
    with Run.create(folder, {**CONFIG, "epochs": epochs}, "cell text", resume=True) as run:
        return fit(
            ToyTask(**options),
            run,
            epochs=epochs,
            checkpoint_seconds=seconds,
            checkpoint_epochs=1,
            progress=progress,
        )


PLACES = [
    (checkpoints.os, "replace"),
    (checkpoints.os, "fsync"),
    (Run, "log"),
    (ToyTask, "step"),
    (ToyTask, "evaluate"),
]

if __name__ == "__main__":
    kill_at_moments(Path(sys.argv[1]), train, PLACES, every=int(sys.argv[2]))
