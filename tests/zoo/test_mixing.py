"""ISAN and linear Elman networks: their equations, gradients, masks, streaming; chunks and every way to run them."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rrnn.backends import use_backend
from rrnn.backends.native.compiler import Compiler, find_compiler
from rrnn.errors import BackendError, ShapeError
from rrnn.nn.affine import AffineRNN, affine_scan
from rrnn.zoo.mixing import ISAN, LinearElman

BACKENDS = ["auto", "reference", "triton"]  # triton has no such kernel, and leaves it to torch


def isan(units: int = 5, **options: Any) -> ISAN:
    torch.manual_seed(units)
    return ISAN(4, units, dtype=torch.float64, **options)


def elman(units: int = 5, **options: Any) -> LinearElman:
    torch.manual_seed(units)
    return LinearElman(3, units, dtype=torch.float64, **options)


LAYERS = {"isan": isan, "elman": elman}


def make_input(layer: AffineRNN, *leading: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    if isinstance(layer, ISAN):
        return torch.randint(layer.num_symbols, leading, generator=g)
    return torch.randn(*leading, 3, generator=g, dtype=torch.float64)


def definition(layer: AffineRNN, x: Tensor, c: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The published equations, one sequence and one step at a time."""
    states = torch.zeros(x.shape[0], x.shape[1], layer.hidden_size, dtype=torch.float64)
    rows = list(c)
    for t in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is not None and not mask[t, b]:
                continue
            v = x[t, b]
            if isinstance(layer, ISAN):
                rows[b] = layer.weight[v] @ rows[b] + layer.bias[v]
            else:
                assert isinstance(layer, LinearElman) and layer.bias is not None
                rows[b] = layer.weight_hh @ rows[b] + layer.weight_ih @ v + layer.bias
            states = states.index_put((torch.tensor(t), torch.tensor(b)), rows[b])
    return states, torch.stack(rows)


def gradients(layer: AffineRNN, outputs: tuple[Tensor, Tensor], *more: Tensor) -> list[Tensor]:
    g = torch.Generator().manual_seed(7)
    grads = [torch.randn(o.shape, generator=g, dtype=o.dtype) for o in outputs]
    return list(torch.autograd.grad(outputs, (*layer.parameters(), *more), grads))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 3, 7, 50])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LAYERS)
def test_equations_and_gradients(name: str, backend: str, chunk: int | None, masked: bool) -> None:
    layer = LAYERS[name](chunk=chunk)
    x, first = make_input(layer, 7, 3), torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(7, 3, generator=torch.Generator().manual_seed(3)) < 0.6 if masked else None
    with use_backend(backend):
        found = layer(x, first, mask=mask)
        ours = gradients(layer, found, first)
    expected = definition(layer, x, first, mask)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, gradients(layer, expected, first))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(
    st.integers(1, 70), st.integers(0, 9), st.integers(0, 4), st.integers(1, 6), st.none() | st.integers(1, 4)
)
def test_every_way_agrees(
    dtype: torch.dtype, units: int, steps: int, batch: int, symbols: int, chunk: int | None
) -> None:
    """Any sizes, identities anywhere: kernels, chunks and torch ops against the reference."""
    g = torch.Generator().manual_seed(units)
    x = torch.randint(-1, symbols, (steps, batch), generator=g)
    shapes = [(symbols, units, units), (steps, batch, units), (batch, units)]
    inputs = [(torch.randn(s, generator=g, dtype=dtype) / units**0.5).requires_grad_() for s in shapes]
    grad = torch.randn(steps, batch, units, generator=g, dtype=dtype)
    results = []
    for backend in BACKENDS:
        with use_backend(backend):
            out = affine_scan(x, *inputs, chunk=None if backend == "reference" else chunk)
            if steps and batch:
                results.append((out, *torch.autograd.grad(out, inputs, grad)))
            else:
                results.append((out,))
    for one in results:
        torch.testing.assert_close(
            one,
            results[1],
            rtol=1e-4 if dtype == torch.float32 else 1e-9,
            atol=1e-4 if dtype == torch.float32 else 1e-9,
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradcheck(backend: str) -> None:
    layer, x = isan(3), torch.tensor([[0, 3], [1, -1], [0, 0]])
    u, first = torch.randn(3, 2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    with use_backend(backend):
        inputs = (layer.weight, u.requires_grad_(), first.requires_grad_())
        assert torch.autograd.gradcheck(lambda *a: affine_scan(x, *a), inputs)
        if backend == "reference":
            assert torch.autograd.gradgradcheck(lambda *a: affine_scan(x, *a), inputs)


@pytest.mark.parametrize("name", LAYERS)
def test_layouts_and_streaming(name: str) -> None:
    layer = LAYERS[name]()
    x = make_input(layer, 6, 4)
    out, final = layer(x)
    assert out.shape == (6, 4, 5) and final.shape == (4, 5)
    swapped = LAYERS[name](batch_first=True)
    swapped.load_state_dict(layer.state_dict())
    torch.testing.assert_close(swapped(x.transpose(0, 1)), (out.transpose(0, 1), final))
    torch.testing.assert_close(layer(x[:, 1]), (out[:, 1], final[1]))  # one sequence
    first, state = layer(x[:2])  # in pieces
    rest, state = layer(x[2:], state)
    torch.testing.assert_close((torch.cat([first, rest]), state), (out, final))
    state, one = None, layer.init_state()
    for t in range(6):
        y, state = layer.step(x[t], state)
        torch.testing.assert_close(y, out[t])
        y, one = layer.step(x[t, 2], one)
        torch.testing.assert_close(y, out[t, 2])
    empty, state = layer(x[:0], final)
    assert empty.shape == (0, 4, 5) and state.equal(final)


@pytest.mark.parametrize("name", LAYERS)
def test_padding_reaches_nothing(name: str) -> None:
    layer = LAYERS[name]()
    x = make_input(layer, 6, 3)
    lengths = [6, 2, 0]
    filled = x.clone()
    for b, n in enumerate(lengths):
        filled[n:, b] = 99 if name == "isan" else float("nan")
    results = []
    for given_input in (x, filled):
        found = layer(given_input, lengths=lengths)
        results.append((*found, *gradients(layer, found)))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    out, final = results[0][:2]
    assert not out[2:, 1].any() and not final[2].any()
    torch.testing.assert_close(final[1], layer(x[:2, 1])[1])


@pytest.mark.parametrize("name", LAYERS)
def test_half_precision_keeps_its_state_whole(name: str) -> None:
    layer = LAYERS[name]().to(torch.bfloat16)
    x = make_input(layer, 6, 2)
    x = x if name == "isan" else x.to(torch.bfloat16)
    out, final = layer(x)
    assert out.dtype == torch.bfloat16 and final.dtype == torch.float32
    exact = LAYERS[name]()
    exact.load_state_dict(layer.state_dict())
    torch.testing.assert_close(
        out.double(), exact(x if name == "isan" else x.double())[0], rtol=0.02, atol=0.02
    )
    out.sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_compiles_whole(name: str) -> None:
    layer = LAYERS[name]()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for shape in ((4, 2), (6, 3)):
        x = make_input(layer, *shape)
        mask = torch.ones(shape, dtype=torch.bool)
        mask[-1, 0] = False
        found, expected = compiled(x, mask=mask), layer(x, mask=mask)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradients(layer, found), gradients(layer, expected))


def test_vmap_runs_the_reference() -> None:
    layer = isan()
    u = torch.randn(4, 3, 2, 5, dtype=torch.float64)
    x, first = make_input(layer, 3, 2), torch.zeros(2, 5, dtype=torch.float64)
    found = torch.func.vmap(lambda v: affine_scan(x, layer.weight, v, first))(u)
    torch.testing.assert_close(found[2], affine_scan(x, layer.weight, u[2], first))


@pytest.mark.skipif(not isinstance(find_compiler(), Compiler), reason="no C compiler")
def test_threads_change_no_bit() -> None:
    layer = isan(64)
    x, threads = make_input(layer, 9, 8), torch.get_num_threads()
    results = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            found = layer(x)
            results.append((*found, *gradients(layer, found)))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["auto", "triton"])
@pytest.mark.usefixtures("optimised_c")
def test_five_times_an_eager_loop(backend: str) -> None:
    """A character-level model's shape, forwards and backwards; with torch ops alone about three times is safe to ask
    on a busy machine. `benchmarks/isan.py` has the figures."""
    compiled = backend == "auto" and isinstance(find_compiler(), Compiler)
    layer, x = ISAN(28, 64), torch.randint(28, (128, 64), generator=torch.Generator().manual_seed(0))

    def eager() -> Tensor:
        c, states = layer.init_state(64), []
        for x_t in x:
            c = torch.bmm(layer.weight[x_t], c.unsqueeze(-1)).squeeze(-1) + layer.bias[x_t]
            states.append(c)
        return torch.stack(states)

    times: dict[str, list[float]] = {"eager": [], "ours": []}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with use_backend(backend):
            for turn in range(3):
                for name, run in (("eager", eager), ("ours", lambda: layer(x)[0])):
                    began = time.process_time()
                    run().sum().backward()
                    times[name] += [time.process_time() - began] if turn else []  # the first may compile
    finally:
        torch.set_num_threads(threads)
    assert min(times["eager"]) > (5 if compiled else 3) * min(times["ours"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ISAN(0, 4), "num_symbols must be a whole number above 0; got 0"),
        (lambda: ISAN(4, 2.0), "hidden_size must be a whole number above 0; got 2.0"),  # type: ignore[arg-type]
        (lambda: ISAN(4, 2, chunk=0), "chunk must be a whole number above 0; got 0"),
        (lambda: LinearElman(-1, 4), "input_size must be a whole number above 0; got -1"),
        (
            lambda: isan()(torch.tensor([[0], [4]])),
            "symbols are numbered from 0 to 3; got 4. If it is padding",
        ),
        (lambda: isan()(torch.tensor([[-1]])), "symbols are numbered from 0 to 3; got -1"),
        (lambda: isan()(torch.randn(2, 2)), "ISAN reads symbols, as integers; got torch.float32"),
        (
            lambda: isan()(torch.zeros(2, 2, 2).long()),
            'got (2, 2, 2). ISAN reads symbols; its cell reads vectors, as in RationalRNN("ISAN:units=64", …)',
        ),
        (lambda: isan()([1, 2]), "expected a tensor with 1 or 2 dimensions; got list"),
        (lambda: isan().step(torch.zeros(2, 2).long()), "expected one step, a tensor with 0 or 1 dimensions"),
        (lambda: elman()(torch.zeros(2, 4).double()), "expected input with 3 features; got 4"),
        (
            lambda: elman()(torch.zeros(2, 3)),
            "expected input of torch.float64, the dtype of the layer's weights",
        ),
        (
            lambda: isan()(torch.zeros(2, 2).long(), torch.zeros(5)),
            "expected a state of shape (2, 5), numbers of (batch, units); got torch.float32 (5,)",
        ),
        (lambda: isan()(torch.zeros(2).long(), lengths=[1]), "lengths= is for batches"),
        (
            lambda: isan()(torch.zeros(2, 1).long(), lengths=[1], mask=torch.ones(2, 1) > 0),
            "both lengths= and mask=",
        ),
    ],
    ids=range(15),
)
def test_mistakes_are_named(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        call()


def test_a_backend_asked_for_must_run() -> None:
    with use_backend("native"), pytest.raises(BackendError, match="at most 1024 units, not 1025"):
        affine_scan(
            torch.zeros(2, 1).long(),
            torch.zeros(1, 1025, 1025),
            torch.zeros(2, 1, 1025),
            torch.zeros(1, 1025),
        )


def test_repr() -> None:
    assert (
        repr(isan()) == "ISAN(4, 5)"
        and repr(LinearElman(3, 5, bias=False)) == "LinearElman(3, 5, bias=False)"
    )
