"""Names and formulas as text."""

from __future__ import annotations

import pytest

from rrnn.automata import Expr, exp, input, linear, log_sigmoid, parameter, score, sigmoid, sqrt, tanh
from rrnn.draw.richtext import (
    Span,
    constant_text,
    formula,
    name_text,
    number_text,
    plain,
    printable,
    roman,
    shorten,
    width,
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q0", "q₀"),
        ("q10", "q₁₀"),
        ("mu1", "μ₁"),
        ("phi", "φ"),
        ("lambda2", "λ₂"),
        ("eta_1", "η₁"),
        ("mu_1_2", "μ₁,₂"),
        ("Sigma", "Σ"),
        ("epsilon", "ϵ"),  # ε is the empty string's
        ("forget", "forget"),
        ("w_f", "w_f"),
        ("w_forget3", "w_forget3"),
        ("q0_", "q′₀"),
        ("q0__", "q′′₀"),
        ("end_of_line", "end_of_line"),
        ("_x", "_x"),
        ("2x", "2x"),
    ],
)
def test_names(name: str, text: str) -> None:
    assert plain(name_text(name)) == text


def test_a_name_is_italic_and_its_number_upright() -> None:
    assert name_text("mu1") == (Span("μ", italic=True), Span("1", sub=True))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (sigmoid(linear("f", bias=True)), "σ(W_f v_α + b_f)"),
        ((1 - sigmoid(linear("f"))) * linear("u"), "(1 − σ(W_f v_α)) · Wᵤ v_α"),
        (linear("u", bias=True) * 2, "(Wᵤ v_α + bᵤ) · 2"),
        (log_sigmoid(parameter("r")), "log σ(r)"),
        (-linear("u") - (parameter("a") - 3), "(−Wᵤ v_α) − (a − 3)"),
        (parameter("a") + (parameter("e") + 1), "a + e + 1"),
        (sqrt(exp(parameter("a"))) * -1.5, "√(exp(a)) · (−1.5)"),
        (linear("u", window=3), "Wᵤ [vₜ₋₂ … vₜ]"),
        (tanh(score) + input(), "tanh(score) + v_α"),
    ],
)
def test_formulas(expr: Expr, text: str) -> None:
    assert plain(formula(expr, {}, roman("1"), roman("0"))) == text


def test_a_parameter_gives_its_name_to_the_gate_around_it() -> None:
    gate = sigmoid(parameter("r"))
    assert plain(formula(gate, {gate: "r"}, roman("1"), roman("0"), top=True)) == "σ(bᵣ)"
    assert plain(formula(1 - gate, {gate: "r"}, roman("1"), roman("0"))) == "1 − r"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1"),
        (-1.23456, "−1.23"),
        (1e-9, "1e−9"),
        (2.5e20, "2.5e20"),
        (float("-inf"), "−∞"),
        (1234567.0, "1.23e6"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert plain(number_text(value)) == text


def test_one_and_zero_are_the_semirings() -> None:
    assert plain(constant_text("1", 1.0)) == "1"
    assert plain(constant_text("1", 0.0)) == "1̄"  # max-plus: the number 1 would be another weight
    assert plain(constant_text("0", float("-inf"))) == "0̄"


def test_what_does_not_show_is_escaped() -> None:
    assert printable("a\x00b\n\u202e\ud800 c") == "a\\u0000b\\u000a\\u202e\\ud800 c"
    assert printable("naïve ∑ 字 e\u0301") == "naïve ∑ 字 e\u0301"


def test_shorten() -> None:
    text = (Span("abc"), Span("defgh", italic=True))
    assert shorten(text, 8) == text
    assert plain(shorten(text, 6)) == "abcde…"
    assert plain(shorten(text, 3)) == "ab…"


def test_width() -> None:
    assert width(roman("iii"), 10) < width(roman("MMM"), 10)
    assert width((Span("1", sub=True),), 10) < width(roman("1"), 10)
    assert width(roman("字"), 10) >= 10
    assert width(roman("e\u0301"), 10) == width(roman("e"), 10)
