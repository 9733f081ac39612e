"""Programs on Python floats: op by op, and the same functions as in the cell language."""

from __future__ import annotations

import math

import pytest

from rrnn.arithmetic import BY_NAME
from rrnn.automata import Cell, Expr, complex, exp, expressions, linear, one, score, sigmoid, tanh
from rrnn.automata import evaluate as evaluate_expression
from rrnn.errors import OutputWarning
from rrnn.ir import Instruction, Op, lower
from rrnn.ir.builder import Builder, Value
from rrnn.ir.interpreter import evaluate, initial_state, run_step
from rrnn.semirings import REAL
from rrnn.zoo import get_cell

POINTS = [-math.inf, -800.0, -40.0, -1.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 40.0, 800.0, math.inf]


@pytest.mark.parametrize("name", sorted({*expressions.FUNCTIONS, "neg"}))
def test_the_cell_language_means_the_same(name: str) -> None:
    b = Builder(REAL)
    leaf = b.leaf(Op.PREACT, 0)
    n = getattr(b.arithmetic, name)(Value(b, leaf)).n
    call = expressions.Call(name, linear("x"))
    for x in POINTS:
        got = evaluate(b.instructions, {leaf: x})[n]
        assert got == pytest.approx(evaluate_expression(call, {"x": x}, "real"), rel=1e-15, nan_ok=True)


def test_ops_run_in_order_and_fixed_values_win() -> None:
    code = [
        Instruction(Op.CONST, (), 2.0),
        Instruction(Op.PREACT, (), 0),
        Instruction(Op.MUL, (0, 1)),
        Instruction(Op.WHERE, (1, 2, 0)),
    ]
    assert evaluate(code, {1: 3.0}) == [2.0, 3.0, 6.0, 6.0]
    assert evaluate(code, {1: 0.0}) == [2.0, 0.0, 0.0, 2.0]
    assert evaluate(code, {1: 3.0}, fixed={2: 10.0}) == [2.0, 3.0, 10.0, 10.0]
    assert all(BY_NAME[op.text] is op for op, *_ in code)


def test_elements_run_as_their_numbers() -> None:
    # c' = (0.5 + 0.5i) c + u, from c = 1 + 2i with u = 3
    cell = get_cell("B").with_semiring("complex")._with(arcs=(), given_outputs=())
    cell = cell.loop("q0", 1).arc("q0", "q1", linear("u")).loop("q1", complex(0.5, 0.5))
    program = lower(cell).program
    out = run_step(program, {Op.PREACT: [3.0], Op.STATE: [1.0, 2.0]})
    assert out == {
        **{("state", 0): 2.5, ("state", 1): 1.5},
        **{("score", 0): 2.5, ("score", 1): 1.5, ("output", 0): 2.5, ("output", 1): 1.5},
    }
    assert initial_state(program, []) == [0.0, 0.0]


SIGNED = (
    Cell("B", "signed-log")
    .initial("q0")
    .loop("q0", one)
    .arc("q0", "q1", linear("u"))
    .loop("q1", 0.5)
    .final("q1")
)


@pytest.mark.parametrize("output", [score.log, score.sign * score.log, exp(-score.log)])
def test_an_output_that_is_not_finite_where_paths_cancel(output: Expr) -> None:
    """Such a layer gives a NaN loss as soon as a weight is 0, so that there must be a word about it."""
    with pytest.warns(
        OutputWarning, match=r"'B'.*where a weight is 0 or where paths cancel.*tanh\(score\.log\)"
    ):
        lower(SIGNED.output(output))


@pytest.mark.parametrize("output", [tanh(score.log), score.sign * exp(score.log), score.sign])
def test_outputs_that_stay_finite_where_paths_cancel(output: Expr) -> None:
    lower(SIGNED.output(output))


def test_positive_weights_do_not_cancel() -> None:
    cell = Cell("P", "signed-log").initial("q0").loop("q0", one).arc("q0", "q1", sigmoid(linear("u")))
    lower(cell.loop("q1", 0.5).final("q1").output(score.log))
