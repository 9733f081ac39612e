"""Forward for batches of strings of any lengths: scores, and the scores of every prefix.

Strings are sorted by length, so that step t works on those still running, and the whole costs their total
length. Within a step, strings about to read the same symbol stand together and share one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import SemiringError
from rrnn.semirings import Semiring
from rrnn.wfsa.strings import encode_batch, is_batch
from rrnn.wfsa.transitions import Groups, transitions

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA

_FAR = 2.0**128  # rows whose greatest entry leaves [1/_FAR, _FAR] are brought back by a power of two


@dataclass
class _Plan:
    """When each string reads which symbol, worked out beforehand for all steps."""

    longest_first: np.ndarray  # string numbers, by falling length
    finished_empty: int  # how many are empty
    steps: list[_Step]


@dataclass
class _Step:
    take: Tensor  # rows of the previous step, in this step's order
    groups: Groups
    rows: np.ndarray  # rank (in longest_first) of each row of this step
    done: Tensor  # rows that have read their last symbol
    done_rank: np.ndarray


def _plan(strings: list[list[int]], symbols: int) -> _Plan:
    lengths = np.array([len(s) for s in strings], dtype=np.int64)
    longest_first = np.argsort(-lengths, kind="stable")
    lengths = lengths[longest_first]
    total = int(lengths.sum())
    flat = np.fromiter((a for i in longest_first for a in strings[i]), dtype=np.int64, count=total)
    rank = np.repeat(np.arange(len(strings)), lengths)
    time = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    code = time * symbols + flat
    order = np.argsort(code, kind="stable")
    code, rank = code[order], rank[order]
    # Where a new (time, symbol) group begins, and at which of those a new step does.
    begins = np.flatnonzero(np.diff(code, prepend=-1))
    sizes = np.diff(begins, append=total)
    times, group_symbols = code[begins] // symbols, code[begins] % symbols
    first_group = np.searchsorted(times, np.arange(int(lengths[0]) + 1 if len(strings) else 1))
    where = np.arange(len(strings))  # rank → row of the previous step
    steps: list[_Step] = []
    for t in range(int(lengths[0]) if len(strings) else 0):
        low, high = int(first_group[t]), int(first_group[t + 1])
        start = int(begins[low])
        rows = rank[start : start + int(sizes[low:high].sum())]
        take = torch.from_numpy(where[rows])
        where = np.empty(len(rows), dtype=np.int64)  # the running ones are always the first ranks
        where[rows] = np.arange(len(rows))
        running = int(np.searchsorted(-lengths, -(t + 1), side="left"))  # ranks longer than t + 1
        done_rank = np.arange(running, len(rows))
        groups = list(zip(group_symbols[low:high].tolist(), sizes[low:high].tolist(), strict=True))
        steps.append(_Step(take, groups, rows, torch.from_numpy(where[done_rank]), done_rank))
    return _Plan(longest_first, int((lengths == 0).sum()), steps)


class Scale:
    """Rows of plus-times numbers kept in range: α is stored as α·2⁻ᵏ, one k a row, so that a score is right
    whenever it fits a float64, whatever the weights on the way to it. Powers of two lose no digit."""

    def __init__(self, ring: Semiring) -> None:
        self.active = ring.scales
        self.exponent: Tensor | None = None

    def exponents(self, rows: int) -> Tensor:
        return torch.zeros(rows, dtype=torch.int32) if self.exponent is None else self.exponent

    def take(self, rows: Tensor) -> None:
        if self.exponent is not None:
            self.exponent = self.exponent[rows]

    def bring_back(self, alpha: Tensor) -> Tensor:
        if not self.active or not alpha.numel():
            return alpha
        peak = (
            alpha.detach().abs().flatten(1).amax(1)
        )  # of all components: one power of two scales them together
        low, high = peak.aminmax()
        if float(low) >= 1 / _FAR and float(high) <= _FAR:
            return alpha
        shift = torch.frexp(peak).exponent
        keep = ((peak >= 1 / _FAR) & (peak <= _FAR)) | (peak == 0) | ~peak.isfinite()
        shift = shift.masked_fill(keep, 0)
        if self.exponent is None:
            self.exponent = torch.zeros_like(shift)
        self.exponent = self.exponent + shift
        return scale_by(alpha, -shift)

    def undo(self, scores: Tensor) -> Tensor:
        return scores if self.exponent is None else scale_by(scores, self.exponent)


def scale_by(values: Tensor, exponent: Tensor) -> Tensor:
    """Return values · 2^exponent, one exponent for each of the first dimensions.

    Multiply in two steps, since 2^exponent alone may be out of range.
    """
    exponent = exponent[(...,) + (None,) * (values.dim() - exponent.dim())]
    half = exponent // 2
    two = values.new_tensor(2.0)
    return values * two.pow(half) * two.pow(exponent - half)


def run(machine: WFSA, plan: _Plan) -> Iterator[tuple[_Step | None, Tensor, Scale]]:
    """Forward over a plan: (step, α after it, closed under ε, in the step's row order; its scale)."""
    arcs = transitions(machine)
    scale = Scale(machine.semiring)
    alpha = arcs.initial(len(plan.longest_first))
    yield None, alpha, scale
    for step in plan.steps:
        scale.take(step.take)
        alpha = arcs.step(alpha.index_select(0, step.take), step.groups)
        if arcs.close is not None:
            alpha = arcs.close(alpha)
        alpha = scale.bring_back(alpha)
        yield step, alpha, scale


def finish(machine: WFSA, alpha: Tensor) -> Tensor:
    """(n,): ⊕_q α(q) ⊗ ρ(q)."""
    return machine.semiring.t_sum(machine.semiring.t_times(alpha, machine.final_weight), -1)


def score(machine: WFSA, strings: Any) -> Tensor:
    """⟦x⟧ of one string (0-d) or of a list of N strings (N,)."""
    encoded = encode_batch(machine, strings)
    scores = checked_counts(machine, lambda m: _scores(m, encoded))
    return scores if is_batch(strings) else scores[0]


def _scores(machine: WFSA, strings: list[list[int]]) -> Tensor:
    scores, exponent = scaled_scores(machine, strings)
    return scale_by(scores, exponent) if bool(exponent.any()) else scores


def scaled_scores(machine: WFSA, strings: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Return a score for each string, and the power of two it is to be multiplied with (0 where nothing scales)."""
    plan = _plan(strings, len(machine.alphabet))
    parts: list[Tensor] = []
    exponents: list[Tensor] = []
    ranks: list[np.ndarray] = []
    for step, alpha, scale in run(machine, plan):
        if step is None:
            parts.append(finish(machine, alpha[len(strings) - plan.finished_empty :]))
            exponents.append(scale.exponents(plan.finished_empty))
            ranks.append(np.arange(len(strings) - plan.finished_empty, len(strings)))
        elif step.done_rank.size:
            parts.append(finish(machine, alpha.index_select(0, step.done)))
            exponents.append(scale.exponents(alpha.shape[0])[step.done])
            ranks.append(step.done_rank)
    # Score number j belongs to the string longest_first[rank_j]: bring them back to the order of the batch.
    where = np.empty(len(strings), dtype=np.int64)
    where[plan.longest_first[np.concatenate(ranks)]] = np.arange(len(strings))
    order = torch.from_numpy(where)
    return torch.cat(parts).index_select(0, order), torch.cat(exponents).index_select(0, order)


def prefix_scores(machine: WFSA, strings: Any) -> Any:
    """⟦x_:0⟧ … ⟦x_:n⟧ of one string, or a list of such tensors for a list of strings."""
    encoded = encode_batch(machine, strings)
    flat = checked_counts(machine, lambda m: _prefix_scores(m, encoded))
    scores = list(flat.split([len(s) + 1 for s in encoded])) if encoded else []
    return scores if is_batch(strings) else scores[0]


def _prefix_scores(machine: WFSA, strings: list[list[int]]) -> Tensor:
    """All prefixes of the first string, then of the second, …, in one row."""
    plan = _plan(strings, len(machine.alphabet))
    lengths = np.array([len(s) + 1 for s in strings], dtype=np.int64)
    begin = (np.cumsum(lengths) - lengths)[plan.longest_first]
    parts: list[Tensor] = []
    places: list[np.ndarray] = []
    for t, (step, alpha, scale) in enumerate(run(machine, plan)):
        parts.append(scale.undo(finish(machine, alpha)))
        places.append(begin if step is None else begin[step.rows] + t)
    where = np.empty(int(lengths.sum()), dtype=np.int64)
    where[np.concatenate(places)] = np.arange(len(where))
    return torch.cat(parts).index_select(0, torch.from_numpy(where))


def checked_counts(machine: WFSA, compute: Callable[[WFSA], Tensor]) -> Tensor:
    """`compute(machine)`; over ℕ, with an error instead of numbers that have gone round beyond int64."""
    out = compute(machine)
    if machine.semiring.integers and bool((compute(machine.with_semiring("real")) >= 2.0**62).any()):
        raise SemiringError(
            "counting tensors are int64, and hold at most 2⁶³ − 1; a count here is greater. Use "
            "with_semiring('real') for a rounded one, or score_by_paths, whose Python integers have no limit."
        )
    return out
