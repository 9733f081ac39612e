"""The check of layers against their automata: it holds, in every semiring, and it sees what does not."""

from __future__ import annotations

import math

import pytest
import torch
from calls import ALL_CELLS, cell
from torch import Tensor

from rrnn import theory
from rrnn.automata import Cell, linear, one, step
from rrnn.nn import RationalRNN
from rrnn.theory import verify_cell


@pytest.mark.parametrize("name", ALL_CELLS)
def test_layers_are_rational(name: str) -> None:
    verdict = verify_cell(cell(name), name=name)
    assert verdict.holds and verdict.max_error < 1e-13
    assert verdict.model == name and verdict.semiring == cell(name).semiring_name
    assert verdict.compared == 144 and verdict.as_dict()["holds"] is True


@pytest.mark.parametrize("semiring", ["boolean", "counting"])
def test_semirings_without_gradients(semiring: str) -> None:
    chain = Cell("chain", semiring).initial("q0").loop("q0", one).arc("q0", "q1", step(linear("u")))
    verdict = verify_cell(chain.loop("q1", step(linear("f"))).final("q1"))
    assert verdict.max_error == 0


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
    assert not verdict.holds
    assert verdict.max_error == error or 0.01 * error < verdict.max_error <= 1.01 * error


def test_a_dead_state_must_be_minus_infinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """−100 is no −∞: the classic mistake with max-plus."""
    chain = Cell("C", "max-plus").initial("q0").loop("q0", one).arc("q0", "q1", linear("u"))
    chain = chain.arc("q1", "q2", linear("v")).loop("q2", linear("f")).final("q2").output(0)
    assert verify_cell(chain).max_error < 1e-14
    monkeypatch.setattr("rrnn.theory.verify.scores", lambda rnn, x: theory.scores(rnn, x).clamp_min(-100))
    assert verify_cell(chain).max_error == math.inf
