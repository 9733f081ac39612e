"""Definitions written down: pieces of code in brackets, each op by its name."""

from __future__ import annotations

from rrnn.arithmetic import TEXTS, TextValue
from rrnn.semirings import COMPLEX, LOG, REAL


def test_operators_join_pieces() -> None:
    a, b = TextValue("a"), TextValue("b")
    assert a + b == "(a + b)" and 1.0 + a == "(1.0 + a)" and a - 2 == "(a - 2)" and 2 - a == "(2 - a)"
    assert a * b == "(a * b)" and 3 * a == "(3 * a)" and a / b == "(a / b)" and 1 / a == "(1 / a)"
    assert -(a + b) == "(-(a + b))"
    assert isinstance(a + b * 2, TextValue)


def test_ops_by_name() -> None:
    assert TEXTS.max("a", TEXTS.exp("b")) == "(max a (exp b))"
    assert TEXTS.relu("a") == "(max 0.0 a)"
    assert TEXTS.add("a", 1) == "(add a 1.0)"


def test_a_semiring_is_its_definition() -> None:
    assert REAL.definition == "plus (add a b); times (mul a b); zero 0.0; one 1.0"
    assert LOG.definition == "plus (logaddexp a b); times (add a b); zero -inf; one 0.0"
    assert COMPLEX.definition.startswith("plus (add a.re b.re), (add a.im b.im); times (sub (mul a.re b.re) ")
