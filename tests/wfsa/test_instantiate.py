"""One unit of a cell as a machine: what cells and their compositions compute, number by number."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from random_machines import close

from rrnn.automata import (
    Cell,
    Expr,
    concatenate,
    construct,
    evaluate,
    input,
    interpolate,
    linear,
    log_sigmoid,
    one,
    parameter,
    scale,
    score,
    sigmoid,
    softplus,
    step,
    tanh,
    union,
    zero,
)
from rrnn.automata import expressions as ex
from rrnn.errors import AutomatonError, CellError, RRNNError, SemiringError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import WFSA, instantiate
from rrnn.zoo import get_cell
from rrnn.zoo.paper_automata import automaton_b, automaton_c, automaton_f

pytestmark = pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")  # random loops may grow

Values = tuple[dict[Any, dict[str, float]], dict[str, float]]


def random_cell(rng: random.Random, ring: str, prefix: str, *, epsilon: str = "acyclic") -> Cell:
    """Up to three states and arcs between any of them; ε-arcs forward only, or "cyclic"."""
    x, y, p = linear(f"{prefix}x"), linear(f"{prefix}y", bias=True), parameter(f"{prefix}p")
    signed = [x, sigmoid(y), (1 - sigmoid(y)) * x, tanh(x) - 0.5, 0.7]
    arc_weights: list[Any] = {
        "boolean": [step(x), step(y) * step(x), 1 - step(y)],
        "counting": [step(x), 1 + step(y), 2],
        "max-times": [sigmoid(x), softplus(y), 1.5],
        "complex": [*signed, construct("complex", x, tanh(y)), construct("polar", sigmoid(y), x)],
        "expectation": [*signed, construct("pair", sigmoid(x), y), construct("valued", sigmoid(y), x)],
        "signed-log": [*signed, construct("signed", -1, log_sigmoid(y)), construct("signed", 1, x)],
    }.get(ring, signed)
    constants: list[Any] = {
        "boolean": [step(p), 1],
        "counting": [step(p) + 1, 2],
        "max-plus": [log_sigmoid(p)],
        "log": [log_sigmoid(p) - 1],
        "min-plus": [softplus(p)],
        "complex": [construct("complex", 0.1, 0.3 * sigmoid(p))],
    }.get(ring, [sigmoid(p) * 0.3])
    if ring == "counting" and epsilon == "cyclic":
        epsilon = "acyclic"
    states = [f"q{i}" for i in range(rng.randint(1, 3))]
    cell = Cell("X", ring).initial("q0", rng.choice([one, *constants]))
    cell = cell.output(*([tanh(getattr(score, c)) for c in cell.semiring.components] or [tanh(score)]))
    for a, b in pairwise(states):
        cell = cell.arc(a, b, rng.choice([*arc_weights, one]))
    for a, b in product(states, repeat=2):
        if rng.random() < 0.4:
            cell = cell.arc(a, b, rng.choice([*arc_weights, one, zero]), merge="plus")
        if rng.random() < 0.4 and (a < b or epsilon == "cyclic"):
            cell = cell.epsilon(a, b, rng.choice(constants))
    for q in states[:-1]:
        if rng.random() < 0.4:
            cell = cell.final(q, rng.choice([one, *constants]))
    return cell.final(states[-1], rng.choice([one, *constants])).check()


def random_values(rng: random.Random, *cells: Cell) -> Values:
    leaves = {node for cell in cells for top in cell.expressions() for node in ex.walk(top)}
    linears = sorted(n.name for n in leaves if isinstance(n, ex.Linear))
    parameters = sorted(n.name for n in leaves if isinstance(n, ex.Parameter))
    symbols = {a: {name: rng.uniform(-1, 1) for name in linears} for a in "ab"}
    return symbols, {name: rng.uniform(-1, 1) for name in parameters}


def machine(cell: Cell, values: Values) -> WFSA:
    """Only what the cell uses is given."""
    nodes = [node for top in cell.expressions() for node in ex.walk(top)]
    names = {node.name for node in nodes if isinstance(node, ex.Linear | ex.Parameter)}
    symbols, parameters = values
    return instantiate(
        cell,
        {a: {n: v for n, v in at.items() if n in names} for a, at in symbols.items()},
        {n: v for n, v in parameters.items() if n in names},
    )


def by_definition(cell: Cell, values: Values, string: str, most: int | None = None) -> Any:
    """⟦x⟧ from the cell itself, path by path, with the limit on consecutive ε counted as the paths go.

    `most` stands in for a limit where the cell has none.
    """
    ring = cell.semiring
    symbols, parameters = values
    limit = cell.epsilon_limit if cell.epsilon_limit is not None else most
    assert limit is not None

    def value(expr: Expr, at: dict[str, float] | None = None) -> float:
        return ring.check(
            evaluate(expr, parameters | (at or {}), ring)
        )  # a real expression stands for a real number

    finals = {q: value(w) for q, w in cell.finals}

    def paths(q: str, i: int, count: int, weight: float) -> Iterator[float]:
        if i == len(string) and q in finals and (count == 0 or cell.epsilon_after_last):
            yield ring.times(weight, finals[q])
        for arc in cell.arcs:
            if arc.source == q and arc.epsilon and count < limit:
                yield from paths(arc.target, i, count + 1, ring.times(weight, value(arc.weight)))
            elif arc.source == q and not arc.epsilon and i < len(string):
                here = value(arc.weight, symbols[string[i]])
                yield from paths(arc.target, i + 1, 0, ring.times(weight, here))

    return ring.sum(w for q, lam in cell.initials for w in paths(q, 0, 0, value(lam)))


STRINGS = ["", "a", "b", "ab", "ba", "bb", "aba", "bab"]


def scores(m: WFSA, strings: list[str] = STRINGS) -> list[float]:
    return m.semiring.numbers(m.score(strings))


def assert_close(ring: str, ours: list[Any], theirs: list[Any]) -> None:
    assert all(close(ring, a, b) for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


@pytest.mark.parametrize("ring", SEMIRINGS)
@pytest.mark.parametrize("seed", range(4))
class TestRandomCells:
    def test_the_definition(self, ring: str, seed: int) -> None:
        rng = random.Random(f"{ring}{seed}")
        cell = random_cell(rng, ring, "")
        values = random_values(rng, cell)
        assert_close(
            ring, scores(machine(cell, values)), [by_definition(cell, values, s, 3) for s in STRINGS]
        )

    @pytest.mark.parametrize("after_last", [True, False])
    def test_epsilon_limit(self, ring: str, seed: int, after_last: bool) -> None:
        rng = random.Random(f"{ring}{seed}")
        cell = random_cell(rng, ring, "", epsilon="cyclic").limit_epsilon(seed, after_last=after_last)
        values = random_values(rng, cell)
        strings = STRINGS[:6]
        assert_close(
            ring, scores(machine(cell, values), strings), [by_definition(cell, values, s) for s in strings]
        )

    def test_epsilon_cycles_converge_to_their_star(self, ring: str, seed: int) -> None:
        rng = random.Random(f"{ring}{seed}")
        cell = random_cell(rng, ring, "", epsilon="cyclic")
        values = random_values(rng, cell)
        limits = [machine(cell.limit_epsilon(k), values) for k in (63, 64)]
        assert_close(ring, scores(machine(cell, values)), scores(limits[1]))
        assert_close(ring, scores(limits[0]), scores(limits[1]))

    def test_union_scale_and_interpolation(self, ring: str, seed: int) -> None:
        rng = random.Random(f"{ring}{seed}")
        a, b = (random_cell(rng, ring, prefix, epsilon="cyclic") for prefix in ("a", rng.choice(["", "b"])))
        values = random_values(rng, a, b)
        semiring = SEMIRINGS[ring]
        of_a, of_b = scores(machine(a, values)), scores(machine(b, values))
        together = [semiring.plus(x, y) for x, y in zip(of_a, of_b, strict=True)]
        assert_close(ring, scores(machine(union(a, b).check(), values)), together)

        w, v = (1, 1) if ring == "boolean" else (2, 3)
        times_w, times_v = semiring.check(w), semiring.check(v)
        assert_close(ring, scores(machine(scale(a, w), values)), [semiring.times(x, times_w) for x in of_a])
        mixed = [
            semiring.plus(semiring.times(x, times_w), semiring.times(y, times_v))
            for x, y in zip(of_a, of_b, strict=True)
        ]
        assert_close(ring, scores(machine(interpolate(a, b, w, v).check(), values)), mixed)

    def test_concatenation(self, ring: str, seed: int) -> None:
        rng = random.Random(f"{ring}{seed}")
        a, b = (random_cell(rng, ring, prefix, epsilon="cyclic") for prefix in ("a", "b"))
        values = random_values(rng, a, b)
        semiring = SEMIRINGS[ring]
        splits = [[(s[:i], s[i:]) for i in range(len(s) + 1)] for s in STRINGS]
        of_a = dict(zip(STRINGS, scores(machine(a, values)), strict=True))
        of_b = dict(zip(STRINGS, scores(machine(b, values)), strict=True))
        expected = [semiring.sum(semiring.times(of_a[h], of_b[t]) for h, t in split) for split in splits]
        assert_close(ring, scores(machine(concatenate(a, b).check(), values)), expected)


def test_default_interpolation() -> None:
    rng = random.Random(1)
    for ring in ("real", "max-times", "log", "max-plus", "min-plus"):
        a, b = random_cell(rng, ring, "a"), random_cell(rng, ring, "b")
        both = interpolate(a, b)
        values = random_values(rng, both)
        chances = [1 / (1 + math.exp(-values[1][p])) for p in ("p1", "p2")]
        w, v = {"min-plus": [-math.log(c) for c in chances]}.get(
            ring, [math.log(c) for c in chances] if ring in ("log", "max-plus") else chances
        )
        semiring = SEMIRINGS[ring]
        of_a, of_b = scores(machine(a, values)), scores(machine(b, values))
        mixed = [
            semiring.plus(semiring.times(x, w), semiring.times(y, v)) for x, y in zip(of_a, of_b, strict=True)
        ]
        assert_close(ring, scores(machine(both, values)), mixed)


# ---- the paper ---------------------------------------------------------------------------------------------


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.fixture
def unit() -> Values:
    rng = random.Random(0)
    symbols = {a: {n: rng.uniform(-2, 2) for n in ("f1", "u1", "f2", "u2")} for a in "abc"}
    return symbols, {n: rng.uniform(-2, 2) for n in ("r", "p1", "p2")}


def test_f_by_the_equations_of_the_paper(unit: Values) -> None:
    """z¹ = z¹'·φ₁ + z⁰'·μ₁, z³ = z⁰·γ, z² = z²'·φ₂ + (z¹' + z³')·μ₂, with λ(q0) = 1: z⁰₀ = 1 and z³₀ = γ."""
    symbols, parameters = unit
    string = "abacabca"
    gamma, rho1, rho2 = (sigma(parameters[n]) for n in ("r", "p1", "p2"))
    z1 = z2 = 0.0
    expected = [0.0]
    for a in string:
        at = symbols[a]
        phi1, phi2 = sigma(at["f1"]), sigma(at["f2"])
        mu1, mu2 = (1 - phi1) * at["u1"], (1 - phi2) * at["u2"]
        z1, z2 = z1 * phi1 + mu1, z2 * phi2 + (z1 + gamma) * mu2
        expected.append(rho1 * z1 + rho2 * z2)
    scored = instantiate(get_cell("F"), symbols, parameters).prefix_scores(string)
    torch.testing.assert_close(scored, torch.tensor(expected, dtype=torch.float64))


def test_b_c_and_f_are_the_automata_of_the_paper(unit: Values) -> None:
    symbols, parameters = unit

    def phi(j: str) -> Any:
        return {a: sigma(at[f"f{j}"]) for a, at in symbols.items()}

    def mu(j: str) -> Any:
        return {a: (1 - sigma(at[f"f{j}"])) * at[f"u{j}"] for a, at in symbols.items()}

    first = {a: {"f": at["f1"], "u": at["u1"]} for a, at in symbols.items()}
    gamma, rho1, rho2 = (sigma(parameters[n]) for n in ("r", "p1", "p2"))
    pairs = [
        (instantiate(get_cell("B"), first), automaton_b("abc", mu("1"), phi("1"))),
        (instantiate(get_cell("C"), symbols), automaton_c("abc", mu("1"), phi("1"), mu("2"), phi("2"))),
        (
            instantiate(get_cell("F"), symbols, parameters),
            automaton_f("abc", mu("1"), phi("1"), mu("2"), phi("2"), gamma, rho1, rho2),
        ),
    ]
    strings = ["".join(s) for n in range(4) for s in product("abc", repeat=n)]
    for ours, papers in pairs:
        torch.testing.assert_close(ours.score(strings), papers.score(strings))


# ---- the machine -------------------------------------------------------------------------------------------


def b() -> Cell:
    return get_cell("B")


def test_states_and_symbols() -> None:
    m = instantiate(b(), {("any", 1): {"f": 0.0, "u": 1.0}, 7: {"f": 1.0, "u": -1.0}})
    assert m.states == ("q0", "q1") and m.alphabet == (("any", 1), 7)
    assert m.initial == {"q0": 1.0} and m.final == {"q1": 1.0}
    assert m.num_arcs == 6
    limited = b().epsilon("q0", "q1", 0.5).limit_epsilon(3)
    m = instantiate(limited, {"a": {"f": 0.0, "u": 1.0}})
    assert m.states == (("q0", 0), ("q1", 0), ("q1", 1))  # no ε-arc leaves q1, so there is no (·, 2)
    assert m.final == {("q1", 0): 1.0, ("q1", 1): 1.0}
    m = instantiate(limited.limit_epsilon(3, after_last=False), {"a": {"f": 0.0, "u": 1.0}})
    assert m.final == {("q1", 0): 1.0}
    assert instantiate(limited.limit_epsilon(0), {"a": {"f": 0.0, "u": 1.0}}).states == (("q0", 0), ("q1", 0))


def test_values_of_any_kind_of_number() -> None:
    plain = instantiate(b(), {"a": {"f": 0.5, "u": 1}})
    tensors: Any = {"f": torch.tensor(0.5), "u": torch.tensor(1)}
    assert plain.same_as(instantiate(b(), {"a": tensors}))


def test_input_and_output() -> None:
    cell = b().loop("q0", input(), merge="plus").output(sigmoid(linear("o")) * score)
    m = instantiate(cell, {"a": {"f": 0.0, "u": 1.0, "input": 0.25}})
    assert m.arcs[0].weight == 1.25
    assert m.same_as(instantiate(cell, {"a": {"f": 0.0, "u": 1.0, "input": 0.25, "o": 3.0}}))


@pytest.mark.parametrize(
    ("cell", "symbols", "parameters", "error", "message"),
    [
        (b(), {"a": {"f": 0.0}}, {}, AutomatonError, "at symbol 'a' must include 'f', 'u'; 'u' is missing"),
        (b(), {"a": {"f": 0, "u": 1, "v": 2}}, {}, AutomatonError, "one of 'f', 'u'; got 'v'"),
        (
            b(),
            {"a": {"f": 0, "u": 1}},
            {"r": 1},
            AutomatonError,
            "the parameters are given by name, one of none",
        ),
        (b(), {"a": {"f": math.nan, "u": 1}}, {}, AutomatonError, "'f' .* must be a finite number; got nan"),
        (b(), {"a": {"f": "x", "u": 1}}, {}, AutomatonError, "must be a finite number; got 'x'"),
        (b(), {"a": {"f": None, "u": 1}}, {}, AutomatonError, "must be a finite number; got None"),
        (b(), {"a": {"f": torch.zeros(2), "u": 1}}, {}, AutomatonError, "must be a finite number"),
        (b(), {"a": {"f": 10**400, "u": 1}}, {}, AutomatonError, "must be a finite number"),
        (b(), {"a": 3}, {}, AutomatonError, "a mapping from name to number; got int"),
        (b(), {"a": {"f": 0, "u": 1}}, [1], AutomatonError, "a mapping from name to number; got list"),
        (b(), ["a"], {}, AutomatonError, "symbols must be a mapping .*; got list"),
        (b(), {}, {}, AutomatonError, "at least one symbol"),
        (
            get_cell("F"),
            {"a": dict.fromkeys(["f1", "f2", "u1", "u2"], 0.0)},
            {},
            AutomatonError,
            "'r' is missing",
        ),
        (Cell("X"), {"a": {}}, {}, CellError, "no initial state"),
        (
            Cell("X").initial("q").loop("q", linear("u", window=3)).final("q"),
            {"a": {"u": 1.0}},
            {},
            CellError,
            "depends on one symbol, but the projection 'u' of cell 'X' sees a window of 3. Use window=1",
        ),
        (
            Cell("X").initial("q").loop("q", ex.exp(linear("u"))).final("q"),
            {"a": {"u": 1000.0}},
            {},
            SemiringError,
            "inf is outside the real semiring's set",
        ),
    ],
    ids=range(16),
)
def test_mistakes(cell: Cell, symbols: Any, parameters: Any, error: type[RRNNError], message: str) -> None:
    with pytest.raises(error, match=message):
        instantiate(cell, symbols, parameters)
