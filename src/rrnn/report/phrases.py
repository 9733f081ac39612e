"""What the units of a text classifier look for, over many texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from rrnn.errors import AutomatonError, DataError
from rrnn.interpret import Phrase, Reading, UnitPhrases, phrases, read
from rrnn.nn import RationalRNN
from rrnn.report.explain import check_classifier
from rrnn.tasks.classify.trained import TrainedClassifier

_BATCH_TOKENS = 2**11  # with 150 units about as much as the processor's cache can hold


def text_phrases(
    model: TrainedClassifier, texts: Iterable[str], top: int = 5, *, backward: bool = False
) -> list[UnitPhrases]:
    """The strongest phrases of the first layer's units in these texts; a phrase's `sentence` is its text's number."""
    check_classifier(model)
    if isinstance(texts, str):
        raise DataError("text_phrases takes a list of texts; got one text: write text_phrases(model, [text])")
    first = model.module.layers[0]
    if not isinstance(first, RationalRNN):
        raise AutomatonError(
            f"{model.config.cell} has no automata inside, so there are no phrases that they look for"
        )
    tokens = [model.tokenise(text) for text in texts]
    order = sorted((i for i, words in enumerate(tokens) if words), key=lambda i: len(tokens[i]))
    found = phrases(_readings(model, first, [tokens[i] for i in order], backward), top)

    def placed(some: tuple[Phrase, ...]) -> tuple[Phrase, ...]:
        return tuple(replace(phrase, sentence=order[phrase.sentence]) for phrase in some)

    return [replace(unit, positive=placed(unit.positive), negative=placed(unit.negative)) for unit in found]


def _readings(
    model: TrainedClassifier, first: RationalRNN, sentences: list[list[str]], backward: bool
) -> Iterator[Reading]:
    """Of sentences, short ones first, in batches of about equal numbers of tokens."""
    module, start = model.module, 0
    while start < len(sentences):
        stop = start + 1
        while stop < len(sentences) and (stop + 1 - start) * len(sentences[stop]) <= _BATCH_TOKENS:
            stop += 1
        some = sentences[start:stop]
        ids = [torch.as_tensor(model.encode(words)) for words in some]
        with torch.no_grad():
            x = module.embed(torch.nn.utils.rnn.pad_sequence(ids).to(module.embedding.device))
        yield read(first, x, some, backward=backward)
        start = stop
