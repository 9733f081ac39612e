"""New machines from old ones: union, concatenation, closure, Hadamard product, reverse, scale, trim.

Weights stay tensors with their graph: the score of a combined machine is differentiable in the weights of its
parts. Alphabets merge in order: the first machine's symbols, then those only the second one has. An initial
or final weight that is exactly 0̄ makes no arc, unless it may get a gradient.

| result | its states |
|---|---|
| `a.union(b)` | `(0, q)` for q of a, `(1, q)` for q of b |
| `a.concatenate(b)` | the same, and `"join"` between the two |
| `a.closure()` | `"start"`, and `(0, q)` for q of a |
| `a.intersect(b)` | pairs `(p, q)` that lie on some path |
| `reverse`, `scale`, `trim`, `remove_epsilon` | their names are kept |
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from rrnn import moved
from rrnn.automata import Cell
from rrnn.errors import AutomatonError, SemiringError
from rrnn.semirings import BOOLEAN
from rrnn.wfsa import checks
from rrnn.wfsa.automaton import Automaton, merged_alphabet, nonzero_weights, useful_states
from rrnn.wfsa.scoring import Scoring
from rrnn.wfsa.symbols import State, Symbol
from rrnn.wfsa.transitions import Closure, closure_under, epsilon_closure, segment_plus


class Algebra(Scoring):
    """Methods of `WFSA` that make new machines."""

    def union(self, other: Self) -> Self:
        """Return the machine with ⟦x⟧ = self⟦x⟧ ⊕ other⟦x⟧."""
        alphabet, relabel = _merged(self, other, "union")
        return self.replace(
            alphabet=alphabet,
            states=_numbered(self, other),
            source=torch.cat([self.arc_source, other.arc_source + self.num_states]),
            symbol=torch.cat([self.arc_symbol, relabel[other.arc_symbol]]),
            target=torch.cat([self.arc_target, other.arc_target + self.num_states]),
            weight=torch.cat([self.arc_weight, other.arc_weight]),
            initial=torch.cat([self.initial_weight, other.initial_weight]),
            final=torch.cat([self.final_weight, other.final_weight]),
        )

    def concatenate(self, other: Self) -> Self:
        """Return the machine with ⟦x⟧ = ⊕ over x = y·z of self⟦y⟧ ⊗ other⟦z⟧.

        ε-arcs lead from this machine's final states to `"join"`, and on into the other one.
        """
        alphabet, relabel = _merged(self, other, "concatenation")
        a, b, ring, join = self, other, self.semiring, self.num_states + other.num_states
        out, into = nonzero_weights(a, a.final_weight), nonzero_weights(b, b.initial_weight)
        to_join, from_join = torch.full_like(out, join), torch.full_like(into, join)
        return self.replace(
            alphabet=alphabet,
            states=[*_numbered(a, b), "join"],
            source=torch.cat([a.arc_source, b.arc_source + a.num_states, out, from_join]),
            symbol=torch.cat([a.arc_symbol, relabel[b.arc_symbol], _epsilons(out, into)]),
            target=torch.cat([a.arc_target, b.arc_target + a.num_states, to_join, into + a.num_states]),
            weight=torch.cat([a.arc_weight, b.arc_weight, a.final_weight[out], b.initial_weight[into]]),
            initial=torch.cat([a.initial_weight, ring.zeros(b.num_states + 1)]),
            final=torch.cat([ring.zeros(a.num_states), b.final_weight, ring.zeros(1)]),
        )

    def closure(self) -> Self:
        """Return the Kleene star: ⟦x⟧ = ⊕ over all ways to cut x into pieces of the product of the pieces' scores.

        There may be any number of pieces, empty ones too, so the star of ⟦ε⟧ must exist. A new state `"start"` is
        initial and final with weight 1̄; ε-arcs lead from it to the initial states and from the final states back.
        """
        ring, empty = self.semiring, self.score(())
        if bool(ring.t_star(empty).isnan().any()):
            raise AutomatonError(
                f"the closure of a machine needs the star of its score of the empty string, which exists in "
                f"{ring.name} for {ring.star_domain}; got {ring.numbers(empty)!r}. "
                "Scale the machine, or give it no path that consumes nothing."
            )
        into, out = nonzero_weights(self, self.initial_weight), nonzero_weights(self, self.final_weight)
        start = torch.cat([ring.ones(1), ring.zeros(self.num_states)])
        return self.replace(
            states=["start", *((0, q) for q in self.states)],
            source=torch.cat([self.arc_source + 1, torch.zeros_like(into), out + 1]),
            symbol=torch.cat([self.arc_symbol, _epsilons(into, out)]),
            target=torch.cat([self.arc_target + 1, into + 1, torch.zeros_like(out)]),
            weight=torch.cat([self.arc_weight, self.initial_weight[into], self.final_weight[out]]),
            initial=start,
            final=start,
        )

    def intersect(self, other: Self) -> Self:
        """Return the Hadamard product: ⟦x⟧ = self⟦x⟧ ⊗ other⟦x⟧.

        ε-arcs are removed first, and only pairs of states on some path are kept. Paths of the product interleave the
        weights of two paths, so ⊗ must commute.
        """
        alphabet, relabel = _merged(self, other, "intersection")
        _require_commutative(self, "intersection")
        a, b, ring = self.remove_epsilon(), other.remove_epsilon(), self.semiring
        left, right = _join(a.arc_symbol, relabel[b.arc_symbol], len(alphabet))
        pairs = self.replace(
            alphabet=alphabet,
            states=[(p, q) for p in a.states for q in b.states],
            source=a.arc_source[left] * b.num_states + b.arc_source[right],
            symbol=a.arc_symbol[left],
            target=a.arc_target[left] * b.num_states + b.arc_target[right],
            weight=ring.t_times(a.arc_weight[left], b.arc_weight[right]),
            initial=ring.t_times(a.initial_weight[:, None], b.initial_weight[None]).flatten(0, 1),
            final=ring.t_times(a.final_weight[:, None], b.final_weight[None]).flatten(0, 1),
        )
        return pairs.trim()

    def reverse(self) -> Self:
        """Return the machine with ⟦x₁…xₙ⟧ = self⟦xₙ…x₁⟧.

        The weights of a path come in the other order, so ⊗ must commute.
        """
        _require_commutative(self, "reverse")
        return self.replace(
            source=self.arc_target,
            target=self.arc_source,
            initial=self.final_weight,
            final=self.initial_weight,
        )

    def scale(self, factor: Any) -> Self:
        """Return the machine with ⟦x⟧ = factor ⊗ self⟦x⟧.

        The factor is an element or a tensor of one, and goes into the initial weights.
        """
        ring = self.semiring
        if isinstance(factor, Tensor) and tuple(factor.shape) not in ((), ring.shape):
            raise SemiringError(
                f"a factor is one element, a tensor of shape {ring.shape}; got shape {tuple(factor.shape)}"
            )
        weight = checks.stack(ring, [checks.check_weight(ring, factor, "factor")])[0]
        return self.replace(initial=ring.t_times(self.initial_weight, weight))

    def trim(self) -> Self:
        """Return the machine without the states that lie on no path from an initial to a final state.

        An arc whose weight is exactly 0̄ leads nowhere, unless it may get a gradient. Of a machine in which no path
        leads to a final state, the first state remains, without arcs: all scores are 0̄.
        """
        useful = useful_states(self)
        alive = torch.zeros(self.num_states, dtype=torch.bool)
        alive[useful or [0]] = True
        arcs = nonzero_weights(self, self.arc_weight) if useful else self.arc_source[:0]
        arcs = arcs[alive[self.arc_source[arcs]] & alive[self.arc_target[arcs]]]
        place = alive.cumsum(0) - 1
        return self.replace(
            states=[self.states[q] for q in useful or [0]],
            source=place[self.arc_source[arcs]],
            symbol=self.arc_symbol[arcs],
            target=place[self.arc_target[arcs]],
            weight=self.arc_weight[arcs],
            initial=self.initial_weight[alive],
            final=self.final_weight[alive],
        )

    def remove_epsilon(self) -> Self:
        """Return a machine with the same scores and without ε-arcs.

        They are taken after the step before them, and once before the first: λ' = λE and τ' = τE for the ε-closure E
        (the star of the matrix of ε-arcs), while ρ is kept. An arc of the result is the ⊕ of all ways to make its step.
        A machine without ε-arcs is returned itself.
        """
        close = epsilon_closure(self)
        if close is None:
            return self
        ring, states, symbols = self.semiring, self.num_states, len(self.alphabet)
        arcs = (self.arc_symbol >= 0).nonzero().flatten()
        start, end, weight = _closure_entries(self, close)
        left, right = _join(self.arc_target[arcs], start, states)
        arcs = arcs[left]
        step = ring.t_times(self.arc_weight[arcs], weight[right])
        code = (self.arc_source[arcs] * symbols + self.arc_symbol[arcs]) * states + end[right]
        code, group = code.unique(return_inverse=True)
        return self.replace(
            source=code // (symbols * states),
            symbol=code // states % symbols,
            target=code % states,
            weight=segment_plus(ring, step, group, code.numel()),
            initial=close(self.initial_weight[None])[0],
        )


def require_machine(other: Any, what: str) -> None:
    """Raise unless the second argument of an operation is a machine."""
    if not isinstance(other, Automaton):
        hint = " Turn a cell into one with instantiate()." if isinstance(other, Cell) else ""
        raise AutomatonError(f"{what} needs two WFSAs; got {type(other).__name__}.{hint}")


def require_one_semiring(a: Automaton, b: Automaton, what: str) -> None:
    """Raise unless two machines are over the same semiring."""
    if a.semiring != b.semiring:
        raise AutomatonError(
            f"{what} needs two machines over one semiring; got {a.semiring.name} and {b.semiring.name}. "
            "Convert one with with_semiring()."
        )


def _merged(a: Automaton, b: Automaton, what: str) -> tuple[list[Symbol], Tensor]:
    """Return the merged alphabet, and b's symbol indices in it; ε, index −1, stays −1."""
    require_machine(b, what)
    require_one_semiring(a, b, what)
    index = merged_alphabet(a, b)
    return list(index), torch.tensor([*(index[s] for s in b.alphabet), -1])  # index −1 reads the last entry


def _numbered(a: Automaton, b: Automaton) -> list[State]:
    return [*((0, q) for q in a.states), *((1, q) for q in b.states)]


def _epsilons(*arcs: Tensor) -> Tensor:
    """Return the symbol indices of as many ε-arcs as there are entries."""
    return torch.full((sum(a.numel() for a in arcs),), -1)


def _require_commutative(a: Automaton, what: str) -> None:
    if not a.semiring.commutative:
        raise SemiringError(f"{what} needs a commutative ⊗; that of {a.semiring.name} is not")


def _closure_entries(a: Automaton, close: Closure) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ε-closure as (from, to, weight) of every pair of states that some ε-path, or the empty one, joins."""
    ring, epsilons = a.semiring, (a.arc_symbol < 0).nonzero().flatten()
    leaving = a.arc_source[epsilons].unique()
    unit = torch.zeros(leaving.numel(), a.num_states, dtype=torch.bool)
    unit[torch.arange(leaving.numel()), leaving] = True
    weights = close(ring.where(unit, ring.ones(*unit.shape), ring.zeros(*unit.shape)))
    # Which pairs are joined is the same closure, asked only for yes or no: a weight may be 0̄ by cancelling.
    ones = BOOLEAN.ones(epsilons.numel())
    joins = closure_under(BOOLEAN, a.states, a.arc_source[epsilons], a.arc_target[epsilons], ones)
    assert joins is not None
    row, end = joins(unit.to(BOOLEAN.dtype)).nonzero().unbind(1)
    alone = torch.ones(a.num_states, dtype=torch.bool).index_fill(0, leaving, False).nonzero().flatten()
    weight = torch.cat([weights[row, end], ring.ones(alone.numel())])
    return torch.cat([leaving[row], alone]), torch.cat([end, alone]), weight


def _join(left: Tensor, right: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """Return all pairs (i, j) with left[i] = right[j] < `keys`, as two index tensors, by i and then by j."""
    order = right.argsort(stable=True)
    counts = torch.bincount(right, minlength=keys)
    begin, many = (counts.cumsum(0) - counts)[left], counts[left]
    i = torch.repeat_interleave(many)
    within = torch.arange(i.numel()) - (many.cumsum(0) - many)[i]
    return i, order[begin[i] + within]


__getattr__ = moved.attributes(__name__)
