"""`Automaton`: the data of a WFSA, the paper's ⟨Σ, Q, τ, λ, ρ⟩ with numbers on its arcs.

The operations on a machine are methods of subclasses in the other modules, one subclass for each topic;
`rrnn.wfsa.machine.WFSA` inherits from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.errors import AutomatonError, SemiringError, ShapeError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa import checks
from rrnn.wfsa.graph import reachable, successors
from rrnn.wfsa.symbols import EPSILON, Arc, State, Symbol, encode

T = TypeVar("T")


class Automaton:
    """Hold the states, alphabet, arcs and weights of a machine. `WFSA` describes the arguments."""

    semiring: Semiring
    states: tuple[State, ...]
    alphabet: tuple[Symbol, ...]
    arc_source: Tensor
    """(A,) int64, indices into `states`."""
    arc_symbol: Tensor
    """(A,) int64, indices into `alphabet`; −1 is ε."""
    arc_target: Tensor
    """(A,) int64, indices into `states`."""
    arc_weight: Tensor
    """(A,) of the semiring's dtype: τ. With C components, (A, C)."""
    initial_weight: Tensor
    """(Q,) or (Q, C): λ, 0̄ where a state is not initial."""
    final_weight: Tensor
    """(Q,) or (Q, C): ρ, 0̄ where a state is not final."""

    def __init__(
        self,
        semiring: str | Semiring = "real",
        *,
        alphabet: Iterable[Symbol],
        arcs: Iterable[tuple[State, Symbol, State, Any]] = (),
        initial: Mapping[Any, Any],
        final: Mapping[Any, Any],
        states: Iterable[State] | None = None,
        merge: str | None = None,
        allow_empty: bool = False,
    ) -> None:
        ring = get_semiring(semiring)
        symbols = checks.alphabet(alphabet)
        listed = checks.arc_tuples(arcs)
        initial, final = checks.weights_by_state(initial, "initial"), checks.weights_by_state(final, "final")
        names = checks.state_names(states, listed, initial, final)
        state_index = {q: i for i, q in enumerate(names)}
        symbol_index: dict[Symbol, int] = {a: i for i, a in enumerate(symbols)}
        rows, weights = checks.index_arcs(ring, listed, state_index, symbol_index, merge)
        columns = torch.tensor(rows, dtype=torch.int64).reshape(len(rows), 3)
        self._fill(
            ring,
            symbols,
            names,
            (columns[:, 0].contiguous(), columns[:, 1].contiguous(), columns[:, 2].contiguous()),
            checks.stack(ring, weights),
            checks.spread(ring, initial, state_index, "initial"),
            checks.spread(ring, final, state_index, "final"),
            allow_empty,
        )

    @classmethod
    def from_tensors(
        cls,
        semiring: str | Semiring,
        alphabet: Iterable[Symbol],
        states: Iterable[State],
        source: Tensor,
        symbol: Tensor,
        target: Tensor,
        weight: Tensor,
        initial: Tensor,
        final: Tensor,
        *,
        allow_empty: bool = False,
    ) -> Self:
        """Return a machine made of index tensors (A,), where symbol −1 is ε, and weights (A,), (Q,) and (Q,).

        Over a semiring of C components, weights are (A, C) and (Q, C); complex tensors may be (A,) and (Q,). Weight
        tensors of the semiring's dtype on the CPU are kept as they are, and others are converted: gradients reach
        them either way.
        """
        ring = get_semiring(semiring)
        symbols, names = checks.alphabet(alphabet), checks.distinct(states, "state")
        index = checks.index_tensors(source, symbol, target, len(names), len(symbols))
        checks.no_repeats(index, names, symbols)
        machine = cls.__new__(cls)
        machine._fill(
            ring,
            symbols,
            names,
            index,
            checks.weight_tensor(ring, weight, index[0].numel(), "arc weight"),
            checks.weight_tensor(ring, initial, len(names), "initial weight"),
            checks.weight_tensor(ring, final, len(names), "final weight"),
            allow_empty,
        )
        return machine

    def _fill(
        self,
        ring: Semiring,
        symbols: tuple[Symbol, ...],
        names: tuple[State, ...],
        index: tuple[Tensor, Tensor, Tensor],
        weight: Tensor,
        initial: Tensor,
        final: Tensor,
        allow_empty: bool,
    ) -> None:
        if not names:
            raise AutomatonError(
                "a machine needs at least one state; got none. Pass states=, arcs= or initial=."
            )
        self.semiring, self.alphabet, self.states = ring, symbols, names
        self.arc_source, self.arc_symbol, self.arc_target = index
        self.arc_weight, self.initial_weight, self.final_weight = weight, initial, final
        self.state_index: dict[State, int] = {q: i for i, q in enumerate(names)}
        self.symbol_index: dict[Symbol, int] = {a: i for i, a in enumerate(symbols)}
        self._cache: dict[str, tuple[Any, Any]] = {}
        if not allow_empty:
            checks.not_empty(ring, names, index, initial, final)

    # ---- reading the machine -------------------------------------------------------------------------------

    @property
    def num_states(self) -> int:
        return len(self.states)

    @property
    def num_arcs(self) -> int:
        return self.arc_weight.shape[0]

    @property
    def requires_grad(self) -> bool:
        """Whether any weight requires a gradient."""
        return any(w.requires_grad for w in self.weights)

    @property
    def has_epsilon(self) -> bool:
        return bool((self.arc_symbol < 0).any())

    @property
    def arcs(self) -> list[Arc]:
        """The arcs, with the names of their states and symbols and with Python numbers as weights."""
        symbols = (*self.alphabet, EPSILON)  # index −1 is ε
        return [Arc(self.states[q], symbols[a], self.states[p], w) for q, a, p, w in indexed_arcs(self)]

    @property
    def initial(self) -> dict[State, Any]:
        """The initial weights that are not 0̄, by state."""
        return self._weights_of(self.initial_weight)

    @property
    def final(self) -> dict[State, Any]:
        """The final weights that are not 0̄, by state."""
        return self._weights_of(self.final_weight)

    def _weights_of(self, weights: Tensor) -> dict[State, Any]:
        numbers = zip(self.states, self.semiring.numbers(weights), strict=True)
        return {q: w for q, w in numbers if w != self.semiring.zero}

    def __repr__(self) -> str:
        def count(n: int, what: str) -> str:
            return f"{n} {what}" + ("" if n == 1 else "s")

        epsilons = int((self.arc_symbol < 0).sum())
        return (
            f"<WFSA {self.semiring.name}: {count(self.num_states, 'state')}, "
            f"{count(self.num_arcs, 'arc')}{f' ({epsilons} ε)' if epsilons else ''}, "
            f"{count(len(self.alphabet), 'symbol')}, {len(self.initial)} initial, {len(self.final)} final>"
        )

    def same_as(self, other: Automaton) -> bool:
        """Return whether two machines have the same semiring, states, alphabet, arcs (in order) and weights, bit by
        bit."""
        return (
            self.semiring == other.semiring
            and self.states == other.states
            and self.alphabet == other.alphabet
            and all(
                torch.equal(getattr(self, name).detach().cpu(), getattr(other, name).detach().cpu())
                for name in (
                    *("arc_source", "arc_symbol", "arc_target"),
                    *("arc_weight", "initial_weight", "final_weight"),
                )
            )
        )

    # ---- machines with other weights or parts --------------------------------------------------------------

    def map_weights(self, f: Callable[[Tensor], Tensor]) -> Self:
        """Return the machine with `f` (elementwise, on tensors) applied to every weight that is not 0̄.

        With C components, `f` takes and returns tensors (n, C).
        """
        return self.with_semiring(self.semiring, f)

    def with_semiring(self, semiring: str | Semiring, f: Callable[[Tensor], Tensor] | None = None) -> Self:
        """Return the machine over another semiring: 0̄ becomes 0̄, and every other weight w becomes `f(w)`.

        Without `f`, weights keep their usual meaning: probabilities (real, max-times), log-probabilities (log,
        max-plus) and costs (min-plus) are converted by log, exp and sign; boolean keeps only which weights are not 0̄,
        and a boolean true becomes 1̄. Real numbers become complex numbers, signed-log weights or pairs of the
        expectation semiring (whose second number is then 0), and are read back from these; a complex weight must be
        real for that.
        """
        ring = get_semiring(semiring)
        weight, initial, final = (_convert(w, self.semiring, ring, f) for w in self.weights)
        return self.replace(semiring=ring, weight=weight, initial=initial, final=final)

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The weights of the arcs, the initial and the final weights."""
        return self.arc_weight, self.initial_weight, self.final_weight

    def detach(self) -> Self:
        """Return the machine with weights that are detached from their graph."""
        weight, initial, final = (w.detach() for w in self.weights)
        return self.replace(weight=weight, initial=initial, final=final)

    def replace(
        self,
        *,
        semiring: Semiring | None = None,
        alphabet: Iterable[Symbol] | None = None,
        states: Iterable[State] | None = None,
        source: Tensor | None = None,
        symbol: Tensor | None = None,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        initial: Tensor | None = None,
        final: Tensor | None = None,
    ) -> Self:
        """Return the machine with some of its parts replaced, given as in `from_tensors`.

        The result may be empty: all of its scores may be 0̄.
        """
        return self.from_tensors(
            self.semiring if semiring is None else semiring,
            self.alphabet if alphabet is None else alphabet,
            self.states if states is None else states,
            self.arc_source if source is None else source,
            self.arc_symbol if symbol is None else symbol,
            self.arc_target if target is None else target,
            self.arc_weight if weight is None else weight,
            self.initial_weight if initial is None else initial,
            self.final_weight if final is None else final,
            allow_empty=True,
        )

    def cached(self, key: str, build: Callable[[], T]) -> T:
        """Return `build()`, cached under `key` until a weight is changed in place.

        Nothing is cached while weights require gradients, since a graph serves only one backward pass, nor for tensors
        of inference mode, which do not count their changes.
        """
        if self.requires_grad or any(w.is_inference() for w in self.weights):
            return build()
        version = tuple(w._version for w in self.weights)
        if key not in self._cache or self._cache[key][0] != version:
            self._cache[key] = (version, build())
        return self._cache[key][1]

    def encode(self, string: Any) -> list[int]:
        """Return a string as indices into `alphabet`; an error names the first unknown symbol."""
        return encode(self.symbol_index, string)


# ---- what operations share ---------------------------------------------------------------------------------


def indexed_arcs(machine: Automaton) -> Iterator[tuple[int, int, int, Any]]:
    """Return arcs as (source, symbol, target, weight), with indices (−1 for ε) and a Python number as weight."""
    columns = (machine.arc_source.tolist(), machine.arc_symbol.tolist(), machine.arc_target.tolist())
    return zip(*columns, machine.semiring.numbers(machine.arc_weight), strict=True)


def merged_alphabet(a: Automaton, b: Automaton) -> dict[Symbol, int]:
    """Return the indices of the symbols of `a`, followed by those of symbols that only `b` has."""
    return {symbol: i for i, symbol in enumerate(dict.fromkeys((*a.alphabet, *b.alphabet)))}


def nonzero_weights(machine: Automaton, weights: Tensor) -> Tensor:
    """Return the places of the weights that are not 0̄, or that are a finite 0̄ and may get a gradient."""
    if weights.requires_grad and not machine.semiring.infinities:
        return torch.arange(weights.shape[0])
    return (~machine.semiring.is_zero(weights.detach())).nonzero().flatten()


def useful_states(machine: Automaton) -> list[int]:
    """Return the states that lie on some path from an initial to a final state, in order."""

    def build() -> list[int]:
        arcs = nonzero_weights(machine, machine.arc_weight)
        edges = list(zip(machine.arc_source[arcs].tolist(), machine.arc_target[arcs].tolist(), strict=True))
        starts, ends = (nonzero_weights(machine, weights).tolist() for weights in machine.weights[1:])
        ahead = reachable(successors(machine.num_states, edges), starts)
        back = reachable(successors(machine.num_states, ((p, q) for q, p in edges)), ends)
        return sorted(ahead & back)

    return machine.cached("useful states", build)


# ---- weights over another semiring -------------------------------------------------------------------------


def _convert(weights: Tensor, old: Semiring, new: Semiring, f: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Return weights over a new semiring, checked: 0̄ becomes the new 0̄, and other weights w become f(w).

    Without `f`, weights keep their usual meaning (see `Automaton.with_semiring`).
    """
    # Select instead of masking: f may be log, whose gradient at 0 would spoil the others.
    alive = (~old.is_zero(weights.detach())).nonzero().flatten()
    values = weights[alive] if f is None and old == new else (f or _usual(old, new))(weights[alive])
    if f is None:
        _stand_for_reals(weights[alive], values, old, new)
    out = new.zeros(len(weights))
    return out.index_copy(0, alive, _settle(values, alive.numel(), new))


def _settle(values: Tensor, count: int, new: Semiring) -> Tensor:
    if values.is_complex() and new.size == 2:
        values = torch.view_as_real(values)
    if tuple(values.shape) != (count, *new.shape):
        raise ShapeError(
            f"a function of weights must return one element over {new.name} for each of {count} weights, a tensor of "
            f"shape {(count, *new.shape)}; got shape {tuple(values.shape)}"
        )
    new.tensor(values)  # check before the conversion, which would truncate a fraction in counting
    return values.to(new.dtype)


def _stand_for_reals(weights: Tensor, values: Tensor, old: Semiring, new: Semiring) -> None:
    """Raise if a weight cannot be converted: the new semiring lacks the real number (or it is imaginary)."""
    lost = values.detach().isnan()
    lost = lost.any(-1) if new.components else lost
    if bool(lost.any()):
        weight = old.numbers(weights.detach()[lost][0])
        raise SemiringError(
            f"weights are converted by the real numbers that they stand for; the {old.name} weight {weight!r} stands "
            f"for none that {new.name} has ({new.set_description}). "
            f"Pass a function that converts it: with_semiring({new.name!r}, f)."
        )


def _usual(old: Semiring, new: Semiring) -> Callable[[Tensor], Tensor]:
    """Return the conversion by the real numbers that weights stand for, or by their logarithms."""
    if new.support_only or old.support_only:
        return lambda w: new.ones(w.shape[0])
    if old.logarithmic or new.logarithmic:
        return lambda w: new.bind(new.from_log(old.to_log(old.unbind(w.to(torch.float64)), TENSORS), TENSORS))
    return lambda w: new.bind(new.from_real(old.to_real(old.unbind(w.to(torch.float64)), TENSORS), TENSORS))
