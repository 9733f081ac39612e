"""Names that expressions get: what is given wins, the rest follows projections and parameters."""

from __future__ import annotations

import pytest

from rrnn.automata import (
    Cell,
    Expr,
    definitions,
    expr_text,
    linear,
    log,
    one,
    parameter,
    relu,
    score,
    sigmoid,
    step,
    tanh,
)
from rrnn.errors import CellError

f, g, u = sigmoid(linear("f", bias=True)), tanh(linear("g")), linear("u")


def named(*weights: Expr, output: Expr = score) -> list[tuple[str, str]]:
    cell = Cell("X").initial("q0")
    for i, weight in enumerate(weights):
        cell = cell.arc(f"q{i}", f"q{i + 1}", weight)
    cell = cell.final(f"q{len(weights)}").output(output)
    names = definitions(cell)
    return [(name, expr_text(expr, names, top=True)) for expr, name in names.items()]


def test_gates_and_weights() -> None:
    assert named((1 - f) * u, f) == [("f", 'sigmoid(linear("f", bias=True))'), ("u", '(1 - f) * linear("u")')]
    assert named(one, tanh(parameter("r")) * 2) == [("r", 'tanh(parameter("r"))')]
    assert named(u) == [("u", 'linear("u")')]
    assert named(u * linear("v"), 2 * linear("w")) == [("w", '2 * linear("w")')]  # u * v: neither explains it
    assert named(one, output=tanh(sigmoid(linear("o")) * score)) == [("o", 'sigmoid(linear("o"))')]


def test_given_names_win() -> None:
    assert named((1 - f.named("forget")) * u, f) == [
        ("forget", 'sigmoid(linear("f", bias=True))'),
        ("u", '(1 - forget) * linear("u")'),
    ]
    assert named(((1 - f) * u).named("f")) == [("f", '(1 - sigmoid(linear("f", bias=True))) * linear("u")')]


def test_the_first_of_two_names_for_one_expression() -> None:
    assert named(f.named("a"), f.named("b")) == [("a", 'sigmoid(linear("f", bias=True))')]


def test_names_are_not_given_twice() -> None:
    assert named(f, tanh(linear("f", bias=True))) == [("f", 'sigmoid(linear("f", bias=True))')]
    assert named(sigmoid(u), u) == [("u", 'sigmoid(linear("u"))')]


@pytest.mark.parametrize("word", ["sigmoid", "one", "linear", "neg"])
def test_words_of_the_language_are_no_names(word: str) -> None:
    assert named(linear(word)) == []
    with pytest.raises(CellError, match=f"cannot be called '{word}'.*such as {word}_1"):
        named(f.named(word))


def test_a_name_means_one_thing() -> None:
    with pytest.raises(CellError, match="'a' is given to two different expressions; use two names"):
        named(f.named("a"), g.named("a"))


def test_a_large_weight_before_the_one_that_explains_it() -> None:
    # naming again what was written must change nothing, so the order of arcs must not matter
    small = (1 - f) * u
    large = small * linear("k")
    assert named(large, small) == [
        ("f", 'sigmoid(linear("f", bias=True))'),
        ("u", '(1 - f) * linear("u")'),
        ("k", 'u * linear("k")'),
    ]


def test_a_second_name_of_an_expression_is_free_for_others() -> None:
    r = log(1 + relu(parameter("r")))
    cell = (
        Cell("A", "boolean")
        .initial("q0")
        .arc("q0", "q1", step(linear("u")))
        .final("q0", step(r.named("w")) * step(r.named("u")))
        .final("q1")
    )
    assert Cell.from_text(cell.to_text()) == cell
