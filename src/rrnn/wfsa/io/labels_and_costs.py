"""What labels and numbers in an OpenFst file mean: symbol tables, and costs.

**Symbol tables** have one `name id` on each line; the id 0 is ε, by custom under the name `<eps>`.

**Costs.** OpenFst's numbers are costs, negative logarithms: its tropical semiring adds them along a path and takes the
smallest, and its log semiring adds the probabilities they stand for. So, with `costs="neglog"`:

| semiring  | cost of a weight w | OpenFst arc type  | a missing cost (0) is | the cost Infinity is |
|-----------|--------------------|-------------------|-----------------------|----------------------|
| min-plus  | w                  | standard          | 0                     | +∞                   |
| max-plus  | −w                 | standard          | 0                     | −∞                   |
| log       | −w                 | log, log64        | 0                     | −∞                   |
| real      | −log w, for w ≥ 0  | log, log64        | 1                     | 0                    |
| max-times | −log w             | standard          | 1                     | 0                    |
| boolean   | 0 for 1            | standard          | 1                     | 0                    |

`costs="plain"` writes the weight itself, in every semiring, and a missing number is the semiring's one. It is
exact, and the only way for negative real weights and for counting, which have no logarithm; OpenFst reads
such a file but takes its numbers for costs. Counting is always plain; the others are neglog by default.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable, Mapping
from typing import Literal

from rrnn.errors import FormatError, SemiringError
from rrnn.semirings import Semiring
from rrnn.wfsa.io.files import (
    PathLike,
    Source,
    checked_weight,
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
    """Read a symbol table as a dictionary name → id. Names and ids must be distinct."""
    source = Source(os.fspath(path))
    table: dict[str, int] = {}
    ids: dict[int, str] = {}
    for line, text in enumerate(lines_of(read_text(path)), 1):
        fields = fields_of(text)
        if not fields:
            continue
        key = natural(fields[1]) if len(fields) == 2 else None
        if key is None:
            source.fail(f"a line of a symbol table must be `name id`; got {shown(text)}", line)
        name = fields[0]
        if name in table or key in ids:
            other = (
                f"{shown(name)} has the id {table[name]}" if name in table else f"{shown(ids[key])} has it"
            )
            source.fail(
                f"names and ids of a symbol table must be distinct; got {shown(name)} {key}, but {other} already",
                line,
            )
        table[name] = key
        ids[key] = name
    return table


def save_symbols(table: SymbolTable, path: PathLike) -> None:
    """Write a symbol table in the order of its ids."""
    write_text(path, symbols_text(table))


def symbols_text(table: SymbolTable) -> str:
    """Return the text of a symbol table."""
    return "".join(f"{name}\t{key}\n" for name, key in sorted(table.items(), key=lambda item: item[1]))


def symbols_for(alphabet: Iterable[Hashable]) -> dict[str, int]:
    """Return a symbol table for an alphabet, in its order: `<eps>` 0, then 1, 2, …

    Names are the symbols themselves if they are strings, and their digits if they are integers.
    """
    table = {EPSILON_NAME: 0}
    for symbol in alphabet:
        name = plain_name(symbol)
        if name in table:
            clash = "is the name of ε" if name == EPSILON_NAME else "stands for two symbols"
            raise FormatError(
                f"every symbol needs its own name in a symbol table, but {shown(name)} {clash}. Rename the symbol."
            )
        table[name] = len(table)
    return table


# ---- costs -------------------------------------------------------------------------------------------------

Costs = Literal["neglog", "plain"]


def resolve_costs(semiring: Semiring, costs: str | None) -> Costs:
    """Return the convention for a semiring, or raise if the semiring does not have the given one."""
    if costs is None:
        return "neglog" if semiring.costs else "plain"
    if costs not in ("neglog", "plain"):
        raise SemiringError(f'costs must be "neglog" or "plain"; got {costs!r}')
    if costs == "neglog" and not semiring.costs:
        raise SemiringError(f'{semiring.name} weights have no negative logarithms; use costs="plain"')
    return costs


def weight_of(cost: float, semiring: Semiring, costs: Costs) -> float:
    """Return the weight that a cost stands for; raise `SemiringError` if the semiring has no such weight."""
    if costs == "plain":
        return checked_weight(cost, semiring)
    weight = semiring.from_log(0.0 - cost)  # not −0.0, which would be written with its sign
    if not semiring.logarithmic and (math.isinf(weight) or (weight == 0.0 and cost != math.inf)):
        raise SemiringError(
            f"the weight e^{-cost!r} is outside the range of float64 in the {semiring.name} semiring. "
            "Read the file in the log semiring."
        )
    return checked_weight(weight, semiring, f"weight of cost {cost!r}")


def cost_of(weight: float, semiring: Semiring, costs: Costs) -> float:
    """Return the cost that stands for a weight; raise `SemiringError` for a negative weight under "neglog"."""
    if costs == "plain":
        return weight
    logarithm = semiring.to_log(weight)
    if math.isnan(logarithm):
        raise SemiringError(f'a negative weight ({weight!r}) has no logarithm; use costs="plain"')
    return 0.0 - logarithm
