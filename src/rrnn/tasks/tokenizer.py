"""Split texts by a tokenizer of Hugging Face, a file tokenizer.json, and join its tokens to text again.

The file is data: reading it runs no code. It needs the package tokenizers (the extra `rrnn[hf]`), which is imported
when a text is split or joined: a run with a tokenizer can be loaded and exported without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrnn.errors import DataError, FormatError
from rrnn.files import named_errors, parse_json
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.runs import TOKENIZER
from rrnn.tasks.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tokenizers

MAX_BYTES = 2**28
"""The largest tokenizer.json that is read. Those of the largest vocabularies have about 30 MB."""
_REPLACEMENT = "\ufffd"  # what an incomplete character is decoded to
_LONGEST_CHARACTER = 8  # tokens: bytes of UTF-8, and some to spare


class Tokenizer:
    """A tokenizer.json, whose ids are those of the model. `specials` are symbols that the task needs besides: they come
    behind the tokens of the file, unless it has them.

    Texts get no other special tokens ([CLS], [SEP], …), and are neither cut nor padded, whatever the file says.
    """

    def __init__(
        self, text: str, specials: Sequence[str], source: str = TOKENIZER, expected: Vocabulary | None = None
    ) -> None:
        """`expected` is the vocabulary of the model that it belongs to, if there is one already."""
        self.text, self.specials, self.source, self.expected = text, tuple(specials), source, expected

    @classmethod
    def read(cls, path: str | Path, specials: Sequence[str], expected: Vocabulary | None = None) -> Tokenizer:
        """Read a file, and check that it is JSON."""
        path = Path(path).expanduser()
        if path.is_dir():
            raise DataError(f"a tokenizer is a file, {TOKENIZER}; {path} is a folder. Name the file in it")
        try:
            with named_errors(str(path)), open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise DataError(
                f"{path}: there is no such file. A tokenizer is a {TOKENIZER} of Hugging Face"
            ) from None
        if len(data) > MAX_BYTES:
            raise FormatError(
                f"a {TOKENIZER} has at most {MAX_BYTES:,} bytes; this one has more", source=str(path)
            )
        try:
            text = data.decode("utf-8")
            content = parse_json(text)
        except ValueError as error:  # JSON and UTF-8 alike
            raise FormatError(
                f"a tokenizer is a JSON file ({TOKENIZER}): {error}", source=str(path)
            ) from None
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise FormatError(
                f'a {TOKENIZER} of Hugging Face is a JSON object with a "model". (Older files, vocab.txt or '
                "tokenizer.model, are converted by transformers: AutoTokenizer.from_pretrained(…).save_pretrained(…))",
                source=str(path),
            )
        return cls(text, specials, str(path), expected)

    def save(self, path: Path) -> None:
        """Write the file as it was read, completely or not at all."""
        write_atomic(path, self.text.encode())

    # ---- tokens --------------------------------------------------------------------------------------------------

    @cached_property
    def made(self) -> tokenizers.Tokenizer:
        """The tokenizer itself, with the special symbols of the task."""
        try:
            from tokenizers import Tokenizer as Made
        except ImportError as error:
            raise DataError(
                f"a {TOKENIZER} needs the package tokenizers ({error}). Run: pip install 'rrnn[hf]'"
            ) from None
        with _named(f"this is no {TOKENIZER} that the package tokenizers can read", self.source):
            made = Made.from_str(self.text)
            made.no_padding()
            made.no_truncation()
            made.add_special_tokens([token for token in self.specials if made.token_to_id(token) is None])
        return made

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """All tokens in the order of their ids, those of `specials` included."""
        table: dict[str, int] = self.made.get_vocab(with_added_tokens=True)
        words = sorted(table, key=table.__getitem__)
        if len(words) <= len(self.specials):
            raise FormatError("a tokenizer needs tokens, and this one has none", source=self.source)
        if [table[word] for word in words] != list(range(len(words))):
            missing = next(n for n, word in enumerate(words) if table[word] != n)
            raise FormatError(
                f"the ids of a tokenizer's {len(words)} tokens must be 0 to {len(words) - 1}, but none has the id "
                f"{missing}. Give the tokens ids without gaps",
                source=self.source,
            )
        unknown = self._unknown(words)
        found = Vocabulary(words, unknown if unknown in table else None)
        if self.expected is not None and found != self.expected:
            raise FormatError(
                f"this is not the tokenizer that the model was trained with: its {len(found):,} tokens are not the "
                f"{len(self.expected):,} of the model's vocabulary. Put the right file back",
                source=self.source,
            )
        return found

    def _unknown(self, words: Sequence[str]) -> str | None:
        """Return the token that stands for what has none: a name, or in models of the kind Unigram a number."""
        model = parse_json(self.text)["model"]
        name, number = model.get("unk_token"), model.get("unk_id")
        if isinstance(number, int) and 0 <= number < len(words):
            return words[number]
        return name if isinstance(name, str) else None

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text. They are all in the vocabulary."""
        with _named("the tokenizer cannot split a text", self.source):
            ids = self.made.encode(text, add_special_tokens=False).ids
        words = self.vocabulary.words
        return [words[number] for number in ids]

    def join(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens."""
        ids = self.vocabulary.encode(tokens).tolist()
        with _named("the tokenizer cannot join tokens", self.source):
            return self.made.decode(ids, skip_special_tokens=False)

    def pieces(self, line: str, tokens: Iterable[str], end: str) -> Iterator[str]:
        """Yield the texts that tokens add to a line, as soon as their characters are complete; the token `end` begins a
        new line. What a token looks like depends on the one before it: so it is joined with that."""
        before, new = self.split(line), list[str]()
        shown = self.join(before)
        for token in tokens:
            if token != end:
                new.append(token)
                text = self.join([*before, *new])
                if text.endswith(_REPLACEMENT) and len(new) < _LONGEST_CHARACTER:
                    continue
                yield text[len(shown) :]
                before, new = new, []
                shown = self.join(before)
                continue
            yield self.join([*before, *new])[len(shown) :] + "\n"
            before, new, shown = [], [], ""
        if new:
            yield self.join([*before, *new])[len(shown) :]


@contextmanager
def _named(problem: str, source: str) -> Iterator[None]:
    """Turn what the package tokenizers raises into a `FormatError`: plain exceptions, and panics, which are none."""
    try:
        yield
    except (DataError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise FormatError(f"{problem}: {error}", source=source) from None


def given_tokenizer(config: Any, specials: Sequence[str], kept: Path | None = None) -> Tokenizer | None:
    """Return the tokenizer that a configuration names; None if it names none. If there is no such file (any more), the
    copy in `kept`, a run folder, is used."""
    if config.tokenizer is None:
        return None
    path = Path(config.tokenizer).expanduser()
    if kept is not None and not path.exists() and (kept / TOKENIZER).exists():
        path = kept / TOKENIZER
    return Tokenizer.read(path, specials)


def kept_tokenizer(
    config: Any, specials: Sequence[str], folder: Path, vocabulary: Vocabulary
) -> Tokenizer | None:
    """Return the tokenizer in a folder, that of a run or of transformers; None if the configuration names none. It must
    have the tokens of the model's vocabulary, which is checked when it is first used."""
    return None if config.tokenizer is None else Tokenizer.read(folder / TOKENIZER, specials, vocabulary)


def check_tokenizer(tokenizer: Tokenizer | None, config: Any) -> None:
    """Raise a `DataError` if a model lacks the tokenizer that it was trained with."""
    if config.tokenizer is not None and tokenizer is None:
        raise DataError("this model was trained with a tokenizer, which is missing: load it from its folder")
