"""The language model: embedding, recurrent layers, softmax over the same embedding.

`TorchRNN` gives torch's LSTM and GRU the interface and the dropouts of a `RationalRNN`, so that all models are trained
in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.errors import CellError
from rrnn.nn import Block, BlockStack, RationalRNN
from rrnn.nn.dropout import Drops
from rrnn.tasks.configs import AUTO, OFF
from rrnn.tasks.lm.config import LMConfig
from rrnn.zoo import block_settings, get_cell, get_model

TorchKind = Literal["lstm", "gru"]
GATES = {"lstm": 4, "gru": 3}


class TorchLayer(nn.Module):
    """One layer of torch's LSTM or GRU. Its parameters are in cuDNN's order, to lie in one buffer.

    Unlike those of `nn.LSTM`, they are read at each call, so that `torch.func.functional_call` can replace them.
    """

    def __init__(
        self,
        kind: TorchKind,
        input_size: int,
        hidden_size: int,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        rows = GATES[kind] * hidden_size
        self.kind, self.input_size, self.hidden_size = kind, input_size, hidden_size
        for name, shape in {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def forward(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Run the layer on x (T, B, I). The state is (h, c) of an LSTM or (h,) of a GRU, each (1, B, H)."""
        weights: list[Tensor] = list(self.parameters())
        options = (True, 1, 0.0, self.training, False, False)  # biases, one layer, no dropout, …, time first
        if self.kind == "lstm":
            out, *end = torch._VF.lstm(x, state, weights, *options)
        else:
            out, *end = torch._VF.gru(x, state[0], weights, *options)
        return out, tuple(end)


class TorchRNN(nn.Module):
    """A stack of torch's own layers, with `input_dropout` before the first, `dropout` between layers, and
    `recurrent_dropout`, one mask per sequence, on every layer's input."""

    def __init__(
        self,
        kind: TorchKind,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int = 1,
        *,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if output_bias and kind == "gru":
            raise CellError(f"output_bias={output_bias} needs a cell with an output gate, and a GRU has none")
        self.kind = kind
        self.gate_biases = {1: forget_bias, 3: output_bias}  # of an LSTM's gates i, f, g, o
        self.dropout, self.input_dropout, self.recurrent_dropout = dropout, input_dropout, recurrent_dropout
        sizes = [hidden_size] * num_layers if isinstance(hidden_size, int) else list(hidden_size)
        pairs = zip([input_size, *sizes], sizes, strict=False)
        self.hidden_sizes = tuple(sizes)
        self.layers = nn.ModuleList(TorchLayer(kind, *pair, device, dtype) for pair in pairs)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw matrices uniformly from ±√(3 / columns), as in a `RationalRNN`; biases are 0, or those of gates."""
        for name, value in self.named_parameters():
            bound = (3 / value.shape[-1]) ** 0.5 if "weight" in name else 0.0
            value.uniform_(-bound, bound)
            if self.kind == "lstm" and name.endswith("bias_ih"):
                for gate, bias in self.gate_biases.items():
                    value.view(4, -1)[gate].fill_(bias)

    def init_state(self, batch_size: int) -> tuple[tuple[Tensor, ...], ...]:
        """Return the zero state of all layers."""
        like, count = next(self.parameters()), 2 if self.kind == "lstm" else 1
        return tuple((like.new_zeros(1, batch_size, size),) * count for size in self.hidden_sizes)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return (output (T, B, H), state) of x (T, B, I)."""
        state, ends = self.init_state(x.shape[1]) if state is None else state, []
        drops = Drops.current()
        for depth, layer in enumerate(self.layers):
            if self.training:
                x = drops(x, self.dropout if depth else self.input_dropout, self.recurrent_dropout)
            x, end = layer(x, state[depth])
            ends.append(end)
        return x, tuple(ends)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return (output (B, H), state) of one step x (B, I)."""
        out, state = self(x.unsqueeze(0), state)
        return out.squeeze(0), state


# ---- the model -------------------------------------------------------------------------------------------------------


MULTIPLE = 64
"""The softmax is padded to a multiple of this many words, since GPUs multiply aligned matrices much faster."""


@dataclass(frozen=True)
class Dropouts:
    """Dropout probabilities in training."""

    embedding: float = 0.0
    """Of the embedded words."""
    output: float = 0.0
    """Of the input of the softmax."""
    between: float = 0.0
    """Between layers."""
    variational: float = 0.0
    """Of every layer's input, with one mask per sequence and window, the same at all its steps."""
    word: float = 0.0
    """Of whole words of the vocabulary, everywhere in a window."""
    locked: bool = False
    """Whether embedding and output also have one mask per sequence and window."""


def model_of(
    config: LMConfig, vocabulary: int, *, start: int = 0, cell: Cell | None = None, device: Any = None
) -> LanguageModel:
    """Build the model of a `resolved` configuration. `cell` replaces the cell that the configuration names."""
    assert config.hidden_size is not None
    return LanguageModel(
        vocabulary,
        config.hidden_size,
        config.layers,
        **architecture(config, cell),
        output_gate=config.output_gate,
        start=start,
        dropouts=Dropouts(
            embedding=config.embedding_dropout or 0.0,
            output=config.output_dropout or 0.0,
            between=config.between_dropout,
            variational=config.recurrent_dropout,
            word=config.word_dropout,
            locked=config.locked_dropout,
        ),
        forget_bias=config.forget_bias,
        output_bias=config.output_bias,
        scale_rnn=config.scale_rnn,
        rnn_gain=config.rnn_gain,
        device=device,
    )


def architecture(config: LMConfig, cell: Cell | None) -> dict[str, Any]:
    """Return the options of a `LanguageModel` that decide its number of parameters, beside its sizes."""
    block = None
    if config.block != OFF:
        assert cell is not None
        block = block_settings(config.cell if config.block == AUTO else config.block, cell)
    return {
        "embedding_size": config.embedding_size,
        "cell": cell or config.cell,
        "block": block,
        "heads": config.heads,
        "groups": config.head_groups,
    }


def language_cell(name: str | Path | Cell, output_gate: bool = True) -> Cell:
    """Return a cell of the zoo, with the output gate of the paper's language models if it has one, or a file's cell."""
    if isinstance(name, Cell):
        return name
    if not output_gate or isinstance(name, Path) or name.endswith(".cell") or "/" in name:
        return get_cell(name)
    try:
        gated = "gate" in get_model(name).options
    except CellError:
        return get_cell(name)  # the cell of a file, or an error that lists the cells of the zoo
    return get_cell(name, gate=True) if gated and not name.lower().endswith("+o") else get_cell(name)


def title_of(layer: nn.Module) -> str:
    """Return what messages call a layer of a model."""
    if isinstance(layer, (Block, BlockStack)):
        return "a block (norms, convolutions and gates around a cell)"
    return f"torch's {layer.kind.upper()}" if isinstance(layer, TorchRNN) else type(layer).__name__


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, and a softmax over the same embedding: predicts the next word.

    `cell` is a cell (or its name), or "lstm" or "gru" for torch's own layers. `block` holds the options of
    `rrnn.nn.Block`, to stack blocks of this cell instead of layers. With an `embedding_size`, words have this size
    instead of `hidden_size`, and so has the last layer. The initialisation is the recipe's: every matrix of d
    columns is uniform in ±√(3 / d), biases are 0, except for those of forget and output gates (`forget_bias`,
    `output_bias`: the initial output of a max-plus automaton is the logarithm of its gate). `scale_rnn` multiplies the
    layer weights by √(1 − variational dropout), `rnn_gain` by a factor. Rows of `embedding` and `bias` beyond
    `vocabulary` are padding: they are zero, never predicted, and not counted as parameters.
    """

    def __init__(
        self,
        vocabulary: int,
        hidden_size: int,
        layers: int = 1,
        *,
        embedding_size: int | None = None,
        cell: Cell | str | Path = "F",
        block: Mapping[str, Any] | None = None,
        heads: int | None = None,
        groups: int = 1,
        output_gate: bool = True,
        start: int = 0,
        dropouts: Dropouts | None = None,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        scale_rnn: bool = False,
        rnn_gain: float = 1.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary, self.hidden_size, self.start = vocabulary, hidden_size, start
        size = self.embedding_size = embedding_size or hidden_size
        self.dropouts = dropouts or Dropouts()
        self.gain = rnn_gain * ((1 - self.dropouts.variational) ** 0.5 if scale_rnn else 1.0)
        padded = -(-vocabulary // MULTIPLE) * MULTIPLE
        self.embedding = nn.Parameter(torch.empty(padded, size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(padded, device=device, dtype=dtype))
        options: dict[str, Any] = {
            "num_layers": layers,
            "dropout": self.dropouts.between if layers > 1 or block is not None else 0.0,
            "input_dropout": 0.0 if self.dropouts.locked else self.dropouts.embedding,
            "recurrent_dropout": self.dropouts.variational,
            "forget_bias": forget_bias,
            "output_bias": output_bias,
            "device": device,
            "dtype": dtype,
        }
        sizes = [hidden_size] * (layers - 1) + [size]
        if isinstance(cell, str) and cell.lower() in GATES:
            self.rnn = TorchRNN(cell.lower(), size, sizes, **options)  # pyright: ignore[reportArgumentType]
        elif block is not None:
            options |= {"heads": heads, "groups": groups, **block}
            self.rnn = BlockStack(language_cell(cell, output_gate), size, **options)
        else:
            options |= {"heads": heads or 1, "groups": groups}
            self.rnn = RationalRNN(language_cell(cell, output_gate), size, sizes, **options)
            if self.rnn.output_size != size:
                raise CellError(
                    "each unit of a language model has one output, since the outputs are compared with the embedding; "
                    f"this cell has {self.rnn.output_size // size} per unit. Choose one: cell.output(…)"
                )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the initial weights."""
        bound = (3 / self.embedding_size) ** 0.5
        self.embedding.zero_()[: self.vocabulary].uniform_(-bound, bound)
        self.bias.zero_()
        self.rnn.reset_parameters()
        for value in self.rnn.parameters():
            if value.dim() > 1 and value.requires_grad:
                value.mul_(self.gain)

    def count_parameters(self) -> int:
        """Return the number of parameters, without the padding."""
        padding = len(self.bias) - self.vocabulary
        return sum(p.numel() for p in self.parameters()) - padding * (self.embedding_size + 1)

    # ---- running -------------------------------------------------------------------------------------------------

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embedded words, without dropout."""
        return F.embedding(ids, self.embedding)

    def read(
        self, embedded: Tensor, ids: Tensor, state: Any, rnn: Callable[..., tuple[Tensor, Any]] | None = None
    ) -> tuple[Tensor, Tensor, Any]:
        """Return (input of the softmax, the same before dropout, next state) of words (T, B), embedded (T, B, d).
        `rnn` replaces the layers, for a training that runs copies of their weights."""
        word, drops = self.dropouts.word, Drops.current()
        if self.training and word:
            kept = F.dropout(embedded.new_ones(len(self.bias)), word)
            embedded = embedded * kept[ids].unsqueeze(-1)
        raw, state = (rnn or self.rnn)(self._drop_embedded(embedded, drops), state)
        return self._drop(raw, self.dropouts.output, drops), raw, state

    def forward(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return (input of the softmax (T, B, d), next state) of words (T, B). `scores` turns it into scores, and
        `rrnn.tasks.lm.loss` into a loss without storing them."""
        hidden, _, state = self.read(self.embed(ids), ids, state)
        return hidden, state

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores (…, vocabulary): logarithms of the next word's probabilities, up to a constant."""
        return F.linear(hidden, self.embedding, self.bias)[..., : self.vocabulary]

    def first_state(self, batch: int) -> Any:
        """Return the state after the start symbol, with which a stream begins."""
        ids = torch.full((1, batch), self.start, device=self.embedding.device)
        return self(ids, self.rnn.init_state(batch))[1]

    def step(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return (scores (B, vocabulary), state) after one more word (B)."""
        drops = Drops.current()
        hidden, state = self.rnn.step(self._drop_embedded(self.embed(ids), drops), state)
        return self.scores(self._drop(hidden, self.dropouts.output, drops)), state

    def _drop_embedded(self, x: Tensor, drops: Drops) -> Tensor:
        """Apply a locked mask. Without one, the layers apply this dropout together with their own."""
        return self._drop(x, self.dropouts.embedding, drops) if self.dropouts.locked else x

    def _drop(self, x: Tensor, p: float, drops: Drops) -> Tensor:
        if not self.training:
            return x
        return drops(x, shared=p) if self.dropouts.locked else drops(x, p)
