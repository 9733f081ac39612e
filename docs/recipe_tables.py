"""What each part of a language model's recipe is worth: trainings that differ in one setting, and ablations."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from figures import named, number, paragraph, results, rows, signed, table
from goals import BEST_F
from lm_tables import FOLDER, NOT_YET, lm_run
from quality_tables import STARTED

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from lm_plan import (
    ABLATED,
    KNOBS,
    SEARCHED,
    SHORT,
    TRIALS,
    ablation_of,
    best,
    drawn_settings,
    knobs,
    trials,
)
from lm_rows import Training, averaged, dev_of, literal, literal_start, literal_text_gate

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
DRAWN = {
    "lr": "rate",
    "kept_units": "kept units",
    "between_dropout": "between",
    "recurrent_dropout": "variational",
    "word_dropout": "word",
    "weight_decay": "weight decay",
}
"""The settings that trials draw → the titles of their columns."""


class _Run(NamedTuple):
    cell: str
    settings: dict[str, Any]
    parameters: int
    epochs: int
    dev: float


def _runs() -> Iterator[_Run]:
    """Yield the long trainings of seed 0."""
    for place in [*sorted((FOLDER / "tried").glob("[!.]*")), *sorted(FOLDER.glob("[!.]*-seed-0"))]:
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
            if before.epochs != after.epochs:
                change += f" (and {before.epochs} → {after.epochs} epochs)"
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
    """List the planned trainings with the best setting, and what came out."""
    body = []
    searched = [t for t in knobs(FOLDER) if t.test and (FOLDER / t.place).exists()]
    for training in [*best(FOLDER), *searched]:
        model = f"{training.row.partition('-')[0].replace('lstm', 'LSTM')}, seed {training.seed}"
        if training.label == "searched":
            model += f", {_chosen(training)}"
        place = FOLDER / training.place
        if place.exists():
            _, config, found = lm_run(place)
            size = f"{config['layers']} × {config['hidden_size']}", f"{found['parameters'] / 1e6:.1f}M"
            figures = found["epochs"], number(found["dev_ppl"]), number(found["test_ppl"])
            body.append((model, *size, *figures))
        else:
            body.append((model, "", "", "", NOT_YET, ""))
    return table("model | layers: | parameters: | epochs: | dev: | test:", body)


def _chosen(training: Training) -> str:
    """Return which of `KNOBS` a training has. An LSTM has its own hidden size."""

    def has(what: str) -> bool:
        return all(training.settings.get(k) == v for k, v in ABLATED[what].items() if k != "hidden_size")

    return max(filter(has, KNOBS), key=lambda what: len(ABLATED[what]))


@named
def lm_goal() -> str:
    """Say how far F with the best setting is from its goal."""
    found = [r["test_ppl"] for r in rows("lm-ptb/table", label="best", model="RRNN(F)")]
    mean = sum(found) / len(found)
    needed = 3 * BEST_F - sum(found)
    left = f" ({len(found)} of three; the third would need {needed:.2f})" if len(found) == 2 else ""
    reached = "reached" if mean <= BEST_F and len(found) >= 3 else "not reached"
    return paragraph(f"""
        The goal for F was {BEST_F} on test as the mean of three seeds, the figure of AWD-LSTM. It
        is {reached}{" so far" * (len(found) < 3)}: the mean is {mean:.2f}{left}.
    """)


@named
def lm_equal() -> str:
    """List the settings that every model is tried with at 24M, and each model's perplexity on dev."""
    models = SEARCHED["24m"]
    names = [row.removesuffix("-24m").replace("lstm", "LSTM").replace("B-max-plus", "B m+") for row in models]
    body = []
    for number_of, settings in enumerate(drawn_settings()):
        places = [FOLDER / trials(row, FOLDER)[number_of].place for row in models]
        figures = (number(dev_of(place)) if place.exists() else NOT_YET for place in places)
        body.append((*(_shown(settings[key]) for key in DRAWN), *figures))
    return table(" | ".join([*(f"{title}:" for title in DRAWN.values()), *(f"{n}:" for n in names)]), body)


@named
def lm_equal_terms() -> str:
    """Say how much of the search on equal terms is there."""
    there = {
        row: sum((FOLDER / trial.place).exists() for trial in trials(row, FOLDER)) for row in SEARCHED["24m"]
    }
    done = [row for row, count in there.items() if count == TRIALS]
    return paragraph(f"""
        {sum(there.values())} of the {TRIALS * len(there)} trials, of {SHORT["epochs"]} epochs each, were trained so
        far. Models are compared only when all {TRIALS} of each are there: {len(done)} of {len(there)} have theirs.
    """)


@named
def lm_ablations() -> str:
    """List what is planned about the best setting, and what of it was measured."""

    def figures(what: str, row: str) -> tuple[str, str]:
        base, place = (FOLDER / ablation_of(w, ABLATED[w], row).place for w in ("nothing", what))
        if not place.exists():
            return NOT_YET, ""
        dev = dev_of(place)
        return number(dev), signed(dev - dev_of(base)) if base.exists() else ""

    body = [
        (what, *figures(what, "F-24m"), *(figures(what, "lstm-24m") if what in KNOBS else ("", "")))
        for what in ABLATED
    ]
    return table("change | F, dev: | difference: | LSTM, dev: | difference:", body)


@named
def lm_missing() -> str:
    """Say which rows of the paper's table are not trained yet."""

    def name(training: Training) -> str:
        model, _, size = training.row.removesuffix("-2").rpartition("-")
        if model == "lstm":
            return f"the LSTM with {'two' if training.row.endswith('-2') else 'three'} layers"
        gate = "authors' code" if training.label.endswith("scaled") else "paper's text"
        more = " with another start" * training.label.endswith(STARTED)
        if model == "B-max-plus":
            model, more = "B m+", f" with the gate of the {gate}"
        return f"{model} at {size.upper()}{more}"

    def missing(trainings: list[Training]) -> str:
        return ", ".join(name(t) for t in trainings if not (FOLDER / t.place).exists())

    recipes = {
        "the paper's recipe": missing([*literal(0), *literal_start(FOLDER)[:1], *literal_text_gate(0)]),
        "ours": missing(averaged(0)),
    }
    told = [f"with {recipe}: {rows}" for recipe, rows in recipes.items() if rows]
    return paragraph("Not trained yet are, " + "; ".join(told) + ".") if told else ""
