"""Blocks against their papers' equations, and what all blocks share: streaming, padding, layouts, copies, errors."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from layer_cases import inputs, randomised
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves
from wide_equations import TWINS, Weights

import rrnn
from rrnn import zoo
from rrnn.automata import Cell, linear, one, tanh
from rrnn.errors import CellError, RRNNError, ShapeError
from rrnn.nn import Block, BlockStack, BlockState, LayerState
from rrnn.nn.sequences import transform
from rrnn.zoo import BLOCKS

STATES = 3
MODELS = [*BLOCKS, "F"]


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    """Run the reference backend: blocks do not depend on who runs the cells."""
    with rrnn.use_backend("reference"):
        yield


def build(name: str, size: int = 8, **options: Any) -> Block:
    named = name if name in ("LRU", "F") else f"{name}:states={STATES}"
    extra = {"Mamba-2": {"heads": 4, "groups": 2}, "HGRN2": {"heads": 2}, "DeltaNet": {"heads": 2}}.get(
        name, {}
    )
    block = Block(named, size, dtype=torch.float64, **{**extra, **options})
    fixed = {n: p.clone() for n, p in block.named_parameters() if not p.requires_grad}
    randomised(block)
    block.load_state_dict(fixed, strict=False)
    return block


# ---- equations -------------------------------------------------------------------------------------------------------


class Read(Weights):
    """The weights of a block's layer, on what the layer reads."""

    def __init__(self, block: Block, x: Tensor) -> None:
        self.block: Any = block
        super().__init__(
            SimpleNamespace(  # type: ignore[arg-type]
                layers=[block.layer], hidden_size=block.hidden_size, heads=block.heads, groups=block.groups
            ),
            x,
        )

    def cells(self, name: str) -> Tensor:
        return TWINS[name](self, STATES)[0]


class Queries(Read):
    """Those of HGRN2, whose queries go through a SiLU."""

    def projection(self, name: str, states: int | None = None, per: str = "unit") -> Tensor:
        value = super().projection(name, states, per)
        return F.silu(value) if name == "q" else value


def rms(x: Tensor, weight: Tensor, parts: int = 1) -> Tensor:
    x = x.unflatten(-1, (parts, -1))
    return (x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(-2) * weight


def layer_norm(x: Tensor, norm: Any, parts: int = 1) -> Tensor:
    x = x.unflatten(-1, (parts, -1))
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    return x.flatten(-2) * norm.weight + norm.bias


class Shaped(Read):
    """Those of DeltaNet: keys, queries and values are convolved, and keys and queries have length one in each head."""

    def projection(self, name: str, states: int | None = None, per: str = "unit") -> Tensor:
        if name not in "kqv":
            return super().projection(name, states, per)
        block, sizes = self.block, {r.name: r.stop - r.start for r in self.block.layer.rows}
        names = [n for n in sizes if n in "kqv"]  # in the order of the layer's rows
        start = sum(sizes[n] for n in names[: names.index(name)])
        own = SimpleNamespace(weight=block.conv.weight[:, start : start + sizes[name]], bias=0.0)
        value = convolution(self.x @ block.layer.projection(0, name).weight().T, own)
        if name != "v":
            value = value.unflatten(-1, (block.heads, -1))
            value = (value / (value.square().sum(-1, keepdim=True) + 1e-6).sqrt()).flatten(-2)
        return self._per_unit(value, states, per)


def convolution(x: Tensor, conv: Any) -> Tensor:
    out = torch.zeros_like(x) + conv.bias
    for t in range(x.shape[0]):
        for k in range(min(4, t + 1)):
            out[t] = out[t] + conv.weight[k] * x[t - k]
    return F.silu(out)


def swiglu(x: Tensor, block: Block) -> Tensor:
    u = rms(x, block.mlp_norm.weight) if block.options.norm == "rms" else layer_norm(x, block.mlp_norm)  # type: ignore[union-attr]
    gate, up = (u @ block.mlp.up.weight.T).chunk(2, -1)  # type: ignore[union-attr]
    return x + (F.silu(gate) * up) @ block.mlp.down.weight.T  # type: ignore[union-attr]


def published(name: str, b: Any, x: Tensor) -> Tensor:
    """Return the output of a model's block, written down from its paper."""
    u = rms(x, b.norm.weight) if b.options.norm == "rms" else layer_norm(x, b.norm)
    if name == "Mamba":
        v, z = (u @ b.in_proj.weight.T).chunk(2, -1)
        y = Read(b, convolution(v, b.conv)).cells(name)
        return x + (y * F.silu(z)) @ b.out_proj.weight.T
    if name == "S4D":
        return x + F.glu(F.gelu(Read(b, u).cells(name)) @ b.out_proj.weight.T + b.out_proj.bias)
    if name == "LRU":
        re, im = Read(b, u).cells(name).chunk(2, -1)
        c_re, c_im = b.mix.weight.chunk(2, -1)
        y = re @ c_re.T + im @ c_im.T + b.through * u
        return x + F.glu(F.gelu(y) @ b.out_proj.weight.T)
    if name == "HGRN2":
        y = rms(Queries(b, u).cells(name), b.output_norm.weight)
        return swiglu(x + y @ b.out_proj.weight.T, b)
    if name in ("DeltaNet", "Gated-DeltaNet"):
        y = rms(Shaped(b, u).cells(name), b.output_norm.weight, b.heads)
        y = y * F.silu(u @ b.in_proj.weight.T) if name == "Gated-DeltaNet" else y
        return swiglu(x + y @ b.out_proj.weight.T, b)
    y = Read(b, u).cells(name)
    if name == "linear-attention":
        return swiglu(x + layer_norm(y, b.output_norm, b.heads) @ b.out_proj.weight.T, b)
    y = rms(y, b.output_norm.weight, b.heads) * F.silu(u @ b.in_proj.weight.T)
    return swiglu(x + y @ b.out_proj.weight.T, b)


# tests/zoo/test_convert.py compares Mamba-2 and Mamba with transformers.
@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "Mamba-2"])
def test_published_blocks(name: str) -> None:
    block, x = build(name), inputs(6, 2, 8).requires_grad_()
    out, expected = block(x)[0], published(name, block, x)
    torch.testing.assert_close(out, expected)
    weights = [x, *(p for p in block.parameters() if p.requires_grad and p.numel())]
    found, wanted = (
        torch.autograd.grad((y * inputs(*y.shape, seed=1)).sum(), weights) for y in (out, expected)
    )
    torch.testing.assert_close(found, wanted)


def test_the_plainest_block() -> None:
    block, x = build("F"), inputs(5, 2, 8)
    y, _ = block.layer(rms(x, block.norm.weight))  # type: ignore[union-attr]
    torch.testing.assert_close(block(x)[0], x + y @ block.out_proj.weight.T)


def test_settings_belong_to_names() -> None:
    assert Block("gla", 8).options.gate and not Block(zoo.get_cell("GLA"), 8).options.gate
    block = Block("Mamba", 40, expand=1.5)
    assert block.hidden_size == 60 and block.layer.low_rank_rows[0].rank == 3
    assert [Block("Mamba-2", size).heads for size in (8, 64, 80, 100)] == [1, 2, 2, 2]
    assert Block("GLA", 6).heads == 3 and Block("GLA", 8, heads=2).heads == 2


def test_normalised_keys() -> None:
    """Keys of length one in each head: scaling the matrix of keys changes nothing."""
    block, x = build("GLA", normalised=("k",)), inputs(5, 2, 8)
    before = block(x)[0]
    assert not torch.allclose(before, build("GLA")(x)[0])
    with torch.no_grad():
        block.layer.projection(0, "k").weight().mul_(7.0)
    torch.testing.assert_close(
        block(x)[0], before, atol=1e-4, rtol=0
    )  # 10⁻⁶ is added to the square of a length


def test_short_convolution_of_any_projection() -> None:
    """With the weights 1, 0, 0 and no bias, the convolution is its SiLU."""
    names = ("v", "k")
    conv = build("GLA", conv=3, convolved=names, conv_bias=False)
    plain = build("GLA", silu=names)
    with torch.no_grad():
        conv.conv.weight.zero_()[0] = 1.0  # type: ignore[union-attr]
    plain.load_state_dict({k: v for k, v in conv.state_dict().items() if not k.startswith("conv.")})
    x = inputs(5, 2, 8)
    torch.testing.assert_close(conv(x)[0], plain(x)[0])


# ---- what all blocks share -------------------------------------------------------------------------------------------


def leaves(state: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(state) if leaf is not None]


MODULES = [pytest.param(lambda name=name: build(name), id=name) for name in MODELS] + [
    pytest.param(
        lambda: randomised(BlockStack("Mamba-2:states=2", 8, 2, heads=2, groups=2, dtype=torch.float64)),
        id="stack",
    )
]


@pytest.mark.parametrize("make", MODULES)
def test_streaming_equals_one_pass(make: Any) -> None:
    module, x = make(), inputs(7, 2, 8)
    whole, end = module(x)
    out, state = module(x[:2])
    outputs = [out]
    for t in range(2, 5):
        out, state = module.step(x[t], state)
        outputs.append(out.unsqueeze(0))
    out, state = module(x[5:], state)
    torch.testing.assert_close(torch.cat([*outputs, out]), whole)
    torch.testing.assert_close(leaves(state), leaves(end))
    torch.testing.assert_close(module(x, module.init_state(2))[0], whole)


@pytest.mark.parametrize("make", MODULES)
def test_padding_changes_nothing(make: Any) -> None:
    """At the end, in the middle and everywhere: valid steps alone decide, and NaN in padding reaches no gradient."""
    module = make()
    mask = (
        torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]])
        .bool()
        .T
    )
    x = torch.where(mask.unsqueeze(-1), inputs(6, 4, 8), torch.nan)
    state = transform(lambda t: t + 0.1, module.init_state(4))
    out, end = module(x, state, mask=mask)
    loss = out.square().sum()
    gradients = torch.autograd.grad(loss, [p for p in module.parameters() if p.requires_grad and p.numel()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not out[~mask].any()
    for b in range(4):
        first = transform(lambda t, b=b: t[..., b : b + 1, :], state)
        alone, last = module(x[mask[:, b], b].unsqueeze(1), first)
        torch.testing.assert_close(out[mask[:, b], b], alone.squeeze(1))
        torch.testing.assert_close(leaves(transform(lambda t, b=b: t[..., b : b + 1, :], end)), leaves(last))
    ends, (again, last) = [6, 3], module(x[:, :2], lengths=[6, 3])
    torch.testing.assert_close(again, module(x[:, :2], mask=mask[:, :2])[0])
    packed, final = module(pack_padded_sequence(x[:, :2].flip(1), ends[::-1], enforce_sorted=False))
    torch.testing.assert_close(pad_packed_sequence(packed)[0].flip(1), again)
    torch.testing.assert_close(leaves(transform(lambda t: t.flip(-2), final)), leaves(last))


@pytest.mark.parametrize("make", MODULES)
def test_copies_and_checkpoints(make: Any) -> None:
    module, x = make(), inputs(4, 2, 8)
    expected = module(x)[0]
    torch.testing.assert_close(copy.deepcopy(module)(x)[0], expected)
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    module.reset_parameters()
    assert not torch.allclose(module(x)[0], expected)
    module.load_state_dict(kept)
    torch.testing.assert_close(module(x)[0], expected)
    module(x)[0].square().sum().backward()
    assert all(p.grad is not None for p in module.parameters() if p.requires_grad and p.numel())


def test_layouts() -> None:
    block, x = build("Mamba"), inputs(5, 2, 8)
    out, state = block(x)
    first = build("Mamba", batch_first=True)
    torch.testing.assert_close(first(x.transpose(0, 1))[0], out.transpose(0, 1))
    alone, end = block(x[:, 0], block.init_state())
    torch.testing.assert_close(alone, out[:, 0])
    assert isinstance(end, BlockState) and isinstance(end.layer, LayerState)
    torch.testing.assert_close(leaves(end), [t[..., 0, :] for t in leaves(state)])
    torch.testing.assert_close(block.step(x[0, 0])[0], out[0, 0])
    assert block(x[:0])[0].shape == (0, 2, 8) and block(x[:, :0])[0].shape == (5, 0, 8)


def test_names_in_checkpoints() -> None:
    """These names are in users' files: they must not change."""
    assert set(Block("Mamba-2", 8, bias=True, mlp=1.0).state_dict()) == {
        *("norm.weight", "in_proj.weight", "in_proj.bias", "projection_bias", "conv.weight", "conv.bias"),
        *("layer.weight", "layer.cells.0.bias.delta", "layer.cells.0.parameter.A_log"),
        *("layer.cells.0.parameter.D", "output_norm.weight", "out_proj.weight", "out_proj.bias"),
        *("mlp_norm.weight", "mlp.up.weight", "mlp.down.weight"),
    }
    assert {"layer.cells.0.low_rank.delta"} <= set(Block("Mamba", 8).state_dict())
    assert {"mix.weight", "through", "norm.bias"} <= set(Block("LRU", 8).state_dict())
    assert {"blocks.1.norm.weight", "norm.weight"} <= set(BlockStack("Mamba", 8, 2).state_dict())


def test_lru_starts_with_random_skips() -> None:
    """The authors draw D from a normal distribution, as S4D's."""
    torch.manual_seed(0)
    through = Block("LRU", 256).through
    assert through is not None and abs(through.mean()) < 0.2 and abs(through.std() - 1) < 0.2


def test_dropout() -> None:
    block, x = build("GLA", dropout=0.5), inputs(5, 2, 8)
    assert not torch.allclose(block(x)[0], block(x)[0])
    torch.testing.assert_close(block.eval()(x)[0], build("GLA")(x)[0])
    shared = build("GLA", recurrent_dropout=0.99999999)
    torch.testing.assert_close(shared(x)[0], build("GLA")(torch.zeros_like(x))[0] * 0 + swiglu(x, shared))


def test_low_precision() -> None:
    """Under autocast products are in bfloat16; blocks of bfloat16 compute norms and states in float32."""
    block, x = build("Mamba-2").float(), inputs(5, 2, 8, dtype=torch.float32)
    expected = block(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        out, state = block(x)
        torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.3)
        assert block.step(x[0], state)[0].isfinite().all()
    half, low = block.bfloat16(), x.bfloat16()
    out, state = half(low)
    assert out.dtype == torch.bfloat16 and state.layer.states[0].dtype == torch.float32
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.3)


def test_a_stack_is_blocks_and_a_norm() -> None:
    torch.manual_seed(0)
    stack, x = BlockStack("GLA:states=3", 8, 3, dtype=torch.float64), inputs(5, 2, 8)
    out = x
    for block in stack.blocks:
        out = block(out)[0]
    torch.testing.assert_close(stack(x)[0], rms(out, torch.ones(8, dtype=torch.float64)))
    bound = 8**-0.5 * 6**-0.5
    assert 0.8 * bound < stack.blocks[0].out_proj.weight.abs().max() <= bound
    again = BlockStack.of(list(stack.blocks), stack.norm)
    torch.testing.assert_close(again(x)[0], stack(x)[0])
    assert not torch.equal(BlockStack("Mamba", 8, input_dropout=0.5)(x.float())[0], stack(x)[0].float())


@pytest.mark.slow
def test_torch_compile_and_export() -> None:
    block, x = build("Mamba-2"), inputs(5, 2, 8)
    expected, state = block(x)
    compiled: Any = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], expected)
    state = transform(lambda t: t.detach(), state)
    torch.testing.assert_close(compiled(x, state)[0], block(x, state)[0])
    program = torch.export.export(block, (x,))
    torch.testing.assert_close(program.module()(x)[0], expected)


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Block("Mamba", 8, gat=True), "a block has no option 'gat'. Did you mean 'gate'?"),
        (lambda: Block("Mamba", 8, norm="batch"), "norm is one of None, 'rms', 'layer'; got 'batch'"),
        (lambda: Block("Mamba", 8, expand=-1), "expand must be a finite number that is not below 0; got -1"),
        (lambda: Block("Mamba", 8, mlp=math.inf), "mlp must be a finite number that is not below 0; got inf"),
        (lambda: Block("Mamba", 8, conv=2.5), "conv must be a whole number that is not below 0; got 2.5"),
        (lambda: Block("HGRN2", 8, head_size=0), "head_size must be a whole number above 0; got 0"),
        (lambda: Block("GLA", 8, most_heads="4"), "most_heads must be a whole number above 0; got '4'"),
        (
            lambda: Block("GLA", 8, silu="alpha"),
            "silu takes names of projections, as in (\"q\",); got 'alpha'",
        ),
        (lambda: Block("GLA", 8, gate="yes"), "gate is one of False, True; got 'yes'"),
        (lambda: Block("GLA", 8, low_rank="alpha"), "low_rank is a table of projections and ranks"),
        (
            lambda: Block("Mamba", 8, convolved=("B",)),
            "with inner=True the convolution sees the inner input only",
        ),
        (lambda: Block("GLA", 8, conv=4), "convolved names projections of GLA, which are"),
        (lambda: Block("GLA", 8, normalised=("v",)), "v of GLA is none. Leave it out"),
        (lambda: Block("F", 8, normalised=("f1",)), "f1 of F is none"),
        (lambda: Block("GLA", 8, heads=3), "3 heads do not divide the 8 units of GLA"),
        (lambda: Block("GLA", 8, low_rank={"beta": 2}), "low_rank names projections"),
        (lambda: Block("GLA", 8, low_rank={"alpha": 9}), "that of alpha is 256 × 8; got the rank 9"),
        (lambda: Block("Mamba", 0), "size must be a whole number above 0; got 0"),
        (lambda: BlockStack("Mamba", "8"), "size must be a whole number above 0; got '8'"),
        (lambda: Block("Mamba", 8, hidden_size=0), "hidden_size must be a whole number above 0; got 0"),
        (lambda: Block("Mambo", 8), "no cell is called 'Mambo'"),
        (lambda: Block("Mamba", 8, dropout=2.0), "dropout is a probability"),
        (lambda: Block("LSTM", 8), "LSTM is not a cell"),
        (lambda: BlockStack("Mamba", 8, 0), "num_layers must be a whole number above 0"),
        (lambda: BlockStack.of([]), "a stack has blocks of one size; got no blocks"),
        (lambda: Block("Mamba", 8)(inputs(5, 2, 7)), "expected input with 8 features, got 7"),
        (lambda: Block("Mamba", 8)(inputs(5, 2, 8)), "expected input of torch.float32"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(RRNNError, match=re.escape(message)):
        call()


def test_errors_of_states() -> None:
    block, x = build("Mamba"), inputs(5, 2, 8)
    state = block.init_state(2)
    for wrong, message in (
        (state.layer, "a block's state is a BlockState(layer, tail); got LayerState"),
        (BlockState(state.layer, None), "the tail of a block's state must be of shape (3, 2, 16)"),
        (BlockState(state.layer, state.tail[:2]), "expected the tail of shape (3, 2, 16)"),
        (block.init_state(3), "expected the tail of shape (3, 2, 16)"),
        (BlockState(LayerState(()), state.tail), "holds one tensor per cell"),
    ):
        with pytest.raises(ShapeError, match=re.escape(message)):
            block(x, wrong)
    stack = BlockStack("Mamba", 8, 2, dtype=torch.float64)
    with pytest.raises(ShapeError, match="a tuple of 2 BlockState, one for each block; got BlockState"):
        stack(x, state)
    with pytest.raises(ShapeError, match="the block has no convolution"):
        build("GLA")(x, BlockState(build("GLA").init_state(2).layer, state.tail))


def test_a_cell_with_a_window() -> None:
    cell = Cell("w").initial("q0").loop("q0", one).arc("q0", "q1", tanh(linear("u", window=2))).final("q1")
    block, x = randomised(Block(cell, 8, dtype=torch.float64)), inputs(5, 2, 8)
    out, state = block(x[:3])
    torch.testing.assert_close(torch.cat([out, block(x[3:], state)[0]]), block(x)[0])
    with pytest.raises(CellError, match="window of 2"):
        Block(cell, 8, low_rank={"u": 2})
