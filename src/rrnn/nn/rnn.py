"""`RationalRNN`: an `nn.LSTM` look-alike that runs any cell. Stacking, directions, packing, streaming."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rrnn.automata import Cell
from rrnn.errors import BackendError, ShapeError
from rrnn.nn.arguments import (
    check_forget_gates,
    check_heads,
    check_input,
    check_layers,
    check_low_rank,
    check_options,
    check_ranks,
    check_state,
)
from rrnn.nn.dropout import Drops
from rrnn.nn.layer import Norm, RationalLayer, Skip
from rrnn.nn.packed import Packed
from rrnn.nn.sequences import (
    LayerState,
    OneStep,
    State,
    TimeFirst,
    reorder,
    transform,
    zero_padding,
)


class RationalRNN(nn.Module):
    """Layers of rational recurrences: every hidden unit is the score of a weighted automaton, the cell.

    `RationalRNN(cell, 300, 256)` has 256 copies of the cell, each with weights of its own; a list of pairs,
    `RationalRNN([(B, 96), (C, 64)], 300)`, puts cells of several kinds side by side in every layer. A cell may be given
    by its name in the zoo, `RationalRNN("F", 300, 256)`, which takes the cell's default options unless the name holds
    others ("QRNN2:pooling=ifo"), or by its file. The arguments up to `bidirectional` are those of `nn.LSTM`; but
    `hidden_size` may also be a list with a size for each layer.

    - `bias`: without, the biases of projections are fixed at zero; the cell's own parameters are always learned.
    - `dropout`: on the outputs of every layer but the last, a new mask at every step, as in `nn.LSTM`.
    - `input_dropout`: the same on the first layer's input.
    - `recurrent_dropout`: variational: on what a layer's projections see of its input, one mask per sequence and call,
      the same at all its steps (and for a window's remembered inputs). input() and a skip connection of equal
      sizes see the input undropped.
    - `skip`: "residual": h + x; "highway": g ⊙ h + (1 − g) ⊙ x with the gate g = σ(W_g x + b_g); per direction, and
      with a learned projection of x where sizes differ.
    - `norm`: "layer", a LayerNorm of each direction's output after its skip connection, or a function that makes a
      module for a hidden size.
    - `forget_bias`: the first value of the biases of forget gates (projections called f, f1, … or forget…).
    - `heads`, `groups`: for cells whose units share projections or parameters (`per="head"`): the units of each layer
      are split into this many heads, and the heads into groups.
    - `low_rank`: projections whose matrix is a product of two, with their ranks: {"f": 16}.
    - `output_bias`: the same of output gates (o, o1, … or output…).
    - `zoneout`: in training a forget gate is 1 with this probability, at each step and unit by itself, as in QRNN; a
      unit whose new input is weighted 1 − f then keeps its state.

    A unit gives one output, or as many as its cell has output expressions: `output_size` is the length of the layer's
    output, both directions included; in each, the first output of all units of a cell, then their second one.

    A cell that reads input() gets the layer's input at its own unit, if input_size equals hidden_size; otherwise a
    further projection stands in for it, as in SRU. Initialisation: see `rrnn.nn.layer_weights`.

    State dict: `layers.I` holds layer I, `reverse_layers.I` its backward direction; in each `weight` (rows: see
    `rrnn.nn.layer_weights`), `lagged.K` for windows, `cells.C.bias.F`, `cells.C.parameter.R` and
    `cells.C.low_rank.F` by the cell's own names.
    """

    def __init__(
        self,
        cell: Cell | str | Sequence[tuple[Cell | str, int]],
        input_size: int,
        hidden_size: int | Sequence[int] | None = None,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        skip: Skip | None = None,
        norm: Norm | None = None,
        forget_bias: float = 0.0,
        output_bias: float = 0.0,
        zoneout: float = 0.0,
        heads: int = 1,
        groups: int = 1,
        low_rank: Mapping[str, int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        rates = {
            "dropout": dropout,
            "input_dropout": input_dropout,
            "recurrent_dropout": recurrent_dropout,
            "zoneout": zoneout,
        }
        check_options(input_size, num_layers, rates, skip, norm)
        stack = check_layers(cell, hidden_size, num_layers)
        cells = stack[0]
        for each in stack:
            check_heads(each, heads, groups)
        check_low_rank(cells, low_rank)
        self.hidden_sizes = tuple(sum(width for _, width in each) for each in stack)
        """The number of units of every layer."""
        self.input_size, self.hidden_size = input_size, self.hidden_sizes[0]
        self.num_layers, self.bias, self.batch_first = num_layers, bool(bias), bool(batch_first)
        self.dropout, self.input_dropout = float(dropout), float(input_dropout)
        self.recurrent_dropout = float(recurrent_dropout)
        self.bidirectional, self.skip, self.zoneout = bool(bidirectional), skip, float(zoneout)
        self.heads, self.groups, self.low_rank = heads, groups, dict(low_rank or {})
        if dropout and num_layers == 1:
            warnings.warn(
                "dropout acts between layers, so with one layer it does nothing. "
                "input_dropout acts on the input, recurrent_dropout on the inputs of every layer.",
                stacklevel=2,
            )
        outputs = [sum(len(kind.output_exprs) * width for kind, width in each) for each in stack]
        *inner, self.output_size = (size * self.num_directions for size in outputs)

        def layers() -> nn.ModuleList:
            return nn.ModuleList(
                RationalLayer(
                    each,
                    size,
                    bias=self.bias,
                    skip=skip,
                    norm=norm,
                    forget_bias=forget_bias,
                    output_bias=output_bias,
                    zoneout=self.zoneout,
                    heads=heads,
                    groups=groups,
                    low_rank=low_rank,
                    device=device,
                    dtype=dtype,
                )
                for each, size in zip(stack, [input_size, *inner], strict=True)
            )

        self.layers = layers()
        self.reverse_layers = layers() if bidirectional else nn.ModuleList()
        for layer in self._all_layers():
            check_ranks(layer.low_rank_rows, layer.input_size)
        if zoneout:
            check_forget_gates(cells, f"zoneout={zoneout}")

    @property
    def num_directions(self) -> int:
        """2 for a bidirectional layer, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def cells(self) -> tuple[tuple[Cell, int], ...]:
        """The kinds of cells in every layer, and how many units each has in the first layer."""
        first = self._all_layers()[0]
        return tuple(zip(first.cell_types, first.widths, strict=True))

    def _all_layers(self) -> list[RationalLayer]:
        """Return the layers in the order of the state: layer by layer, forwards, then backwards."""
        if not self.bidirectional:
            return list(self.layers)  # pyright: ignore[reportReturnType]
        both = zip(self.layers, self.reverse_layers, strict=True)
        return [layer for level in both for layer in level]  # pyright: ignore[reportReturnType]

    def reset_parameters(self) -> None:
        """Draw the default initialisation anew."""
        for layer in self._all_layers():
            layer.reset_parameters()

    def flatten_parameters(self) -> None:
        """Do nothing: this is here so that code written for `nn.LSTM` runs."""

    def init_state(self, batch_size: int | None = None) -> State:
        """Return the state before the first step, λ of the automata (differentiable); without `batch_size` for
        unbatched input."""
        state = tuple(layer.initial(1 if batch_size is None else batch_size) for layer in self._all_layers())
        return state if batch_size is not None else transform(lambda t: t.squeeze(1), state)

    # ---- running -------------------------------------------------------------------------------------------------

    @overload
    def forward(self, input: PackedSequence, hx: State | None = None) -> tuple[PackedSequence, State]: ...
    @overload
    def forward(
        self,
        input: Tensor,
        hx: State | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, State]: ...
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor | PackedSequence, State]:
        """Return (output, state) of a sequence (T, I), a batch (T, B, I), or (B, T, I) with `batch_first`, or a
        `PackedSequence`.

        `hx` is the state before the first step that a direction reads, such as one that an earlier call returned. In
        one direction, feeding a sequence in pieces equals feeding it whole. In two, as in `nn.LSTM`, hx[2 · i] is the
        state of layer i before the first step and hx[2 · i + 1] the one that its backward direction has before it reads
        the last step (of each sequence, if they are padded): it is not the state to continue a sequence with.

        `lengths` (B) or `mask` (the input's leading shape, True at valid steps) mark padding: it changes no state,
        outputs zeros, and nothing depends on what it holds. State and output follow `nn.LSTM`: outputs of both
        directions are side by side; states are (…, batch, units) whatever `batch_first` is, without a batch for (T, I).

        `cu_seqlens` (n + 1 offsets, int32 or int64) says that the input (total, I) holds n sequences end to end: number
        i has the steps cu_seqlens[i] to cu_seqlens[i + 1], and may have none. Each is computed as if it was alone, and
        no padding is made. States are those of a batch of n. The input may also have a batch of one. Offsets on a GPU
        are taken as they are; on the CPU they are checked first.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None or mask is not None or cu_seqlens is not None:
                raise ShapeError(
                    "a PackedSequence has its own lengths: leave out lengths=, mask= and cu_seqlens="
                )
            return self._forward_packed(input, hx)
        layers = self._all_layers()
        check_input(input, (2, 3), self.input_size, layers[0].weight)
        if cu_seqlens is not None:
            if lengths is not None or mask is not None:
                raise ShapeError(
                    "cu_seqlens= says where sequences end, and there is no padding: leave out lengths= and mask="
                )
            return self._forward_offsets(layers, input, hx, cu_seqlens)
        given = TimeFirst(input, 1, self.batch_first, lengths, mask)
        first = None if hx is None else self._first(hx, given, layers)
        out, state = self._run(layers, given.x, first, given.mask, given.prefix)
        return given.output(out), given.state_out(state)

    def __prepare_scriptable__(self) -> RationalRNN:
        """Refuse torch.jit.script, which calls this first and would fail with a message about Python's syntax."""
        raise BackendError(
            "torch.jit.script cannot read the Python code of RationalRNN. Use torch.jit.trace or torch.export, which "
            "record a layer as one op (docs/export.md has a table of what works)."
        )

    def step(self, x_t: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return (output, state) of one step: x_t (B, I), or (I,) without a batch. For streaming; in training mode
        every call draws dropout masks of its own."""
        if self.bidirectional:
            raise ShapeError(
                "a bidirectional layer cannot step: it also reads its input from the end. Call the layer with the "
                "whole sequence, or build it with bidirectional=False."
            )
        layers = self._all_layers()
        check_input(x_t, (1, 2), self.input_size, layers[0].weight)
        given = OneStep(x_t)
        first = None if state is None else self._first(state, given, layers)
        out, state = self._run(layers, given.x, first, None, False)
        return given.output(out), given.state_out(state)

    def _forward_packed(self, packed: PackedSequence, hx: State | None) -> tuple[PackedSequence, State]:
        """Run all layers on a packed batch, and pack the output the same way."""
        data, sizes, order, back = packed
        layers = self._all_layers()
        check_input(data, (2,), self.input_size, layers[0].weight)
        # The data are packed longest first: the state is put in that order and back, the output stays packed.
        x, lengths = pad_packed_sequence(PackedSequence(data, sizes))
        given = TimeFirst(x, lengths=lengths)
        first = None if hx is None else reorder(self._first(hx, given, layers), order)
        out, state = self._run(layers, x, first, given.mask, given.prefix)
        data = pack_padded_sequence(out, lengths).data
        return PackedSequence(data, sizes, order, back), reorder(state, back)

    def _forward_offsets(
        self,
        layers: Sequence[RationalLayer],
        input: Tensor,
        hx: State | None,
        offsets: Tensor | Sequence[int],
    ) -> tuple[Tensor, State]:
        """Run all layers on sequences that lie end to end."""
        given = TimeFirst(input, 1, self.batch_first)
        if given.x.shape[1] != 1:
            one = "(1, total, features)" if self.batch_first else "(total, 1, features)"
            raise ShapeError(
                f"with cu_seqlens= the input is (total, features) or {one}: sequences end to end, not side by side; "
                f"got shape {tuple(input.shape)}. Leave out cu_seqlens=, or flatten the batch."
            )
        packed = Packed.of(offsets, given.x.shape[0], input.device)
        shapes = [layer.state_shapes((packed.count,)) for layer in layers]
        first = None if hx is None else check_state(hx, shapes)
        out, state = self._run(layers, given.x, first, None, False, packed)
        return given.output(out), state

    def _run(
        self,
        layers: Sequence[RationalLayer],
        x: Tensor,
        state: State | None,
        mask: Tensor | None,
        prefix: bool,
        packed: Packed | None = None,
    ) -> tuple[Tensor, State]:
        """Run all layers on a checked batch, time first."""
        x, n = zero_padding(x, mask), self.num_directions
        given: Sequence[LayerState | None] = state or [None] * len(layers)
        finals: list[LayerState] = []
        rates = (self.input_dropout, self.dropout, self.recurrent_dropout)
        drops, shared = Drops.current() if self.training and any(rates) else None, self.recurrent_dropout
        for depth in range(self.num_layers):
            drop = None
            if drops is not None:
                # Where nothing else reads a layer's input, both dropouts are done at once.
                at_once = n == 1 and layers[depth].only_projects and packed is None
                x = drops(x, rates[depth > 0], shared if at_once else 0.0)
                drop = partial(drops, shared=shared) if shared and not at_once else None
            outputs = []
            for i in range(depth * n, depth * n + n):
                if i % n == 0:
                    out, final = layers[i](x, given[i], mask, prefix, drop, packed)
                else:  # flipped padding is still padding, so no sequence needs an order of its own
                    flipped = None if mask is None else mask.flip(0)
                    own, first = None if packed is None else packed.flipped(), given[i]
                    if packed is not None and first is not None:
                        first = _last_first(first)
                    out, final = layers[i](x.flip(0), first, flipped, False, drop, own)
                    out, final = out.flip(0), final if packed is None else _last_first(final)
                outputs.append(out)
                finals.append(final)
            x = outputs[0] if n == 1 else torch.cat(outputs, -1)
        return x, tuple(finals)

    def _first(self, state: Any, given: TimeFirst, layers: Sequence[RationalLayer]) -> State:
        """Return the caller's state, checked, with a batch."""
        return given.state_in(check_state(state, [layer.state_shapes(given.batch) for layer in layers]))

    def extra_repr(self) -> str:
        same = len(set(self.hidden_sizes)) == 1
        parts = [f"{self.input_size}, {self.hidden_size if same else self.hidden_sizes}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        defaults |= {"heads": 1, "groups": 1, "low_rank": {}}
        defaults |= {"input_dropout": 0.0, "recurrent_dropout": 0.0, "skip": None, "zoneout": 0.0}
        parts += [f"{k}={getattr(self, k)!r}" for k, v in defaults.items() if getattr(self, k) != v]
        first = self._all_layers()[0]
        lines = [", ".join(parts)]
        for (cell, width), program in zip(self.cells, first.programs, strict=True):
            ring, outputs = cell.semiring, len(cell.output_exprs)
            elements = f" ⟨{', '.join(ring.components)}⟩" if ring.components else ""
            lines.append(
                f"{width} × {cell.name}: {cell.state_count} states ({program.state_count} stored), "
                f"{len(cell.arcs)} arcs, {ring.name} semiring{elements}"
                + (f", {outputs} outputs a unit" if outputs > 1 else "")
            )
        if self.output_size != self.hidden_sizes[-1] * self.num_directions:
            lines.append(f"output_size: {self.output_size}")
        return "\n".join(lines)


def _last_first(state: LayerState) -> LayerState:
    """Return a state with its sequences in reverse order."""
    return transform(lambda t: t.flip(1), state)
