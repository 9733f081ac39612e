"""Mistakes that users of `nn.LSTM` make, each with the message that helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cell_calls import cell
from layer_cases import inputs, make_layer
from torch.nn.utils.rnn import pack_sequence

from rrnn.errors import CellError, RRNNError, ShapeError
from rrnn.nn import RationalRNN

B = cell("B")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RationalRNN("LSTM", 4, 3), "Build the layer with rrnn.zoo.layer('LSTM', …)"),
        (
            lambda: RationalRNN("ISAN", 4, 3),
            "a state for each unit of the layer. Say how many, as in ISAN:units=4",
        ),
        (lambda: RationalRNN("Q", 4, 3), "no cell is called 'Q'. The zoo has B, "),
        (lambda: RationalRNN("fF", 4, 3), "no cell is called 'fF'"),
        (lambda: RationalRNN("F", 4), "hidden_size is missing: how many units of F"),
        (
            lambda: RationalRNN("QRNN2:poling=f", 4, 3),
            "QRNN2 has the options window, pooling, signed; got 'poling'. Did",
        ),
        (lambda: RationalRNN([("B", 3), ("LSTM", 2)], 3), "Build the layer with rrnn.zoo.layer('LSTM', …)"),
        (lambda: RationalRNN(4, 3), "a list of pairs [(cell, units), …]; got int"),
        (lambda: RationalRNN([], 3), "a list of pairs"),
        (lambda: RationalRNN([(B, 3), B], 3), "a list of pairs"),
        (lambda: RationalRNN(B, 4), "hidden_size is missing: how many units of B"),
        (lambda: RationalRNN(B, 4, 0), "hidden_size must be a whole number above 0; got 0"),
        (lambda: RationalRNN(B, 10**30, 3), "input_size must be at most 2,147,483,647; got one of 100 bits"),
        (lambda: RationalRNN(B, 4, 2.5), "hidden_size must be a whole number above 0; got 2.5"),
        (lambda: RationalRNN(B, -4, 3), "input_size must be a whole number above 0; got -4"),
        (lambda: RationalRNN(B, 4, 3, 0), "num_layers must be a whole number above 0; got 0"),
        (
            lambda: RationalRNN(B, 4, 3, 2, dropout=1.5),
            "dropout is a probability, a number between 0 and 1; got 1.5",
        ),
        (lambda: RationalRNN(B, 4, 3, dropout=True), "dropout is a probability"),
        (lambda: RationalRNN(B, 4, 3, recurrent_dropout=-1), "recurrent_dropout is a probability"),
        (lambda: RationalRNN(B, 4, 3, input_dropout="0.1"), "input_dropout is a probability"),
        (
            lambda: RationalRNN(B, 4, 3, skip="dense"),
            """skip is None, "highway" or "residual"; got 'dense'""",
        ),
        (lambda: RationalRNN(B, 4, 3, norm="batch"), """norm is None, "layer" or a function"""),
        (lambda: RationalRNN([(B, 3), (B, 0)], 4), "the number of units of B must be a whole number above 0"),
        (lambda: RationalRNN([(B, 3), (B, 2)], 4, 6), "hidden_size is the sum of the cells' units, 5; got 6"),
    ],
)
def test_building(build: Callable[[], Any], message: str) -> None:
    with pytest.raises((ShapeError, CellError), match=re.escape(message)):
        build()


X = inputs(5, 2, 4)
LAYER = make_layer("F", num_layers=2)
WINDOWED = make_layer("windowed")


def state(**changes: Any) -> Any:
    first, second = LAYER.init_state(2)
    return first._replace(**changes), second


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LAYER(inputs(5, 2, 3)), "expected input with 4 features, got 3"),
        (lambda: LAYER(inputs(4)), "expected input with 2 or 3 dimensions; got shape (4,)"),
        (lambda: LAYER([1.0]), "the input must be a tensor or a PackedSequence; got list"),
        (
            lambda: LAYER(X.float()),
            "expected input of torch.float64, as the layer's weights are; got torch.float32",
        ),
        (lambda: LAYER(X.long()), "got torch.int64. Embed ids first"),
        (lambda: LAYER(pack_sequence([inputs(3, 5)])), "expected input with 4 features, got 5"),
        (lambda: LAYER(pack_sequence([inputs(3, 4)]), lengths=[3]), "a PackedSequence has its own lengths"),
        (lambda: LAYER(X, lengths=[1, 2], mask=torch.ones(5, 2).bool()), "both lengths= and mask= are given"),
        (lambda: LAYER(X, lengths=[1, 6]), "lengths must lie between 0 and the 5 steps of the input; got 6"),
        (
            lambda: LAYER(X, lengths=[-1, 2]),
            "lengths must lie between 0 and the 5 steps of the input; got -1",
        ),
        (lambda: LAYER(X, lengths=[1, 2, 3]), "expected 2 lengths, one per sequence; got shape (3,)"),
        (
            lambda: LAYER(X, lengths=torch.tensor([1.0, 2.0])),
            "lengths must be whole numbers; got torch.float32",
        ),
        (lambda: LAYER(X, lengths=[1.5, 2]), "lengths must be whole numbers; got torch.float32"),
        (lambda: LAYER(X, lengths=[True, False]), "lengths must be whole numbers; got torch.bool"),
        (lambda: LAYER(X[:, 0], lengths=[3]), "lengths= is for batches"),
        (
            lambda: LAYER(X, mask=torch.ones(5, 2)),
            "mask must be a bool tensor, True at valid steps; got torch.float32",
        ),
        (
            lambda: LAYER(X, mask=torch.ones(2, 5).bool()),
            "expected mask of shape (5, 2), (time, batch) as the input; got (2, 5)",
        ),
        (
            lambda: LAYER(X[:, 0], mask=torch.ones(5, 2).bool()),
            "expected mask of shape (5,), (time,) as the input",
        ),
        (
            lambda: LAYER(X, LAYER.init_state(3)),
            "expected state[0].states[0] of shape (2, 2, 3), (stored states, batch, units); got (2, 3, 3)",
        ),
        (lambda: LAYER(X, LAYER.init_state()), "expected state[0].states[0] of shape (2, 2, 3)"),
        (
            lambda: LAYER(X[:, 0], LAYER.init_state(1)),
            "of shape (2, 3), (stored states, units) without a batch; got (2, 1, 3)",
        ),
        (
            lambda: LAYER(X, LAYER.init_state(2)[:1]),
            "a tuple of 2 LayerState (one per layer and direction); got 1",
        ),
        (lambda: LAYER(X, LAYER.init_state(2)[0]), "got one LayerState alone"),
        (
            lambda: LAYER(X, torch.zeros(2, 2, 3)),
            "a tuple of 2 LayerState (one per layer and direction); got Tensor",
        ),
        (
            lambda: LAYER(X, (torch.zeros(2, 3), torch.zeros(2, 3))),
            "state[0] is a LayerState(states, history); got Tensor",
        ),
        (lambda: LAYER(X, state(states=())), "state[0].states holds one tensor per cell, 1 in all"),
        (
            lambda: LAYER(X, state(states=(torch.zeros(2, 2, 3, dtype=torch.int64),))),
            "must be a tensor of floating-point numbers; got torch.int64",
        ),
        (
            lambda: LAYER(X, state(history=torch.zeros(1, 2, 4))),
            "state[0].history must be None, since no projection has a window; got a tensor",
        ),
        (
            lambda: WINDOWED(X, (WINDOWED.init_state(2)[0]._replace(history=None),)),
            "state[0].history must be of shape (2, 2, 4); got None",
        ),
        (
            lambda: WINDOWED(X, (WINDOWED.init_state(2)[0]._replace(history=X[:1]),)),
            "expected state[0].history of shape (2, 2, 4), (window − 1, batch, input_size); got (1, 2, 4)",
        ),
        (lambda: LAYER.step(X), "expected input with 1 or 2 dimensions; got shape (5, 2, 4)"),
        (lambda: LAYER.step(X[0], LAYER.init_state(3)), "expected state[0].states[0] of shape (2, 2, 3)"),
        (
            lambda: make_layer("F", bidirectional=True).step(X[0]),
            "a bidirectional layer cannot step: it also reads its input from the end",
        ),
    ],
)
def test_calling(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(RRNNError, match=re.escape(message)):
        call()


def test_batch_first_masks_follow_the_input() -> None:
    layer = make_layer("F", batch_first=True)
    with pytest.raises(
        ShapeError, match=re.escape("expected mask of shape (2, 5), (batch, time) as the input")
    ):
        layer(X.transpose(0, 1), mask=torch.ones(5, 2).bool())
