"""The scores of strings, as intervals: of units of layers, of machines, and of Python functions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from torch import Tensor

from rrnn.errors import AutomatonError, SemiringError, ShapeError
from rrnn.semirings import Semiring
from rrnn.theory.hankel import String
from rrnn.theory.intervals import Intervals, is_interval
from rrnn.theory.recurrences import Recurrence
from rrnn.wfsa import WFSA

BITS, MAX_BITS = 256, 8192
"""The precision at which a search begins, and up to which it is raised."""
_REPEATED = 16  # strings that a function is asked for twice, to see whether it is deterministic


class Scores:
    """The scores of strings on intervals: `at(exact)` returns the function that computes them."""

    def __init__(self, ring: Semiring, make: Callable[[Intervals], Callable[[String], Any]]) -> None:
        self.ring, self.make = ring, make

    def at(self, exact: Intervals) -> Callable[[String], Any]:
        """Return string → interval: the real number that its score stands for, or its strength, which adds up."""
        ring, score, known = self.ring, self.make(exact), {}
        read = ring.rank if ring.selective else ring.to_real
        if (
            not ring.commutative
            or ring.components
            or not (ring.ranks if ring.selective else ring.reads_reals)
        ):
            raise SemiringError(
                "the rank of a series is bounded over semirings whose weights stand for real numbers (real, log, "
                f"counting, …) or can be ranked (max-plus, min-plus, max-times, …); {ring.name} is neither"
            )

        def value(string: String) -> Any:
            if string not in known:
                known[string] = read(score(string), exact)
            return known[string]

        return value


def scored(unit: Recurrence) -> Callable[[String], Any]:
    """Return string → score, with the states of all prefixes kept."""
    states: dict[String, Any] = {(): unit.start()}

    def state(string: String) -> Any:
        if string not in states:
            states[string] = unit.step(state(string[:-1]), string[-1])
        return states[string]

    return lambda string: unit.value(state(string))


class MachineUnit(Recurrence):
    """A WFSA without ε-arcs, its weights as exact numbers. The state is the forward weight of each of its states."""

    def __init__(self, machine: WFSA, exact: Intervals) -> None:
        super().__init__(exact, exact.number)
        self.semiring, self.machine = machine.semiring, machine
        self.arcs: dict[Any, list[Any]] = {}
        for arc in machine.arcs:
            self.arcs.setdefault(arc.symbol, []).append((arc.source, arc.target, self._element(arc.weight)))

    def _element(self, weight: Any) -> Any:
        return self.semiring.element(self.number(x) for x in self.semiring.numbers_of(weight))

    def start(self) -> Any:
        return {q: self._element(w) for q, w in self.machine.initial.items()}

    def step(self, state: Any, symbol: Any) -> Any:
        new: dict[Any, Any] = {}
        for source, target, weight in self.arcs.get(symbol, ()):
            if source in state:
                step = self.semiring.times(state[source], weight, self.s)
                new[target] = self.semiring.plus(new[target], step, self.s) if target in new else step
        return new

    def value(self, state: Any) -> Any:
        total = self._element(self.semiring.zero)
        for q, w in self.machine.final.items():
            if q in state:
                total = self.semiring.plus(
                    total, self.semiring.times(state[q], self._element(w), self.s), self.s
                )
        return total


class FunctionScores:
    """A Python function of strings, called once per string and precision, with its values checked."""

    def __init__(self, function: Callable[..., Any], alphabet: Any, error: float | None) -> None:
        if alphabet is None or isinstance(alphabet, Tensor) or not list(alphabet):
            raise ShapeError("a function of strings needs an alphabet, such as 'ab' or ['the', 'cat']")
        self.function, self.alphabet, self.error = function, list(dict.fromkeys(alphabet)), error
        self.text = isinstance(alphabet, str)
        self.precise = "precision" in _parameters(function)
        self.known: dict[tuple[String, int], Any] = {}
        self.asked = 0
        self.floats = False
        """Whether any value so far was a float that is not infinite: rounded, perhaps."""

    def __call__(self, string: String, bits: int = 0) -> Any:
        """Return what the function returned, which is no NaN."""
        key = (string, bits if self.precise else 0)
        if key not in self.known:
            value = self._called(string, bits)
            if self.asked < _REPEATED:
                self.asked += 1
                again = self._called(string, bits)
                if _ends(again) != _ends(value):
                    raise AutomatonError(
                        f"the function is not deterministic: for {self._shown(string)} it returned {value!r} and then "
                        f"{again!r}. Fix its random seed, or put the model into evaluation mode."
                    )
            self.known[key] = value
            self.floats = self.floats or (isinstance(value, float) and math.isfinite(value))
        return self.known[key]

    def _called(self, string: String, bits: int) -> Any:
        given = "".join(string) if self.text else string
        value = self.function(given, precision=bits or BITS) if self.precise else self.function(given)
        value = value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
        if not isinstance(value, (int, float, Fraction, tuple)) and not is_interval(value):
            value = _as_float(value, self._shown(string))
        if isinstance(value, tuple) and len(value) != 2:
            raise AutomatonError(
                f"a tuple is an interval, (lower bound, upper bound); for {self._shown(string)} the function returned "
                f"{value!r}"
            )
        ends = _ends(value)
        if any(x != x for x in ends) or (isinstance(value, tuple) and ends[0] > ends[1]):
            raise AutomatonError(
                f"the function must return a number or an interval for every string; for {self._shown(string)} it "
                f"returned {value!r}"
            )
        return value

    def _shown(self, string: String) -> str:
        return repr("".join(string) if self.text else string) if string else "the empty string"

    def number(self, string: String) -> float:
        """Return the value as a float."""
        value = self(string)
        if isinstance(value, tuple) or is_interval(value):
            raise AutomatonError(
                f"the function must return intervals for all strings or for none; for {self._shown(string)} it "
                "returned one, for others floats. Return intervals, or floats whose error you state: error=…"
            )
        return float(value)

    def interval(self, string: String, exact: Intervals) -> Any:
        """Return the value as an interval."""
        value = self(string, exact.bits)
        if isinstance(value, tuple):
            return exact.between(*value)
        if is_interval(value):
            return exact.between(*(exact.context.make_mpf(end._mpi_) for end in (value.a, value.b)))
        if isinstance(value, float) and self.error:
            return exact.number(value) + exact.between(-self.error, self.error)
        return exact.number(value)


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a built-in function
        return ()


def _ends(value: Any) -> tuple[Any, Any]:
    if is_interval(value):
        return (
            tuple(end._mpi_[0] for end in (value.a, value.b)) if value.a == value.a else (math.nan, math.nan)
        )  # pyright: ignore[reportReturnType]
    return value if isinstance(value, tuple) else (value, value)


def _as_float(value: Any, string: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise AutomatonError(
            f"the function must return a number or an interval for every string; for {string} it returned a "
            f"{type(value).__name__}"
        ) from None
