"""Which language models are trained for docs/reproduce.md and docs/recipe.md, with which settings, in which order.

A part of the plan is a list of trainings. A later part may read the results of an earlier one: a choice by the
development set waits until all that it chooses among is there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        weights = 1 + len(settings.get("emas", ())) / settings.get("average_every", 1)
        epochs = self.epochs or settings.get("epochs", 300)
        return 10 + epochs * (epoch + evaluation * weights)


# ---- the paper's recipe and nothing else -----------------------------------------------------------------------------

LITERAL: Settings = {"precision": "bf16", "scale_weight_decay": False}
GAINS = {"10m": 4, "24m": 6}
"""Of C's matrices at the start, without which it does not train."""
SEEDS = (1, 2)
"""Beside seed 0, which is trained first."""


def literal(*seeds: int, sizes: Sequence[str] = ("24m", "10m")) -> list[Training]:
    """The recipe of Lei et al. (2017) at the paper's sizes and learning rates: no averages of weights, no shifted
    stream, a constant weight decay. C needs a larger start to train at all. B m+ has the gate of the authors' code."""
    return [
        Training(f"{model}-{size}", label, seed, {**LITERAL, **own})
        for seed in seeds
        for size in sizes
        for model, label, own in (
            ("F", "literal", {}),
            ("B", "literal", {}),
            ("C", "literal", {"rnn_gain": GAINS[size]}),
            ("B-max-plus", "literal-scaled", {"cell": "B-max-plus-scaled"}),
        )
    ]


def literal_text_gate(*seeds: int) -> list[Training]:
    """B m+ with the gate of the paper's text, which needs open output gates to begin with."""
    settings = {**LITERAL, "output_bias": 4}
    return [
        Training(f"B-max-plus-{size}", "literal", seed, settings) for seed in seeds for size in ("10m", "24m")
    ]


WHY: Mapping[str, Settings] = {
    "authors-code": {
        "between_dropout": 0.0,
        "scale_rnn": True,
        "lr_decay_from": 151,
        "halve_after": 30,
        "kept_units": 318,
    },
    "literal-decay-4e-5": {"weight_decay": 4e-5},
    "literal-shifted": {"shift": True},
}
"""To find out why the literal recipe does not reach the paper's figures: F at 10M trained as in the authors' public
code instead of their text, and the literal recipe with one thing changed."""


def why(_: Path) -> list[Training]:
    """Return the trainings of `WHY` and, at 24M, F with the rate of B, which is ahead there. They read dev only."""
    rate = Training("F-24m", "literal-rate-1", 0, {**LITERAL, "lr": 1.0}, "tried", test=False)
    return [
        *(Training("F-10m", label, 0, {**LITERAL, **own}, "tried", test=False) for label, own in WHY.items()),
        rate,
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


def averaged(*seeds: int) -> list[Training]:
    """The recipe with averaged weights and what goes with them."""
    trainings = list[Training]()
    for seed in seeds:
        trainings += [
            Training(row, "averaged", seed, {**AVERAGED, **own}, epochs=170 if "stop_after" in own else None)
            for row, own in OWN.items()
        ]
        trainings += [
            Training(f"B-max-plus-{size}", "averaged-scaled", seed, {**AVERAGED, **SCALED})
            for size in ("24m", "10m")
        ]
    return trainings


# ---- equal terms: the same settings for every model ------------------------------------------------------------------

SEARCHED: Mapping[str, Sequence[str]] = {
    "24m": ("F-24m", "B-24m", "C-24m", "B-max-plus-24m", "lstm-24m"),
    "10m": ("F-10m", "B-10m", "C-10m", "B-max-plus-10m"),
}
"""Size → the rows of the paper's table. It has no LSTM of 10M parameters."""
NEEDED: Mapping[str, Settings] = {
    "C-24m": {"rnn_gain": GAINS["24m"]},
    "C-10m": {"rnn_gain": GAINS["10m"]},
    "B-max-plus-24m": {"cell": "B-max-plus-scaled"},
    "B-max-plus-10m": {"cell": "B-max-plus-scaled"},
    "lstm-24m": {"dev_streams": 16},
}
"""What a model needs to train at all, and the LSTM to be evaluated fast."""
RANGES: Mapping[str, Sequence[float]] = {
    "lr": (0.5, 1.0),
    "kept_units": (220, 250, 280, 310),
    "between_dropout": (0.0, 0.1, 0.2),
    "recurrent_dropout": (0.1, 0.2, 0.3),
    "word_dropout": (0.0, 0.1),
    "weight_decay": (2e-5, 4e-5, 6e-5),
}
TRIALS = 4
FINAL_EPOCHS = 200
"""Of the chosen settings, which are trained with three seeds."""
SHORT: Settings = {**AVERAGED, "average_every": 5, "emas": (0.9995, 0.9999), "epochs": 80}
"""A trial: short enough that the longest average would not be ready."""


def drawn_settings() -> list[Settings]:
    """Return the settings that every model is tried with, drawn once and for all."""
    draw = random.Random("equal terms at 24M")
    return [{key: draw.choice(values) for key, values in RANGES.items()} for _ in range(TRIALS)]


def trials(row: str) -> list[Training]:
    """Return a model's trials, which read dev only."""
    own = NEEDED.get(row, {})
    return [
        Training(row, f"trial-{number}", 0, {**SHORT, **settings, **own}, "equal", test=False)
        for number, settings in enumerate(drawn_settings())
    ]


def equal(folder: Path, size: str = "24m") -> list[Training]:
    """Every model with the same drawn settings; then, where all are there, the best of them on dev with three seeds."""
    finals = list[Training]()
    for row in SEARCHED[size]:
        tried = trials(row)
        if all((folder / trial.place).exists() for trial in tried):
            best = min(tried, key=lambda trial: dev_of(folder / trial.place))
            long = {**best.settings, "emas": AVERAGED["emas"], "epochs": FINAL_EPOCHS}
            finals += [Training(row, equal_label(row), seed, long) for seed in (0, *SEEDS)]
    return [trial for row in SEARCHED[size] for trial in trials(row)] + finals


def equal_label(row: str) -> str:
    """Return the label of a model's final trainings. As in other parts, it says if m+ has the authors' gate."""
    return "equal-scaled" if NEEDED.get(row, {}).get("cell") == SCALED["cell"] else "equal"


def dev_of(place: Path) -> float:
    """Return the perplexity on dev of a finished training."""
    return json.loads((place / "result.json").read_text(encoding="utf-8"))["dev_ppl"]


# ---- the best setting that was found, and what each of its parts is worth --------------------------------------------

BEST: Settings = {
    "layers": 4,
    "hidden_size": 864,
    "word_dropout": 0.1,
    "between_dropout": 0.12,
    "kept_units": 300,
    "shift": True,
    "lr": 1.0,
    "lr_decay_from": 1000,
    "weight_decay": 4e-5,
    "emas": (0.9999, 0.99997, 0.99998),
    "average_every": 5,
    "epochs": 560,
    "precision": "bf16",
}
"""The preset best-24m with F."""
BEST_LSTM: Settings = {
    **{key: value for key, value in BEST.items() if key not in ("layers", "hidden_size")},
    "dev_streams": 16,
    "stop_after": 30,
}
"""The same techniques, with three layers and the hidden size of 24M parameters."""


def best(_: Path) -> list[Training]:
    """The best setting of F with three seeds, and the LSTM with the same techniques."""
    return [
        *(Training("F-24m", "best", seed, BEST) for seed in (0, *SEEDS)),
        Training("lstm-24m", "best", 0, BEST_LSTM, epochs=250),
    ]


ABLATION_EPOCHS = 100
ABLATED: Mapping[str, Settings] = {
    "nothing": {},
    "embedding of 400, layers of 1216": {"embedding_size": 400, "hidden_size": 1216},
    "three layers of 960": {"layers": 3, "hidden_size": 960},
    "five layers of 784": {"layers": 5, "hidden_size": 784},
    "no word dropout": {"word_dropout": 0.0},
    "no dropout between layers": {"between_dropout": 0.0},
    "no shifted windows": {"shift": False},
    "partial shuffle instead of shifted windows": {"shift": False, "partial_shuffle": True},
    "weight decay 1e-5 as in the paper": {"weight_decay": 1e-5},
    "learning rate 0.5": {"lr": 0.5},
}
"""What differs from the best setting → the settings that do; all at about 24M parameters."""


def ablation_of(what: str, changes: Settings) -> Training:
    """Return the training of one ablation, which reads dev only."""
    label = "ablated-" + "-".join(what.replace(",", "").split())
    return Training(
        "F-24m", label, 0, {**BEST, "epochs": ABLATION_EPOCHS, **changes}, "ablations", test=False
    )


def ablations(_: Path) -> list[Training]:
    """The best setting with one thing changed at a time."""
    return [ablation_of(what, changes) for what, changes in ABLATED.items()]


# ---- the order -------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, Callable[[Path], list[Training]]] = {
    "literal": lambda _: literal(0),
    "best": best,
    "equal": equal,
    "literal-seeds": lambda _: literal(*SEEDS, sizes=["10m"]) + literal(*SEEDS, sizes=["24m"]),
    "literal-text-gate": lambda _: literal_text_gate(0),
    "ablations": ablations,
    "why": why,
    "averaged": lambda _: averaged(0),
    "equal-10m": lambda folder: equal(folder, "10m"),
    "averaged-seeds": lambda _: averaged(*SEEDS),
    "literal-text-gate-seeds": lambda _: literal_text_gate(*SEEDS),
}
"""Name → the trainings of a part, given the folder of results; those that are worth most come first."""


def planned(folder: Path, parts: Sequence[str] = tuple(PARTS)) -> list[Training]:
    """Return the trainings of these parts in order."""
    return [training for part in parts for training in PARTS[part](folder)]
