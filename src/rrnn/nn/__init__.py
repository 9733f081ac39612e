"""Layers: `RationalRNN` looks like `nn.LSTM` and runs any cell; `Block` is what published models put around one."""

from rrnn.nn.block import Block, BlockOptions
from rrnn.nn.block_stack import BlockStack
from rrnn.nn.from_machine import MachineRNN, from_wfsa
from rrnn.nn.layer import RationalLayer
from rrnn.nn.rnn import RationalRNN
from rrnn.nn.sequences import BlockState, LayerState, State, detach

__all__ = [
    "Block",
    "BlockOptions",
    "BlockStack",
    "BlockState",
    "LayerState",
    "MachineRNN",
    "RationalLayer",
    "RationalRNN",
    "State",
    "detach",
    "from_wfsa",
]
