"""Families, which are named rows of states, and the rules of names: of states, projections, parameters, expressions."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from rrnn.errors import CellError

MAX_FAMILY = 16384
LEVELS = ("unit", "head", "group")
"""Whom a projection or parameter belongs to: each unit has its own, or the units of a head or of a group of heads share
one."""


@dataclass(frozen=True)
class Family:
    """A row of `size` states that share one description; their weights may depend on the index."""

    name: str
    size: int

    @property
    def source(self) -> End:
        """The index of the state that an arc leaves."""
        return End(self, "source")

    @property
    def target(self) -> End:
        """The index of the state that an arc enters."""
        return End(self, "target")

    def __str__(self) -> str:
        return self.name


ENDS = ("source", "target")


@dataclass(frozen=True)
class End:
    """The index of a family at one end of arcs from each of its states to each, as in `over=(h.source, h.target)`."""

    family: Family
    end: str

    def __str__(self) -> str:
        return f"{self.family}.{self.end}"


Over = Family | tuple[End, End] | None
"""What a projection or parameter has a value for: each state of a family, or each pair of a source and a target."""


def family(name: str, size: int) -> Family:
    """Return a row of `size` states, to be used like a state's name: `cell.arc("q0", h, weight)`."""
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_FAMILY:
        raise CellError(f"family({name!r}): its size is a whole number from 1 to {MAX_FAMILY}; got {size!r}")
    return Family(check_name(name, "a family's name"), size)


def check_name(name: object, what: str) -> str:
    """Return the name, or raise a `CellError`: names must survive every text form and mean the same in each."""
    if (
        not isinstance(name, str)
        or len(name) > 64
        or not (name.isidentifier() and re.fullmatch(r"\w+", name))
        or not unicodedata.is_normalized("NFKC", name)
    ):
        raise CellError(
            f"{what} must be an identifier of at most 64 letters, digits and _, not beginning with a digit; "
            f"got {short(name)}"
        )
    return name


def leaf_name(name: object, what: str) -> str:
    """Return the name of a projection or parameter, or raise a `CellError` if it is taken or no name."""
    if name in ("input", "score"):
        raise CellError(
            f"{what} cannot be {name!r}: that word is the layer's input or the automaton's score. "
            f"Use another name, such as {name}_1."
        )
    return check_name(name, what)


def short(x: object) -> str:
    """Return a value as a message shows it, however large it is. (Python refuses to print integers of over 4300
    digits.)"""
    try:
        text = repr(x)
    except Exception:
        text = f"a {type(x).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}…"
