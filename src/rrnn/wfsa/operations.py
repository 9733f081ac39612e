"""The algebra as methods of `WFSA`. Each is one function of `algebra` or `minimise`, where its rules are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA
    from rrnn.wfsa.minimise import Equivalence


class Operations:
    """Machines from machines; `WFSA` inherits these."""

    def union(self, other: WFSA) -> WFSA:
        """⟦x⟧ = this⟦x⟧ ⊕ other⟦x⟧."""
        from rrnn.wfsa.algebra import union

        return union(cast("WFSA", self), other)

    def concatenate(self, other: WFSA) -> WFSA:
        """⟦x⟧ = ⊕ over x = y·z of this⟦y⟧ ⊗ other⟦z⟧."""
        from rrnn.wfsa.algebra import concatenation

        return concatenation(cast("WFSA", self), other)

    def closure(self) -> WFSA:
        """Kleene star: any number of strings of this machine, one after the other."""
        from rrnn.wfsa.algebra import closure

        return closure(cast("WFSA", self))

    def intersect(self, other: WFSA) -> WFSA:
        """Hadamard product: ⟦x⟧ = this⟦x⟧ ⊗ other⟦x⟧."""
        from rrnn.wfsa.algebra import intersection

        return intersection(cast("WFSA", self), other)

    def reverse(self) -> WFSA:
        """⟦x₁…xₙ⟧ = this⟦xₙ…x₁⟧."""
        from rrnn.wfsa.algebra import reverse

        return reverse(cast("WFSA", self))

    def scale(self, factor: Any) -> WFSA:
        """⟦x⟧ = factor ⊗ this⟦x⟧, for a number or a 0-d tensor."""
        from rrnn.wfsa.algebra import scale

        return scale(cast("WFSA", self), factor)

    def remove_epsilon(self) -> WFSA:
        """The same scores without ε-arcs."""
        from rrnn.wfsa.algebra import remove_epsilon

        return remove_epsilon(cast("WFSA", self))

    def trim(self) -> WFSA:
        """Without the states that lie on no path from an initial to a final state."""
        from rrnn.wfsa.algebra import trim

        return trim(cast("WFSA", self))

    def minimise(self, tolerance: float = 1e-10) -> WFSA:
        """Return a machine with the same scores and fewest states: over real, up to a tolerance relative to the
        machine's own weights; over boolean, the minimal deterministic one; over counting, fewer states at least."""
        from rrnn.wfsa.minimise import minimise

        return minimise(cast("WFSA", self), tolerance)

    def equivalent(self, other: WFSA, tolerance: float = 1e-9) -> Equivalence:
        """Decide whether every string has the same score in both; if not, give a shortest counter-example. Exact over
        boolean and counting; over real, up to `tolerance` relative to the absolute weights of a string's paths."""
        from rrnn.wfsa.minimise import equivalent

        return equivalent(cast("WFSA", self), other, tolerance)
