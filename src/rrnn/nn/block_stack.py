"""`BlockStack`: blocks one after another, and a norm at the end, as language models stack them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.errors import ShapeError
from rrnn.nn.arguments import check_block_states, check_options, positive
from rrnn.nn.block import Block
from rrnn.nn.block_parts import Dense, PartNorm
from rrnn.nn.dropout import Drops
from rrnn.nn.sequence_module import SequenceModule
from rrnn.nn.sequences import BlockState, zero_padding


class BlockStack(SequenceModule):
    """Blocks one after another, with a norm at the end: `BlockStack("Mamba", 512, num_layers=4)`.

    The options are those of `Block`. With an `input_size` other than `size`, a linear layer comes first.
    `input_dropout` acts on the stack's input. `final_norm=False` leaves the last norm
    out. The first values of what blocks add to their input are scaled by 1/√(number of additions), as in GPT-2. The
    state is a tuple with a `BlockState` for each block.
    """

    def __init__(
        self,
        cell: Cell | str,
        size: int,
        num_layers: int = 1,
        *,
        input_size: int | None = None,
        final_norm: bool = True,
        input_dropout: float = 0.0,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        positive(size, "size")
        check_options(size, num_layers, {"input_dropout": input_dropout}, None, None)
        options |= {"device": device, "dtype": dtype}
        blocks = [Block(cell, size, **options) for _ in range(num_layers)]
        first = blocks[0].options
        norm = PartNorm(first.norm or "rms", size, 1, first.eps, device, dtype) if final_norm else None
        self._hold(blocks, norm)
        if input_size not in (None, size):
            self.input_size = positive(input_size, "input_size")
            self.enter = Dense(self.input_size, size, device=device, dtype=dtype)
        self.input_dropout, self.batch_first = float(input_dropout), bool(batch_first)
        self._scale_additions()

    @classmethod
    def of(
        cls, blocks: Sequence[Block], norm: nn.Module | None = None, *, batch_first: bool = False
    ) -> BlockStack:
        """Return a stack of given blocks, whose sizes must be equal."""
        if not blocks or len({block.size for block in blocks}) > 1:
            raise ShapeError(
                f"a stack has blocks of one size; got {[block.size for block in blocks] or 'no blocks'}"
            )
        stack = cls.__new__(cls)
        nn.Module.__init__(stack)
        stack._hold(blocks, norm)
        stack.input_dropout, stack.batch_first = 0.0, batch_first
        return stack

    def _hold(self, blocks: Sequence[Block], norm: nn.Module | None) -> None:
        self.enter: Dense | None = None
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.input_size = self.output_size = self.hidden_size = blocks[0].size

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """The size of each block."""
        return (self.hidden_size,) * self.num_layers

    @property
    def num_layers(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def _all(self) -> list[Block]:
        return list(self.blocks)  # pyright: ignore[reportReturnType]

    def reset_parameters(self) -> None:
        """Draw the default initialisation anew."""
        for block in self._all():
            block.reset_parameters()
        for part in (self.enter, self.norm):
            if isinstance(part, (Dense, PartNorm)):
                part.reset_parameters()
        self._scale_additions()

    @torch.no_grad()
    def _scale_additions(self) -> None:
        """Scale the last projection of each branch, so that the variance of the sum does not grow with the depth."""
        added = [block.out_proj for block in self._all() if block.residual]
        added += [block.mlp.down for block in self._all() if block.mlp is not None]
        for projection in added:
            projection.weight.mul_(len(added) ** -0.5)

    def init_time_first(self, batch: int) -> tuple[BlockState, ...]:
        """Return the state before the first step of a batch."""
        return tuple(block.init_time_first(batch) for block in self._all())

    def check_state(self, state: Any, batch: tuple[int, ...]) -> tuple[BlockState, ...]:
        """Return a caller's state, checked."""
        shapes = [block.state_shapes(batch) for block in self._all()]
        return check_block_states(state, shapes, f"a tuple of {len(shapes)} BlockState, one for each block")

    def run(
        self, x: Tensor, state: Sequence[BlockState] | None, mask: Tensor | None, prefix: bool
    ) -> tuple[Tensor, tuple[BlockState, ...]]:
        """Return (output, state) of x (T, B, size) with zeros at padded steps, and mask (T, B)."""
        if self.training and self.input_dropout:
            x = Drops.current()(x, self.input_dropout)
        x = x if self.enter is None else zero_padding(self.enter(x), mask)
        ends = []
        for block, before in zip(self._all(), state or [None] * self.num_layers, strict=True):
            x, end = block.run(x, before, mask, prefix)
            ends.append(end)
        return x if self.norm is None else zero_padding(self.norm(x), mask), tuple(ends)
