"""A semiring is data: two operations, written once over named scalar operations, and all that other code asks about it.

    COMPLEX = Semiring(
        "complex", components=("re", "im"), zero=(0.0, 0.0), one=(1.0, 0.0),
        plus=lambda s, a, b: (a[0] + b[0], a[1] + b[1]),
        times=lambda s, a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
        …)

`s` gives the scalar operations that have no operator, `s.max`, `s.logaddexp`, `s.exp` (`rrnn.arithmetic`), so one
definition runs on Python numbers, on torch tensors and in compiled programs. An element is a number, or a tuple of as
many as the semiring has components; a tensor of elements then has a last dimension for them.

Two rules hold on tensors: an infinite zero gets no gradient, and of several tied maxima the first one gets it all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from rrnn.arithmetic import FLOATS, TEXTS, Arithmetic, Range, TextValue
from rrnn.arithmetic.ranges import ALL
from rrnn.errors import SemiringError
from rrnn.semirings.epsilon_closure import Converges, never
from rrnn.semirings.tensor_products import GENERAL, Products

Element = Any
"""A number, or a tuple of numbers: one for each component."""


class Definition:
    """What a semiring is, and its elements as Python numbers or over any arithmetic."""

    def __init__(
        self,
        name: str,
        *,
        zero: Element,
        one: Element,
        plus: Callable[[Arithmetic, Element, Element], Element],
        times: Callable[[Arithmetic, Element, Element], Element],
        star: Callable[[Arithmetic, Element], Element] | None = None,
        star_exists: Callable[[Arithmetic, Element], Any] | None = None,
        star_domain: str = "a = 0̄, for it is defined without a star",
        converges: Converges = never,
        components: tuple[str, ...] = (),
        values: Range | tuple[Range, ...] = ALL,
        set_description: str = "ℝ (finite numbers)",
        weights_fix: str = "",
        plus_symbol: str = "⊕",
        times_symbol: str = "⊗",
        plus_legend: str | None = None,
        legend: bool = True,
        infix: Mapping[str, str] | None = None,
        commutative: bool = True,
        selective: bool = False,
        one_absorbs: bool = False,
        has_gradient: bool = False,
        maximum: bool = True,
        strength: Callable[[Arithmetic, Element], Any] | None = None,
        strength_adds: bool = False,
        magnitude: Callable[[Arithmetic, Element], Any] | None = None,
        to_real: Callable[[Arithmetic, Element], Any] | None = None,
        from_real: Callable[[Arithmetic, Any], Element] | None = None,
        to_log: Callable[[Arithmetic, Element], Any] | None = None,
        from_log: Callable[[Arithmetic, Any], Element] | None = None,
        support_only: bool = False,
        costs: bool = False,
        scales: bool = False,
        integers: bool = False,
        minimised_by: str | None = None,
        constructors: Mapping[str, tuple[tuple[str, ...], Callable[..., Element]]] | None = None,
        products: Products = GENERAL,
    ) -> None:
        """Define a semiring. All that follows `times` is optional: what is left out, the semiring cannot do.

        - `star(s, a)` is a* = 1̄ ⊕ a ⊕ a⊗a ⊕ …, where `star_exists(s, a)` is 1; `star_domain` says where in words.
          Without `star`, only 0̄* = 1̄ exists. `converges` proves that an ε-closure exists from ranges of weights
          (`rrnn.semirings.epsilon_closure`).
        - `components` are the names of an element's numbers, if it has several. `values` is the range of each.
        - `set_description` names the set in messages; `weights_fix` says how to keep weights inside.
        - `plus_symbol`, `times_symbol` print ⊕ and ⊗; `plus_legend` says in a picture what ⊕ does (without it and a
          symbol, its formula does); without `legend` pictures say nothing of the semiring; `infix` prints ops as signs
          between their arguments.
        - `commutative`: a ⊗ b = b ⊗ a. Where that does not hold, layers and scores multiply in the order of the path,
          and there are no backward tables.
        - `selective`: a ⊕ b is a or b, so there is a best path; by `maximum`, or else by minimum.
        - `one_absorbs`: 1̄ ⊕ a = 1̄.
        - `strength(s, a)` ranks weights, greatest first; with `strength_adds`, that of a path is the sum of its
          arcs', else their product.
        - `magnitude(s, a)`, a real number, is given where paths can cancel: the size that they have before they do.
        - `to_real` and `from_real`, or `to_log` and `from_log`, say which real number, or logarithm of one, a weight
          stands for: it is converted and written to files by these. With `support_only` any weight but 0̄ becomes 1̄.
        - `costs`: files may store a weight as its negative logarithm.
        - `scales`: multiplying all components of a weight by a number multiplies scores by it, so that scores can be
          kept in the range of floats by powers of two.
        - `integers`: elements are whole numbers, exact in Python and int64 in tensors.
        - `minimised_by`: "linear algebra", "exact linear algebra" or "determinisation".
        - `constructors`: name → (names of its arguments, function of an arithmetic and these), which weights may call.
        - `products`: how tensors of elements are multiplied and summed fast.
        """
        self.name, self.zero, self.one, self.components = name, zero, one, tuple(components)
        self._plus, self._times, self._star, self._star_exists = plus, times, star, star_exists
        self.star_domain, self.converges = star_domain, converges
        self.values = (values,) * max(1, len(components)) if isinstance(values, Range) else tuple(values)
        self.set_description, self.weights_fix = set_description, weights_fix
        self.plus_symbol, self.times_symbol = plus_symbol, times_symbol
        self.plus_legend, self.legend, self.infix = plus_legend or plus_symbol, legend, dict(infix or {})
        self.commutative, self.selective, self.one_absorbs = commutative, selective, one_absorbs
        self.has_gradient, self.maximum = has_gradient, maximum
        self._strength, self.strength_adds, self._magnitude = strength, strength_adds, magnitude
        self._to_real, self._from_real, self._to_log, self._from_log = to_real, from_real, to_log, from_log
        self.support_only, self.costs, self.scales = support_only, costs, scales
        self.integers, self.minimised_by = integers, minimised_by
        self.constructors = dict(constructors or {})
        self.products = products
        for what, element in (("zero", zero), ("one", one)):
            if (len(element) if isinstance(element, tuple) else 0) != len(components):
                raise SemiringError(
                    f"the {what} of semiring {name!r} must have {len(components) or 1} component(s); got {element!r}"
                )

    # ---- what follows from the definition ------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of components of an element: 1 where an element is a number."""
        return len(self.components) or 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor of one element: () for a number, (size,) for several components."""
        return (self.size,) if self.components else ()

    @property
    def cancels(self) -> bool:
        """Whether the weights of two paths can cancel."""
        return self._magnitude is not None

    @property
    def ranks(self) -> bool:
        """Whether paths can be ranked."""
        return self._strength is not None

    @property
    def logarithmic(self) -> bool:
        """Whether weights are logarithms (or their negatives, costs), and nothing else."""
        return self._to_log is not None and not self.components

    @property
    def adds(self) -> bool:
        """Whether a score is the sum of its paths' weights as numbers, so that contributions of paths add up."""
        return self._to_real is not None and not self.selective and not self.components

    @property
    def adds_probabilities(self) -> bool:
        """Whether ⊕ adds what weights stand for, so that weights can be probabilities."""
        return (self.adds or self.logarithmic) and not self.selective

    @cached_property
    def infinities(self) -> frozenset[float]:
        """The infinities among the components of 0̄."""
        return frozenset(z for z in self.numbers_of(self.zero) if math.isinf(z))

    @cached_property
    def definition(self) -> str:
        """⊕, ⊗, 0̄ and 1̄ written as a text: two semirings of one name are the same if these texts are."""
        names = [f"{letter}.{c}" if c else letter for letter in "ab" for c in self.components or ("",)]
        texts = [TextValue(name) for name in names]
        a, b = self.element(texts[: self.size]), self.element(texts[self.size :])
        results = [self._plus(TEXTS, a, b), self._times(TEXTS, a, b)]
        return "; ".join(
            f"{word} {', '.join(str(x) for x in self.numbers_of(value))}"
            for word, value in zip(
                ("plus", "times", "zero", "one"), [*results, self.zero, self.one], strict=True
            )
        )

    def numbers_of(self, element: Element) -> tuple[Any, ...]:
        """Return the components of an element, one for a plain number."""
        return element if self.components else (element,)

    def element(self, numbers: Iterable[Any]) -> Element:
        """Return the element with these components."""
        values = tuple(numbers)
        assert len(values) == self.size, (self.name, values)
        return values if self.components else values[0]

    # ---- elements over any arithmetic ----------------------------------------------------------------------

    def plus(self, a: Element, b: Element, s: Arithmetic = FLOATS) -> Element:
        """Return a ⊕ b."""
        return self._plus(s, a, b)

    def times(self, a: Element, b: Element, s: Arithmetic = FLOATS) -> Element:
        """Return a ⊗ b."""
        return self._times(s, a, b)

    def star_of(self, a: Element, s: Arithmetic) -> Element:
        """Return a*, trusting that it exists."""
        assert self._star is not None, self.name
        return self._star(s, a)

    def gate(self, x: Any, s: Arithmetic) -> Element:
        """Return the weight of a gate that x opens: σ(x) over the reals, log σ(x) where weights are logarithms."""
        return self.from_log(s.log_sigmoid(x), s) if self.logarithmic else self.from_real(s.sigmoid(x), s)

    def from_real(self, x: Any, s: Arithmetic = FLOATS) -> Element:
        """Return the element that stands for a real number."""
        if self._from_real is not None:
            return self._from_real(s, x)
        if self._from_log is not None:
            return self._from_log(s, s.log(x))
        raise self._no_reading()

    def to_real(self, a: Element, s: Arithmetic = FLOATS) -> Any:
        """Return the real number that an element stands for; NaN where there is none."""
        if self._to_real is not None:
            return self._to_real(s, a)
        return s.exp(self.to_log(a, s))

    def from_log(self, x: Any, s: Arithmetic = FLOATS) -> Element:
        """Return the element that stands for eˣ."""
        return self._from_log(s, x) if self._from_log is not None else self.from_real(s.exp(x), s)

    def to_log(self, a: Element, s: Arithmetic = FLOATS) -> Any:
        """Return the logarithm of the real number that an element stands for; NaN for a negative one."""
        if self._to_log is not None:
            return self._to_log(s, a)
        if self._to_real is None:
            raise self._no_reading()
        return s.log(self._to_real(s, a))

    @property
    def reads_reals(self) -> bool:
        """Whether weights stand for real numbers, so that they can be converted."""
        return self._to_real is not None or self._to_log is not None

    def _no_reading(self) -> SemiringError:
        return SemiringError(
            f"weights over {self.name} do not stand for real numbers, so they cannot be converted automatically: "
            "pass a function of weights, with_semiring(name, f)."
        )

    def magnitude(self, a: Element, s: Arithmetic = FLOATS) -> Any:
        """Return the size of a weight, a real number, over a semiring in which paths can cancel."""
        assert self._magnitude is not None, self.name
        return self._magnitude(s, a)

    def strength(self, a: Element, s: Arithmetic = FLOATS) -> Any:
        """Return how strong a weight is: the greatest is the best."""
        if self._strength is None:
            raise SemiringError(
                f"paths over {self.name} have no order: there is no best one. Convert the weights to a semiring that "
                "ranks them, such as max-plus."
            )
        return self._strength(s, a)

    def rank(self, a: Element, s: Arithmetic = FLOATS) -> Any:
        """Return a strength that adds up along a path: log₂ of it (exact for powers of two) where it multiplies."""
        strength = self.strength(a, s)
        return strength if self.strength_adds else s.log(strength) * (1.0 / math.log(2.0))

    # ---- Python numbers ------------------------------------------------------------------------------------

    def star(self, a: Element) -> Element:
        """Return a* = 1̄ ⊕ a ⊕ a⊗a ⊕ …; raise `SemiringError` where the sum does not exist."""
        if self._star is None and a == self.zero:
            return self.one
        if self._star is None or self._star_exists is None or not self._star_exists(FLOATS, a):
            raise SemiringError(
                f"{self.name} star exists only for {self.star_domain}; got {a!r}. "
                "Make the weight of the cycle smaller, or cap the number of consecutive ε-arcs."
            )
        return self._star(FLOATS, a)

    def sum(self, values: Iterable[Element]) -> Element:
        """Return the ⊕ of all, from left to right."""
        total = self.zero
        for value in values:
            total = self.plus(total, value)
        return total

    def product(self, values: Iterable[Element]) -> Element:
        """Return the ⊗ of all, from left to right."""
        total = self.one
        for value in values:
            total = self.times(total, value)
        return total

    def contains(self, a: Element) -> bool:
        """Return whether this is an element of the semiring's set. (NaN never is.)"""
        return all(r.contains(x) for r, x in zip(self.values, self.numbers_of(a), strict=True))

    def check(self, a: Any, what: str = "weight") -> Element:
        """Return the value as an element of this semiring, or raise an error that says why it is none."""
        try:
            value = self._convert(a)
        except (TypeError, ValueError, OverflowError):
            form = f"{len(self.components)} numbers {self.components}" if self.components else "a number"
            raise SemiringError(
                f"a {what} must be {form} in {self.set_description} ({self.name}); got {a!r}"
            ) from None
        if not self.contains(value):
            raise self.outside(a, what)
        return value

    def outside(self, a: Any, what: str = "weight") -> SemiringError:
        """Return the error about a value that is not in the set."""
        fix = (
            "Find what produced it: 0/0, ∞ − ∞, the logarithm of a negative number."
            if any(x != x for x in (a if isinstance(a, (tuple, list)) else (a,)))
            else "Use a number of that set, or a semiring that has this one."
        )
        return SemiringError(
            f"{what} {a!r} is outside the {self.name} semiring's set {self.set_description}. "
            f"Its zero is {self.zero!r} and its one {self.one!r}. {fix}"
        )

    def _convert(self, a: Any) -> Element:
        if self.components:
            if isinstance(a, str):
                raise TypeError("a text")
            parts: Any = a
            if isinstance(a, complex) and self.components == ("re", "im"):
                parts = (a.real, a.imag)
            if isinstance(a, (int, float)) and self._from_real is not None:
                parts = self._from_real(FLOATS, float(a))
            numbers = tuple(float(x) for x in parts)
            if len(numbers) != len(self.components):
                raise ValueError("another number of components")
            return numbers
        if self.integers:
            if int(a) != a:
                raise ValueError("not an integer")
            return int(a)
        return float(a)

    def close(self, a: Element, b: Element, rel: float = 1e-9) -> bool:
        """Return whether two elements are equal up to rounding (infinities must agree)."""
        if self.integers:
            return a == b
        return all(
            x == y or (math.isfinite(x) and math.isfinite(y) and abs(x - y) <= rel * max(abs(x), abs(y), 1.0))
            for x, y in zip(self.numbers_of(a), self.numbers_of(b), strict=True)
        )

    def __repr__(self) -> str:
        return f"<semiring {self.name}>"

    def __reduce__(self) -> Any:  # instances are singletons: pickle and copy by name
        from rrnn.semirings.registry import get_semiring

        return get_semiring, (self.name,)
