"""Which cells are separable: by what their expressions say, not by names."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rrnn.automata import Cell, exp, family, input, linear, one, parameter, score, sigmoid, tanh
from rrnn.ir import Op, lower
from rrnn.ir.separable import KEYS, LOG_DECAY, QUERIES, SIGN, SKIP, VALUE, WEIGHT, Separable, separable
from rrnn.zoo import get_cell


def found(cell: Cell) -> Separable:
    parts = separable(lower(cell).program)
    assert isinstance(parts, Separable), parts
    return parts


def attention(entry: Any, loop: Any, read: Any, semiring: str = "real") -> Cell:
    h = family("h", 4)
    k, q = (linear(n, over=h, per="head") for n in "kq")
    made = [f(h, k, q, linear("v")) if callable(f) else f for f in (entry, loop, read)]
    cell = Cell("Own", semiring).initial("q0").loop("q0", one).arc("q0", h, made[0])
    return cell.loop(h, made[1]).read(h, made[2])


@pytest.mark.parametrize(
    "name, decay, turns, scale",
    [
        ("linear-attention", "none", False, 1.0),
        ("RetNet", "head", True, 1.0),
        ("GLA", "state", False, 8**-0.5),
        ("HGRN2", "state", False, 1.0),
        ("Mamba-2", "head", False, None),
    ],
)
def test_models_take_the_schedule(name: str, decay: str, turns: bool, scale: float | None) -> None:
    parts = found(get_cell(name, states=8))
    assert (parts.decay, parts.turns, parts.size) == (decay, turns, 8)
    assert parts.scale == scale or (scale is not None and math.isclose(parts.scale or 0, scale))


def test_the_logarithm_of_a_gate_is_derived() -> None:
    cell = attention(
        lambda h, k, q, v: k * v,
        lambda h, k, q, v: sigmoid(linear("f", over=h, per="head")) * exp(linear("g", per="head")) * 0.5,
        lambda h, k, q, v: q,
    )
    factors = found(cell).factors
    log = factors.needed_for([factors.of_kind("factor")[LOG_DECAY]])
    ops = {factors.instructions[n].op for n in log}
    assert Op.LOG_SIGMOID in ops and not ops & {Op.LOG, Op.EXP, Op.SIGMOID}


def test_factors_are_found_in_any_order() -> None:
    cell = attention(
        lambda h, k, q, v: (linear("b", per="head") * k) * (v * linear("a", per="group")) / 3.0,
        lambda h, k, q, v: parameter("decay", over=h, per="head"),
        lambda h, k, q, v: tanh(q) * linear("c", over=h, per="group"),
    )
    factors = found(cell).factors
    kinds = factors.of_kind("factor")
    assert factors.over[kinds[KEYS]] == factors.over[kinds[QUERIES]] == frozenset({0})
    assert not factors.over[kinds[VALUE]]
    assert SIGN in kinds  # nothing says that the parameter is positive


@pytest.mark.parametrize(
    "entry, loop, read, why",
    [
        (lambda h, k, q, v: tanh(k * v), 0.5, lambda h, k, q, v: q, "no product"),
        (lambda h, k, q, v: k * v + q * linear("w"), 0.5, lambda h, k, q, v: q, "no product"),
        (
            lambda h, k, q, v: k * v,
            lambda h, k, q, v: sigmoid(linear("f")),
            lambda h, k, q, v: q,
            "decay depends",
        ),
        (lambda h, k, q, v: k * v, lambda h, k, q, v: tanh(k), lambda h, k, q, v: q, "may be negative"),
        (lambda h, k, q, v: k * v, 0.5, lambda h, k, q, v: q * v, "read-out depends|family"),
    ],
)
def test_reasons(entry: object, loop: object, read: object, why: str) -> None:
    import re

    reason = separable(lower(attention(entry, loop, read)).program)
    if "read-out" in why:  # a factor of the unit is taken out of the sum
        assert isinstance(reason, Separable)
    else:
        assert isinstance(reason, str) and re.search(why, reason), reason


@pytest.mark.parametrize(
    "name, why",
    [
        ("Mamba", "the decay depends on the unit"),
        ("S4D", "what enters a state is no product"),
        ("F", "the cell has no family"),
        ("LRU", "the cell has no family"),
        ("DeltaNet", "each new state depends on all old ones"),
        ("ISAN:units=4", "each new state depends on all old ones"),
        ("Mamba-3", "the states of 2 families are stored"),
    ],
)
def test_other_models_do_not(name: str, why: str) -> None:
    reason = separable(lower(get_cell(name)).program)
    assert isinstance(reason, str) and reason.startswith(why)


def weighted(value: Any, output: Any, per: str = "head") -> Separable | None:
    """Return the parts with a value in place of a cell with a decay per head (or another), if it has them."""

    def loop(h: Any, *_: Any) -> Any:
        return sigmoid(linear("f", over=h, per="head") if per == "state" else linear("f", per="head"))

    cell = attention(lambda h, k, q, v: k * value, loop, lambda h, k, q, v: q)
    return found(cell if output is None else cell.output(output)).in_place


def test_values_are_read_in_place() -> None:
    c, d = exp(linear("c", per="head")), parameter("d", per="head")
    for leaf, op in ((linear("u"), Op.PREACT), (input(), Op.INPUT)):
        parts = weighted(3.0 * c * leaf, (2.0 * score + leaf * d) - leaf * c * 0.5)
        assert parts is not None and parts.scale == 2.0
        factors = parts.factors.of_kind("factor")
        assert {KEYS, QUERIES, VALUE, LOG_DECAY, WEIGHT, SKIP} == set(factors)
        assert parts.factors.instructions[factors[VALUE]].op is op
        assert not parts.factors.over[factors[WEIGHT]] and not parts.factors.over[factors[SKIP]]
    only = weighted(linear("u") * c, None)
    assert only is not None and SKIP not in only.factors.of_kind("factor")


@pytest.mark.parametrize(
    "value, output, per",
    [
        (linear("u"), None, "head"),  # there is nothing to gain
        (linear("u") * linear("w", per="head"), None, "state"),
        (tanh(linear("u")), None, "head"),
        (linear("u") * linear("w"), None, "head"),
        (linear("u") * linear("w", per="head"), tanh(score), "head"),
        (linear("u") * linear("w", per="head"), score + linear("other"), "head"),
        (linear("u") * linear("w", per="head"), score + linear("u") * parameter("d"), "head"),  # a unit's own
        (linear("u") * linear("w", per="head"), score * linear("w", per="head"), "head"),
    ],
)
def test_values_are_not_read_in_place(value: Any, output: Any, per: str) -> None:
    assert weighted(value, output, per) is None
