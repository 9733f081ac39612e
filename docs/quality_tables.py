"""Tables of quality: perplexities of language models and accuracies of text classifiers, beside the paper's."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence

from figures import (
    NOTHING,
    RESULTS,
    Row,
    interval,
    named,
    number,
    paragraph,
    results,
    rows,
    signed,
    table,
    unique,
)
from goals import count
from lm_tables import started_too_large

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
STARTED = "-start"


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
    """Return those of a size that were trained by a recipe and evaluated on test. A model that was trained once more
    with a start that was tried out counts with this one."""
    found = [
        r
        for r in runs
        if round(r["params"] / 1e6) == millions and r["test_ppl"] and r["label"].startswith(recipe)
    ]
    again = {r["model"] for r in found if r["label"].endswith(STARTED)}
    return [r for r in found if r["model"] not in again or r["label"].endswith(STARTED)]


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
        here = [r for size in (10, 24) for r in lm_rows_of(runs, size, recipe)]
        groups = [
            [r for r in here if (r["model"], r["label"], r["layers"]) == key]
            for key in unique((r["model"], r["label"], r["layers"]) for r in here)
        ]
        return sorted(mean(r["test_ppl"] for r in g) - g[0]["paper_test"] for g in groups)

    literal, averaged = distances("literal"), distances("averaged")
    by_paper, by_ours = (sum(d <= 0 for d in found) for found in (literal, averaged))

    def gaps(label: str) -> tuple[str, str]:
        """Return how many accuracies reach the paper's, "1 of 15", and how far they are above it on each data set."""
        here = {
            data: sorted(r["mean"] - r["paper"] for r in texts if (r["dataset"], r["label"]) == (data, label))
            for data in ACCURACIES
        }
        every = [gap for found in here.values() for gap in found]
        told = (
            f"{signed(found[0])} to {signed(found[-1])} on {ACCURACIES[data]}" for data, found in here.items()
        )
        return f"{sum(gap >= 0 for gap in every)} of {len(every)}", ", ".join(told)

    (plain_reach, plain_gaps), (reach, better_gaps) = gaps("averaged"), gaps("averaged-reviews")

    too_large = started_too_large(r for size in (10, 24) for r in lm_rows_of(runs, size, "literal"))
    language = f"""
        - **Language models: with the paper's recipe, {by_paper} of {len(literal)} rows reach the paper's test
        perplexities**; they differ from these by {signed(literal[0])} to {signed(literal[-1])}. {too_large} **With a
        recipe that goes beyond the paper's, {by_ours} of {len(averaged)} rows reach them**; most of its settings were
        chosen for F. {_further(runs)}
    """
    classes = f"""
        - **Text classification: with GloVe's vectors alone, {plain_reach} rows reaches the paper's accuracy**; they
        differ from these by {plain_gaps}. Our vectors are smaller than the paper's, and all rows use averaged weights.
        **With features of letters and vectors learned from reviews added, {reach} rows reach them** ({better_gaps}).
    """
    missed, every = count()
    goals = f"""- **Goals: {missed} of the {every} that were set beforehand were missed**, each size and way of
        measuring counted for itself."""
    return paragraph(language) + paragraph(classes) + paragraph(goals)


def _lstm_beside(runs: Sequence[Row]) -> str:
    """Say what the LSTM with the techniques of F's best setting reaches, if it was trained."""
    found = [r["test_ppl"] for r in runs if r["label"] == "best" and r["model"] == "LSTM"]
    if not found:
        return ""
    seeds = "one seed" if len(found) == 1 else f"{len(found)} seeds"
    return f""" An LSTM of three layers with the same techniques, for which nothing was searched and which stops early,
        has {number(mean(found))} ({seeds})."""


def _further(runs: Sequence[Row]) -> str:
    """Say what the best setting reaches, if it was trained."""
    best = [r["test_ppl"] for r in runs if r["label"] == "best" and r["model"] == "RRNN(F)"]
    if not best:
        return ""
    of = f"the mean of {len(best)} seeds" if len(best) > 1 else "one seed"
    return f"""
        The best setting that was found for F, with four layers and word dropout, reaches {number(mean(best))} at 24M
        ({of}); it was searched for F alone.{_lstm_beside(runs)}
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
                    interval(low, high),
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
