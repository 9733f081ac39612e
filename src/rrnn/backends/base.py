"""What a backend is: it runs a program over time, forwards and backwards. Shapes, the same for all:

    x      (T, B, K, D)  pre-activations, one per projection, without biases; any strides
    params (P, D)        per-unit parameters, biases among them; of any dtype, which their gradients have as well
    state  (S, B, D)     stored states before the first step
    mask   (T, B) bool   False: a padded step, which keeps the state, outputs 0 and gets no gradient
    inp    (T, B, D)     the layer's own input, for programs that use it

Outputs take x's dtype, states the compute dtype (float64 for float64, else float32). `saved` holds the stored states
before the steps 0, every, 2·every, …: (⌈T/every⌉, S, B, D). Gradients of per-unit values come summed over time and
batch, (U, D); `rrnn.ops` turns them into gradients of parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rrnn.ir import Program


class Backend(ABC):
    name: str
    gives_parameter_gradients = False
    """Whether `backward` returns gradients of the parameters (P, D) in place of those of per-unit values."""

    @abstractmethod
    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        """None when this backend can run here; otherwise why not, as the end of a sentence."""

    def passed_over(self, device: torch.device, dtype: torch.dtype) -> None:  # noqa: B027  (most have nothing to say)
        """`auto` has to do without this backend: the place to warn a user, once, who could have it."""

    @abstractmethod
    def forward(
        self,
        program: Program,
        x: Tensor,
        params: Tensor,
        state: Tensor | None,
        mask: Tensor | None,
        inp: Tensor | None,
        every: int,
        out: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Write the output into `out` (T, B, D), a possibly strided view; return (final state, saved).
        `every = 0` saves nothing: inference. `state = None`: the program's own, if they are all numbers."""

    @abstractmethod
    def backward(
        self,
        program: Program,
        x: Tensor,
        params: Tensor,
        mask: Tensor | None,
        inp: Tensor | None,
        every: int,
        saved: Tensor,
        grad_out: Tensor,
        grad_state: Tensor | None,
        grad_x: Tensor,
        grad_inp: Tensor | None,
        wanted: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Write dL/dx and dL/d inp into the given views; return (dL/d unit values (U, D), dL/d first state).
        `grad_state = None`: nothing depends on the final state. The first state's is None unless it is `wanted`."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """What states and arithmetic use: float64 stays, everything else computes in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def cast(t: Tensor, dtype: torch.dtype) -> Tensor:
    """t.to(dtype), which takes its time even where there is nothing to do."""
    return t if t.dtype == dtype else t.to(dtype)


def first_state(program: Program, batch: int, params: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The stored states before the first step, (S, B, D), where they are all numbers."""
    numbers, shape = [value or 0.0 for value in program.first_states], (batch, params.shape[-1])
    if len(set(numbers)) <= 1:  # nearly always
        return params.new_full((len(numbers), *shape), numbers[0] if numbers else 0.0, dtype=dtype)
    return torch.stack([params.new_full(shape, number, dtype=dtype) for number in numbers])


def rows(t: Tensor) -> Tensor:
    """The tensor with units side by side, as kernels read them; everything else is read where it is."""
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()
