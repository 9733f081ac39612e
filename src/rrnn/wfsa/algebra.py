"""New machines from old ones: union, concatenation, closure, Hadamard product, reverse, scale, trim.

Weights stay tensors with their graph: the score of a combined machine is differentiable in the weights of its
parts. Alphabets merge in order: the first machine's symbols, then those only the second one has. An initial
or final weight that is exactly 0̄ makes no arc, unless it may get a gradient.

| result | its states |
|---|---|
| `union(a, b)` | `(0, q)` for q of a, `(1, q)` for q of b |
| `concatenation(a, b)` | the same, and `"join"` between the two |
| `closure(a)` | `"start"`, and `(0, q)` for q of a |
| `intersection(a, b)` | pairs `(p, q)` that lie on some path |
| `reverse`, `scale`, `trim`, `remove_epsilon` | their names are kept |
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.errors import AutomatonError, SemiringError
from rrnn.semirings import BOOLEAN
from rrnn.wfsa import checks
from rrnn.wfsa.closure import Closure
from rrnn.wfsa.closure import closure as closure_of
from rrnn.wfsa.graph import reachable, successors
from rrnn.wfsa.machine import WFSA, State, Symbol
from rrnn.wfsa.products import segment_plus
from rrnn.wfsa.transitions import epsilon_closure


def union(a: WFSA, b: WFSA) -> WFSA:
    """⟦x⟧ = a⟦x⟧ ⊕ b⟦x⟧."""
    alphabet, relabel = _merged(a, b, "union")
    return WFSA.from_tensors(
        a.semiring,
        alphabet,
        _numbered(a, b),
        torch.cat([a.arc_source, b.arc_source + a.num_states]),
        torch.cat([a.arc_symbol, relabel[b.arc_symbol]]),
        torch.cat([a.arc_target, b.arc_target + a.num_states]),
        torch.cat([a.arc_weight, b.arc_weight]),
        torch.cat([a.initial_weight, b.initial_weight]),
        torch.cat([a.final_weight, b.final_weight]),
        allow_empty=True,
    )


def concatenation(a: WFSA, b: WFSA) -> WFSA:
    """⟦x⟧ = ⊕ over x = y·z of a⟦y⟧ ⊗ b⟦z⟧. ε-arcs lead from a's final states to `"join"`, and on into b."""
    alphabet, relabel = _merged(a, b, "concatenation")
    ring, join = a.semiring, a.num_states + b.num_states
    out, into = _present(a, a.final_weight), _present(b, b.initial_weight)
    nothing = ring.zeros(1, device=out.device)
    return WFSA.from_tensors(
        ring,
        alphabet,
        [*_numbered(a, b), "join"],
        torch.cat([a.arc_source, b.arc_source + a.num_states, out, torch.full_like(into, join)]),
        torch.cat([a.arc_symbol, relabel[b.arc_symbol], torch.full_like(torch.cat([out, into]), -1)]),
        torch.cat(
            [a.arc_target, b.arc_target + a.num_states, torch.full_like(out, join), into + a.num_states]
        ),
        torch.cat([a.arc_weight, b.arc_weight, a.final_weight[out], b.initial_weight[into]]),
        torch.cat([a.initial_weight, ring.zeros(b.num_states, device=out.device), nothing]),
        torch.cat([ring.zeros(a.num_states, device=out.device), b.final_weight, nothing]),
        allow_empty=True,
    )


def closure(a: WFSA) -> WFSA:
    """Kleene star: ⟦x⟧ = ⊕ over all ways to cut x into pieces (any number, empty ones too) of their product.

    Needs the star of ⟦ε⟧, as any number of empty pieces fits everywhere. A new state `"start"` is initial and
    final with weight 1̄; ε-arcs lead from it to a's initial states and from a's final states back.
    """
    ring = a.semiring
    empty = a.score(())
    if bool(ring.t_star(empty).isnan().any()):
        raise AutomatonError(
            f"the closure of a machine needs the star of its score of the empty string, which exists in "
            f"{ring.name} for {ring.star_domain}; got {ring.numbers(empty)!r}. "
            "Scale the machine, or give it no path that consumes nothing."
        )
    into, out = _present(a, a.initial_weight), _present(a, a.final_weight)
    device = into.device
    one, rest = ring.ones(1, device=device), ring.zeros(a.num_states, device=device)
    return WFSA.from_tensors(
        ring,
        a.alphabet,
        ["start", *((0, q) for q in a.states)],
        torch.cat([a.arc_source + 1, torch.zeros_like(into), out + 1]),
        torch.cat([a.arc_symbol, torch.full_like(torch.cat([into, out]), -1)]),
        torch.cat([a.arc_target + 1, into + 1, torch.zeros_like(out)]),
        torch.cat([a.arc_weight, a.initial_weight[into], a.final_weight[out]]),
        torch.cat([one, rest]),
        torch.cat([one, rest]),
        allow_empty=True,
    )


def intersection(a: WFSA, b: WFSA) -> WFSA:
    """Hadamard product: ⟦x⟧ = a⟦x⟧ ⊗ b⟦x⟧. ε-arcs are removed first; only pairs on some path are kept.

    Paths of the product interleave the weights of two paths, so ⊗ must commute.
    """
    alphabet, relabel = _merged(a, b, "intersection")
    _commutative(a, "intersection")
    a, b = (remove_epsilon(m) if m.has_epsilon else m for m in (a, b))
    ring = a.semiring
    left, right = _join(a.arc_symbol, relabel[b.arc_symbol], len(alphabet))
    pairs = WFSA.from_tensors(
        ring,
        alphabet,
        [(p, q) for p in a.states for q in b.states],
        a.arc_source[left] * b.num_states + b.arc_source[right],
        a.arc_symbol[left],
        a.arc_target[left] * b.num_states + b.arc_target[right],
        ring.t_times(a.arc_weight[left], b.arc_weight[right]),
        ring.t_times(a.initial_weight[:, None], b.initial_weight[None]).flatten(0, 1),
        ring.t_times(a.final_weight[:, None], b.final_weight[None]).flatten(0, 1),
        allow_empty=True,
    )
    return trim(pairs)


def reverse(a: WFSA) -> WFSA:
    """⟦x₁…xₙ⟧ = a⟦xₙ…x₁⟧. The weights of a path come in the other order, so ⊗ must commute."""
    _commutative(a, "reverse")
    return WFSA.from_tensors(
        a.semiring,
        a.alphabet,
        a.states,
        a.arc_target,
        a.arc_symbol,
        a.arc_source,
        a.arc_weight,
        a.final_weight,
        a.initial_weight,
        allow_empty=True,
    )


def scale(a: WFSA, factor: Any) -> WFSA:
    """⟦x⟧ = factor ⊗ a⟦x⟧; the factor is an element or a tensor of one, and goes into the initial weights."""
    ring = a.semiring
    if isinstance(factor, Tensor) and tuple(factor.shape) not in ((), ring.shape):
        raise SemiringError(
            f"a factor is one element, a tensor of shape {ring.shape}; got shape {tuple(factor.shape)}"
        )
    weight = checks.stack(ring, [checks.check_weight(ring, factor, "factor")])[0]
    initial = ring.t_times(a.initial_weight, weight.to(a.initial_weight))
    return a._replace(ring, a.arc_weight, initial, a.final_weight)


def trim(a: WFSA) -> WFSA:
    """Without the states that lie on no path from an initial to a final state, and without their arcs.

    An arc whose weight is exactly 0̄ leads nowhere, unless it may get a gradient. Of a machine in which no path
    leads to a final state, the first state remains, without arcs: all scores are 0̄.
    """
    arcs = _present(a, a.arc_weight)
    source, target = a.arc_source[arcs], a.arc_target[arcs]
    edges = list(zip(source.tolist(), target.tolist(), strict=True))
    ahead = reachable(successors(a.num_states, edges), _present(a, a.initial_weight).tolist())
    edges = [(p, q) for q, p in edges]
    back = reachable(successors(a.num_states, edges), _present(a, a.final_weight).tolist())
    useful = sorted(ahead & back) or [0]
    alive = torch.zeros(a.num_states, dtype=torch.bool, device=source.device)
    alive[useful] = True
    kept = arcs[alive[source] & alive[target]] if ahead & back else arcs[:0]
    place = alive.cumsum(0) - 1
    return WFSA.from_tensors(
        a.semiring,
        a.alphabet,
        [a.states[q] for q in useful],
        place[a.arc_source[kept]],
        a.arc_symbol[kept],
        place[a.arc_target[kept]],
        a.arc_weight[kept],
        a.initial_weight[alive],
        a.final_weight[alive],
        allow_empty=True,
    )


def remove_epsilon(a: WFSA) -> WFSA:
    """The same scores without ε-arcs: they are taken after the step before them, and once before the first.

    That is λ' = λE and τ' = τE for the ε-closure E (the star of the matrix of ε-arcs), with ρ kept. An arc of
    the result is the ⊕ of all ways to make its step; a machine without ε-arcs comes back as it is.
    """
    close = epsilon_closure(a)
    if close is None:
        return a
    ring, states, symbols = a.semiring, a.num_states, len(a.alphabet)
    arcs = (a.arc_symbol >= 0).nonzero().flatten()
    start, end, weight = _closure_entries(a, close)
    left, right = _join(a.arc_target[arcs], start, states)
    arcs = arcs[left]
    step = ring.t_times(a.arc_weight[arcs], weight[right])
    code = (a.arc_source[arcs] * symbols + a.arc_symbol[arcs]) * states + end[right]
    code, group = code.unique(return_inverse=True)
    return WFSA.from_tensors(
        ring,
        a.alphabet,
        a.states,
        code // (symbols * states),
        code // states % symbols,
        code % states,
        segment_plus(ring, step, group, code.numel()),
        close(a.initial_weight[None])[0],
        a.final_weight,
        allow_empty=True,
    )


# ---- parts -------------------------------------------------------------------------------------------------


def _merged(a: WFSA, b: WFSA, what: str) -> tuple[list[Symbol], Tensor]:
    """The merged alphabet, and b's symbol indices in it (ε, index −1, stays −1)."""
    both_machines(a, b, what)
    if a.semiring != b.semiring:
        raise AutomatonError(
            f"{what} needs two machines over one semiring; got {a.semiring.name} and {b.semiring.name}. "
            "Convert one with with_semiring()."
        )
    index = {symbol: i for i, symbol in enumerate(dict.fromkeys((*a.alphabet, *b.alphabet)))}
    # indexing with −1 reads the last entry
    return list(index), torch.tensor([*(index[s] for s in b.alphabet), -1], device=b.arc_symbol.device)


def both_machines(a: Any, b: Any, what: str) -> None:
    """Raise where one of two arguments is no machine."""
    for other in (a, b):
        if not isinstance(other, WFSA):
            hint = " Turn a cell into one with instantiate()." if isinstance(other, Cell) else ""
            raise AutomatonError(f"{what} needs two WFSAs; got {type(other).__name__}.{hint}")


def _numbered(a: WFSA, b: WFSA) -> list[State]:
    return [*((0, q) for q in a.states), *((1, q) for q in b.states)]


def _present(a: WFSA, weight: Tensor) -> Tensor:
    """Which weights count: those that are not 0̄, and finite 0̄s on the tape (their gradient is not 0)."""
    if weight.requires_grad and not a.semiring.infinities:
        return torch.arange(weight.shape[0], device=weight.device)
    return (~a.semiring.is_zero(weight.detach())).nonzero().flatten()


def _commutative(a: WFSA, what: str) -> None:
    if not a.semiring.commutative:
        raise SemiringError(f"{what} needs a commutative ⊗; that of {a.semiring.name} is not")


def _closure_entries(a: WFSA, close: Closure) -> tuple[Tensor, Tensor, Tensor]:
    """The ε-closure as a list: (from, to, weight), for every pair of states that some ε-path (or none) joins."""
    ring, epsilons = a.semiring, (a.arc_symbol < 0).nonzero().flatten()
    leaving = a.arc_source[epsilons].unique()
    unit = torch.zeros(leaving.numel(), a.num_states, dtype=torch.bool, device=leaving.device)
    unit[torch.arange(leaving.numel(), device=leaving.device), leaving] = True
    shape, device = unit.shape, unit.device
    weights = close(ring.where(unit, ring.ones(*shape, device=device), ring.zeros(*shape, device=device)))
    # Which pairs are joined is the same closure, asked only for yes or no: a weight may be 0̄ by cancelling.
    ones = BOOLEAN.ones(epsilons.numel(), device=epsilons.device)
    joins = closure_of(BOOLEAN, a.states, a.arc_source[epsilons], a.arc_target[epsilons], ones)
    assert joins is not None
    row, end = joins(unit.to(BOOLEAN.dtype)).nonzero().unbind(1)
    rest = torch.ones(a.num_states, dtype=torch.bool, device=row.device).index_fill(0, leaving, False)
    alone = rest.nonzero().flatten()
    weight = torch.cat([weights[row, end], ring.ones(alone.numel(), device=row.device)])
    return torch.cat([leaving[row], alone]), torch.cat([end, alone]), weight


def _join(left: Tensor, right: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """All pairs (i, j) with left[i] = right[j], as two index tensors, by i and then by j. Keys are < `keys`."""
    order = right.argsort(stable=True)
    counts = torch.bincount(right, minlength=keys)
    begin, many = (counts.cumsum(0) - counts)[left], counts[left]
    i = torch.repeat_interleave(many)
    within = torch.arange(i.numel(), device=i.device) - (many.cumsum(0) - many)[i]
    return i, order[begin[i] + within]
