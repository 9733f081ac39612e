"""What each part of a language model's recipe is worth: trainings that differ in one setting, and ablations."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from figures import RESULTS, named, number, paragraph, results, signed, table
from quality_tables import lm_run

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from lm_plan import (
    ABLATED,
    NEEDED,
    RANGES,
    SEARCHED,
    Training,
    ablation_of,
    averaged,
    best,
    dev_of,
    drawn_settings,
    literal,
    literal_text_gate,
    trials,
)

FOLDER = RESULTS / "lm-ptb"
LONG = 260
"""Trainings of fewer epochs are compared with none: averages need time."""
SETTINGS = {
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "scale_weight_decay": "weight decay that falls with the rate",
    "lr_decay_from": "first epoch with a smaller rate",
    "kept_units": "units kept by the dropout of embeddings and outputs",
    "recurrent_dropout": "variational dropout",
    "between_dropout": "dropout between layers",
    "word_dropout": "word dropout",
    "locked_dropout": "one mask per window at both ends",
    "shift": "shifted windows",
    "scale_rnn": "smaller matrices at the start",
    "rnn_gain": "gain of the matrices at the start",
    "output_bias": "bias of the output gates at the start",
    "precision": "matrix products in",
    "emas": "averages",
    "layers": "layers",
    "embedding_size": "embedding size",
    "partial_shuffle": "partial shuffle",
    "halve_after": "epochs without gain until the rate is halved",
}
"""What may differ between two trainings; the rest (device, how often averages are updated, …) decides no result."""
DEFAULTS = {"rnn_gain": 1.0, "partial_shuffle": False, "embedding_size": None, "halve_after": None}
"""Of settings that are younger than some of the trainings; 0 for others."""


class _Run(NamedTuple):
    cell: str
    settings: dict[str, Any]
    parameters: int
    epochs: int
    dev: float


def _runs() -> Iterator[_Run]:
    """Yield the long trainings of seed 0."""
    for place in [*sorted((FOLDER / "tried").iterdir()), *sorted(FOLDER.glob("[!.]*-seed-0"))]:
        _, config, found = lm_run(place)
        settings = {key: config.get(key, DEFAULTS.get(key, 0)) for key in SETTINGS}
        if isinstance(settings["emas"], list):
            settings["emas"] = ", ".join(f"{decay:g}" for decay in settings["emas"]) or 0
        size = config.get("embedding_size") or config["hidden_size"]
        settings["kept_units"] = round((1 - config["output_dropout"]) * size)
        if found["epochs"] >= LONG:
            yield _Run(config["cell"], settings, found["parameters"], found["epochs"], found["dev_ppl"])


@named
def lm_changes() -> str:
    """List all pairs of long trainings of a model that differ in exactly one setting."""
    body = []
    for a, b in itertools.combinations(_runs(), 2):
        differ = [key for key in SETTINGS if a.settings[key] != b.settings[key]]
        if (a.cell, a.parameters) == (b.cell, b.parameters) and len(differ) == 1:
            (key,) = differ
            before, after = sorted((a, b), key=lambda run: -run.dev)
            change = f"{SETTINGS[key]}: {_shown(before.settings[key])} → {_shown(after.settings[key])}"
            model = f"{a.cell}, {a.parameters / 1e6:.0f}M"
            gain = before.dev - after.dev
            body.append((model, change, number(before.dev), number(after.dev), signed(-gain), gain))
    body.sort(key=lambda line: -line[-1])
    return table(
        "model | what changes | dev before: | dev after: | difference:", (line[:-1] for line in body)
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and 0 < value < 1e-3:
        return f"{value * 1e5:g}·10⁻⁵"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


@named
def lm_averages() -> str:
    """Show how much better the best average is than the weights themselves, each at its own best epoch."""
    body = []
    for place in sorted(FOLDER.glob("[!.]*+averaged*-seed-0")):
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        parameters = config["facts"]["parameters"]
        lines = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        epochs = [json.loads(line) for line in lines]
        best, last = min(e["dev_ppl"] for e in epochs), min(e["dev_ppl_last"] for e in epochs)
        model = f"{config['cell']}, {parameters / 1e6:.0f}M"
        body.append((model, number(last), number(best), signed(best - last)))
    return table("model | the weights themselves: | the best average: | difference:", body)


@named
def lm_stated() -> str:
    """List the trainings whose figures were noted, but whose files were not kept."""
    body = [
        (
            r["layers"],
            r["changes"],
            r["epochs"],
            number(r["dev_ppl"]),
            number(r.get("test_ppl")),
            r.get("note", ""),
        )
        for r in (results("lm-ptb/stated") or {"rows": []})["rows"]
    ]
    return table("F, 24M | differs from our recipe by | epochs: | dev: | test: | note", body)


@named
def lm_best() -> str:
    """List the trainings of the best setting, measured or not."""
    body = []
    for training in best(FOLDER):
        place = FOLDER / training.place
        found = lm_run(place)[2] if place.exists() else {}
        size = f"{found['parameters'] / 1e6:.1f}M" if found else ""
        dev = number(found["dev_ppl"]) if found else "not measured yet"
        test = number(found["test_ppl"]) if found else ""
        body.append((training.row.split("-")[0], training.seed, size, found.get("epochs", ""), dev, test))
    return table("model | seed: | parameters: | epochs: | dev: | test:", body)


@named
def lm_trials() -> str:
    """Show the settings that every model is tried with, and what each model reaches with them on dev."""

    def dev(row: str, number_of_trial: int) -> str:
        place = FOLDER / trials(row)[number_of_trial].place
        return number(dev_of(place)) if place.exists() else ""

    body = [
        (*(_shown(settings[key]) for key in RANGES), *(dev(row, n) for row in SEARCHED))
        for n, settings in enumerate(drawn_settings())
    ]
    models = [
        row.removesuffix("-24m") + ("-scaled" if "cell" in NEEDED.get(row, {}) else "") for row in SEARCHED
    ]
    return table(" | ".join(f"{head}:" for head in [*(SETTINGS[key] for key in RANGES), *models]), body)


@named
def lm_ablations() -> str:
    """List what is planned about the best setting, and what of it was measured."""
    body = []
    base = FOLDER / ablation_of("all of it", {}).place
    for what, changes in ABLATED.items():
        place = FOLDER / ablation_of(what, changes).place
        if not place.exists():
            body.append((what, "not measured yet", ""))
        else:
            dev = dev_of(place)
            body.append((what, number(dev), signed(dev - dev_of(base)) if base.exists() else ""))
    return table("the best setting, but | dev: | difference:", body)


@named
def lm_missing() -> str:
    """Say which rows of the paper's table are not trained yet."""

    def missing(trainings: list[Training]) -> str:
        left = [t for t in trainings if not (FOLDER / t.place).exists()]
        return ", ".join(t.row + (" with the authors' gate" if "scaled" in t.label else "") for t in left)

    recipes = {
        "the paper's recipe": missing([*literal(0), *literal_text_gate(0)]),
        "ours": missing(averaged(0)),
    }
    told = [f"with {recipe}: {rows}" for recipe, rows in recipes.items() if rows]
    return paragraph("Not trained yet are, " + "; ".join(told) + ".") if told else ""
