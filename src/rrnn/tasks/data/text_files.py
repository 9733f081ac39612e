"""Read text files, split them into train, dev and test, and cut texts into words."""

from __future__ import annotations

import gzip
import html
import io
import random
import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from rrnn.errors import DataError, FormatError
from rrnn.files import read_all, read_bytes

Splitter = Callable[[str], list[str]]
"""A function that splits a text, or a line of it, into tokens."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_lines(path: str | Path, encoding: str | None = None) -> list[str]:
    """Return the lines of a file (plain or gzip), without their ends. Only \\n (or \\r\\n) ends a line: latin-1 texts
    contain 0x85, at which `str.splitlines` would split. Without an `encoding`, users have no choice but UTF-8."""
    path = Path(path)
    data = _read_bytes(path)
    given = "utf-16" if data[:2] in UTF16 else encoding or "utf-8"
    check_encoding(given)
    try:
        text = data.decode("utf-8-sig" if given == "utf-8" else given)
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        line = data.count(b"\n", 0, start) + 1
        fix = "" if encoding is None else ", or give its encoding: --encoding latin-1 (encoding='latin-1')"
        raise FormatError(
            f"the text must be {given}, but {undecodable(error)}. Convert the file (iconv -f latin1 -t utf-8){fix}.",
            source=str(path),
            line=line,
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError(
            "a text contains no NUL characters; is this file binary?", source=str(path), line=line
        )
    lines = text.split("\n")
    if lines[-1] == "":  # after the end of the last line
        lines.pop()
    if not lines:
        raise DataError(f"{path}: the file is empty; it needs at least one line")
    return [line.removesuffix("\r") for line in lines]


def check_encoding(encoding: str) -> None:
    """Raise unless Python has this encoding, and it is one of texts (base64 is not)."""
    try:
        " ".encode(encoding)
    except (LookupError, ValueError):
        raise DataError(
            f"Python has no encoding {encoding!r} of texts; common ones are utf-8, latin-1 and cp1252"
        ) from None


def undecodable(error: UnicodeError) -> str:
    """Say which byte cannot be decoded, and why."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02x} is not: {error.reason}"
    return f"it is not: {error}"


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file")
    try:
        data = read_bytes(path)
        if data[:2] != b"\x1f\x8b":
            return data
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            return read_all(packed, str(path))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is truncated or damaged ({error}); get it again") from None


# ---- words -----------------------------------------------------------------------------------------------------------


# Contractions are split as in the Penn Treebank and GloVe (do n't, it 's). Numbers, identifiers and hyphenated words
# stay whole. Other characters are tokens of their own; short runs of one sign stay together.
TOKEN = re.compile(
    r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b"
    r"|\d+(?:[.,:]\d+)+|\w+(?:-\w+)*"
    r"|::=|->|[<>!=]=|([.!?*=<>~-])\1{0,2}|[^\w\s]",
    re.IGNORECASE,
)
QUOTES = str.maketrans("‘’“”", "''\"\"")


def split_text(text: str) -> list[str]:
    """Split a raw text into words and punctuation, without changing case."""
    return [match.group() for match in TOKEN.finditer(text.translate(QUOTES))]


# A contraction of "not" that a corpus tore apart: "do n 't", "don 't", and misspellings such as "dosn 't" and "wan 't",
# but not the Dutch article of "in 't Veld" and "van 't Hoff".
_TORN_NOT = re.compile(r"\b(\w*[dst]n|(?:ai|are|ca|dare|do|have|may|sdo|sha|wa|were|wo)?n) 't\b")


def _glove(text: str) -> list[str]:
    """Spell words as GloVe does, then apply `split_text`: contractions (do n 't, don 't), bracket tokens, character
    references, accents and hyphens are rewritten."""
    text = html.unescape(re.sub(r"(&#\d+) ; ?", r"\1;", text)).lower().translate(QUOTES)
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    text = re.sub(r"\B-l[rs]b-\B", "(", re.sub(r"\B-r[rs]b-\B", ")", text))
    return split_text(_TORN_NOT.sub(r"\1't", text).replace("-", " ").replace("\\/", " / "))


def _kim(text: str) -> list[str]:
    """Apply `clean_str` of Kim (2014): only ASCII letters, digits and (),!?'`; contractions split; lower case."""
    text = re.sub(r"[^A-Za-z0-9(),!?'`]", " ", text)
    text = re.sub(r"('s|'ve|n't|'re|'d|'ll)", r" \1", text)
    return re.sub(r"([,!()?])", r" \1 ", text).lower().split()


def _kim_sst(text: str) -> list[str]:
    """Apply `clean_str_sst` of Kim (2014): like `kim`, for a text that is already tokenised."""
    return re.sub(r"[^A-Za-z0-9(),!?'`]", " ", text).lower().split()


CLEANINGS: dict[str, Callable[[str], list[str]]] = {
    "none": str.split,
    "lower": lambda text: text.lower().split(),
    "text": lambda text: split_text(text.lower()),
    "glove": _glove,
    "kim": _kim,
    "kim-sst": _kim_sst,
}


def tokenise(text: str, cleaning: str = "text") -> list[str]:
    """Split a text into words.

    `none` and `lower` split at white space. `text` also separates punctuation (for any language with spaces). `glove`
    also spells words as published vectors do. `kim` and `kim-sst` are Kim's rules, which know only ASCII.
    """
    if cleaning not in CLEANINGS:
        raise DataError(f"cleaning must be one of {', '.join(CLEANINGS)}; got {cleaning!r}")
    return CLEANINGS[cleaning](text)


# ---- splits ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")

_NAMES = {
    "train": {"train", "training"},
    "dev": {"valid", "validation", "val", "dev"},
    "test": {"test"},
}


def split_files(folder: Path) -> dict[str, Path]:
    """Return the files of train, dev and test in a folder, recognised by names such as ptb.train.txt or dev.csv."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = set(re.split(r"[^a-z]+", path.name.lower()))
        for split in (split for split, names in _NAMES.items() if words & names):
            if not path.is_file() or path.name.startswith("."):
                continue
            if split in found:
                raise DataError(
                    f"{folder} has two files for {split}, {found[split].name} and {path.name}: "
                    "give the files instead of the folder"
                )
            found[split] = path
    if missing := {"train", "dev"} - set(found):
        raise DataError(
            f"{folder} has no file for {' and '.join(sorted(missing))}: their names must contain train, dev (or valid) "
            "or test, such as ptb.train.txt, valid.txt, dev.csv, test.tsv"
        )
    return found


def shuffled(items: Sequence[T], seed: int) -> list[T]:
    """Return the items in a random order that is the same in every version of Python, as only `Random.random` is."""
    draw = random.Random(seed).random
    keys = [draw() for _ in items]
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


def split_rows(
    rows: Sequence[T], shares: Sequence[float], seed: int, stratum: Callable[[T], Hashable] | None = None
) -> list[list[T]]:
    """Split rows at random into parts of these shares; with `stratum`, in every stratum separately."""
    strata: dict[Hashable, list[T]] = defaultdict(list)
    for row in shuffled(rows, seed):
        strata[stratum(row) if stratum else None].append(row)
    parts: list[list[T]] = [[] for _ in shares]
    for members in strata.values():
        start, filled = 0, 0.0
        for part, share in zip(parts, shares, strict=True):
            filled += share
            end = round(filled * len(members))
            part += members[start:end]
            start = end
    return [shuffled(part, seed) for part in parts]
