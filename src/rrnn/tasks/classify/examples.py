"""Choose what to show of text classifiers: telling examples, the units that matter most, and their phrases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from rrnn.errors import AutomatonError, DataError
from rrnn.interpret import Phrase, Reading, UnitPhrases, phrases, read
from rrnn.nn import RationalRNN
from rrnn.tasks.classify.explanations import check_classifier, explain
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.labelled import Example

EXAMPLES = 3
SHORTEST, LONGEST = 4, 22  # words of an example: enough to see something, few enough to see it at once
UNITS, PHRASES = 6, 3
RANKED_TEXTS, PHRASE_TEXTS = 24, 300
"""Texts over which units are ranked, and in which their phrases are searched."""
_PHRASE_TOKENS = 2**11  # of texts in a batch: with 150 units about as much as the processor's cache can hold


def has_words(example: Example, models: Iterable[TrainedClassifier]) -> bool:
    """Return True if every model's tokeniser keeps at least one word of the example."""
    return all(model.tokenise(" ".join(example.tokens)) for model in models)


def choose_examples(
    dev: Sequence[Example], models: Sequence[TrainedClassifier], most: int = EXAMPLES
) -> list[Example]:
    """Choose a text of each label that the fewest models get wrong, and last the one that they get most wrong."""
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
    """Return the examples that can be read at a glance, or if there are none, the shortest ones."""
    fitting = [example for example in dev if SHORTEST <= len(example.tokens) <= LONGEST]
    return fitting or sorted(dev, key=lambda example: len(example.tokens))[:RANKED_TEXTS]


def _label_in(model: TrainedClassifier, label: str) -> int:
    return model.labels.index(label) if label in model.labels else 0


def _chances(model: TrainedClassifier, examples: Sequence[Example]) -> np.ndarray:
    return model.probabilities([model.encode(model.tokenise(text)) for text in _texts(examples)])


@dataclass(frozen=True)
class RankedUnit:
    """A unit of the first layer, with what it adds to the margin of a label over several texts."""

    phrases: UnitPhrases
    adds: float
    """The sum of its absolute contributions."""
    slope: float
    """The mean of its `Unit.slope`: positive where high scores speak for the label."""


def strongest_units(
    model: TrainedClassifier,
    dev: Sequence[Example],
    label: str,
    *,
    most: int = UNITS,
    top: int = PHRASES,
) -> list[RankedUnit]:
    """Return the forward units that add most to the margin of `label`, each with its `top` phrases in `dev`."""
    found = {unit.unit: unit for unit in text_phrases(model, _texts(dev[:PHRASE_TEXTS]), top)}
    adds: dict[int, float] = defaultdict(float)
    slope: dict[int, float] = defaultdict(float)
    texts = _texts(_readable(dev)[:RANKED_TEXTS])
    for text in texts:
        for unit in explain(model, text, target=label, units=10**6, paths=1).units:
            if unit.direction == "forward":
                adds[unit.unit] += abs(unit.adds)
                slope[unit.unit] += unit.slope / len(texts)
    ranked = sorted(adds, key=lambda unit: -adds[unit])[:most]
    return [RankedUnit(found[unit], adds[unit], slope[unit]) for unit in ranked if unit in found]


def _texts(examples: Sequence[Example]) -> list[str]:
    return [" ".join(example.tokens) for example in examples]


def text_phrases(
    model: TrainedClassifier, texts: Iterable[str], top: int = 5, *, backward: bool = False
) -> list[UnitPhrases]:
    """Return the strongest phrases of the first layer's units in these texts; `sentence` is the number of the text."""
    check_classifier(model)
    if isinstance(texts, str):
        raise DataError("text_phrases takes a list of texts; got one text: write text_phrases(model, [text])")
    first = model.module.layers[0]
    if not isinstance(first, RationalRNN):
        raise AutomatonError(f"{model.config.cell} has no automata inside, so its units have no phrases")
    tokens = [model.tokenise(text) for text in texts]
    order = sorted((i for i, words in enumerate(tokens) if words), key=lambda i: len(tokens[i]))
    found = phrases(_readings(model, first, [tokens[i] for i in order], backward), top)

    def placed(some: tuple[Phrase, ...]) -> tuple[Phrase, ...]:
        return tuple(replace(phrase, sentence=order[phrase.sentence]) for phrase in some)

    return [replace(unit, positive=placed(unit.positive), negative=placed(unit.negative)) for unit in found]


def _readings(
    model: TrainedClassifier, first: RationalRNN, sentences: list[list[str]], backward: bool
) -> Iterator[Reading]:
    """Read the sentences, sorted by length, in batches of about the same number of tokens."""
    module, start = model.module, 0
    while start < len(sentences):
        stop = start + 1
        while stop < len(sentences) and (stop + 1 - start) * len(sentences[stop]) <= _PHRASE_TOKENS:
            stop += 1
        some = sentences[start:stop]
        ids = [torch.as_tensor(model.encode(words)) for words in some]
        with torch.no_grad():
            x = module.embed(torch.nn.utils.rnn.pad_sequence(ids).to(module.embedding.device))
        yield read(first, x, some, backward=backward)
        start = stop
