"""The zoo on one screen: name → how to make it, whose it is, and whether its recurrence is known to be rational."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from rrnn.automata import Cell
from rrnn.zoo.ngram import ngram
from rrnn.zoo.patterns import cnn, sopa
from rrnn.zoo.qrnn import qrnn
from rrnn.zoo.rcnn import rcnn
from rrnn.zoo.recent import hgrn, min_gru, min_lstm, rg_lru
from rrnn.zoo.rrnn import b, b_max_plus, b_max_plus_scaled, c, example, f
from rrnn.zoo.scrn import scrn
from rrnn.zoo.sru import sru
from rrnn.zoo.strongly_typed import t_gru, t_lstm, t_rnn


@dataclass(frozen=True)
class Model:
    """A model of the zoo."""

    make: Callable[..., Cell] | str
    """What makes its cell; for a model that is no cell the layer's class, as "module:Class", so that torch waits."""
    paper: str
    open: str = ""
    """Empty for a rational recurrence; otherwise what is said of it: no proof is known either way."""
    size: str = ""
    """The option that a number in the name sets: QRNN3 has window=3."""

    @property
    def is_cell(self) -> bool:
        return not isinstance(self.make, str)

    @property
    def kind(self) -> str:
        return "cell" if self.is_cell else "layer"

    @property
    def rational(self) -> bool:
        return not self.open

    @cached_property
    def factory(self) -> Callable[..., Any]:
        """What makes the cell, or the layer's class."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        return getattr(import_module(module), name)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The names of what a cell can be made with; of a layer's class, those that it knows beside nn.LSTM's."""
        return tuple(inspect.signature(self.factory).parameters)


PAPER = "Peng et al. 2018"
_ELMAN = (
    "The paper hypothesises that models like Elman networks, LSTMs and GRUs, whose states pass through affine maps and "
    "nonlinear functions, are not rational; it has no proof."
)
_MODULES = "rrnn.zoo.modules"

MODELS: dict[str, Model] = {
    "B": Model(b, PAPER),
    "B-max-plus": Model(b_max_plus, PAPER),
    "B-max-plus-gated": Model(partial(b_max_plus, inputs="gated"), PAPER),
    "B-max-plus-coupled": Model(partial(b_max_plus, inputs="coupled"), PAPER),
    "B-max-plus-scaled": Model(b_max_plus_scaled, PAPER),
    "C": Model(c, PAPER),
    "F": Model(f, PAPER),
    "ngram4": Model(ngram, PAPER, size="n"),
    "example": Model(example, PAPER),
    "SRU": Model(sru, "Lei et al. 2017, version 1"),
    "RCNN2": Model(rcnn, "Lei et al. 2015, 2016", size="n"),
    "RCNN2-constant": Model(partial(rcnn, decay="constant"), "Lei et al. 2015, 2016", size="n"),
    "RCNN2-additive": Model(partial(rcnn, additive=True), "Lei et al. 2015, 2016", size="n"),
    "SCRN-context": Model(scrn, "Mikolov et al. 2015"),
    "T-RNN": Model(t_rnn, "Balduzzi and Ghifary 2016"),
    "T-LSTM": Model(t_lstm, "Balduzzi and Ghifary 2016"),
    "T-GRU": Model(t_gru, "Balduzzi and Ghifary 2016"),
    "QRNN2": Model(qrnn, "Bradbury et al. 2017", size="window"),
    "QRNN2-f": Model(partial(qrnn, pooling="f"), "Bradbury et al. 2017", size="window"),
    "QRNN2-ifo": Model(partial(qrnn, pooling="ifo"), "Bradbury et al. 2017", size="window"),
    "SoPa4": Model(sopa, "Schwartz et al. 2018", size="length"),
    "SoPa4-real": Model(partial(sopa, semiring="real"), "Schwartz et al. 2018", size="length"),
    "SoPa4-max-times": Model(partial(sopa, semiring="max-times"), "Schwartz et al. 2018", size="length"),
    "CNN3": Model(cnn, "Kim 2014", size="n"),
    "minGRU": Model(min_gru, "Feng et al. 2024"),
    "minLSTM": Model(min_lstm, "Feng et al. 2024"),
    "HGRN": Model(hgrn, "Qin et al. 2023"),
    "RG-LRU": Model(rg_lru, "De et al. 2024"),
    "ISAN": Model("rrnn.zoo.isan:ISAN", "Foerster et al. 2017"),
    "linear-Elman": Model("rrnn.zoo.elman:LinearElman", "Elman 1990, without tanh"),
    "SCRN": Model(
        f"{_MODULES}:SCRN",
        "Mikolov et al. 2015",
        open="Its context units are rational; its hidden layer is an Elman network's. " + _ELMAN,
    ),
    "RCNN2-state": Model(
        f"{_MODULES}:StateRCNN",
        "Lei et al. 2015, 2016",
        open="The paper says of a decay that depends on the state that the recurrence may not be rational.",
        size="n",
    ),
    "SRU-v2": Model(
        f"{_MODULES}:SRUv2",
        "Lei et al. 2018, version 2",
        open="The paper calls the recurrence of version 2, whose gates see the state, not obviously rational.",
    ),
    "LSTM": Model(f"{_MODULES}:LSTM", "Hochreiter and Schmidhuber 1997", open=_ELMAN),
    "GRU": Model(f"{_MODULES}:GRU", "Cho et al. 2014", open=_ELMAN),
    "RNN": Model(f"{_MODULES}:RNN", "Elman 1990", open=_ELMAN),
}
"""Name → model. A number in a name can be another one (ngram7, QRNN3-ifo); `+o` adds an output gate (F+o)."""

CELLS: dict[str, Callable[[], Cell]] = {
    name: model.make for name, model in MODELS.items() if not isinstance(model.make, str)
}
"""Those that are cells: name → what makes the cell."""
