"""Over the reals: the smallest machine with the same scores, and whether two machines have the same scores.

A machine over the reals is linear algebra: ⟦x⟧ = λ T_{x₁} ⋯ T_{xₙ} ρ. What matters of its state space is what
strings reach (the span of all λT_x) and final weights see (the span of all T_xρ): restricting it to the one
and then to the other leaves the least possible number of states (Schützenberger).

The spans are found level by level (strings of length 0, 1, 2, …) as orthonormal bases, each level by one SVD
whose small singular values are dropped. "Small" is relative to the numbers that were added to form a vector,
so neither small weights nor cancellation mislead it. The machine is balanced first: every state is rescaled
by a power of two (which rounds nothing) until what goes into it and what comes out of it are of one size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import SemiringError
from rrnn.wfsa.algebra import both_machines, remove_epsilon, trim, union
from rrnn.wfsa.machine import WFSA, Symbol

Dense = tuple[Tensor, Tensor, Tensor]
"""λ (Q,), T (S, Q, Q), ρ (Q,)."""
_ROUNDING = 1e-13  # some hundred units in the last place
_EXPONENT = 500  # so that no quotient of two scales overflows


@dataclass(frozen=True)
class Equivalence:
    """Truthy when two machines agree. Otherwise a shortest string on which they do not, and by how much."""

    equal: bool
    counter_example: tuple[Symbol, ...] | None = None
    difference: float = 0.0
    """First machine's score minus the second's."""

    def __bool__(self) -> bool:
        return self.equal


def minimise(a: WFSA, tolerance: float = 1e-10) -> WFSA:
    """A machine over the reals with the same scores and the least number of states (one, if all scores are 0).

    ε-arcs are removed first. A direction of state space counts as absent when it is smaller than `tolerance`
    relative to the numbers it is computed from; scores keep about that accuracy relative to the sum of the
    absolute weights of the result's paths. A machine that is minimal already (up to trimming) comes back with its
    own states and arcs; otherwise states are numbered and weights are new numbers, of either sign. Either way
    they are outside any graph.
    """
    _over_the_reals(a, "minimisation")
    a = trim(remove_epsilon(a).detach())
    machine = balanced(*to_dense(a))
    machine = _restricted(machine, span(machine[0], machine[1], tolerance))
    machine = _restricted(machine, span(machine[2], machine[1].mT, tolerance))
    return a if machine[0].numel() == a.num_states else _from_dense(a, *machine)


def equivalent(a: WFSA, b: WFSA, tolerance: float = 1e-9) -> Equivalence:
    """Do two machines over the reals give every string the same score?

    If not, the counter-example is the first one: of the shortest, the first in the order of the alphabet.
    Scores count as different when they differ by more than `tolerance` times the sum of the absolute weights
    of all paths of both machines, that is, by more than rounding can explain.
    """
    both_machines(a, b, "equivalence")
    _over_the_reals(a, "equivalence")
    _over_the_reals(b, "equivalence")
    a, b = (remove_epsilon(m).detach() for m in (a, b))
    both = union(a, b)
    initial, steps, final = balanced(*to_dense(both))
    sign = torch.ones_like(final)
    sign[a.num_states :] = -1.0
    symbols = range(len(both.alphabet))
    basis = initial.new_zeros(0, initial.numel())
    # A level: strings, their λT_x scaled to length one, and the same with absolute values.
    level: list[tuple[tuple[int, ...], Tensor, Tensor]] = [((), initial, initial.abs())]
    while level:
        kept: list[tuple[tuple[int, ...], Tensor, Tensor]] = []
        for string, vector, size in level:
            difference, magnitude = vector @ (final * sign), size @ final.abs()
            if difference.abs() > tolerance * magnitude:
                return _report(a, b, tuple(both.alphabet[s] for s in string))
            rest = _without(vector, basis)
            if rest.norm() > tolerance * size.norm():
                basis = torch.cat([basis, (rest / rest.norm())[None]])
                kept.append((string, vector / size.norm(), size / size.norm()))
        level = [((*w, s), v @ steps[s], m @ steps[s].abs()) for w, v, m in kept for s in symbols]
    return Equivalence(True)


def _report(a: WFSA, b: WFSA, string: tuple[Symbol, ...]) -> Equivalence:
    scores = [float(m.score(string)) if set(string) <= set(m.alphabet) else 0.0 for m in (a, b)]
    return Equivalence(False, string, scores[0] - scores[1])


def span(start: Tensor, steps: Tensor, tolerance: float) -> Tensor:
    """Orthonormal rows that span `start` (Q,) and its images under all products of `steps` (S, Q, Q)."""
    basis = start.new_zeros(0, start.numel())
    vectors, sizes = start[None], start.abs()[None].norm(dim=1)
    while vectors.shape[0]:
        useful = sizes > 0
        rest = _without(vectors[useful] / sizes[useful, None], basis)
        _, strength, directions = torch.linalg.svd(rest, full_matrices=False)
        new = directions[strength > tolerance]
        new = _without(new, basis)
        new = new / new.norm(dim=1, keepdim=True)
        basis = torch.cat([basis, new])
        vectors = (new @ steps).flatten(0, 1)
        sizes = (new.abs() @ steps.abs()).flatten(0, 1).norm(dim=1)
    return basis


def _without(vectors: Tensor, basis: Tensor) -> Tensor:
    """What is left outside the span of the orthonormal `basis`; twice, as one pass leaves rounding behind."""
    for _ in range(2):
        vectors = vectors - (vectors @ basis.T) @ basis
    return vectors


def _restricted(machine: Dense, basis: Tensor) -> Dense:
    """The machine in the coordinates of an orthonormal basis (r, Q) of a space that it does not leave."""
    if basis.shape[0] == basis.shape[1]:
        return machine
    initial, steps, final = machine
    size = basis.abs()
    return (
        _cleaned(initial @ basis.T, initial.abs() @ size.T),
        _cleaned(basis @ steps @ basis.T, size @ steps.abs() @ size.T),
        _cleaned(basis @ final, size @ final.abs()),
    )


def _cleaned(values: Tensor, sizes: Tensor) -> Tensor:
    """0 in place of what is left by rounding where numbers of the given sizes cancel."""
    return values.where(values.abs() > _ROUNDING * sizes, 0.0)


def balanced(initial: Tensor, steps: Tensor, final: Tensor, rounds: int = 100) -> Dense:
    """The same scores with each state rescaled by a power of two, so that arcs in and arcs out match in size.

    Osborne's balancing of the greatest absolute weights between states (loops aside), where initial and final
    weights count as arcs from and to outside.
    """
    n = initial.numel()
    size = np.zeros((n + 1, n + 1))  # the last row and column are outside
    size[:n, :n] = steps.abs().amax(0).fill_diagonal_(0.0).numpy()
    size[n, :n], size[:n, n] = initial.abs().numpy(), final.abs().numpy()
    exponent = np.zeros(n)
    for _ in range(rounds):
        before = exponent.copy()
        for q in range(n):
            into, out = size[:, q].max(), size[q].max()
            if into > 0 and out > 0:
                shift = round((math.log2(into) - math.log2(out)) / 2)
                shift = max(-_EXPONENT, min(_EXPONENT, exponent[q] + shift)) - exponent[q]
                exponent[q] += shift
                size[:, q] *= 2.0**-shift
                size[q] *= 2.0**shift
        if (exponent == before).all():
            break
    scale = torch.exp2(torch.from_numpy(exponent))
    return initial / scale, steps * (scale[:, None] / scale), final * scale


def to_dense(a: WFSA) -> Dense:
    """λ, one matrix a symbol, ρ; no ε-arcs, no gradients."""
    steps = torch.zeros(len(a.alphabet), a.num_states, a.num_states, dtype=torch.float64)
    initial, weight, final = (w.detach().cpu() for w in (a.initial_weight, a.arc_weight, a.final_weight))
    steps[a.arc_symbol.cpu(), a.arc_source.cpu(), a.arc_target.cpu()] = weight
    return initial, steps, final


def _from_dense(a: WFSA, initial: Tensor, steps: Tensor, final: Tensor) -> WFSA:
    if not initial.numel():  # all scores are 0: a machine has a state all the same
        initial, steps, final = initial.new_zeros(1), steps.new_zeros(len(steps), 1, 1), final.new_zeros(1)
    symbol, source, target = steps.nonzero().unbind(1)
    return WFSA.from_tensors(
        a.semiring,
        a.alphabet,
        range(initial.numel()),
        source,
        symbol,
        target,
        steps[symbol, source, target],
        initial,
        final,
        allow_empty=True,
    )


def _over_the_reals(a: WFSA, what: str) -> None:
    if a.semiring.name != "real":
        raise SemiringError(
            f"{what} needs the real semiring, where states span a vector space; got {a.semiring.name}. "
            "Convert the machine with with_semiring('real'), if that is what is meant."
        )
