"""Parallel in time: composed entries move the state as steps do, forwards over the semiring, backwards over reals."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_twin import elements, leaves_of, run
from runnable_cell_strategies import DIFFERENTIABLE, SYMBOLS, Numbers, cells, numbers_for

from rrnn.automata import Cell, linear, one, tanh
from rrnn.errors import ProgramError
from rrnn.ir import Op, Program, adjoint, lower, reverse_scan_form, scan_form
from rrnn.ir.builder import Builder
from rrnn.ir.interpreter import run_step
from rrnn.ir.scan import compose_closure
from rrnn.semirings import REAL, SEMIRINGS, Semiring, get_semiring
from rrnn.zoo import get_cell

Entries = dict[tuple[int, int], Any]  # elements of the semiring


def identity(semiring: Semiring, size: int) -> Entries:
    return {(i, i): semiring.one for i in range(size)}


def compose(semiring: Semiring, first: Entries, second: Entries) -> Entries:
    product: Entries = {}
    for (i, k), x in first.items():
        for (k2, j), y in second.items():
            if k == k2:
                product[i, j] = semiring.plus(product.get((i, j), semiring.zero), semiring.times(x, y))
    return product


def apply(semiring: Semiring, row: list[Any], entries: Entries) -> list[Any]:
    return [
        semiring.sum(semiring.times(row[i], x) for (i, k), x in entries.items() if k == j)
        for j in range(len(row))
    ]


def chunks(data: st.DataObject, length: int) -> list[tuple[int, int]]:
    """A cut of `length` steps into chunks of any lengths, empty ones too."""
    cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=4)))
    return list(pairwise([0, *cuts, length]))


def close(semiring: Semiring, a: list[Any], b: list[Any]) -> bool:
    """Return whether all elements agree; those of signed-log as the real numbers that they stand for."""
    if semiring.name == "signed-log":
        a, b = ([semiring.to_real(x) for x in row] for row in (a, b))
    pairs = [
        pair for x, y in zip(a, b, strict=True) for pair in zip(numbers_in(x), numbers_in(y), strict=True)
    ]
    return all(x == y or abs(x - y) <= 1e-9 * max(1.0, abs(x), abs(y)) for x, y in pairs)


def numbers_in(element: Any) -> tuple[float, ...]:
    return element if isinstance(element, tuple) else (element,)


def entries_of(program: Program, out: dict[tuple[str, int], float], size: int) -> Entries:
    """Return the entries that a step gave, (i, j) → element."""
    found = {index: x for (kind, index), x in out.items() if kind == "entry"}
    components = program.semiring.size
    return {
        divmod(k, size): program.semiring.element(found[k * components + c] for c in range(components))
        for k in {index // components for index in found}
    }


@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_chunks_compose_to_steps(semiring: str, data: st.DataObject) -> None:
    ring, cell = get_semiring(semiring), data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    string = data.draw(st.text(SYMBOLS, min_size=1, max_size=7))
    program = lower(cell).program
    form, steps = scan_form(program), run(program, numbers, string)
    row = [ring.one, *elements(program, steps[0].before)]
    for start, stop in chunks(data, len(string)):
        whole = identity(ring, form.size)
        for symbol in string[start:stop]:
            out = run_step(form.program, leaves_of(program, numbers, symbol))
            entries = entries_of(program, out, form.size)
            assert set(entries) == form.step
            whole = compose(ring, whole, entries | {(0, 0): ring.one})
        assert set(whole) <= form.carried | {(0, 0)}
        row = apply(ring, row, whole)
        expected = steps[stop - 1].after if stop else steps[0].before
        assert close(ring, row, [ring.one, *elements(program, expected)])


@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
@given(data=st.data())
def test_backwards_chunks_compose_to_the_adjoint(semiring: str, data: st.DataObject) -> None:
    cell = data.draw(cells(semiring))
    numbers = data.draw(numbers_for(cell))
    string = data.draw(st.text(SYMBOLS, min_size=1, max_size=6))
    program = lower(cell).program
    size, steps = len(program.flat.states), run(program, numbers, string)
    weight = st.sampled_from([1.0, -0.7, 0.3])
    of_outputs = [[data.draw(weight) for _ in range(program.output_count)] for _ in string]
    of_state = [data.draw(weight) if math.isfinite(c) else 0.0 for c in steps[-1].after]
    serial = adjoint_states(program, numbers, string, of_outputs, of_state)

    form = reverse_scan_form(program)
    row = [1.0, *of_state]
    for start, stop in reversed(chunks(data, len(string))):
        whole = identity(REAL, size + 1)
        for t in reversed(range(start, stop)):
            leaves = leaves_of(program, numbers, string[t])
            out = run_step(form.program, leaves | {Op.STATE: steps[t].before, Op.GRAD_OUTPUT: of_outputs[t]})
            jacobian = {divmod(index, size): x for (kind, index), x in out.items() if kind == "jacobian"}
            assert set(jacobian) == form.step
            entries: Entries = {(0, 0): 1.0}
            for (i, j), x in jacobian.items():  # carried'ᵢ = Σⱼ J[i, j] · (carriedⱼ + directⱼ)
                entries[j + 1, i + 1] = x
                entries[0, i + 1] = entries.get((0, i + 1), 0.0) + x * out["direct", j]
            whole = compose(REAL, whole, entries)
        reached = {(i - 1, j - 1) for i, j in whole if i and j}
        assert reached <= {(j, i) for i, j in form.carried}
        row = apply(REAL, row, whole)
        assert close(REAL, row, [1.0, *serial[start]])


def adjoint_states(
    program: Program, numbers: Numbers, string: str, of_outputs: list[list[float]], of_state: list[float]
) -> list[list[float]]:
    """dL/d state before each step, and after the last one, by the adjoint program."""
    form, carried, rows = adjoint(program).step, of_state, [of_state]
    steps = run(program, numbers, string)
    for t in reversed(range(len(string))):
        leaves = leaves_of(program, numbers, string[t])
        out = run_step(
            form,
            leaves | {Op.STATE: steps[t].before, Op.GRAD_OUTPUT: of_outputs[t], Op.GRAD_STATE: carried},
        )
        carried = [out["grad_state", s] for s in range(len(carried))]
        rows.insert(0, carried)
    return rows


@pytest.mark.parametrize(
    ("name", "forward", "backward"), [("B", 2, 1), ("C", 5, 3), ("F", 5, 3), ("ngram4", 14, 10)]
)
def test_how_many_numbers_a_chunk_carries(name: str, forward: int, backward: int) -> None:
    program = lower(get_cell(name)).program
    assert len(scan_form(program).carried) == forward
    assert len(reverse_scan_form(program).carried) == backward


@pytest.mark.parametrize("semiring", ["real", "max-plus", "log"])
def test_b_is_multiply_and_add(semiring: str) -> None:
    # (f, u) then (f', u'): f ⊗ f' and u ⊗ f' ⊕ u', the pair of every linear recurrence.
    cell = (
        Cell("B", semiring).initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).loop("q1", linear("f"))
    )
    program = lower(cell.final("q1").output(tanh("score"))).program
    form = scan_form(program)
    numbers = Numbers({}, {"a": {"f": 0.5, "u": 0.25}})
    out = run_step(form.program, leaves_of(program, numbers, "a"))
    assert out == {("entry", 1): 0.25, ("entry", 3): 0.5}
    assert form.step == form.carried == {(0, 1), (1, 1)}


def test_patterns_close_under_composition() -> None:
    step = frozenset({(0, 1), (1, 2), (2, 3)})
    assert compose_closure(4, step) == {(i, j) for i in range(4) for j in range(i, 4)}
    assert compose_closure(2, frozenset()) == {(0, 0), (1, 1)}
    assert compose_closure(2, frozenset({(0, 1), (1, 0)})) == {(i, j) for i in range(2) for j in range(2)}


def test_entries_do_not_read_the_state() -> None:
    for name in ("B", "F", "B-max-plus"):
        assert all(
            i.op is not Op.STATE for i in scan_form(lower(get_cell(name)).program).program.instructions
        )


def test_two_states_of_one_value_count_once() -> None:
    # q1 and q2 are entered by equal arcs and so share one instruction; both are final and both are read.
    u, v = linear("u"), linear("v")
    cell = (
        Cell("twins").initial("q0").arc("q0", "q1", u).arc("q0", "q2", u)
        .arc("q1", "q0", v).arc("q2", "q0", u).final("q1").final("q2", 0.5).output(tanh("score"))
    )  # fmt: skip
    program = lower(cell).program
    assert len({program.of_kind("state")[program.states.index(q)] for q in ("q1", "q2")}) == 1
    numbers = Numbers({}, {"a": {"u": 0.7, "v": -0.4}})
    leaves = leaves_of(program, numbers, "a") | {Op.STATE: [1.0, 0.3, 0.2], Op.GRAD_OUTPUT: [1.0]}
    form = reverse_scan_form(program)
    out = run_step(form.program, leaves)
    carried = [0.0] * 3
    for (kind, index), x in out.items():
        if kind == "jacobian":
            carried[index // 3] += x * out["direct", index % 3]
    expected = run_step(adjoint(program).step, leaves | {Op.GRAD_STATE: [0.0] * 3})
    assert carried == pytest.approx([expected["grad_state", s] for s in range(3)])


def test_what_is_not_linear_has_no_scan_form() -> None:
    b = Builder(REAL)
    new = b.emit(Op.TANH, b.emit(Op.ADD, b.leaf(Op.STATE, 0), b.leaf(Op.PREACT, 0)))  # an Elman network
    program, _ = b.finish(
        "elman",
        projections=("x",),
        parameters=(),
        states=("h",),
        initial=[b.zero],
        outputs=[("state", 0, new), ("score", 0, new), ("output", 0, new)],
    )
    with pytest.raises(ProgramError, match=r"\(tanh\) is not linear in the state over real"):
        scan_form(program)
    b = Builder(REAL)
    h = b.leaf(Op.STATE, 0)
    outputs = [(kind, 0, b.emit(Op.MUL, h, h)) for kind in ("state", "score", "output")]
    program, _ = b.finish(
        "square", projections=(), parameters=(), states=("h",), initial=[b.one], outputs=outputs
    )
    with pytest.raises(ProgramError, match="not linear"):
        scan_form(program)


def test_no_stored_state() -> None:
    program = lower(Cell("none").initial("q0").loop("q0", one).final("q0")).program
    assert scan_form(program).carried == frozenset()
    assert reverse_scan_form(program).carried == frozenset()
