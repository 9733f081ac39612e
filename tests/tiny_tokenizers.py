"""Train small tokenizers of every kind, and write them as tokenizer.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "the film is not very good at all",
    "a good film, and a very good end",
    "Anna likes tea; Ben and Carl like coffee",
    "unhappy endings are not unlikely",
    "naïve café — £3.50",
] * 4


def byte_level(size: int = 300) -> Tokenizer:
    """Return a tokenizer like that of GPT-2: every byte has a token, and there is no unknown one."""
    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {
        "vocab_size": size,
        "special_tokens": ["<|endoftext|>"],
        "show_progress": False,
    }
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(initial_alphabet=alphabet, **options))
    return made


def word_piece() -> Tokenizer:
    """Return a tokenizer like that of BERT: lower case, ##pieces, [CLS] and [SEP] around a text, and it cuts texts."""
    made: Any = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=80, special_tokens=special, show_progress=False)
    )
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_truncation(6)
    made.enable_padding(pad_id=0, pad_token="[PAD]", length=10)
    return made


def unigram() -> Tokenizer:
    """Return a tokenizer like those of SentencePiece: ▁ marks blanks, and <s>, </s> and <unk> are there."""
    made: Any = Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    made.train_from_iterator(
        TEXTS,
        trainers.UnigramTrainer(
            vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False
        ),
    )
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "word-piece": word_piece,
    "unigram": unigram,
}


def write_tokenizer(path: Path, kind: str = "byte-level") -> Path:
    """Write a tokenizer.json, and return its path."""
    path.write_text(KINDS[kind]().to_str(), encoding="utf-8")
    return path
