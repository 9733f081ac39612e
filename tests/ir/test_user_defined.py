"""Semirings that a user defines: cells, texts, programs, scans and gradients of them."""

from __future__ import annotations

from typing import Any

import pytest
from program_twin import Step, elements, leaves_of, run
from runnable_cell_strategies import Numbers

from rrnn.arithmetic import FLOATS, Range
from rrnn.automata import (
    Cell,
    construct,
    exp,
    from_text,
    linear,
    one,
    parameter,
    score,
    sigmoid,
    softplus,
    weight_range,
)
from rrnn.errors import CellError, FormatError, SemiringError
from rrnn.ir import Op, Program, adjoint, lower, reverse_scan_form, scan_form
from rrnn.ir.equations import equations, latex
from rrnn.ir.interpreter import run_step
from rrnn.ir.semiring_code import single_op
from rrnn.semirings import SEMIRINGS, Semiring, register_semiring
from rrnn.semirings.epsilon_closure import always
from rrnn.wfsa import WFSA, instantiate

LUKASIEWICZ = Semiring(
    "lukasiewicz",
    zero=0.0,
    one=1.0,
    plus=lambda s, a, b: s.max(a, b),
    times=lambda s, a, b: s.max(s.sub(s.add(a, b), 1.0), 0.0),
    star=lambda s, a: 1.0,
    star_exists=lambda s, a: s.ge(a, 0.0),
    star_domain="every a",
    converges=always,
    values=Range(0.0, 1.0),
    set_description="[0, 1]",
    selective=True,
    one_absorbs=True,
    has_gradient=True,
    strength=lambda s, a: a,
    to_real=lambda s, a: a,
    from_real=lambda s, x: x,
)
BOTH = Semiring(  # the best path's weight and the sum of all, side by side
    "best-and-total",
    components=("best", "total"),
    zero=(0.0, 0.0),
    one=(1.0, 1.0),
    plus=lambda s, a, b: (s.max(a[0], b[0]), s.add(a[1], b[1])),
    times=lambda s, a, b: (s.mul(a[0], b[0]), s.mul(a[1], b[1])),
    values=Range(0.0, float("inf"), high_open=True),
    set_description="pairs of numbers that are not negative",
    has_gradient=True,
    constructors={
        "both": (("best", "total"), lambda s, best, total: (best, total)),
        "sure": (("best",), lambda s, best: (best, 1)),
    },
)


@pytest.fixture(params=[LUKASIEWICZ, BOTH], ids=lambda ring: ring.name)
def ring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Semiring:
    """A semiring that is registered during one test."""
    for semiring in (LUKASIEWICZ, BOTH):
        monkeypatch.setitem(SEMIRINGS, semiring.name, semiring)
    assert register_semiring(request.param) is request.param
    return request.param


def weight(ring: Semiring, x: Any) -> Any:
    return x if ring is LUKASIEWICZ else construct("both", x, x)


def cell_over(ring: Semiring) -> Cell:
    """C: a bigram, with an ε-arc and a final weight."""
    gates = [weight(ring, sigmoid(linear(name, bias=True))) for name in ("u", "f", "v")]
    cell = Cell("C", ring).initial("q0").loop("q0", one).arc("q0", "q1", gates[0]).loop("q1", gates[1])
    cell = cell.arc("q1", "q2", gates[2]).loop("q2", gates[1]).epsilon("q1", "q3", weight(ring, 0.875))
    cell = cell.arc("q3", "q2", gates[0]).final("q2", weight(ring, sigmoid(parameter("p"))))
    return cell.output(*(score.best, score.total) if ring is BOTH else (score,))


def numbers_of(cell: Cell) -> Numbers:
    program = lower(cell).program
    values = iter([0.9, 1.7, 2.1, 0.4, 1.1, 2.7, 1.9, 0.6, 2.3, 1.3, 0.8, 1.5])
    rows = {a: {name: next(values) for name in program.projections} for a in "ab"}
    return Numbers({name: next(values) for name in program.parameters}, rows)


def steps_of(ring: Semiring, string: str = "abba") -> tuple[Program, Numbers, list[Step]]:
    cell = cell_over(ring)
    program, numbers = lower(cell).program, numbers_of(cell)
    return program, numbers, run(program, numbers, string)


def test_text(ring: Semiring) -> None:
    cell = cell_over(ring)
    text = cell.to_text()
    assert f"\nsemiring {ring.name}\n" in text
    assert from_text(text) == cell
    if ring is BOTH:
        assert "epsilon q1 -> q3 : both(0.875, 0.875)" in text and text.endswith(
            "output score.best, score.total\n"
        )


def test_a_text_of_an_unknown_semiring() -> None:
    with pytest.raises(FormatError, match="unknown semiring 'best-and-total'"):
        from_text("rrnn-cell 1\nsemiring best-and-total\n")
    with pytest.raises(FormatError, match="'both' is not a function of the cell language"):
        from_text("rrnn-cell 1\nx = both(1, 2)\n")


def test_weights_stay_inside(ring: Semiring) -> None:
    cell = Cell("X", ring).initial("q0").final("q0")
    with pytest.raises(
        CellError, match=f"may lie outside .*, and the {ring.name} semiring needs weights that are"
    ):
        cell.loop("q0", weight(ring, linear("u")))
    if ring is BOTH:  # it does not say which element a real number is
        with pytest.raises(
            CellError, match=r"a real expression, .* best, total\. Write it with both\(best, total\)"
        ):
            cell.loop("q0", exp(linear("u")))
        with pytest.raises(CellError, match="ε-cycle"):
            cell.epsilon("q0", "q0", weight(ring, 0.5)).check()
    else:
        cell.epsilon("q0", "q0", 0.5).check()
        with pytest.raises(CellError, match="needs weights that are"):
            cell.loop("q0", softplus(linear("u")))


def test_a_constructor_with_a_number_of_its_own(ring: Semiring) -> None:
    if ring is BOTH:
        cell = Cell("X", ring).initial("q0").loop("q0", construct("sure", sigmoid(linear("u")))).final("q0")
        assert weight_range(cell.arcs[0].weight, ring)[1] == Range.of(1.0)
        assert from_text(cell.to_text()) == cell and "⟨uₜ, 1⟩" in equations(cell)
        assert instantiate(cell, {"a": {"u": 0.0}}).score("aa").tolist() == [0.25, 1.0]


def by_hand(ring: Semiring, numbers: Numbers, string: str) -> list[Any]:
    """The scores, by the definitions of ⊕ and ⊗ alone."""
    bias = numbers.parameters

    def lift(x: float) -> Any:
        return ring.element([x] * ring.size)

    q1, q2, scores = ring.zero, ring.zero, []
    for a in string:
        gates = {n: lift(FLOATS.sigmoid(x + bias[f"{n}.bias"])) for n, x in numbers.preacts[a].items()}
        from_q1 = ring.sum([ring.times(gates["v"], q1), ring.times(gates["u"], ring.times(q1, lift(0.875)))])
        q2 = ring.plus(ring.times(gates["f"], q2), from_q1)
        q1 = ring.plus(ring.times(gates["f"], q1), gates["u"])
        scores.append(ring.times(q2, lift(FLOATS.sigmoid(bias["p"]))))
    return scores


def test_scores(ring: Semiring) -> None:
    _, numbers, steps = steps_of(ring)
    for step, expected in zip(steps, by_hand(ring, numbers, "abba"), strict=True):
        assert step.score == pytest.approx(expected, rel=1e-14)
        assert step.outputs == pytest.approx(ring.numbers_of(expected), rel=1e-14)
    assert steps[-1].score != ring.zero


def test_programs(ring: Semiring) -> None:
    program = lower(cell_over(ring)).program
    ops = {i.op for i in program.instructions}
    assert single_op(ring, "times") is None and Op.TIMES in ops
    assert (Op.PLUS in ops) == (ring is BOTH) and (single_op(ring, "plus") is Op.MAX) == (ring is LUKASIEWICZ)
    assert not {i.op for i in program.flat.instructions} & {Op.ELEMENT, Op.COMPONENT, Op.PLUS, Op.TIMES}
    for p in (
        program,
        program.flat,
        scan_form(program).program,
        adjoint(program).step,
        adjoint(program).epilogue,
    ):
        assert Program.parse(p.text) == p
    assert program.states == ("q1", "q2") and len(program.flat.states) == 2 * ring.size
    assert "⊗" in equations(cell_over(ring)) and latex(cell_over(ring)).isascii()


def test_scan(ring: Semiring) -> None:
    program, numbers, steps = steps_of(ring)
    form = scan_form(program)
    row = [ring.one, *elements(program, steps[0].before)]
    for symbol, step in zip("abba", steps, strict=True):
        out = run_step(form.program, leaves_of(program, numbers, symbol))
        entries = {
            (i, j): ring.element(out["entry", (i * form.size + j) * ring.size + c] for c in range(ring.size))
            for i, j in form.step
        } | {(0, 0): ring.one}
        row = [
            ring.sum(ring.times(row[i], x) for (i, k), x in entries.items() if k == j)
            for j in range(form.size)
        ]
        for got, expected in zip(row[1:], elements(program, step.after), strict=True):
            assert got == pytest.approx(expected, rel=1e-14)


def test_gradient_of_a_step(ring: Semiring) -> None:
    program, numbers, steps = steps_of(ring)
    form, flat = adjoint(program), program.flat
    leaves = leaves_of(program, numbers, "b") | {Op.STATE: steps[1].after}
    seeds = {Op.GRAD_OUTPUT: [1.0, -0.7][: flat.output_count], Op.GRAD_STATE: [0.3] * len(flat.states)}

    def loss(given: dict[Op, list[float]]) -> float:
        out = run_step(program, given)
        total = sum(g * out["output", k] for k, g in enumerate(seeds[Op.GRAD_OUTPUT]))
        return total + sum(g * out["state", s] for s, g in enumerate(seeds[Op.GRAD_STATE]))

    def slope(op: Op, k: int) -> float:
        moved = [{**leaves, op: [x + h * (i == k) for i, x in enumerate(leaves[op])]} for h in (1e-6, -1e-6)]
        return (loss(moved[0]) - loss(moved[1])) / 2e-6

    out = run_step(form.step, leaves | seeds)
    for kind, op in (("grad_preact", Op.PREACT), ("grad_state", Op.STATE)):
        for k in range(len(leaves[op])):
            assert out[kind, k] == pytest.approx(slope(op, k), abs=1e-7)
    units = [out["grad_unit", j] for j in range(len(form.units))]
    learned = run_step(form.epilogue, {Op.PARAM: leaves[Op.PARAM], Op.GRAD_UNIT: units})
    for k in range(len(program.parameters)):
        assert learned["grad_param", k] == pytest.approx(slope(Op.PARAM, k), abs=1e-7)
    assert any(abs(x) > 1e-3 for x in units)

    jacobian = run_step(reverse_scan_form(program).program, leaves | seeds)
    size = len(flat.states)
    for i in range(size):
        through = sum(
            jacobian.get(("jacobian", i * size + j), 0.0) * (seeds[Op.GRAD_STATE][j] + jacobian["direct", j])
            for j in range(size)
        )
        assert through == pytest.approx(out["grad_state", i], rel=1e-12)


def test_a_product_that_is_not_commutative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triangular matrices ⟨a, b; 0, d⟩: machines multiply from left to right, and have no backward tables."""
    matrices = Semiring(
        "triangular",
        components=("a", "b", "d"),
        zero=(0.0, 0.0, 0.0),
        one=(1.0, 0.0, 1.0),
        plus=lambda s, x, y: tuple(s.add(p, q) for p, q in zip(x, y, strict=True)),
        times=lambda s, x, y: (x[0] * y[0], x[0] * y[1] + x[1] * y[2], x[2] * y[2]),
        commutative=False,
    )
    monkeypatch.setitem(SEMIRINGS, "triangular", matrices)
    arcs = [(0, "a", 0, (1.0, 2.0, 3.0)), (0, "b", 1, (2.0, 0.5, 1.0))]
    machine = WFSA(matrices, alphabet="ab", arcs=arcs, initial={0: matrices.one}, final={1: (0.5, 1.0, 2.0)})
    by_hand = matrices.product([(1.0, 2.0, 3.0), (2.0, 0.5, 1.0), (0.5, 1.0, 2.0)])
    assert machine.score("ab").tolist() == pytest.approx(by_hand)
    assert machine.score_by_paths("ab") == pytest.approx(by_hand)
    for ask in (machine.backward, machine.arc_marginals):
        with pytest.raises(SemiringError, match="need a commutative ⊗; that of triangular is not"):
            ask("ab")
