"""Tables of quality: perplexities of language models and accuracies of text classifiers, beside the paper's."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from figures import RESULTS, Row, named, number, paragraph, results, rows, signed, span, table, unique
from goals import count

# ---- in short ------------------------------------------------------------------------------------------------------

ACCURACIES = {"sst": "SST", "subj": "Subj", "cr": "CR"}
RECIPES = {
    "literal": "paper's recipe",
    "averaged": "our recipe",
    "equal": "our recipe, equal search",
}
"""What a label begins with → the recipe, in the titles of columns. Those without rows are left out."""
TOLD = {
    "literal": "the paper's recipe",
    "averaged": "our recipe",
    "equal": "our recipe, searched on equal terms",
}
"""The same in sentences."""
CODE_GATE = ", gate of the authors' code"


@named
def quality() -> str:
    """Every model of the paper on one screen: ours, and the paper's in brackets."""
    lm, texts, body = rows("lm-ptb/table"), rows("classify/table"), []
    columns = lm_columns(lm)
    for model in unique(r["model"] for r in texts):
        accuracy = [
            f"{number(r['mean'])} ({number(r['paper'])})"
            for data in ACCURACIES
            for r in texts
            if (r["dataset"], r["model"], r["label"]) == (data, model, "averaged")
        ]
        for i, (name, runs) in enumerate(variants(lm, model)):
            ours = (_beside_paper(lm_rows_of(runs, *column)) for column in columns)
            body.append((name, *ours, *(accuracy if i == 0 else [""] * len(accuracy))))
    titles = [f"PTB {millions}M, {RECIPES[recipe]}:" for millions, recipe in columns]
    return table(" | ".join(["model", *titles, *(f"{title}:" for title in ACCURACIES.values())]), body)


def lm_columns(lm: Iterable[Row]) -> list[tuple[int, str]]:
    """Return the sizes, in millions of parameters, and recipes that there are language models of."""
    every = list(lm)
    return [(size, recipe) for size in (10, 24) for recipe in RECIPES if lm_rows_of(every, size, recipe)]


def variants(lm: Iterable[Row], model: str) -> list[tuple[str, list[Row]]]:
    """Return a model's rows by what the paper does not tell apart: the gate of m+, and the depth of the LSTM."""

    def name(r: Row) -> str:
        if model == "LSTM":
            return f"LSTM, {r['layers']} layers"
        return f"{model}{CODE_GATE * r['label'].endswith('scaled')}"

    own = [r for r in lm if r["model"] == model and r["label"].startswith(tuple(RECIPES))]
    return [(kind, [r for r in own if name(r) == kind]) for kind in unique(map(name, own))]


def lm_rows_of(runs: Iterable[Row], millions: int, recipe: str) -> list[Row]:
    """Return those of a size that were trained by a recipe and evaluated on test."""
    return [
        r
        for r in runs
        if round(r["params"] / 1e6) == millions and r["test_ppl"] and r["label"].startswith(recipe)
    ]


def _beside_paper(ours: list[Row]) -> str:
    return f"{number(mean(r['test_ppl'] for r in ours))} ({number(ours[0]['paper_test'])})" if ours else ""


def mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)


@named
def reproduction() -> str:
    """Say in words how close the rows come to the paper's, and by which recipe."""
    runs, texts = rows("lm-ptb/table"), rows("classify/table")

    def distances(recipe: str) -> list[float]:
        """Return how far above the paper's each row's mean over its seeds ends, the best first."""
        here = [r for r in runs if r["label"].startswith(recipe)]
        groups = [
            [r for r in here if (r["model"], r["label"], r["layers"]) == key]
            for key in unique((r["model"], r["label"], r["layers"]) for r in here)
        ]
        return sorted(mean(r["test_ppl"] for r in g) - g[0]["paper_test"] for g in groups)

    literal, averaged = distances("literal"), distances("averaged")
    by_paper, by_ours = (sum(d <= 0 for d in found) for found in (literal, averaged))

    def gap(data: str, label: str) -> str:
        gaps = [signed(r["mean"] - r["paper"]) for r in texts if (r["dataset"], r["label"]) == (data, label)]
        least, *_, greatest = sorted(gaps, key=float)
        return f"{least} to {greatest}"

    language = f"""
        - **Language models: with the paper's recipe, {by_paper} of {len(literal)} rows reach the paper's test
        perplexities**; they differ from these by {signed(literal[0])} to {signed(literal[-1])}. **With a recipe that
        goes beyond the paper's, {by_ours} of {len(averaged)} rows reach them**: averaged weights, a constant learning
        rate, more weight decay, other dropout and windows that shift from epoch to epoch. {_seeds(runs)} Most settings
        of our recipe were chosen for F. {_further(runs)}
    """
    classes = f"""
        - **Text classification: below the paper on SST and CR.** Our word vectors are smaller than the paper's, and
        all rows use averaged weights. The models differ from the paper's by {gap("sst", "averaged")} points on SST and
        by {gap("cr", "averaged")} on CR; with features of letters and vectors learned from reviews added, by
        {gap("sst", "averaged-reviews")} and {gap("cr", "averaged-reviews")}.
    """
    missed, every = count()
    goals = f"- **Goals: {missed} of the {every} that were set beforehand were missed.**"
    return paragraph(language) + paragraph(classes) + paragraph(goals)


def _seeds(runs: Iterable[Row]) -> str:
    """Say how many seeds the rows of the two recipes have."""
    seeds = Counter(
        (r["model"], round(r["params"] / 1e6), r["label"])
        for r in runs
        if r["label"].startswith(("literal", "averaged"))
    )
    more = [
        f"{model} at {size}M with {TOLD[label.removesuffix('-scaled')]}{CODE_GATE * label.endswith('scaled')}: {count}"
        for (model, size, label), count in seeds.items()
        if count > 1
    ]
    if len(more) > 2:
        return f"Rows are means of {span(seeds.values(), 0)} seeds."
    return f"Each row is one seed ({'; '.join(more)})." if more else "Each row is one seed."


def _further(runs: Iterable[Row]) -> str:
    """Say what the best setting reaches, if it was trained."""
    best = [r["test_ppl"] for r in runs if r["label"] == "best" and r["model"] == "RRNN(F)"]
    if not best:
        return ""
    of = f"the mean of {len(best)} seeds" if len(best) > 1 else "one seed"
    return f"""
        The best setting that was found for F, with four layers and word dropout, reaches {number(mean(best))} at 24M
        ({of}); it was searched for F alone.
    """


@named
def short_accuracy() -> str:
    """Test accuracies: a row for each data set and each way to read it. The paper's are in brackets, once for each data
    set that it used."""
    found = rows("classify/table")
    models, body, told = unique(r["model"] for r in found), [], set[str]()
    for data, label in unique((r["dataset"], r["label"]) for r in found):
        here = {}
        for r in found:
            if (r["dataset"], r["label"]) == (data, label):
                deviation = f" ± {number(r['std'])}" if r["std"] is not None else ""
                paper = f" ({number(r['paper'])})" if r["paper"] and data not in told else ""
                here[r["model"]] = f"{number(r['mean'])}{deviation}{paper}"
        body.append((way(data, label), *(here.get(model, "") for model in models)))
        told.add(data)
    return table(" | ".join(["data", *(f"{model}:" for model in models)]), body)


# ---- all rows ------------------------------------------------------------------------------------------------------

NOTHING = "*No results are committed yet.*\n"


def titled(r: Row) -> str:
    """Return a row's model, and the name of its protocol where it is not the paper's."""
    return f"{r['model']}, {r['label']}" if r.get("label") else r["model"]


@named
def lm_ptb() -> str:
    if results("lm-ptb/table") is None:
        return NOTHING
    body = (
        (
            titled(r),
            r["layers"],
            f"{r['params'] / 1e6:.1f}M",
            r.get("seed", ""),
            r["epochs"],
            number(r["seconds"] / 60),
            number(r.get("dev_ppl")),
            number(r.get("test_ppl")),
            number(r.get("paper_dev")),
            number(r.get("paper_test")),
        )
        for r in rows("lm-ptb/table")
    )
    head = "model | layers: | parameters: | seed: | epochs: | minutes: | dev: | test:"
    return table(f"{head} | paper's dev: | paper's test:", body)


OLD_SETTINGS = {"variational_dropout": "recurrent_dropout", "hidden": "hidden_size"}
"""What version 0.1.0 called a setting → its name."""


def lm_run(place: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read a run's folder: model and size, configuration, result."""
    config, found = (
        json.loads((place / name).read_text(encoding="utf-8")) for name in ("config.json", "result.json")
    )
    config = {OLD_SETTINGS.get(key, key): value for key, value in config.items()}
    return f"{config['cell']}, {found['parameters'] / 1e6:.0f}M", config, found


@named
def lm_tried() -> str:
    """List the settings among which those of the table were chosen, one seed each."""
    folder, body = RESULTS / "lm-ptb", []
    chosen = sorted(folder.glob("[!.]*-seed-0"))
    for place in [*sorted((folder / "tried").glob("[!.]*")), *chosen]:
        model, config, found = lm_run(place)
        decay = f"{config['weight_decay'] * 1e5:g}·10⁻⁵"
        falls = config["lr_decay_from"] <= config["epochs"]
        shrinks = ", as the rate" if config["scale_weight_decay"] and falls else ""
        rate = f"{first_rate(place):g}" + (f", ×0.98 from {config['lr_decay_from']}" if falls else "")
        rate += ", halved without gain" if config.get("halve_after") else ""
        more = [word for key, word in (("shift", "shifted"), ("locked_dropout", "locked")) if config[key]]
        more += ["TF32"] if config["precision"] == "tf32" else []
        more += [f"word dropout {config['word_dropout']:g}"] if config.get("word_dropout") else []
        more += [f"{config['layers']} layers"] if config["layers"] > 3 else []
        dropouts = (config[f"{name}_dropout"] for name in ("embedding", "recurrent", "between"))
        reached = f"{found['best_epoch']} of {found['epochs']}", number(found["dev_ppl"])
        line = (model, *map("{:.2f}".format, dropouts), decay + shrinks, rate, ", ".join(more), *reached)
        body.append((*line, "yes" if place in chosen else ""))
    body.sort(key=lambda line: (line[0], -float(line[-2])))
    head = (
        "model | in/out dropout: | variational: | between: | weight decay | rate | more | best epoch: | dev:"
    )
    return table(head + " | in the table", body)


def first_rate(run: Path) -> float:
    """Return the learning rate of the first epoch; configurations omit it where it is the recipe's."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as lines:
        return json.loads(next(lines))["lr"]


@named
def lm_gains() -> str:
    """Show which initial gains C can start from."""
    found = sorted(
        (model, config["rnn_gain"], run["epochs"], number(run["dev_ppl"]))
        for model, config, run in map(lm_run, (RESULTS / "lm-ptb" / "gains").glob("[!.]*"))
    )
    return table("model | `rnn_gain`: | epochs: | dev:", found)


def way(data: str, label: str) -> str:
    """Return "sst, letters" for sst and averaged-letters: all rows of classifiers are averaged."""
    more = label.removeprefix("averaged").removeprefix("-") if label else "not averaged"
    return ", ".join(filter(None, (data, more.replace("-", " ")))) or "unit vectors"


@named
def classification() -> str:
    if results("classify/table") is None:
        return NOTHING
    body = (
        (
            way(r["dataset"], r["label"]),
            r["model"],
            f"{number(r['mean'])} ± {number(r['std'])}",
            r["seeds"],
            r.get("trials", ""),
            number(r["training_seconds"] / 60, 0),
            number(r.get("dev_mean")),
            number(r.get("paper")),
        )
        for r in rows("classify/table")
    )
    head = "data | model | test accuracy: | seeds: | settings tried: | minutes in sum: | dev: | the paper's:"
    return table(head, body)


@named
def classification_differences() -> str:
    """Compare F with every other model of the same protocol."""
    found = (results("classify/table") or {}).get("differences", ())
    body = []
    for d in found:
        if d["label"] == d["to_label"] and "RRNN(F)" in (d["model"], d["reference"]):
            sign = 1 if d["model"] == "RRNN(F)" else -1
            low, high = sorted((sign * d["low"], sign * d["high"]))
            other = d["reference"] if sign > 0 else d["model"]
            beyond = "yes" if low > 0 or high < 0 else ""
            body.append(
                (
                    way(d["dataset"], d["label"]),
                    other,
                    signed(sign * d["mean"]),
                    f"{signed(low)} to {signed(high)}",
                    beyond,
                )
            )
    return table("data | F against | gain: | 95 %: | beyond chance", body) if body else NOTHING


@named
def classification_gains() -> str:
    """Show what each way to read the data gains over the one above it, with * where that is significant."""
    found, body = rows("classify/table"), []
    models = unique(r["model"] for r in found)
    by = {
        (d["dataset"], d["model"], d["label"], d["to_label"]): d
        for d in (results("classify/table") or {}).get("differences", ())
        if d["model"] == d["reference"]
    }
    ways = unique((r["dataset"], r["label"]) for r in found)
    for (data, before), (other, label) in itertools.pairwise(ways):
        if data == other:
            gains = [by.get((data, model, label, before)) for model in models]
            cells = (
                f"{signed(d['mean'])}{'' if d['low'] <= 0 <= d['high'] else ' *'}" if d else "" for d in gains
            )
            body.append((way(data, label), way("", before), *cells))
    return table(" | ".join(["data", "over", *(f"{model}:" for model in models)]), body)


# ---- rules ---------------------------------------------------------------------------------------------------------


@named
def rules() -> str:
    """Rules alone, a classifier that starts from them, and one without: test accuracies by training texts."""
    every, body = rows("rules-cpu"), []
    for data in unique(r["data"] for r in every):
        own = [r for r in every if r["data"] == data]
        alone = next((number(r["test"]) for r in own if r["model"] == "rules" and not r["fraction"]), "")
        for fraction in sorted({r["fraction"] for r in own}):
            here = [r for r in own if r["fraction"] == fraction]
            figures = (
                _spread(r["test"] for r in here if r["model"] == model) for model in ("rules", "no rules")
            )
            texts = f"{max(r['texts'] for r in here):,} ({fraction:.0%})"
            body.append((ACCURACIES[data], texts, alone, *figures))
    head = "data | training texts: | rules alone: | rules, then training: | the same without rules:"
    return table(head, body)


def _spread(values: Iterable[float]) -> str:
    """Write mean ± standard deviation, and how many there are if they are not five."""
    every = list(values)
    if len(every) < 2:
        return number(every[0]) if every else "not measured"
    few = f" ({len(every)} of 5)" if len(every) < 5 else ""
    return f"{number(mean(every))} ± {number(statistics.stdev(every))}{few}"


@named
def single_units() -> str:
    """What one unit of four cells learns of tasks that automata define."""
    from rrnn.tasks.classify.single_units import Learned, to_markdown

    return to_markdown([Learned(**row) for row in rows("single-units-cpu")]) + "\n"


@named
def vector_length() -> str:
    """The accuracy of a classifier with word vectors of the paper's norm and of the default one."""
    file = RESULTS / "classify" / "tried" / "vector-length.txt"
    accuracies: dict[tuple[str, float], list[tuple[float, float]]] = {}
    epochs: dict[tuple[str, float], list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        data, _, length, _, dev, _, test, _, epoch = line.split()
        accuracies.setdefault((data, float(length)), []).append((float(dev), float(test)))
        epochs.setdefault((data, float(length)), []).append(epoch.split("/")[0])
    body = [
        (title, f"{length:g}", *(f"{statistics.mean(some):.1f}" for some in zip(*found, strict=True)), best)
        for data, title in ACCURACIES.items()
        for length in (1.0, 5.0)
        for found, best in [(accuracies[data, length], ", ".join(epochs[data, length]))]
    ]
    return table("data | norm: | dev: | test: | best epochs:", body)
