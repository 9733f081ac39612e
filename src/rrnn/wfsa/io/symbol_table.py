"""OpenFst symbol tables: one `name id` a line; the id 0 is ε, by custom under the name `<eps>`."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping

from rrnn.errors import FormatError
from rrnn.wfsa.io.files import (
    PathLike,
    fields_of,
    lines_of,
    natural,
    plain_name,
    read_text,
    shown,
    write_text,
)

EPSILON_NAME = "<eps>"
LARGEST_LABEL = 2**31 - 1  # OpenFst's labels and states are 32-bit integers

SymbolTable = Mapping[str, int]


def load_symbols(path: PathLike) -> dict[str, int]:
    """A table as a dictionary name → id. Every name and every id stands once."""
    source = os.fspath(path)
    table: dict[str, int] = {}
    ids: dict[int, str] = {}
    for line, text in enumerate(lines_of(read_text(path)), 1):
        fields = fields_of(text)
        if not fields:
            continue
        key = natural(fields[1]) if len(fields) == 2 else None
        if key is None:
            raise FormatError(
                f"a line of a symbol table is `name id`; got {shown(text)}", source=source, line=line
            )
        name = fields[0]
        if name in table or key in ids:
            other = (
                f"{shown(name)} has the id {table[name]}" if name in table else f"{shown(ids[key])} has it"
            )
            raise FormatError(
                f"names and ids of a symbol table must differ; for {shown(name)} {key}, {other} already",
                source=source,
                line=line,
            )
        table[name] = key
        ids[key] = name
    return table


def save_symbols(table: SymbolTable, path: PathLike) -> None:
    """Write a table in the order of its ids."""
    write_text(path, symbols_text(table))


def symbols_text(table: SymbolTable) -> str:
    return "".join(f"{name}\t{key}\n" for name, key in sorted(table.items(), key=lambda item: item[1]))


def symbols_for(alphabet: Iterable[Hashable]) -> dict[str, int]:
    """A table for an alphabet, in its order: `<eps>` 0, then 1, 2, …

    Names are the symbols themselves when they are strings, and their digits when they are integers.
    """
    table = {EPSILON_NAME: 0}
    for symbol in alphabet:
        name = plain_name(symbol)
        if name in table:
            clash = "is the name of ε" if name == EPSILON_NAME else "stands for two symbols"
            raise FormatError(
                f"a symbol table needs a name of its own for every symbol, but {shown(name)} {clash}"
            )
        table[name] = len(table)
    return table
