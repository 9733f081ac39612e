"""Draw cells that can be lowered and run, over any semiring, and numbers to run them with (hypothesis strategies).

@given(st.data())
def test(data):
    cell = data.draw(cells("max-plus"))
    numbers = data.draw(numbers_for(cell))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hypothesis import assume
from hypothesis import strategies as st

from rrnn.automata import (
    Cell,
    Expr,
    complex,
    construct,
    cos,
    exp,
    input,
    linear,
    log_sigmoid,
    one,
    pair,
    parameter,
    polar,
    relu,
    score,
    sigmoid,
    softplus,
    sqrt,
    step,
    tanh,
    zero,
)
from rrnn.automata import expressions as ex
from rrnn.errors import CellError
from rrnn.ir import lower
from rrnn.semirings import SEMIRINGS

DIFFERENTIABLE = [name for name, ring in SEMIRINGS.items() if ring.has_gradient]
SYMBOLS = "abc"

_F, _U, _A = linear("f", bias=True), linear("u"), linear("a", bias=True)
_P, _R, _S = parameter("p"), parameter("r"), parameter("s")
_GATE = sigmoid(_F)
_SIGNED = partial(construct, "signed")
_VALUED = partial(construct, "valued")

# Weights of arcs that consume a symbol. There are few, so that equal ones occur together, and `zero`, which prunes
# arcs. A real expression is also a weight over a semiring of several components.
_ARCS: dict[str, list[Expr | float]] = {
    "real": [one, _GATE, (1 - _GATE) * _U, _U, tanh(_A) * _P, sigmoid(_R), input() - 0.5, -0.5, zero],
    "log": [one, log_sigmoid(_F), log_sigmoid(-_F), _U, log_sigmoid(_A) + _P, -0.5, input(), zero],
    "max-plus": [one, log_sigmoid(_F), log_sigmoid(-_F), _U, _A * _P, -0.5, input(), zero],
    "min-plus": [one, softplus(_F), softplus(-_F), _U, _A * _P, 0.5, input(), zero],
    "max-times": [one, _GATE, (1 - _GATE) * softplus(_U), exp(_A), relu(_U), sqrt(_GATE), 0.5, zero],
    "boolean": [one, step(_F), step(_U), 1 - step(_A), step(_A) * step(_P), zero],
    "counting": [one, step(_F), 2 * step(_U), 1 + step(_A), step(_A) * step(_P), 3, zero],
    "complex": [
        one,
        _GATE,
        tanh(_A) * _P,
        complex(_U, _A),
        polar(_GATE, _U),
        complex(0, -0.5),
        input() - 0.5,
        zero,
    ],
    "expectation": [
        one,
        _GATE,
        tanh(_A) * _P,
        pair(_GATE, _U),
        _VALUED(sigmoid(_A), _R),
        -0.5,
        input() - 0.5,
        zero,
    ],
    "signed-log": [
        *(one, _GATE, tanh(_A) * _P, _U, -0.5, input() - 0.5, zero),
        *(_SIGNED(2 * step(_F) - 1, log_sigmoid(_A)), _SIGNED(1, _U)),
    ],
}
_GROWING = {"counting": [3]}  # a loop of such a weight causes a warning
# Weights of ε-arcs, initial and final states. The first ones are small enough for any ε-cycle of six states.
_CONSTANTS: dict[str, tuple[list[Expr | float], list[Expr | float]]] = {
    "real": ([0.15 * tanh(_R), 0.1], [one, sigmoid(_R), tanh(_S), _P, -0.5]),
    "log": ([log_sigmoid(_R) - 2, -3.0], [one, log_sigmoid(_R), _S, -0.5]),
    "max-plus": ([log_sigmoid(_R), -0.5, one], [_S, 0.5, log_sigmoid(_P)]),
    "min-plus": ([softplus(_R), 0.5, one], [_S, -0.5, softplus(_P)]),
    "max-times": ([sigmoid(_R), 0.5, one], [exp(_S), 2.0, relu(_P)]),
    "boolean": ([one, step(_R), step(_S)], []),
    "counting": ([], [one, step(_R), 2.0, 1 + step(_S)]),
    "complex": (
        [0.15 * tanh(_R), complex(0.1, -0.1), polar(0.1 * sigmoid(_R), _S)],
        [one, sigmoid(_R), complex(_P, _R), polar(1, _S), -0.5],
    ),
    "expectation": (
        [0.15 * tanh(_R), pair(0.1, _S), 0.1],
        [one, sigmoid(_R), pair(_P, _S), _VALUED(sigmoid(_R), _S), -0.5],
    ),
    "signed-log": (
        [0.15 * tanh(_R), _SIGNED(-1, -3), _SIGNED(1, log_sigmoid(_R) - 2)],
        [one, tanh(_S), _P, _SIGNED(-1, _S), -0.5],
    ),
}


def _outputs(semiring: str) -> list[tuple[Expr, ...]]:
    """Return outputs, one or several, that are finite and have finite gradients even where the score is zero."""
    gate = sigmoid(linear("o", bias=True))
    if semiring == "complex":
        re, im = (getattr(score, c) for c in ("re", "im"))
        return [
            (re, im),
            (tanh(re),),
            (gate * (re * re + im * im), cos(im) / (1 + gate)),
            (re + input() * im,),
        ]
    if semiring == "expectation":
        p, r = (getattr(score, c) for c in ("p", "r"))
        return [(p, r), (r / (1 + p * p),), (gate * tanh(r), p)]
    if semiring == "signed-log":
        sign, log = (getattr(score, c) for c in ("sign", "log"))
        return [(sign * exp(log),), (tanh(log), sign), (gate * tanh(log),)]
    return [(output,) for output in _single_outputs(semiring)]


def _single_outputs(semiring: str) -> list[Expr]:
    gate = linear("o", bias=True)
    if semiring in ("boolean", "counting"):
        return [score, score * sigmoid(gate)]
    plain = [tanh(score), sigmoid(gate) * tanh(score) + (1 - sigmoid(gate)) * input()]
    if semiring in ("real", "max-times"):
        return [score, tanh(sigmoid(gate) * score), *plain]
    return [tanh(log_sigmoid(gate) + score), *plain]


@st.composite
def cells(
    draw: st.DrawFn,
    semiring: str | None = None,
    *,
    states: int = 6,
    epsilon: str | None = None,
    inputs: bool = True,
) -> Cell:
    """A cell that lowers: up to `states` states, several initial and final ones, arcs between any two states,
    perhaps repeated. `epsilon` is "none", "acyclic", "cyclic" or "limited" (one of them is drawn if not given;
    counting has no cycles); `inputs=False` leaves out `input()`."""
    semiring = semiring or draw(st.sampled_from(sorted(SEMIRINGS)))
    epsilon = epsilon or draw(st.sampled_from(["none", "acyclic", "cyclic", "limited"]))
    small, large = _CONSTANTS[semiring]
    constant = st.sampled_from([*small, *large])
    names = [f"q{i}" for i in range(draw(st.integers(min(2, states), states)))]
    state = st.sampled_from(names)
    ends = st.lists(state, min_size=1, max_size=3, unique=True)
    initials, finals = draw(ends), draw(ends)
    cell = Cell("random", semiring)
    for q in initials:
        cell = cell.initial(q, draw(constant))
    for q in finals:
        cell = cell.final(q, draw(constant))
    if draw(st.booleans()):  # most cells have an always-on start
        cell = cell.loop(initials[0], one)

    weight = st.sampled_from([w for w in _ARCS[semiring] if inputs or not _reads_input(ex.as_expr(w))])
    pairs = draw(st.lists(st.tuples(state, state), min_size=len(names) - 1, max_size=2 * len(names)))
    pairs += [(initials[0], finals[0])]
    pairs += [(q, draw(state)) for q in initials if q not in finals]
    pairs += [(draw(state), q) for q in finals if q not in initials]
    for q, p in pairs:
        w = draw(weight)
        grows = q == p and any(w is growing for growing in _GROWING.get(semiring, ()))
        cell = cell.arc(q, p, one if grows else w, merge="plus")

    cell = _with_epsilon(draw, cell, names, epsilon)
    outputs = [some for some in _outputs(semiring) if inputs or not any(map(_reads_input, some))]
    cell = cell.output(*draw(st.sampled_from(outputs)))
    try:
        lower(cell)
    except CellError:  # happens if every path to a final state has a weight of zero
        assume(False)
    return cell


def _with_epsilon(draw: st.DrawFn, cell: Cell, names: list[str], epsilon: str) -> Cell:
    """Add at least one ε-arc (where there are two states to join), and for "cyclic" at least one cycle."""
    if epsilon == "none":
        return cell
    small, large = _CONSTANTS[cell.semiring_name]
    state, order = st.sampled_from(names), draw(st.permutations(names))
    pairs = draw(st.lists(st.tuples(state, state), min_size=1, max_size=len(names)))
    if epsilon == "cyclic" and small:
        ring = order[: draw(st.integers(1, len(names)))]
        pairs += list(zip(ring, [*ring[1:], ring[0]], strict=True))
        weight = st.sampled_from(small)
    else:
        weight = st.sampled_from([*small, *large])
    if epsilon == "limited":
        cell = cell.limit_epsilon(draw(st.integers(0, 2)), after_last=draw(st.booleans()))
    elif epsilon == "acyclic" or not small:
        pairs = [(q, p) if order.index(q) < order.index(p) else (p, q) for q, p in pairs if q != p]
    for q, p in dict.fromkeys(pairs):
        cell = cell.epsilon(q, p, draw(weight))
    return cell


def _reads_input(expr: Expr) -> bool:
    return any(isinstance(node, ex.Input) for node in ex.walk(expr))


@dataclass(frozen=True)
class Numbers:
    """The numbers that one hidden unit of a cell computes with."""

    parameters: Mapping[str, float]  # by name, biases as "f.bias"
    preacts: Mapping[str, Mapping[str, float]]  # symbol → projection (without its bias), and "input"

    def for_wfsa(self) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        """Return symbols and parameters as `rrnn.wfsa.instantiate` takes them, with biases added."""
        bias = {
            name.removesuffix(".bias"): b for name, b in self.parameters.items() if name.endswith(".bias")
        }
        symbols = {
            a: {name: x + bias.get(name, 0.0) for name, x in row.items()} for a, row in self.preacts.items()
        }
        return symbols, {name: x for name, x in self.parameters.items() if not name.endswith(".bias")}


def numbers_for(cell: Cell, symbols: Sequence[str] = SYMBOLS) -> st.SearchStrategy[Numbers]:
    """Draw numbers for everything the cell mentions. They are multiples of 0.01, so that zeros and ties occur."""
    nodes = [node for top in cell.expressions() for node in ex.walk(top)]
    linears = {node.name: node for node in nodes if isinstance(node, ex.Linear)}
    learned = [node.name for node in nodes if isinstance(node, ex.Parameter)]
    learned += [f"{node.name}.bias" for node in linears.values() if node.bias]
    read = [*linears, *(["input"] if any(isinstance(node, ex.Input) for node in nodes) else [])]
    number = st.integers(-200, 200).map(lambda n: n / 100)
    return st.builds(
        Numbers,
        st.fixed_dictionaries({name: number for name in dict.fromkeys(learned)}),
        st.fixed_dictionaries({a: st.fixed_dictionaries({name: number for name in read}) for a in symbols}),
    )
