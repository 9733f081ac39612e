"""Vocabularies: words and their ids."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from pathlib import Path

import numpy as np

from rrnn.errors import DataError, FormatError
from rrnn.files import read_json

_FORMAT = "rrnn-vocabulary"
_VERSION = 1


class Vocabulary:
    """A list of distinct words. The id of a word is its position; `unknown` replaces words that are not in the list."""

    def __init__(self, words: Sequence[str], unknown: str | None = None) -> None:
        self.words = list(words)
        self.unknown = unknown
        self._numbers = {word: number for number, word in enumerate(self.words)}
        if len(self._numbers) != len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise DataError(f"the words of a vocabulary must be distinct, but {twice[0]!r} occurs twice")
        if unknown is not None and unknown not in self._numbers:
            raise DataError(f"the unknown word {unknown!r} must be one of the vocabulary's words")

    @classmethod
    def build(
        cls,
        tokens: Iterable[str],
        specials: Sequence[str] = ("<s>",),
        unknown: str | None = None,
        max_size: int | None = None,
        min_count: int = 1,
    ) -> Vocabulary:
        """Build a vocabulary from a text: first the specials, then words by frequency (ties in order of appearance).

        `max_size` counts every word, including specials. Dropping words requires an `unknown` word to replace them; if
        the text already contains it, as the Penn Treebank contains `<unk>`, it keeps its rank.
        """
        counts = Counter(tokens)
        fixed = [*specials, *([unknown] if unknown is not None and unknown not in counts else [])]
        fixed = list(dict.fromkeys(fixed))
        ranked = [word for word, _ in counts.most_common() if word not in fixed]
        kept = [word for word in ranked if counts[word] >= min_count or word == unknown]
        if max_size is not None:
            if max_size <= len(fixed):
                raise DataError(f"max_size={max_size} leaves no room for words besides {', '.join(fixed)}")
            room = max_size - len(fixed)
            if unknown in kept[room:]:
                kept = [*kept[: room - 1], unknown]
            kept = kept[:room]
        if unknown is None and len(kept) < len(ranked):
            raise DataError(
                f"max_size and min_count drop {len(ranked) - len(kept)} of {len(ranked)} words, so a word must "
                "replace them: pass unknown='<unk>'"
            )
        return cls([*fixed, *kept], unknown)

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """Return the ids of the tokens, as int64."""
        numbers = self._numbers
        if self.unknown is not None:
            found = map(numbers.get, tokens, repeat(numbers[self.unknown]))
            return np.fromiter(found, np.int64)
        try:
            return np.fromiter(map(numbers.__getitem__, tokens), np.int64)
        except KeyError as error:
            raise DataError(
                f"the word {error.args[0]!r} is not one of the vocabulary's {len(self)} words, and there is no "
                "unknown word: build the vocabulary with unknown='<unk>'"
            ) from None

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the words of these ids."""
        numbers = [int(number) for number in ids]
        wrong = next((number for number in numbers if not 0 <= number < len(self.words)), None)
        if wrong is not None:
            raise DataError(f"a word id must lie between 0 and {len(self) - 1}; got {wrong}")
        return [self.words[number] for number in numbers]

    def number(self, word: str) -> int:
        """Return the id of one word, or of the unknown word."""
        return int(self.encode([word])[0])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.words == other.words and self.unknown == other.unknown

    __hash__ = None  # type: ignore[assignment]  # a list of words: compared, never a key

    def __repr__(self) -> str:
        unknown = f", unknown={self.unknown!r}" if self.unknown is not None else ""
        return f"<Vocabulary of {len(self)} words{unknown}>"

    def save(self, path: str | Path) -> None:
        """Write the vocabulary as JSON, completely or not at all."""
        path = Path(path)
        content = {"format": _FORMAT, "version": _VERSION, "unknown": self.unknown, "words": self.words}
        text = json.dumps(content, ensure_ascii=False, indent=0)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read what `save` wrote."""
        try:
            content = read_json(path)
        except FileNotFoundError:
            raise FormatError("there is no such file", source=str(path)) from None
        except ValueError as error:  # JSON and UTF-8 alike
            raise FormatError(f"a vocabulary is a JSON file: {error}", source=str(path)) from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise FormatError(f'a vocabulary is JSON with "format": "{_FORMAT}"', source=str(path))
        if content.get("version") != _VERSION:
            raise FormatError(
                f"this rrnn reads vocabularies of version {_VERSION}, not {content.get('version')!r}",
                source=str(path),
            )
        words, unknown = content.get("words"), content.get("unknown")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise FormatError('"words" must be a list of strings', source=str(path))
        if unknown is not None and not isinstance(unknown, str):
            raise FormatError('"unknown" must be a string or null', source=str(path))
        try:
            return cls(words, unknown)
        except DataError as error:
            raise FormatError(str(error), source=str(path)) from None
