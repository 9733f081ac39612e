"""Tokenizers for transformers that split texts as runs do."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rrnn.tasks.classify.prepare import PADDING
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.corpus import EMBEDDED, END, UNKNOWN
from rrnn.tasks.data.text_files import QUOTES, TOKEN
from rrnn.tasks.lm.trained import START, TrainedLanguageModel
from rrnn.tasks.vocabulary import Vocabulary


def tokenizer_of(model: TrainedLanguageModel | TrainedClassifier) -> PreTrainedTokenizerFast | None:
    """Return a tokenizer that splits a line as the model's training did, and gives tokens the ids of its vocabulary.
    None where the way of splitting has no such form. A language model's text begins with its start symbol.

    Without an unknown word in the vocabulary, a word that is not in it is an error, as it is in the run."""
    tokenizer = _by_words(model) if model.tokenizer is None else _without_processor(model.tokenizer.made)
    if tokenizer is None:
        return None
    special = {"pad_token": PADDING}
    if isinstance(model, TrainedLanguageModel):
        special = {"bos_token": START, "eos_token": END, "pad_token": END}
    if "bos_token" in special:
        start = (START, model.vocabulary.number(START))
        tokenizer.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
            single=f"{START} $A", special_tokens=[start]
        )
    known: dict[str, Any] = {name: token for name, token in special.items() if token in model.vocabulary}
    if model.vocabulary.unknown is not None:
        known["unk_token"] = model.vocabulary.unknown
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="left" if "bos_token" in known else "right", **known
    )


def _by_words(model: TrainedLanguageModel | TrainedClassifier) -> Tokenizer | None:
    """Return a tokenizer for a model whose texts are split by our own rules; None where these have no such form."""
    if isinstance(model, TrainedLanguageModel):
        if model.config.level == "char":
            return _tokenizer(model.vocabulary, "char", False)
        words = model.config.tokens == "text" or model.config.data == EMBEDDED
        return _tokenizer(model.vocabulary, "words" if words else "space", False)
    ways = {"none": ("space", False), "lower": ("space", True), "text": ("words", True)}
    cleaning = model.config.cleaning or "text"
    return _tokenizer(model.vocabulary, *ways[cleaning]) if cleaning in ways else None


def _without_processor(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that adds no special tokens to texts: runs do without those of the file."""
    content = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(json.dumps(content | {"post_processor": None}))


def _tokenizer(words: Vocabulary, way: str, lower: bool) -> Tokenizer:
    table = {word: number for number, word in enumerate(words.words)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token=words.unknown or UNKNOWN))
    steps: list[Any] = [normalizers.Lowercase()] if lower else []
    if way == "char":
        split: Any = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    elif way == "space":
        split = pre_tokenizers.WhitespaceSplit()
    else:
        steps += [normalizers.Replace(chr(old), chr(new)) for old, new in QUOTES.items()]
        split = pre_tokenizers.Split(Regex(f"(?i){TOKEN.pattern}"), "removed", invert=True)
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.pre_tokenizer = split
    return tokenizer
