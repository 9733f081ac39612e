"""The language reference inside every Python, as a corpus: real prose without a download.

`pydoc_data.topics` is what `help("lambda")` prints. Long topics repeat short ones whole (*compound* has *try*, *with*,
…), so each sentence is kept once, in the shortest topic that has it; else the test set would be in the training set.
Its exact text depends on the version of Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import chain

from rrnn.errors import DataError
from rrnn.tasks.data.cleaning import split_text

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}

_RULE = re.compile(r"[\s*=~^+|#.-]+")  # a line under a heading, or between the rows of a table
_ROW = re.compile(r"^\|\s*(.*?)\s*\|$")  # the bars around a table's row
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!cf\.)\s+(?=[A-Z\"“(*])")


@cache
def python_reference() -> dict[str, list[str]]:
    """Split → sentences, split by topic."""
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions cut it off
        raise DataError(
            "this Python came without pydoc_data.topics, its language reference; name another corpus"
        ) from None
    return split_by_topic(topics)


def split_by_topic(topics: Mapping[str, str]) -> dict[str, list[str]]:
    """Each topic goes, longest first, to the split that lacks most; within a split topics are in alphabetical order."""
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
    """Paragraphs, each as one line: wrapped lines joined, words hyphenated at a line's end made whole again."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = [_ROW.sub(r"\1", line.strip()) for line in block.split("\n") if not _RULE.fullmatch(line)]
        joined = " ".join(line for line in lines if line)
        joined = re.sub(r"(?<=\w)- (?=[a-z])", "-", joined)
        if joined := re.sub(r"\s+", " ", joined):
            found.append(joined)
    return found
