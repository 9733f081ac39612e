"""Synthetic tasks with soft patterns: the label of a text is decided by an automaton.

A text is drawn at random, with misleading words, and scored by the task's WFSA. Both classes have the same number of
texts, no text occurs twice, and the length of a text says nothing about its label.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rrnn import moved
from rrnn.errors import DataError
from rrnn.tasks.data.labelled_files import Row

if TYPE_CHECKING:  # the automata need torch, the list of tasks does not
    from rrnn.wfsa.machine import WFSA

PREFIX = "synthetic:"
NAMES = {
    "synthetic:not-good": 'contain "not" and later "good"',
    "synthetic:more-a-than-b": "contain more a than b",
    "synthetic:ends-within-3": "contain an x with at most 3 words after it",
}
SIZES = (2000, 500, 1000)

FILLERS = (
    *("the", "film", "was", "and", "its", "plot", "story", "cast", "music", "scenes"),
    *("that", "we", "saw", "it", "this", "in", "of", "to", "with", "for"),
)

Draw = Callable[[random.Random], tuple[str, ...]]


@dataclass(frozen=True)
class SyntheticTask:
    """A task with two classes: is the score of a text above zero (true in boolean, positive in real)?"""

    name: str
    automaton: WFSA
    draw: Draw

    def labels(self, texts: Sequence[tuple[str, ...]]) -> list[bool]:
        """Return the labels of texts."""
        return (self.automaton.score(list(texts)) > 0).tolist()


def get_task(name: str) -> SyntheticTask:
    """Return the task `synthetic:not-good`, `synthetic:more-a-than-b`, or `synthetic:ends-within-K` for a number K."""
    kind = name.removeprefix(PREFIX)
    if kind == "not-good":
        return SyntheticTask(name, not_good(), _draw_not_good)
    if kind == "more-a-than-b":
        return SyntheticTask(name, more_a_than_b(), _draw_more_a_than_b)
    if match := re.fullmatch(r"ends-within-(\d{1,2})", kind):
        k = int(match[1])
        return SyntheticTask(name, ends_within(k), partial(_draw_ends_within, k))
    raise DataError(
        f"there is no synthetic task {name!r}: the tasks are {', '.join(NAMES)} (or another number than 3)"
    )


def generate(name: str, seed: int = 0, sizes: Sequence[int] = SIZES) -> dict[str, list[Row]]:
    """Draw texts for train, dev and test, half with the label yes and half no. The same seed gives the same texts."""
    task = get_task(name)
    rng = random.Random(f"{task.name} {seed}")
    seen: set[tuple[str, ...]] = set()
    return {
        split: _rows(task, size, rng, seen)
        for split, size in zip(("train", "dev", "test"), sizes, strict=True)
    }


def _rows(task: SyntheticTask, size: int, rng: random.Random, seen: set[tuple[str, ...]]) -> list[Row]:
    wanted = {True: size - size // 2, False: size // 2}
    rows: list[Row] = []
    while len(rows) < size:
        texts = [task.draw(rng) for _ in range(512)]
        for text, label in zip(texts, task.labels(texts), strict=True):
            if wanted[label] and text not in seen:
                seen.add(text)
                wanted[label] -= 1
                rows.append(Row(" ".join(text), "yes" if label else "no", task.name, len(rows) + 1))
    return rows


# ---- the automata -----------------------------------------------------------------------------------------------


def not_good() -> WFSA:
    """Return a boolean automaton for a soft pattern: `not`, then `good`, with anything before, between and after."""
    words = (*FILLERS, "not", "good")
    loops = [(state, word, state, True) for state in range(3) for word in words]
    arcs = [*loops, (0, "not", 1, True), (1, "good", 2, True)]
    return _machine("boolean", alphabet=words, arcs=arcs, initial={0: True}, final={2: True})


def more_a_than_b() -> WFSA:
    """Return a real automaton that counts a minus b. No semiring without negation can do this."""
    words = (*FILLERS, "a", "b")
    loops = [(state, word, state, 1.0) for state in range(2) for word in words]
    arcs = [*loops, (0, "a", 1, 1.0), (0, "b", 1, -1.0)]
    return _machine("real", alphabet=words, arcs=arcs, initial={0: 1.0}, final={1: 1.0})


def ends_within(k: int) -> WFSA:
    """Return a boolean automaton for anything, then an x, then at most k words."""
    words = (*FILLERS, "x")
    arcs = [(0, word, 0, True) for word in words] + [(0, "x", 1, True)]
    arcs += [(state, word, state + 1, True) for state in range(1, k + 1) for word in words]
    return _machine(
        "boolean", alphabet=words, arcs=arcs, initial={0: True}, final={i: True for i in range(1, k + 2)}
    )


def _machine(semiring: str, **parts: Any) -> WFSA:
    from rrnn.wfsa.machine import WFSA

    return WFSA(semiring, **parts)


# ---- texts, of which about half have the pattern ----------------------------------------------------------------


def _fillers(rng: random.Random, length: int) -> list[str]:
    return [rng.choice(FILLERS) for _ in range(length)]


def _draw_not_good(rng: random.Random) -> tuple[str, ...]:
    """Draw a text that mostly has one or two of each word, so that their order decides, not their number."""
    text = _fillers(rng, rng.randint(6, 18))
    nots, goods = rng.choice((1, 1, 2)), rng.choice((1, 1, 2))
    places = sorted(rng.sample(range(len(text)), nots + goods))
    kind = rng.random()
    if kind < 0.5:
        words = rng.sample(["not"] * nots + ["good"] * goods, nots + goods)
    elif kind < 0.9:
        words = ["good"] * goods + ["not"] * nots
    else:
        words = [rng.choice(("not", "good"))] * (nots + goods)
    for place, word in zip(places, words, strict=True):
        text[place] = word
    return tuple(text)


def _draw_more_a_than_b(rng: random.Random) -> tuple[str, ...]:
    """Draw a text with similar or equal numbers of a and b, so that no single word decides."""
    text = _fillers(rng, rng.randint(8, 18))
    fewer, ahead = rng.randint(0, 3), rng.choice((0, 1, 1, 1, 2, 2))
    words = ["a", "b"] if rng.random() < 0.5 else ["b", "a"]
    words = [words[0]] * (fewer + ahead) + [words[1]] * fewer
    for place, word in zip(rng.sample(range(len(text)), len(words)), words, strict=True):
        text[place] = word
    return tuple(text)


def _draw_ends_within(k: int, rng: random.Random) -> tuple[str, ...]:
    """Draw a text whose last x is within the last k + 1 words or before them, with misleading ones before it."""
    length = rng.randint(k + 5, k + 15)
    text = _fillers(rng, length)
    after = rng.randint(0, k) if rng.random() < 0.5 else rng.randint(k + 1, length - 1)
    last = length - 1 - after
    text[last] = "x"
    for place in rng.sample(range(last), min(last, rng.choice((0, 0, 1, 2)))):
        text[place] = "x"
    return tuple(text)


__getattr__ = moved.attributes(__name__)
