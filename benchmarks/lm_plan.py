"""Which language models are trained for docs/reproduce.md and docs/recipe.md, with which settings, in which order.

A part of the plan is a list of trainings. Some have settings that the development set chooses among earlier ones: they
wait until all of these are there, and until then are planned with the settings that lead so far.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lm_rows import (
    AVERAGED,
    GAINS,
    SCALED,
    SEEDS,
    Settings,
    Training,
    averaged,
    best_of,
    literal,
    literal_start,
    literal_text_gate,
    places,
    start_of,
    starts,
    why,
)

# ---- equal terms: the same settings for every model ------------------------------------------------------------------

SEARCHED: Mapping[str, Sequence[str]] = {
    "24m": ("F-24m", "B-24m", "C-24m", "B-max-plus-24m", "lstm-24m"),
    "10m": ("F-10m", "B-10m", "C-10m", "B-max-plus-10m"),
}
"""Size → the rows of the paper's table. It has no LSTM of 10M parameters."""
NEEDED: Mapping[str, Settings] = {
    "C-10m": {"rnn_gain": GAINS["10m"]},
    "B-max-plus-24m": {"cell": "B-max-plus-scaled"},
    "B-max-plus-10m": {"cell": "B-max-plus-scaled"},
    "lstm-24m": {"dev_streams": 16},
}
"""What a model needs to train at all, and the LSTM to be evaluated fast. C at 24M has the start that `starts` finds."""
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


def trials(row: str, folder: Path) -> list[Training]:
    """Return a model's trials, which read dev only."""
    own, after = NEEDED.get(row, {}), ()
    if row == "C-24m":  # its start; rate and weight decay are those of the trial, as for every model
        own = {key: value for key, value in start_of(folder).items() if key in ("rnn_gain", "clip")}
        after = places(starts())
    return [
        Training(row, f"trial-{number}", 0, {**SHORT, **settings, **own}, "equal", test=False, after=after)
        for number, settings in enumerate(drawn_settings())
    ]


def equal(folder: Path, size: str = "24m") -> list[Training]:
    """Every model with the same drawn settings; then the best of them on dev with three seeds."""
    tried = {row: trials(row, folder) for row in SEARCHED[size]}
    finals = list[Training]()
    for row, own in tried.items():
        long = {**best_of(folder, own).settings, "emas": AVERAGED["emas"], "epochs": FINAL_EPOCHS}
        finals += [Training(row, equal_label(row), seed, long, after=places(own)) for seed in (0, *SEEDS)]
    return [trial for own in tried.values() for trial in own] + finals


def equal_label(row: str) -> str:
    """Return the label of a model's final trainings. As in other parts, it says if m+ has the authors' gate."""
    return "equal-scaled" if NEEDED.get(row, {}).get("cell") == SCALED["cell"] else "equal"


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
BASES: Mapping[str, Settings] = {"F-24m": BEST, "lstm-24m": BEST_LSTM}


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
    "embedding of 400, layers of 1216, 240 kept units": {
        "embedding_size": 400,
        "hidden_size": 1216,
        "kept_units": 240,
    },
    "the same with partial shuffle instead of shifted windows": {
        "embedding_size": 400,
        "hidden_size": 1216,
        "kept_units": 240,
        "shift": False,
        "partial_shuffle": True,
    },
    "weight decay 1e-5 as in the paper": {"weight_decay": 1e-5},
    "learning rate 0.5": {"lr": 0.5},
}
"""What differs from the best setting → the settings that do; all at about 24M parameters."""


def ablation_of(what: str, changes: Settings, row: str = "F-24m") -> Training:
    """Return the training of one ablation, which reads dev only. An LSTM has the hidden size of 24M parameters."""
    label = "ablated-" + "-".join(what.replace(",", "").split())
    settings = {**BASES[row], "epochs": ABLATION_EPOCHS, **changes}
    if row == "lstm-24m":
        settings.pop("hidden_size", None)
        label = label.replace("-layers-of-1216", "")
    return Training(row, label, 0, settings, "ablations", test=False)


def ablations(_: Path) -> list[Training]:
    """The best setting with one thing changed at a time."""
    return [ablation_of(what, changes) for what, changes in ABLATED.items()]


KNOBS = (
    "nothing",
    "embedding of 400, layers of 1216",
    "partial shuffle instead of shifted windows",
    "embedding of 400, layers of 1216, 240 kept units",
    "the same with partial shuffle instead of shifted windows",
)
"""The changes among which embedding size and shuffle are chosen, for F and the LSTM alike."""


def knob_trials(row: str) -> list[Training]:
    """Return the trials of F or the LSTM with each of `KNOBS`."""
    return [ablation_of(what, ABLATED[what], row) for what in KNOBS]


def knobs(folder: Path) -> list[Training]:
    """F and the LSTM with each of `KNOBS`; then, if one is better than the best setting, F with three seeds of it, and
    the LSTM with one."""
    found = list[Training]()
    for row, seeds, epochs in (("F-24m", (0, *SEEDS), None), ("lstm-24m", (0,), 250)):
        tried = knob_trials(row)
        found += tried
        waits = not all((folder / trial.place).exists() for trial in tried)
        chosen = best_of(folder, tried[1:] if waits else tried)
        if chosen != tried[0]:
            settings, after = {**chosen.settings, "epochs": BEST["epochs"]}, places(tried)
            found += [Training(row, "searched", seed, settings, epochs=epochs, after=after) for seed in seeds]
    return found


# ---- the order -------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, Callable[[Path], list[Training]]] = {
    "literal": lambda _: literal(0),
    "best": best,
    "starts": starts,
    "equal": equal,
    "literal-start": literal_start,
    "literal-seeds-10m": lambda _: literal(*SEEDS, sizes=["10m"]),
    "knobs": knobs,
    "ablations": ablations,
    "why": why,
    "literal-seeds-24m": lambda _: literal(*SEEDS, sizes=["24m"]),
    "literal-text-gate": lambda _: literal_text_gate(0),
    "averaged": lambda _: averaged(0),
    "equal-10m": lambda folder: equal(folder, "10m"),
    "averaged-seeds": lambda _: averaged(*SEEDS),
    "literal-text-gate-seeds": lambda _: literal_text_gate(*SEEDS),
}
"""Name → the trainings of a part, given the folder of results; those that are worth most come first."""


def planned(folder: Path, parts: Sequence[str] = tuple(PARTS)) -> list[Training]:
    """Return the trainings of these parts in order, those of two parts once."""
    every = [training for part in parts for training in PARTS[part](folder)]
    return list({training.place: training for training in every}.values())
