"""The errors and warnings of this library. A message states the rule, what was given, and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any


class RRNNError(Exception):
    """The base of all errors that a user can cause."""


class SemiringError(RRNNError, ValueError):
    """A value outside a semiring's set, or an operation that the semiring does not have."""


class AutomatonError(RRNNError, ValueError):
    """A cell or WFSA that breaks a rule of automata: unknown state, ε-cycle, no final state, …"""


class CellError(AutomatonError):
    """A cell (template) that breaks a rule of the cell language.

    The fix may be a `call` in Python and a `line` in a `.cell` text; `in_text` is the message with the latter.
    """

    def __init__(self, message: str, *, call: str = "", line: str = "") -> None:
        super().__init__(message + call)
        self.in_text = message + line


class FormatError(RRNNError, ValueError):
    """A file that cannot be read. `source` is its name and `line` the place in it, from 1, where they are known."""

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None) -> None:
        where = (source or "") + (
            f":{line}" if line is not None and source else f"line {line}" if line else ""
        )
        super().__init__(f"{where}: {message}" if where else message)
        self.source, self.line = source, line


class ShapeError(RRNNError, ValueError):
    """A tensor of the wrong shape, dtype or device."""


class ProgramError(RRNNError, ValueError):
    """A malformed IR program."""


class BackendError(RRNNError, RuntimeError):
    """A backend that is unknown, does not work here, or cannot run this program."""


class DataError(RRNNError, ValueError):
    """A data set that is missing, or a text, label or vector that cannot be used."""


class RunError(RRNNError, RuntimeError):
    """A training run that cannot start, resume or be loaded: its folder, configuration or checkpoints are at fault."""


class DivergedError(RunError):
    """A training run whose loss became NaN or infinite."""


class ExportError(RRNNError, ValueError):
    """A model, or an option of one, that cannot be exported to another format."""


class GrowthWarning(UserWarning):
    """A cell whose weights provably make its states grow without bound."""


class OutputWarning(UserWarning):
    """A cell whose output is not finite where its score is zero, which some values of its weights make it."""


def nearest(name: Any, names: Iterable[Any], quote: Callable[[Any], str] = repr) -> str:
    """Return " Did you mean …?" if one of the names is spelled similarly, and the empty string otherwise.

    A name that differs only in upper and lower case is similar. `quote` writes the name in the sentence.
    """
    texts = {str(n): n for n in names}
    lower = {text.lower(): n for text, n in texts.items()}
    close = difflib.get_close_matches(str(name), texts, 1)
    found = (
        [texts[close[0]]]
        if close
        else [lower[n] for n in difflib.get_close_matches(str(name).lower(), lower, 1)]
    )
    return f" Did you mean {quote(found[0])}?" if found else ""
