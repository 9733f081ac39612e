"""The paper's data sets for classification, each read from its own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from html import unescape
from pathlib import Path

from rrnn.errors import DataError
from rrnn.tasks.data import sources
from rrnn.tasks.data.rows import Row, Skips, read_labelled_lines, read_pair
from rrnn.tasks.data.splits import split_files
from rrnn.tasks.data.text import read_lines

NAMES = ("sst", "sst-fine", "subj", "cr", "amazon")

_POLARITY = {"0": "negative", "1": "positive"}
_DEGREES = ("very negative", "negative", "neutral", "positive", "very positive")

Splits = dict[str, list[Row]]


@dataclass(frozen=True)
class Published:
    """`read` gives train, dev and test, or train and test, or `all` where there is no official split.

    `label_names` are for files with exactly these labels: elec-*.cat says 1 and 2, and means other things by them.
    """

    read: Callable[[Skips], Splits]
    cleaning: str
    label_names: Mapping[str, str]


def get(spec: str) -> Published | None:
    """The data set of this name; `amazon:DOMAIN` is the part of amazon about these products."""
    name, _, domain = spec.partition(":")
    if domain and name != "amazon":
        return None
    if name in ("sst", "sst-fine"):
        kind = "binary" if name == "sst" else "fine"
        degrees = _POLARITY if name == "sst" else {str(i): degree for i, degree in enumerate(_DEGREES)}
        # Tokenised and lower-cased already; Kim's rules would drop its punctuation, for which GloVe has vectors.
        return Published(partial(_stanford, kind), "lower", degrees)
    if name == "subj":
        names = {"0": "subjective", "1": "objective"}
        return Published(partial(_whole, "subj", "subj.all", "latin-1"), "kim", names)
    if name == "cr":
        return Published(partial(_whole, "cr", "custrev.all", "utf-8"), "kim", _POLARITY)
    if name == "amazon":
        return Published(partial(_amazon, domain), "kim", _POLARITY)
    return None


def _stanford(kind: str, skips: Skips) -> Splits:
    folder = sources.find("sst")
    return {
        split: list(read_labelled_lines(folder / f"stsa.{kind}.{split}", skips))
        for split in ("train", "dev", "test")
    }


def _whole(name: str, file: str, encoding: str, skips: Skips) -> Splits:
    return {"all": list(read_labelled_lines(sources.find(name) / file, skips, encoding))}


def _amazon(domain: str, skips: Skips) -> Splits:
    """Johnson and Zhang's electronics reviews (elec-*) where they are, else our split of five products' reviews."""
    folder = sources.find("amazon")
    if list(folder.glob("elec-*.txt.tok")):
        if domain not in ("", "electronics"):
            raise DataError(f"{folder} holds reviews of electronics alone, none of {domain}")
        return _elec(folder)
    return {split: _reviews(path, domain, skips) for split, path in split_files(folder).items()}


def _reviews(path: Path, domain: str, skips: Skips) -> list[Row]:
    """`<label> TAB <domain> TAB <text>` a line; the texts come from web pages, with `&quot;` and its like."""
    rows, known = [], set()
    for line, content in enumerate(read_lines(path), start=1):
        label, about, text = [*content.split("\t", 2), "", ""][:3]
        if not text:
            skips.broken("too few columns", "label, domain and text are needed", str(path), line)
            continue
        known.add(about)
        if domain in ("", about):
            rows.append(Row(unescape(text), label, str(path), line))
    if not rows:
        raise DataError(f"{path} has reviews of {', '.join(sorted(known))}, not of {domain!r}")
    return rows


def _elec(folder: Path) -> Splits:
    """Files come in several sizes, elec-25k-train the paper's; there is no file for development."""
    texts = sorted(folder.glob("elec-*train.txt.tok"))
    train = next((path for path in texts if "25k" in path.name), texts[0] if len(texts) == 1 else None)
    if train is None:
        raise DataError(f"{folder} must have elec-25k-train.txt.tok, or one file elec-*train.txt.tok alone")
    test = folder / "elec-test.txt.tok"
    return {
        split: list(read_pair(path, path.with_name(path.name.removesuffix(".txt.tok") + ".cat")))
        for split, path in (("train", train), ("test", test))
    }
