"""Draw any expression or cell that the language allows (hypothesis strategies), for tests of the language itself.

Cells that can also be run come from `runnable_cell_strategies`.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from rrnn.automata import Cell, Expr, exp, input, linear, log, parameter, relu, sigmoid, softplus, sqrt, step
from rrnn.automata import expressions as ex
from rrnn.automata.expression_rules import check_weight
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS

semirings = st.sampled_from(sorted(SEMIRINGS))

# Each name is used in one way, as a cell demands. Some names are words of the text form.
PROJECTIONS = [
    linear("u"),
    linear("f", bias=True),
    linear("output", window=3),
    linear("one", bias=True, window=2),
    input(),
]
PARAMETERS = [parameter("r"), parameter("states"), parameter("sigmoid")]
LABELS = ["u", "f", "gate", "output", "cell", "states", "initial", "arc", "φ", "True", "if", "x_"]

numbers = st.one_of(
    st.integers(-3, 3), st.floats(-4, 4), st.sampled_from([1e-300, 1e15, 1e16, -1e300, 0.1, -0.0])
)


def expressions(*, constant: bool = False) -> st.SearchStrategy[Expr]:
    """Draw any expression. The arguments of log and sqrt are kept in their domains."""
    leaves = st.one_of(
        st.sampled_from(PARAMETERS if constant else PROJECTIONS + PARAMETERS), numbers.map(ex.as_expr)
    )
    plain = [f for name, f in ex.FUNCTIONS.items() if name not in ("log", "sqrt")]

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(lambda f, x: f(x), st.sampled_from(plain), inner),
            st.builds(lambda x: log(1 + relu(x)), inner),
            st.builds(lambda x: sqrt(softplus(x)), inner),
            st.builds(lambda x: -x, inner),
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a - b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
            st.builds(lambda a, b: a / (0.5 + softplus(b)), inner, inner),
            st.builds(lambda a, b: a / exp(b), inner, inner),
            inner.map(lambda x: x * x),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def weights(semiring: str, inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Draw weights that lie in a semiring's set, made from `inner`; one that is known to lie outside becomes 1̄."""
    return _weights(semiring, inner).map(lambda weight: weight if _fits(weight, semiring) else ex.one)


def _fits(weight: Expr, semiring: str) -> bool:
    try:
        check_weight(weight, "a weight", SEMIRINGS[semiring], constant=False)
    except CellError:  # for example exp(1e300)
        return False
    return True


def _weights(semiring: str, inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    special = st.sampled_from([ex.one, ex.one, ex.zero])
    if semiring == "boolean":
        return st.one_of(special, inner.map(step), st.builds(lambda a, b: step(a) * step(b), inner, inner))
    if semiring == "counting":
        return st.one_of(special, inner.map(lambda x: 2 * step(x) + 1), st.integers(0, 5).map(ex.as_expr))
    if semiring == "max-times":
        positive = st.sampled_from([sigmoid, exp, softplus, relu])
        return st.one_of(special, st.builds(lambda f, x: f(x), positive, inner))
    return st.one_of(special, inner, *_constructed(semiring, inner))


def _constructed(semiring: str, inner: st.SearchStrategy[Expr]) -> list[st.SearchStrategy[Expr]]:
    """Return strategies for weights made by the semiring's constructors; a sign is −1 or 1."""
    return [
        st.builds(
            lambda *given, name=name: ex.construct(name, *given),
            *(inner.map(lambda x: 2 * step(x) - 1) if a == "sign" else inner for a in arguments),
        )
        for name, (arguments, _) in SEMIRINGS[semiring].constructors.items()
    ]


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    """Draw a finished cell of up to four states: a chain from q0 to the last state, and random arcs."""
    ring = draw(semirings)
    states = [f"q{i}" for i in range(draw(st.integers(1, 4)))]
    labels = draw(st.permutations(LABELS))

    def pool(constant: bool) -> st.SearchStrategy[Expr]:
        some = draw(st.lists(expressions(constant=constant), min_size=1, max_size=3))
        named = [e.named(labels.pop()) if draw(st.booleans()) else e for e in some]
        return weights(ring, st.sampled_from(named + [a * b + 1 for a in named for b in named]))

    free, fixed = pool(False), pool(True)
    cell = Cell(draw(st.sampled_from(["A", "cell", "_x9"])), ring).initial("q0")
    for a, b in pairwise(states):
        cell = cell.arc(a, b, step(linear("u")))
    for _ in range(draw(st.integers(0, 4))):
        source, target = draw(st.sampled_from(states)), draw(st.sampled_from(states))
        cell = cell.arc(source, target, draw(free), merge="plus")
    limited = draw(st.booleans())
    for _ in range(draw(st.integers(0, 3))):
        source, target = sorted((draw(st.sampled_from(states)), draw(st.sampled_from(states))))
        if limited or source != target:
            cell = cell.epsilon(source, target, draw(fixed), merge="plus")
    if limited:
        cell = cell.limit_epsilon(draw(st.integers(0, 3)), after_last=draw(st.booleans()))
    for state in sorted(draw(st.sets(st.sampled_from(states))) - {"q0"}):
        cell = cell.initial(state, draw(fixed))
    for state in sorted(draw(st.sets(st.sampled_from(states))) - {states[-1]}):
        cell = cell.final(state, draw(fixed))
    parts = [ex.Component(ex.score, c) for c in cell.semiring.components] or [ex.score]
    outputs = [
        tuple(parts),
        (ex.tanh(parts[-1]),),
        (ex.sigmoid(linear("o", bias=True)) * parts[0], -parts[-1]),
    ]
    return cell.final(states[-1]).output(*draw(st.sampled_from(outputs)))
