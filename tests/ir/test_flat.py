"""Elements of a semiring in programs: as one instruction each, and written out as numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from runnable_cell_strategies import cells

from rrnn.automata import Cell, complex, linear, one, parameter, score
from rrnn.errors import ProgramError
from rrnn.ir import Instruction, Op, Program, adjoint, lower, reverse_scan_form, scan_form, verify
from rrnn.ir.program import Output
from rrnn.ir.semiring_code import single_op
from rrnn.semirings import SEMIRINGS, Semiring
from rrnn.zoo import get_cell

U, V, F, G = (linear(name) for name in "uvfg")


def b_over_complex() -> Cell:
    cell = Cell("B", "complex").initial("q0").loop("q0", one).arc("q0", "q1", complex(U, V))
    return cell.loop("q1", complex(F, G)).final("q1")


ELEMENTS = """\
%0 = const 0.0
%1 = element %0 %0
%2 = state 0
%3 = preact 2
%4 = preact 3
%5 = element %3 %4
%6 = times %5 %2
%7 = preact 0
%8 = preact 1
%9 = element %7 %8
%10 = plus %6 %9
%11 = component %10 0
%12 = component %10 1
initial %1
out state 0 %10
out score 0 %10
out output 0 %11
out output 1 %12
"""
FLAT = """\
rrnn-program 1
name B
semiring complex
projections u v f g
parameters
states q1.re q1.im
%0 = const 0.0
%1 = state 0
%2 = state 1
%3 = preact 2
%4 = preact 3
%5 = mul %3 %1
%6 = mul %4 %2
%7 = sub %5 %6
%8 = mul %3 %2
%9 = mul %4 %1
%10 = add %8 %9
%11 = preact 0
%12 = preact 1
%13 = add %7 %11
%14 = add %10 %12
initial %0 %0
out state 0 %13
out state 1 %14
out score 0 %13
out score 1 %14
out output 0 %13
out output 1 %14
"""


def test_b_over_complex() -> None:
    program = lower(b_over_complex()).program
    assert program.text.endswith(ELEMENTS) and program.states == ("q1",)
    assert program.flat.text == FLAT
    assert program.output_count == program.flat.output_count == 2


def test_a_flat_program_is_flat() -> None:
    program = lower(b_over_complex()).program
    assert program.flat.flat is program.flat
    for derived in (adjoint(program).step, adjoint(program).epilogue, reverse_scan_form(program).program):
        assert derived.flat is derived
    real = lower(get_cell("B")).program
    assert real.flat is real


def test_entries_of_a_scan_are_elements() -> None:
    form = scan_form(lower(b_over_complex()).program)
    assert form.step == form.carried == {(0, 1), (1, 1)}
    kinds = [(o.kind, o.index) for o in form.program.flat.outputs]
    assert sorted(kinds) == [("entry", i) for i in (2, 3, 6, 7)]  # two components of entries 1 and 3


def test_real_weights_have_no_imaginary_part() -> None:
    # 0 · x folds: a real weight times an element is two products, not four.
    cell = Cell("B", "complex").initial("q0").loop("q0", one).arc("q0", "q1", U).loop("q1", F).final("q1")
    flat = lower(cell).program.flat
    assert [i.op for i in flat.instructions].count(Op.MUL) == 2


@given(cells())
def test_flat_programs_have_no_elements(cell: Cell) -> None:
    program = lower(cell).program
    flat, ring = program.flat, program.semiring
    on_elements = {Op.ELEMENT, Op.COMPONENT, Op.PLUS, Op.TIMES}
    assert not any(i.op in on_elements for i in flat.instructions)
    assert len(flat.states) == len(flat.initial) == ring.size * len(program.states)
    assert len(flat.of_kind("score")) == ring.size
    for p in (program, flat, scan_form(program).program.flat):
        assert Program.parse(p.text) == p
    if ring.size == 1 and single_op(ring, "plus") and single_op(ring, "times"):
        assert flat is program


def test_single_ops() -> None:
    found = {name: (single_op(ring, "plus"), single_op(ring, "times")) for name, ring in SEMIRINGS.items()}
    assert found == {
        "boolean": (Op.MAX, Op.MIN),
        "complex": (None, None),
        "counting": (Op.ADD, Op.MUL),
        "expectation": (None, None),
        "log": (Op.LOGADDEXP, Op.ADD),
        "max-plus": (Op.MAX, Op.ADD),
        "max-times": (Op.MAX, Op.MUL),
        "min-plus": (Op.MIN, Op.ADD),
        "real": (Op.ADD, Op.MUL),
        "signed-log": (None, None),
    }


# ---- definitions -----------------------------------------------------------------------------------------------


def test_a_text_names_the_definition() -> None:
    text = lower(b_over_complex()).program.text
    first, key = text.splitlines()[2].rsplit(" ", 1)
    assert first == "semiring complex" and len(key) == 16
    assert Program.parse(text).text == text
    other = Semiring(
        "complex",
        components=("re", "im"),
        zero=(0.0, 0.0),
        one=(1.0, 0.0),
        plus=lambda s, a, b: (s.add(a[0], b[0]), s.add(a[1], b[1])),
        times=lambda s, a, b: (s.mul(a[0], b[0]), s.mul(a[1], b[1])),
    )
    changed = text.replace("name B", "name B_again")  # texts that were read before are known
    with mock.patch.dict(SEMIRINGS):  # restores the order, too
        SEMIRINGS["complex"] = other
        with pytest.raises(ProgramError, match="its semiring is defined otherwise here"):
            Program.parse(changed)
        del SEMIRINGS["complex"]
        with pytest.raises(ProgramError, match="unknown semiring 'complex'"):
            Program.parse(changed)


def test_where_ops_say_it_all_no_definition_is_named() -> None:
    for name in ("real", "max-plus", "counting"):
        cell = Cell("B", name).initial("q0").loop("q0", one).arc("q0", "q1", one).loop("q1", one).final("q1")
        assert f"\nsemiring {name}\n" in lower(cell).program.text
    assert "\nsemiring complex\n" in lower(b_over_complex()).program.flat.text


# ---- malformed ones --------------------------------------------------------------------------------------------


def change(n: int, instruction: Instruction) -> Any:
    return lambda p: replace(p, instructions=(*p.instructions[:n], instruction, *p.instructions[n + 1 :]))


def output(kind: str, index: int, value: int) -> Any:
    kept = lambda p: [o for o in p.outputs if (o.kind, o.index) != (kind, index)]  # noqa: E731
    return lambda p: replace(p, outputs=(*kept(p), Output(kind, index, value)))


MALFORMED = {
    "an element of one component": (change(5, Instruction(Op.ELEMENT, (3,))), "takes 2 arguments; got 1"),
    "a third component": (change(11, Instruction(Op.COMPONENT, (10,), 2)), "out of range: there are 2"),
    "no component": (change(11, Instruction(Op.COMPONENT, (10,))), "needs an attribute"),
    "a component of a number": (
        change(11, Instruction(Op.COMPONENT, (3,), 0)),
        r"\(component\) takes elements alone",
    ),
    "a sum of an element and a number": (
        change(10, Instruction(Op.PLUS, (6, 7))),
        r"\(plus\) takes elements alone",
    ),
    "an element as a number": (change(11, Instruction(Op.TANH, (10,))), r"\(tanh\) takes numbers alone"),
    "an element of elements": (
        change(9, Instruction(Op.ELEMENT, (2, 2))),
        r"\(element\) takes numbers alone",
    ),
    "a number as a state": (output("state", 0, 3), "state %3 must be an element"),
    "a number as a score": (output("score", 0, 11), "score %11 must be an element"),
    "an element as an output": (output("output", 1, 10), "output %10 must be a number"),
    "a number as a start": (lambda p: replace(p, initial=(0,)), "initial %0 must be an element"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed(what: str) -> None:
    make, message = MALFORMED[what]
    wrong = make(lower(b_over_complex()).program)
    with pytest.raises(ProgramError, match=message):
        verify(wrong)
    with pytest.raises(ProgramError):
        Program.parse(wrong.text)


def test_elements_are_numbers_over_the_reals() -> None:
    program = lower(Cell("p").initial("q0").loop("q0", one).final("q0", parameter("p")).output(score)).program
    with pytest.raises(ProgramError, match=r"\(component\): over real an element is a number"):
        verify(
            replace(
                program,
                instructions=(*program.instructions, Instruction(Op.COMPONENT, (0,), 0)),
            )
        )
