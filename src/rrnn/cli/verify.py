"""`rrnn verify`: check the paper's Table 1: compare layers of random weights with the automata of their units."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from rrnn.cli.shared import option
from rrnn.cli.terminal import paragraph, table

if TYPE_CHECKING:
    from rrnn.theory import Verdict


@dataclass
class Verify:
    """Compare the scores in layers with Forward on their automata, and with path enumeration on short strings.

    The exit code is 1 if a model differs from its automaton. `rrnn zoo NAME` prints the recurrence of a model.
    """

    models: Annotated[tuple[str, ...], tyro.conf.Positional, option("[NAME|FILE …]")] = ()
    """Models of the zoo or .cell files (default: all models of the zoo)."""
    seed: int = 0
    """The seed of the random weights, alphabet and strings."""
    tolerance: float = 1e-10
    """The largest error that counts as rounding, relative to the score with absolute weights."""
    backend: str = "auto"
    """The backend that runs the layers: auto, reference, native, triton, matrix or affine."""
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
    notes = list(dict.fromkeys(_note(v) for v in verdicts if v.note))
    rows = [
        (
            v.model,
            v.semiring,
            v.automaton,
            "" if v.states is None else str(v.states),
            "" if v.max_error is None else f"{v.max_error:.1e}",
            _word(v) + (f" [{notes.index(_note(v)) + 1}]" if v.note else ""),
        )
        for v in verdicts
    ]
    head = ("model", "semiring", "automaton", "states", "error", "verdict")
    lines = [
        table(head, rows, in_files=80),
        *(paragraph(f"[{i}] {note}", "    ") for i, note in enumerate(notes, 1)),
    ]
    return "\n".join([*lines, "", paragraph(_summary(verdicts))])


def _word(verdict: Verdict) -> str:
    """Return the verdict in a word or two; the note says the rest."""
    if not verdict.holds:
        return "DIFFERENT"
    return "not rational" if _is_proved(verdict) else verdict.verdict


def _note(verdict: Verdict) -> str:
    """Return what is known about a recurrence without an automaton: what is proved, then the paper's words."""
    return f"N{verdict.verdict[1:]}. {verdict.note}" if _is_proved(verdict) else verdict.note


def _is_proved(verdict: Verdict) -> bool:
    return verdict.verdict.startswith("not rational")


def _summary(verdicts: list[Verdict]) -> str:
    """Say in a sentence what was compared and what came out."""
    compared = [v for v in verdicts if v.max_error is not None]
    different = [v.model for v in compared if not v.holds]
    proved = [v for v in verdicts if _is_proved(v)]
    open_ = [v for v in verdicts if v.max_error is None and not _is_proved(v)]
    parts = []
    if different:
        parts.append(
            f"{len(different)} of {_models(compared)} differ from their automata: {', '.join(different)}."
        )
    elif compared:
        agree = "agrees with its automaton" if len(compared) == 1 else "agree with their automata"
        scores, largest = sum(v.compared for v in compared), max(v.max_error or 0.0 for v in compared)
        parts.append(f"{_models(compared)} {agree}: the largest error in {scores:,} scores is {largest:.1e}.")
    if proved:
        parts.append(f"{_models(proved)} {'is' if len(proved) == 1 else 'are'} proved not to be rational.")
    if open_:
        parts.append(f"For {_models(open_)}, it is open whether the recurrence is rational.")
    return " ".join(parts)


def _models(verdicts: list[Verdict]) -> str:
    return f"{len(verdicts)} model" + ("" if len(verdicts) == 1 else "s")
