"""What a backend is: it runs a program over time, forwards and backwards. Shapes, the same for all backends:

    x      (T, B, K, D)  pre-activations, one per projection, without biases; any strides
    params (P, D)        per-unit parameters, biases among them; of any dtype, which their gradients have as well
    state  (S, B, D)     stored numbers before the first step: of each state as many as elements have components
    mask   (T, B) bool   False: a padded step, which keeps the state, outputs 0 and gets no gradient
    inp    (T, B, D)     the layer's own input, for programs that use it
    out    (T, B, N·D)   outputs: the first one of all units, then the second one, if there are several

A program of families reads flat rows: see `rrnn.backends.extents`. States that the units of a head share are one row:
see `rrnn.backends.shared_states`.

Packed sequences lie end to end in one row of steps instead of side by side: x, inp and out are then (total, 1, …), the
states have one entry per sequence, (S, n, D), and `sequences` (n, 3) says for each, longest first, its number (the
place of its state), its first step, and the step behind its last one. The recurrence starts anew in each of them.

Outputs take x's dtype, states the compute dtype (float64 for float64, else float32). `saved` holds the stored states
before the steps 0, every, 2·every, …: (⌈T/every⌉, S, B, D); of packed sequences (⌊total/every⌋ + n, S, 1, D), where
those of sequence number i begin at ⌊its first step/every⌋ + i, so that none overlap, whatever the lengths. Gradients of
per-unit values come summed over time and batch, (U, D); `rrnn.ops` turns them into gradients of parameters.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.ir import Program


class CellCall(NamedTuple):
    """What the forward and the backward pass of one cell read."""

    program: Program
    x: Tensor
    params: Tensor
    mask: Tensor | None = None
    inp: Tensor | None = None
    every: int = 0
    """The interval at which states are saved for the backward pass; 0 saves none: inference."""
    width: int = 0
    """The number of units; without families 0 will do, since x tells."""
    sequences: Tensor | None = None
    """For packed sequences: (n, 3) int64 on x's device, rows (number, first step, step behind the last), longest first;
    there is no mask then. None: every column of x is a sequence."""

    @property
    def units(self) -> int:
        """The number of units D."""
        return self.width or self.x.shape[-1]

    @property
    def batch(self) -> int:
        """The number of sequences, which is the batch of the states."""
        return self.x.shape[1] if self.sequences is None else self.sequences.shape[0]

    def sizes(self) -> tuple[int, int, int]:
        """Return the number of steps, of sequences, and of units."""
        shape, packed = self.x.shape, self.sequences
        return shape[0], shape[1] if packed is None else packed.shape[0], self.width or shape[-1]

    def separate(self) -> Iterator[tuple[int, slice, CellCall]]:
        """Yield each packed sequence, first to last, as (its number, its steps, a call of its own). It waits for the
        device."""
        assert self.sequences is not None
        for number, begin, end in sorted(self.sequences.tolist()):
            inp = None if self.inp is None else self.inp[begin:end]
            yield number, slice(begin, end), self._replace(x=self.x[begin:end], inp=inp, sequences=None)

    def own_saved(self, number: int, steps: slice) -> slice:
        """Return the place in `saved` of a packed sequence's states."""
        begin = steps.start // self.every + number
        return slice(begin, begin - (steps.start - steps.stop) // self.every)

    def saved_shape(self, states: int) -> tuple[int, int, int, int]:
        """Return the shape of `saved` for a program with this many stored numbers, and `every` above 0."""
        steps, n = self.x.shape[0], self.batch
        if self.sequences is None:
            return -(-steps // self.every), states, n, self.units
        return steps // self.every + n, states, 1, self.units

    def new_saved(self, like: Tensor, states: int) -> Tensor | None:
        """Return the tensor for `saved`, of the type and on the device of another tensor; None if `every` is 0. Packed
        sequences may leave places unwritten: these hold zeros, so that equal calls return equal bits."""
        if not self.every:
            return None
        shape = self.saved_shape(states)
        return like.new_empty(shape) if self.sequences is None else like.new_zeros(shape)


def sequence_table(offsets: Tensor, total: int) -> Tensor:
    """Return `CellCall.sequences`, (n, 3), of n packed sequences with these offsets (n + 1), on the offsets' device and
    without waiting for it. Offsets that nobody could check are clamped, so that kernels stay inside their tensors."""
    offsets = offsets.to(torch.int64).clamp(0, total)
    begin, end = offsets[:-1], torch.maximum(offsets[1:], offsets[:-1])
    rows = torch.stack([torch.arange(begin.shape[0], device=offsets.device), begin, end], 1)
    return rows[
        (begin - end).argsort(stable=True)
    ]  # the longest first: they start first, so that none comes late


class Gradients(NamedTuple):
    """The gradients that a backward pass starts from, and the views that it writes others into."""

    out: Tensor
    """dL/d output, read."""
    state: Tensor | None
    """dL/d final state, read; None if the loss does not depend on the final state."""
    x: Tensor
    """dL/dx, written; a possibly strided view."""
    inp: Tensor | None = None
    """dL/d inp, written; None for a program that does not use the layer's input."""
    wants_first: bool = True
    """Whether to return the gradient with respect to the first state."""
    wants_params: bool = True
    """Whether the gradients of parameters are of use. If not, those returned need not be right."""


class Backend(ABC):
    """One way to run programs."""

    name: str
    packs: bool = True
    """Whether it has kernels for packed sequences. Without them it runs these one by one, and waits for the device."""
    shares_states = False
    """Whether it runs programs whose units share states as they are (see `rrnn.backends.shared_states`)."""

    def gives_parameter_gradients(self, program: Program) -> bool:
        """Return whether `backward` returns gradients of the parameters (P, D) in place of those of per-unit values."""
        return False

    def pays(self, device: torch.device, dtype: torch.dtype, program: Program, steps: int | None) -> bool:
        """Return whether `auto` should prefer this backend, where it can run, to those after it. `steps` is None if
        their number is not known."""
        return True

    @abstractmethod
    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        """Return None if this backend can run here; otherwise why not, as the end of a sentence."""

    def passed_over(self, device: torch.device, dtype: torch.dtype) -> None:  # noqa: B027  (most have nothing to say)
        """Warn a user, once, who could have this backend, when `auto` has to do without it."""

    def interval(self, x: Tensor, programs: Sequence[Program], widths: Sequence[int]) -> int | None:
        """Return the interval at which this backend would save states for a backward pass; None: any will do."""
        return None

    @abstractmethod
    def forward(self, call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
        """Write the outputs into `out` (T, B, N·D), a possibly strided view; return (final state, saved), where `saved`
        is None if `call.every` is 0. With `state = None` the program starts from its own first states, which must be
        numbers."""

    @abstractmethod
    def backward(self, call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
        """Fill `grads.x` and `grads.inp`; return (dL/d unit values (U, D), dL/d first state), where the latter is None
        unless `grads.wants_first`. `saved` is what `forward` returned for the same call."""

    # ---- packed sequences as so many calls, for backends that have no kernels for them -------------------------------

    def forward_one_by_one(self, call: CellCall, state: Tensor, out: Tensor) -> tuple[Tensor, Tensor | None]:
        """Run packed sequences, one by one."""
        saved = call.new_saved(state, state.shape[0])
        final = torch.empty_like(state)
        for i, steps, own in call.separate():
            final[:, i : i + 1], kept = self.forward(own, state[:, i : i + 1], out[steps])
            if saved is not None and kept is not None:
                saved[call.own_saved(i, steps)] = kept
        return final, saved

    def backward_one_by_one(
        self, call: CellCall, saved: Tensor, grads: Gradients, sums: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Run the gradients of packed sequences, one by one; those of parameters are added to `sums`."""
        firsts = saved.new_zeros(saved.shape[1], call.batch, call.units)
        state = torch.zeros_like(firsts) if grads.state is None else grads.state
        for i, steps, own in call.separate():
            inp = None if grads.inp is None else grads.inp[steps]
            given = grads._replace(
                out=grads.out[steps], state=state[:, i : i + 1], x=grads.x[steps], inp=inp, wants_first=True
            )
            learned, first = self.backward(own, saved[call.own_saved(i, steps)], given)
            sums += learned
            if first is not None:
                firsts[:, i : i + 1] = first
        return sums, firsts if grads.wants_first else None


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of states and arithmetic: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def cast(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Return t in a dtype. (`t.to` takes time even where there is nothing to do.)"""
    return t if t.dtype == dtype else t.to(dtype)


def first_state(
    program: Program, batch: int, units: int, like: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the stored states before the first step, (S, B, D), of a program where they are all numbers."""
    program = program.flat
    if (number := program.first_number) is not None:  # the usual case
        return like.new_full((program.state_count, batch, units), number, dtype=dtype)
    parts = [
        like.new_full((own.stop - own.start, batch, units), number or 0.0, dtype=dtype)
        for own, number in zip(program.state_rows, program.first_states, strict=True)
    ]
    return torch.cat(parts)


def by_sequence(state: Tensor, sequences: Tensor | None) -> Tensor:
    """Return states (S, n, D) as kernels read them: those of packed sequences as (n, S, D), so that each has its own in
    one piece."""
    return (state if sequences is None else state.transpose(0, 1)).contiguous()


def by_state(state: Tensor, sequences: Tensor | None) -> Tensor:
    """Return states (S, n, D) from what a kernel has written."""
    return state if sequences is None else state.transpose(0, 1).contiguous()


def captured() -> bool:
    """Return whether torch records this call as a graph (torch.compile, torch.export, torch.jit.trace), or a mode such
    as FakeTensorMode looks at each op. It then sees torch's ops only, so kernels have to be called as the opaque ops of
    `rrnn.ops`."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


def side_by_side(t: Tensor) -> bool:
    """Return whether kernels can read or write a tensor in place: only its last axis must lie in one piece."""
    return (
        t.is_contiguous() or t.stride(-1) == 1 or t.shape[-1] == 1
    )  # the first takes a third of the others' time


def units_contiguous(t: Tensor) -> Tensor:
    """Return the tensor with units side by side, as kernels read them."""
    return t if side_by_side(t) else t.contiguous()


# Registered when `rrnn.backends` is imported, so before any fork that could matter.
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_forked_child() -> bool:
    """Return whether this process was forked. OpenMP's threads do not survive that: a child that asks for them waits
    forever."""
    return _forked
