"""Layers: `RationalRNN` looks like `nn.LSTM` and runs any cell."""

from rrnn.nn.from_machine import MachineRNN, from_wfsa
from rrnn.nn.layer import RationalLayer
from rrnn.nn.rnn import RationalRNN
from rrnn.nn.sequences import LayerState, State, detach

__all__ = ["LayerState", "MachineRNN", "RationalLayer", "RationalRNN", "State", "detach", "from_wfsa"]
