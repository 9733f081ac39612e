"""Patterns that are looked for everywhere in a text: SoPa (Schwartz et al. 2018) and the max-pooled CNN (Kim 2014)."""

from rrnn.automata import Cell, Expr, linear, one, parameter, relu, score, sigmoid, tanh
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS, get_semiring


def sopa(length: int = 4, semiring: str | None = None, self_loops: bool = True, epsilon: bool = True) -> Cell:
    """A soft pattern of `length` words: a chain q0 … qn, in which a loop inserts a word and an ε-arc drops one.

    A pattern may begin at each word: `start`, which is always on, opens q0 anew. It may end at each: whatever
    reaches qn also reaches `end`, which keeps it, so that the score is that of the text so far, ⊕ over all times.
    At most one ε-arc is taken before a word, and none after the last. The semiring is max-plus unless another one is
    given. Weights are sigmoids; where the semiring's are logarithms they are plain. Where its zero is infinite the
    output is tanh(score), since a text that is too short scores zero.

    SoPa itself mixes lengths: `layer([("SoPa6", 10), ("SoPa3", 20)], 300)`. (Its authors' code counts states, one
    more than words.)
    """
    ring = get_semiring(semiring or "max-plus")
    if not ring.has_gradient or ring.components:
        known = [name for name, each in SEMIRINGS.items() if each.has_gradient and not each.components]
        raise CellError(
            f"SoPa's semiring has a gradient and one component: {', '.join(known)}; got {ring.name!r}"
        )
    if not isinstance(length, int) or not 1 <= length <= 64:
        raise CellError(f"a pattern has a length from 1 to 64; got {length!r}")

    def weight(e: Expr) -> Expr:
        return e if ring.logarithmic else sigmoid(e)

    name = f"SoPa{length}" if semiring is None else f"SoPa{length}_{ring.name.replace('-', '_')}"
    cell = Cell(name, ring).initial("start").loop("start", one)
    cell = cell.initial("q0").arc("start", "q0", one)
    for j in range(length + 1):
        here, loop = f"q{j}", weight(linear(f"s{j}", bias=True))
        if j:
            last, main = f"q{j - 1}", weight(linear(f"u{j}", bias=True))
            cell = cell.arc(last, here, main)
            if j == length:
                cell = cell.arc(last, "end", main)
            if epsilon:
                cell = cell.epsilon(last, here, weight(parameter(f"e{j}")))
        if self_loops:
            cell = cell.loop(here, loop)
            if j == length:
                cell = cell.arc(here, "end", loop)
    cell = cell.loop("end", one).final("end").limit_epsilon(1, after_last=False)
    return cell.output(tanh(score) if ring.infinities else score)


def cnn(n: int = 3) -> Cell:
    """A filter over n words, max-pooled over time and rectified: max over t of W₁ vₜ₋ₙ₊₁ + … + Wₙ vₜ + b.

    A text of fewer than n words has no window: its score is −∞, its output 0.
    """
    if not isinstance(n, int) or not 1 <= n <= 64:
        raise CellError(f"a filter is 1 to 64 words wide; got {n!r}")
    cell = Cell(f"CNN{n}", "max-plus").initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        cell = cell.arc(f"q{j - 1}", f"q{j}", linear(f"w{j}", bias=j == n))
    return cell.loop(f"q{n}", one).final(f"q{n}").output(relu(score))
