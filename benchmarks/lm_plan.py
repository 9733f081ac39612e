"""Which language models are trained for docs/reproduce.md, with which settings, in which order.

A part of the plan is a list of trainings; `planned` joins parts, all seeds 0 of a part before its other seeds. Later
parts may read the results of earlier ones, as a choice by the development set does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper_lm import ROWS

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """One training: a row of the paper's table, what differs from the recipe, and where its evidence is kept."""

    row: str
    label: str
    seed: int
    settings: Settings
    folder: str = ""
    """Below the folder of all language models; "" for rows of the table."""
    test: bool = True
    """Whether the test set is read; not where settings are compared."""
    epochs: int | None = None
    """How many are expected, if it is known that the training stops early."""

    @property
    def place(self) -> str:
        return f"{self.folder}/{self.name}" if self.folder else self.name

    @property
    def name(self) -> str:
        return f"{self.row}+{self.label}-seed-{self.seed}"

    @property
    def seconds(self) -> float:
        """How long it takes on an H200 that does nothing else, from the trainings that were measured."""
        settings = self.settings
        if self.row.startswith("lstm"):
            epoch, evaluation = 1.7, 0.1
        else:
            epoch, evaluation = (0.25, 0.045) if "10m" in self.row else (0.5, 0.045)
        weights = 1 + len(settings.get("emas", ()))
        epochs = self.epochs or settings.get("epochs", 300)
        return 20 + epochs * (epoch + evaluation * weights)


# ---- the paper's recipe and nothing else -----------------------------------------------------------------------------

LITERAL: Settings = {"precision": "bf16", "scale_weight_decay": False}
GAINS = {"10m": 4, "24m": 6}
"""Of C's matrices at the start, without which it does not train."""


def literal(_: Path) -> list[Training]:
    """The recipe of Lei et al. (2017) at the paper's sizes and learning rates: no averages of weights, no shifted
    stream, a constant weight decay. Two models need a larger start to train at all: C its matrices, B m+ with the gate
    of the paper's text an open output gate."""

    def row(name: str, size: str, seed: int) -> Training:
        label, own = "literal", dict[str, Any]()
        if name == "C":
            own["rnn_gain"] = GAINS[size]
        elif name == "B-max-plus":
            own["output_bias"] = 4
        elif name == "B-max-plus-scaled":
            label, name, own["cell"] = "literal-scaled", "B-max-plus", name
        return Training(f"{name}-{size}", label, seed, {**LITERAL, **own})

    models = ("F", "B", "C", "B-max-plus-scaled")
    return [
        row(name, size, seed)
        for seed in (0, 1, 2)
        for names in (models, ("B-max-plus",))
        for size in (("24m", "10m") if seed == 0 else ("10m", "24m"))
        for name in names
    ]


# ---- what docs/reproduce.md calls "averaged" -------------------------------------------------------------------------

AVERAGED: Settings = {
    "precision": "bf16",
    "emas": (0.9995, 0.9999, 0.99997),
    "weight_decay": 4e-5,
    "kept_units": 250,
    "between_dropout": 0,
    "shift": True,
    "lr_decay_from": 1000,
}
OWN: Mapping[str, Settings] = {
    "F-10m": {},
    "F-24m": {"lr": 1, "kept_units": 280, "between_dropout": 0.1, "average_every": 5},
    "B-24m": {"kept_units": 300, "between_dropout": 0.1, "average_every": 5},
    "C-24m": {"rnn_gain": 6, "between_dropout": 0.1, "average_every": 5},
    "lstm-24m": {"dev_streams": 16, "stop_after": 30, "between_dropout": 0.1, "average_every": 5},
    "B-10m": {"kept_units": 300},
    "C-10m": {"rnn_gain": 4},
    "lstm-24m-2": {"dev_streams": 16, "stop_after": 30, "average_every": 5},
    "B-max-plus-10m": {"kept_units": 300, "output_bias": 4, "lr": 0.5, "average_every": 5},
}
"""C needs a larger start, max-plus open gates at first, B less dropout, F at 24M a higher rate; all but max-plus some
dropout between three layers. For an LSTM a dev set is slow to read as one stream."""
SCALED: Settings = {"cell": "B-max-plus-scaled", "kept_units": 300, "lr": 0.5, "average_every": 5}
"""B m+ with the gate of the authors' code."""


def averaged(_: Path) -> list[Training]:
    """The recipe with averaged weights and what goes with them."""
    trainings = []
    for seed in (0, 1, 2):
        trainings += [
            Training(row, "averaged", seed, {**AVERAGED, **own}, epochs=170 if "stop_after" in own else None)
            for row, own in OWN.items()
        ]
        trainings += [
            Training(f"B-max-plus-{size}", "averaged-scaled", seed, {**AVERAGED, **SCALED})
            for size in ("24m", "10m")
        ]
    return trainings


PARTS: Mapping[str, Callable[[Path], list[Training]]] = {"literal": literal, "averaged": averaged}
"""Name → the trainings of a part, given the folder of results."""


def planned(folder: Path, parts: Sequence[str] = tuple(PARTS)) -> list[Training]:
    """Return the trainings of these parts in order."""
    trainings = [training for part in parts for training in PARTS[part](folder)]
    assert all(training.row in ROWS for training in trainings)
    return trainings
