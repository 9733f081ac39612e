"""The reference behind the common interface."""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.backends.base import Backend, first_state
from rrnn.backends.reference import serial
from rrnn.backends.reference.serial import Inputs
from rrnn.ir import Program


class Reference(Backend):
    name = "reference"

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        return None

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
        inputs = Inputs.of(x, params, mask, inp)
        state = first_state(program, x.shape[1], params, inputs.params.dtype) if state is None else state
        output, end, before = serial.forward(program, inputs, state)
        out.copy_(output)
        return end, before[::every].contiguous() if every else None

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
        inputs = Inputs.of(x, params, mask, inp)
        grad_state = saved.new_zeros(saved.shape[1:]) if grad_state is None else grad_state
        before = saved
        if every > 1:
            first = saved[0] if saved.shape[0] else torch.zeros_like(grad_state)
            _, _, before = serial.forward(program, inputs, first)
        dx, units, first_grad, di = serial.backward(program, inputs, before, grad_out, grad_state)
        grad_x.copy_(dx)
        if grad_inp is not None:
            grad_inp.copy_(di if di is not None else torch.zeros_like(grad_inp))
        return units, first_grad if wanted else None
