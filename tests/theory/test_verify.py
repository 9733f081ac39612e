"""The check of layers against their automata: it holds, in every semiring, and it sees what does not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cell_calls import ALL_CELLS_SOME_SLOW, cell
from torch import Tensor

from rrnn import theory, zoo
from rrnn.automata import (
    Cell,
    Expr,
    construct,
    linear,
    log_sigmoid,
    one,
    parameter,
    sigmoid,
    softplus,
    step,
    tanh,
)
from rrnn.nn import RationalRNN
from rrnn.theory import verify_cell, verify_model
from rrnn.theory.verify import scores_by_paths
from rrnn.wfsa import EPSILON, WFSA


@pytest.mark.parametrize("name", ALL_CELLS_SOME_SLOW)
def test_layers_are_rational(name: str) -> None:
    verdict = verify_cell(cell(name), name=name)
    assert verdict.holds and verdict.max_error is not None and verdict.max_error < 1e-13
    assert verdict.model == name and verdict.semiring == cell(name).semiring_name
    assert verdict.compared == 144 and verdict.as_dict()["holds"] is True


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.MODELS)
def test_the_zoo(name: str) -> None:
    """A model is here by being in the registry."""
    verdict = verify_model(name, seed=1)
    assert verdict.model == name and verdict.holds and verdict.recurrence
    if zoo.MODELS[name].open:
        proved = zoo.MODELS[name].proved or "open"
        assert (verdict.verdict, verdict.max_error, verdict.states) == (proved, None, None)
        assert verdict.note == zoo.MODELS[name].open
    else:
        assert verdict.verdict == "rational" and verdict.max_error is not None and verdict.max_error < 1e-12


@pytest.mark.parametrize(
    ("name", "recurrence", "automaton", "states"),
    [
        ("example", "cₜ = fₜ ⊙ cₜ₋₁ + uₜ", "B", 2),
        ("C", "c¹ₜ = f¹ₜ ⊙ c¹ₜ₋₁ + u¹ₜ; c²ₜ = f²ₜ ⊙ c²ₜ₋₁ + u²ₜ ⊙ c¹ₜ₋₁", "C", 3),
        ("RCNN5", None, "chain of 6", 6),
        ("F", None, "F", 4),
        ("QRNN3", "cₜ = fₜ ⊙ cₜ₋₁ + uₜ", "B over histories of 2", 2 * (4 + 16) + 1),
        ("T-LSTM", None, "B over histories of 1", 9),
        ("CNN3", None, "chain of 4", 4),
        ("ISAN", "cₜ = W_x cₜ₋₁ + b_x", "D", 6),
        ("linear-Elman", "cₜ = W cₜ₋₁ + U vₜ + b", "D", 6),
        ("RNN", "hₜ = tanh(W hₜ₋₁ + U vₜ + b)", "none known", None),
        ("isan", "cₜ = W_x cₜ₋₁ + b_x", "D", 6),
    ],
)
def test_rows_of_the_paper_s_table(
    name: str, recurrence: str | None, automaton: str, states: int | None
) -> None:
    verdict = verify_model(name)
    assert (verdict.automaton, verdict.states) == (automaton, states)
    assert recurrence is None or verdict.recurrence == recurrence


def test_models_are_called_not_rational_only_by_a_proposition(monkeypatch: pytest.MonkeyPatch) -> None:
    theory_page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
    for name in ("LSTM", "GRU", "RNN", "SRU-v2", "RCNN2-state", "SCRN"):
        assert verify_model(name).verdict == "not rational over real, log, max-plus (Proposition 1)"
    assert "### Proposition 1\n" in theory_page
    monkeypatch.setitem(zoo.MODELS, "LSTM", replace(zoo.MODELS["LSTM"], proved=""))
    assert verify_model("LSTM").verdict == "open"


@pytest.mark.parametrize("semiring", ["boolean", "counting"])
def test_semirings_without_gradients(semiring: str) -> None:
    chain = Cell("chain", semiring).initial("q0").loop("q0", one).arc("q0", "q1", step(linear("u")))
    verdict = verify_cell(chain.loop("q1", step(linear("f"))).final("q1"))
    assert verdict.max_error == 0


EPSILON_LOOPS: dict[str, tuple[Expr | float, Expr | float]] = {
    "real": (0.4 * sigmoid(parameter("a")), tanh(parameter("b"))),
    "log": (log_sigmoid(parameter("a")), log_sigmoid(parameter("b"))),
    "max-plus": (log_sigmoid(parameter("a")), -0.5),
    "min-plus": (softplus(parameter("a")), 0.5),
    "max-times": (sigmoid(parameter("a")), 0.9),
    "boolean": (step(parameter("a")), one),
    "complex": (construct("polar", 0.5 * sigmoid(parameter("a")), parameter("b")), 0.9),
    "expectation": (construct("valued", 0.5 * sigmoid(parameter("a")), parameter("b")), 0.9),
    "signed-log": (construct("signed", -1.0, log_sigmoid(parameter("a"))), 0.7),
}


@pytest.mark.parametrize("semiring", EPSILON_LOOPS)
def test_epsilon_cycles(semiring: str) -> None:
    """Layers take the star of an ε-cycle; the definition is an infinite sum over paths."""
    out, back = EPSILON_LOOPS[semiring]
    u = step(linear("u")) if semiring == "boolean" else linear("u")
    u = softplus(u) if semiring == "max-times" else u
    cell = Cell("loop", semiring).initial("q0").arc("q0", "q1", u).loop("q1", one).final("q2").output(0)
    verdict = verify_cell(cell.epsilon("q1", "q2", out).epsilon("q2", "q1", back))
    assert verdict.verdict == "rational" and verdict.max_error is not None and verdict.max_error < 1e-13


def test_sums_over_paths_of_an_epsilon_cycle() -> None:
    """The sum over paths, known by hand: 2 · 0.25 · Σ 0.5ⁿ, for each symbol; and it is no copy of Forward."""
    arcs = [("p", "a", "p", 1.0), ("p", EPSILON, "q", 0.25), ("q", EPSILON, "p", 2.0)]
    machine = WFSA("real", alphabet="a", arcs=arcs, initial={"p": 2.0}, final={"q": 1.0})
    sums = scores_by_paths(machine, ("a", "a"))
    assert sums == pytest.approx([1.0, 2.0, 4.0], rel=1e-15)
    assert sums == pytest.approx(machine.prefix_scores(("a", "a")).tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda c: c * (1 + 1e-8), 1e-8),
        (lambda c: torch.where(torch.arange(c.shape[0]).view(-1, 1, 1) == 4, 2 * c, c), 1.0),
        (lambda c: torch.full_like(c, math.nan), math.inf),
        (lambda c: torch.full_like(c, math.inf), math.inf),
    ],
)
def test_what_differs_is_seen(change, error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(rnn: RationalRNN, x: Tensor) -> Tensor:
        return change(theory.scores(rnn, x))

    monkeypatch.setattr("rrnn.theory.verify.scores", wrong)
    verdict = verify_cell(cell("ngram4"))  # small scores: only a relative error shows
    assert not verdict.holds and verdict.verdict == "open" and verdict.max_error is not None
    assert verdict.as_dict()["max_error"] == (verdict.max_error if math.isfinite(error) else None)
    assert verdict.max_error == error or 0.01 * error < verdict.max_error <= 1.01 * error


def test_a_dead_state_must_be_minus_infinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """−100 is no −∞: the classic mistake with max-plus."""
    chain = Cell("C", "max-plus").initial("q0").loop("q0", one).arc("q0", "q1", linear("u"))
    chain = chain.arc("q1", "q2", linear("v")).loop("q2", linear("f")).final("q2").output(0)
    assert verify_cell(chain).max_error < 1e-14
    monkeypatch.setattr("rrnn.theory.verify.scores", lambda rnn, x: theory.scores(rnn, x).clamp_min(-100))
    assert verify_cell(chain).max_error == math.inf


def test_a_file_of_the_same_name_does_not_hide_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "LSTM").touch()
    monkeypatch.chdir(tmp_path)
    assert verify_model("LSTM").automaton == "none known"
