"""Find a smaller machine with the same scores, and decide whether two machines have the same scores.

The method depends on the semiring, which names it in `minimised_by`. Each method has its own module:

| semiring | minimise | equivalent |
|---|---|---|
| real | `linear_algebra`: the fewest states, up to a tolerance | `linear_algebra`: up to a tolerance |
| counting | `exact_algebra`: the same scores, but not always the fewest states | `exact_algebra`: exact |
| boolean | `determinise`: the minimal deterministic machine | `determinise`: exact |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

from rrnn import moved
from rrnn.errors import SemiringError
from rrnn.semirings import Semiring
from rrnn.wfsa.algebra import Algebra, require_machine, require_one_semiring
from rrnn.wfsa.automaton import merged_alphabet
from rrnn.wfsa.minimise import determinise, exact_algebra, linear_algebra
from rrnn.wfsa.symbols import Symbol


@dataclass(frozen=True)
class Equivalence:
    """Tell whether two machines agree; if not, give a shortest string on which they differ, and by how much.

    It is truthy if they agree.
    """

    equal: bool
    counter_example: tuple[Symbol, ...] | None = None
    difference: float = 0.0
    """The first machine's score minus the second's: an exact integer over counting; over real a floating-point number,
    0 or NaN if scores underflow or overflow."""

    def __bool__(self) -> bool:
        return self.equal


class Minimisation(Algebra):
    """Methods of `WFSA` that minimise and compare machines."""

    def minimise(self, tolerance: float = 1e-10) -> Self:
        """Return a machine with the same scores and the fewest states (over counting: with fewer states).

        If all scores are 0̄, it has one state. ε-arcs are removed first, and the result's weights are detached.

        **Real.** The number of states is the rank of the machine. A direction of state space counts as absent if it
        is at most `tolerance` times the absolute numbers that are added to compute it, and a weight that is left by
        cancellation becomes no arc if it is at most `tolerance` times the numbers that cancel; both in a machine that
        is rescaled by powers of two: λ, ρ and the arcs of each symbol to a greatest weight near 1, and each state so
        that its greatest weights in and out match. Scores stay the same by the rule of `equivalent` with 10 ·
        `tolerance`: this is checked, and where it fails the same is tried with a smaller tolerance, down to none. The
        size is the least one if no direction is near `tolerance`. A direction below it is lost; one just above it may
        cost more states than the least number, but never more than the machine has on its paths. A machine that is
        minimal already (up to trimming) comes back with its own states and arcs; otherwise states are numbered, and
        weights may have either sign.

        **Counting.** The result has exactly the same scores, and natural weights. A state is removed if its future (or
        past) is a sum of others' with natural coefficients, which includes duplicates and multiples of another state.
        The states that remain keep their names. The least number of states over ℕ is not computed.

        **Boolean.** The result is the minimal deterministic machine, trimmed: a string for which an arc is missing is
        rejected. States are numbered in the order in which strings reach them, from 0, the initial one. Following
        more than 100,000 sets of states is an error.
        """
        method, a = _method(self.semiring, "minimisation"), self.detach()
        if method == "exact linear algebra":
            return exact_algebra.reduced(exact_algebra.without_epsilon(a))
        a = a.remove_epsilon().trim()
        return determinise.reduced(a) if method == "determinisation" else linear_algebra.reduced(a, tolerance)

    def equivalent(self, other: Self, tolerance: float = 1e-9) -> Equivalence:
        """Decide whether two machines give every string the same score.

        If not, the counter-example is the first one: of the shortest, the first in the order of the alphabet (the first
        machine's symbols, then those that only the second one has).

        **Counting and boolean.** The answer is exact. Over boolean, following more than 100,000 sets of states is an
        error.

        **Real.** Two scores of a string x count as different if they differ by more than the sum of

        - `tolerance` times the absolute weights of all paths for x in both machines, and
        - the absolute weights of those paths for x that use a *doubtful* weight, which may be what rounding left in
          place of 0. A weight is doubtful if it is at most 1e-5 · `tolerance` times the greatest weight of its symbol
          in its machine (an initial or final weight: times the greatest such weight), and if no path through it
          weighs more than `tolerance` times the machine's heaviest path. To compare paths of different lengths, the
          machine is balanced (each state rescaled so that its greatest weights in and out match), and the weights of
          each symbol, λ and ρ are divided by the greatest one.

        Both are relative to the machines' own weights, so their unit plays no role: scores may be 1e-200, or
        underflow. The answer is about machines without ε-arcs, whose removal rounds, with weights taken as exact
        numbers. A counter-example is then always true: the scores differ. Machines with exactly equal scores are
        always found equal, unless `tolerance` is near rounding itself (1e-16 times the number of states, squared).
        Machines that are found equal may differ within the rule. A string is continued, up to length n₁ + n₂ − 1, if
        its state vector is no combination of earlier strings' vectors up to 1e-3 · `tolerance` of its length with
        absolute weights (and up to doubtful weights); so a difference can be missed if weights that matter span more
        than about twelve orders of magnitude after balancing.
        """
        require_machine(other, "equivalence")
        method, _ = (_method(m.semiring, "equivalence") for m in (self, other))
        require_one_semiring(self, other, "equivalence")
        a, b = self.detach(), other.detach()
        if method == "exact linear algebra":
            found = exact_algebra.first_difference(
                exact_algebra.without_epsilon(a), exact_algebra.without_epsilon(b)
            )
            return Equivalence(True) if found is None else Equivalence(False, *found)
        a, b = (m.remove_epsilon().trim() for m in (a, b))
        find = (
            determinise.first_difference
            if method == "determinisation"
            else partial(_first_difference, tolerance=tolerance)
        )
        string = find(a, b)
        if string is None:
            return Equivalence(True)
        return Equivalence(False, string, _score(a, string) - _score(b, string))


def _method(semiring: Semiring, what: str) -> str:
    """Return the method by which machines over a semiring are minimised and compared, or raise if there is none."""
    if semiring.minimised_by is None:
        raise SemiringError(
            f"{what} needs a ⊕ with negation (as in real, or in counting as a part of ℚ), or a semiring of "
            f"just two weights (boolean); {semiring.name} is neither. Convert the machine: with_semiring('real') "
            "to sum over paths instead, or with_semiring('boolean') to keep only which strings have a path."
        )
    return semiring.minimised_by


def _first_difference(a: Algebra, b: Algebra, tolerance: float) -> tuple[Symbol, ...] | None:
    """Return the first string whose scores over the reals differ, or None."""
    alphabet = tuple(merged_alphabet(a, b))
    string = linear_algebra.first_difference(
        linear_algebra.to_dense(a, alphabet), linear_algebra.to_dense(b, alphabet), tolerance
    )
    return None if string is None else tuple(alphabet[s] for s in string)


def _score(a: Algebra, string: tuple[Symbol, ...]) -> float:
    """Return the score of a string, which is 0̄ if it has a symbol that the machine does not know."""
    return float(a.score(string)) if set(string) <= set(a.alphabet) else float(a.semiring.zero)


__getattr__ = moved.attributes(__name__)
