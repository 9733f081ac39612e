"""Equations as a person would write them: the paper's lines, golden files, and that what is printed is true."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from calls import CORE
from hypothesis import given
from hypothesis import strategies as st
from stepping import leaves_of, parameters_of, run
from strategies import SYMBOLS, Numbers, cells, numbers_for

from rrnn.automata import (
    Cell,
    exp,
    input,
    linear,
    log_sigmoid,
    one,
    parameter,
    relu,
    score,
    sigmoid,
    softplus,
    sqrt,
    step,
    tanh,
)
from rrnn.ir import Op, lower
from rrnn.ir.equations import Equations, equations, latex, state_symbols
from rrnn.ir.evaluate import initial_state
from rrnn.ir.notation import PLAIN
from rrnn.semirings import SEMIRINGS
from rrnn.zoo import CELLS, get_cell


def test_f_as_the_paper_writes_it() -> None:
    lines = equations(get_cell("F")).splitlines()
    assert "c¹ₜ = f¹ₜ ⊙ c¹ₜ₋₁ + u¹ₜ" in lines
    assert "c²ₜ = f²ₜ ⊙ c²ₜ₋₁ + (c¹ₜ₋₁ + r) ⊙ u²ₜ" in lines
    assert "cₜ  = p¹ ⊙ c¹ₜ + p² ⊙ c²ₜ" in lines
    assert "f¹ₜ = σ(W_f¹ vₜ + b_f¹)" in lines
    assert "u¹ₜ = (1 − f¹ₜ) ⊙ W_u¹ vₜ" in lines
    assert "r   = σ(b_r)" in lines


def test_b_over_max_plus_as_the_paper_writes_it() -> None:
    assert equations(get_cell("B-max-plus+o")).splitlines() == [
        "fₜ = log σ(W_f vₜ + b_f)",
        "uₜ = W_u vₜ",
        "cₜ = max{fₜ + cₜ₋₁, uₜ}",
        "oₜ = log σ(W_o vₜ + b_o)",
        "hₜ = tanh(oₜ + cₜ)",
    ]


@pytest.mark.parametrize("name", CORE)
def test_zoo(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"equations/{name}.txt", equations(get_cell(name)))
    golden(f"equations/{name}.tex", latex(get_cell(name)))


F, U = sigmoid(linear("f", bias=True)), linear("u")
TANH = tanh(score)
START = Cell("c").initial("q0").loop("q0", one)


def b_like(semiring: str, loop: Any, arc: Any, output: Any = TANH) -> Cell:
    cell = Cell("B", semiring).initial("q0").loop("q0", one).arc("q0", "q1", arc).loop("q1", loop)
    return cell.final("q1").output(output)


def ring(semiring: str, weight: Any) -> Cell:
    cell = Cell("ring", semiring).initial("q0").loop("q0", one).arc("q0", "q1", U).loop("q1", U)
    return (
        cell.epsilon("q1", "q2", weight)
        .epsilon("q2", "q1", -0.5 if semiring == "log" else 0.5)
        .arc("q2", "q2", linear("w"))
        .final("q2")
        .output(tanh(score))
    )


GALLERY: dict[str, Cell] = {
    "log": b_like("log", log_sigmoid(linear("f")), U),
    "min-plus": b_like("min-plus", softplus(linear("f")), U, exp(-score)),
    "max-times": b_like("max-times", F, (1 - F) * exp(U)),
    "boolean": b_like("boolean", step(linear("f")), step(U), score).arc("q1", "q0", step(linear("g"))),
    "counting": b_like("counting", 2, 1 + step(U), score),
    "a final weight on one state": START.arc("q0", "q1", U).loop("q1", F).final("q1", sigmoid(parameter("p"))),
    "initial values": (
        Cell("c").initial("q0", sigmoid(parameter("p"))).loop("q0", F).initial("q1", 0.5)
        .arc("q0", "q1", U).loop("q1", F).final("q1")
    ),
    "an initial value over max-plus": (
        Cell("c", "max-plus").initial("q0").loop("q0", -1).arc("q0", "q1", U).final("q1").output(tanh(score))
    ),
    "windows": (
        START.arc("q0", "q1", linear("u", window=2) + linear("x", window=3, bias=True))
        .loop("q1", sigmoid(linear("f", window=7))).final("q1")
    ),
    "the input": b_like("real", F, U, F * score + (1 - F) * input()),
    "numbers and signs": b_like("real", 0.5, -2 * U - (F - 3), -score * 0.25 + 1e-9),
    "numbers over min-plus": b_like("min-plus", 2, U - 0.5, tanh(score - 1)),
    "weights without a name": (
        START.arc("q0", "q1", F * relu(linear("a")) * sqrt(softplus(linear("a")))).loop("q1", 1 - F)
        .final("q1", parameter("p") * parameter("s") + 0.5)
    ),
    "a raw parameter": b_like("real", parameter("f"), U * parameter("a")),
    "names that the equations use too": (
        START.arc("q0", "q1", linear("c")).loop("q1", sigmoid(linear("h"))).arc("q1", "q2", linear("v"))
        .loop("q2", parameter("w") * parameter("z") * parameter("e")).final("q2").output(parameter("s") * score)
    ),
    "two names for one symbol": START.arc("q0", "q1", linear("f_1")).loop("q1", sigmoid(linear("f1"))).final("q1"),
    "long names": (
        START.arc("q0", "q1", linear("phi2")).loop("q1", sigmoid(linear("forget_gate", bias=True)))
        .final("q1", parameter("gamma"))
    ),
    "an ε-cycle": ring("real", sigmoid(parameter("r"))),
    "an ε-cycle over log": ring("log", log_sigmoid(parameter("r"))),
    "a closure that is shared": (
        START.arc("q0", "q1", U).arc("q0", "q2", F).epsilon("q1", "q3", parameter("r"))
        .epsilon("q2", "q3", parameter("s")).loop("q3", F).arc("q3", "q1", linear("g")).arc("q3", "q2", U)
        .final("q3").final("q1", 0.5)
    ),
    "states that move on": (
        Cell("c").initial("q0").arc("q0", "q1", U).arc("q1", "q2", one).arc("q2", "q3", F).final("q2").final("q3")
    ),
    "log (1 − f)": b_like("max-plus", log_sigmoid(linear("f")), log_sigmoid(-linear("f")) + U),
    "a projection as it is": b_like("real", linear("u"), sigmoid(U) * U),
    "no state": Cell("c").initial("q0").loop("q0", one).final("q0", parameter("p")),
    "an automaton that is always on": b_like("real", one, U, score),
}  # fmt: skip


def test_gallery(golden: Callable[[str, str], None]) -> None:
    golden("equations/gallery.txt", "\n".join(f"# {title}\n{equations(c)}" for title, c in GALLERY.items()))
    golden("equations/gallery.tex", "\n".join(f"% {title}\n{latex(c)}" for title, c in GALLERY.items()))


def test_symbols_of_states() -> None:
    assert state_symbols(get_cell("F")) == {"q1": "c¹", "q2": "c²"}
    assert state_symbols(get_cell("B")) == {"q1": "c"}


# ---- what is printed is true -----------------------------------------------------------------------------------


class Value(float):
    """A number for which ∨ and ∧ are written | and &, which bind as loosely as they should."""

    def __or__(self, other: float) -> Value:
        return Value(max(self, other))

    def __and__(self, other: float) -> Value:
        return Value(min(self, other))

    def __add__(self, other: float) -> Value:
        return Value(float(self) + other)

    def __sub__(self, other: float) -> Value:
        return Value(float(self) - other)

    def __mul__(self, other: float) -> Value:
        return Value(float(self) * other)


def _logsumexp(*xs: float) -> float:
    top = max(xs)
    return top if math.isinf(top) else top + math.log(sum(math.exp(x - top) for x in xs))


FUNCTIONS: dict[str, Any] = {
    "σ": lambda x: 1 / (1 + math.exp(-x)),
    "logσ": lambda x: -math.log1p(math.exp(-x)),
    "√": math.sqrt,
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "exp": math.exp,
    "log": lambda x: math.log(x) if x else -math.inf,
    "softplus": lambda x: math.log1p(math.exp(x)),
    "max": max,
    "min": min,
    "logsumexp": _logsumexp,
    "truth": Value,
}
_NAME = r"[^\W\d][^\W⁰¹²³⁴⁵⁶⁷⁸⁹₀ₜ]*′*[⁰¹²³⁴⁵⁶⁷⁸⁹]*(?:ₜ₋₁|ₜ|₀)?"


def value_of(formula: str, symbols: dict[str, float]) -> float:
    """Read a printed formula, by turning it into Python; KeyError for a symbol that has no value yet."""
    text = re.sub(r"(W_[^ ]+) (?:vₜ|xₜ|v′ₜ|\[[^]]*\])", r"\1", formula)  # W v is one number here
    text = text.replace("log σ(", "logσ(").replace("{", "(").replace("}", ")")
    text = text.replace("[", "truth(").replace("]", ")")
    text = re.sub(r"(\d(?:e−?\d+)?) (?=[^\W\d]|[(√])", r"\1 * ", text)  # 2 x is a product
    for sign, python in {"⊙": "*", "·": "*", "−": "-", "∨": "|", "∧": "&", "∞": "inf"}.items():
        text = text.replace(sign, python)

    def name(match: re.Match[str]) -> str:
        word = match[0]
        if word in FUNCTIONS and text[match.end() : match.end() + 1] == "(":
            return f"F[{word!r}]"
        return "math.inf" if word == "inf" else f"S[{word!r}]"

    text = re.sub(
        rf"√|{_NAME}|(?<![\w.])\d[\d.]*(?:e-?\d+)?",
        lambda m: name(m) if not m[0][0].isdigit() else f"Value({m[0]})",
        text,
    )
    return Value(
        eval(
            text,
            {"F": FUNCTIONS, "S": {k: Value(v) for k, v in symbols.items()}, "math": math, "Value": Value},
        )
    )


def follow(
    cell: Cell, numbers: Numbers, symbol: str, state: list[float]
) -> tuple[dict[str, float], Equations]:
    """All symbols' values after one step, computed from the printed lines alone."""
    lowered = lower(cell)
    writer = Equations(lowered, PLAIN)
    leaves, program = leaves_of(lowered.program, numbers, symbol), lowered.program
    symbols = {
        **{
            PLAIN.symbol(s): x
            for s, x in zip(writer.parameters, parameters_of(program, numbers), strict=True)
        },
        **{PLAIN.symbol(s): x for s, x in zip(writer.projections, leaves[Op.PREACT], strict=True)},
        **{writer.state(s, "t-1"): x for s, x in enumerate(state)},
        writer.input_letter + "ₜ": leaves[Op.INPUT][0],
    }
    for line in equations(cell).splitlines():
        left, _, right = line.partition(" = ")
        symbols[left.strip()] = value_of(right, symbols)
    return symbols, writer


def check_lines(cell: Cell, numbers: Numbers, string: str) -> None:
    program = lower(cell).program
    for t, expected in enumerate(run(program, numbers, string)):
        symbols, writer = follow(cell, numbers, string[t], expected.before)
        for s, new in enumerate(expected.after):
            assert symbols[writer.state(s, "t")] == pytest.approx(new, rel=1e-9, abs=1e-12)
        if program.states or writer.score_symbol in symbols:
            assert symbols[writer.score_symbol] == pytest.approx(expected.score, rel=1e-9, abs=1e-12)
        assert symbols[writer.output_symbol] == pytest.approx(expected.output, rel=1e-9, abs=1e-12)
    starts = initial_state(program, parameters_of(program, numbers))
    symbols, writer = follow(cell, numbers, string[0], starts)
    for s, start in enumerate(starts):
        assert symbols.get(writer.state(s, "0"), program.semiring.zero) == pytest.approx(start, rel=1e-9)


@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_printed_equations_are_the_recurrence(semiring: str, data: st.DataObject) -> None:
    cell = data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    check_lines(cell, numbers, data.draw(st.text(SYMBOLS, min_size=1, max_size=3)))


@pytest.mark.parametrize(
    "cell", [*GALLERY.values(), *(make() for make in CELLS.values())], ids=[*GALLERY, *CELLS]
)
@given(data=st.data())
def test_the_gallery_is_true(cell: Cell, data: st.DataObject) -> None:
    check_lines(cell, data.draw(numbers_for(cell, "a")), "aaa")


@given(cells())
def test_latex_says_the_same_in_as_many_lines(cell: Cell) -> None:
    text = latex(cell)
    lines = text.splitlines()
    assert lines[0] == r"\begin{align}" and lines[-1] == r"\end{align}"
    assert len(lines) - 2 == len(equations(cell).splitlines())
    assert all(line.count(" &= ") == 1 for line in lines[1:-1])
    assert text.count("{") == text.count("}")
    assert text.count(r"\bigl(") == text.count(r"\bigr)")
    assert text.isascii()
