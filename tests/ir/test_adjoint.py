"""Reverse mode on the IR, against torch's own: op by op, then over whole sequences of any cell; the rules for ties and
zeros, which no derivative settles, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from op_twins import TORCH
from program_twin import leaves_of, parameters_of, run
from runnable_cell_strategies import DIFFERENTIABLE, SYMBOLS, Numbers, cells, numbers_for
from torch import Tensor

from rrnn.automata import Cell, linear, one, parameter, sigmoid, tanh
from rrnn.errors import ProgramError
from rrnn.ir import Op, Program, adjoint, lower
from rrnn.ir.builder import Builder
from rrnn.ir.interpreter import initial_state, run_step
from rrnn.semirings import get_semiring
from rrnn.zoo import get_cell


def tiny(semiring: str, op: Op) -> Program:
    """A program of one op on projections."""
    b = Builder(get_semiring(semiring))
    value = b.emit(op, *(b.leaf(Op.PREACT, k) for k in range(op.arity)))
    names = tuple("xyz"[: op.arity])
    outputs = [("score", 0, value), ("output", 0, value)]
    return b.finish("tiny", projections=names, parameters=(), states=(), initial=(), outputs=outputs)[0]


def gradients(program: Program, *at: float, of: float = 1.0) -> list[float]:
    out = run_step(adjoint(program).step, {Op.PREACT: at, Op.GRAD_OUTPUT: [of]})
    return [out["grad_preact", k] for k in range(len(at))]


@pytest.mark.parametrize("op", TORCH, ids=lambda op: op.text)
def test_every_op(op: Op) -> None:
    semiring = {Op.LOGADDEXP: "log", Op.MAX: "max-plus", Op.MIN: "min-plus"}.get(op, "real")
    positive = op in (Op.LOG, Op.SQRT)
    points = [(0.7, -1.3, 0.4), (1.9, 0.4, 0.2), (0.1, 2.5, 1.0), (30.0, -40.0, 7.0), (0.0, 0.3, 0.6)]
    points = points[:4] if positive else [*points, (-0.6, 0.3, -0.3)]
    for at in points:
        x = torch.tensor(at[: op.arity], dtype=torch.float64, requires_grad=True)
        value = TORCH[op](*x.unbind())
        if value.requires_grad:
            (value * 1.5).backward()
        expected = [0.0] * op.arity if x.grad is None else x.grad.tolist()
        assert gradients(tiny(semiring, op), *at[: op.arity], of=1.5) == pytest.approx(expected, rel=1e-12)


# ---- ties and zeros --------------------------------------------------------------------------------------------


def test_the_first_wins_a_tie() -> None:
    for semiring, op in (("max-plus", Op.MAX), ("max-times", Op.MAX), ("min-plus", Op.MIN)):
        assert gradients(tiny(semiring, op), 0.5, 0.5) == [1.0, 0.0]
    assert gradients(tiny("max-times", Op.MAX), 0.0, 0.0) == [1.0, 0.0]  # a zero of 0 is an ordinary number
    assert gradients(tiny("log", Op.LOGADDEXP), 0.5, 0.5) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("semiring", "op", "zero"),
    [("max-plus", Op.MAX, -math.inf), ("min-plus", Op.MIN, math.inf), ("log", Op.LOGADDEXP, -math.inf)],
)
def test_an_infinite_zero_gets_no_gradient(semiring: str, op: Op, zero: float) -> None:
    program = tiny(semiring, op)
    assert gradients(program, 0.5, zero) == [1.0, 0.0]
    assert gradients(program, zero, 0.5) == [0.0, 1.0]
    assert gradients(program, zero, zero) == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")
@pytest.mark.parametrize("semiring", ["max-plus", "log"])
def test_a_score_of_zero_gives_no_gradient(semiring: str) -> None:
    # A bigram has no score after one symbol: −∞, tanh of which is flat.
    program = lower(get_cell("C").with_semiring(semiring)).program
    numbers = Numbers({"f1.bias": 0.1, "f2.bias": 0.2}, {"a": {"f1": 0.3, "u1": 0.4, "f2": -0.5, "u2": 0.6}})
    out = backward(program, numbers, "a", [1.0], [0.0, 0.0])
    assert out.preacts == [[0.0] * 4]
    assert out.parameters == [0.0] * 2
    assert out.state == [0.0] * 2
    assert run(program, numbers, "a")[0].output == -1.0


def test_gradient_follows_the_best_path() -> None:
    # max{f + c', u}: at each step only the winner gets anything.
    program = lower(get_cell("B-max-plus")).program
    row = {"a": {"u": 3.0, "f": 0.0}, "b": {"u": -5.0, "f": 0.0}}
    out = backward(program, Numbers({"f.bias": 0.0}, row), "ab", [0.0, 0.0], [1.0])
    assert out.preacts == [[1.0, 0.0], [0.0, 0.5]]  # by position: u then f; d log σ(0) = 0.5


# ---- whole sequences -------------------------------------------------------------------------------------------


class Gradients:
    def __init__(
        self, preacts: list[list[float]], inputs: list[float], parameters: list[float], state: list[float]
    ):
        self.preacts, self.inputs, self.parameters, self.state = preacts, inputs, parameters, state


def backward(
    program: Program, numbers: Numbers, string: str, of_outputs: list[Any], of_state: list[float]
) -> Gradients:
    """The adjoint program, step by step from the end, then its epilogue. A number stands for one output's gradient."""
    form = adjoint(program)
    carried, preacts, inputs = of_state, list[list[float]](), list[float]()
    units = [0.0] * len(form.units)
    for step, symbol, g in reversed(
        list(zip(run(program, numbers, string), string, of_outputs, strict=True))
    ):
        leaves = leaves_of(program, numbers, symbol)
        out = run_step(
            form.step,
            leaves
            | {
                Op.STATE: step.before,
                Op.GRAD_OUTPUT: g if isinstance(g, list) else [g],
                Op.GRAD_STATE: carried,
            },
        )
        carried = [out["grad_state", s] for s in range(len(carried))]
        preacts.insert(0, [out["grad_preact", k] for k in range(len(program.projections))])
        inputs.insert(0, out.get(("grad_input", 0), 0.0))
        units = [u + out["grad_unit", j] for j, u in enumerate(units)]
    out = run_step(form.epilogue, {Op.PARAM: parameters_of(program, numbers), Op.GRAD_UNIT: units})
    learned = [out["grad_param", p] for p in range(len(program.parameters))]
    return Gradients(preacts, inputs, learned, carried)


def by_torch(
    program: Program, numbers: Numbers, string: str, of_outputs: list[list[float]], of_state: list[float]
) -> Gradients:
    """The same by autograd through the forward program; the first state is a leaf of its own."""

    def leaf(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, requires_grad=True)

    flat, parameters = program.flat, parameters_of(program, numbers)
    learned, first = leaf(parameters), leaf(initial_state(program, parameters))
    rows = [leaves_of(program, numbers, symbol) for symbol in string]
    preacts, inputs = [leaf(row[Op.PREACT]) for row in rows], [leaf(row[Op.INPUT]) for row in rows]
    state, total = list(first.unbind()), torch.zeros((), dtype=torch.float64)
    for x, v, g in zip(preacts, inputs, of_outputs, strict=True):
        leaves = {Op.PARAM: learned, Op.PREACT: x, Op.INPUT: v, Op.STATE: state}
        values: list[Tensor] = []
        for op, args, attr in flat.instructions:
            if op is Op.CONST:
                values.append(torch.tensor(attr, dtype=torch.float64))
            elif op.leaf:
                values.append(leaves[op][int(attr or 0)])
            else:
                values.append(TORCH[op](*(values[a] for a in args)))
        state = [values[n] for n in flat.of_kind("state").values()]
        for k, n in flat.of_kind("output").items():
            total = total + g[k] * values[n]
    for c, g in zip(state, of_state, strict=True):
        total = total + (g * c if g else 0.0)
    if total.requires_grad:
        total.backward()

    def grad(x: Tensor) -> list[float]:
        return [0.0] * x.numel() if x.grad is None else x.grad.tolist()

    return Gradients([grad(x) for x in preacts], [grad(v)[0] for v in inputs], grad(learned), grad(first))


@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
@given(data=st.data())
def test_any_cell(semiring: str, data: st.DataObject) -> None:
    cell = data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    string = data.draw(st.text(SYMBOLS, min_size=1, max_size=4))
    program = lower(cell).program
    weight = st.sampled_from([1.0, -0.7, 0.3])
    of_outputs = [[data.draw(weight) for _ in range(program.output_count)] for _ in string]
    end = run(program, numbers, string)[-1].after
    of_state = [data.draw(weight) if math.isfinite(c) else 0.0 for c in end]
    got = backward(program, numbers, string, of_outputs, of_state)
    expected = by_torch(program, numbers, string, of_outputs, of_state)
    for mine, theirs in (
        *zip(got.preacts, expected.preacts, strict=True),
        (got.inputs, expected.inputs),
        (got.parameters, expected.parameters),
        (got.state, expected.state),
    ):
        scale = max([1.0, *(abs(x) for x in theirs)])
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-9 * scale)


@pytest.mark.parametrize("name", ["B", "C", "F", "SRU", "B+o", "F+o", "B-max-plus", "ngram4"])
def test_finite_differences(name: str) -> None:
    # No derivative at all on the other side: move a parameter a little and look.
    program = lower(get_cell(name)).program
    generator = torch.Generator().manual_seed(0)

    def draw() -> float:
        return torch.randn((), generator=generator, dtype=torch.float64).item()

    rows = {a: {name: draw() for name in [*program.projections, "input"]} for a in "ab"}
    numbers = Numbers({p: draw() for p in program.parameters}, rows)

    def total(parameters: dict[str, float]) -> float:
        return sum(s.output for s in run(program, Numbers(parameters, rows), "abba"))

    got = backward(program, numbers, "abba", [1.0] * 4, [0.0] * len(program.states)).parameters
    for p, slope in zip(program.parameters, got, strict=True):
        up, down = ({**numbers.parameters, p: numbers.parameters[p] + h} for h in (1e-5, -1e-5))
        assert slope == pytest.approx((total(up) - total(down)) / 2e-5, abs=1e-8)


# ---- shape -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", ["boolean", "counting"])
def test_no_gradient(semiring: str) -> None:
    cell = Cell("n", semiring).initial("q0").loop("q0", one).final("q0")
    with pytest.raises(ProgramError, match=f"the {semiring} semiring has no gradient"):
        adjoint(lower(cell).program)


def test_every_leaf_has_a_gradient() -> None:
    # A projection that folded away, a state that is only written: zero, and not missing.
    cell = (
        Cell("unused").initial("q0").arc("q0", "q1", linear("u") + 0 * linear("v")).loop("q1", one).final("q1")
        .output(tanh("score") + 0 * parameter("s"))
    )  # fmt: skip
    program = lower(cell).program
    form = adjoint(program)
    numbers = Numbers({"s": 1.0}, {"a": {"u": 0.5, "v": 2.0}})
    out = backward(program, numbers, "a", [1.0], [0.0] * 2)
    assert out.preacts[0][1] == 0.0
    assert out.parameters == [0.0]
    assert ("grad_input", 0) not in {o[:2] for o in form.step.outputs}


def test_parameters_leave_the_step_as_unit_values() -> None:
    # σ(r) is read by the step, r by the epilogue alone: one sum over time and batch a value, no σ' in the loop.
    program = lower(get_cell("F")).program
    form = adjoint(program)
    ops = {program.instructions[n].op for n in form.units}
    assert ops == {Op.SIGMOID, Op.PARAM}  # r, p¹, p² squashed, and biases, which are added as they are
    learned = {program.instructions[n].attr for n in form.units if program.instructions[n].op is Op.PARAM}
    assert {program.parameters[int(p or 0)] for p in learned} == {"f1.bias", "f2.bias"}
    assert all(i.op is not Op.GRAD_UNIT for i in form.step.instructions)


def test_a_parameter_used_in_two_ways() -> None:
    p = parameter("p")
    cell = Cell("two").initial("q0").loop("q0", one).arc("q0", "q1", linear("u") * p).final("q1", sigmoid(p))
    program = lower(cell).program
    out = backward(program, Numbers({"p": 0.4}, {"a": {"u": 1.5}}), "a", [1.0], [0.0])
    s = 1 / (1 + math.exp(-0.4))
    assert out.parameters == pytest.approx([1.5 * s + 1.5 * 0.4 * s * (1 - s)], rel=1e-14)
