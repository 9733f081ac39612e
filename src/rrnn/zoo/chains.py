"""Chains that look for patterns of several words: SoPa (Schwartz et al. 2018), the max-pooled CNN (Kim 2014), RCNN."""

from rrnn.automata import Cell, Expr, linear, one, parameter, relu, score, sigmoid, tanh
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS, get_semiring
from rrnn.zoo.rrnn import check_length


def sopa(length: int = 4, semiring: str | None = None, self_loops: bool = True, epsilon: bool = True) -> Cell:
    """Build a soft pattern of `length` words: a chain q0 … qn, in which a loop inserts a word and an ε-arc drops one.

    A pattern may begin at each word: `start`, which is always on, opens q0 again and again. It may end at each word:
    whatever reaches qn also reaches `end`, which keeps it, so the score is that of the text so far, ⊕ over all ends.
    At most one ε-arc is taken before a word, and none after the last. The default semiring is max-plus. Weights are
    sigmoids; semirings of logarithms take the plain projections. Where the semiring's zero is infinite, the output is
    tanh(score), since a text that is too short scores zero.

    SoPa itself mixes lengths: `layer([("SoPa6", 10), ("SoPa3", 20)], 300)`. (Its authors' code counts states, of which
    there is one more than words.)
    """
    ring = get_semiring(semiring or "max-plus")
    if not ring.has_gradient or ring.components:
        known = [name for name, each in SEMIRINGS.items() if each.has_gradient and not each.components]
        raise CellError(
            f"SoPa's semiring must have a gradient and one component: {', '.join(known)}; got {ring.name!r}"
        )
    check_length("a pattern", "length", length)

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
    """Build a rectified filter over n words, max-pooled over time: max over t of W₁ vₜ₋ₙ₊₁ + … + Wₙ vₜ + b.

    A text of fewer than n words has no window: its score is −∞ and its output 0.
    """
    check_length("a CNN filter", "n", n)
    cell = Cell(f"CNN{n}", "max-plus").initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        cell = cell.arc(f"q{j - 1}", f"q{j}", linear(f"w{j}", bias=j == n))
    return cell.loop(f"q{n}", one).final(f"q{n}").output(relu(score))


def rcnn(n: int = 2, decay: str = "input", additive: bool = False) -> Cell:
    """Build the n-gram RCNN (Lei et al. 2015, 2016) whose decay λ does not depend on the hidden state.

    Multiplicative: cʲ = λ ⊙ cʲ' + (1 − λ) ⊙ cʲ⁻¹' ⊙ W_j v with c⁰ = 1: the chain of n + 1 states.
    Additive:       cʲ = λ ⊙ cʲ' + (1 − λ) ⊙ (cʲ⁻¹' + W_j v) with c⁰ = 0. Each term of the sum is an arc: qⱼ₋₁ → qⱼ
    weighted 1 − λ and q₀ → qⱼ weighted (1 − λ) ⊙ W_j v.

    h = tanh(cⁿ + b). λ = σ(W_λ v + b_λ), or with `decay="constant"` a learned number per unit, σ(λ).
    """
    check_length("an n-gram RCNN", "n", n)
    if decay not in ("input", "constant"):
        raise CellError(f"the decay of an RCNN must be 'input' or 'constant'; got {decay!r}")
    decays = sigmoid(linear("lambda", bias=True) if decay == "input" else parameter("lambda"))
    cell = Cell(f"RCNN{n}").initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        last, here, u = f"q{j - 1}", f"q{j}", (1 - decays) * linear(f"u{j}")
        cell = cell.arc("q0" if additive else last, here, u).loop(here, decays)
        if additive and j > 1:
            cell = cell.arc(last, here, 1 - decays)
    return cell.final(f"q{n}").output(tanh(score + parameter("b")))
