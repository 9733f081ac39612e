"""Equations as a person would write them: the paper's lines, golden files, and that what is printed is true."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from cell_calls import CORE
from hypothesis import given
from hypothesis import strategies as st
from program_twin import elements, leaves_of, parameters_of, run
from runnable_cell_strategies import SYMBOLS, Numbers, cells, numbers_for

from rrnn.automata import (
    Cell,
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
    silu,
    sin,
    softplus,
    sqrt,
    step,
    tanh,
)
from rrnn.ir import Op, lower
from rrnn.ir.equations import Equations, equations, latex, scan_text, state_symbols
from rrnn.ir.interpreter import initial_state
from rrnn.ir.notation import LATEX, PLAIN, Symbol
from rrnn.semirings import SEMIRINGS, Semiring
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
    return cell.final("q1").output(*output if isinstance(output, tuple) else (output,))


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
    "a state that time does not change": (
        Cell("c").initial("q0", sigmoid(parameter("r"))).loop("q0", one).arc("q0", "q1", one).arc("q1", "q2", U)
        .final("q0", parameter("p") * parameter("s") + 0.5).final("q1", parameter("p") * parameter("s") + 0.5)
        .final("q2").output(TANH)
    ),
    "log (1 − f)": b_like("max-plus", log_sigmoid(linear("f")), log_sigmoid(-linear("f")) + U),
    "a projection as it is": b_like("real", linear("u"), sigmoid(U) * U),
    "no state": Cell("c").initial("q0").loop("q0", one).final("q0", parameter("p")),
    "an automaton that is always on": b_like("real", one, U, score),
    "complex numbers": b_like("complex", polar(F, linear("t")), complex(U, linear("w")), (score.re, score.im)),
    "real weights over complex": (
        b_like("complex", F, U, (score.re,)).epsilon("q1", "q2", 0.5).final("q2", parameter("p"))
    ),
    "expectations": b_like("expectation", pair(F, U), F, (score.r / (1 + score.p * score.p),)),
    "signs and logarithms": (
        b_like("signed-log", construct("signed", 1, log_sigmoid(linear("f"))), U, (score.sign * exp(score.log),))
    ),
    "quotients and circular functions": b_like("real", F, sin(U) * cos(U) / (1 + exp(-U) / 2), silu(score) / (F + 2)),
    "several outputs": b_like("real", F, U, (tanh(score), F * score)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")
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

    def __truediv__(self, other: float) -> Value:
        return Value(float(self) / other)


class Element(tuple[float, ...]):
    """An element of several components, for which ⊕ and ⊗ are written + and *."""

    ring: Semiring

    def _joined(self, numbers: Any) -> Element:
        element = type(self)(numbers)
        element.ring = self.ring
        return element

    def __add__(self, other: Any) -> Element:
        return self._joined(self.ring.plus(tuple(self), tuple(other)))

    def __mul__(self, other: Any) -> Element:
        return self._joined(self.ring.times(tuple(self), tuple(other)))

    def component(self, name: str) -> Value:
        return Value(self[self.ring.components.index(name)])


def element_of(ring: Semiring, numbers: Any) -> Any:
    """Return what a state or score is here: a number, or an element."""
    if not ring.components:
        return numbers
    element = Element(numbers)
    element.ring = ring
    return element


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
    "sin": math.sin,
    "cos": math.cos,
    "where": lambda c, a, b: a if c else b,
    "sign": lambda x: (x > 0) - (x < 0),
    "abs": abs,
}
_NAME = r"[^\W\d][^\W⁰¹²³⁴⁵⁶⁷⁸⁹₀ₜ]*′*[⁰¹²³⁴⁵⁶⁷⁸⁹]*(?:ₜ₋₁|ₜ|₀)?"


def function(ring: Semiring, name: str) -> Any:
    """Return what a word before a bracket means."""

    def call(*values: Any) -> Any:
        return element_of(ring, values) if name == "element" else FUNCTIONS[name](*values)

    return call


def value_of(formula: str, symbols: dict[str, Any], ring: Semiring) -> Any:
    """Read a printed formula, by turning it into Python; KeyError for a symbol that has no value yet."""
    text = re.sub(r"(W_[^ ]+) (?:vₜ|xₜ|v′ₜ|\[[^]]*\])", r"\1", formula)  # W v is one number here
    text = text.replace("log σ(", "logσ(").replace("{", "(").replace("}", ")")
    text = text.replace("[", "truth(").replace("]", ")").replace("⟨", "element(").replace("⟩", ")")
    reads = {
        f".{c}": chr(0xE000 + i) for i, c in enumerate(ring.components)
    }  # c.re: kept out of what names are
    for read, mark in reads.items():
        text = re.sub(rf"{re.escape(read)}(?![\w(])", mark, text)
    text = re.sub(r"\|([^|]*)\|", r"abs(\1)", text)
    text = re.sub(r"(\d(?:e−?\d+)?) (?=[^\W\d]|[(√])", r"\1 * ", text)  # 2 x is a product
    signs = {"≥": ">=", "⊙": "*", "·": "*", "⊗": "*", "⊕": "+", "−": "-", "∨": "|", "∧": "&", "∞": "inf"}
    for sign, python in signs.items():
        text = text.replace(sign, python)

    def name(match: re.Match[str]) -> str:
        word = match[0]
        known = word in FUNCTIONS or word == "element"
        if known and text[match.end() : match.end() + 1] == "(":
            return f"F({word!r})"
        return "math.inf" if word == "inf" else f"S[{word!r}]"

    for c in ring.components:
        text = re.sub(rf"\.{c}\b", f".component({c!r})", text)
    text = re.sub(
        rf"(?<=\.)component\('\w+'\)|√|{_NAME}|(?<![\w.])\d[\d.]*(?:e-?\d+)?",
        lambda m: m[0] if "'" in m[0] else name(m) if not m[0][0].isdigit() else f"Value({m[0]})",
        text,
    )
    for read, mark in reads.items():
        text = text.replace(mark, f".component({read[1:]!r})")
    values = {k: v if isinstance(v, Element) else Value(v) for k, v in symbols.items()}
    found = eval(text, {"F": partial(function, ring), "S": values, "math": math, "Value": Value})
    return found if isinstance(found, Element) else Value(found)


def follow(cell: Cell, numbers: Numbers, symbol: str, state: list[float]) -> tuple[dict[str, Any], Equations]:
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
        **{
            writer.state(s, "t-1"): element_of(cell.semiring, x)
            for s, x in enumerate(elements(program, state))
        },
        writer.input_letter + "ₜ": leaves[Op.INPUT][0],
    }
    for line in equations(cell).splitlines():
        left, _, right = line.partition(" = ")
        symbols[left.strip()] = value_of(right, symbols, cell.semiring)
    return symbols, writer


def check_lines(cell: Cell, numbers: Numbers, string: str) -> None:
    program = lower(cell).program
    for t, expected in enumerate(run(program, numbers, string)):
        symbols, writer = follow(cell, numbers, string[t], expected.before)
        for s, new in enumerate(elements(program, expected.after)):
            assert near(symbols[writer.state(s, "t")], new)
        if program.states or writer.score_symbol in symbols:
            assert near(symbols[writer.score_symbol], expected.score)
        for k, output in enumerate(expected.outputs):
            assert near(symbols[writer.output(k)], output)
    starts = initial_state(program, parameters_of(program, numbers))
    symbols, writer = follow(cell, numbers, string[0], starts)
    for s, start in enumerate(elements(program, starts)):
        assert near(symbols.get(writer.state(s, "0"), program.semiring.zero), start)


def near(got: Any, expected: Any) -> bool:
    """Return whether two numbers or elements agree; pytest.approx compares tuples by their elements."""
    return (tuple(got) if isinstance(got, tuple) else got) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_printed_equations_are_the_recurrence(semiring: str, data: st.DataObject) -> None:
    cell = data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    check_lines(cell, numbers, data.draw(st.text(SYMBOLS, min_size=1, max_size=3)))


SINGLE = [
    name for name, make in CELLS.items() if not make().families
]  # sums over an index are not parsed here


@pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")
@pytest.mark.parametrize(
    "cell", [*GALLERY.values(), *(CELLS[name]() for name in SINGLE)], ids=[*GALLERY, *SINGLE]
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


def test_chunks_of_families() -> None:
    text = scan_text(get_cell("Mamba"))
    assert "a chunk of steps carries 2 numbers for each index" in text
    assert "cᵢ → cᵢ : exp(δₜ ⊙ Aᵢ)" in text
    assert "such cells run one step after another" in scan_text(get_cell("DeltaNet"))


def test_gradients_have_another_symbol_where_a_weight_is_called_delta() -> None:
    text = scan_text(get_cell("Mamba"))
    assert "(∂ is dL/d·)" in text and "∂cᵢₜ gets     : ∂hₜ ⊙ Cᵢₜ" in text
    assert "(δ is dL/d·)" in scan_text(get_cell("B"))
    own = Symbol("c", "1", "t", "∂", "i")
    assert PLAIN.symbol(own) == "∂c¹ᵢₜ" and LATEX.symbol(own) == r"\partial \mathbf{c}^{(1)}_{i, t}"
