"""Tokenizers for transformers that split texts as runs do."""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.corpus import EMBEDDED, END, UNKNOWN
from rrnn.tasks.data.text_files import QUOTES, TOKEN
from rrnn.tasks.lm.trained import START, TrainedLanguageModel
from rrnn.tasks.vocabulary import Vocabulary


def tokenizer_of(model: TrainedLanguageModel | TrainedClassifier) -> PreTrainedTokenizerFast | None:
    """Return a tokenizer that splits a line as the model's training did, and gives tokens the ids of its vocabulary.
    None where the way of splitting has no such form. A language model's text begins with its start symbol.

    Without an unknown word in the vocabulary, a word that is not in it is an error, as it is in the run."""
    if isinstance(model, TrainedLanguageModel):
        config = model.config
        if config.level == "char":
            way = "char"
        else:
            way = "words" if config.tokens == "text" or config.data == EMBEDDED else "space"
        lower, special = False, {"bos_token": START, "eos_token": END, "pad_token": END}
    else:
        ways = {"none": ("space", False), "lower": ("space", True), "text": ("words", True)}
        if (model.config.cleaning or "text") not in ways:
            return None
        way, lower = ways[model.config.cleaning or "text"]
        special = {"pad_token": model.vocabulary.words[0]}
    tokenizer = _tokenizer(model.vocabulary, way, lower)
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
