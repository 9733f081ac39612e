"""Corpora for language models: three lists of tokens, with `</s>` after every line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal

from rrnn.errors import DataError
from rrnn.tasks.data import download
from rrnn.tasks.data.text_files import Splitter, read_lines, split_files, split_text
from rrnn.tasks.vocabulary import Vocabulary

END = "</s>"
UNKNOWN = "<unk>"
SPLITS = ("train", "valid", "test")
EMBEDDED = "python"

Level = Literal["word", "char"]
Tokens = Literal["space", "text"]
Spec = str | Path | Mapping[str, str | Path]


@dataclass(frozen=True)
class Corpus:
    """The tokens of three splits; `test` may be empty."""

    name: str
    train: list[str]
    valid: list[str]
    test: list[str]

    def vocabulary(
        self, specials: tuple[str, ...] = ("<s>",), max_size: int | None = None, min_count: int | None = None
    ) -> Vocabulary:
        """Build the vocabulary of the training text.

        A prepared corpus (the Penn Treebank, WikiText) contains `<unk>` itself, and its vocabulary is complete. In
        other corpora, words that occur only once become unknown (`min_count=2`), so that the model sees unknown words.
        """
        known = set(self.train)
        closed = known.issuperset(self.valid) and known.issuperset(self.test)
        if min_count is None:
            min_count = 1 if closed else 2
        unknown = UNKNOWN if UNKNOWN in known or not closed or max_size or min_count > 1 else None
        return Vocabulary.build(self.train, specials, unknown, max_size, min_count)


def load_corpus(
    spec: Spec = EMBEDDED, level: Level = "word", *, tokens: Tokens = "space", split: Splitter | None = None
) -> Corpus:
    """Read a corpus.

    `spec` is a name (`python`, the built-in default; `ptb`; `wikitext-2`), a folder with files for train, valid (or
    dev) and test, one file, whose lines are split 80/10/10 in order, or a mapping from splits to files. The words of a
    file are separated by white space; `tokens="text"` also separates punctuation, for raw text. At level `char` every
    character is a token, including blanks. `split` is a function that splits a line, in place of these.
    """
    if isinstance(spec, Mapping):
        lines, name = _read_mapping(spec), "files"
        prepared = False
    elif str(spec) == EMBEDDED:
        lines, name = python_reference(), EMBEDDED
        tokens, prepared = "text", False
    elif str(spec) in ("ptb", "wikitext-2"):
        name = str(spec)
        lines = _read_folder(download.find(name))
        prepared = True
    else:
        path = _existing(spec)
        lines, name = _read_path(path), path.stem or str(path)
        prepared = False
    split = split or _splitter(level, tokens, prepared)
    streams = {key: _stream(lines.get(key, []), split) for key in SPLITS}
    return Corpus(name, **streams)


def _splitter(level: Level, tokens: Tokens, prepared: bool) -> Splitter:
    if level not in ("word", "char"):
        raise DataError(f"level must be 'word' or 'char'; got {level!r}")
    if level == "word":
        return split_text if tokens == "text" else str.split
    # Prepared corpora pad their lines with meaningless blanks; in a user's text indentation may have a meaning.
    return (lambda line: list(" ".join(line.split()))) if prepared else list


def _stream(lines: list[str], split: Splitter) -> list[str]:
    return list(chain.from_iterable((*split(line), END) for line in lines))


def _existing(spec: str | Path) -> Path:
    path = Path(spec).expanduser()
    if not path.exists():
        raise DataError(f"a corpus is python, ptb, wikitext-2, a folder or a file; there is no {str(spec)!r}")
    return path


def _read_path(path: Path) -> dict[str, list[str]]:
    if path.is_dir():
        return _read_folder(path)
    lines = read_lines(path)
    if len(lines) < 10:
        raise DataError(
            f"{path} has {len(lines)} line{'s' * (len(lines) != 1)}, too few to split off 10 % each for valid and "
            "test; give three files, or a folder that contains them"
        )
    tenth = len(lines) // 10
    return {"train": lines[: -2 * tenth], "valid": lines[-2 * tenth : -tenth], "test": lines[-tenth:]}


def _read_folder(folder: Path) -> dict[str, list[str]]:
    files = split_files(folder)
    return _read_mapping({"valid" if split == "dev" else split: path for split, path in files.items()})


def _read_mapping(files: Mapping[str, str | Path]) -> dict[str, list[str]]:
    if unknown := set(files) - set(SPLITS):
        raise DataError(f"the splits of a corpus are {', '.join(SPLITS)}, not {', '.join(sorted(unknown))}")
    if missing := {"train", "valid"} - set(files):
        raise DataError(f"a corpus needs files for train and valid; {', '.join(sorted(missing))} is missing")
    return {split: read_lines(path) for split, path in files.items()}


# ---- the reference inside Python -------------------------------------------------------------------------------------


SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}

_RULE = re.compile(r"[\s*=~^+|#.-]+")  # a line below a heading, or between the rows of a table
_ROW = re.compile(r"^\|\s*(.*?)\s*\|$")  # the bars around a table's row
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!cf\.)\s+(?=[A-Z\"“(*])")


@cache
def python_reference() -> dict[str, list[str]]:
    """Return the sentences of the language reference inside Python, by split: real prose without a download.

    `pydoc_data.topics` is what `help("lambda")` prints. Long topics repeat short ones (*compound* contains *try*,
    *with*, …), so each sentence is kept once, in the shortest topic that has it; otherwise the training set would
    contain the test set. The exact text depends on the version of Python.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave it out
        raise DataError(
            "this Python has no language reference (pydoc_data.topics); choose another corpus"
        ) from None
    return split_by_topic(topics)


def split_by_topic(topics: Mapping[str, str]) -> dict[str, list[str]]:
    """Assign each topic, the longest first, to the split that lacks most. Within a split, topics are sorted by name."""
    sentences = _sentences_once(topics)
    sizes = {topic: sum(len(split_text(line)) for line in lines) for topic, lines in sentences.items()}
    lacking = {split: share * sum(sizes.values()) for split, share in SHARES.items()}
    members: dict[str, list[str]] = {split: [] for split in SHARES}
    for topic in sorted(sizes, key=lambda topic: (-sizes[topic], topic)):
        split = max(lacking, key=lambda split: lacking[split])
        members[split].append(topic)
        lacking[split] -= sizes[topic]
    return {
        split: [line for topic in sorted(chosen) for line in sentences[topic]]
        for split, chosen in members.items()
    }


def _sentences_once(topics: Mapping[str, str]) -> dict[str, list[str]]:
    seen: set[str] = set()
    result: dict[str, list[str]] = {}
    for topic in sorted(topics, key=lambda topic: (len(topics[topic]), topic)):
        found = chain.from_iterable(map(_SENTENCE_END.split, paragraphs(topics[topic])))
        result[topic] = [sentence for sentence in dict.fromkeys(found) if sentence not in seen]
        seen.update(result[topic])
    return result


def paragraphs(text: str) -> list[str]:
    """Return each paragraph as one line, joining wrapped lines and words hyphenated at the end of a line."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [_ROW.sub(r"\1", line.strip()) for line in block.split("\n") if not _RULE.fullmatch(line)]
        joined = " ".join(line for line in lines if line)
        joined = re.sub(r"(?<=\w)- (?=[a-z])", "-", joined)
        if joined := re.sub(r"\s+", " ", joined):
            found.append(joined)
    return found
