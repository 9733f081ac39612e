"""The rules that the parts of a machine must keep, and the messages for breaking them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.errors import AutomatonError, SemiringError, ShapeError, nearest
from rrnn.semirings import Semiring
from rrnn.wfsa.symbols import EPSILON, preview

Index = tuple[Tensor, Tensor, Tensor]


def distinct(names: Iterable[Any], what: str) -> tuple[Any, ...]:
    """Return the names as a tuple, or raise unless they are hashable and distinct."""
    try:
        listed = tuple(names)
    except TypeError:
        raise AutomatonError(
            f"{what}s must be given as a sequence of names; got {type(names).__name__}"
        ) from None
    seen: set[Hashable] = set()
    for name in listed:
        try:
            repeated = name in seen
            seen.add(name)
        except TypeError:
            raise AutomatonError(
                f"the name of a {what} must be hashable (a string, a number, a tuple); "
                f"got {name!r} of type {type(name).__name__}"
            ) from None
        if repeated:
            raise AutomatonError(f"each {what} must be listed once; {name!r} is listed twice. Remove one.")
    return listed


def alphabet(symbols: Iterable[Any]) -> tuple[Any, ...]:
    """Return the symbols as a tuple, or raise unless they make an alphabet."""
    listed = distinct(symbols, "symbol")
    if not listed:
        raise AutomatonError("an alphabet needs at least one symbol; got none. Pass alphabet=('a', …).")
    if EPSILON in listed:
        raise AutomatonError(
            "ε cannot be a member of an alphabet: it labels arcs that consume nothing. "
            "Leave EPSILON out of alphabet=; arcs may use it anyway."
        )
    return listed


def arc_tuples(arcs: Iterable[Any]) -> list[tuple[Any, Any, Any, Any]]:
    """Return the arcs as tuples of four, or raise."""
    if isinstance(arcs, str | Mapping) or not isinstance(arcs, Iterable):
        raise AutomatonError(
            f"arcs must be given as (source, symbol, target, weight) tuples; got {type(arcs).__name__}"
        )
    listed: list[tuple[Any, Any, Any, Any]] = []
    for number, arc in enumerate(arcs):
        if not isinstance(arc, tuple | list) or len(arc) != 4:
            raise AutomatonError(
                f"an arc must be (source, symbol, target, weight); arc number {number} is {arc!r}"
            )
        listed.append((arc[0], arc[1], arc[2], arc[3]))
    return listed


def weights_by_state(weights: Any, what: str) -> dict[Any, Any]:
    """Return initial or final weights as a dictionary, or raise."""
    if not isinstance(weights, Mapping):
        raise AutomatonError(
            f"{what} weights must be a mapping from state to weight, such as {{'q0': 1.0}}; "
            f"got {type(weights).__name__}"
        )
    return dict(weights)


def state_names(
    states: Iterable[Any] | None,
    arcs: list[tuple[Any, Any, Any, Any]],
    initial: Mapping[Any, Any],
    final: Mapping[Any, Any],
) -> tuple[Any, ...]:
    """Return the states as given or, if they are not given, in the order of their first appearance."""
    if states is not None:
        return distinct(states, "state")
    appearing = [*initial, *(q for arc in arcs for q in (arc[0], arc[2])), *final]
    try:
        return tuple(dict.fromkeys(appearing))
    except TypeError:  # one of them is not hashable: name it
        for name in appearing:
            distinct((name,), "state")
        raise


def index_arcs(
    ring: Semiring,
    arcs: list[tuple[Any, Any, Any, Any]],
    state_index: Mapping[Any, int],
    symbol_index: Mapping[Any, int],
    merge: str | None,
) -> tuple[list[tuple[int, int, int]], list[Any]]:
    """Return arcs as (source, symbol, target) indices, and their checked weights; merge repeated arcs, or raise."""
    if merge not in (None, "plus"):
        raise AutomatonError(
            f"merge must be None (an arc given twice is an error) or 'plus' (its weights are added by ⊕); got {merge!r}"
        )
    place: dict[tuple[int, int, int], int] = {}
    weights: list[Any] = []
    for source, symbol, target, weight in arcs:
        row = (
            state_of(source, state_index, "an arc's source"),
            symbol_of(symbol, symbol_index, source, target),
            state_of(target, state_index, "an arc's target"),
        )
        checked = check_weight(ring, weight, "weight of the arc {!r} --{}--> {!r}", source, symbol, target)
        if row not in place:
            place[row] = len(weights)
            weights.append(checked)
        elif merge == "plus":
            weights[place[row]] = add(ring, weights[place[row]], checked)
        else:
            raise AutomatonError(
                f"each arc must be given once; {source!r} --{symbol}--> {target!r} is given twice, with weights "
                f"{weights[place[row]]!r} and {weight!r}. Remove one, or pass merge='plus' to add them by ⊕."
            )
    return list(place), weights


def state_of(name: Any, state_index: Mapping[Any, int], what: str) -> int:
    """Return the index of a state, or raise if it is unknown."""
    try:
        return state_index[name]
    except (KeyError, TypeError):
        raise AutomatonError(
            f"{what} must be one of the states {preview(state_index)}; got {name!r}."
            f"{nearest(name, state_index)} Add it to states=, or leave states= out."
        ) from None


def symbol_of(symbol: Any, symbol_index: Mapping[Any, int], source: Any, target: Any) -> int:
    """Return the index of an arc's symbol (−1 for ε), or raise if it is unknown."""
    if symbol is EPSILON:
        return -1
    try:
        return symbol_index[symbol]
    except (KeyError, TypeError):
        raise AutomatonError(
            f"an arc's symbol must be in the alphabet {preview(symbol_index)}, or EPSILON; the arc from "
            f"{source!r} to {target!r} has {symbol!r}.{nearest(symbol, symbol_index)} Add it to alphabet=."
        ) from None


def check_weight(ring: Semiring, weight: Any, what: str, *names: Any) -> Any:
    """Return a weight as an element of the semiring, or as a tensor of one if it requires a gradient.

    An element of several components may be given as a tuple of numbers or 0-d tensors, as a tensor of them, as a
    complex number if there are two, and as a number if the semiring reads real numbers. `what.format(*names)` describes
    the weight in messages; it is formatted only when it is needed, because machines have many arcs.
    """
    if ring.components and isinstance(weight, tuple | list) and any(isinstance(x, Tensor) for x in weight):
        weight = torch.stack([torch.as_tensor(x, dtype=ring.dtype) for x in weight])
    if isinstance(weight, Tensor):
        tensor = _one_element(ring, weight)
        if tensor is None:
            form = f"a tensor of {ring.size} numbers" if ring.components else "a 0-d tensor"
            raise ShapeError(
                f"the {what.format(*names)} must be {'an element' if ring.components else 'a number'} or {form}; "
                f"got shape {tuple(weight.shape)}"
            )
        number = check_weight(ring, ring.numbers(tensor), what, *names)
        return tensor if tensor.requires_grad else number
    if isinstance(weight, str | bytes):  # float("1.5") would take it, and so would a misread file
        kind = f"{ring.size} numbers" if ring.components else "a number"
        raise SemiringError(
            f"the {what.format(*names)} must be {kind} in {ring.set_description}; got the text {weight!r}"
        )
    try:
        return ring.check(weight)
    except SemiringError:
        return ring.check(weight, what.format(*names))


def _one_element(ring: Semiring, weight: Tensor) -> Tensor | None:
    """Return a tensor as one element, or None if it has another shape."""
    if weight.is_complex() and ring.size == 2 and not weight.dim():
        return torch.view_as_real(weight)
    if ring.components and not weight.dim() and ring.reads_reals:
        return ring.bind(ring.from_real(weight.to(ring.dtype), TENSORS))
    return weight if tuple(weight.shape) == ring.shape else None


def add(ring: Semiring, a: Any, b: Any) -> Any:
    """Return a ⊕ b of two checked weights, numbers or tensors."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return ring.t_plus(*(torch.as_tensor(w, dtype=ring.dtype) for w in (a, b)))
    return ring.plus(a, b)


def stack(ring: Semiring, weights: list[Any]) -> Tensor:
    """Return checked weights as one tensor of the semiring's dtype."""
    try:
        if any(isinstance(w, Tensor) for w in weights):
            return torch.stack([torch.as_tensor(w, dtype=ring.dtype, device="cpu") for w in weights])
        return torch.tensor(weights, dtype=ring.dtype).reshape(len(weights), *ring.shape)
    except (OverflowError, RuntimeError, ValueError):  # depending on the version of torch
        raise SemiringError(
            f"a {ring.name} weight in a machine must fit {ring.dtype}; got {max(weights)!r}"
        ) from None


def spread(ring: Semiring, weights: Mapping[Any, Any], state_index: Mapping[Any, int], what: str) -> Tensor:
    """Return initial or final weights by state as a tensor of Q elements."""
    places = [
        state_of(q, state_index, f"an {what} state" if what == "initial" else f"a {what} state")
        for q in weights
    ]
    values = stack(
        ring, [check_weight(ring, w, what + " weight of state {!r}", q) for q, w in weights.items()]
    )
    full = ring.zeros(len(state_index))
    return full.index_copy(0, torch.tensor(places, dtype=torch.int64), values)


def index_tensors(source: Tensor, symbol: Tensor, target: Tensor, states: int, symbols: int) -> Index:
    """Return index tensors on the CPU, or raise unless they have one length and are in range."""
    named = {"source": (source, 0, states), "symbol": (symbol, -1, symbols), "target": (target, 0, states)}
    for name, (tensor, low, high) in named.items():
        if not isinstance(tensor, Tensor) or tensor.dim() != 1 or tensor.is_floating_point():
            shape = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ShapeError(f"{name} must be a 1-d int64 tensor with one entry for each arc; got {shape}")
        if tensor.numel() != source.numel():
            raise ShapeError(
                f"source, symbol and target must have one entry for each arc; {name} has {tensor.numel()}, "
                f"source {source.numel()}"
            )
        if tensor.numel() and not (low <= int(tensor.min()) and int(tensor.max()) < high):
            kind = "symbol" if name == "symbol" else "state"
            wrong = int(tensor.min()) if int(tensor.min()) < low else int(tensor.max())
            raise AutomatonError(f"unknown {kind}: {name} must lie in {low} … {high - 1}; got {wrong}")
    return source.to("cpu", torch.int64), symbol.to("cpu", torch.int64), target.to("cpu", torch.int64)


def no_repeats(index: Index, names: tuple[Any, ...], symbols: tuple[Any, ...]) -> None:
    """Raise if an arc is given twice."""
    source, symbol, target = index
    code = (source * (len(symbols) + 1) + symbol + 1) * len(names) + target
    order = code.argsort(stable=True)
    repeat = (code[order][1:] == code[order][:-1]).nonzero()
    if repeat.numel():
        arc = int(order[int(repeat[0]) + 1])
        label = (*symbols, EPSILON)[int(symbol[arc])]
        raise AutomatonError(
            f"each arc must be given once; {names[int(source[arc])]!r} --{label}--> {names[int(target[arc])]!r} "
            "is given twice. Add the weights by ⊕ first, or build the machine with WFSA(…, merge='plus')."
        )


def weight_tensor(ring: Semiring, weight: Tensor, length: int, what: str) -> Tensor:
    """Return a tensor of weights on the CPU in the semiring's dtype, or raise."""
    if isinstance(weight, Tensor) and weight.is_complex() and ring.size == 2:
        weight = torch.view_as_real(weight)
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (length, *ring.shape):
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ShapeError(f"{what}s must be a tensor of shape {(length, *ring.shape)}; got {got}")
    ring.tensor(weight.detach())  # check before the conversion, which would truncate a fraction in counting
    return weight.to("cpu", ring.dtype)


def not_empty(ring: Semiring, names: tuple[Any, ...], index: Index, initial: Tensor, final: Tensor) -> None:
    """Raise unless some final state can be reached from an initial one along the listed arcs."""
    ends: list[list[int]] = []
    for what, weights in (("initial", initial), ("final", final)):
        ends.append((~ring.is_zero(weights.detach())).nonzero().flatten().tolist())
        if not ends[-1]:
            kind = "an initial" if what == "initial" else "a final"
            raise AutomatonError(
                f"a machine needs {kind} state: one whose {what} weight is not 0̄ ({ring.zero!r} in {ring.name}); "
                f"there is none. Pass {what}={{state: weight}}."
            )
    follows: dict[int, list[int]] = {}
    for q, p in zip(index[0].tolist(), index[2].tolist(), strict=True):
        follows.setdefault(q, []).append(p)
    frontier, last = ends[0], set(ends[1])
    reached = set(frontier)
    while frontier:
        if reached & last:
            return
        frontier = [p for p in {p for q in frontier for p in follows.get(q, ())} if p not in reached]
        reached.update(frontier)
    starts, stops = (preview(names[q] for q in states) for states in ends)
    raise AutomatonError(
        f"a final state must be reachable from an initial one; from {starts} none of {stops} is. "
        "Add the missing arcs, or pass allow_empty=True if every score should be 0̄."
    )
