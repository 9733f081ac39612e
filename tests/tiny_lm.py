"""Train a language model in a second, with every option on whose state resuming must restore.

As a program, `python tiny_lm.py FOLDER`, it trains in FOLDER/0, FOLDER/N, …: see `kill_and_resume.kill_at_moments`.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from kill_and_resume import kill_at_moments

from rrnn.tasks import checkpoints, experiment
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.experiment import Result, train
from rrnn.tasks.lm.trainer import LanguageTask
from rrnn.tasks.runs import Run
from rrnn.tasks.training import Progress


def write_corpus(path: Path, lines: int = 60) -> Path:
    """Write sentences of a grammar that a model can learn: subjects, verbs that agree, objects."""
    draw = random.Random(5)
    people, things = ["anna", "ben", "carl"], ["tea", "milk", "bread", "rice"]
    text = [
        f"{draw.choice(people)} {'and ' + draw.choice(people) + ' like' if n % 2 else 'likes'} {draw.choice(things)}"
        for n in range(lines)
    ]
    path.write_text("\n".join(text) + "\n")
    return path


def tiny_config(data: Path, **changes: Any) -> LMConfig:
    """Return a configuration with dropout, averages, shifted windows, a falling rate and a checkpoint at every step."""
    values: dict[str, Any] = {
        "data": str(data),
        "hidden_size": 8,
        "batch_size": 4,
        "bptt": 7,
        "epochs": 3,
        "shift": True,
    }
    values |= {"embedding_dropout": 0.1, "output_dropout": 0.1, "lr_decay": 0.5, "lr_decay_from": 2}
    values |= {"emas": (0.9,), "asgd_from": 2, "checkpoint_seconds": 0.0, "device": "cpu"}
    return LMConfig(**{**values, **changes})


def train_tiny(folder: Path, data: Path, **changes: Any) -> Result:
    """Train once, or resume what was begun in `folder`."""
    return train(tiny_config(data, **changes), folder, resume=True, progress=Progress())


PLACES = [(checkpoints.os, "replace"), (checkpoints.os, "fsync"), (Run, "log")]
PLACES += [(LanguageTask, "step"), (LanguageTask, "evaluate")]

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    # What takes long to import comes once, before the forks: matplotlib never, what torch's gradients want now.
    experiment.plot_losses = lambda records, folder: ""
    import_module("torch.fx.experimental.symbolic_shapes")

    data = write_corpus(folder.with_suffix(".txt"))
    kill_at_moments(folder, lambda place: train_tiny(place, data), PLACES, every=int(sys.argv[2]))
