"""Find the attention that a recurrence implies: divide the masses of an entry map into weights and values.

In linear attention and its kin the mass of token s in the score after token t is a product: the weight of attention
q_t·∏α·k_s, which all units of a head share, times the value v_s of the unit. The value is found in the cell's
expressions: the projection (or the layer's input) by which every entering weight is multiplied, and on which nothing
else depends. For GLA, linear attention, RetNet, HGRN2 and Mamba-2 the weights belong to a head, for Mamba, S4D, B and
SRU to a unit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import EXPRESSIONS, leaf_name
from rrnn.errors import AutomatonError
from rrnn.interpret.entry_maps import (
    Shown,
    after_entering,
    before_entering,
    check_size,
    first_entries,
    place_of,
    rows_of,
    shown,
)
from rrnn.interpret.moves import Moves
from rrnn.interpret.reading import CellReading, Reading, cell_reading, leaves
from rrnn.interpret.trellises import side_by_side
from rrnn.nn.layer import RationalLayer
from rrnn.semirings import Semiring


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The result of `attention_map`, for T positions, B sentences, D units and H heads.

    The mass of token s in the score of unit d after token t is weight[t, s] of its head times value[s, d].
    """

    tokens: tuple[tuple[str, ...], ...]
    units: tuple[int, ...]
    heads: tuple[tuple[int, ...], ...]
    """The units that share a row of weights. If weights belong to units, each is a head of its own."""
    shared: tuple[bool, ...]
    """For each head, whether its weights belong to the head and not to a unit."""
    weight: Tensor
    """(T, T, B, H)"""
    value: Tensor
    """(T, B, D)"""
    parts: tuple[Shown, ...]

    @cached_property
    def share(self) -> Tensor:
        """(T, T, B, H): each weight divided by the sum of the absolute weights of its row, which keeps signs."""
        found, start = [], 0
        for part in self.parts:
            here = slice(start, start + part.units)
            start += part.units
            found.append(part.shares(self.weight[:, :, :, here], None))
        return torch.cat(found, 3)

    def head_of(self, unit: int) -> int:
        """Return the number of a unit's head."""
        place_of(unit, self.units, "unit")
        return next(h for h, units in enumerate(self.heads) if unit in units)

    def mass(self, unit: int) -> Tensor:
        """Return (T, T, B): the masses of one unit's tokens, weight · value."""
        weight, value = self.weight[:, :, :, self.head_of(unit)], self.value[:, :, self.units.index(unit)]
        return weight * (value.unsqueeze(-1) if weight.dim() > 3 else value)

    def rows(self, head: int, sentence: int = 0) -> list[list[float]]:
        """Return the shares of one head in one sentence, a row for each token."""
        return rows_of(self.share, self.tokens, sentence, place_of(head, range(len(self.heads)), "head"))


def attention_map(reading: Reading) -> AttentionMap:
    """Divide the masses of an entry map into weights, which the units of a head share, and values of the units."""
    found = [_attention(reading, part) for part in reading.parts]
    parts = [each.part for each in found]
    return AttentionMap(
        reading.tokens,
        reading.units,
        tuple(head for each in found for head in each.heads),
        tuple(each.shared for each in found for _ in each.heads),
        reading.both_in_order(
            side_by_side(parts, [first_entries(part, reading.valid)[1] for part in parts], 3)
        ),
        reading.in_order(torch.cat([each.value for each in found], 2)),
        tuple(shown(part.ring, part.cell, len(part.units)) for part in parts),
    )


class _Attention(NamedTuple):
    part: CellReading
    """The reading of one unit of each head, with all values at one."""
    value: Tensor
    """(T, B, D)"""
    heads: tuple[tuple[int, ...], ...]
    shared: bool


def _attention(reading: Reading, part: CellReading) -> _Attention:
    layer, names = reading.layer, values_of(part.moves)
    place, first = _place_in_layer(layer, part)
    size, shared = _head_size(layer, place, names)
    heads: dict[int, list[int]] = {}
    for unit in part.units:
        heads.setdefault((unit - first) // size, []).append(unit)
    check_size(reading, len(heads), "Read a shorter text.")
    whole = leaves(layer, reading.x)[place]
    shape, columns = reading.x.shape[:2], [unit - first for unit in part.units]
    value = torch.ones(*shape, len(columns), dtype=torch.float64)
    for name in names:
        value = value * whole.leaves[name][..., columns]
    if reading.valid is not None:
        value = value * reading.valid.unsqueeze(-1)
    ones = {name: torch.ones(*shape, len(heads), dtype=torch.float64) for name in names}
    chosen = [units[0] for units in heads.values()]
    alone = whole.of_columns([unit - first for unit in chosen], ones)
    return _Attention(
        cell_reading(part.moves, alone, chosen, shape), value, tuple(map(tuple, heads.values())), shared
    )


def shared_head(reading: Reading, unit: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the number and the units of the head whose attention a unit shares; None if its attention, where it has
    one, is its own."""
    part = next(part for part in reading.parts if unit in part.units)
    try:
        names = values_of(part.moves)
    except AutomatonError:
        return None
    place, first = _place_in_layer(reading.layer, part)
    size, shared = _head_size(reading.layer, place, names)
    if not shared:
        return None
    head = (unit - first) // size
    return head, tuple(range(first + head * size, first + (head + 1) * size))


def _place_in_layer(layer: RationalLayer, part: CellReading) -> tuple[int, int]:
    """Return the number of a part's cell in the layer, and that of the cell's first unit."""
    ends = list(accumulate(layer.widths))
    place = bisect_right(ends, part.units[0])
    return place, ends[place] - layer.widths[place]


def _head_size(layer: RationalLayer, place: int, values: Sequence[str]) -> tuple[int, bool]:
    """Return how many units share their attention, and whether it belongs to heads at all."""
    wide = layer.programs[place].wide
    if wide is None or not _is_shared(layer.cell_types[place], values):
        return 1, False
    return layer.widths[place] // wide.heads, True


def _is_shared(cell: Cell, values: Sequence[str]) -> bool:
    """Return whether all weights but for the values belong to heads or groups of them."""
    nodes = [node for _, weight in cell.weights() for node in ex.walk(weight)]
    kinds = [
        "unit" if isinstance(node, ex.Input) else node.per
        for node in nodes
        if isinstance(node, (ex.Linear, ex.Parameter, ex.Input)) and leaf_name(node) not in values
    ]
    return "unit" not in kinds


@lru_cache(maxsize=256)
def values_of(moves: Moves) -> tuple[str, ...]:
    """Return the names of the projections, or "input", whose product is a unit's value: every weight with which a path
    enters first is a multiple of each, and nothing else depends on them."""
    cell, ring = moves.cell, moves.cell.semiring
    if ring.scales and ring.cancels:
        entering, others = _by_first_entry(moves)
        found = [
            name
            for name in dict.fromkeys(leaf_name(n) for w in entering for n in ex.walk(w) if _is_input(n))
            if all(_degrees(ring, weight, name) == {1} for weight in entering)
            and not any(leaf_name(n) == name for w in others for n in ex.walk(w) if _is_input(n))
        ]
        if found:
            return tuple(found)
    raise AutomatonError(
        f"the weights with which paths enter {cell.name} over {ring.name} are no products of a weight of attention and "
        "one value of the input, so the two cannot be told apart. Use entry_map, whose masses are their products."
    )


def _by_first_entry(moves: Moves) -> tuple[list[ex.Expr], list[ex.Expr]]:
    """Return the weights with which paths can enter for the first time, and all others."""
    before, after = before_entering(moves), after_entering(moves)
    entering, others = [], [weight for _, weight in moves.initials] + [end.weight for end in moves.ends]
    for move in moves.moves:
        first = move.enters and move.source in before
        (entering if first else others).append(move.arc.weight)
        if first and move.source in after:  # it may also be a later entry
            others.append(move.arc.weight)
    return entering, others


def _is_input(node: ex.Expr) -> bool:
    return isinstance(node, (ex.Linear, ex.Input))


def _degrees(ring: Semiring, weight: ex.Expr, name: str) -> set[int | None]:
    """Return the degrees in a leaf of the components of a weight, without those that are zero."""
    if isinstance(weight, ex.Construct):
        _, make = ring.constructors[weight.function]
        parts = [ex.as_expr(part) for part in ring.numbers_of(make(EXPRESSIONS, *weight.arguments))]
    else:
        parts = [weight]
    return {_degree(part, name) for part in parts if part != ex.Number(0.0)}


def _degree(expr: ex.Expr, name: str) -> int | None:
    """Return n if an expression is c·xⁿ, where x is the leaf `name` and c does not depend on it, else None."""
    match expr:
        case ex.Linear() | ex.Parameter() | ex.Input():
            return int(leaf_name(expr) == name)
        case ex.Binary(operator=operator, left=left, right=right):
            if operator in "+-" and ex.Number(0.0) in (left, right):
                return _degree(right if left == ex.Number(0.0) else left, name)
            a, b = _degree(left, name), _degree(right, name)
            if a is None or b is None:
                return None
            return {"*": a + b, "/": a - b}.get(operator, a if a == b else None)
        case ex.Call(function="neg", argument=argument):
            return _degree(argument, name)
    return 0 if all(_degree(child, name) == 0 for child in expr.children) else None
