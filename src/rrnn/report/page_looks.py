"""The parts of a report that need the trained models: examples explained, phrases, samples.

A run whose model or data are not at hand does not spoil the report: the reason stands in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from rrnn.errors import RRNNError
from rrnn.interpret import Phrase
from rrnn.report.explain_html import inside, signed, words_line
from rrnn.report.page_parts import DASH, rows_of, scrolling, swatch
from rrnn.report.page_runs import Reported
from rrnn.tasks.classify.examples import choose_examples, has_words, strongest_units
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.classify.prepare import read_dataset
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.labelled import Example
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.load import load

CANDIDATES = 500
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


def _phrases(run: Reported, index: int, model: TrainedClassifier, dev: Sequence[Example]) -> str:
    title = f"<h4>{swatch(index)}{escape(run.name)}</h4>"
    label = model.labels[-1]
    try:
        units = strongest_units(model, dev, label)
    except RRNNError as error:
        return f'<article>{title}\n<p class="note">{escape(str(error))}</p></article>'
    rows = [
        [
            f'{unit.phrases.unit} <span class="note">{"for" if unit.slope > 0 else "against"} {escape(label)}</span>',
            _listed(unit.phrases.positive),
            _listed(unit.phrases.negative),
        ]
        for unit in units
    ]
    both = any(unit.phrases.negative for unit in units)
    head = ["unit", "raise it" if both else "strongest", "lower it"]
    cut = len(head) if both else len(head) - 1
    table = rows_of(head[:cut], (row[:cut] for row in rows))
    return f"<article>{title}\n{scrolling(table, f'Phrases of the units of {run.name}')}</article>"


def _listed(phrases: Sequence[Phrase]) -> str:
    """Each on a line of its own, its weight after it."""
    lines = (
        f'<li>{escape(phrase.text or "∅")} <span class="note">{signed(phrase.weight, 2)}</span></li>'
        for phrase in phrases
    )
    return f'<ul class="phrases">{"".join(lines)}</ul>' if phrases else DASH
