"""`rrnn verify`: is every hidden unit the score of its automaton? Checked on random layers, in float64."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from rrnn.cli.tables import table


@dataclass
class Verify:
    """Compare the hidden scores of layers with Forward on their automata, and with path enumeration on short strings.

    Exits with 1 if a model differs from its automaton.
    """

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of the zoo, or .cell files; all of the zoo without any."""
    seed: int = 0
    """Of the random weights, alphabet and strings."""
    tolerance: float = 1e-10
    """The largest error that counts as rounding, relative to the score under absolute weights."""
    backend: str = "auto"
    """Which backend runs the layers: auto, reference, native or triton."""
    json: bool = False
    """Print one JSON object a line instead of a table."""


def verify(options: Verify) -> int:
    from rrnn import zoo  # here, so that --help does not wait for torch
    from rrnn.backends import use_backend
    from rrnn.theory import verify_cell

    verdicts = []
    with use_backend(options.backend):
        for name in options.models or tuple(zoo.CELLS):
            verdicts.append(
                verify_cell(zoo.get_cell(name), name=name, seed=options.seed, tolerance=options.tolerance)
            )
    if options.json:
        for verdict in verdicts:
            print(json.dumps(verdict.as_dict()))
    else:
        rows = [
            (
                v.model,
                v.semiring,
                f"{v.states} states, {v.arcs} arcs",
                str(v.stored_states),
                f"{v.forward_error:.1e}",
                f"{v.path_error:.1e}",
                "equal" if v.holds else "DIFFERENT",
            )
            for v in verdicts
        ]
        print(table(("model", "semiring", "automaton", "stored", "vs Forward", "vs paths", "verdict"), rows))
    return 0 if all(v.holds for v in verdicts) else 1
