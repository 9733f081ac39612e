"""Forward and backward over moves, all units and sentences at once. A row is a list: state → (B, D)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rrnn.interpret.moves import Move
from rrnn.interpret.reading import Part, Reading

Row = list[Tensor]
Which = Callable[[Move], bool]


def every(move: Move) -> bool:
    return True


def stays(move: Move) -> bool:
    return not move.enters


def enters(move: Move) -> bool:
    return move.enters


def _gather(part: Part, terms: list[list[Tensor]], like: Tensor) -> Row:
    zero = torch.full_like(like, part.ring.zero)
    return [_total(part, some) if some else zero for some in terms]


def _total(part: Part, terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = part.ring.t_plus(total, term)
    return total


def ahead(part: Part, row: Row, t: int, which: Which = every) -> Row:
    """The row after step t, over these moves; leading dimensions of the row are kept."""
    terms: list[list[Tensor]] = [[] for _ in row]
    for source, target, move, weight in part.graph:
        if which(move):
            terms[target].append(part.ring.t_times(row[source], weight[t]))
    return _gather(part, terms, row[0])


def back(part: Part, row: Row, t: int, which: Which = every) -> Row:
    """What each state is worth before step t, given what it is worth after it."""
    terms: list[list[Tensor]] = [[] for _ in row]
    for source, target, move, weight in part.graph:
        if which(move):
            terms[source].append(part.ring.t_times(weight[t], row[target]))
    return _gather(part, terms, row[0])


def first_row(part: Part) -> Row:
    return [value.expand(part.weights[0].shape[1], -1) for value in part.initial]


def last_row(part: Part) -> Row:
    """What each state is worth after the last symbol."""
    terms: list[list[Tensor]] = [[] for _ in part.moves.states]
    like = first_row(part)[0]
    for end, weight in zip(part.moves.ends, part.ends, strict=True):
        terms[part.moves.index[end.source]].append(weight.expand_as(like))
    return _gather(part, terms, like)


def keep(valid: Tensor | None, t: int, new: Row, old: Row) -> Row:
    """The new row where the sentence goes on, the old one where it has ended."""
    if valid is None:
        return new
    here = valid[t].unsqueeze(-1)
    return [torch.where(here, a, b) for a, b in zip(new, old, strict=True)]


def forward(part: Part, valid: Tensor | None, which: Which = every) -> Tensor:
    """(T + 1, S, B, D): ⊕ of all beginnings that end in each state after t symbols."""
    row = first_row(part)
    rows = [row]
    for t in range(part.weights[0].shape[0]):
        row = keep(valid, t, ahead(part, row, t, which), row)
        rows.append(row)
    return torch.stack([torch.stack(row) for row in rows])


def backward(part: Part, valid: Tensor | None, which: Which = every) -> Tensor:
    """(T + 1, S, B, D): ⊕ of all ways from each state after t symbols to the end."""
    row = last_row(part)
    rows = [row]
    for t in reversed(range(part.weights[0].shape[0])):
        row = keep(valid, t, back(part, row, t, which), row)
        rows.append(row)
    return torch.stack([torch.stack(row) for row in reversed(rows)])


def meet(part: Part, alpha: Tensor, beta: Tensor) -> Tensor:
    """⊕ over states of beginnings and ends, (…, S, B, D) each."""
    return part.ring.t_sum(part.ring.t_times(alpha, beta), -3)


def masses(part: Part, alpha: Tensor, beta: Tensor, valid: Tensor | None, which: Which = every) -> Tensor:
    """(T, B, D): at each step, ⊕ of the paths that take one of these moves there; 0̄ behind the end."""
    terms = [
        part.ring.t_times(part.ring.t_times(alpha[:-1, source], weight), beta[1:, target])
        for source, target, move, weight in part.graph
        if which(move)
    ]
    zero = torch.full_like(alpha[:-1, 0], part.ring.zero)
    total = _total(part, terms) if terms else zero
    return total if valid is None else torch.where(valid.unsqueeze(-1), total, zero)


def absolute(part: Part) -> Part:
    """The part with the absolute values of all weights."""
    return replace(
        part,
        initial=part.initial.abs(),
        weights=tuple(w.abs() for w in part.weights),
        ends=tuple(w.abs() for w in part.ends),
    )


def scores(reading: Reading) -> Tensor:
    """(B, D): the score of each unit for each whole sentence, as the cell's output expression reads it last."""
    found = []
    for part in reading.parts:
        alpha = forward(part, reading.valid)[-1]
        found.append(meet(part, alpha, torch.stack(last_row(part))))
    return torch.cat(found, -1)
