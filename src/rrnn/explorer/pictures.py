"""Draw automata so that the page can highlight each arc, state and label, which are groups of their own."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rrnn.automata import Cell
from rrnn.draw import Diagram, diagram_of
from rrnn.draw.layout import scene
from rrnn.draw.svg import STYLE, write_svg
from rrnn.errors import AutomatonError
from rrnn.wfsa import WFSA

MAX_STATES, MAX_ARROWS, SECONDS = 30, 90, 3.0
"""The limits of pictures, which are drawn while the user types. Placing labels takes longer the denser an automaton is:
0.1 s for all of the zoo, but 8 s for 10 states with 40 arrows."""


def picture(x: Cell | WFSA) -> dict[str, Any]:
    """Return {"svg": …} with a group for each arc, state and label, in this order, or {"why": …} if it is not drawn.

    The style is left out: the page loads it once from /picture.css, since its policy refuses inline styles.
    """
    return dict(_drawn(diagram_of(x)))


@lru_cache(maxsize=32)
def _drawn(diagram: Diagram) -> dict[str, Any]:
    """Draw a diagram. Results are cached, since another string or sentence does not change the automaton."""
    try:
        _check_size(diagram)
        with _at_most(SECONDS):
            placed = scene(diagram)
    except AutomatonError as error:
        return {"why": str(error)}
    place = {node.key: i for i, node in enumerate(diagram.nodes)}
    ends = [(edge.source, edge.target) for edge in diagram.edges]
    everything = frozenset([*((q,) for q in place), *ends])
    return {
        "svg": write_svg(placed, everything).replace(f"<style>{STYLE}</style>\n", ""),
        "edges": [[place[q], place[p]] for q, p in ends],
        "states": len(place),
    }


def _check_size(diagram: Diagram) -> None:
    states, arrows = len(diagram.nodes), len(diagram.edges)
    if states > MAX_STATES or arrows > MAX_ARROWS:
        raise AutomatonError(
            f"the page draws automata of up to {MAX_STATES} states and {MAX_ARROWS} arrows; this one has {states} and "
            f"{arrows}. Use `rrnn draw` for larger ones."
        )


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise if the block takes longer. On Windows, which lacks the signal, only the limit of the whole job applies."""

    def stop(*_: Any) -> None:
        raise AutomatonError(
            f"this automaton is too dense to be drawn within {seconds:.0f} s, the limit of the page. "
            "Use `rrnn draw`, which has no such limit."
        )

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
