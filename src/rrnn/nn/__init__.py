"""Layers: `RationalRNN` looks like `nn.LSTM` and runs any cell."""

from rrnn.nn.layer import RationalLayer
from rrnn.nn.rnn import RationalRNN
from rrnn.nn.sequences import LayerState, State, detach

__all__ = ["LayerState", "RationalLayer", "RationalRNN", "State", "detach"]
