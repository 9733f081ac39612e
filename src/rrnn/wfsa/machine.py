"""`WFSA`: a concrete weighted finite-state automaton, the paper's ⟨Σ, Q, τ, λ, ρ⟩ with numbers on its arcs.

The class holds the machine and checks it; what one does with a machine lives in the files beside this one,
and the methods here only call them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa import checks
from rrnn.wfsa.operations import Operations
from rrnn.wfsa.symbols import EPSILON, Arc

if TYPE_CHECKING:
    from rrnn.wfsa.paths import Path

State = Hashable
Symbol = Hashable
T = TypeVar("T")


class WFSA(Operations):
    """A weighted finite-state automaton over a finite alphabet.

    `arcs` are `(source, symbol, target, weight)`; `initial` and `final` map states to weights. Weights are
    numbers or 0-d tensors, whose graph is kept. Over a semiring of several components (complex: re, im) a weight is a
    tuple of numbers or a tensor of them; it may also be given as a Python complex number, or as a number that stands
    for a real one. Weights always come back as tuples. States that are not listed come in order of first appearance
    (in `initial`, then `arcs`, then `final`). The same `(source, symbol, target)` twice is an error, unless
    `merge="plus"`, which ⊕-es the weights. A machine in which no final state can be reached scores all 0̄:
    that is an error too, unless `allow_empty=True` says that it is meant.

    A string is a `str`, a tuple, or a 1-d array or tensor of symbols; a *list is always a batch* of strings.
    """

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
    ) -> WFSA:
        """The same from index tensors (A,) (symbol −1 is ε), `weight` (A,), `initial` (Q,) and `final` (Q,).

        Over a semiring of C components weights are (A, C) and (Q, C); complex tensors may be (A,) and (Q,).
        Weight tensors of the semiring's dtype are kept as they are, others converted (and brought to the CPU,
        where exact work is done): gradients reach them either way.
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
                "a machine has at least one state; got none. Pass states=, arcs= or initial=."
            )
        self.semiring, self.alphabet, self.states = ring, symbols, names
        self.arc_source, self.arc_symbol, self.arc_target = index
        self.arc_weight, self.initial_weight, self.final_weight = weight, initial, final
        self.state_index: dict[State, int] = {q: i for i, q in enumerate(names)}
        self.symbol_index: dict[Symbol, int] = {a: i for i, a in enumerate(symbols)}
        self._cache: dict[str, tuple[Any, Any]] = {}
        if not allow_empty:
            checks.not_empty(self)

    # ---- looking at it -------------------------------------------------------------------------------------

    @property
    def num_states(self) -> int:
        return len(self.states)

    @property
    def num_arcs(self) -> int:
        return self.arc_weight.shape[0]

    @property
    def requires_grad(self) -> bool:
        """Does any weight ask for a gradient?"""
        return any(w.requires_grad for w in (self.arc_weight, self.initial_weight, self.final_weight))

    @property
    def has_epsilon(self) -> bool:
        return bool((self.arc_symbol < 0).any())

    @property
    def arcs(self) -> list[Arc]:
        """The arcs with the names of their states and symbols, and Python numbers as weights."""
        symbols = (*self.alphabet, EPSILON)  # index −1 is ε
        columns = zip(
            self.arc_source.tolist(),
            self.arc_symbol.tolist(),
            self.arc_target.tolist(),
            self.semiring.numbers(self.arc_weight),
            strict=True,
        )
        return [Arc(self.states[q], symbols[a], self.states[p], w) for q, a, p, w in columns]

    @property
    def initial(self) -> dict[State, Any]:
        """State → initial weight, where it is not 0̄."""
        return self._weights_of(self.initial_weight)

    @property
    def final(self) -> dict[State, Any]:
        """State → final weight, where it is not 0̄."""
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

    def same_as(self, other: WFSA) -> bool:
        """Exactly the same machine: semiring, states, alphabet, arcs (in order) and weights, bit for bit."""
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

    # ---- changing its weights ------------------------------------------------------------------------------

    def map_weights(self, f: Callable[[Tensor], Tensor]) -> WFSA:
        """A machine of the same shape with `f` (elementwise, on tensors) on every weight that is not 0̄.

        With C components, `f` gets and returns tensors (n, C).
        """
        return self.with_semiring(self.semiring, f)

    def with_semiring(self, semiring: str | Semiring, f: Callable[[Tensor], Tensor] | None = None) -> WFSA:
        """The same machine over another semiring: 0̄ becomes 0̄, every other weight w becomes `f(w)`.

        Without `f` the usual reading: probabilities (real, max-times), log-probabilities (log, max-plus) and
        costs (min-plus) turn into each other by log, exp and sign; boolean keeps only which weights are
        not 0̄, and a boolean true becomes 1̄. Real numbers become complex ones, signed-log weights and pairs of the
        expectation semiring (whose second number is then 0), and come back from these; a complex weight must be real.
        """
        from rrnn.wfsa.convert import convert

        ring = get_semiring(semiring)
        return self._replace(ring, *(convert(w, self.semiring, ring, f) for w in self.weights))

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """(arc_weight, initial_weight, final_weight)."""
        return self.arc_weight, self.initial_weight, self.final_weight

    def detach(self) -> WFSA:
        """The same machine with weights outside any graph."""
        return self._replace(self.semiring, *(w.detach() for w in self.weights))

    def _replace(self, ring: Semiring, weight: Tensor, initial: Tensor, final: Tensor) -> WFSA:
        return WFSA.from_tensors(
            ring,
            self.alphabet,
            self.states,
            self.arc_source,
            self.arc_symbol,
            self.arc_target,
            weight,
            initial,
            final,
            allow_empty=True,
        )

    def cached(self, key: str, build: Callable[[], T]) -> T:
        """`build()`, kept until a weight changes in place. Not kept while weights ask for gradients, as a graph
        serves one backward pass only, nor in inference mode, where torch does not tell of changes."""
        if self.requires_grad or any(w.is_inference() for w in self.weights):
            return build()
        version = tuple(w._version for w in self.weights)
        if key not in self._cache or self._cache[key][0] != version:
            self._cache[key] = (version, build())
        return self._cache[key][1]

    # ---- scoring -------------------------------------------------------------------------------------------

    def score(self, strings: Any) -> Tensor:
        """⟦x⟧ by Forward: a 0-d tensor for a string, (N,) for a list of N strings of any lengths.

        With C components, (C,) and (N, C).
        """
        from rrnn.wfsa.scoring import score

        return score(self, strings)

    def prefix_scores(self, strings: Any) -> Any:
        """The score of every prefix, ⟦x_:0⟧ … ⟦x_:n⟧, (n+1,): what a recurrence computes. A list of strings
        gives a list of such tensors."""
        from rrnn.wfsa.scoring import prefix_scores

        return prefix_scores(self, strings)

    def score_by_paths(self, string: Any, max_epsilon: int | None = None) -> Any:
        """⟦x⟧ straight from its definition, path by path, as a Python number: slow, the oracle of the tests.

        `max_epsilon` caps the number of consecutive ε-arcs; needed where ε-arcs form a cycle.
        """
        from rrnn.wfsa.paths import score_by_paths

        return score_by_paths(self, string, max_epsilon)

    def forward(self, string: Any, *, closed: bool = True) -> Tensor:
        """Ω, (n+1, Q): row i holds the ⊕ over all path prefixes that derive x_1…x_i and end in q.

        `closed=False` leaves out the ε-arcs after x_i: the paths that land in q *just* after consuming x_i.
        """
        from rrnn.wfsa.tables import forward

        return forward(self, string, closed=closed)

    def backward(self, string: Any, *, closed: bool = True) -> Tensor:
        """(n+1, Q): row i holds the ⊕ over all path suffixes from q that derive x_{i+1}…x_n, final weight
        included. `closed=False` leaves out the ε-arcs before x_{i+1}. For every i,
        ⟦x⟧ = ⊕_q forward(closed=True)[i, q] ⊗ backward(closed=False)[i, q], and so with the flags swapped."""
        from rrnn.wfsa.tables import backward

        return backward(self, string, closed=closed)

    def arc_marginals(self, string: Any, *, normalize: bool = False) -> Tensor:
        """(n+1, A): the ⊕ over all paths that take arc a when i symbols are consumed. See `marginals`."""
        from rrnn.wfsa.marginals import arc_marginals

        return arc_marginals(self, string, normalize=normalize)

    def best_path(self, string: Any) -> Path | None:
        """The path of greatest weight that derives the string (None when there is none). See `k_best`."""
        from rrnn.wfsa.kbest import k_best

        return next(iter(k_best(self, string, 1)), None)

    def k_best(self, string: Any, k: int) -> list[Path]:
        """The k best distinct paths that derive the string, best first; fewer where there are fewer.

        Best is what ⊕ picks (least cost in min-plus); over real, log and counting, the greatest weight; over
        signed reals, the greatest magnitude, the sign being kept. Of tied paths the first wins: the one whose
        final state, then (from the end) whose arcs' sources come first in `states`.
        """
        from rrnn.wfsa.kbest import k_best

        return k_best(self, string, k)

    def total_weight(self) -> Tensor:
        """⊕ of the scores of all strings, or an error where that sum does not exist."""
        from rrnn.wfsa.total import total_weight

        return total_weight(self)

    def expected(self, feature: Mapping[Any, Any] | Callable[[Arc], Any], string: Any = None) -> Tensor:
        """Expected value of an additive feature over the paths that derive a string, Σ w(π) f(π) / Σ w(π).

        `feature` maps arcs (`Arc`, or (source, symbol, target); arcs left out count 0) to numbers, or is a function of
        an `Arc`; f(π) is the sum over the arcs of π. Initial and final weights have no feature of their own. Without a
        string, over all paths of all strings; a list of strings gives a tensor of values. Needs weights that are
        proportional to probabilities: real with no negative weight, log, counting.
        """
        from rrnn.wfsa.expectation import expected

        return expected(self, feature, string)

    def entropy(self, string: Any = None) -> Tensor:
        """Entropy in nats of the paths that derive a string, drawn in proportion to their weights.

        Without a string, of all paths of all strings; a list of strings gives a tensor. Weights as in `expected`.
        """
        from rrnn.wfsa.expectation import entropy

        return entropy(self, string)

    def sample(self, n: int, generator: torch.Generator | None = None) -> list[tuple[Symbol, ...]]:
        """n strings drawn in proportion to their scores (real with no negative weight, log, counting)."""
        from rrnn.wfsa.sampling import sample

        return sample(self, n, generator)

    def sample_paths(self, n: int, generator: torch.Generator | None = None) -> list[Path]:
        """n paths drawn in proportion to their weights; the strings they derive are those `sample` draws."""
        from rrnn.wfsa.sampling import sample_paths

        return sample_paths(self, n, generator)

    def encode(self, string: Sequence[Symbol] | Any) -> list[int]:
        """A string as indices into `alphabet`; an error names the first unknown symbol."""
        from rrnn.wfsa.strings import encode

        return encode(self, string)


__all__ = ["EPSILON", "WFSA", "Arc", "AutomatonError", "State", "Symbol"]
