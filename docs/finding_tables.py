"""What was found about the paper's claim, in words, with the figures and tests that it rests on; and on what terms."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from figures import (
    RESULTS,
    Row,
    interval,
    named,
    number,
    paragraph,
    plain,
    results,
    row,
    rows,
    signed,
    span,
    table,
    unique,
)
from quality_tables import ACCURACIES, RECIPES, STARTED, TOLD, lm_columns, lm_rows_of, mean, variants, way

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from lm_plan import TRIALS
from lm_rows import STARTS

from rrnn.tasks.paper_tables import Difference, paired

F = "RRNN(F)"
SHORT = {"LSTM": "the LSTM", "RRNN(B)": "B", "RRNN(C)": "C", "RRNN(B) m+": "m+", F: "F"}
PLAIN = "averaged"
LEARNED = 70
"""A test accuracy that no training has which is best at its first epoch: half of the reviews have either label."""
OTHERS = {"lstm-24m-2": "lstm", "B-24m": "B", "C-24m": "C", "B-max-plus-24m": "B-max-plus-scaled"}
"""The rows of our recipe at 24M beside F's → their cells."""
LEAST_PAIRS = 3
"""The fewest pairs of seeds that a paired test is made of: with two, the interval of 95 % is 13 times as wide as
they are apart."""


@named
def finding() -> str:
    """Say whether the paper's claim holds, that F is the best of its models."""
    claim = """
        The paper finds F, the automaton that its authors add to those of known layers, best of its models on the Penn
        Treebank and on three of four sets of texts; on Amazon it is level with C. We find this in part:
    """
    return "\n".join((paragraph(claim), paragraph(_languages()) + paragraph(_texts())))


@named
def finding_in_short() -> str:
    """Say in a few sentences whether F is the best model, for the README."""
    plain_ways, better_ways = _ways()
    every = _comparisons()
    behind = [c for c in every if not c.first]
    led = [sum(_leader(rows("classify/table"), *w) == F for w in ways) for ways in (plain_ways, better_ways)]
    (plain_ahead, plain_pairs), (ahead, pairs) = (_counts(ways, True) for ways in (plain_ways, better_ways))
    lost = [
        f"at {c.size}M with {TOLD[c.recipe]} {SHORT[c.ranked()[0][0]]} is ahead by "
        f"{number(dict(c.ranked())[F] - c.ranked()[0][1])}"
        for c in behind
    ]
    differences = _differences()
    single = sum(len(runs) == 1 for c in every for runs in c.runs.values())
    tested = f"""By pairs of seeds it is ahead beyond chance in {sum(d.ahead for d in differences)} of
        {len(differences)} comparisons, and behind in {sum(d.behind for d in differences)}."""
    untested = f"""{single} of the {sum(len(c.runs) for c in every)} rows are one seed each, and no model has three
        seeds in common with F, so none of this is tested."""
    languages = f"""
        - **Language models:** F has the lowest test perplexity in {len(every) - len(behind)} of {len(every)}
        comparisons on the Penn Treebank{_close(every)}{"; " * bool(lost)}{"; ".join(lost)}.
        {tested if differences else untested} {_unequal()}
    """
    texts = f"""
        - **Text classifiers:** with plain word vectors F has the highest mean accuracy on {led[0]} of
        {len(plain_ways)} data sets, and is ahead beyond chance (paired t, 95 %, uncorrected) in {plain_ahead} of
        {plain_pairs} comparisons. With better vectors it has the highest in {led[1]} of {len(better_ways)} rows, and is
        ahead beyond chance in {ahead} of {pairs} comparisons and behind in {_counts(better_ways, False)[0]}.
    """
    return paragraph(languages) + paragraph(texts)


def _close(every: Sequence[_Comparison]) -> str:
    """Say how often F leads by less than trainings of one row differ."""
    leads = [c.ranked()[1][1] - c.ranked()[0][1] for c in every if c.first]
    count = sum(lead < 0.5 for lead in leads)
    return f" (in {count} of them by less than half a point, which says little)" if count else ""


# ---- language models -------------------------------------------------------------------------------------------------


class _Comparison(NamedTuple):
    """All models of about the same size that were trained by the same recipe."""

    size: int
    recipe: str
    runs: dict[str, list[Row]]

    def ranked(self) -> list[tuple[str, float]]:
        """Return the models and their mean test perplexities, the best first."""
        means = {model: mean(r["test_ppl"] for r in runs) for model, runs in self.runs.items()}
        return sorted(means.items(), key=lambda pair: pair[1])

    @property
    def first(self) -> bool:
        """Whether F is the best."""
        return self.ranked()[0][0] == F


def _comparisons() -> list[_Comparison]:
    found, every = [], rows("lm-ptb/table")
    for size in (10, 24):
        for recipe in RECIPES:
            runs: dict[str, list[Row]] = {}
            for model in unique(r["model"] for r in every):
                kinds = [lm_rows_of(kind, size, recipe) for _, kind in variants(every, model)]
                kinds = [kind for kind in kinds if kind]
                if kinds:  # of m+'s two gates and the LSTM's two depths, the better one
                    runs[model] = min(kinds, key=lambda kind: mean(r["test_ppl"] for r in kind))
            if F in runs and len(runs) > 1:
                found.append(_Comparison(size, recipe, runs))
    return found


def _languages() -> str:
    every = _comparisons()
    first = [c for c in every if c.first]
    leads = []
    for comparison in every:
        ranked = comparison.ranked()
        ours = dict(ranked)[F]
        model, theirs = next(pair for pair in ranked if pair[0] != F)
        told = f"at {comparison.size}M with {TOLD[comparison.recipe]}"
        leads.append(f"{number(ours)} against {number(theirs)} of {SHORT[model]} {told}")
    where = "all" if len(first) == len(every) else f"{len(first)} of {len(every)}"
    tests = _paired()
    single = sum(len(runs) == 1 for c in every for runs in c.runs.values())
    rows_of = sum(len(c.runs) for c in every)
    few = f"{single} of these {rows_of} rows are one seed each. " if single else ""
    untested = "No model has three seeds in common with F, so there is no paired test."
    return f"""
        - **On the Penn Treebank F has the lowest perplexity in {where} comparisons**{_close(every)}.
        On test, F and the best other model:
        {"; ".join(leads)}. {few}{tests or untested} {_seed_noise()} {_unequal()}
    """


def _unequal() -> str:
    tried = settings_tried("F-24m", "F")
    others = span((settings_tried(row, cell) for row, cell in OTHERS.items()), 0)
    return f"""With our recipe {tried} settings of F were tried at 24M, and {others} of each other model, perhaps a
        part of its lead."""


@named
def seed_noise() -> str:
    """Say how far the seeds of one row lie apart."""
    return paragraph(_seed_noise())


def _seed_noise() -> str:
    every = rows("lm-ptb/table")

    def spread(runs: list[Row], split: str) -> float:
        values = [r[f"{split}_ppl"] for r in runs]
        return max(values) - min(values)

    def name(r: Row) -> str:
        how = {"averaged": " with our recipe", "best": " with the best setting"}
        recipe = how.get(r["label"], " with the paper's recipe" * r["label"].startswith("literal"))
        return f"at {r['params'] / 1e6:.0f}M{recipe}"

    def key(r: Row) -> tuple[Any, ...]:
        return r["model"], r["label"], r["layers"], round(r["params"] / 1e7)

    many = [runs for k in unique(map(key, every)) if len(runs := [r for r in every if key(r) == k]) > 1]
    test, dev = (span(spread(runs, split) for runs in many) for split in ("test", "dev"))
    models: dict[str, list[str]] = {}
    for first, *_ in many:
        models.setdefault(name(first), []).append(SHORT[first["model"]])
    names = ", ".join(f"{_listed(own)} {where}" for where, own in models.items())
    return f"The trainings of a row with several seeds ({names}) differ by {test} on test and {dev} on dev."


class _Difference(NamedTuple):
    """How much lower F's test perplexity is than another model's, by pairs of trainings with the same seed."""

    comparison: _Comparison
    model: str
    test: Difference

    @property
    def ahead(self) -> bool:
        return self.test.low > 0

    @property
    def behind(self) -> bool:
        return self.test.high < 0


def _differences() -> list[_Difference]:
    """Return the differences between F and models that have enough seeds in common with it."""
    found = []
    for comparison in _comparisons():
        ours = {r["seed"]: r["test_ppl"] for r in comparison.runs[F]}
        for model, runs in comparison.runs.items():
            gains = [r["test_ppl"] - ours[r["seed"]] for r in runs if r["seed"] in ours]
            if model != F and len(gains) >= LEAST_PAIRS:
                found.append(_Difference(comparison, model, paired(gains, model)))
    return found


def _paired() -> str:
    """Say where F is ahead of or behind models with the same seeds, beyond chance."""
    every = _differences()
    if not every:
        return ""

    def where(some: list[_Difference]) -> str:
        told = []
        for comparison in _comparisons():
            over = [SHORT[d.model] for d in some if d.comparison == comparison]
            if over:
                told.append(f"{_listed(over)} at {comparison.size}M with {TOLD[comparison.recipe]}")
        return f" ({'; '.join(told)})" if told else ""

    ahead, behind = [d for d in every if d.ahead], [d for d in every if d.behind]
    return (
        f"By pairs of seeds (paired t, 95 %, not corrected for the number of comparisons) F is ahead beyond chance in "
        f"{len(ahead)} of {len(every)} comparisons{where(ahead)} and behind in {len(behind)}{where(behind)}."
    )


@named
def lm_differences() -> str:
    """List the paired tests of F against other models."""
    body = [
        (
            f"{d.comparison.size}M, {TOLD[d.comparison.recipe]}",
            SHORT[d.model],
            d.test.seeds,
            signed(d.test.mean),
            interval(d.test.low, d.test.high),
            "yes" if d.ahead or d.behind else "",
        )
        for d in _differences()
    ]
    head = "where | F against | seeds: | lower by: | 95 %: | beyond chance"
    return table(head, body) if body else "*No other model has three seeds in common with F yet.*\n"


def settings_tried(row: str, cell: str) -> int:
    """Return how many settings of a cell were compared for a row of our recipe, the chosen one included."""
    folder = RESULTS / "lm-ptb"
    configs = [path.read_text(encoding="utf-8") for path in (folder / "tried").glob(f"{row}-*/config.json")]
    left = [config for config in configs if json.loads(config)["cell"] == cell]
    return 1 + len(left) + len([*(folder / "stopped").glob(f"{row}-kept-*")]) + starts_tried(row)


def starts_tried(row: str) -> int:
    """Return in how many short trainings a start was tried that a row does not have."""
    return max(0, len([*(RESULTS / "lm-ptb" / "gains").glob(f"{row}-*")]) - 1)


# ---- text classifiers ------------------------------------------------------------------------------------------------


def _texts() -> str:
    every = rows("classify/table")
    plain_ways, better_ways = _ways()
    first, led = ([w for w in some if _leader(every, *w) == F] for some in (plain_ways, better_ways))
    where = _listed([_way(*w) for w in led]) or "none"
    return f"""
        - **Text classifiers with F lead with plain word vectors, and mostly not with better ones.** With GloVe's
        of length 1, F has the highest mean accuracy on {_listed([data for data, _ in first])}, and is
        ahead beyond chance (paired t, 95 %, not corrected for their number) in
        {_beyond(plain_ways, True)}. With longer vectors, features of letters or vectors learned from reviews it has the
        highest mean in {len(led)} of {len(better_ways)} rows ({where}), and is ahead beyond chance in
        {_beyond(better_ways, True)}, and behind in {_beyond(better_ways, False)}. {_terms()}
    """


Ways = list[tuple[str, str]]
"""Data sets, and the labels of how their texts were read."""


def _ways() -> tuple[Ways, Ways]:
    """Return where the models have plain word vectors, and where they have better ones."""
    ways = unique((r["dataset"], r["label"]) for r in rows("classify/table"))
    return [way for way in ways if way[1] == PLAIN], [way for way in ways if way[1] != PLAIN]


def _tests(data: str, label: str, ahead: bool) -> tuple[list[Row], int]:
    """Return the tests by which F is ahead of another model beyond chance (or behind), and how many there are."""
    found = [
        d
        for d in (results("classify/table") or {})["differences"]
        if (d["dataset"], d["label"], d["to_label"], d["model"]) == (data, label, label, F)
    ]
    return [d for d in found if (d["low"] > 0 if ahead else d["high"] < 0)], len(found)


def _counts(ways: Ways, ahead: bool) -> tuple[int, int]:
    """Return in how many comparisons F is ahead beyond chance (or behind), and how many there are."""
    found = [_tests(*way, ahead) for way in ways]
    return sum(len(beyond) for beyond, _ in found), sum(pairs for _, pairs in found)


def _beyond(ways: Ways, ahead: bool) -> str:
    """Say in how many of the comparisons F is ahead of the other models beyond chance, or behind, and where."""
    told, (count, pairs) = list[str](), _counts(ways, ahead)
    for data, label in ways:
        beyond, _ = _tests(data, label, ahead)
        gains = "" if ahead else f" ({', '.join(signed(d['mean']) for d in beyond)})"
        if beyond:
            over = _listed([SHORT[d["reference"]] for d in beyond])
            told.append(f"on {_way(data, label)} {'over' if ahead else 'against'} {over}{gains}")
    of = f"{count} of {pairs} comparisons" if ahead else f"{count}"
    return f"{of}{': ' * bool(told)}{', '.join(told)}"


def _way(data: str, label: str) -> str:
    return data if label == PLAIN else f"{data} with {way('', label)}"


def _terms() -> str:
    """Say on what terms the models were compared, and where the LSTM had others."""
    file = RESULTS / "classify" / "LSTM-amazon+averaged.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    cut = sum("stopped" in line for line in lines)
    finals = sorted(line["test"] for line in lines if line["kind"] == "final")
    learned = [test for test in finals if test > LEARNED]
    ours = row("classify/table", model=F, dataset="amazon", label=PLAIN)["mean"]
    never = len(finals) - len(learned)
    return f"""
        On a data set all models had equally many settings and seeds. The LSTM on amazon with plain vectors had more
        patience, {cut} settings cut by a time limit and no second look; {never} of its {len(finals)} trainings never
        learned, the others ({", ".join(map(number, learned))}) are above F's mean of {number(ours)}.
    """


def _leader(every: Iterable[Row], data: str, label: str) -> str:
    here = [r for r in every if (r["dataset"], r["label"]) == (data, label)]
    return max(here, key=lambda r: r["mean"])["model"]


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


# ---- terms -----------------------------------------------------------------------------------------------------------


@named
def quality_terms() -> str:
    """Say for each figure of the table of quality how many settings it was chosen from, and its seeds or splits."""
    lm, texts, body = rows("lm-ptb/table"), rows("classify/table"), []
    columns = lm_columns(lm)
    for model in unique(r["model"] for r in texts):
        here = [
            f"{r['trials']} / {r['seeds']}"
            for data in ACCURACIES
            for r in texts
            if (r["dataset"], r["model"], r["label"]) == (data, model, PLAIN)
        ]
        for i, (name, runs) in enumerate(variants(lm, model)):
            cells = []
            for size, recipe in columns:
                found = lm_rows_of(runs, size, recipe)
                of = f"{plain(model)}-{size}m"
                cell = of.rpartition("-")[0] + ("-scaled" if "gate" in name else "")
                begun = any(r["label"].endswith(STARTED) for r in found)
                literal = 1 + starts_tried(of) + begun * len(STARTS)
                tried = {"literal": literal, "equal": TRIALS}.get(recipe) or settings_tried(of, cell)
                cells.append(f"{tried} / {len(found)}" if found else "")
            body.append((name, *cells, *(here if i == 0 else [""] * len(here))))
    titles = [f"PTB {size}M, {RECIPES[recipe]}:" for size, recipe in columns]
    return table(" | ".join(["model", *titles, *(f"{title}:" for title in ACCURACIES.values())]), body)
