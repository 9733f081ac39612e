"""n-gram RCNN (Lei et al. 2015, 2016), with a decay λ that no hidden state enters.

Multiplicative: cʲ = λ ⊙ cʲ' + (1 − λ) ⊙ cʲ⁻¹' ⊙ W_j v with c⁰ = 1: the chain of n + 1 states.
Additive:       cʲ = λ ⊙ cʲ' + (1 − λ) ⊙ (cʲ⁻¹' + W_j v) with c⁰ = 0, which is rational too: each term of the sum is
an arc, qⱼ₋₁ → qⱼ weighted 1 − λ and q₀ → qⱼ weighted (1 − λ) ⊙ W_j v.

h = tanh(cⁿ + b). λ = σ(W_λ v + b_λ), or with `decay="constant"` a learned number per unit, σ(λ).
"""

from rrnn.automata import Cell, linear, one, parameter, score, sigmoid, tanh
from rrnn.errors import CellError


def rcnn(n: int = 2, decay: str = "input", additive: bool = False) -> Cell:
    if not isinstance(n, int) or not 1 <= n <= 64:
        raise CellError(f"an n-gram RCNN has n from 1 to 64; got {n!r}")
    if decay not in ("input", "constant"):
        raise CellError(f"the decay of an RCNN is 'input' or 'constant'; got {decay!r}")
    decays = sigmoid(linear("lambda", bias=True) if decay == "input" else parameter("lambda"))
    cell = Cell(f"RCNN{n}").initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        last, here, u = f"q{j - 1}", f"q{j}", (1 - decays) * linear(f"u{j}")
        cell = cell.arc("q0" if additive else last, here, u).loop(here, decays)
        if additive and j > 1:
            cell = cell.arc(last, here, 1 - decays)
    return cell.final(f"q{n}").output(tanh(score + parameter("b")))
