"""The parts of a report that need the trained models: examples explained, phrases, samples.

A run whose model or data are not at hand does not spoil the report: the reason stands in their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from rrnn.errors import RRNNError
from rrnn.interpret import Phrase
from rrnn.report.explain import explain
from rrnn.report.explain_html import inside, signed, words_line
from rrnn.report.page_parts import DASH, rows_of, scrolling, swatch
from rrnn.report.page_runs import Reported
from rrnn.report.phrases import text_phrases
from rrnn.tasks.classify.prepare import read_dataset
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.labelled import Example
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.runs import load

EXAMPLES = 3
UNITS, PHRASES = 6, 3
PHRASE_TEXTS, RANKED_TEXTS, CANDIDATES = 300, 24, 500
SHORTEST, LONGEST = 4, 22  # words of an example: enough to see something, few enough to see it at once
SHOWN = 0.03  # of the largest number behind a word: smaller ones are left out
SAMPLES, SAMPLE_WORDS, SAMPLE_CHARACTERS, TEMPERATURE = 2, 45, 260, 0.8


def looks(runs: Sequence[Reported]) -> str:
    """What the models of a group of runs, all of one task, have to show."""
    models: dict[int, Any] = {}
    problems = []
    for i, run in enumerate(runs):
        try:
            models[i] = load(run.run.folder)
        except RRNNError as error:
            problems.append(
                f'<p class="note">{escape(run.name)} has nothing to show: {escape(str(error))}</p>'
            )
    is_lm = runs[0].run.config["task"] == "lm"
    body = (_samples(runs, models) if is_lm else _classifiers(runs, models)) if models else ""
    return "\n".join([body, *problems])


# ---- language models -------------------------------------------------------------------------------------------------


def _samples(runs: Sequence[Reported], models: dict[int, TrainedLanguageModel]) -> str:
    cards = "\n".join(
        f"<article><h4>{swatch(i)}{escape(runs[i].name)}</h4>\n"
        + "\n".join(f"<blockquote>{escape(_sample(model, seed))}</blockquote>" for seed in range(SAMPLES))
        + "</article>"
        for i, model in models.items()
    )
    note = f"Drawn word by word at temperature {TEMPERATURE}, with the same random numbers for every model."
    return f'<h3>Samples</h3>\n<p class="note">{note}</p>\n<div class="cards">\n{cards}\n</div>'


def _sample(model: TrainedLanguageModel, seed: int) -> str:
    length = SAMPLE_CHARACTERS if model.config.level == "char" else SAMPLE_WORDS
    return model.generate(length=length, temperature=TEMPERATURE, seed=seed).strip()


# ---- classifiers -----------------------------------------------------------------------------------------------------


def _classifiers(runs: Sequence[Reported], models: dict[int, TrainedClassifier]) -> str:
    first = next(iter(models))
    try:
        dev = read_dataset(models[first].config).dev
    except (RRNNError, OSError) as error:
        return f'<h3>Examples</h3>\n<p class="note">The data are not at hand: {escape(str(error))}</p>'
    dev = [example for example in dev[:CANDIDATES] if has_words(example, models.values())]
    chosen = choose_examples(dev, list(models.values()))
    examples = "\n".join(_example(runs, models, example) for example in chosen)
    phrases = "\n".join(_phrases(runs[i], i, model, dev) for i, model in models.items())
    side = "Green words speak for the predicted label, red ones against it."
    return (
        f'<h3>Examples</h3>\n<p class="note">From the development set of {escape(runs[first].name)}. {side} The number '
        "behind a word, where it is not small, is what the label's margin loses without it: the whole model, run on "
        "the shorter text.</p>\n"
        f"{examples}\n<h3>What units look for</h3>\n"
        '<p class="note">The units of the first layer that add most, which label their high scores speak for or '
        "against, and the strongest phrases that they found. [Skipped] words pass through a self-loop, ε drops a word; "
        "the number is the product of the weights.</p>\n"
        f'<div class="units">\n{phrases}\n</div>'
    )


def has_words(example: Example, models: Iterable[TrainedClassifier]) -> bool:
    """For each of them: what one keeps as a word another may clean away."""
    return all(model.tokenise(" ".join(example.tokens)) for model in models)


def choose_examples(
    dev: Sequence[Example], models: Sequence[TrainedClassifier], most: int = EXAMPLES
) -> list[Example]:
    """Of each label a text that the fewest models get wrong, and last the one that most of them get most wrong."""
    fitting = _readable(dev)
    if not fitting:
        return []
    rows = np.arange(len(fitting))
    wrong, chance = np.zeros(len(fitting)), np.zeros(len(fitting))
    for model in models:
        truth = [_label_in(model, models[0].labels[example.label]) for example in fitting]
        found = _chances(model, fitting)
        wrong += found.argmax(1) != truth
        chance += found[rows, truth]
    hardest = int(np.lexsort((chance, -wrong))[0])
    mistakes = [hardest] if wrong[hardest] else []
    easiest: dict[int, int] = {}
    for i in np.argsort(wrong, kind="stable").tolist():
        if i not in mistakes:
            easiest.setdefault(fitting[i].label, i)
    return [fitting[i] for i in [*list(easiest.values())[: most - len(mistakes)], *mistakes]]


def _readable(dev: Sequence[Example]) -> list[Example]:
    """Those that one can see at once, or else the shortest."""
    fitting = [example for example in dev if SHORTEST <= len(example.tokens) <= LONGEST]
    return fitting or sorted(dev, key=lambda example: len(example.tokens))[:RANKED_TEXTS]


def _label_in(model: TrainedClassifier, label: str) -> int:
    return model.labels.index(label) if label in model.labels else 0


def _chances(model: TrainedClassifier, examples: Sequence[Example]) -> np.ndarray:
    most = model.config.max_tokens
    return model.probabilities([model.encode(example.tokens[:most]) for example in examples])


def _example(runs: Sequence[Reported], models: dict[int, TrainedClassifier], example: Example) -> str:
    text = " ".join(example.tokens)
    truth = next(iter(models.values())).labels[example.label]
    rows = [_explained(runs[i].name, i, model, text, truth) for i, model in models.items()]
    return f'<article class="example"><h4>Truth: {escape(truth)}</h4>\n' + "\n".join(rows) + "</article>"


def _explained(name: str, index: int, model: TrainedClassifier, text: str, truth: str) -> str:
    head = f"{swatch(index)}<strong>{escape(name)}</strong>"
    try:
        e = explain(model, text)
    except RRNNError as error:
        return f'<div class="explained"><p>{head}: <span class="note">{escape(str(error))}</span></p></div>'
    right = e.label == truth
    verdict = f'<span class="{"right" if right else "wrong"}">{"✓ right" if right else "✗ wrong"}</span>'
    says = f"says {escape(e.label)}, {e.probabilities[e.label]:.1%}"
    chances = ", ".join(f"{escape(label)} {p:.1%}" for label, p in e.probabilities.items())
    return (
        f'<div class="explained"><p>{head} {says} {verdict}</p>\n'
        f"{words_line(e, [word.without for word in e.words], SHOWN)}\n"
        f"<details><summary>Paths and units</summary>\n<p>{chances}; the margin of {escape(e.target)} is "
        f"{signed(e.margin)}.</p>\n{inside(e, heading=5)}\n</details></div>"
    )


@dataclass
class _Weight:
    """What a unit adds to the margin of a label, over several texts."""

    adds: float = 0.0
    slope: float = 0.0


def _phrases(run: Reported, index: int, model: TrainedClassifier, dev: Sequence[Example]) -> str:
    title = f"<h4>{swatch(index)}{escape(run.name)}</h4>"
    label = model.labels[-1]
    try:
        found = {unit.unit: unit for unit in text_phrases(model, _texts(dev[:PHRASE_TEXTS]), PHRASES)}
        weights = _weights(model, _texts(_readable(dev)[:RANKED_TEXTS]), label)
    except RRNNError as error:
        return f'<article>{title}\n<p class="note">{escape(str(error))}</p></article>'
    ranked = sorted(weights.items(), key=lambda item: -item[1].adds)
    rows = [
        [
            f'{unit} <span class="note">{"for" if weight.slope > 0 else "against"} {escape(label)}</span>',
            _listed(found[unit].positive),
            _listed(found[unit].negative),
        ]
        for unit, weight in ranked[:UNITS]
        if unit in found
    ]
    both = any(unit.negative for unit in found.values())
    head = ["unit", "raise it" if both else "strongest", "lower it"]
    cut = len(head) if both else len(head) - 1
    table = rows_of(head[:cut], (row[:cut] for row in rows))
    return f"<article>{title}\n{scrolling(table, f'Phrases of the units of {run.name}')}</article>"


def _texts(examples: Sequence[Example]) -> list[str]:
    return [" ".join(example.tokens) for example in examples]


def _weights(model: TrainedClassifier, texts: Sequence[str], label: str) -> dict[int, _Weight]:
    """Of the units that read forward."""
    weights: dict[int, _Weight] = defaultdict(_Weight)
    for text in texts:
        for unit in explain(model, text, target=label, units=10**6, paths=1).units:
            if unit.direction == "forward":
                weights[unit.unit].adds += abs(unit.adds)
                weights[unit.unit].slope += unit.slope
    return weights


def _listed(phrases: Sequence[Phrase]) -> str:
    """Each on a line of its own, its weight after it."""
    lines = (
        f'<li>{escape(phrase.text or "∅")} <span class="note">{signed(phrase.weight, 2)}</span></li>'
        for phrase in phrases
    )
    return f'<ul class="phrases">{"".join(lines)}</ul>' if phrases else DASH
