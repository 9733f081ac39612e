"""Language models and text classifiers for transformers, over any cell.

tokens (batch, time) ── embedding ──▶ layers, a `RationalRNN` each ──▶ output layer, or pooling and read-out

A model's cache is its state: `generate` passes on what the layers return, a few numbers per unit however long the text
is. Padding (attention_mask 0) changes no state and is on either side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import ModelOutput

from rrnn.errors import CellError, ShapeError
from rrnn.hf.config import RRNNConfig
from rrnn.nn import RationalRNN
from rrnn.nn.layer import RationalLayer
from rrnn.nn.layer_weights import CellParameters
from rrnn.nn.sequences import State, reorder


@dataclass
class RRNNOutput(ModelOutput):
    """The outputs of the layers; `state` is a tuple with the state of each layer."""

    last_hidden_state: Tensor | None = None
    state: tuple[State, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None


@dataclass
class RRNNCausalLMOutput(ModelOutput):
    """The scores of next tokens, and the loss if labels were given."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: tuple[State, ...] | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class RRNNPreTrainedModel(PreTrainedModel):
    """What all models here share: their configuration, and how weights are initialised."""

    config: RRNNConfig
    config_class = RRNNConfig
    base_model_prefix = "backbone"
    supports_gradient_checkpointing = True
    _is_stateful = True
    _no_split_modules = ["RationalRNN"]  # noqa: RUF012  (as transformers has it)

    @classmethod
    def from_pretrained(cls, *args: Any, **options: Any) -> Any:
        """Load a model from a folder: see `PreTrainedModel.from_pretrained`."""
        found = super().from_pretrained(*args, **options)
        model = found[0] if isinstance(found, tuple) else found  # with output_loading_info
        for module in model.modules():
            if isinstance(module, CellParameters):
                module.freeze_fixed()  # transformers lets every parameter be learned
        return found

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialise what no file has given: layers as `RationalRNN` does, the embedding uniformly in ±√(3 / size)."""
        if any(getattr(p, "_is_hf_initialized", False) for p in module.parameters()):
            super()._init_weights(module)  # it leaves alone what was loaded
        elif isinstance(module, RationalLayer):
            module.reset_parameters()
        elif isinstance(module, nn.Embedding):
            bound = (3 / module.embedding_dim) ** 0.5
            nn.init.uniform_(module.weight, -bound, bound)
        else:
            super()._init_weights(module)


class RRNNModel(RRNNPreTrainedModel):
    """Embedding and layers, without an output layer."""

    def __init__(self, config: RRNNConfig) -> None:
        super().__init__(config)
        cell, size = config.build_cell(), config.embedding_size
        self.embeddings = nn.Embedding(config.vocab_size, size)
        layers = []
        for depth in range(config.num_hidden_layers):
            layers.append(
                RationalRNN(
                    cell,
                    size,
                    config.hidden_size,
                    bias=config.bias,
                    bidirectional=config.bidirectional,
                    input_dropout=config.layer_dropout if depth else config.embedding_dropout,
                    recurrent_dropout=config.recurrent_dropout,
                    skip=config.skip,  # pyright: ignore[reportArgumentType]
                    norm=config.norm,  # pyright: ignore[reportArgumentType]
                    forget_bias=config.forget_bias,
                    output_bias=config.output_bias,
                    heads=config.heads,
                    groups=config.groups,
                    low_rank=config.low_rank,
                )
            )
            size = layers[-1].output_size
        self.layers, self.output_size = nn.ModuleList(layers), size
        self.dropout = nn.Dropout(config.output_dropout)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: tuple[State, ...] | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> RRNNOutput | tuple[Any, ...]:
        """Run the layers on tokens (batch, time), or on embedded ones (batch, time, size).

        `attention_mask` (batch, time) is 0 at padding, on either side; one that is longer than the tokens belongs to a
        whole text of which these are the last ones. `state` continues an earlier call.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ShapeError("a model takes either input_ids or inputs_embeds: give one of them")
        x = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if state is not None and self.config.bidirectional:
            raise ShapeError("a bidirectional model also reads its text from the end: it takes no state")
        mask = None if attention_mask is None else attention_mask[:, -x.shape[1] :].bool().T
        if state is not None and x.shape[1] == 1:
            mask = None  # a token that was just generated is no padding
        use_cache = self.config.use_cache and not self.training if use_cache is None else use_cache
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        hidden, ends, x = [x], [], x.transpose(0, 1)
        for layer, first in zip(self.layers, state or [None] * len(self.layers), strict=True):
            if self.gradient_checkpointing and self.training:
                x, end = self._gradient_checkpointing_func(self._layer, layer, x, first, mask)
            else:
                x, end = self._layer(layer, x, first, mask)
            ends.append(end)
            hidden.append(x.transpose(0, 1))
        kept = tuple(ends) if use_cache and not self.config.bidirectional else None
        output = RRNNOutput(self.dropout(hidden[-1]), kept, tuple(hidden) if wanted else None)
        return_dict = self.config.return_dict if return_dict is None else return_dict
        return output if return_dict else output.to_tuple()

    @staticmethod
    def _layer(layer: nn.Module, x: Tensor, state: State | None, mask: Tensor | None) -> tuple[Tensor, State]:
        return layer(x, state, mask=mask)


class RRNNForCausalLM(RRNNPreTrainedModel, GenerationMixin):
    """A language model: predicts the next token, and generates."""

    _tied_weights_keys = {"lm_head.weight": "backbone.embeddings.weight"}  # noqa: RUF012  (as transformers has it)

    def __init__(self, config: RRNNConfig) -> None:
        super().__init__(config)
        if config.bidirectional:
            raise CellError(
                "a language model reads its text from left to right: leave out bidirectional, or use "
                "RRNNForSequenceClassification"
            )
        self.backbone = RRNNModel(config)
        size = self.backbone.output_size
        if config.tie_word_embeddings and size != config.embedding_size:
            raise CellError(
                f"a tied output layer compares outputs with tokens, and the last layer has {size} outputs where "
                f"a token has {config.embedding_size} numbers. Give embedding_size={size}, or tie_word_embeddings=False"
            )
        self.lm_head = nn.Linear(size, config.vocab_size, bias=config.head_bias)
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the cache is the layers' state

    def _reorder_cache(self, state: tuple[State, ...], beam_idx: Tensor) -> tuple[State, ...]:
        """Return the state of the sequences that beam search goes on with."""
        return tuple(reorder(layer, beam_idx.to(self.device)) for layer in state)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        state: tuple[State, ...] | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> RRNNCausalLMOutput | tuple[Any, ...]:
        """Return the scores of next tokens (batch, time, vocabulary). `labels` are shifted inside, so they are the
        tokens themselves; −100 is left out of the loss. See `RRNNModel` for the other arguments."""
        found = self.backbone(
            input_ids, attention_mask, inputs_embeds, state, use_cache, output_hidden_states, return_dict=True
        )
        hidden = found.last_hidden_state
        rows = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(hidden[:, rows])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        output = RRNNCausalLMOutput(loss, logits, found.state, found.hidden_states)
        return_dict = self.config.return_dict if return_dict is None else return_dict
        return output if return_dict else output.to_tuple()


class RRNNForSequenceClassification(RRNNPreTrainedModel):
    """A text classifier: pools the outputs of the last layer, and reads a label off."""

    def __init__(self, config: RRNNConfig) -> None:
        super().__init__(config)
        self.backbone = RRNNModel(config)
        size, labels = self.backbone.output_size, len(config.id2label or {})
        if config.pooling == "attention":
            self.attention = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 1, bias=False))
        if config.readout == "linear":
            self.score: nn.Module = nn.Linear(size, labels)
        else:
            self.score = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, labels))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        """Return the logits (batch, labels). Without an attention_mask, tokens that are the configuration's
        pad_token_id are padding."""
        pad = self.config.pad_token_id
        if attention_mask is None and input_ids is not None and pad is not None:
            attention_mask = input_ids != pad
        found = self.backbone(
            input_ids, attention_mask, inputs_embeds, None, False, output_hidden_states, return_dict=True
        )
        hidden = found.last_hidden_state
        mask = hidden.new_ones(hidden.shape[:2]) if attention_mask is None else attention_mask
        logits = self.score(self._pool(hidden, mask.bool()))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, pooled_logits=logits, labels=labels, config=self.config, **kwargs
            )
        output = SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=found.hidden_states)
        return_dict = self.config.return_dict if return_dict is None else return_dict
        return output if return_dict else output.to_tuple()

    def _pool(self, h: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per text (batch, size) of outputs (batch, time, size), as `TextClassifier.pool` does."""
        here, how = mask.unsqueeze(-1), self.config.pooling
        if how == "mean":
            return torch.where(here, h, 0.0).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
        if how == "max":
            return torch.where(here | ~mask.any(1).view(-1, 1, 1), h, -torch.inf).amax(1)
        if how == "attention":
            scores = torch.where(here, self.attention(h), torch.finfo(h.dtype).min)
            return (scores.softmax(1) * torch.where(here, h, 0.0)).sum(1)
        rows, steps = torch.arange(len(h), device=h.device), torch.arange(h.shape[1], device=h.device)
        last = h[rows, torch.where(mask, steps, 0).amax(1)]
        if not self.config.bidirectional:
            return last
        half = h.shape[-1] // 2  # the backward direction ends at the first token
        return torch.cat([last[:, :half], h[rows, mask.int().argmax(1), half:]], -1)


AutoConfig.register(RRNNConfig.model_type, RRNNConfig)
AutoModel.register(RRNNConfig, RRNNModel)
AutoModelForCausalLM.register(RRNNConfig, RRNNForCausalLM)
AutoModelForSequenceClassification.register(RRNNConfig, RRNNForSequenceClassification)
