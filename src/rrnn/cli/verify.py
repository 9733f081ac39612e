"""`rrnn verify`: check the paper's Table 1: compare layers of random weights with the automata of their units."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from rrnn.cli.overrides import option
from rrnn.cli.tables import table

if TYPE_CHECKING:
    from rrnn.theory import Verdict


@dataclass
class Verify:
    """Compare the scores in layers with Forward on their automata, and with path enumeration on short strings.

    The exit code is 1 if a model differs from its automaton.
    """

    models: Annotated[tuple[str, ...], tyro.conf.Positional, option("[NAME|FILE …]")] = ()
    """Models of the zoo or .cell files (default: all models of the zoo)."""
    seed: int = 0
    """The seed of the random weights, alphabet and strings."""
    tolerance: float = 1e-10
    """The largest error that counts as rounding, relative to the score with absolute weights."""
    backend: str = "auto"
    """The backend that runs the layers: auto, reference, native or triton."""
    json: Annotated[bool, option()] = False
    """Print one JSON object, {"rows": [...]}, instead of a table."""


def verify(options: Verify) -> int:
    from rrnn import zoo  # imported here, so that --help does not wait for torch
    from rrnn.backends import use_backend
    from rrnn.theory import verify_model

    verdicts = []
    with use_backend(options.backend):
        for name in options.models or tuple(zoo.MODELS):
            verdicts.append(verify_model(name, seed=options.seed, tolerance=options.tolerance))
    if options.json:
        print(json.dumps({"rows": [verdict.as_dict() for verdict in verdicts]}, indent=1, ensure_ascii=False))
    else:
        print(_table(verdicts))
    return 0 if all(v.holds for v in verdicts) else 1


def _table(verdicts: list[Verdict]) -> str:
    notes = list(dict.fromkeys(v.note for v in verdicts if v.note))
    rows = [
        (
            v.model,
            _short(v.recurrence),
            v.semiring,
            v.automaton,
            "" if v.states is None else str(v.states),
            "" if v.max_error is None else f"{v.max_error:.1e}",
            (v.verdict if v.holds else "DIFFERENT") + (f" [{notes.index(v.note) + 1}]" if v.note else ""),
        )
        for v in verdicts
    ]
    head = ("model", "recurrence", "semiring", "automaton", "states", "max error", "verdict")
    return "\n".join([table(head, rows), *(f"[{i}] {note}" for i, note in enumerate(notes, 1))])


def _short(text: str, width: int = 56) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
