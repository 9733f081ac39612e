"""Forward for batches of strings of any lengths: scores, and the scores of every prefix.

Strings are sorted by length, so that step t works on those that are longer than t, and the cost is their total length.
Within a step, strings that read the same symbol are grouped and share one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rrnn import moved
from rrnn.errors import SemiringError
from rrnn.wfsa.automaton import Automaton
from rrnn.wfsa.symbols import encode_batch, is_batch
from rrnn.wfsa.transitions import Groups, transitions
from rrnn.wfsa.trellis import Scale, scale_by

M = TypeVar("M", bound=Automaton)


class Scoring(Automaton):
    """Methods of `WFSA` that score strings."""

    def score(self, strings: Any) -> Tensor:
        """Return ⟦x⟧ by Forward: a 0-d tensor for one string, (N,) for a list of N strings of any lengths.

        With C components, the shapes are (C,) and (N, C).
        """
        encoded = encode_batch(self.symbol_index, strings)
        scores = checked_counts(self, lambda m: _scores(m, encoded))
        return scores if is_batch(strings) else scores[0]

    def prefix_scores(self, strings: Any) -> Any:
        """Return the score of every prefix, ⟦x_:0⟧ … ⟦x_:n⟧, as a tensor (n+1,): what a recurrence computes.

        A list of strings gives a list of such tensors.
        """
        encoded = encode_batch(self.symbol_index, strings)
        flat = checked_counts(self, lambda m: _prefix_scores(m, encoded))
        scores = list(flat.split([len(s) + 1 for s in encoded])) if encoded else []
        return scores if is_batch(strings) else scores[0]


@dataclass
class _Plan:
    """Hold which string reads which symbol at which step."""

    longest_first: np.ndarray  # the numbers of the strings by decreasing length; the places here are *ranks*
    empty: int  # the number of empty strings
    steps: list[_Step]


@dataclass
class _Step:
    take: Tensor  # rows of the previous step, in this step's order
    groups: Groups
    rows: np.ndarray  # the rank of each row of this step
    done: Tensor  # rows that have read their last symbol
    done_rank: np.ndarray  # their ranks


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
    where = np.arange(len(strings))  # by rank: the row of the previous step
    steps: list[_Step] = []
    for t in range(int(lengths[0]) if len(strings) else 0):
        low, high = int(first_group[t]), int(first_group[t + 1])
        start = int(begins[low])
        rows = rank[start : start + int(sizes[low:high].sum())]
        take = torch.from_numpy(where[rows])
        where = np.empty(len(rows), dtype=np.int64)  # the strings of a step always have the first ranks
        where[rows] = np.arange(len(rows))
        running = int(np.searchsorted(-lengths, -(t + 1), side="left"))  # strings longer than t + 1
        done_rank = np.arange(running, len(rows))
        groups = list(zip(group_symbols[low:high].tolist(), sizes[low:high].tolist(), strict=True))
        steps.append(_Step(take, groups, rows, torch.from_numpy(where[done_rank]), done_rank))
    return _Plan(longest_first, int((lengths == 0).sum()), steps)


def _forward(machine: Automaton, plan: _Plan) -> Iterator[tuple[_Step | None, Tensor, Scale]]:
    """Run Forward over a plan; yield each step, α after it (closed under ε, in the step's row order), and its scale."""
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


def finish(machine: Automaton, alpha: Tensor) -> Tensor:
    """Return the scores (n,) of rows α: ⊕_q α(q) ⊗ ρ(q)."""
    return machine.semiring.t_sum(machine.semiring.t_times(alpha, machine.final_weight), -1)


def _scores(machine: Automaton, strings: list[list[int]]) -> Tensor:
    scores, exponent = scaled_scores(machine, strings)
    return scale_by(scores, exponent) if bool(exponent.any()) else scores


def scaled_scores(machine: Automaton, strings: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Return a score for each string, and the exponent of the power of two to multiply it with."""
    plan = _plan(strings, len(machine.alphabet))
    parts: list[Tensor] = []
    exponents: list[Tensor] = []
    ranks: list[np.ndarray] = []
    for step, alpha, scale in _forward(machine, plan):
        if step is None:
            parts.append(finish(machine, alpha[len(strings) - plan.empty :]))
            exponents.append(scale.exponents(plan.empty))
            ranks.append(np.arange(len(strings) - plan.empty, len(strings)))
        elif step.done_rank.size:
            parts.append(finish(machine, alpha.index_select(0, step.done)))
            exponents.append(scale.exponents(alpha.shape[0])[step.done])
            ranks.append(step.done_rank)
    # Score number j belongs to the string longest_first[rank_j]: restore the order of the batch.
    where = np.empty(len(strings), dtype=np.int64)
    where[plan.longest_first[np.concatenate(ranks)]] = np.arange(len(strings))
    order = torch.from_numpy(where)
    return torch.cat(parts).index_select(0, order), torch.cat(exponents).index_select(0, order)


def _prefix_scores(machine: Automaton, strings: list[list[int]]) -> Tensor:
    """Return the scores of all prefixes of the first string, then of the second, …, in one row."""
    plan = _plan(strings, len(machine.alphabet))
    lengths = np.array([len(s) + 1 for s in strings], dtype=np.int64)
    begin = (np.cumsum(lengths) - lengths)[plan.longest_first]
    parts: list[Tensor] = []
    places: list[np.ndarray] = []
    for t, (step, alpha, scale) in enumerate(_forward(machine, plan)):
        parts.append(scale.undo(finish(machine, alpha)))
        places.append(begin if step is None else begin[step.rows] + t)
    where = np.empty(int(lengths.sum()), dtype=np.int64)
    where[np.concatenate(places)] = np.arange(len(where))
    return torch.cat(parts).index_select(0, torch.from_numpy(where))


def checked_counts(machine: M, compute: Callable[[M], Tensor]) -> Tensor:
    """Return `compute(machine)`; over counting, raise if a number exceeds the range of int64."""
    out = compute(machine)
    if machine.semiring.integers and bool((compute(machine.with_semiring("real")) >= 2.0**62).any()):
        raise SemiringError(
            "a count must fit int64, at most 2⁶³ − 1; one of these is greater. Use with_semiring('real') for a "
            "rounded count, or score_by_paths, whose Python integers have no limit."
        )
    return out


def require_probabilities(machine: Automaton, what: str) -> None:
    """Raise unless the weights are proportional to probabilities."""
    ring = machine.semiring
    if not ring.adds_probabilities:
        raise SemiringError(
            f"{what} needs a semiring whose ⊕ adds probabilities: real, log or counting; this machine is over "
            f"{ring.name}. Convert it with with_semiring('real')."
        )
    if ring.cancels:
        lowest = min((float(w.detach().min()) for w in machine.weights if w.numel()), default=0.0)
        if lowest < 0:
            raise SemiringError(
                f"{what} needs weights that are not negative, so that they are proportional to "
                f"probabilities; this machine has {lowest!r}"
            )


__getattr__ = moved.attributes(__name__)
