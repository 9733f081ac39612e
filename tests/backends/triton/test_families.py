"""Families of states in Triton's interpreter, against the reference backend."""

from __future__ import annotations

import pytest
import torch
from wide_layers import over
from zoo.test_wide import build, close, gradients

import rrnn
from rrnn import zoo
from rrnn.backends.triton import families
from rrnn.backends.triton.families import plan_of, render
from rrnn.backends.triton.family_kernels import MATH, ROWS
from rrnn.backends.triton.kernel_text import HEAD
from rrnn.backends.triton.module import imported
from rrnn.backends.triton.plan import H200, Plan
from rrnn.ir import has_scan_form, lower

pytestmark = pytest.mark.slow


def agrees(rnn: rrnn.RationalRNN, steps: int, lengths: list[int]) -> bool:
    """Return whether outputs, final states and gradients are those of the reference in float64."""
    found = []
    for backend, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        rnn = rnn.to(dtype)
        torch.manual_seed(2)
        x = torch.randn(steps, len(lengths), rnn.input_size).to(dtype).requires_grad_()
        with rrnn.use_backend(backend):
            out, state = rnn(x, lengths=lengths)
            found.append([out, state[0].states[0], *gradients(rnn, x, out, state[0].states[0])])
    return all(close(a, b, 1e-4) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["GLA", "Mamba-2", "Mamba-3", "RWKV-6", "S4D", "Gated-DeltaNet"])
def test_equal_to_the_reference(name: str) -> None:
    assert agrees(build(name, states=3, units=8), 6, [6, 2])


@pytest.mark.parametrize("steps", [8, 9])
def test_whole_pieces_and_sums_on_tensor_cores(steps: int) -> None:
    """16 states and more: what heads share is summed by products. 40 units: the last block is not full."""
    assert agrees(build("Mamba", states=16, units=40), steps, [steps, 5])


def test_sums_of_few_units_on_tensor_cores() -> None:
    """A head has three units: fewer than the rows of the smallest product."""
    assert agrees(build("Mamba-2", states=16, units=12), 5, [5, 2])


@pytest.mark.parametrize("every", [1, 2, 6, 7])
def test_any_interval_of_saved_states(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "interval", lambda _: every)
    assert agrees(build("GLA", states=2, units=4), 9, [9, 4])


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cut time into chunks of four steps; return the names of the kernels that joined them."""
    joined: list[str] = []
    join = families._Launch.join

    def spy(self: families._Launch, name: str, *more: torch.Tensor) -> torch.Tensor:
        joined.append(name)
        return join(self, name, *more)

    monkeypatch.setattr(families._Launch, "join", spy)
    monkeypatch.setattr(families, "plan_of", lambda *_: Plan(8, 1, 4, 4, 2))
    return joined


@pytest.mark.parametrize("name", ["Mamba", "GLA", "S4D", "Mamba-2"])
def test_chunks_equal_to_the_reference(name: str, chunks: list[str]) -> None:
    """Three chunks, the last of which is shorter; one sequence ends inside the second chunk."""
    assert agrees(build(name, states=3, units=8), 10, [10, 6])
    assert chunks == ["join", "reverse_join"]


@pytest.mark.parametrize(
    "semiring", ["real", "log", "max-plus", "min-plus", "max-times", "complex", "signed-log"]
)
def test_chunks_over_any_semiring(semiring: str, chunks: list[str]) -> None:
    torch.manual_seed(0)
    rnn = rrnn.RationalRNN(over(semiring, single=False), 5, 6, heads=2)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    assert agrees(rnn, 10, [10, 6])
    assert chunks == ["join", "reverse_join"]


def test_chunks_start_and_end_with_given_states(chunks: list[str]) -> None:
    rnn = build("GLA", states=3, units=8, dtype=torch.float32)
    x = torch.randn(12, 2, 8)
    with rrnn.use_backend("triton"), torch.no_grad():
        whole, last = rnn(x)
        _, between = rnn(x[:8])
        rest, end = rnn(x[8:], between)
    assert chunks == ["join", "join"]
    assert close(rest, whole[8:], 1e-5) and close(end[0].states[0], last[0].states[0], 1e-5)


def test_a_fold_into_a_single_state_is_not_cut_into_chunks() -> None:
    assert not has_scan_form(lower(over("real")).program)
    assert has_scan_form(lower(over("real", single=False)).program)


def test_few_lanes_are_cut_into_chunks() -> None:
    def chunk(name: str, batch: int, units: int, packed: bool = False, backward: bool = False) -> int:
        program = lower(zoo.get_cell(name, states=16)).program
        return plan_of(program, 2048, batch, units, packed, backward, H200).chunk

    assert chunk("Mamba", 8, 2048) == chunk("Mamba", 64, 2048, backward=True) == 0
    assert chunk("Mamba", 8, 2048, backward=True) == 512
    assert chunk("Mamba", 1, 1024) == 64
    assert chunk("Mamba", 1, 1024, packed=True) == chunk("DeltaNet", 1, 1024) == 0


def test_the_text_does_not_grow_with_the_family() -> None:
    few, many = (render(lower(zoo.get_cell("GLA", states=n)).program, 8) for n in (16, 128))
    assert len(many.split("\n")) == len(few.split("\n"))


def sum_of_units(r: torch.Tensor) -> torch.Tensor:
    """Return the sum over units that kernels compute on tensor cores for float32."""
    units, states = r.shape
    text = f"""

@triton.jit
def total(x, out):
    place = tl.arange(0, {units})[:, None] * {states} + tl.arange(0, {states})[None, :]
    rows = tl.arange(0, {ROWS})[:, None] * {states} + tl.arange(0, {states})[None, :]
    tl.store(out + rows, sum_units(tl.load(x + place), True))
"""
    out = r.new_empty(ROWS, states)
    imported(HEAD + MATH + text).total[(1,)](r, out)
    return out


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # NumPy on ∞ − ∞, in the interpreter
@pytest.mark.parametrize("units", [4, 32])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_sums_on_tensor_cores_of_infinite_numbers(units: int, device: str) -> None:
    triton = pytest.importorskip("triton")
    if device == "cpu" and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8):
        pytest.skip("before 3.8, a maximum with NaN is NaN in the interpreter, unlike on a GPU")
    torch.manual_seed(0)
    r = torch.randn(units, 16)
    r[1, 0], r[2, 1], r[0, 2] = torch.inf, -torch.inf, torch.nan
    r[0, 3], r[3, 3] = torch.inf, -torch.inf
    r[:, 4] = 1 + 2**-20  # 21 bits
    r[0, 5] = torch.finfo(torch.float32).max
    expected = r.double().sum(0)
    for row in sum_of_units(r.to(device)).cpu().double():
        assert torch.allclose(row, expected, 1e-6, 1e-6, equal_nan=True)
