"""What was found about the paper's claim, in words, with the figures and tests that it rests on; and on what terms."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from figures import RESULTS, Row, named, number, paragraph, plain, results, rows, signed, table, unique
from quality_tables import ACCURACIES, RECIPES, TOLD, lm_columns, lm_rows_of, mean, variants

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from lm_plan import TRIALS

from rrnn.tasks.paper_tables import Difference, paired

F = "RRNN(F)"
SHORT = {"LSTM": "the LSTM", "RRNN(B)": "B", "RRNN(C)": "C", "RRNN(B) m+": "m+", F: "F"}
PLAIN = "averaged"
BETTER = {
    "sst": "averaged-reviews",
    "subj": "averaged-reviews",
    "cr": "averaged-reviews",
    "amazon": "averaged-longer-vectors",
}
"""Data set → the label of its rows with the best word vectors."""
OTHERS = ("B", "C", "B-max-plus-scaled")


@named
def finding() -> str:
    """Say whether the paper's claim holds, that F is the best of its models."""
    every = _comparisons()
    first = [c for c in every if c.first]
    most = "all" if len(first) == len(every) else f"{len(first)} of {len(every)}"
    claim = f"""
        The claim of the paper is that F, the automaton that its authors add to those of known layers, is the best of
        its models. We find this in {most} comparisons of language models; for text classifiers we find it with plain
        word vectors, and not with better ones.
    """
    return "\n".join((paragraph(claim), paragraph(_languages()) + paragraph(_texts())))


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
    spans = [
        max(r["test_ppl"] for r in runs) - min(r["test_ppl"] for r in runs)
        for c in every
        for runs in c.runs.values()
        if len(runs) > 2
    ]
    rows_of = sum(len(c.runs) for c in every)
    few = f"{single} of these {rows_of} rows are one seed each. " if single else ""
    untested = "No pair of models has two seeds in common, so there is no paired test."
    tried = settings_tried("F-24m", "F")
    others = sorted({settings_tried(f"{cell.removesuffix('-scaled')}-24m", cell) for cell in OTHERS})
    return f"""
        - **On the Penn Treebank F has the lowest perplexity in {where} comparisons.** On test, F and the best other
        model:
        {"; ".join(leads)}. {few}{tests or untested} Three seeds of a row
        differ by at most {number(max(spans))}. With our recipe F had more settings tried than the others
        ({tried} at 24M, where they had {" or ".join(map(str, others))} each), which may be a part of its lead there.
    """


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
    """Return the differences between F and models that have seeds in common with it."""
    found = []
    for comparison in _comparisons():
        ours = {r["seed"]: r["test_ppl"] for r in comparison.runs[F]}
        for model, runs in comparison.runs.items():
            gains = [r["test_ppl"] - ours[r["seed"]] for r in runs if r["seed"] in ours]
            if model != F and len(gains) > 1:
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
            f"{signed(d.test.low)} to {signed(d.test.high)}",
            "yes" if d.ahead or d.behind else "",
        )
        for d in _differences()
    ]
    head = "where | F against | seeds: | lower by: | 95 %: | beyond chance"
    return table(head, body) if body else "*No other model has two seeds in common with F yet.*\n"


def settings_tried(row: str, cell: str) -> int:
    """Return how many settings of a cell were compared for a row of our recipe, the chosen one included."""
    folder = RESULTS / "lm-ptb"
    configs = [path.read_text(encoding="utf-8") for path in (folder / "tried").glob(f"{row}-*/config.json")]
    left = [config for config in configs if json.loads(config)["cell"] == cell]
    return 1 + len(left) + len([*(folder / "stopped").glob(f"{row}-kept-*")])


# ---- text classifiers ------------------------------------------------------------------------------------------------


def _texts() -> str:
    def ahead(labels: dict[str, str]) -> tuple[str, int, int]:
        """Return (in words, where F is ahead beyond chance; over how many; of how many)."""
        told, count, pairs = list[str](), 0, 0
        for data, label in labels.items():
            found = [
                d
                for d in (results("classify/table") or {})["differences"]
                if (d["dataset"], d["label"], d["to_label"], d["model"]) == (data, label, label, F)
            ]
            over = [SHORT[d["reference"]] for d in found if d["low"] > 0]
            told.append(f"on {data} over {_listed(over) or 'none'}")
            count, pairs = count + len(over), pairs + len(found)
        return ", ".join(told), count, pairs

    every = rows("classify/table")
    best = [data for data, label in BETTER.items() if _leader(every, data, label) == F]
    first = [data for data in BETTER if _leader(every, data, PLAIN) == F]
    with_plain, count, pairs = ahead(dict.fromkeys(BETTER, PLAIN))
    with_better, later, _ = ahead(BETTER)
    return f"""
        - **In text classification the claim holds with plain word vectors, and not with better ones.** With GloVe's
        vectors, scaled to length 1, F has the highest mean accuracy on {_listed(first)}, and is ahead beyond chance
        (paired t, 95 %, not corrected for the number of comparisons) in {count} of {pairs} comparisons: {with_plain}.
        With better vectors (longer ones; on sst, subj and cr also features of letters and vectors learned from reviews)
        it has the highest mean on {_listed(best) or "none of them"}, and is ahead beyond chance in {later}:
        {with_better}. On each data set every model had the same number of settings and seeds.
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
                row = f"{plain(model)}-{size}m"
                cell = row.rpartition("-")[0] + ("-scaled" if "gate" in name else "")
                tried = {"literal": 1, "equal": TRIALS}.get(recipe) or settings_tried(row, cell)
                cells.append(f"{tried} / {len(found)}" if found else "")
            body.append((name, *cells, *(here if i == 0 else [""] * len(here))))
    titles = [f"PTB {size}M, {RECIPES[recipe]}:" for size, recipe in columns]
    return table(" | ".join(["model", *titles, *(f"{title}:" for title in ACCURACIES.values())]), body)
