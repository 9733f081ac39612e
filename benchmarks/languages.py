"""Which formal languages does one layer learn? Trained on strings of lengths 1 to 40, tested on lengths up to 500.

    python benchmarks/languages.py --json docs/results/languages-cpu.json --workers 13
    python benchmarks/languages.py --json FILE --tasks parity --models ring6 B-signed --steps 500 --settings 1 --seeds 1

| task | a string's label |
|---|---|
| parity | whether the number of ones is odd |
| modulo3 | the sum of its digits 0, 1, 2, modulo 3 |
| S3 | the product of its permutations of three points, one of six |
| recall | its first symbol, one of four |
| anbn | whether it is aⁿbⁿ |

Half of the strings of anbn are aⁿbⁿ. The others are nearly so: aⁿ⁺ᵏbⁿ⁻ᵏ with 1 ≤ |k| ≤ 2, or aⁿbⁿ with one symbol
changed, or with the two symbols in the middle swapped.

A model is one layer of 32 units over one-hot symbols and a linear read-out of its last output. It is trained with Adam
on fresh strings, all lengths alike. For each task and model, `--settings` settings are drawn, the same ones for all (a
learning rate, and a factor for the initial weights of the layer), and trained with one seed; the best by accuracy on
lengths 1 to 40 is trained with `--seeds` further seeds, and these are tested at each length. An accuracy a is
chance-corrected: (a − chance) / (1 − chance), so that 0 is guessing. Nothing is chosen by the tested lengths.

Each training is one row of the result file. A run that was interrupted goes on where it stopped. Tested lengths are
finite: they neither prove nor refute what a model can do at all lengths (`rrnn power` says what is proved).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import mean

import numpy as np
import torch
import torch.nn.functional as F
from results import Row, print_table
from torch import Tensor, nn
from trainings import fill, rows_of

from rrnn import zoo

Strings = tuple[np.ndarray, np.ndarray]
"""Symbols (length, count) and labels (count)."""
SHORT = 40
LENGTHS = (42, 50, 60, 80, 100, 150, 200, 300, 400, 500)
MODELS = ("B", "F", "B-signed", "F-signed", "ring6", "S3", "LSTM", "Mamba")
RATES, SCALES = (1e-3, 5e-2), (1.0, 4.0)
"""The range from which learning rates are drawn, log-uniformly, and the factors of initial weights, in turn."""
BATCH, HIDDEN, TESTED = 128, 32, 500


# ---- tasks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A language: how many symbols and labels it has, and how to draw strings of one length."""

    symbols: int
    classes: int
    draw: Callable[[np.random.Generator, int, int], Strings]
    even: bool = False
    """Whether all strings have an even length."""

    @property
    def chance(self) -> float:
        return 1 / self.classes

    def lengths(self, longest: int) -> list[int]:
        """Return the lengths of strings up to `longest`."""
        return list(range(2 if self.even else 1, longest + 1, 2 if self.even else 1))


def parity(rng: np.random.Generator, length: int, count: int) -> Strings:
    x = rng.integers(0, 2, (length, count))
    return x, x.sum(0) % 2


def modulo3(rng: np.random.Generator, length: int, count: int) -> Strings:
    x = rng.integers(0, 3, (length, count))
    return x, x.sum(0) % 3


PERMUTATIONS = list(permutations(range(3)))
PRODUCT = np.array(
    [[PERMUTATIONS.index((q[p[0]], q[p[1]], q[p[2]])) for q in PERMUTATIONS] for p in PERMUTATIONS]
)
"""`PRODUCT[p, q]`: the number of the permutation "first p, then q"."""


def group_word(rng: np.random.Generator, length: int, count: int) -> Strings:
    x = rng.integers(0, 6, (length, count))
    y = x[0]
    for symbols in x[1:]:
        y = PRODUCT[y, symbols]
    return x, y


def recall(rng: np.random.Generator, length: int, count: int) -> Strings:
    x = rng.integers(0, 4, (length, count))
    return x, x[0]


def anbn(rng: np.random.Generator, length: int, count: int) -> Strings:
    """Draw strings over a = 0 and b = 1 of an even length."""
    half = length // 2
    y = rng.integers(0, 2, count)
    border = np.full(count, half)
    kind = np.where(y == 1, -1, rng.integers(0, 3, count))
    moved = rng.choice([-1, 1], count) * rng.integers(1, min(2, half) + 1, count)
    border = border + np.where(kind == 0, moved, 0)
    x = (np.arange(length)[:, None] >= border).astype(np.int64)
    columns = np.arange(count)
    flipped = columns[kind == 1]
    places = rng.integers(0, length, len(flipped))
    x[places, flipped] = 1 - x[places, flipped]
    swapped = columns[kind == 2]
    x[half - 1, swapped], x[half, swapped] = 1, 0
    return x, y


TASKS = {
    "parity": Task(2, 2, parity),
    "modulo3": Task(3, 3, modulo3),
    "S3": Task(6, 6, group_word),
    "recall": Task(4, 4, recall),
    "anbn": Task(2, 2, anbn, even=True),
}


# ---- one training ----------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """One layer over one-hot symbols, and a linear read-out of its last output."""

    def __init__(self, model: str, task: Task) -> None:
        super().__init__()
        self.symbols = task.symbols
        self.layer = zoo.layer(model, task.symbols, HIDDEN)
        self.readout = nn.Linear(getattr(self.layer, "output_size", HIDDEN), task.classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, classes) of symbols (T, B)."""
        out, _ = self.layer(F.one_hot(x, self.symbols).to(self.readout.weight.dtype))
        return self.readout(out[-1])


@dataclass(frozen=True)
class Job:
    """One training: a row of the result file."""

    task: str
    model: str
    stage: str
    """search: one of the settings; final: the best one, tested at all lengths."""
    number: int
    """Which setting, or which seed."""
    lr: float
    scale: float
    """Factor of the layer's initial weights."""
    steps: int
    device: str

    @property
    def key(self) -> Row:
        return {"task": self.task, "model": self.model, "stage": self.stage, "number": self.number}


def train(job: Job) -> Row:
    """Train and test a model; the seed is the number of the stage."""
    began, task = time.perf_counter(), TASKS[job.task]
    seed = job.number + (1000 if job.stage == "final" else 0)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, *map(ord, job.task)])
    model = Classifier(job.model, task).to(job.device)
    with torch.no_grad():
        for parameter in model.layer.parameters():
            if parameter.dim() > 1:
                parameter.mul_(job.scale)
    optimiser = torch.optim.Adam(model.parameters(), job.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, job.steps)
    short = task.lengths(SHORT)
    for _ in range(job.steps):
        x, y = (torch.from_numpy(a).to(job.device) for a in task.draw(rng, int(rng.choice(short)), BATCH))
        loss = F.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    held_out = np.random.default_rng([7, seed])
    within = mean(accuracy(model, task, held_out, n, 50, job.device) for n in short)
    row: Row = job.key | {"lr": job.lr, "scale": job.scale, "steps": job.steps}
    row["within"] = corrected(within, task)
    if job.stage == "final":
        lengths = {n: accuracy(model, task, held_out, n, TESTED, job.device) for n in LENGTHS}
        row["beyond"] = {str(n): corrected(a, task) for n, a in lengths.items()}
    return row | {"seconds": round(time.perf_counter() - began, 2)}


@torch.no_grad()
def accuracy(
    model: nn.Module, task: Task, rng: np.random.Generator, length: int, count: int, device: str
) -> float:
    """Return the share of right answers on strings of one length."""
    x, y = (torch.from_numpy(a).to(device) for a in task.draw(rng, length, count))
    return float((model(x).argmax(-1) == y).float().mean())


def corrected(accuracy: float, task: Task) -> float:
    """Return an accuracy on a scale on which guessing is 0 and no mistake is 1."""
    return round((accuracy - task.chance) / (1 - task.chance), 4)


# ---- all trainings ---------------------------------------------------------------------------------------------------


def setting(number: int) -> tuple[float, float]:
    """Return a setting of the search, (learning rate, factor); the first learning rate is in the middle."""
    share = 0.5 if number == 0 else float(np.random.default_rng(number).random())
    low, high = (math.log(rate) for rate in RATES)
    return round(math.exp(low + share * (high - low)), 6), SCALES[number % len(SCALES)]


def best_setting(rows: list[Row], task: str, model: str) -> tuple[float, float]:
    """Return the setting of the search's best training at lengths 1 to 40; of equals, the first."""
    own = [r for r in rows if (r["task"], r["model"], r["stage"]) == (task, model, "search")]
    best = max(sorted(own, key=lambda r: r["number"]), key=lambda r: r["within"])
    return best["lr"], best["scale"]


def run(options: argparse.Namespace) -> list[Row]:
    """Do all trainings that the result file lacks: first the search, then the final ones."""
    rows = rows_of(options.json)
    pairs = [(task, model) for task in options.tasks for model in options.models]
    given = {name: getattr(options, name) for name in ("steps", "settings", "seeds", "device", "workers")}
    fixed = {"batch": BATCH, "hidden": HIDDEN, "rates": RATES, "scales": SCALES}
    settings = given | fixed | {"short": SHORT, "tested": TESTED}

    def job(task: str, model: str, stage: str, number: int, chosen: tuple[float, float]) -> Job:
        return Job(task, model, stage, number, *chosen, options.steps, options.device)

    search = [job(*pair, "search", n, setting(n)) for pair in pairs for n in range(options.settings)]
    fill(options.json, rows, search, train, options.workers, settings)
    final = [
        job(*pair, "final", n, best_setting(rows, *pair)) for pair in pairs for n in range(options.seeds)
    ]
    fill(options.json, rows, final, train, options.workers, settings)
    return rows


def table(rows: list[Row]) -> list[list[str]]:
    """Return mean and best of the seeds, in per cent of the way from chance to no mistake, with a head."""
    out = [["task", "model", "lr", "scale", "1-40", *(str(n) for n in LENGTHS)]]
    pairs = dict.fromkeys((row["task"], row["model"]) for row in rows if row["stage"] == "final")
    for task, model in pairs:
        own = [r for r in rows if (r["task"], r["model"], r["stage"]) == (task, model, "final")]
        columns = [[row["within"] for row in own]]
        columns += [[row["beyond"][str(n)] for row in own] for n in LENGTHS]
        figures = [f"{100 * mean(values):.0f} / {100 * max(values):.0f}" for values in columns]
        out.append([task, model, f"{own[0]['lr']:.2g}", f"{own[0]['scale']:g}", *figures])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="models of the zoo")
    parser.add_argument("--steps", type=int, default=3000, help="training steps of 128 strings")
    parser.add_argument("--settings", type=int, default=6, help="settings that are tried")
    parser.add_argument("--seeds", type=int, default=5, help="trainings with the best one")
    parser.add_argument("--workers", type=int, default=1, help="processes that train at the same time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, required=True, help="the result file")
    options = parser.parse_args()
    for model in options.models:
        zoo.get_model(model)  # raises for an unknown name
    rows = run(options)
    print("mean / best of the seeds, in per cent of the way from chance to no mistake")
    print_table(table(rows))


if __name__ == "__main__":
    main()
