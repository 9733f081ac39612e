"""Programs as text, and the verifier: every kind of malformed program is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from runnable_cell_strategies import cells

from rrnn.automata import Cell
from rrnn.errors import ProgramError
from rrnn.ir import Instruction, Op, Program, adjoint, lower, reverse_scan_form, scan_form, verify
from rrnn.ir.program import Output
from rrnn.zoo import get_cell


def program(name: str = "C") -> Program:
    return lower(get_cell(name)).program


@given(cells())
def test_text_round_trips(cell: Cell) -> None:
    p = lower(cell).program
    derived = [p, scan_form(p).program]
    if p.semiring.has_gradient:
        derived += [adjoint(p).step, adjoint(p).epilogue, reverse_scan_form(p).program]
    for q in derived:
        again = Program.parse(q.text)
        assert again == q
        assert hash(again) == hash(q)
        assert str(again) == q.text


def test_reading_is_done_once() -> None:
    text = program().text
    assert Program.parse(text) is Program.parse(text)


def test_regions() -> None:
    p = program("F")
    sigmoid_r = next(n for n, i in enumerate(p.instructions) if i == Instruction(Op.SIGMOID, (2,)))
    assert sigmoid_r in p.per_unit
    assert p.of_kind("output")[0] not in p.per_unit
    assert not p.uses_input
    assert program("SRU").uses_input
    assert p.of_kind("score")[0] in p.depending_on(Op.STATE)
    assert p.needed_for([0]) == {0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("rrnn-program 1", "rrnn-program 3"), "starts with 'rrnn-program 1'"),
        (lambda t: "", "starts with"),
        (lambda t: t.replace("%3 = state 1", "%3 = stat 1"), "line 10 .* cannot be read"),
        (lambda t: t.replace("%3 = state 1", "%4 = state 1"), "cannot be read"),
        (lambda t: t.replace("%3 = state 1", "%3 = state one"), "cannot be read"),
        (lambda t: t.replace("%3 = state 1", "%3 := state 1"), "cannot be read"),
        (lambda t: t.replace("out score 0", "out score zero"), "cannot be read"),
        (lambda t: t.replace("out score 0 %22", "out score"), "cannot be read"),
        (lambda t: t.replace("semiring real\n", ""), "lacks one of"),
        (lambda t: t.replace("name C\n", "name\n"), "lacks one of"),
        (lambda t: t.replace("initial %0 %0", "initial %0 %x"), "lacks one of"),
        (lambda t: t.replace("const 1.0", "const 1"), "not as `Program.text` writes it"),
        (lambda t: t.replace("const 1.0", "const nan"), "is NaN"),
        (lambda t: t + "\n", "not as"),
        (lambda t: t.replace("name C\n", "name C\nname C\n"), "not as"),
        (lambda t: t.replace("semiring real", "semiring unreal"), "unknown semiring"),
    ],
)
def test_text_that_cannot_be_read(change: Any, message: str) -> None:
    text = program().text
    assert change(text) != text
    with pytest.raises(ProgramError, match=message):
        Program.parse(change(text))


def with_instruction(p: Program, n: int, instruction: Instruction) -> Program:
    return replace(p, instructions=(*p.instructions[:n], instruction, *p.instructions[n + 1 :]))


def with_outputs(p: Program, *outputs: tuple[str, int, int]) -> Program:
    return replace(p, outputs=tuple(Output(*o) for o in outputs))


LAST = len(program().instructions) - 1
MALFORMED = {
    "an op with an argument too few": (
        lambda p: with_instruction(p, LAST, Instruction(Op.ADD, (0,))),
        "takes 2 arguments; got 1",
    ),
    "a leaf with an argument": (
        lambda p: with_instruction(p, 2, Instruction(Op.STATE, (0,), 0)),
        "takes 0 arguments; got 1",
    ),
    "a use before its computation": (
        lambda p: with_instruction(p, LAST, Instruction(Op.TANH, (LAST,))),
        "not computed before it",
    ),
    "a use of nothing": (
        lambda p: with_instruction(p, LAST, Instruction(Op.TANH, (-1,))),
        "not computed before it",
    ),
    "no attribute": (lambda p: with_instruction(p, 2, Instruction(Op.STATE)), "needs an attribute"),
    "an attribute too many": (
        lambda p: with_instruction(p, LAST, Instruction(Op.TANH, (0,), 1)),
        "takes no attribute",
    ),
    "NaN": (lambda p: with_instruction(p, 0, Instruction(Op.CONST, (), float("nan"))), "is NaN"),
    "an unknown state": (lambda p: with_instruction(p, 2, Instruction(Op.STATE, (), 2)), "there are 2"),
    "a negative index": (lambda p: with_instruction(p, 2, Instruction(Op.STATE, (), -1)), "out of range"),
    "half an index": (lambda p: with_instruction(p, 2, Instruction(Op.STATE, (), 0.5)), "out of range"),
    "an unknown projection": (lambda p: replace(p, projections=p.projections[:1]), "out of range"),
    "an unknown parameter": (lambda p: replace(p, parameters=()), "out of range"),
    "a name twice": (lambda p: replace(p, projections=("f1", "f1", "u1", "u2")), "occurs twice"),
    "a name with a space": (lambda p: replace(p, name="a b"), "is not a name"),
    "an empty name": (lambda p: replace(p, states=("q1", "")), "is not a name"),
    "an unknown kind of output": (
        lambda p: with_outputs(p, *p.outputs, ("gain", 0, 0)),
        "output gain 0 %0 is not valid",
    ),
    "an output that is not computed": (
        lambda p: with_outputs(p, *p.outputs[:-1], ("output", 0, LAST + 1)),
        "is not valid",
    ),
    "an output out of range": (lambda p: with_outputs(p, *p.outputs, ("state", 2, 0)), "is not valid"),
    "an output twice": (lambda p: with_outputs(p, *p.outputs, p.outputs[0]), "given twice"),
    "a state without its new value": (lambda p: with_outputs(p, *p.outputs[1:]), "state 0 is missing"),
    "no score": (
        lambda p: with_outputs(p, *(o for o in p.outputs if o.kind != "score")),
        "score 0 is missing",
    ),
    "outputs that do not belong together": (
        lambda p: with_outputs(p, *p.outputs, ("grad_state", 0, 0)),
        "cannot have outputs of the kinds",
    ),
    "a gradient in a forward program": (
        lambda p: with_instruction(p, 3, Instruction(Op.GRAD_OUTPUT)),
        "grad_output.* cannot be read",
    ),
    "a scan that reads the state": (
        lambda p: with_outputs(p, ("entry", 1, 2)),
        "state.* cannot be read by a program that gives entry",
    ),
    "no initial value": (lambda p: replace(p, initial=p.initial[:1]), "one initial value"),
    "an initial value out of range": (lambda p: replace(p, initial=(0, 99)), "one initial value"),
    "an initial value from the input": (lambda p: replace(p, initial=(0, LAST)), "one initial value"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed(kind: str) -> None:
    change, message = MALFORMED[kind]
    broken = change(verify(program()))
    with pytest.raises(ProgramError, match=message):
        verify(broken)
    with pytest.raises(ProgramError):  # and no text brings it back
        Program.parse(broken.text)


def test_derived_programs_lack_nothing() -> None:
    step, epilogue = adjoint(program()).step, adjoint(program()).epilogue
    with pytest.raises(ProgramError, match="grad_state 0 is missing"):
        verify(with_outputs(step, *(o for o in step.outputs if o[:2] != ("grad_state", 0))))
    with pytest.raises(ProgramError, match="grad_param 1 is missing"):
        verify(with_outputs(epilogue, *(o for o in epilogue.outputs if o[:2] != ("grad_param", 1))))
    reverse = reverse_scan_form(program()).program
    with pytest.raises(ProgramError, match="direct 1 is missing"):
        verify(with_outputs(reverse, *(o for o in reverse.outputs if o[:2] != ("direct", 1))))
