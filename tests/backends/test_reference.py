"""The reference: the adjoint program against autograd, chunks against one step after another, padding, edges."""

from __future__ import annotations

import math
from dataclasses import replace

import chunked_reference
import pytest
import torch
from cell_calls import ALL_CELLS, MECHANICS_CELLS, Call, make_call
from torch import Tensor

from rrnn.automata import Cell, linear, one, parameter, sigmoid, tanh
from rrnn.backends import reference
from rrnn.backends.interface import CellCall
from rrnn.backends.reference import Inputs
from rrnn.ir import lower

TOLERANCE = {"rtol": 1e-10, "atol": 1e-11}


def inputs_of(call: Call) -> Inputs:
    (program,), (params,) = call.programs, call.params
    x = call.x.unflatten(-1, (len(program.projections), params.shape[-1]))
    return Inputs.of(CellCall(program, x, params, call.mask, call.inp))


def random_mask(steps: int, batch: int, seed: int = 0) -> Tensor:
    """Padding on the left, on the right and inside; the last sequence is all padding."""
    mask = torch.rand(steps, batch, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[:2, 0], mask[-2:, 1 % batch], mask[:, -1] = False, False, False
    return mask


def gradients(call: Call, weight: Tensor, weight_end: Tensor) -> dict[str, Tensor | None]:
    """By autograd through the forward pass, of a random linear loss on outputs and final state."""
    inputs = inputs_of(call)
    out, end, _ = reference.forward(call.programs[0].flat, inputs, call.states[0])
    loss = (out * weight).sum() + (torch.where(end.isfinite(), end, 0.0) * weight_end).sum()
    given = {"x": call.x, "state": call.states[0], "params": call.params[0], "inp": call.inp}
    names = [n for n, t in given.items() if t is not None]
    found = torch.autograd.grad(loss, [t for t in given.values() if t is not None], materialize_grads=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("name", ALL_CELLS)
class TestAdjointAndScan:
    @pytest.fixture
    def call(self, name: str, masked: bool) -> Call:
        call = make_call(name, steps=7, batch=3, units=2, seed=3)
        return replace(call, mask=random_mask(7, 3) if masked else None)

    def test_adjoint_equals_autograd(self, call: Call) -> None:
        program, inputs = call.programs[0].flat, inputs_of(call)
        out, end, before = reference.forward(program, inputs, call.states[0])
        weight, weight_end = torch.randn_like(out), torch.randn_like(end)
        expected = gradients(call, weight, weight_end)
        dx, _, first, di = reference.backward(program, inputs, before, weight, weight_end)
        torch.testing.assert_close(dx.flatten(2), expected["x"], **TOLERANCE)
        torch.testing.assert_close(first, expected["state"], **TOLERANCE)
        if di is not None:
            torch.testing.assert_close(di, expected["inp"], **TOLERANCE)

    def test_chunks_equal_steps(self, call: Call, name: str) -> None:
        program, inputs = call.programs[0], inputs_of(call)
        out, end, before = forwards = reference.forward(program.flat, inputs, call.states[0])
        grads = torch.randn_like(out), torch.randn_like(end)
        backwards = reference.backward(program.flat, inputs, before, *grads)
        for chunk in (1, 3, 7, 9) if name in MECHANICS_CELLS else (3,):
            for a, b in zip(
                chunked_reference.forward(program, inputs, call.states[0], chunk), forwards, strict=True
            ):
                torch.testing.assert_close(a, b, **TOLERANCE)
            for a, b in zip(
                chunked_reference.backward(program, inputs, before, *grads, chunk), backwards, strict=True
            ):
                torch.testing.assert_close(a, b, **TOLERANCE)


def test_a_state_that_nothing_reads_survives_padding() -> None:
    # q2 is initial and final, but no arc enters or leaves it: its weight counts before the first symbol only.
    cell = Cell("idle").initial("q0").initial("q2", 0.5).loop("q0", one).arc("q0", "q1", linear("u"))
    program = lower(cell.final("q1").final("q2").output(tanh("score"))).program
    x = torch.randn(4, 2, len(program.projections), 3, dtype=torch.float64)
    mask = torch.tensor([[False, True], [False, True], [False, True], [False, False]])
    inputs = Inputs.of(CellCall(program, x, x.new_zeros(len(program.parameters), 3), mask))
    state = torch.rand(len(program.states), 2, 3, dtype=torch.float64)
    for chunk in (1, 3):
        _, end, before = chunked_reference.forward(program, inputs, state, chunk)
        _, expected_end, expected_before = reference.forward(program, inputs, state)
        torch.testing.assert_close(end, expected_end)
        torch.testing.assert_close(before, expected_before)
    torch.testing.assert_close(expected_end[:, 0], state[:, 0])


# ---- ties and zeros, by hand ---------------------------------------------------------------------------------------


def run(cell: Cell, x: list[list[float]], state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(outputs, x, state) of one unit over pre-activations x[t][k], both ways of differentiating agreeing."""
    program = lower(cell).program
    given = torch.tensor(x, dtype=torch.float64).view(len(x), 1, len(program.projections), 1).requires_grad_()
    if state is None:
        state = torch.full((len(program.states), 1, 1), program.semiring.zero, dtype=torch.float64)
    state.requires_grad_()
    inputs = Inputs.of(CellCall(program, given, given.new_zeros(len(program.parameters), 1)))
    out, end, before = reference.forward(program, inputs, state)
    out.sum().backward()
    dx, _, first, _ = reference.backward(
        program, inputs, before.detach(), torch.ones_like(out), torch.zeros_like(end)
    )
    assert given.grad is not None and state.grad is not None
    torch.testing.assert_close(dx, given.grad)
    torch.testing.assert_close(first, state.grad)
    return out.detach().flatten(), given.grad.squeeze(), state.grad.flatten()


def max_plus_b(semiring: str = "max-plus") -> Cell:
    """c = max(c' + f, u), the loop first; pre-activations in the order u, f."""
    cell = Cell("B", semiring).initial("q0").loop("q0", one).arc("q0", "q1", linear("u"))
    return cell.loop("q1", linear("f")).final("q1").output(tanh("score"))


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus"])
def test_in_a_tie_the_loop_wins(semiring: str) -> None:
    # c₁ = u₁ = 0.5 alone; at step 2 the loop (0.5 + 0) and the arc (0.5) tie
    out, dx, _ = run(max_plus_b(semiring), [[0.5, 9.0], [0.5, 0.0]])
    slope = 1 - math.tanh(0.5) ** 2
    torch.testing.assert_close(out, torch.tensor([0.5, 0.5], dtype=torch.float64).tanh())
    expected = torch.tensor([[2 * slope, 0.0], [0.0, slope]], dtype=torch.float64)
    torch.testing.assert_close(dx, expected)


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "log"])
def test_a_zero_gets_no_gradient(semiring: str) -> None:
    # The first state is 0̄: its loop contributes nothing, and neither f₁ nor the state gets a gradient.
    _, dx, dstate = run(max_plus_b(semiring), [[0.25, 3.0]])
    torch.testing.assert_close(dx, torch.tensor([1 - math.tanh(0.25) ** 2, 0.0], dtype=torch.float64))
    assert dstate.item() == 0


def test_all_paths_dead_gives_finite_output_and_no_gradient() -> None:
    # A max-plus bigram has no path after one symbol: the score is −∞, the output −1.
    cell = Cell("C", "max-plus").initial("q0").loop("q0", one).arc("q0", "q1", linear("u"))
    cell = cell.arc("q1", "q2", linear("w")).final("q2").output(tanh("score"))
    out, dx, dstate = run(cell, [[0.3, 0.4]])
    assert out.item() == -1 and dx.tolist() == [0, 0] and dstate.tolist() == [0, 0]


# ---- edges ---------------------------------------------------------------------------------------------------------


def no_state() -> Cell:
    """The always-on state alone: nothing to remember."""
    cell = Cell("gate").initial("q0").loop("q0", one).final("q0", sigmoid(parameter("r")))
    return cell.output(tanh("score") * sigmoid(linear("o")))


def test_a_program_without_states() -> None:
    program = lower(no_state()).program
    assert program.states == ()
    x = torch.randn(4, 2, 1, 3, dtype=torch.float64)
    inputs = Inputs.of(CellCall(program, x, torch.zeros(1, 3, dtype=torch.float64), random_mask(4, 2)))
    state = x.new_zeros(0, 2, 3)
    out, end, before = reference.forward(program, inputs, state)
    assert end.shape == (0, 2, 3) and before.shape == (4, 0, 2, 3)
    expected = torch.where(inputs.mask[:, :, None], math.tanh(0.5) * x[:, :, 0].sigmoid(), 0.0)
    torch.testing.assert_close(out, expected)
    dx, units, first, _ = reference.backward(program, inputs, before, torch.ones_like(out), end)
    assert first.shape == (0, 2, 3) and units.shape[1] == 3 and dx.isfinite().all()
    torch.testing.assert_close(chunked_reference.forward(program, inputs, state, 2)[0], expected)


@pytest.mark.parametrize("name", ["F", "B-max-plus", "SRU"])
def test_no_steps_and_no_sequences(name: str) -> None:
    for steps, batch in ((0, 2), (3, 0), (0, 0)):
        call = make_call(name, steps=steps, batch=batch, units=2)
        program, inputs, state = call.programs[0], inputs_of(call), call.states[0]
        for out, end, before in (
            reference.forward(program, inputs, state),
            chunked_reference.forward(program, inputs, state, 2),
        ):
            assert out.shape == (steps, batch, 2) and before.shape == (steps, *state.shape)
            if not steps:
                torch.testing.assert_close(end, state)
            dx, _, first, _ = reference.backward(program, inputs, before, out, torch.ones_like(end))
            assert dx.shape == inputs.x.shape and first.shape == state.shape
            if not steps:
                torch.testing.assert_close(first, torch.ones_like(first))
