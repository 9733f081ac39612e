"""The reference behind the common interface."""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.backends.base import Backend, CellCall, Gradients, first_state
from rrnn.backends.reference import serial
from rrnn.backends.reference.serial import Inputs
from rrnn.ir import Program


class Reference(Backend):
    name = "reference"

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        return None

    def forward(self, call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
        inputs, program = Inputs.of(call), call.program.flat
        if state is None:
            state = first_state(program, call.x.shape[1], call.params, inputs.params.dtype)
        output, end, before = serial.forward(program, inputs, state)
        out.copy_(output)
        return end, before[:: call.every].contiguous() if call.every else None

    def backward(self, call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
        inputs, program, before = Inputs.of(call), call.program.flat, saved
        grad_state = saved.new_zeros(saved.shape[1:]) if grads.state is None else grads.state
        if call.every > 1:
            first = saved[0] if saved.shape[0] else torch.zeros_like(grad_state)
            _, _, before = serial.forward(program, inputs, first)
        dx, units, first_grad, di = serial.backward(program, inputs, before, grads.out, grad_state)
        grads.x.copy_(dx)
        if grads.inp is not None:
            grads.inp.copy_(di if di is not None else torch.zeros_like(grads.inp))
        return units, first_grad if grads.wants_first else None
