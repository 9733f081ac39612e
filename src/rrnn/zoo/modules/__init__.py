"""Models of the zoo that are no cells: controls whose recurrences are not shown to be rational, run step by step.

They are called as `RationalRNN` is: `layer(input, hx, lengths=…, mask=…)`, `step`, `init_state`.
"""

from rrnn.zoo.modules.controls import SRUv2, StateRCNN
from rrnn.zoo.modules.looped import Looped, Update
from rrnn.zoo.modules.recurrent import Recurrent
from rrnn.zoo.modules.scrn import SCRN
from rrnn.zoo.modules.torch_rnns import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN", "SCRN", "Looped", "Recurrent", "SRUv2", "StateRCNN", "Update"]
