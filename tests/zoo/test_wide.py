"""Mamba, GLA, S4D and their kin against their papers' equations, on every backend that runs families."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from quick_c import levels, optimised
from torch import Tensor
from wide_equations import TWINS, Weights
from wide_layers import HEADS, build, over

import rrnn
from rrnn import RationalRNN, zoo
from rrnn.automata import (
    Cell,
    family,
    index,
    linear,
    parameter,
    scale,
    score,
    sigmoid,
    uniform,
    union,
    unroll,
)
from rrnn.backends.native.families import render_backward, render_forward
from rrnn.cli import main
from rrnn.errors import CellError, FormatError, RRNNError
from rrnn.ir import lower

# Compiling two kernels takes seconds, so the quick tests do it for few models.
COMPILED = [
    pytest.param(
        name, backend, marks=() if backend == "reference" or name in ("Mamba", "GLA") else pytest.mark.slow
    )
    for name in TWINS
    for backend in ("reference", "native")
]


def gradients(rnn: RationalRNN, x: Tensor, out: Tensor, state: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    weights = [x, *(p for p in rnn.parameters() if p.requires_grad)]
    loss = torch.stack([(y * torch.randn(y.shape).to(y)).sum() for y in (out, state)]).sum()
    return list(torch.autograd.grad(loss, weights, allow_unused=True))


def close(got: Tensor | None, expected: Tensor | None, tolerance: float = 1e-10) -> bool:
    if got is None or expected is None:
        return all(value is None or not value.any() for value in (got, expected))
    if not expected.numel():
        return got.shape == expected.shape
    scale = float(expected.detach().abs().max()) + 1e-30
    return float((got - expected).detach().abs().max()) <= tolerance * scale


@pytest.mark.usefixtures("optimised_c")
@pytest.mark.parametrize("name, backend", COMPILED)
def test_equations(name: str, backend: str) -> None:
    rnn = build(name)
    x = torch.randn(9, 3, 12, dtype=torch.float64, requires_grad=True)
    with rrnn.use_backend(backend):
        out, state = rnn(x)
    expected, last = TWINS[name](Weights(rnn, x), 5)
    assert close(out, expected)
    assert close(state[0].states[0], last)
    found = gradients(rnn, x, out, state[0].states[0])
    wanted = gradients(rnn, x, expected, last)
    assert all(close(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("units, heads", [(1, 1), (33, 1), (33, 3), (200, 1), (130, 2)])
def test_lanes_that_fill_no_vector(units: int, heads: int) -> None:
    found = {}
    for backend in ("reference", "native"):
        rnn = build("Mamba", states=3, units=units, heads=heads)
        x = torch.linspace(-1, 1, 20 * 2 * units, dtype=torch.float64).view(20, 2, units).requires_grad_()
        with rrnn.use_backend(backend):
            out, state = rnn(x)
            found[backend] = [out, *gradients(rnn, x, out, state[0].states[0])]
    assert all(close(a, b) for a, b in zip(found["native"], found["reference"], strict=True))


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["Mamba", "GLA", "S4D"])
def test_padding_changes_nothing(name: str, backend: str) -> None:
    rnn, lengths = build(name), [7, 3, 0]
    x = torch.randn(7, 3, 12, dtype=torch.float64)
    for b, length in enumerate(lengths):
        x[length:, b] = torch.nan
    x.requires_grad_()
    with rrnn.use_backend(backend):
        out, state = rnn(x, lengths=lengths)
        (grad,) = torch.autograd.grad(out.sum() + state[0].states[0].sum(), x)
        for b, length in enumerate(lengths):
            alone, last = rnn(x[:length, b : b + 1])
            assert close(out[:length, b], alone[:, 0]) and not out[length:, b].any()
            assert close(state[0].states[0][:, b], last[0].states[0][:, 0])
            assert not grad[length:, b].any()
            (own,) = torch.autograd.grad(alone.sum() + last[0].states[0].sum(), x)
            assert close(grad[:length, b], own[:length, b])


@pytest.mark.parametrize("name, backend", COMPILED)
def test_streaming_equals_one_pass(name: str, backend: str) -> None:
    rnn = build(name).eval()
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    with rrnn.use_backend(backend), torch.no_grad():
        whole, end = rnn(x)
        _, state = rnn(x[:3])
        for t in range(3, 6):
            out, state = rnn.step(x[t], state)
            assert close(out, whole[t])
    assert close(state[0].states[0], end[0].states[0])


OPTIMISED = levels(list(TWINS), (torch.float32, torch.bfloat16))


@pytest.mark.slow
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize("name", TWINS)
def test_lower_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    exact = build(name)
    rnn = build(name, dtype=dtype)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())  # rounded as the other's
    x = torch.randn(9, 3, 12).to(dtype)
    found = []
    with optimised() if OPTIMISED[name, dtype] else nullcontext():
        for layer, v in ((rnn, x.clone().requires_grad_()), (exact, x.double().requires_grad_())):
            out, state = layer(v)
            grads = gradients_like(layer, v, out, state[0].states[0])
            found.append([out.double(), *(g.double() for g in grads)])
    assert all(close(a, b, tolerance) for a, b in zip(*found, strict=True))


def gradients_like(rnn: RationalRNN, x: Tensor, out: Tensor, state: Tensor) -> list[Tensor]:
    weights = [x, *(p for p in rnn.parameters() if p.requires_grad)]
    found = torch.autograd.grad(out.sum() + state.sum().to(out.dtype), weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@pytest.mark.parametrize("name", TWINS)
def test_a_text_reads_back(name: str) -> None:
    cell = zoo.get_cell(name)
    text = cell.to_text()
    assert text.startswith("rrnn-cell 2\n")
    assert Cell.from_text(text) == cell


@pytest.mark.parametrize("name", TWINS)
def test_unrolled(name: str) -> None:
    """Written without families, a cell computes the same with each unit's own copy of what heads share."""
    rnn = build(name, states=3)
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    assert close(rnn(x)[0], without_families(rnn)(x)[0])


def without_families(rnn: RationalRNN) -> RationalRNN:
    """Return a layer of the same cell, written without families, and with the same weights."""
    layer, units = rnn.layers[0], rnn.hidden_size
    thin = RationalRNN(unroll(rnn.cells[0][0]), rnn.input_size, units, dtype=torch.float64)
    own = thin.layers[0]
    with torch.no_grad():
        for unit in range(units):
            rows, values = layer.numbers_of(0, unit)  # type: ignore[operator]
            for new, (old, place) in rows.items():
                found, target = layer.projection(0, old), own.projection(0, new)  # type: ignore[operator]
                target.weight()[unit] = found.weight()[place]
                if found.bias is not None:
                    target.bias[unit] = found.bias.flatten()[place]
            for parameter, value in values.items():
                own.parameters_of(0)[parameter][unit] = value  # type: ignore[operator]
    return thin


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("semiring", ["real", "log", "max-plus", "min-plus", "max-times", "complex"])
def test_any_semiring(semiring: str, backend: str) -> None:
    torch.manual_seed(0)
    rnn = RationalRNN(over(semiring), 5, 6, heads=2, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    x = torch.randn(7, 3, 5, dtype=torch.float64)
    with rrnn.use_backend(backend):
        grads = []
        for layer in (rnn, without_families(rnn)):
            v = x.clone().requires_grad_()
            out, _ = layer(v)
            (grad,) = torch.autograd.grad((out * torch.arange(out.numel()).view(out.shape).cos()).sum(), v)
            grads += [out, grad]
    assert close(grads[0], grads[2]) and close(grads[1], grads[3])


@pytest.mark.parametrize(
    "run", [lambda m: union(m, zoo.get_cell("B"), output=score), lambda m: scale(m, 2.0)]
)
def test_cells_of_families_are_not_joined(run: Any) -> None:
    with pytest.raises(CellError, match=r"'Mamba' has families of states. Write them out first"):
        run(zoo.get_cell("Mamba"))
    assert run(unroll(zoo.get_cell("Mamba"))).check()


@pytest.mark.parametrize(
    "build_wrong, message",
    [
        (lambda: Cell("x").arc("q0", "q1", linear("B", over=family("h", 3))), "belongs to single states"),
        (
            lambda: Cell("x").output(linear("B", over=family("h", 3))),
            "output expression .* it belongs to no state",
        ),
        (lambda: Cell("x").initial("q").arc("q", family("h", 3), 1.0).check(), r"call .final.* or .read"),
        (
            lambda: Cell("x").loop(family("h", 3), linear("B", over=family("h", 4))),
            "with 4 values, .* has 3 states",
        ),
        (lambda: Cell("x").arc(family("g", 3), family("h", 4), 1.0), "'g' has 3 states, 'h' 4"),
        (
            lambda: Cell("x").epsilon("q0", family("h", 3), 1.0),
            r"^the ε-arc 'q0' → 'h': arcs of a family consume a symbol",
        ),
        (lambda: Cell("x").loop(family("h", 3), 1.0).loop(family("h", 4), 1.0), "families of two sizes"),
        (lambda: family("h", 0), "its size is a whole number from 1 to 16384; got 0"),
        (lambda: linear("B", over="h"), "over takes a family"),  # type: ignore[arg-type]
        (lambda: linear("B", over=family("h", 3).source), "over takes a family.* got h.source$"),  # type: ignore[arg-type]
        (lambda: linear("B", per="unit_"), 'per is "unit", "head" or "group"'),
        (lambda: linear("B", start=1.0), "start is the first value of the bias; add bias=True"),
        (lambda: parameter("B", start=linear("x")), "made of numbers, index"),
        (lambda: parameter("B", start=index(family("h", 3))), "start depends on index"),
        (lambda: parameter("B", learned="no"), "learned is True or False; got 'no'"),  # type: ignore[arg-type]
        (lambda: Cell("x").loop("q", index("unit")), r"uses index\(unit\), which describes a first value"),
        (lambda: Cell("x").output(uniform(0, 1)), r"parameter\(\"name\", start=uniform\(0, 1\), …\)"),
        (lambda: zoo.get_cell("LRU:radius=2"), "LRU's radius is a pair"),
        (lambda: Cell("x", "max-times").read("q", linear("c")), "may be negative"),
        (lambda: RationalRNN(zoo.get_cell("GLA"), 6, 6, heads=4), "4 heads do not divide the 6 units of GLA"),
        (
            lambda: RationalRNN(zoo.get_cell("Mamba-2"), 6, 6, heads=3, groups=2),
            "2 groups do not divide 3 heads",
        ),
        (lambda: RationalRNN(zoo.get_cell("F"), 6, 6, heads=2), "F has none. Leave heads out"),
    ],
)
def test_mistakes(build_wrong: Any, message: str) -> None:
    with pytest.raises(RRNNError, match=message):
        build_wrong()


@pytest.mark.parametrize(
    "line, message",
    [
        ("family h 0", "a whole number from 1 to 16384"),
        ('B = linear("B", over=g)', "the name of a family"),
        ('B = linear("B", per="heads")', '"unit", "head" or "group"'),
        ('A = parameter("A", start=index(g))', "a family, or unit, head or group"),
    ],
)
def test_mistakes_in_text(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Cell.from_text(
            f"rrnn-cell 2\ncell x\nsemiring real\nfamily h 3\n{line}\n".replace("family h 3\nfam", "fam")
        )


def test_a_text_without_families_knows_nothing_of_them() -> None:
    """Only who uses the words of version 2 in a text of version 1 hears of them, and what to do."""
    for line in ('u = linear("u", wide=h)', "familie h 3"):
        with pytest.raises(FormatError) as error:
            Cell.from_text(f"rrnn-cell 1\ncell x\nsemiring real\n{line}\n")
        said = str(error.value).replace(line, "")
        assert not re.search("over|per=|head|famil|mix|read ", said.replace("cannot read", "")), said
    for line in (
        'u = linear("u", over=h)',
        'p = parameter("p", learned=False)',
        "family h 3",
        "read q : one",
    ):
        with pytest.raises(FormatError, match=r"version 2 of the format.*rrnn-cell 2"):
            Cell.from_text(f"rrnn-cell 1\ncell x\n{line}\n")
    with pytest.raises(FormatError, match="got 'rrnn-cell 3'; this version of rrnn also reads 'rrnn-cell 2'"):
        Cell.from_text("rrnn-cell 3\ncell x\n")


def test_the_text_of_a_kernel_does_not_grow_with_the_family() -> None:
    for render in (render_forward, render_backward):
        few, many = (render(lower(zoo.get_cell("GLA", states=n)).program, torch.float32) for n in (4, 128))
        assert len(many.split("\n")) == len(few.split("\n"))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rnn = build("Mamba", units=300, dtype=torch.float32)
    x, found = torch.randn(40, 3, 300), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            v = x.clone().requires_grad_()
            out, state = rnn(v)
            found.append([out, *gradients(rnn, v, out, state[0].states[0])])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_first_values() -> None:
    """They are those of the papers and their public code, but for matrices, which layers draw."""
    torch.manual_seed(0)

    def first(name: str, **options: Any) -> dict[str, Tensor]:
        layer = RationalRNN(zoo.get_cell(name, **options), 512, 512, heads=4 if name in HEADS else 1).layers[
            0
        ]
        found = {k: v.detach() for k, v in layer.parameters_of(0).items()}  # type: ignore[operator]
        return found | {f"{k}.bias": v.detach() for k, v in layer.cells[0].bias.named_parameters()}  # type: ignore[index, union-attr]

    lru = first("LRU")
    radius = torch.exp(-torch.exp(lru["nu"]))
    assert radius.min() >= 0.9 and radius.max() <= 0.999 and radius.std() > 0.02
    assert torch.allclose(lru["gamma"].exp(), (1 - radius**2).sqrt(), atol=1e-5)
    s4d = first("S4D", states=64)
    assert (
        torch.allclose(s4d["A_im"][:, 0], torch.pi * torch.arange(64))
        and (s4d["A_re"].exp() - 0.5).abs().max() < 1e-6
    )
    assert abs(s4d["C_re"].var() - 0.5) < 0.02 and abs(s4d["D"].var() - 1) < 0.2
    mamba = first("Mamba", states=16)
    assert torch.allclose(mamba["A_log"][:, 5].exp(), torch.arange(1.0, 17.0)) and mamba["D"].eq(1).all()
    step = torch.nn.functional.softplus(mamba["delta.bias"])
    assert step.min() * 1.001 >= 0.001 and step.max() <= 0.1001
    assert abs(step.log().mean() - torch.tensor(0.01).log()) < 0.2  # log-uniform
    assert first("Mamba-2")["A_log"].exp().min() >= 1 and first("Mamba-2")["A_log"].exp().max() <= 16
    assert torch.allclose(first("RetNet")["gamma"], 1 - 2.0 ** (-5 - torch.arange(4)))
    assert first("Mamba-3", states=3)["B_re_1"].eq(1).all()


@pytest.mark.parametrize("name", ["Mamba", "GLA"])
def test_training_never_keeps_the_states_of_all_steps(name: str) -> None:
    steps, states, units = 256, 16, 64
    rnn = build(name, states, units, dtype=torch.float32)
    x, kept = torch.randn(steps, 1, units, requires_grad=True), dict[int, int]()

    def pack(value: Tensor) -> Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with rrnn.use_backend("native"), torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        out, _ = rnn(x)
    out.sum().backward()
    every_state = 4 * steps * states * units
    assert x.grad is not None and 0 < sum(kept.values()) < every_state // 2


@pytest.mark.parametrize("name", ["Mamba", "GLA", "S4D"])
def test_autocast(name: str) -> None:
    rnn, x = build(name, dtype=torch.float32), torch.randn(6, 2, 12, requires_grad=True)
    exact, _ = rnn(x)
    with torch.autocast("cpu", torch.bfloat16):
        out, state = rnn(x)
    assert state[0].states[0].dtype == torch.float32  # states stay exact
    (grad,) = torch.autograd.grad(out.float().sum(), x)
    (wanted,) = torch.autograd.grad(exact.sum(), x)
    assert close(out.float(), exact, 0.05) and close(grad, wanted, 0.05)


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=pytest.mark.slow)])
def test_some_first_states_are_learned(backend: str) -> None:
    """Beside a state that starts at zero, a family that starts where parameters say."""
    h = family("h", 3)
    cell = Cell("x").initial(h, parameter("i", over=h, per="head")).loop(h, sigmoid(linear("f")))
    cell = cell.arc(h, "q", linear("u", over=h)).loop("q", 0.5).read("q", linear("c"))
    rnn = RationalRNN(cell, 4, 4, heads=2, dtype=torch.float64)
    torch.nn.init.normal_(rnn.layers[0].parameters_of(0)["i"])  # type: ignore[operator]
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    with rrnn.use_backend(backend):
        assert close(rnn(x)[0], without_families(rnn)(x)[0])
        again, _ = rnn(x, rnn.init_state(2))
        found = gradients(rnn, x.requires_grad_(), *flat(rnn, x))
    with rrnn.use_backend("reference"):
        wanted = gradients(rnn, x, *flat(rnn, x))
    assert close(again, rnn(x)[0]) and all(close(a, b) for a, b in zip(found, wanted, strict=True))


def flat(rnn: RationalRNN, x: Tensor) -> tuple[Tensor, Tensor]:
    out, state = rnn(x)
    return out, state[0].states[0]


def test_states_go_in_and_out_with_gradients() -> None:
    rnn, x = build("Mamba"), torch.randn(8, 2, 12, dtype=torch.float64, requires_grad=True)
    whole, _ = rnn(x)
    first, state = rnn(x[:5])
    second, _ = rnn(x[5:], state)
    joined = torch.cat([first, second])
    assert close(joined, whole)
    found, wanted = (torch.autograd.grad((y**2).sum(), x, retain_graph=True)[0] for y in (joined, whole))
    assert close(found, wanted)


@pytest.mark.parametrize("name", ["Mamba", "Gated-DeltaNet", "Mamba-3"])
def test_the_same_bits_on_every_run(name: str) -> None:
    rnn, x, found = build(name, units=40, dtype=torch.float32), torch.randn(30, 3, 40), []
    for _ in range(2):
        v = x.clone().requires_grad_()
        out, state = rnn(v)
        found.append([out, *gradients(rnn, v, out, state[0].states[0])])
    pairs = zip(*found, strict=True)
    assert all(a is b is None or torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


@pytest.mark.parametrize("name", ["GLA", "Mamba", "Mamba-2", "DeltaNet", "Gated-DeltaNet"])
def test_signed_gates(name: str) -> None:
    """With `signed`, a gate reaches −1: two symbols that it turns bring the state back."""
    cell = zoo.get_cell(name, states=2, signed=True)
    torch.manual_seed(0)
    rnn = RationalRNN(cell, 4, 4, heads=2 if name in HEADS else 1, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value, std=0.5)
    x, found = torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True), []
    for backend in ("reference", "native"):
        with rrnn.use_backend(backend):
            out, state = rnn(x)
            found.append([out, *gradients(rnn, x, out, state[0].states[0])])
    assert all(close(a, b) for a, b in zip(*found, strict=True))
    assert close(found[0][0], without_families(rnn)(x)[0])
    assert not close(found[0][0], _unsigned_like(rnn, zoo.get_cell(name, states=2))(x)[0])
    assert Cell.from_text(cell.to_text()) == cell


def _unsigned_like(rnn: RationalRNN, cell: Cell) -> RationalRNN:
    plain = RationalRNN(cell, rnn.input_size, rnn.hidden_size, heads=rnn.heads, dtype=torch.float64)
    plain.load_state_dict(rnn.state_dict())
    return plain


def test_every_state_of_a_family_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Mamba: 6 states (5 stored)" in str(build("Mamba"))
    assert main(["zoo", "--json"]) == 0
    rows = {row["name"]: row["states"] for row in json.loads(capsys.readouterr().out)["models"]}
    assert rows["Mamba"] == 17 and rows["B"] == 2
