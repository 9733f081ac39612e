"""States that the units of a head share, on backends that keep states for each unit.

Such a state is a row (…, 1, B, D): the n states of a head, which has n units, in the places of its units. Where units
have states of their own, (…, n, B, D), those of the units of a head are equal.
"""

from __future__ import annotations

from torch import Tensor

from rrnn.backends.interface import Backend, CellCall, Gradients
from rrnn.ir import Program


def forward(
    backend: Backend, call: CellCall, state: Tensor | None, out: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Run a program as `Backend.forward` does, whether or not its units share states."""
    if backend.shares_states or not call.program.shares_states:
        return backend.forward(call, state, out)
    program = call.program
    own = call._replace(program=program.with_unit_states)
    end, saved = backend.forward(own, None if state is None else spread(program, state), out)
    return pick(program, end), None if saved is None else pick(program, saved)


def backward(
    backend: Backend, call: CellCall, saved: Tensor, grads: Gradients
) -> tuple[Tensor, Tensor | None]:
    """Run a gradient as `Backend.backward` does, whether or not units share states."""
    program = call.program
    if not program.shares_states or backend.shares_states:
        return backend.backward(call, saved, grads)
    own = call._replace(program=program.with_unit_states)
    given = None if grads.state is None else _to_first_units(program, grads.state)
    learned, first = backend.backward(own, spread(program, saved), grads._replace(state=given))
    return learned, None if first is None else _sum(program, first)


def spread(program: Program, state: Tensor) -> Tensor:
    """Return what each unit has (…, n, B, D) of shared states (…, 1, B, D)."""
    own = state[..., 0, :, :].unflatten(-1, (_heads(program), -1)).movedim(-1, -3)
    return own.repeat_interleave(own.shape[-3], -1)


def pick(program: Program, states: Tensor) -> Tensor:
    """Return shared states (…, 1, B, D): those of each head's first unit."""
    return _row(states[..., :: states.shape[-3]])


def _sum(program: Program, grads: Tensor) -> Tensor:
    """Return the gradient of shared states from those of each unit's: the gradient of `spread`."""
    return _row(grads.unflatten(-1, (_heads(program), -1)).sum(-1))


def _to_first_units(program: Program, grad: Tensor) -> Tensor:
    """Return the gradients of each unit's states, from that of what `pick` returned."""
    own = grad[..., 0, :, :].unflatten(-1, (_heads(program), -1)).movedim(-1, -3)
    given = own.new_zeros(*own.shape, own.shape[-3])
    given[..., 0] = own
    return given.flatten(-2)


def _row(states: Tensor) -> Tensor:
    """Return (…, n, B, heads) as a row (…, 1, B, D)."""
    return states.movedim(-3, -1).flatten(-2).unsqueeze(-3)


def _heads(program: Program) -> int:
    assert program.wide is not None
    return program.wide.heads
