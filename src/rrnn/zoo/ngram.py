"""n-gram chains: n+1 states, cʲ = fʲ ⊙ cʲ' + cʲ⁻¹' ⊙ uʲ with c⁰ = 1; n = 1 is B, n = 2 is C."""

from rrnn.automata import Cell, one
from rrnn.errors import CellError
from rrnn.zoo.rrnn import gates, output


def ngram(n: int = 4, gate: bool = False) -> Cell:
    if not isinstance(n, int) or not 1 <= n <= 64:
        raise CellError(f"an n-gram chain has n from 1 to 64; got {n!r}")
    return chain(n, gate)


def chain(n: int, gate: bool = False) -> Cell:
    """Return the n-gram chain of any length n ≥ 1."""
    cell = Cell(f"ngram{n}").initial("q0").loop("q0", one)
    for j in range(1, n + 1):
        f, u = gates(str(j))
        cell = cell.arc(f"q{j - 1}", f"q{j}", u).loop(f"q{j}", f)
    return cell.final(f"q{n}").output(output(gate))
