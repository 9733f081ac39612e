"""Lowering: ε-closure, trimming, folding, sharing, and the output's promise to stay finite."""

from __future__ import annotations

import math

import pytest
from program_twin import run
from runnable_cell_strategies import Numbers

from rrnn.automata import (
    Cell,
    Expr,
    exp,
    input,
    linear,
    log,
    log_sigmoid,
    one,
    parameter,
    sigmoid,
    sqrt,
    step,
    tanh,
    zero,
)
from rrnn.errors import CellError, GrowthWarning, ProgramError
from rrnn.ir import Op, builder, lower
from rrnn.ir.interpreter import initial_state, score_may_be_zero
from rrnn.zoo import get_cell

U, V = linear("u"), linear("v")


def numbers(symbols: dict[str, dict[str, float]], **parameters: float) -> Numbers:
    return Numbers(parameters, symbols)


def scores(cell: Cell, values: Numbers, string: str) -> list[float]:
    return [step.score for step in run(lower(cell).program, values, string)]


def stored(cell: Cell) -> tuple[str, ...]:
    return lower(cell).program.states


# ---- ε ---------------------------------------------------------------------------------------------------------


def test_epsilon_is_taken_before_the_first_symbol_and_after_each_step() -> None:
    # The paper's F: c¹₁ = u¹₁ and c²₁ = r·u²₁, so q3 is reached before the first symbol.
    values = {"f1": 0.3, "u1": 2.0, "f2": -0.2, "u2": 0.7}
    given = numbers({"a": values}, r=0.4, p1=-0.1, p2=0.9, **{"f1.bias": 0.1, "f2.bias": -0.3})

    def squash(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    f1, f2 = squash(0.4), squash(-0.5)
    u1, u2, r = (1 - f1) * 2.0, (1 - f2) * 0.7, squash(0.4)
    c1, c2 = 0.0, 0.0
    expected = []
    for _ in range(4):
        c1, c2 = f1 * c1 + u1, f2 * c2 + (c1 + r) * u2
        expected.append(squash(-0.1) * c1 + squash(0.9) * c2)
    assert scores(get_cell("F"), given, "aaaa") == pytest.approx(expected, rel=1e-14)


def chain(semiring: str = "real") -> Cell:
    """q0 -u-> q1 -ε-> q2 -ε-> q3, all final but q0."""
    r, s = parameter("r"), parameter("s")
    cell = Cell("chain", semiring).initial("q0").loop("q0", one).arc("q0", "q1", U)
    return cell.epsilon("q1", "q2", r).epsilon("q2", "q3", s).final("q2").final("q3")


def test_acyclic_epsilon() -> None:
    given = numbers({"a": {"u": 2.0}}, r=0.5, s=0.25)
    assert scores(chain(), given, "a") == [2.0 * 0.5 + 2.0 * 0.5 * 0.25]
    assert scores(chain("max-plus"), given, "a") == [2.0 + 0.5 + 0.25]
    assert scores(chain("min-plus"), given, "a") == [2.0 + 0.5]
    assert stored(chain()) == ("q1",)


def test_a_limit_counts_consecutive_epsilons() -> None:
    given = numbers({"a": {"u": 2.0}}, r=0.5, s=0.25)
    assert scores(chain().limit_epsilon(1), given, "a") == [1.0]  # q3 is two ε away
    assert scores(chain().limit_epsilon(2), given, "a") == [1.25]
    assert scores(chain().final("q1").limit_epsilon(0), given, "a") == [2.0]


def test_a_limit_may_forbid_epsilon_after_the_last_symbol() -> None:
    # SoPa: the ε from q1 to q2 counts only if a symbol follows it.
    cell = (
        Cell("sopa").initial("q0").arc("q0", "q1", U).epsilon("q1", "q2", 0.5)
        .arc("q2", "q3", V).final("q3").final("q2")
    )  # fmt: skip
    given = numbers({"a": {"u": 2.0, "v": 3.0}})
    assert scores(cell, given, "aa") == [2.0 * 0.5, 2.0 * 0.5 * 3.0]
    assert scores(cell.limit_epsilon(1, after_last=False), given, "aa") == [0.0, 3.0]


def test_a_limit_that_leaves_no_path() -> None:
    cell = Cell("none").initial("q0").arc("q0", "q1", U).epsilon("q1", "q2", 0.5).final("q2")
    for limited in (cell.limit_epsilon(1, after_last=False), cell.limit_epsilon(0)):
        with pytest.raises(CellError, match=r"every score is the semiring's zero.*epsilon_limit"):
            lower(limited)


def test_a_limit_of_zero_drops_what_only_epsilon_reaches() -> None:
    cell = chain().final("q1").arc("q2", "q1", V).limit_epsilon(0)
    assert lower(cell).program.projections == ("u",)


def ring(semiring: str, there: Expr | float, back: Expr | float) -> Cell:
    """q0 -u-> q1 ⇄ q2 by ε, q2 final."""
    cell = Cell("ring", semiring).initial("q0").loop("q0", one).arc("q0", "q1", U)
    return cell.epsilon("q1", "q2", there).epsilon("q2", "q1", back).final("q2")


def test_a_cycle_needs_the_star() -> None:
    given = numbers({"a": {"u": 2.0}}, r=0.3)
    a = 1 / (1 + math.exp(-0.3))
    real = ring("real", sigmoid(parameter("r")), 0.5)
    assert scores(real, given, "a") == pytest.approx([2.0 * a / (1 - 0.5 * a)], rel=1e-15)
    log_ring = ring("log", log_sigmoid(parameter("r")), math.log(0.5))
    assert scores(log_ring, given, "a") == pytest.approx(
        [2.0 + math.log(a) - math.log1p(-0.5 * a)], rel=1e-15
    )
    best = ring("max-plus", log_sigmoid(parameter("r")), -0.5)
    assert scores(best, given, "a") == pytest.approx([2.0 + math.log(a)], rel=1e-15)


def test_an_epsilon_loop_is_its_star() -> None:
    cell = Cell("loop").initial("q0").arc("q0", "q1", U).epsilon("q1", "q1", 0.5).final("q1")
    assert scores(cell, numbers({"a": {"u": 3.0}}), "a") == [6.0]


def test_a_cycle_in_a_selective_semiring_costs_nothing() -> None:
    # No cycle improves a path, so none is computed: only u + r is.
    cell = ring("max-plus", log_sigmoid(parameter("r")), -0.5)
    ops = [i.op for i in lower(cell).program.instructions]
    assert Op.MAX not in ops
    assert ops.count(Op.ADD) == 1


def test_a_cycle_of_three_that_shares_states() -> None:
    # Figures of eight: (I − A)⁻¹ by hand.
    import torch

    names, weights = ["q1", "q2", "q3"], [[0.1, 0.2, 0.3], [0.2, 0.0, 0.4], [0.3, 0.1, 0.2]]
    cell = Cell("eight").initial("q0").arc("q0", "q1", U)
    for i, q in enumerate(names):
        for j, p in enumerate(names):
            cell = cell.epsilon(q, p, weights[i][j]) if weights[i][j] else cell
    closure = torch.linalg.inv(torch.eye(3, dtype=torch.float64) - torch.tensor(weights, dtype=torch.float64))
    for j, q in enumerate(names):
        given = numbers({"a": {"u": 1.0}})
        assert scores(cell.final(q), given, "a") == pytest.approx([closure[0, j].item()], rel=1e-14)


# ---- what is stored --------------------------------------------------------------------------------------------


def test_trimming() -> None:
    cell = (
        Cell("trim").initial("q0").loop("q0", one).arc("q0", "q1", U).loop("q1", 0.5).final("q1")
        .arc("q0", "dead_end", V).loop("dead_end", V)
        .arc("nowhere", "q1", linear("w")).arc("q0", "q1", zero, merge="plus")
    )  # fmt: skip
    lowered = lower(cell)
    assert lowered.program.states == ("q1",)
    assert lowered.program.projections == ("u",)
    assert [p.name for p in lowered.projections] == ["u"]


def test_ends_of_weight_zero_are_no_ends() -> None:
    cell = (
        Cell("ends").initial("q0").arc("q0", "q1", U).final("q1")
        .initial("q2", zero).arc("q2", "q1", V).arc("q1", "q3", V).final("q3", 0)
    )  # fmt: skip
    assert lower(cell).program.projections == ("u",)


def test_always_on_states_are_constants() -> None:
    weighted = (
        Cell("weighted").initial("q0", sigmoid(parameter("p"))).loop("q0", one)
        .arc("q0", "q1", U).loop("q1", 0.5).final("q1")
    )  # fmt: skip
    assert stored(weighted) == ("q1",)
    p = 1 / (1 + math.exp(-0.7))
    assert scores(weighted, numbers({"a": {"u": 2.0}}, p=0.7), "aa") == pytest.approx([2 * p, 3 * p])


def test_two_always_on_states_keep_each_other_on() -> None:
    swap = (
        Cell("swap").initial("q0").initial("q1").arc("q0", "q1", one).arc("q1", "q0", one)
        .arc("q1", "q2", U).loop("q2", 0.5).final("q2")
    )  # fmt: skip
    assert stored(swap) == ("q2",)
    uneven = swap.initial("q2", 0.5)
    assert stored(uneven) == ("q2",)
    assert initial_state(lower(uneven).program, []) == [0.5]


def test_what_only_starts_on_is_stored() -> None:
    anchored = Cell("anchored").initial("q0").arc("q0", "q1", U).loop("q1", one).final("q1")
    assert stored(anchored) == ("q0", "q1")
    assert scores(anchored, numbers({"a": {"u": 2.0}}), "aaa") == [2.0, 2.0, 2.0]
    assert initial_state(lower(anchored).program, []) == [1.0, 0.0]
    forgetting = Cell("forgetting").initial("q0").loop("q0", 0.5).arc("q0", "q1", U).final("q1")
    assert stored(forgetting) == ("q0", "q1")
    assert scores(forgetting, numbers({"a": {"u": 2.0}}), "aaa") == [2.0, 1.0, 0.5]


def test_in_max_plus_a_loop_of_the_number_one_is_not_always_on() -> None:
    # The number 1 adds one a step; `one` is 0 there.
    def loop(weight: Expr | float) -> Cell:
        return (
            Cell("on", "max-plus")
            .initial("q0")
            .loop("q0", weight)
            .arc("q0", "q1", U)
            .final("q1")
            .output(tanh("score"))
        )

    assert stored(loop(one)) == stored(loop(0)) == ("q1",)
    with pytest.warns(GrowthWarning, match="the loop at 'q0' has the weight 1"):
        assert stored(loop(1)) == ("q0", "q1")


def test_what_only_the_score_reads_is_stored_too() -> None:
    # The backward scan wants every path from the old state to the output to pass through a new state.
    bigram = Cell("bigram").initial("q0").loop("q0", one).arc("q0", "q1", U).arc("q1", "q2", V).final("q2")
    assert stored(bigram) == ("q1", "q2")
    given = numbers({"a": {"u": 2.0, "v": 5.0}, "b": {"u": 3.0, "v": 7.0}})
    assert scores(bigram, given, "aba") == [0.0, 14.0, 15.0]


def test_no_memory_at_all() -> None:
    direct = Cell("constant").initial("q0").loop("q0", one).final("q0", parameter("p"))
    assert stored(direct) == ()
    assert scores(direct, numbers({"a": {}}, p=0.25), "aa") == [0.25, 0.25]


def test_several_initial_and_final_states() -> None:
    cell = (
        Cell("several").initial("a", 2).initial("b", 3).arc("a", "c", U).arc("b", "c", V).arc("b", "d", U)
        .final("c", 5).final("d", 7)
    )  # fmt: skip
    given = numbers({"x": {"u": 1.5, "v": -0.5}})
    assert scores(cell, given, "x") == [5 * (2 * 1.5 + 3 * -0.5) + 7 * (3 * 1.5)]


def test_merged_arcs_both_count() -> None:
    cell = Cell("merged").initial("q0").arc("q0", "q1", U).arc("q0", "q1", V, merge="plus").final("q1")
    given = numbers({"a": {"u": 2.0, "v": 0.5}})
    assert scores(cell, given, "a") == [2.5]
    assert scores(cell.with_semiring("max-plus").output(tanh("score")), given, "a") == [2.0]
    twice = Cell("twice").initial("q0").arc("q0", "q1", U).arc("q0", "q1", U, merge="plus").final("q1")
    assert scores(twice, given, "a") == [4.0]
    silent = Cell("silent").initial("q0").epsilon("q0", "q1", 0.5).epsilon("q0", "q1", 0.25, merge="plus")
    assert scores(silent.loop("q1", U).final("q1"), given, "a") == [1.5]


def test_equal_weights_share_one_product() -> None:
    # F multiplies (c¹ + r) by u², as the paper does: one product for two arcs.
    program = lower(get_cell("F")).program
    products = [i for i in program.instructions if i.op is Op.MUL]
    assert len(products) == 2 + 2 + 1 + 2  # (1−f)·W v twice, f·c twice, (c¹+r)·u², two final weights


def test_names_and_weights() -> None:
    lowered = lower(get_cell("F"))
    assert sorted(lowered.names.values()) == ["f1", "f2", "p1", "p2", "r", "u1", "u2"]
    assert lowered.weights == set(lowered.names)
    half = (0.5 * parameter("s")).named("half")
    cell = Cell("n").initial("q0").arc("q0", "q1", U).loop("q1", one).final("q1", half)
    assert "half" in lower(cell).names.values()
    constant = (parameter("s") * 0).named("nothing") + 0.5
    cell = Cell("n").initial("q0").arc("q0", "q1", U).final("q1", constant)
    assert "nothing" not in lower(cell).names.values()  # folded to a number, which other numbers equal


def test_a_projection_that_folds_away_is_kept_with_no_instruction() -> None:
    cell = Cell("fold").initial("q0").arc("q0", "q1", U + 0 * V).final("q1")
    program = lower(cell).program
    assert program.projections == ("u", "v")
    assert [i.attr for i in program.instructions if i.op is Op.PREACT] == [0]


def test_hostile_cells_do_not_run_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_WORK", 2000)
    cell = Cell("dense").initial("q0").arc("q0", "q1", U).final("q1").limit_epsilon(64)
    for i in range(12):
        for j in range(12):
            cell = cell.epsilon(f"q{i}", f"q{j}", parameter(f"p{i}_{j}"))
    with pytest.raises(ProgramError, match="at most 2000 operations"):
        lower(cell)


# ---- the output stays finite -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")
@pytest.mark.parametrize(
    ("name", "semiring", "may_be_zero"),
    [
        ("B", "real", False),  # u₁ is there from the first step on
        ("B", "max-plus", False),
        ("C", "real", True),  # no bigram in one symbol
        ("C", "max-plus", True),
        ("F", "real", False),
        ("ngram4", "log", True),
    ],
)
def test_when_the_score_may_be_zero(name: str, semiring: str, may_be_zero: bool) -> None:
    assert score_may_be_zero(lower(get_cell(name).with_semiring(semiring)).program) is may_be_zero


def test_a_score_may_become_zero_later() -> None:
    once = Cell("once", "max-plus").initial("q0").arc("q0", "q1", U).final("q1").output(tanh("score"))
    assert score_may_be_zero(lower(once).program)  # fine at the first step, −∞ ever after
    in_turn = (
        Cell("odd", "max-plus")
        .initial("q0")
        .arc("q0", "q1", U)
        .arc("q1", "q0", U)
        .final("q1")
        .output(tanh("score"))
    )
    assert score_may_be_zero(lower(in_turn).program)


SCORE = get_cell("B").output("score").output_expr
GATE = sigmoid(linear("o", bias=True))


@pytest.mark.parametrize(
    ("semiring", "output", "fits"),
    [
        ("max-plus", tanh(SCORE), True),
        ("max-plus", tanh(log_sigmoid(linear("o")) + SCORE), True),
        ("max-plus", GATE * tanh(SCORE) + (1 - GATE) * input(), True),
        ("max-plus", sigmoid(SCORE), True),
        ("max-plus", exp(SCORE), True),
        ("max-plus", step(SCORE), True),
        ("max-plus", SCORE, False),
        ("max-plus", tanh(GATE * SCORE), False),  # the gate's gradient is 0·∞
        ("max-plus", GATE * SCORE, False),
        ("log", tanh(SCORE), True),
        ("log", SCORE, False),
        ("min-plus", exp(-SCORE), True),
        ("min-plus", exp(SCORE), False),
        ("real", tanh(GATE * SCORE), True),
        ("max-times", log(SCORE + 1), True),
        ("max-times", log(SCORE), False),
        ("max-times", sqrt(SCORE), False),
    ],
)
def test_the_output_must_be_finite_at_zero(semiring: str, output: Expr, fits: bool) -> None:
    def bigram(output: Expr) -> Cell:
        weight = {"real": U, "max-times": exp(U)}.get(semiring, U)
        cell = Cell("bigram", semiring).initial("q0").loop("q0", one)
        return cell.arc("q0", "q1", weight).arc("q1", "q2", weight).final("q2").output(output)

    if fits:
        lower(bigram(output))
    else:
        with pytest.raises(CellError, match=r"its score can be the .* semiring's zero"):
            lower(bigram(output))


def test_the_output_is_not_blamed_where_the_score_is_never_zero() -> None:
    cell = Cell("unigram", "max-plus").initial("q0").loop("q0", one).arc("q0", "q1", U).final("q1")
    assert lower(cell.output(GATE * SCORE))
