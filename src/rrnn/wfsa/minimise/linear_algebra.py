"""Minimise and compare machines over the reals by linear algebra, in floating point.

The score of a string is ⟦x⟧ = λ T_{x₁} ⋯ T_{xₙ} ρ. Only a part of the state space matters: what strings reach (the span
of all λT_x), and what final weights see (the span of all T_xρ). Restricting the machine to the one and then to the
other leaves the smallest possible number of states (Schützenberger).

All decisions are made on a rescaled machine. Each symbol's weights, the initial and the final weights are divided
by a power of two near their greatest absolute value, and the machine is *balanced*: every state is rescaled by a
power of two until the weights into it and out of it have the same size. Neither step rounds or changes the relative
size of scores, so the unit of the weights and of the states does not matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from rrnn.wfsa.algebra import Algebra
from rrnn.wfsa.automaton import Automaton
from rrnn.wfsa.graph import components

M = TypeVar("M", bound=Algebra)
Array = np.ndarray[Any, np.dtype[np.float64]]
Exponents = np.ndarray[Any, np.dtype[np.int64]]
ROUNDING = 1e-13
"""Rounding error relative to the numbers it comes from: some hundred units in the last place."""
DOUBT = 1e-5
"""A weight is doubtful up to this multiple of the tolerance, relative to the greatest: see `WFSA.equivalent`."""
SPAN = 1e-3
"""A vector is in a span up to this multiple of the tolerance, relative to its length with absolute values."""
_COORDINATE = 4e-15  # what rounding may leave in a coordinate of a unit vector
_EXPONENT = 500  # so that no quotient of two scales overflows
_PIVOT = 0.5  # a pivot is the first state whose entry is at least this share of the greatest one


class Dense(NamedTuple):
    """Hold a machine without ε-arcs as arrays."""

    initial: Array
    """λ (Q,)."""
    steps: Array
    """T (S, Q, Q): one matrix for each symbol."""
    final: Array
    """ρ (Q,)."""

    def transposed(self) -> Dense:
        """Return the machine that reads strings from right to left."""
        return Dense(self.final, self.steps.swapaxes(1, 2), self.initial)

    def rescaled(self, exponent: Exponents) -> Dense:
        """Divide what goes into each state by 2^exponent, and multiply what comes out by it."""
        across = exponent[:, None] - exponent
        return Dense(
            np.ldexp(self.initial, -exponent), np.ldexp(self.steps, across), np.ldexp(self.final, exponent)
        )


def to_dense(a: Automaton, alphabet: tuple[Any, ...] | None = None) -> Dense:
    """Return the arrays of a machine without ε-arcs, with matrices in the order of `alphabet` (default: its own)."""
    index = {symbol: i for i, symbol in enumerate(alphabet or a.alphabet)}
    place = np.array([index[s] for s in a.alphabet], dtype=np.int64)
    source, symbol, target = (t.cpu().numpy() for t in (a.arc_source, a.arc_symbol, a.arc_target))
    weight, initial, final = (w.detach().cpu().double().numpy() for w in a.weights)
    steps = np.zeros((len(index), a.num_states, a.num_states))
    steps[place[symbol], source, target] = weight
    return Dense(initial, steps, final)


def reduced(a: M, tolerance: float) -> M:
    """Return a machine with the scores of `a` (trimmed, without ε-arcs) and the least number of states.

    The rules are those of `WFSA.minimise`. A candidate is only returned once `first_difference` finds
    its scores equal to those of `a`; otherwise the tolerance for dropping directions is tightened.
    """
    machine, (initial, steps, final) = _normalised(to_dense(a))
    limit = tolerance
    while limit > ROUNDING / 100:
        small = _onto_span(_onto_span(machine, limit).transposed(), limit).transposed()
        if small.initial.size == a.num_states:
            return a
        if first_difference(machine, small, 10 * tolerance) is None:
            small = Dense(
                np.ldexp(small.initial, initial),
                np.ldexp(small.steps, steps[:, None, None]),
                np.ldexp(small.final, final),
            )
            alive = _from_dense(a, small).trim()  # dropped weights may leave a state without a path
            return _from_dense(a, to_dense(alive))
        limit /= 100
    return a


def first_difference(a: Dense, b: Dense, tolerance: float) -> tuple[int, ...] | None:
    """Return the first string (as symbol indices) whose scores differ, in order of length and then of the alphabet.

    Tzeng's algorithm on λT_x of both machines side by side: a string is continued only if its vector is not in the
    span of the vectors of earlier strings. With each vector go the same sum with absolute values (`paths`), and the
    part of it that belongs to paths with doubtful weights (`doubt`); the rule is that of `WFSA.equivalent`.
    """
    n = a.initial.size
    both = _normalised(_side_by_side(a, b))[0]
    initial, steps, final = both = _normalised(both.rescaled(balance(both)))[0]
    initial_size, steps_size, final_size = sizes = Dense(*(np.abs(x) for x in both))
    first = _doubtful(a, Dense(initial_size[:n], steps_size[:, :n, :n], final_size[:n]), tolerance)
    second = _doubtful(b, Dense(initial_size[n:], steps_size[:, n:, n:], final_size[n:]), tolerance)
    doubtful = zip(_side_by_side(first, second), sizes, strict=True)
    initial_doubt, steps_doubt, final_doubt = (mark * size for mark, size in doubtful)
    signed = np.concatenate([final[:n], -final[n:]])

    strings: list[tuple[int, ...]] = [()]
    vector, paths, doubt = initial[None], initial_size[None], initial_doubt[None]
    basis = np.zeros((0, initial.size))
    while strings:
        bound = tolerance * (paths @ final_size) + doubt @ final_size + paths @ final_doubt
        different = np.flatnonzero(np.abs(vector @ signed) > bound)
        if different.size:
            return strings[different[0]]
        size = np.linalg.norm(paths, axis=1)
        basis, kept = _extended(basis, vector, SPAN * tolerance * size + np.linalg.norm(doubt, axis=1))
        strings = [(*strings[i], s) for i in kept for s in range(len(steps))]
        vector, paths, doubt = (x[kept] / size[kept, None] for x in (vector, paths, doubt))
        vector, paths, doubt = (
            x.swapaxes(0, 1).reshape(len(strings), initial.size)
            for x in (vector @ steps, paths @ steps_size, doubt @ steps_size + paths @ steps_doubt)
        )
    return None


def _doubtful(machine: Dense, balanced: Dense, tolerance: float) -> Dense:
    """Mark with 1 the weights that may be what rounding left in place of 0: see `WFSA.equivalent`.

    `balanced` holds the absolute weights of the machine when it is balanced.
    """
    initial, steps, final = _normalised(balanced)[0]
    greatest = steps.max(0, initial=0.0)
    before, after = initial, final  # the heaviest path to and from each state; no weight is above 1
    for _ in range(initial.size):
        before = np.maximum(before, (before[:, None] * greatest).max(0, initial=0.0))
        after = np.maximum(after, (greatest * after).max(1, initial=0.0))
    through = Dense(initial * after, before[:, None] * steps * after, before * final)
    heaviest, marks = through.initial.max(initial=0.0), []
    for weight, path, axis in zip(machine, through, (0, (1, 2), 0), strict=True):
        size = np.abs(weight)
        light = size <= DOUBT * tolerance * size.max(axis, keepdims=True, initial=0.0)
        marks.append((light & (path <= tolerance * heaviest)).astype(float))
    return Dense(*marks)


def _extended(basis: Array, vectors: Array, least: Array) -> tuple[Array, list[int]]:
    """Add the vectors, in their order, whose part outside the span is longer than `least`; return which."""
    rest, kept = _without(vectors, basis), []
    while True:
        new = np.flatnonzero(np.linalg.norm(rest, axis=1) > least)
        if not new.size:
            return basis, kept
        kept.append(int(new[0]))
        direction = _without(rest[new[0]] / np.linalg.norm(rest[new[0]]), basis)
        direction /= np.linalg.norm(direction)
        basis = np.concatenate([basis, direction[None]])
        rest = rest - np.outer(rest @ direction, direction)
        rest[: new[0] + 1] = 0.0


def span(start: Array, steps: Array, tolerance: float) -> Array:
    """Return orthonormal rows that span `start` (Q,) and its images under all products of `steps` (S, Q, Q).

    The span is built level by level (strings of length 0, 1, 2, …). In each level, what new vectors add is measured
    by the singular values of their parts outside the span so far, relative to the absolute numbers that were added
    to form them; those up to `tolerance` are dropped.
    """
    basis = np.zeros((0, start.size))
    vectors, sizes = start[None], np.linalg.norm(start[None], axis=1)
    while len(vectors):
        useful = sizes > 0
        rest = _without(vectors[useful] / sizes[useful, None], basis)
        _, strength, directions = np.linalg.svd(rest, full_matrices=False)
        clear = strength > tolerance
        new = _without(directions[clear], basis)
        # Rounding in place of 0 would be all that is left where a symbol has no arcs from the other states.
        new = np.where(np.abs(new) > np.minimum(_COORDINATE / strength[clear, None], 1e-5), new, 0.0)
        new /= np.linalg.norm(new, axis=1, keepdims=True)
        basis = np.concatenate([basis, new])
        vectors = (new @ steps).reshape(len(steps) * len(new), start.size)
        sizes = np.linalg.norm(np.abs(new) @ np.abs(steps), axis=2).ravel()
    return basis


def _without(vectors: Array, basis: Array) -> Array:
    """Return the part outside the span of the orthonormal `basis`; in two passes, as one leaves rounding behind."""
    for _ in range(2):
        vectors = vectors - (vectors @ basis.T) @ basis
    return vectors


def _onto_span(machine: Dense, tolerance: float) -> Dense:
    """Return the machine on as many of its states as the vectors λT_x span dimensions.

    Each λT_x is (λT_x)[kept] · rows, where the rows are the identity in the columns of the kept states: so λ and the
    columns of T keep their weights, and no weight is spread over states that it had nothing to do with.
    """
    exponent = balance(machine)
    initial, steps, final = machine.rescaled(exponent)
    basis = span(initial, steps, tolerance)
    if len(basis) == initial.size:
        return machine
    kept, rows = _in_terms_of_states(basis, tolerance)
    size = (rows != 0) * np.abs(rows).max(1, keepdims=True, initial=1.0)
    steps = steps[:, :, kept]
    small = Dense(
        initial[kept],
        _cleaned(rows @ steps, size @ np.abs(steps), tolerance),
        _cleaned(rows @ final, size @ np.abs(final), tolerance),
    )
    return small.rescaled(-exponent[kept])


def _in_terms_of_states(basis: Array, tolerance: float) -> tuple[list[int], Array]:
    """Return states, and rows that span what `basis` spans and are the identity in the columns of these states.

    Gauss-Jordan elimination. As the basis is orthonormal and pivots are large, its rounding is relative to 1:
    entries that are a whole number up to that are that number, and those up to `tolerance` are 0.
    """
    rows, pivots = basis.copy(), []
    for i in range(len(rows)):
        best = np.abs(rows[i:]).max(0)
        pivot = int((best >= _PIVOT * best.max()).argmax())
        row = i + int(np.abs(rows[i:, pivot]).argmax())
        rows[[i, row]] = rows[[row, i]]
        rows[i] /= rows[i, pivot]
        factor = rows[:, pivot].copy()
        factor[i] = 0.0
        rows -= factor[:, None] * rows[i]
        pivots.append(pivot)
    rows = _cleaned(rows[np.argsort(pivots)], 1.0, tolerance)
    whole = np.rint(rows)
    near = np.abs(rows - whole) <= ROUNDING * np.maximum(1.0, np.abs(rows))
    return sorted(pivots), np.where(near, whole, rows)


def _cleaned(values: Array, sizes: Any, tolerance: float) -> Array:
    """Replace what is left where numbers of the given sizes cancel by 0."""
    return np.where(np.abs(values) > tolerance * sizes, values, 0.0)


def balance(machine: Dense, rounds: int = 100) -> Exponents:
    """Return the exponents for `Dense.rescaled` (whole numbers) with which arcs into and out of states match in size.

    Osborne's balancing of the greatest absolute weights between states (loops aside), where initial and final
    weights count as arcs from and to outside. States that lie on a common cycle are also shifted together, so that
    the greatest weights into and out of the group match: heavy arcs inside do not hide those.
    """
    n = machine.initial.size
    size = np.zeros((n + 1, n + 1))  # the last row and column are outside
    size[:n, :n] = np.abs(machine.steps).max(0, initial=0.0)
    size[n, :n], size[:n, n] = np.abs(machine.initial), np.abs(machine.final)
    np.fill_diagonal(size, 0.0)
    with np.errstate(divide="ignore"):
        log = np.log2(size)
    groups: list[tuple[Any, Any]] = [(q, slice(None)) for q in range(n)]  # (inside, outside)
    for part in components([np.flatnonzero(row).tolist() for row in size[:n, :n]]):
        if len(part) > 1:
            groups.append((np.array(part), np.setdiff1d(np.arange(n + 1), part)[:, None]))
    exponent = np.zeros(n, dtype=np.int64)
    for _ in range(rounds):
        changed = False
        for inside, outside in groups:
            into, out = log[outside, inside].max(), log.T[outside, inside].max()
            if np.isfinite(into) and np.isfinite(out):
                shift = round(float(into - out) / 2)
                low, high = int(exponent[inside].min()), int(exponent[inside].max())
                shift = max(-_EXPONENT - low, min(_EXPONENT - high, shift))
                if shift:
                    exponent[inside] += shift
                    log[:, inside] -= shift
                    log[inside] += shift
                    changed = True
        if not changed:
            break
    return exponent


def _normalised(machine: Dense) -> tuple[Dense, tuple[int, Array, int]]:
    """Divide λ, each symbol's matrix, and ρ by a power of two so that the greatest weight is near 1; return both."""
    greatest = (np.abs(x).max(axis, initial=0.0) for x, axis in zip(machine, (0, (1, 2), 0), strict=True))
    initial, steps, final = (np.frexp(x)[1] for x in greatest)
    scaled = Dense(
        np.ldexp(machine.initial, -initial),
        np.ldexp(machine.steps, -steps[:, None, None]),
        np.ldexp(machine.final, -final),
    )
    return scaled, (initial, steps, final)


def _side_by_side(a: Dense, b: Dense) -> Dense:
    """Return the union of two machines over one alphabet."""
    n, m = a.initial.size, b.initial.size
    steps = np.zeros((len(a.steps), n + m, n + m))
    steps[:, :n, :n], steps[:, n:, n:] = a.steps, b.steps
    return Dense(np.concatenate([a.initial, b.initial]), steps, np.concatenate([a.final, b.final]))


def _from_dense(a: M, machine: Dense) -> M:
    """Return the machine with the semiring and alphabet of `a` and numbered states (one, if there is none)."""
    initial, steps, final = machine
    if not initial.size:
        initial, steps, final = np.zeros(1), np.zeros((len(steps), 1, 1)), np.zeros(1)
    symbol, source, target = np.nonzero(steps)
    return a.replace(
        states=range(initial.size),
        source=torch.from_numpy(source),
        symbol=torch.from_numpy(symbol),
        target=torch.from_numpy(target),
        weight=torch.from_numpy(steps[symbol, source, target]),
        initial=torch.from_numpy(initial),
        final=torch.from_numpy(final),
    )
