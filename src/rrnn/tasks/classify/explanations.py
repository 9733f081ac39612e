"""Explain the prediction of a text classifier by its words and by the units of its first layer.

What is explained is the *margin* of a label: its logit minus the mean of the others'. With two labels it is their
difference.

- `without`: what the margin loses when the word is deleted and the whole model runs on the shorter text. Exact.
- `adds`: what the paths that enter the first layer's automata at the word add to the margin. Exact for one layer with a
  linear read-out whose outputs are scores; otherwise first-order, and `unexplained` is the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.errors import DataError, RunError
from rrnn.interpret import Phrase, Reading, TokenPath, k_best_wordings, logit_contributions, phrases, read
from rrnn.interpret.logits import outputs
from rrnn.interpret.paths import finite
from rrnn.interpret.trellises import rank
from rrnn.nn import RationalRNN
from rrnn.semirings import get_semiring
from rrnn.semirings.semiring import Element
from rrnn.tasks.classify.deletion import logits_without_each
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.classify.unit_maps import UnitMap, unit_maps
from rrnn.tasks.configs import OFF
from rrnn.tasks.threads import ThreadChoice, cpu_threads

LONG = 64
"""Words of a text for which it is worth looking how many processors are free."""
_SHOWN = 200  # characters of a word; users' words may be of any length


@dataclass(frozen=True)
class Word:
    """One word of the text."""

    token: str
    known: bool
    """Whether the word is in the model's vocabulary."""
    without: float
    """What the margin loses when the word is deleted; it is positive for words that speak for the label."""
    adds: float | None
    """What the paths that enter at the word add to the margin; None where scores are not sums."""


@dataclass(frozen=True)
class Unit:
    """A unit of the first layer, with its strongest paths in this text."""

    unit: int
    direction: str
    cell: str
    semiring: str
    adds: float
    """What it adds to the margin, over all steps; see `Explanation.exact`."""
    slope: float
    """The gradient of the margin with respect to its score (or outputs), summed over steps; positive if high scores
    speak for the label."""
    score: Element
    """The score after the whole text."""
    phrases: tuple[Phrase, ...]
    """The strongest phrases that it finds anywhere in the text, regardless of the rest of the text, each with the
    weight of its strongest path. Empty over semirings of several components, whose weights have no sign."""
    paths: tuple[TokenPath, ...]
    """The strongest paths to the end of the text. Paths through states of a family that read the same words are one,
    with the ⊕ of their weights."""
    covered: float | None
    """The share of these paths in the total |weight| of all paths; None as in `UnitPaths`."""

    def added_by(self, weight: Element) -> float | None:
        """Return what a path or phrase of this weight adds to the margin: its share in the score of what the unit adds.

        A sum divides among its paths by their weights; a maximum is its best path alone; other scores do not divide.
        """
        ring = get_semiring(self.semiring)
        if ring.selective:
            return self.adds if weight == self.score else 0.0
        if not ring.adds or isinstance(weight, tuple) or isinstance(self.score, tuple):
            return None
        return weight * (self.adds / self.score if self.score else self.slope)

    def to_json(self) -> dict[str, Any]:
        lists = {name: [each.to_json() for each in getattr(self, name)] for name in ("phrases", "paths")}
        return finite(asdict(self) | lists)


@dataclass(frozen=True)
class Explanation:
    """A prediction with what its words and units contribute."""

    label: str
    """The most likely label."""
    probabilities: dict[str, float]
    target: str
    """The label whose margin is explained."""
    margin: float
    words: tuple[Word, ...]
    exact: bool
    """Whether what words and units add is exact; otherwise it is first-order."""
    unexplained: float | None
    """The margin minus `base` and minus what all words add."""
    base: float | None
    """The margin if every score of the first layer were 0."""
    units: tuple[Unit, ...]
    """The units that add most, the strongest one first."""
    note: str
    """What could not be explained, and why."""
    maps: tuple[UnitMap, ...] = ()
    """At which words the paths of the strongest units enter; empty unless maps were requested."""

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(word.token for word in self.words)

    @property
    def kind(self) -> str:
        """The word for `exact` on pages and in the terminal."""
        return "exact" if self.exact else "first-order"

    def to_json(self) -> dict[str, Any]:
        return finite(asdict(self) | {"units": [unit.to_json() for unit in self.units]})


def explain(
    model: TrainedClassifier,
    text: str,
    *,
    target: str | None = None,
    units: int = 5,
    paths: int = 3,
    maps: int = 0,
) -> Explanation:
    """Explain the margin of `target` (the most likely label, if None) by every word, by the strongest `units` of the
    first layer, by the strongest `paths` of each unit, and by up to `maps` entry maps of these units."""
    check_classifier(model)
    if not isinstance(text, str):
        raise DataError(f"the text to explain must be a str; got {type(text).__name__}")
    for name, count, least in (("units", units, 1), ("paths", paths, 1), ("maps", maps, 0)):
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            kind = "positive" if least else "non-negative"
            raise DataError(f"{name} must be a {kind} integer, how many to show; got {count!r}")
    tokens = model.tokenise(text)
    if not tokens:
        raise DataError(
            "there is no word in this text, so there is nothing to explain: pass a text with words"
        )
    if target is not None and target not in model.labels:
        raise DataError(f"the labels of this model are {', '.join(model.labels)}; got {target!r}")
    module = model.module
    is_long = len(tokens) > LONG and module.embedding.device.type == "cpu"
    with torch.no_grad(), cpu_threads(ThreadChoice()()) if is_long else nullcontext():
        ids = torch.as_tensor(model.encode(tokens), device=module.embedding.device)
        whole, shorter = logits_without_each(module, ids)
        if not whole.isfinite().all():
            raise RunError(
                f"an explanation needs finite logits; this model gives {', '.join(map(str, whole.tolist()))}. Its "
                "weights have diverged: train it again with a smaller learning rate."
            )
        chances = whole.softmax(-1).tolist()
        best = int(whole.argmax())
        goal = best if target is None else model.labels.index(target)
        weigh = _margin(goal, len(model.labels)).to(whole)
        without = ((whole - shorter) @ weigh).tolist()
        shown = [_visible(token if len(token) <= _SHOWN else f"{token[:_SHOWN]}…") for token in tokens]
        looked = _look(module, ids, shown, weigh, units, paths, maps)
    adds = [None] * len(tokens) if looked.adds is None else looked.adds
    words = set(model.vocabulary.words)
    known = [token in words for token in tokens]
    return Explanation(
        model.labels[best],
        dict(zip(model.labels, chances, strict=True)),
        model.labels[goal],
        float(whole @ weigh),
        tuple(Word(*each) for each in zip(shown, known, without, adds, strict=True)),
        looked.exact,
        None
        if looked.base is None or looked.adds is None
        else float(whole @ weigh) - looked.base - sum(looked.adds),
        looked.base,
        looked.units,
        looked.note,
        looked.maps,
    )


def check_classifier(model: object) -> None:
    """Raise a `DataError` unless `model` is a trained text classifier."""
    if not isinstance(model, TrainedClassifier):
        raise DataError(
            f"only a text classifier, as rrnn.load returns it, can be explained; got {type(model).__name__}. Load a "
            "run of `rrnn classify train`."
        )


def _visible(token: str) -> str:
    """Escape what a terminal would obey or nobody would see: control characters, marks of direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)


def _margin(goal: int, classes: int) -> Tensor:
    """Return the weights of the logits in the margin of class `goal`."""
    weigh = torch.full((classes,), -1 / max(1, classes - 1))
    weigh[goal] = 1.0
    return weigh


def shade(value: float, largest: float) -> float:
    """Return how strongly to colour a word, from 0 to 1, given the largest of all values."""
    return min(1.0, abs(value) / largest) if largest > 0 else 0.0


# ---- inside the first layer -----------------------------------------------------------------------------------------


class _Look(NamedTuple):
    adds: list[float] | None
    base: float | None
    exact: bool
    units: tuple[Unit, ...]
    note: str
    maps: tuple[UnitMap, ...] = ()


def _look(
    module: TextClassifier, ids: Tensor, tokens: list[str], weigh: Tensor, units: int, paths: int, maps: int
) -> _Look:
    first, config = module.layers[0], module.config
    if not isinstance(first, RationalRNN):
        return _Look(
            None,
            None,
            False,
            (),
            f"{config.cell} has no automata inside: only the effect of deleting words is shown."
            if config.block == OFF
            else "The automata of blocks do not read words, but what a block makes of them: only the effect of "
            "deleting words is shown.",
        )
    x = module.embed(ids)
    readings = [
        read(first, x, tokens, backward=backward)
        for backward in ((False, True) if first.bidirectional else (False,))
    ]
    lengths = torch.tensor([len(ids)], device=ids.device)
    ruled = None if module.rules is None else module.rules(x.unsqueeze(1), ids.unsqueeze(1), lengths)
    head = _head(module, len(tokens), weigh, ruled)
    sides, _ = first(x.unsqueeze(1))
    halves = list(sides.split(first.output_size // first.num_directions, -1))
    affine = not config.changes_for_affine_readout()
    if any(not part.ring.adds for reading in readings for part in reading.parts):
        adds, slopes = (_by_unit(first, each) for each in _by_output(head, sides))
        ranked = _units(readings, adds, slopes, units, paths)
        return _Look(None, None, affine, ranked, _no_sums(readings), _maps(readings, ranked, maps))
    found = [
        logit_contributions(reading, _side(head, halves, i), affine=affine)
        for i, reading in enumerate(readings)
    ]
    idle = [
        outputs(reading, torch.zeros(len(tokens), 1, first.hidden_size, dtype=torch.float64))
        for reading in readings
    ]
    base = float(head(torch.cat(idle, -1))) + sum(float(each.constant) for each in found)
    adds = sum(each.by_token[:, 0, 0] for each in found)
    assert isinstance(adds, Tensor)
    slopes = [each.gradient[:, 0, 0].sum(0) for each in found]
    ranked = _units(readings, [each.by_unit[0, 0] for each in found], slopes, units, paths)
    above = (
        ""
        if config.layers == 1
        else "Only units of the first layer are shown: deeper layers do not read words."
    )
    if ruled is not None:
        part = f"The rules add {float(ruled @ weigh):+.2f} to the margin, which is part of the base."
        above = f"{above} {part}".strip()
    exact = all(each.exact for each in found)
    return _Look(adds.tolist(), base, exact, ranked, above, _maps(readings, ranked, maps))


def _maps(readings: list[Reading], units: Sequence[Unit], most: int) -> tuple[UnitMap, ...]:
    return unit_maps(readings, [(unit.direction, unit.unit) for unit in units], most)


def _no_sums(readings: list[Reading]) -> str:
    """Say why it is not known what words add."""
    rings = {part.ring for reading in readings for part in reading.parts if not part.ring.adds}
    names = ", ".join(sorted(ring.name for ring in rings))
    what = "single numbers" if any(ring.components for ring in rings) else "sums over words"
    return (
        f"Scores over {names} are not {what}: see the paths of the units, and the effect of deleting words."
    )


Head = Callable[[Tensor], Tensor]


def _head(module: TextClassifier, steps: int, weigh: Tensor, ruled: Tensor | None) -> Head:
    """Return the function from the first layer's outputs (T, 1, H) to the margin (1, 1). `ruled` (1, classes) is what
    the rules add to the logits."""
    mask = torch.ones(steps, 1, dtype=torch.bool, device=weigh.device)
    lengths = torch.tensor([steps], device=weigh.device)

    def margin(h: Tensor) -> Tensor:
        for layer in list(module.layers)[1:]:
            h, _ = layer(h)
        logits = module.readout(module.pool(h, mask, lengths))
        return ((logits if ruled is None else logits + ruled) @ weigh).unsqueeze(-1)

    return margin


def _side(head: Head, halves: list[Tensor], which: int) -> Head:
    """Return the head as a function of one direction, with the outputs of the other one fixed."""
    return lambda h: head(torch.cat([h if i == which else half for i, half in enumerate(halves)], -1))


def _by_output(head: Head, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient · output and the gradient for each output, summed over steps."""
    with torch.enable_grad():
        h = h.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(head(h).sum(), h)
    return (gradient * h.detach()).sum((0, 1)), gradient.sum((0, 1))


def _by_unit(layer: RationalRNN, values: Tensor) -> list[Tensor]:
    """Return the values of each unit, summed over its outputs, for each direction."""
    sizes = [width * len(cell.output_exprs) for cell, width in layer.cells]
    parts = iter(values.split(sizes * layer.num_directions))
    return [
        torch.cat([next(parts).view(-1, width).sum(0) for _, width in layer.cells])
        for _ in range(layer.num_directions)
    ]


def _units(
    readings: list[Reading], adds: Sequence[Tensor], slopes: Sequence[Tensor], count: int, paths: int
) -> tuple[Unit, ...]:
    """Return the units of both directions that add most."""
    every = [(value, i, d) for i, some in enumerate(adds) for d, value in enumerate(some.tolist())]
    chosen = sorted(every, key=lambda each: -abs(each[0]))[:count]
    found: list[Unit] = []
    for i, reading in enumerate(readings):
        values = {reading.units[d]: (value, slopes[i][d].item()) for value, which, d in chosen if which == i}
        if values:
            found += _looked_into(reading.of_units(list(values)), values, paths)
    return tuple(sorted(found, key=lambda unit: -abs(unit.adds)))


def _looked_into(reading: Reading, values: dict[int, tuple[float, float]], paths: int) -> Iterator[Unit]:
    direction = "backward" if reading.backward else "forward"
    plain = [
        u for part in reading.parts if not part.ring.components for u in part.units
    ]  # others have no phrases
    seen = {unit.unit: unit for unit in (phrases(reading.of_units(plain), paths) if plain else [])}
    for unit in k_best_wordings(reading, paths):
        ring = get_semiring(unit.semiring)
        own = (*seen[unit.unit].positive, *seen[unit.unit].negative) if unit.unit in seen else ()
        both = [(float(rank(ring, torch.tensor(p.weight))), p) for p in own]
        best: dict[Any, Phrase] = {}  # paths through states of a family may give a phrase either sign
        for _, phrase in sorted(both, key=lambda each: -each[0]):
            best.setdefault((phrase.tokens, phrase.kinds), phrase)
        what = (unit.unit, direction, unit.cell, unit.semiring, *values[unit.unit], unit.score)
        yield Unit(*what, tuple(best.values())[:paths], unit.paths, unit.covered)
