"""Cells as diagrams: what is written on arcs, in circles and in the legend."""

from __future__ import annotations

import pytest

from rrnn.automata import Cell, exp, linear, one, parameter, polar, relu, score, sigmoid, tanh, zero
from rrnn.draw import Diagram, diagram_of
from rrnn.draw.automaton_diagrams import LEGEND_LINES
from rrnn.draw.richtext import plain
from rrnn.errors import CellError
from rrnn.zoo import get_cell


def arcs(diagram: Diagram) -> dict[str, list[str]]:
    return {f"{e.source} {e.target}": [plain(line) for line in e.lines] for e in diagram.edges}


def circles(diagram: Diagram) -> list[list[str]]:
    return [[plain(line) for line in diagram.lines(node)] for node in diagram.nodes]


def legend(diagram: Diagram) -> list[str]:
    return [plain(line) for line in diagram.legend]


def test_families_have_indices() -> None:
    mamba = diagram_of(get_cell("Mamba"))
    assert arcs(mamba) == {"q0 q0": ["∀α/1"], "q0 h": ["α/w₁,ᵢ(α)"], "h h": ["α/w₂,ᵢ(α)"]}
    assert circles(mamba)[1] == ["h ×16", "ρ=α/Cᵢ(α)"]
    assert "Aᵢ = −exp(A_log,i)" in legend(mamba) and "w₂,ᵢ(α) = exp(δ(α) · Aᵢ)" in legend(mamba)
    delta = diagram_of(get_cell("DeltaNet"))  # it keeps each state, and has arcs from each state j to each i
    assert arcs(delta)["h h"] == ["∀α/1", "α/w₂,ᵢⱼ(α)"]
    assert "w₂,ᵢⱼ(α) = (−β(α)) · kⱼ(α) · kᵢ(α)" in legend(delta)
    isan = diagram_of(get_cell("ISAN:units=4"))
    assert arcs(isan)["h h"] == ["α/Wᵢⱼ(α)"] and "Wᵢⱼ(α) = W_W,ij v_α" in legend(isan)


def test_the_symbol_has_a_letter_of_its_own() -> None:
    gla = diagram_of(get_cell("GLA"))
    assert arcs(gla)["q0 q0"] == ["∀a/1"] and arcs(gla)["h h"] == ["a/αᵢ(a)"]
    cell = Cell("x").initial("q0").arc("q0", "q1", linear("alpha").named("alpha") * linear("a").named("a"))
    assert arcs(diagram_of(cell.final("q1")))["q0 q1"] == ["χ/(α(χ) · a(χ))"]


def test_f() -> None:
    diagram = diagram_of(get_cell("F"))
    assert arcs(diagram) == {
        "q0 q0": ["∀α/1"],
        "q0 q1": ["α/u₁(α)"],
        "q1 q1": ["α/f₁(α)"],
        "q1 q2": ["α/u₂(α)"],
        "q2 q2": ["α/f₂(α)"],
        "q0 q3": ["ε/r"],
        "q3 q2": ["α/u₂(α)"],
    }
    assert circles(diagram) == [["q₀"], ["q₁/p₁"], ["q₂/p₂"], ["q₃"]]
    assert [(n.initial, n.final) for n in diagram.nodes] == [
        (True, False),
        (False, True),
        (False, True),
        (False, False),
    ]
    assert legend(diagram) == [
        "fⱼ(α) = σ(W_fj v_α + b_fj),  j = 1, 2",
        "uⱼ(α) = (1 − fⱼ(α)) · Wᵤⱼ v_α,  j = 1, 2",
        "r = σ(bᵣ)",
        "pⱼ = σ(bₚⱼ),  j = 1, 2",
        "output = tanh(score)",
    ]
    assert diagram_of(get_cell("F"), legend=False).legend == ()


def test_max_plus() -> None:
    diagram = diagram_of(get_cell("B-max-plus"))
    assert arcs(diagram)["q0 q0"] == ["∀α/1̄"]
    assert "max-plus semiring: ⊕ is max, ⊗ is +" in legend(diagram)


def test_a_long_chain_has_a_short_legend() -> None:
    assert legend(diagram_of(get_cell("ngram10")))[0].endswith("j = 1, …, 10")
    assert len(legend(diagram_of(get_cell("ngram64")))) == 3


def test_long_weights_are_named_in_the_legend() -> None:
    long = sigmoid(linear("a") + linear("b")) * relu(linear("c") - parameter("d"))
    other = linear("c") * linear("a") * linear("b")
    cell = Cell("L").initial("q0").arc("q0", "q1", long).loop("q0", other).loop("q1", long).final("q1")
    diagram = diagram_of(cell)
    assert arcs(diagram) == {"q0 q1": ["α/w₁(α)"], "q0 q0": ["α/w₂(α)"], "q1 q1": ["α/w₁(α)"]}
    assert legend(diagram)[0].startswith("w₁(α) = σ(Wₐ v_α + W_b v_α) · relu(")
    assert legend(diagram)[1].startswith("w₂(α) = ")


def test_an_invented_name_is_not_taken() -> None:
    long = linear("a") * linear("b") * linear("c")
    cell = Cell("L").initial("q0").loop("q0", linear("w1")).arc("q0", "q1", long).final("q1")
    assert arcs(diagram_of(cell)) == {"q0 q0": ["α/w₁(α)"], "q0 q1": ["α/ω₁(α)"]}


def test_short_sums_are_in_brackets() -> None:
    f = sigmoid(linear("f")).named("f")
    cell = (
        Cell("S").initial("q0").loop("q0", f).arc("q0", "q1", (1 - f).named("g") * 1).arc("q1", "q0", 1 - f)
    )
    label = arcs(diagram_of(cell.final("q1")))["q1 q0"]
    assert label == ["α/g(α)"]
    cell = Cell("S").initial("q0").arc("q0", "q1", parameter("p") + parameter("r")).final("q1")
    assert arcs(diagram_of(cell))["q0 q1"] == ["∀α/(p + r)"]


def test_parallel_arcs_share_an_edge() -> None:
    cell = Cell("P").initial("q0").arc("q0", "q1", linear("u")).arc("q0", "q1", linear("v"), merge="plus")
    assert arcs(diagram_of(cell.epsilon("q0", "q1", parameter("gamma")).final("q1"))) == {
        "q0 q1": ["α/u(α)", "α/v(α)", "ε/γ"]
    }


def test_weights_of_ends() -> None:
    cell = Cell("E").initial("q0", 0.5).arc("q0", "q1", one).final("q0", 0.25).final("q1", parameter("rho"))
    assert circles(diagram_of(cell)) == [["q₀", "λ=0.5", "ρ=0.25"], ["q₁", "ρ=ρ"]]


def test_zero_is_not_drawn() -> None:
    cell = Cell("Z").initial("q0").initial("q1", zero).arc("q0", "q1", one).arc("q1", "q0", zero)
    diagram = diagram_of(cell.final("q1").final("q0", zero))
    assert list(arcs(diagram)) == ["q0 q1"]
    assert [(n.initial, n.final) for n in diagram.nodes] == [(True, False), (False, True)]


def test_epsilon_limit_is_said() -> None:
    cell = Cell("E").initial("q0").epsilon("q0", "q1", parameter("g")).arc("q0", "q1", one).final("q1")
    assert "at most 2 ε in a row, none after the last symbol" in legend(
        diagram_of(cell.limit_epsilon(2, after_last=False))
    )


def test_a_legend_ends_somewhere() -> None:
    cell = Cell("M").initial("q0").final("q0")
    for i in range(40):
        cell = cell.arc("q0", f"q{i + 1}", exp(linear(f"{chr(97 + i % 26)}{'x' * (i // 26)}")))
    lines = legend(diagram_of(cell.output(tanh("score"))))
    assert len(lines) == LEGEND_LINES and lines[-1] == "… and 18 more"


def test_a_broken_cell_is_refused() -> None:
    with pytest.raises(CellError, match="no final state"):
        diagram_of(Cell("X").initial("q0").loop("q0", one))


@pytest.mark.parametrize(
    ("semiring", "lines"),
    [
        ("complex", ["complex semiring: ⊕ is +, ⊗ is ·"]),
        (
            "expectation",
            [
                "expectation semiring",
                "⟨p₁, r₁⟩ ⊕ ⟨p₂, r₂⟩ = ⟨p₁ + p₂, r₁ + r₂⟩",
                "⟨p₁, r₁⟩ ⊗ ⟨p₂, r₂⟩ = ⟨p₁ · p₂, p₁ · r₂ + r₁ · p₂⟩",
            ],
        ),
        (
            "signed-log",
            [
                "signed-log semiring: ⊕ is + of the real numbers that they stand for",
                "⟨sign₁, log₁⟩ ⊗ ⟨sign₂, log₂⟩ = ⟨sign₁ · sign₂, log₁ + log₂⟩",
            ],
        ),
    ],
)
def test_legends_of_several_components(semiring: str, lines: list[str]) -> None:
    cell = Cell("X", semiring).initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).final("q1")
    assert legend(diagram_of(cell))[-len(lines) :] == lines


def test_outputs_and_angles_in_the_legend() -> None:
    cell = (
        Cell("X", "complex")
        .initial("q0")
        .loop("q0", polar(sigmoid(linear("f")), linear("theta")))
        .final("q0")
    )
    found = legend(diagram_of(cell.output(score.re, tanh(score.im))))
    assert "θ(α) = W_θ v_α" in found and "w₁(α) = polar(f(α), θ(α))" in found
    assert "output = score.re, tanh(score.im)" in found
