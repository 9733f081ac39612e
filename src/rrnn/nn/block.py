"""Blocks: a recurrence with what published models put around it, so that it can be stacked.

    x ─┬─ norm ── u ─┬─ projections ── convolution, SiLU, unit length ── cell ── mix ── norm and gate ── W_out ──(+)── …
       │             └─ gate ──────────────────────────────────────────────────────────┘                        │
       └────────────────────────────────────────────────────────────────────────────────────────────────────────┘

With `inner`, as in Mamba, u is first projected to the size of the layer, and the convolution comes before the cell's
projections. With `mlp`, x + MLP(norm(x)) follows. `rrnn.zoo.blocks` has the settings of published blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.errors import CellError, ShapeError, nearest
from rrnn.nn.arguments import (
    StateShapes,
    check_block_states,
    check_cells,
    check_heads,
    check_low_rank,
    check_options,
    check_ranks,
    named_block,
    positive,
)
from rrnn.nn.block_parts import MLP, Dense, PartNorm, ShortConvolution
from rrnn.nn.dropout import Drops
from rrnn.nn.layer import RationalLayer
from rrnn.nn.layer_weights import ProjectionRows
from rrnn.nn.sequence_module import SequenceModule
from rrnn.nn.sequences import BlockState, LayerState, zero_padding


@dataclass(frozen=True)
class BlockOptions:
    """What a block puts around its cell. The defaults are the plainest block: a norm, the cell, a projection."""

    expand: float = 1.0
    """How many units the cell has for each number of the input, unless `hidden_size` is given."""
    norm: Literal["rms", "layer"] | None = "rms"
    """The norm of the block's input."""
    inner: bool = False
    """Whether the cell's layer reads a projection of the input instead of the input."""
    conv: int = 0
    """How many steps the short convolution sees; 0 for none. It is depthwise and causal, and a SiLU follows."""
    convolved: Sequence[str] = ("input",)
    """The projections of the cell that the convolution sees; "input" is what the cell reads as input()."""
    conv_bias: bool = True
    """Whether the convolution has a bias."""
    silu: Sequence[str] = ()
    """Further projections of the cell that go through a SiLU."""
    normalised: Sequence[str] = ()
    """Projections over a family that are scaled to length one, in each head."""
    low_rank: Mapping[str, float] | None = None
    """Projections of low rank and their ranks: numbers, or (below 1) shares of the block's size."""
    head_size: int | None = None
    """Units per head, unless `heads` is given. Where it does not divide the units, heads are larger."""
    most_heads: int | None = None
    """The number of heads, unless `heads` is given. Where it does not divide the units, there are fewer."""
    mix: bool = False
    """Whether a matrix maps the cell's outputs to the block's size, and D ⊙ u is added: LRU's C and D."""
    output_norm: Literal["rms", "layer"] | None = None
    """The norm of the cell's output."""
    norm_over: Literal["head", "group", "all"] = "head"
    """Which outputs are normalised together."""
    gate: bool = False
    """Whether the output is multiplied by SiLU(W u)."""
    gate_first: bool = False
    """Whether the gate comes before the norm."""
    activation: Literal["gelu", "silu"] | None = None
    """A function of the output before its projection."""
    output: Literal["linear", "glu"] = "linear"
    """The last projection: W y, or W y ⊙ σ(V y)."""
    mlp: float | None = None
    """How many hidden units the MLP (a SwiGLU with a norm before it) has for each number of the input."""
    bias: bool = False
    """Whether projections of the block's input and its output have biases."""
    eps: float = 1e-5
    """What norms add to variances."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ShapeError(
                    f"{name} is one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}"
                )
        for name in ("conv", "expand", "mlp", "eps"):
            value, types = getattr(self, name), int if name == "conv" else (int, float)
            is_number = isinstance(value, types) and not isinstance(value, bool)
            if not (is_number and 0 <= value < math.inf) and (name != "mlp" or value is not None):
                what = "a whole number" if name == "conv" else "a finite number"
                raise ShapeError(f"{name} must be {what} that is not below 0; got {value!r}")
        for name in ("head_size", "most_heads"):
            if getattr(self, name) is not None:
                positive(getattr(self, name), name)
        for name in ("convolved", "silu", "normalised"):
            value = getattr(self, name)
            if not (isinstance(value, (tuple, list)) and all(isinstance(x, str) for x in value)):
                raise ShapeError(f'{name} takes names of projections, as in ("q",); got {value!r}')
        if self.inner and tuple(self.convolved) != ("input",):
            raise ShapeError(
                f"with inner=True the convolution sees the inner input only; got convolved={self.convolved!r}. "
                "Leave out inner, or convolved."
            )

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> BlockOptions:
        """Return the options that a call gives; one that does not exist is an error."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                hint = nearest(name, known) or f" It has {', '.join(known)}."
                raise ShapeError(f"a block has no option {name!r}.{hint}")
        return cls(**given)


_NORMS = (None, "rms", "layer")
_CHOICES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("inner", "conv_bias", "mix", "gate", "gate_first", "bias"), (False, True)),
    "norm": _NORMS,
    "output_norm": _NORMS,
    "norm_over": ("head", "group", "all"),
    "activation": (None, "gelu", "silu"),
    "output": ("linear", "glu"),
}


# ---- the block -------------------------------------------------------------------------------------------------------


class Block(SequenceModule):
    """A recurrence with what published models put around it: `Block("Mamba", 512)`, `Block("GLA:states=32", 512)`.

    A cell that is given by name has the settings of its published block (`rrnn.zoo.blocks`), which options replace; a
    `Cell` or a file has those of `BlockOptions`. Input and output have `size` numbers a step. It is called as a
    `RationalRNN` is: (output, state) of a batch with `lengths` or a `mask`, `step` by step, or packed.

    - `hidden_size`: units of the cell, by default `expand` · size.
    - `heads`, `groups`: as in `RationalRNN`; heads are chosen by the settings if left out.
    - `residual`: whether the input is added to the output.
    - `dropout`: of what the recurrence and the MLP add to the input. `recurrent_dropout`: of the normalised input, one
      mask per sequence and call.
    """

    def __init__(
        self,
        cell: Cell | str,
        size: int,
        hidden_size: int | None = None,
        *,
        heads: int | None = None,
        groups: int = 1,
        residual: bool = True,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        defaults = named_block(cell) if isinstance(cell, str) else {}
        self.options = o = BlockOptions.read({**defaults, **options})
        positive(size, "size")
        check_options(size, 1, {"dropout": dropout, "recurrent_dropout": recurrent_dropout}, None, None)
        units = max(1, round(o.expand * size)) if hidden_size is None else hidden_size
        cells = check_cells(cell, units)
        self.cell = cells[0][0]
        self.heads, self.groups = _heads(o, units) if heads is None else heads, groups
        check_heads(cells, self.heads, groups)
        ranks: Any = o.low_rank
        if isinstance(ranks, Mapping):
            ranks = {
                name: math.ceil(rank * size) if _is_share(rank) else rank for name, rank in ranks.items()
            }
        check_low_rank(cells, ranks)
        self.size = self.input_size = self.output_size = size
        self.hidden_size = positive(units, "hidden_size")
        self.residual, self.batch_first = residual, batch_first
        self.dropout, self.recurrent_dropout = float(dropout), float(recurrent_dropout)

        made: dict[str, Any] = {"device": device, "dtype": dtype}
        norm = partial(PartNorm, eps=o.eps, **made)
        self.norm = norm(o.norm, size, 1) if o.norm else None
        self.layer = RationalLayer(
            cells,
            units if o.inner else size,
            project_input="input" in o.convolved and o.conv > 0 and not o.inner,
            forget_bias=forget_bias,
            output_bias=output_bias,
            heads=self.heads,
            groups=groups,
            low_rank=ranks,
            **made,
        )
        if "low_rank" in options:  # a published block keeps its rank in small sizes, too
            check_ranks(self.layer.low_rank_rows, self.layer.input_size)
        width = size if o.mix else self.layer.output_size
        projected = units * o.inner + width * o.gate
        self.in_proj = Dense(size, projected, bias=o.bias, **made) if projected else None
        rows = 0 if o.inner else max((r.stop for r in self.layer.rows), default=0)
        self.projection_bias = nn.Parameter(torch.empty(rows, **made)) if o.bias and rows else None
        self.shaped = self._shaped_rows()
        self.sharers = {name: self._sharers(name) for name in o.normalised}
        channels = units if o.inner else sum(r.stop - r.start for r in self.shaped if r.name in o.convolved)
        self.conv = ShortConvolution(channels, o.conv, o.conv_bias, **made) if o.conv else None
        self.mix = Dense(self.layer.output_size, size, bias=False, **made) if o.mix else None
        self.through = nn.Parameter(torch.empty(size, **made)) if o.mix else None
        parts = {"head": self.heads, "group": groups, "all": 1}[o.norm_over]
        parts *= width // units if o.norm_over != "all" and not o.mix else 1
        self.output_norm = norm(o.output_norm, width, parts) if o.output_norm else None
        self.out_proj = Dense(width, size * (2 if o.output == "glu" else 1), bias=o.bias, **made)
        self.mlp_norm = norm(o.norm or "rms", size, 1) if o.mlp else None
        self.mlp = MLP(size, max(1, round(o.mlp * size)), **made) if o.mlp else None
        self.reset_parameters()

    def _shaped_rows(self) -> list[ProjectionRows]:
        """Return the layer's projections that go through convolution, SiLU or a norm, in the order of its rows."""
        o, rows = self.options, {r.name: r for r in self.layer.rows}
        conv = o.convolved if o.conv and not o.inner else ()
        for option, names in (("convolved", conv), ("silu", o.silu), ("normalised", o.normalised)):
            for name in names:
                if name not in rows:
                    raise CellError(
                        f"{option} names projections of {self.cell.name}, which are {', '.join(rows) or 'none'}; got "
                        f"{name!r}. Leave it out, or choose inner=True to convolve the input."
                    )
        wanted = {*conv, *o.silu, *o.normalised}
        return [r for r in self.layer.rows if r.name in wanted]

    def reset_parameters(self) -> None:
        """Draw the default initialisation anew: matrices uniform in ±1/√inputs, the cell's own start."""
        for module in self.modules():
            reset = getattr(module, "reset_parameters", None)
            if module is not self and callable(reset):
                reset()
        if self.projection_bias is not None:
            nn.init.zeros_(self.projection_bias)
        if self.through is not None:
            nn.init.normal_(self.through)  # as LRU's D

    # ---- states --------------------------------------------------------------------------------------------------

    def init_time_first(self, batch: int) -> BlockState:
        """Return the state before the first step of a batch."""
        _, tail = self.state_shapes((batch,))
        return BlockState(
            self.layer.initial(batch), None if tail is None else self.layer.weight.new_zeros(tail)
        )

    def check_state(self, state: Any, batch: tuple[int, ...]) -> BlockState:
        """Return a caller's state, checked."""
        return check_block_states((state,), [self.state_shapes(batch)], "a BlockState")[0]

    def state_shapes(self, batch: tuple[int, ...]) -> tuple[StateShapes, tuple[int, ...] | None]:
        """Return the shapes of the layer's state and of the tail; `batch` is () for an unbatched state."""
        tail = None if self.conv is None else (len(self.conv.weight) - 1, *batch, self.conv.weight.shape[1])
        return self.layer.state_shapes(batch), tail

    # ---- running -------------------------------------------------------------------------------------------------

    def run(
        self, x: Tensor, state: BlockState | None, mask: Tensor | None, prefix: bool
    ) -> tuple[Tensor, BlockState]:
        """Return (output, state) of x (T, B, size) with zeros at padded steps, and mask (T, B)."""
        drops = Drops.current() if self.training and (self.dropout or self.recurrent_dropout) else None
        u = x if self.norm is None else self.norm(x)
        u = u if drops is None else drops(u, shared=self.recurrent_dropout)
        y, gate, state = self._recur(u, state, mask, prefix)
        o = self.options
        if self.mix is not None:
            y = torch.addcmul(self.mix(y), u, self.through.to(u.dtype))  # pyright: ignore[reportOptionalMemberAccess]
        y = y * F.silu(gate) if gate is not None and o.gate_first else y
        y = y if self.output_norm is None else self.output_norm(y)
        y = y * F.silu(gate) if gate is not None and not o.gate_first else y
        y = y if o.activation is None else getattr(F, o.activation)(y)
        y = self.out_proj(y)
        y = F.glu(y) if o.output == "glu" else y
        y = y if drops is None else drops(y, self.dropout)
        x = x + y if self.residual else y
        if self.mlp is not None and self.mlp_norm is not None:
            y = self.mlp(self.mlp_norm(x))
            x = x + (y if drops is None else drops(y, self.dropout))
        return zero_padding(x, mask), state

    def _recur(
        self, u: Tensor, state: BlockState | None, mask: Tensor | None, prefix: bool
    ) -> tuple[Tensor, Tensor | None, BlockState]:
        """Return (the cell's output, the gate before its SiLU, the next state) of the normalised input."""
        before, tail = (None, None) if state is None else state
        own = None if self.in_proj is None else self.in_proj(u)
        if self.options.inner:
            assert own is not None
            v, gate = own[..., : self.hidden_size], own[..., self.hidden_size :]
            gate = gate if self.options.gate else None
            if self.conv is not None:
                v, tail = self.conv(v, tail, mask, prefix)
            out, after, _ = self.layer.recur(v, before, mask, prefix)
            return out, gate, BlockState(after, tail)
        history = self.layer.no_history(u.shape[1]) if before is None else before.history
        y, history = self.layer.project(u, history, mask, prefix, None)
        y, tail = self._shape(y, tail, mask, prefix)
        out, states, _ = self.layer.run_cells(y, u, None if before is None else before.states, mask)
        return out, own, BlockState(LayerState(states, history), tail)

    def _shape(
        self, y: Tensor, tail: Tensor | None, mask: Tensor | None, prefix: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return (pre-activations after biases, convolution, SiLU and norms; the next tail)."""
        o = self.options
        y = y if self.projection_bias is None else y + self.projection_bias.to(y.dtype)
        if not self.shaped:
            return y, tail
        columns = {r.name: y[..., r.start : r.stop] for r in self.layer.rows}
        if self.conv is not None:
            names = [r.name for r in self.shaped if r.name in o.convolved]
            seen, tail = self.conv(torch.cat([columns[n] for n in names], -1), tail, mask, prefix)
            sizes = [columns[n].shape[-1] for n in names]
            columns |= dict(zip(names, seen.split(sizes, -1), strict=True))
        columns |= {name: F.silu(columns[name]) for name in o.silu}
        for name, sharers in self.sharers.items():
            heads = columns[name].unflatten(-1, (sharers, -1))
            length = heads.square().sum(-1, keepdim=True).add(1e-6).sqrt()  # as published models do
            columns[name] = (heads / length).flatten(-2)
        return torch.cat([columns[r.name] for r in self.layer.rows], -1), tail

    def _sharers(self, name: str) -> int:
        """Return how many heads or groups have such a projection for themselves, over a family."""
        program = self.layer.programs[0]
        extent = None if program.wide is None else program.wide.projections[program.projections.index(name)]
        if program.wide is None or extent is None or not extent.over or extent.per == "unit":
            raise CellError(
                f"normalised names projections over a family that the units of a head share, and {name} of "
                f"{self.cell.name} is none. Leave it out."
            )
        return program.wide.sharers(extent, self.hidden_size)


def _is_share(rank: Any) -> bool:
    """Return whether a rank is a share of the block's size."""
    return isinstance(rank, float) and 0 < rank < 1


def _heads(options: BlockOptions, units: int) -> int:
    """Return the number of heads that the options ask for, or the next smaller one that divides the units."""
    size = options.head_size
    wanted = options.most_heads or (1 if size is None else units // size)
    return next(heads for heads in range(max(1, min(wanted, units)), 0, -1) if units % heads == 0)
