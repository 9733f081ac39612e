"""`rrnn score`: score a file of strings with a WFSA, one score per line."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rrnn.cli.overrides import option
from rrnn.wfsa.io import StringsFile, guess_format, load
from rrnn.wfsa.io.files import natural
from rrnn.wfsa.io.strings import StringLine, read_symbols_of, symbol_reader
from rrnn.wfsa.machine import WFSA

# Strings are scored in batches: large enough to be fast, small enough to fit into memory for any file.
_BATCH_STRINGS = 1024
_BATCH_SYMBOLS = 2**18
_BATCH_NUMBERS = 2**22  # strings × states, the size of Forward's table

Choice = Literal["auto", "yes", "no"]
_CHOICES: dict[Choice, bool | None] = {"auto": None, "yes": True, "no": False}


@dataclass
class Score:
    """Print the score of every string, one per line, with all digits of float64.

    A real score outside the range of float64, which would be 0.0 or inf, is printed as exp(logarithm) or
    -exp(logarithm).
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The file of the WFSA: a PAutomaC model, OpenFst text or rrnn's JSON."""
    strings: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """The file of strings, `length s1 s2 …` per line, with or without a header `N |Σ|`. `-` is the standard input."""
    format: Annotated[Literal["pautomac", "openfst", "json"] | None, option("{pautomac,openfst,json}")] = None
    """The model's format (default: guessed from the name of the file)."""
    semiring: Annotated[str | None, option("NAME")] = None
    """The semiring to score in; for OpenFst, the one to read the file in (default: min-plus). `log` prints log-scores,
    `signed-log` a sign and a logarithm."""
    isymbols: Annotated[Path | None, option("FILE")] = None
    """OpenFst: the symbol table (default: symbols are integers)."""
    costs: Annotated[Literal["neglog", "plain"] | None, option("{neglog,plain}")] = None
    """OpenFst: whether numbers are negative logarithms (neglog, the default where the semiring has them) or the weights
    themselves (plain)."""
    acceptor: Choice = "auto"
    """OpenFst: whether arcs have one label (yes) or an input and an output label (no)."""
    header: Choice = "auto"
    """Whether the file of strings starts with a header, which matters if the first line, `1 k`, could be either."""


def score(options: Score) -> None:
    wfsa = load(
        options.model,
        options.format,
        semiring=options.semiring,
        isymbols=options.isymbols,
        costs=options.costs,
        acceptor=_CHOICES[options.acceptor],
    )
    strings = StringsFile(options.strings, header=_CHOICES[options.header])
    # A model may have no arc for a symbol that the header counts: such strings are legal and score zero.
    declared = (
        strings.alphabet_size if (options.format or guess_format(options.model)) == "pautomac" else None
    )
    for batch in _batches(strings, max(1, min(_BATCH_STRINGS, _BATCH_NUMBERS // wfsa.num_states))):
        lines = (f"{value}\n" for value in _score(wfsa, batch, strings, declared or 0))
        sys.stdout.write("".join(lines))


def _batches(strings: StringsFile, size: int) -> Iterator[list[StringLine]]:
    batch: list[StringLine] = []
    symbols = 0
    for string in strings:
        batch.append(string)
        symbols += len(string.symbols)
        if len(batch) == size or symbols >= _BATCH_SYMBOLS:
            yield batch
            batch, symbols = [], 0
    if batch:
        yield batch


def _score(wfsa: WFSA, batch: list[StringLine], file: StringsFile, declared: int) -> list[str]:
    """Return the printed scores of a batch."""
    reader = symbol_reader(wfsa.alphabet)
    known: dict[int, tuple[Hashable, ...]] = {}  # position in the batch → its symbols
    for i, string in enumerate(batch):
        if not _has_dead_symbol(string, reader, declared):
            known[i] = read_symbols_of(string, reader, file)
    scores = [repr(wfsa.semiring.zero)] * len(batch)
    values = wfsa.semiring.numbers(wfsa.score(list(known.values()))) if known else []
    texts = _beyond_floats(wfsa, [known[i] for i in known], values)
    for i, value, text in zip(known, values, texts, strict=True):
        scores[i] = text or repr(value)
    return scores


def _beyond_floats(wfsa: WFSA, strings: list[tuple[Hashable, ...]], values: list[Any]) -> list[str | None]:
    """Return exp(…) or -exp(…) for real scores that are too small or too large for a float, and None for others."""
    ring = wfsa.semiring
    texts: list[str | None] = [None] * len(values)
    lost = [
        i
        for i, x in enumerate(values)
        if ring.adds and not ring.integers and (x == 0 or not math.isfinite(x))
    ]
    if not lost:
        return texts
    signed = wfsa.with_semiring("signed-log")
    scores = signed.semiring.numbers(signed.score([strings[i] for i in lost]))
    for i, element in zip(lost, scores, strict=True):
        sign, log = element
        real = signed.semiring.to_real(element)
        # A score inside the range of floats is a rounding error here: its paths cancel.
        if sign and (real == 0 or math.isinf(real)):
            texts[i] = f"{'-' if sign < 0 else ''}exp({log!r})"
        elif math.isnan(values[i]):
            texts[i] = repr(real)
    return texts


def _has_dead_symbol(string: StringLine, reader: Callable[[str], Hashable | None], declared: int) -> bool:
    """Return whether the string has symbols that the model never mentions, all of them below |Σ|."""
    values = [natural(token) for token in string.symbols if reader(token) is None]
    return bool(values) and all(value is not None and value < declared for value in values)
