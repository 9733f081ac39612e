"""The table of all models: how to build each, who published it, and whether its recurrence is known to be rational.

To add a model, write a function that builds its cell and add a row here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from rrnn.automata import Cell
from rrnn.zoo.chains import cnn, rcnn, sopa
from rrnn.zoo.counting import ring, symmetric
from rrnn.zoo.gated import hgrn, min_gru, min_lstm, qrnn, rg_lru, scrn, sru, t_gru, t_lstm, t_rnn
from rrnn.zoo.rrnn import b, b_max_plus, b_max_plus_scaled, c, example, f, ngram
from rrnn.zoo.wide import (
    delta_net,
    gated_delta_net,
    gla,
    hgrn2,
    isan,
    linear_attention,
    linear_elman,
    lru,
    mamba,
    mamba2,
    mamba3,
    retnet,
    rwkv6,
    s4d,
)


@dataclass(frozen=True)
class Model:
    """A model of the zoo."""

    make: Callable[..., Cell] | str
    """The function that builds the cell; for a model that is no cell, the layer's class as "module:Class", which is
    imported on first use, since it needs torch."""
    paper: str
    open: str = ""
    """Empty for a rational recurrence; otherwise what the paper says about it, without a proof."""
    proved: str = ""
    """What is proved about a recurrence that the paper leaves open: the verdict, with its proposition in
    docs/theory.md."""
    size: str = ""
    """The option that a number in the name sets: QRNN3 has window=3."""
    recurrence: str = ""
    """The equation of a layer that is no cell. A cell's recurrence is derived from its automaton."""
    automaton: Callable[..., Cell] | None = None
    """For a layer with kernels of its own: the function that builds its cell for a number of units."""

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
        """The function that builds the cell, or the layer's class."""
        if not isinstance(self.make, str):
            return self.make
        module, _, name = self.make.partition(":")
        return getattr(import_module(module), name)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The names of the options that `factory` takes."""
        return tuple(inspect.signature(self.factory).parameters)


PAPER = "Peng et al. 2018"
SIGNED = "gates of Grazzi et al. 2025"
_ELMAN = (
    "The paper hypothesises, without a proof, that models like Elman networks, LSTMs and GRUs, whose states pass "
    "through affine maps and nonlinear functions, are not rational."
)
_PROPOSITION_1 = "not rational over real, log, max-plus (Proposition 1)"
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
    "linear-attention": Model(linear_attention, "Katharopoulos et al. 2020"),
    "RetNet": Model(retnet, "Sun et al. 2023"),
    "GLA": Model(gla, "Yang et al. 2024"),
    "HGRN2": Model(hgrn2, "Qin et al. 2024"),
    "Mamba": Model(mamba, "Gu and Dao 2023"),
    "Mamba-2": Model(mamba2, "Dao and Gu 2024"),
    "Mamba-3": Model(mamba3, "Lahoti et al. 2026"),
    "RWKV-6": Model(rwkv6, "Peng et al. 2024"),
    "DeltaNet": Model(delta_net, "Schlag et al. 2021"),
    "Gated-DeltaNet": Model(gated_delta_net, "Yang et al. 2025"),
    "S4D": Model(s4d, "Gu et al. 2022"),
    "LRU": Model(lru, "Orvieto et al. 2023"),
    "B-signed": Model(partial(b, signed=True), SIGNED),
    "F-signed": Model(partial(f, signed=True), SIGNED),
    "ring3": Model(ring, "rrnn", size="k"),
    "S3": Model(symmetric, "rrnn", size="n"),
    "ISAN": Model(
        "rrnn.zoo.mixing:ISAN", "Foerster et al. 2017", recurrence="cₜ = W_x cₜ₋₁ + b_x", automaton=isan
    ),
    "linear-Elman": Model(
        "rrnn.zoo.mixing:LinearElman",
        "Elman 1990, without tanh",
        recurrence="cₜ = W cₜ₋₁ + U vₜ + b",
        automaton=linear_elman,
    ),
    "SCRN": Model(
        "rrnn.zoo.controls:SCRN",
        "Mikolov et al. 2015",
        open="Its context units are rational; its hidden layer is an Elman network's. " + _ELMAN,
        proved=_PROPOSITION_1,
        recurrence="hₜ = σ(P sₜ + A vₜ + R hₜ₋₁)",
    ),
    "RCNN2-state": Model(
        "rrnn.zoo.controls:StateRCNN",
        "Lei et al. 2015, 2016",
        open="The paper says of a decay that depends on the state that the recurrence may not be rational.",
        proved=_PROPOSITION_1,
        size="n",
        recurrence="cʲₜ = λₜ ⊙ cʲₜ₋₁ + (1 − λₜ) ⊙ cʲ⁻¹ₜ₋₁ ⊙ W_j vₜ, λₜ = σ(W_c cₜ₋₁ + W_λ vₜ + b_λ)",
    ),
    "SRU-v2": Model(
        "rrnn.zoo.controls:SRUv2",
        "Lei et al. 2018, version 2",
        open="The paper calls the recurrence of version 2, whose gates see the state, not obviously rational.",
        proved=_PROPOSITION_1,
        recurrence="cₜ = fₜ ⊙ cₜ₋₁ + (1 − fₜ) ⊙ W vₜ, fₜ = σ(W_f vₜ + v_f ⊙ cₜ₋₁ + b_f)",
    ),
    "LSTM": Model(
        "rrnn.zoo.recurrent:LSTM",
        "Hochreiter and Schmidhuber 1997",
        open=_ELMAN,
        proved=_PROPOSITION_1,
        recurrence="cₜ = fₜ ⊙ cₜ₋₁ + iₜ ⊙ gₜ, gates of vₜ and hₜ₋₁ = oₜ₋₁ ⊙ tanh(cₜ₋₁)",
    ),
    "GRU": Model(
        "rrnn.zoo.recurrent:GRU",
        "Cho et al. 2014",
        open=_ELMAN,
        proved=_PROPOSITION_1,
        recurrence="hₜ = zₜ ⊙ hₜ₋₁ + (1 − zₜ) ⊙ nₜ, gates of vₜ and hₜ₋₁",
    ),
    "RNN": Model(
        "rrnn.zoo.recurrent:RNN",
        "Elman 1990",
        open=_ELMAN,
        proved=_PROPOSITION_1,
        recurrence="hₜ = tanh(W hₜ₋₁ + U vₜ + b)",
    ),
}
"""Name → model. Names may contain another number (ngram7, QRNN3-ifo); `+o` adds an output gate (F+o)."""

CELLS: dict[str, Callable[[], Cell]] = {
    name: model.make for name, model in MODELS.items() if not isinstance(model.make, str)
}
"""The models that are cells: name → the function that builds the cell."""
