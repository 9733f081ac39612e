"""The matrix schedule against the reference in float64: outputs, final states and all gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from backends.matrix.recurrences import LIMITS, MODELS, differences, draw, own_cell
from kernel_cases import needs_interpreter
from torch import Tensor
from zoo.test_wide import build, gradients

import rrnn
from rrnn import RationalRNN
from rrnn.automata import Cell, exp, family, linear, one, parameter, tanh
from rrnn.backends import get_backend, resolve
from rrnn.backends.matrix import backend
from rrnn.backends.matrix.plan import needs, tiles_of
from rrnn.backends.triton.plan import H200
from rrnn.ir import lower


def own(dtype: torch.dtype, units: int = 24, states: int = 20) -> RationalRNN:
    torch.manual_seed(0)
    rnn = RationalRNN(own_cell(states), units, units, heads=4, groups=2, dtype=dtype)
    with torch.no_grad():
        for value in rnn.parameters():
            value.add_(torch.rand_like(value) - 0.7)  # decays of both signs
    return rnn


def make(name: str, dtype: torch.dtype, units: int = 24, states: int = 20) -> RationalRNN:
    if name == "own":
        return own(dtype, units, states)
    return build(name, states=states, units=units, dtype=dtype)


def run(rnn: RationalRNN, x: Tensor, backend: str, **call: Any) -> list[Tensor | None]:
    v = x.to(next(rnn.parameters()).dtype).clone().requires_grad_()
    with rrnn.use_backend(backend):
        out, state = rnn(v, **call)
        return [out, state[0].states[0], *gradients(rnn, v, out, state[0].states[0])]


def rms(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None:
        return 0.0 if all(t is None or not t.any() for t in (a, b)) else float("inf")
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).norm() / max(float(b.norm()), 1e-30))


@pytest.mark.parametrize("name", [*MODELS, "own"])
@pytest.mark.parametrize("lengths", [None, [70, 33, 1]])
def test_equal_to_the_reference(name: str, lengths: list[int] | None) -> None:
    rnn, x = make(name, torch.float64), torch.randn(70, 3, 24, dtype=torch.float64)
    ours, wanted = (run(rnn, x, b, lengths=lengths) for b in ("matrix", "reference"))
    assert max(map(rms, ours, wanted)) < 1e-12


@pytest.mark.parametrize("offsets", [None, (0, 7, 7, 90, 150, 150)])
@pytest.mark.parametrize("name", [*MODELS, "own"])
def test_gradients_of_all_that_a_recurrence_reads(name: str, offsets: tuple[int, ...] | None) -> None:
    """Parameters that models keep fixed have gradients, too, such as the angles by which RetNet's states turn."""
    call = draw(name, torch.float64, 18, 24, 150, offsets=offsets)
    ours, wanted = (call.run(backend, torch.float64) for backend in ("matrix", "reference"))
    assert max(difference for _, difference in differences(ours, wanted).values()) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_float32(name: str) -> None:
    """Layers as they start, whose decays sum up to large logarithms in a chunk: what two sums have in common must not
    round what is between them, and no sum of a decay's gradients may cancel another."""
    exact, rnn = make(name, torch.float64, 48), make(name, torch.float32, 48)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    torch.manual_seed(101)
    x = torch.randn(150, 2, 48)
    ours, wanted = run(rnn, x, "matrix"), run(exact, x, "reference")
    assert max(map(rms, ours, wanted)) < 5e-6


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, "own"])
def test_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, rnn = make(name, torch.float64, 48), make(name, torch.float32, 48)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    x = torch.randn(35, 2, 48)
    wanted = run(exact, x, "reference", lengths=[35, 20])
    with np.errstate(over="ignore"):  # tanh of large scores, which the interpreter warns of
        found, plain = (
            max(map(rms, run(rnn, x, backend, lengths=[35, 20]), wanted))
            for backend in ("matrix", "reference")
        )
    assert found < max(1e-5, 4 * plain)  # decays of both signs cancel, whatever computes them


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, dtype, offsets",
    [
        *((name, torch.bfloat16, None) for name in [*MODELS, "own"]),
        *((name, torch.bfloat16, (0, 1, 1, 64, 70)) for name in ("GLA", "Mamba-2")),
        *((name, torch.float16, None) for name in ("HGRN2", "own")),
    ],
)
def test_kernels_of_half_precision(
    name: str, dtype: torch.dtype, offsets: tuple[int, ...] | None, tensor_cores: None
) -> None:
    call = draw(name, dtype, 20, 48, 70, offsets=offsets)
    with np.errstate(over="ignore"):
        ours, wanted = call.run("matrix", dtype), call.run("reference", torch.float64)
    for result, (kind, difference) in differences(ours, wanted).items():
        assert difference < LIMITS[kind], result


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("name", ["GLA", "Mamba-2"])
def test_kernels_with_tf32(name: str, tf32: None, tensor_cores: None) -> None:
    call = draw(name, torch.float32, 20, 48, 70)
    found = differences(call.run("matrix", torch.float32), call.run("reference", torch.float64))
    assert max(difference for _, difference in found.values()) < 2e-3


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, decay, offsets",
    [
        ("HGRN2", "state", None),
        ("HGRN2", "state", (0, 3, 3, 20)),
        ("Mamba-2", "head", None),
        ("RetNet", "head", (0, 3, 20)),
    ],
)
def test_kernels_of_heads_that_are_cut_into_blocks(
    name: str, decay: str, offsets: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = draw(name, torch.float32, 136, 32, 20, heads=2, offsets=offsets)
    (tiles, *_) = tiles_of(136, 16, decay, torch.float16, H200, 20, 2)
    assert tiles.block == (68, 16)
    monkeypatch.setattr(backend, "tiles_of", lambda *_: [tiles])
    found = differences(call.run("matrix", torch.float32), call.run("reference", torch.float64))
    assert max(difference for _, difference in found.values()) < 1e-5


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("name", ["GLA", "Mamba-2", "HGRN2"])
def test_kernels_of_packed_sequences(name: str) -> None:
    exact, rnn = make(name, torch.float64, 48), make(name, torch.float32, 48)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    x, offsets = torch.randn(50, 48), torch.tensor([0, 3, 3, 41, 50])
    wanted = run(exact, x, "reference", cu_seqlens=offsets)
    assert max(map(rms, run(rnn, x, "matrix", cu_seqlens=offsets), wanted)) < 1e-5


@needs_interpreter
def test_decays_that_are_not_learned() -> None:
    """A layer asks for no gradients of parameters that it keeps fixed, and kernels compute none of such decays."""
    h = family("h", 16)
    k, q = (linear(name, over=h, per="head") for name in "kq")
    cell = Cell("Fixed").initial("s").loop("s", one).arc("s", h, k * linear("v"))
    cell = cell.loop(h, exp(parameter("g", per="head", start=-0.1, learned=False))).read(h, q)
    torch.manual_seed(0)
    exact = RationalRNN(cell, 32, 32, heads=2, dtype=torch.float64)
    rnn = RationalRNN(cell, 32, 32, heads=2, dtype=torch.float32)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    x = torch.randn(40, 2, 32)
    assert max(map(rms, run(rnn, x, "matrix"), run(exact, x, "reference"))) < 1e-5


@pytest.mark.parametrize("strong", [False, True])
def test_gates_from_almost_zero_to_almost_one(strong: bool) -> None:
    exact = make("GLA", torch.float64, states=16)
    rnn = make("GLA", torch.float32, states=16)
    with torch.no_grad():
        for own_layer in (exact, rnn):
            own_layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    # σ(·)^(1/16) has the gate 1e-6 at −221
    x = torch.randn(150, 2, 24) * (200.0 if strong else 1.0)
    with np.errstate(over="ignore"):  # σ of large numbers, which Triton's interpreter warns of
        ours, wanted = run(rnn, x, "matrix"), run(exact, x, "reference")
    assert all(t is None or t.isfinite().all() for t in ours)
    assert max(map(rms, ours[:2], wanted[:2])) < 1e-5


def test_states_go_in_and_out_and_steps_continue() -> None:
    rnn, x = make("GLA", torch.float64), torch.randn(40, 2, 24, dtype=torch.float64)
    with rrnn.use_backend("reference"):
        whole, end = rnn(x)
    with rrnn.use_backend("matrix"), torch.no_grad():
        first, state = rnn(x[:33])
        rest = []
        for t in range(33, 40):
            out, state = rnn.step(x[t], state)
            rest.append(out)
    assert rms(torch.cat([first, torch.stack(rest)]), whole) < 1e-12
    assert rms(state[0].states[0], end[0].states[0]) < 1e-12


@pytest.mark.parametrize("name", [*MODELS, "own"])
def test_packed_sequences(name: str) -> None:
    rnn, x = make(name, torch.float64), torch.randn(160, 24, dtype=torch.float64)
    offsets = torch.tensor([0, 7, 7, 90, 160, 160])
    ours, wanted = (run(rnn, x, b, cu_seqlens=offsets) for b in ("matrix", "reference"))
    assert max(map(rms, ours, wanted)) < 1e-12


def test_packed_sequences_save_states_at_other_intervals() -> None:
    from rrnn.backends.interface import sequence_table
    from rrnn.ops import rational

    program = lower(own_cell(16)).program.with_heads(2, 1)
    torch.manual_seed(0)
    x = torch.randn(150, 1, program.columns(16), dtype=torch.float64)
    wide = program.wide
    assert wide is not None
    params = torch.rand(1, sum(wide.numbers(e, 16) for e in wide.parameters), dtype=torch.float64)
    table, found = sequence_table(torch.tensor([0, 80, 80, 150]), 150), []
    for every in (None, 7, 100):
        v = x.clone().requires_grad_()
        with rrnn.use_backend("matrix"):
            out = rational(
                v, [params], None, [program], widths=[16], save_every=every, sequences=table
            ).output
        found.append(torch.autograd.grad(out.square().sum(), v)[0])
    assert max(rms(found[1], found[0]), rms(found[2], found[0])) < 1e-12


def test_other_intervals_of_saved_states() -> None:
    from rrnn.ops import rational

    program = lower(rrnn.zoo.get_cell("GLA", states=16)).program
    torch.manual_seed(0)
    x, params = torch.randn(150, 2, 64, dtype=torch.float64), torch.randn(1, 16, dtype=torch.float64)
    x = x[..., : program.columns(16)]
    found = []
    for every in (None, 7, 100):
        v = x.clone().requires_grad_()
        with rrnn.use_backend("matrix"):
            out = rational(v, [params], None, [program], widths=[16], save_every=every).output
        found.append(torch.autograd.grad(out.square().sum(), v)[0])
    assert max(rms(found[1], found[0]), rms(found[2], found[0])) < 1e-12


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    here = torch.device("cpu"), torch.float32
    gla = lower(rrnn.zoo.get_cell("GLA", states=64)).program
    assert resolve("auto", *here, [gla]).name == "native"
    with monkeypatch.context() as without:
        without.setattr(type(get_backend("native")), "why_not", lambda *_: "there is no compiler")
        assert resolve("auto", *here, [gla]).name == "matrix"
    assert resolve("auto", *here, [lower(rrnn.zoo.get_cell("GLA", states=4)).program]).name != "matrix"
    assert resolve("auto", *here, [lower(rrnn.zoo.get_cell("F")).program]).name != "matrix"
    h = family("h", 64)
    k, q, g = (linear(name, over=h, per="head") for name in "kqg")
    gated = (
        Cell("Signed").initial("s").loop("s", one).arc("s", h, k * linear("v")).loop(h, tanh(g)).read(h, q)
    )
    for signed in (gated, own_cell(64)):  # gates, or learned decays, from −1 to 1
        program = lower(signed).program
        assert resolve("auto", *here, [program]).name != "matrix"
    why = get_backend("matrix").why_not(*here, lower(rrnn.zoo.get_cell("Mamba")).program)
    assert why is not None and "depends on the unit" in why
    gpu, matrix = torch.device("cuda"), get_backend("matrix")
    for name in ("GLA", "RetNet", "linear-attention"):
        small, large = (lower(rrnn.zoo.get_cell(name, states=n)).program for n in (8, 16))
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            assert matrix.pays(gpu, dtype, large, None) and not matrix.pays(gpu, dtype, small, None)
            assert matrix.pays(gpu, dtype, large, 1) == (name != "GLA")
        assert not matrix.pays(gpu, torch.float64, large, None)  # there are no kernels


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tiles_are_narrow_where_states_and_units_are(dtype: torch.dtype) -> None:
    """With a decay per head; see `NARROW`."""
    for states, units, narrow in [
        (16, 16, True),
        (20, 32, True),
        (128, 32, False),
        (32, 100, False),
        (64, 32, False),
    ]:
        tiles = tiles_of(states, units, "head", dtype, H200, 2048, 128)[0]
        assert (min(tiles.outputs.units, tiles.keys.states) < 64) == narrow


@pytest.mark.parametrize("shared", [232_448, 99 << 10, 48 << 10, 8 << 10])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [16, 48, 64, 100, 128, 192, 256])
def test_tiles_follow_the_shared_memory(shared: int, dtype: torch.dtype, size: int) -> None:
    gpu = H200._replace(shared_per_block=shared)
    for decay in ("head", "state"):
        *choices, last = tiles_of(size, size, decay, dtype, gpu, 2048, 128)
        assert not last.kernels  # torch's products are left
        assert choices or shared <= 48 << 10
        for tiles in choices:
            assert tiles.segment % tiles.chunk == 0
            states, units = tiles.block or (size, size)
            assert tiles.outputs.states >= states and tiles.keys.units >= units
            narrowest = min(tiles.keys.states, tiles.outputs.units)
            assert decay == "head" or dtype == torch.float32 or narrowest >= 64
            for walk in (tiles.outputs, tiles.keys) if dtype == torch.float32 else ():
                assert walk.states * walk.units <= 4096 and walk.warps == 8 and tiles.values is not None
            for walk, tensors in ((tiles.outputs, (2, 1)), (tiles.keys, (2, 2))):
                assert needs(tiles.chunk, walk, decay, dtype, tensors) <= shared
