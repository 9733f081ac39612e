"""Cells that count: each symbol permutes the states, so nothing is forgotten. Rings count modulo k, S₃ tracks a group.

Gates in [0, 1] make a state fade or stay, but never return, so B and F cannot count modulo anything. There are two ways
out. A cycle: the cells of this module. Or a loop in [−1, 1], whose sign alternates: `signed=True` of B, C, F, ngram,
SRU, QRNN and others (Grazzi et al. 2025), which counts modulo two.
"""

from collections.abc import Sequence
from itertools import permutations

from rrnn.automata import Cell, Expr, linear, one, parameter, sigmoid
from rrnn.errors import CellError

MAX_RING, MAX_POINTS = 16, 4


def ring(k: int = 3) -> Cell:
    """Build a counter modulo k: q0 … q(k−1) in a circle, and each symbol draws by how many states all of them move.

    qⁱ = w⁰ ⊙ qⁱ' + w¹ ⊙ qⁱ⁻¹' + … + wᵏ⁻¹ ⊙ qⁱ⁻ᵏ⁺¹' (indices modulo k). w⁰ = f = σ(W_f v + b_f) is the weight of
    staying. See `permuting` for the others.
    """
    _check("a ring", "k", k, MAX_RING)
    return permuting(f"ring{k}", [[(i + shift) % k for i in range(k)] for shift in range(k)])


def symmetric(n: int = 3) -> Cell:
    """Build a tracker of n points that each symbol permutes: S3 draws one of the six permutations of three points.

    A unit follows the point that starts in q0. Several units determine the product of the permutations: a unit may
    read each of them in other names of the points (its conjugate), which means to follow another point.
    """
    _check("a symmetric group", "n", n, MAX_POINTS)
    return permuting(f"S{n}", list(permutations(range(n))))


def permuting(name: str, moves: Sequence[Sequence[int]]) -> Cell:
    """Build a cell whose symbols draw one of the `moves`, permutations of its states (`move[i]`: where state i goes).

    The moves' weights are positive and sum to one, by breaking a stick: w⁰ = f, w¹ = (1 − f) ⊙ g¹,
    w² = (1 − f) ⊙ (1 − g¹) ⊙ g² and so on, where f and gⁱ are sigmoids and the last move takes what is left. So the
    states are positive and sum to one, too, at any length of the input. Paths start in q0. They end in q0 with weight
    one and in qⁱ with the learned weight pⁱ.
    """
    states = [f"q{i}" for i in range(len(moves[0]))]
    weights = _broken_stick(["f", *(f"g{i}" for i in range(1, len(moves) - 1))])
    cell = Cell(name).initial(states[0])
    for i, source in enumerate(states):
        for j, target in enumerate(states):
            drawn = [w for w, move in zip(weights, moves, strict=True) if move[i] == j]
            if drawn:
                cell = cell.arc(source, target, sum(drawn[1:], drawn[0]))
    cell = cell.final(states[0], one)
    for i, state in enumerate(states[1:], 1):
        cell = cell.final(state, parameter(f"p{i}"))
    return cell


def _broken_stick(gates: Sequence[str]) -> list[Expr]:
    """Return one weight more than there are gates: positive numbers whose sum is one."""
    weights: list[Expr] = []
    rest: Expr | None = None
    for i, name in enumerate(gates):
        gate = sigmoid(linear(name, bias=True))
        taken, left = (gate, 1 - gate) if rest is None else (rest * gate, rest * (1 - gate))
        weights.append(taken if rest is None else taken.named(f"w{i}"))
        rest = left if rest is None else left.named(f"r{i}")
    assert rest is not None
    return [*weights, rest.named(f"w{len(gates)}")]


def _check(what: str, name: str, value: object, most: int) -> None:
    """Raise unless `value`, the option `name`, is a whole number from 2 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value <= most:
        raise CellError(f"{what} takes {name} from 2 to {most}; got {value!r}")
