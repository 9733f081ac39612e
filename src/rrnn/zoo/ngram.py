"""n-gram chains: n+1 states, cʲ = fʲ ⊙ cʲ' + cʲ⁻¹' ⊙ uʲ with c⁰ = 1; n = 1 is B, n = 2 is C."""

from rrnn.automata import Cell, linear, one, sigmoid, tanh
from rrnn.errors import CellError


def ngram(n: int = 4) -> Cell:
    if not 1 <= n <= 64:
        raise CellError(f"an n-gram chain has n from 1 to 64; got {n!r}")
    cell = Cell(f"ngram{n}").initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        f = sigmoid(linear(f"f{j}", bias=True))
        cell = cell.arc(f"q{j - 1}", f"q{j}", (1 - f) * linear(f"u{j}")).loop(f"q{j}", f)
    return cell.final(f"q{n}").output(tanh("score"))
