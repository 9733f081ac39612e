"""The configuration of models for transformers: what config.json holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PretrainedConfig

from rrnn.automata import Cell
from rrnn.errors import CellError
from rrnn.zoo import get_cell, get_model

CELL_TEXT = "rrnn-cell"
"""What the text of a cell begins with."""


class RRNNConfig(PretrainedConfig):
    """The configuration of a model of rational recurrences.

    `cell` is a `Cell`, a name of the zoo ("F", "QRNN2:pooling=ifo") or the text of a cell; config.json holds the text,
    so that a model is the same wherever it is loaded. Reading it runs no code and opens no file. `heads`, `groups`,
    `bias`, `skip`, `norm` ("layer" or None), `low_rank`, `forget_bias` and `output_bias` are those of `RationalRNN`.

    - `embedding_dropout`, `layer_dropout` and `output_dropout` act on the embedded tokens, between layers and on the
      last layer's output, `recurrent_dropout` on every layer's input with one mask per sequence.
    - A language model's output layer is tied to the embedding (`tie_word_embeddings`) and has a bias (`head_bias`).
    - A classifier pools outputs over the text by `pooling`: "last", "mean", "max" or "attention"; its `readout` is
      "linear" or "mlp". Only a classifier can be `bidirectional`.
    """

    model_type = "rrnn"
    keys_to_ignore_at_inference = ["state", "hidden_states"]  # noqa: RUF012  (as transformers has it)

    def __init__(
        self,
        cell: Cell | str = "F",
        vocab_size: int = 10_000,
        hidden_size: int = 256,
        num_hidden_layers: int = 2,
        embedding_size: int | None = None,
        *,
        heads: int = 1,
        groups: int = 1,
        low_rank: Mapping[str, int] | None = None,
        bias: bool = True,
        skip: str | None = None,
        norm: str | None = None,
        bidirectional: bool = False,
        embedding_dropout: float = 0.0,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        output_dropout: float = 0.0,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        head_bias: bool = True,
        pooling: str = "last",
        readout: str = "linear",
        use_cache: bool = True,
        tie_word_embeddings: bool = True,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.cell = read_cell(cell).to_text()
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.embedding_size = hidden_size if embedding_size is None else embedding_size
        self.heads, self.groups, self.low_rank = heads, groups, None if low_rank is None else dict(low_rank)
        self.bias, self.skip, self.norm, self.bidirectional = bias, skip, norm, bidirectional
        self.embedding_dropout, self.layer_dropout = embedding_dropout, layer_dropout
        self.recurrent_dropout, self.output_dropout = recurrent_dropout, output_dropout
        self.forget_bias, self.output_bias, self.head_bias = forget_bias, output_bias, head_bias
        self.pooling, self.readout, self.use_cache = pooling, readout, use_cache
        for name, value, allowed in (
            ("pooling", pooling, ("last", "mean", "max", "attention")),
            ("readout", readout, ("linear", "mlp")),
            ("norm", norm, (None, "layer")),
        ):
            if value not in allowed:
                options = ", ".join(map(repr, allowed))
                raise CellError(f"{name} must be one of {options}; got {value!r}")
        super().__init__(**kwargs)
        self.tie_word_embeddings = tie_word_embeddings
        self.bos_token_id, self.eos_token_id, self.pad_token_id = bos_token_id, eos_token_id, pad_token_id

    def build_cell(self) -> Cell:
        """Return the cell."""
        return read_cell(self.cell)


def read_cell(cell: Cell | str) -> Cell:
    """Return a cell, a cell of the zoo by its name, or a text's cell. Unlike `rrnn.get_cell` this never opens a file,
    since a configuration may come from anywhere."""
    if isinstance(cell, Cell):
        return cell
    if not isinstance(cell, str):
        raise CellError(
            f"cell must be a Cell, a name of the zoo or the text of a cell; got {type(cell).__name__}"
        )
    if cell.lstrip().startswith(CELL_TEXT):
        return Cell.from_text(cell, "the cell of config.json")
    get_model(cell)  # raises an error that lists the zoo, where get_cell would look for a file
    return get_cell(cell)
