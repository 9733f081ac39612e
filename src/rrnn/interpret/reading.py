"""Lay a layer's automata over sentences: compute the weight of every move of every unit at each position.

    reading = read(rnn, vectors, ["not", "very", "good"])

The other functions of this package take a reading. Its numbers are float64 on the CPU, whatever the layer's device and
dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.automata import Cell, Evaluator, one
from rrnn.automata.evaluator import leaf_name
from rrnn.automata.expressions import Expr
from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret.moves import Bridge, Moves, moves_of
from rrnn.nn import RationalRNN
from rrnn.nn.layer import RationalLayer
from rrnn.nn.sequences import mask_of_lengths, zero_padding
from rrnn.semirings import Semiring
from rrnn.theory.unit_automata import why_open
from rrnn.wfsa.trellis import Edges, star_of


@dataclass(frozen=True, eq=False)
class CellReading:
    """The reading of one cell's units: T steps, B sentences, D units. States and moves are numbered as in `moves`."""

    moves: Moves
    units: tuple[int, ...]
    """The numbers of the units in the layer."""
    initial: Tensor
    """Initial weights λ: (S, D), 0̄ where no path starts."""
    weights: Tensor
    """The weight of each move with its ε-arcs: (T, moves, B, D)."""
    ends: Tensor
    """The weight of each end with its ε-arcs: (ends, D)."""

    @property
    def cell(self) -> Cell:
        return self.moves.cell

    @property
    def ring(self) -> Semiring:
        return self.moves.cell.semiring

    def only(self, columns: list[int]) -> CellReading:
        """Return the reading of some of the units, chosen by their columns."""
        chosen = torch.tensor(columns, dtype=torch.int64)
        return CellReading(
            self.moves,
            tuple(self.units[c] for c in columns),
            *(w.index_select(self.units_dim(w), chosen) for w in (self.initial, self.weights, self.ends)),
        )

    def units_dim(self, weights: Tensor) -> int:
        """Return the dimension of the units: the last one, before the components that weights may have."""
        return weights.dim() - 1 - bool(self.ring.components)


@dataclass(frozen=True, eq=False)
class Reading:
    """A layer's reading of one or several sentences, returned by `read`."""

    layer: RationalLayer
    depth: int
    backward: bool
    tokens: tuple[tuple[str, ...], ...]
    """The words of each sentence; for a deeper layer, which reads no words, the positions @1, @2, …"""
    x: Tensor
    """(T, B, I): the layer's input, in reading order, with zeros after the end of a sentence."""
    parts: tuple[CellReading, ...]

    def __repr__(self) -> str:
        cells = ", ".join(f"{len(part.units)} × {part.cell.name}" for part in self.parts)
        way = ", backwards" if self.backward else ""
        return f"<Reading of {len(self.tokens)} sentences by layer {self.depth}{way}: {cells}>"

    @property
    def lengths(self) -> list[int]:
        return [len(sentence) for sentence in self.tokens]

    @property
    def units(self) -> tuple[int, ...]:
        """The numbers of the units, in the order of all results."""
        return tuple(unit for part in self.parts for unit in part.units)

    @property
    def valid(self) -> Tensor | None:
        """(T, B), True up to the end of each sentence; None if all have the same length."""
        steps, batch = self.x.shape[:2]
        if all(n == steps for n in self.lengths):
            return None
        return mask_of_lengths(self.lengths, steps, batch, torch.device("cpu"))

    def position(self, sentence: int, step: int) -> int:
        """Return the position in the sentence that the layer reads at a step; a backward layer begins at the end."""
        return len(self.tokens[sentence]) - 1 - step if self.backward else step

    def in_order(self, by_step: Tensor) -> Tensor:
        """Reorder a tensor (T, B, …) from reading order to the order of the sentence."""
        return reverse(by_step, self.lengths) if self.backward else by_step

    def both_in_order(self, by_steps: Tensor) -> Tensor:
        """Reorder a tensor (T, T, B, …), indexed by two steps, to the order of the sentence."""
        second = self.in_order(by_steps.transpose(1, 2)).transpose(0, 2)
        return self.in_order(second).transpose(0, 2).transpose(1, 2)

    def of_units(self, units: Sequence[int]) -> Reading:
        """Return the reading of these units only, in the layer's order."""
        check_units(units, self.units, "this reading")
        kept = [part.only([c for c, unit in enumerate(part.units) if unit in units]) for part in self.parts]
        return replace(self, parts=tuple(part for part in kept if part.units))


def read(
    rnn: RationalRNN,
    x: Tensor,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    *,
    lengths: Sequence[int] | None = None,
    layer: int = 0,
    backward: bool = False,
    units: Collection[int] | None = None,
) -> Reading:
    """Read a sentence x (T, I), or a batch in the layout that `rnn` itself takes, with one of its layers.

    `tokens` are the words; for a batch, one list per sentence, which also gives its length (as `lengths` does).
    `backward` reads with the backward direction of a bidirectional layer. The first layer reads words; a deeper one,
    `layer=1`, reads the states below it, which depend on many words, so its tokens are positions. `units` are the
    numbers of the units to read, by default all: a layer whose units have many states is read faster with a few.
    """
    checked = _rational(rnn, layer, backward)
    if units is not None:
        check_units(units, range(checked.hidden_size), "this layer")
    x, sentences = _sentences(rnn, x, tokens, lengths)
    counts = [len(sentence) for sentence in sentences]
    with torch.no_grad():
        mask = mask_of_lengths(counts, x.shape[0], x.shape[1], x.device)
        x = zero_padding(x, mask)
        if layer:
            with _evaluating(rnn):
                x = _below(rnn, x, mask, counts, layer)
        x = reverse(x, counts) if backward else x
        parts = weigh(checked, x, units=units)
    if layer:
        sentences = tuple(tuple(f"@{i + 1}" for i in range(n)) for n in counts)
    return Reading(checked, layer, backward, sentences, x, parts)


def reverse(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Reverse each sentence of (T, B, …), leaving its padding at the end."""
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    n = torch.tensor(list(lengths), dtype=torch.int64, device=x.device)
    order = torch.where(steps < n, n - 1 - steps, steps)
    return x.gather(0, order.view(*order.shape, *[1] * (x.dim() - 2)).expand_as(x))


# ---- weights --------------------------------------------------------------------------------------------------------


class Weights(Evaluator):
    """Evaluate weight functions on tensors, for all units, positions and sentences at once.

    `leaves` holds the values of projections (with their biases) and parameters by name, of "input" and of "score".
    """

    def __init__(self, leaves: Mapping[str, Tensor], ring: Semiring, like: Tensor) -> None:
        super().__init__(TENSORS, ring, lambda node: leaves[leaf_name(node)], like.new_tensor)
        self.leaves, self.like = leaves, like

    def of_columns(self, columns: Sequence[int], changed: Mapping[str, Tensor] | None = None) -> Weights:
        """Return the evaluator of some units, chosen by their columns, with the values of some leaves changed."""
        chosen = {name: value[..., list(columns)] for name, value in self.leaves.items()}
        return Weights(chosen | dict(changed or {}), self.ring, self.like)


def weigh(
    layer: RationalLayer, x: Tensor, history: Tensor | None = None, units: Collection[int] | None = None
) -> tuple[CellReading, ...]:
    """Read x (T, B, I) with each cell of a layer, or with some of its units; `history`, zeros if None, is the K − 1
    earlier inputs of a window."""
    parts, first, wanted = [], 0, None if units is None else set(units)
    for cell, width, value in zip(layer.cell_types, layer.widths, leaves(layer, x, history), strict=True):
        chosen = [unit for unit in range(first, first + width) if wanted is None or unit in wanted]
        if len(chosen) < width:
            value = value.of_columns([unit - first for unit in chosen])
        if chosen:
            parts.append(cell_reading(moves_of(cell), value, chosen, x.shape[:2]))
        first += width
    return tuple(parts)


def leaves(layer: RationalLayer, x: Tensor, history: Tensor | None = None) -> list[Weights]:
    """Return each cell's evaluator, with its projections (T, B, D), biases included, and parameters (D,)."""
    values = layer.leaf_values(x, history, dtype=torch.float64, device="cpu")
    exact = torch.empty(0, dtype=torch.float64)
    return [
        Weights({name: value.detach() for name, value in found.items()}, cell.semiring, exact)
        for found, cell in zip(values, layer.cell_types, strict=True)
    ]


def cell_reading(moves: Moves, value: Weights, units: Sequence[int], shape: Sequence[int]) -> CellReading:
    """Return the reading of one cell's units, given their evaluator, over `shape`: steps and sentences."""
    ring, width = moves.cell.semiring, len(units)

    def weight(expr: Expr, *shape: int) -> Tensor:
        return _expanded(ring, ring.bind(value.weight(expr)).to(value.like), *shape)

    bridges = _bridges(moves, weight, width)
    initial = dict(moves.initials)
    zero = ring.zeros(width, dtype=value.like.dtype)
    inner = zero.shape[1:]
    weights = [
        _expanded(ring, ring.t_times(bridges[move.bridge], weight(move.arc.weight)), *shape, width)
        for move in moves.moves
    ]
    ends = [ring.t_times(bridges[end.bridge], weight(end.weight, width)) for end in moves.ends]
    return CellReading(
        moves,
        tuple(units),
        torch.stack([weight(initial[q], width) if q in initial else zero for q in moves.states]),
        torch.stack(weights, 1) if weights else zero.new_empty(shape[0], 0, *shape[1:], width, *inner),
        torch.stack(ends) if ends else zero.new_empty(0, width, *inner),
    )


def _expanded(ring: Semiring, weight: Tensor, *shape: int) -> Tensor:
    """Return a tensor of elements, expanded to a shape (without that of components), if one is given."""
    return weight.expand(*shape, *weight.shape[weight.dim() - bool(ring.components) :]) if shape else weight


def _bridges(moves: Moves, weight: Callable[..., Tensor], width: int) -> dict[Bridge, Tensor]:
    """Return the weight of each bridge, (D,)."""
    ring, found = moves.cell.semiring, {}
    closure = _closure(moves, weight, width) if any(b.star for b in moves.bridges) else {}
    for bridge in moves.bridges:
        product = weight(one, width)
        for arc in bridge.arcs:
            product = ring.t_times(product, weight(arc.weight, width))
        found[bridge] = closure[bridge.source, bridge.target] if bridge.star else product
    return found


def _closure(moves: Moves, weight: Callable[..., Tensor], width: int) -> dict[tuple[str, str], Tensor]:
    """Return the total weight of the ε-paths between each two states, the empty ones too, (D,)."""
    ring = moves.cell.semiring
    states = list(dict.fromkeys(q for arc in moves.epsilons for q in (arc.source, arc.target)))
    source, target = (
        torch.tensor([states.index(q) for q in ends])
        for ends in ([a.source for a in moves.epsilons], [a.target for a in moves.epsilons])
    )
    weights = torch.stack([weight(arc.weight, width) for arc in moves.epsilons])
    star = star_of(ring, Edges(len(states), source, target), weights)
    return {(p, q): star[i, j] for i, p in enumerate(states) for j, q in enumerate(states)}


# ---- checks of arguments --------------------------------------------------------------------------------------------


def check_units(units: Any, known: Sequence[int], what: str) -> None:
    """Raise a `ShapeError` unless these are some of the known units."""
    if not isinstance(units, Collection) or isinstance(units, str):
        raise ShapeError(f"the units to read are a list of unit numbers; got {units!r}. Write [{units!r}].")
    unknown = [unit for unit in units if unit not in known]
    if unknown or not units:
        raise ShapeError(
            f"the units of {what} have numbers from {min(known)} to {max(known)}; "
            f"got {repr(unknown[0]) if unknown else 'none'}"
        )


def _rational(rnn: Any, layer: Any, backward: bool) -> RationalLayer:
    if not isinstance(rnn, RationalRNN):
        known = why_open(rnn)
        raise AutomatonError(
            f"read takes a RationalRNN, whose units are cells; got {type(rnn).__name__}. "
            + (known or "Pass the layer itself.")
        )
    if not isinstance(layer, int) or isinstance(layer, bool) or not 0 <= layer < rnn.num_layers:
        raise ShapeError(f"layer must be a number from 0 to {rnn.num_layers - 1}; got {layer!r}")
    if backward and not rnn.bidirectional:
        raise ShapeError(
            "this layer is not bidirectional, so it has no backward direction: leave out backward=True"
        )
    found = (rnn.reverse_layers if backward else rnn.layers)[layer]
    assert isinstance(found, RationalLayer)
    return found


def _sentences(
    rnn: RationalRNN, x: Any, tokens: Any, lengths: Sequence[int] | None
) -> tuple[Tensor, tuple[tuple[str, ...], ...]]:
    """Return x as (T, B, I), and the words of each sentence."""
    if not isinstance(x, Tensor) or x.dim() not in (2, 3) or x.shape[-1] != rnn.input_size:
        came = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(
            f"expected the vectors of a sentence, (time, {rnn.input_size}), or a batch of them; got {came}"
        )
    batched = x.dim() == 3
    x = x.transpose(0, 1) if batched and rnn.batch_first else x if batched else x.unsqueeze(1)
    steps, batch = x.shape[:2]
    if isinstance(tokens, str) or (batched and tokens and isinstance(tokens[0], str)):
        raise ShapeError(
            "tokens must be a list of words, for a batch one list per sentence; got a string. Split it into words."
        )
    if tokens is None:
        counts = [steps] * batch if lengths is None else [int(n) for n in lengths]
        found = tuple(tuple(str(i + 1) for i in range(n)) for n in counts)
    else:
        found = tuple(tuple(map(str, words)) for words in (tokens if batched else [tokens]))
    counts = [len(sentence) for sentence in found]
    if lengths is not None and [int(n) for n in lengths] != counts:
        raise ShapeError(
            f"lengths is {list(lengths)}, but the sentences have {counts} words: leave out lengths"
        )
    whole = max(counts, default=0) <= steps if batched else counts == [steps]
    if len(found) != batch or not whole:
        raise ShapeError(
            f"expected {batch} sentences of {'up to ' if batched else ''}{steps} words, one for each vector; got "
            f"sentences of {counts} words"
        )
    return x, found


def _below(rnn: RationalRNN, x: Tensor, mask: Tensor, lengths: Sequence[int], depth: int) -> Tensor:
    """Return what layer number `depth` reads: the outputs of the layers below it."""
    for level in range(depth):
        outputs = [rnn.layers[level](x, None, mask, True)[0]]
        if rnn.bidirectional:
            outputs.append(
                reverse(rnn.reverse_layers[level](reverse(x, lengths), None, mask, True)[0], lengths)
            )
        x = torch.cat(outputs, -1)
    return x


@contextmanager
def _evaluating(rnn: RationalRNN) -> Iterator[None]:
    """Switch off dropout and zoneout, whatever mode the layer is in."""
    training = rnn.training
    rnn.eval()
    try:
        yield
    finally:
        rnn.train(training)
