"""Layouts are one for all kinds of layers: cells, affine recurrences, and controls."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from layer_cases import inputs

from rrnn import zoo
from rrnn.errors import ShapeError
from rrnn.nn.sequences import LayerState, OneStep, TimeFirst, transform

NAMES = ["F", "linear-Elman", "LSTM", "SRU-v2"]
X, MASK = inputs(5, 2, 4, dtype=torch.float32), torch.ones(5, 2).bool()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("x", "padding", "message"),
    [
        (X, {"lengths": [5, 2], "mask": MASK}, "both lengths= and mask= are given"),
        (X[:, 0], {"lengths": [5]}, "lengths= is for batches; an input without a batch can have a mask="),
        (X, {"lengths": [5, 6]}, "lengths must lie between 0 and the 5 steps of the input; got 6"),
        (X, {"mask": MASK.T}, "expected mask of shape (5, 2), (time, batch) as the input; got (2, 5)"),
        (X[:, 0], {"mask": MASK}, "expected mask of shape (5,), (time,) as the input; got (5, 2)"),
    ],
)
def test_mistakes(name: str, x: torch.Tensor, padding: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        zoo.layer(name, 4, 3)(x, **padding)


@pytest.mark.parametrize("features", [0, 1])
def test_there_and_back(features: int) -> None:
    whole = X if features else X[..., 0]
    mask = torch.rand(5, 2) < 0.5
    time_first = TimeFirst(whole, features, False, None, mask)
    batch_first = TimeFirst(whole.transpose(0, 1), features, True, None, mask.T)
    alone = TimeFirst(whole[:, 0], features, True, None, mask[:, 0])
    for given, sequences in ((time_first, 2), (batch_first, 2), (alone, 1)):
        assert given.mask is not None and not given.prefix
        assert torch.equal(given.x, whole[:, :sequences]) and torch.equal(given.mask, mask[:, :sequences])
    assert torch.equal(time_first.output(X), X)
    assert torch.equal(batch_first.output(X), X.transpose(0, 1))
    assert torch.equal(alone.output(X[:, :1]), X[:, 0])
    assert (time_first.batch, batch_first.batch, alone.batch) == ((2,), (2,), ())


def test_lengths_say_that_padding_comes_last() -> None:
    given = TimeFirst(X, lengths=[2, 5])
    assert given.prefix and given.mask is not None and given.mask.sum(0).tolist() == [2, 5]


@pytest.mark.parametrize("features", [0, 1])
def test_one_step(features: int) -> None:
    x_t = X[0] if features else X[0, :, 0]
    for given, step in ((OneStep(x_t, features), x_t), (OneStep(x_t[0], features), x_t[:1])):
        assert torch.equal(given.x, step.unsqueeze(0)) and given.mask is None
    assert OneStep(x_t, features).output(X[:1]).shape == (2, 4)
    assert OneStep(x_t[0], features).output(X[:1, :1]).shape == (4,)


def test_states_of_any_kind() -> None:
    alone = TimeFirst(X[:, 0])
    state = (LayerState((inputs(2, 3),), None), [inputs(3)], inputs(1, 3))
    entered = alone.state_in(state)
    assert isinstance(entered[0], LayerState) and entered[0].history is None and isinstance(entered[1], list)
    assert [t.shape for t in (entered[0].states[0], entered[1][0], entered[2])] == [
        (2, 1, 3),
        (1, 3),
        (1, 1, 3),
    ]
    torch.testing.assert_close(alone.state_out(entered), state)
    assert TimeFirst(X).state_in(state) is state
    assert transform(torch.neg, None) is None
