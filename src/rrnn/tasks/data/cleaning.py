"""From a text to its words: how each data set is cleaned, and how a raw text is, when it is to be classified."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable

from rrnn.errors import DataError

# Contractions come apart as in the Penn Treebank and GloVe (do n't, it 's); numbers, identifiers and hyphenated words
# stay whole; other characters stand alone, short runs of one sign together.
_TOKEN = re.compile(
    r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b"
    r"|\d+(?:[.,:]\d+)+|\w+(?:-\w+)*"
    r"|::=|->|[<>!=]=|([.!?*=<>~-])\1{0,2}|[^\w\s]",
    re.IGNORECASE,
)
_QUOTES = str.maketrans("‘’“”", "''\"\"")


def split_text(text: str) -> list[str]:
    """Words and punctuation of a text that nobody has tokenised, in their own case."""
    return [match.group() for match in _TOKEN.finditer(text.translate(_QUOTES))]


def _glove(text: str) -> list[str]:
    """`split_text` of what corpora spell in ways that GloVe's words do not have: contractions torn apart (do n 't,
    don 't), bracket tokens, numbers of characters, accents, hyphens."""
    text = html.unescape(re.sub(r"(&#\d+) ; ?", r"\1;", text)).lower().translate(_QUOTES)
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    text = re.sub(r"\B-l[rs]b-\B", "(", re.sub(r"\B-r[rs]b-\B", ")", text))
    return split_text(re.sub(r"n ?'t\b", "n't", text).replace("-", " ").replace("\\/", " / "))


def _kim(text: str) -> list[str]:
    """`clean_str` of Kim (2014): ASCII letters, digits and (),!?'` alone, contractions apart, lower case."""
    text = re.sub(r"[^A-Za-z0-9(),!?'`]", " ", text)
    text = re.sub(r"('s|'ve|n't|'re|'d|'ll)", r" \1", text)
    return re.sub(r"([,!()?])", r" \1 ", text).lower().split()


def _kim_sst(text: str) -> list[str]:
    """`clean_str_sst` of Kim (2014): as `kim`, for a text whose words are apart already."""
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
    """The words of a text: `none` and `lower` cut at white space, `text` takes punctuation off (any language with
    spaces), `glove` brings the words close to those of published vectors, too, `kim` and `kim-sst` are Kim's rules,
    which know ASCII only."""
    if cleaning not in CLEANINGS:
        raise DataError(f"a cleaning is one of {', '.join(CLEANINGS)}, not {cleaning!r}")
    return CLEANINGS[cleaning](text)
