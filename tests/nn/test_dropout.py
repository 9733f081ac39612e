"""The dropout kernel, interpreted: against its definition in numpy, against torch, and by counting what it drops."""

from __future__ import annotations

import pytest
import torch
from cell_calls import cell
from dropout_twin import defined_mask
from kernel_cases import needs_interpreter
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from triton_compiler import Compile

from rrnn.backends import use_backend
from rrnn.nn import RationalRNN, dropout
from rrnn.nn.dropout import Drops
from rrnn.tasks.lm.model import Dropouts, LanguageModel, TorchRNN

pytestmark = [pytest.mark.slow, needs_interpreter]


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for each; numbers do not depend on it."""
    monkeypatch.setattr(dropout, "BLOCK", 4096)


def dropped(x: Tensor, each: float = 0.0, shared: float = 0.0, seed: int = 0, times: int = 1) -> Tensor:
    """The last of several masks of a pass."""
    drops = Drops(torch.Generator().manual_seed(seed))
    with use_backend("triton"):
        return [drops(x, each, shared) for _ in range(times)][-1]


# ---- what it computes ------------------------------------------------------------------------------------------------


def defined(shape: tuple[int, int, int], each: float, shared: float, seed: int, number: int) -> Tensor:
    key = torch.empty(1, dtype=torch.int64).random_(generator=torch.Generator().manual_seed(seed))
    return defined_mask(shape, each, shared, int(key), number)


@pytest.mark.parametrize(("each", "shared"), [(0.3, 0.0), (0.0, 0.6), (0.7, 0.2)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 2, 8), (7, 3, 13), (9, 1, 300)])
def test_masks_are_as_defined(shape: tuple[int, int, int], each: float, shared: float) -> None:
    for number in (1, 2):
        mask = dropped(torch.ones(shape), each, shared, seed=5, times=number)
        torch.testing.assert_close(mask, defined(shape, each, shared, 5, number))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_equals_torchs_product_with_the_mask(dtype: torch.dtype) -> None:
    x = torch.randn(7, 3, 50).to(dtype).requires_grad_()
    mask = dropped(torch.ones(7, 3, 50), 0.4, 0.3)
    out, expected = dropped(x, 0.4, 0.3), (x.float() * mask).to(dtype)
    torch.testing.assert_close(out, expected)
    assert out.dtype == dtype
    weights = torch.randn(7, 3, 50).to(dtype)
    with use_backend("triton"):
        (found,) = torch.autograd.grad(out, x, weights)
    torch.testing.assert_close(found, (weights.float() * mask).to(dtype))


LAYOUTS = {
    "batch first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "units first": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "a part": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "a later part": lambda x: torch.cat([x, x], 0)[x.shape[0] :],
    "sequences apart": lambda x: torch.stack([x, x], 2)[:, :, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(layout: str) -> None:
    x = torch.randn(6, 3, 17)
    given = LAYOUTS[layout](x)
    assert torch.equal(given, x)
    assert torch.equal(dropped(given, 0.4, 0.3), dropped(x, 0.4, 0.3))


def test_gradients_of_any_strides() -> None:
    x = torch.randn(6, 3, 17, requires_grad=True)
    dropped(x, 0.4, 0.3).sum().backward()  # one number, expanded
    assert x.grad is not None and torch.equal(x.grad, dropped(torch.ones(6, 3, 17), 0.4, 0.3))


@pytest.mark.slow
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(6, 3, 17)
    whole, apart = dropped(x, 0.4, 0.3), dropped(LAYOUTS["sequences apart"](x), 0.4, 0.3)
    monkeypatch.setattr(dropout, "BLOCK", 16)
    for programs in (dropout.GRID, 2):  # of the grid's second axis: more blocks go on along the third
        monkeypatch.setattr(dropout, "GRID", programs)
        assert torch.equal(dropped(x, 0.4, 0.3), whole)
        assert torch.equal(dropped(LAYOUTS["sequences apart"](x), 0.4, 0.3), apart)


def test_rows_without_a_batch() -> None:
    x = torch.randn(6, 17)
    assert torch.equal(dropped(x, 0.4, 0.3), dropped(x.unsqueeze(1), 0.4, 0.3).squeeze(1))


@pytest.mark.parametrize("shape", [(40,), (6, 3, 4, 5)], ids=str)
def test_other_dimensions_are_torchs(shape: tuple[int, ...]) -> None:
    with use_backend("triton"):
        mask = Drops(torch.Generator().manual_seed(1))(torch.ones(shape), 0.5)
    assert torch.equal(mask, Drops(torch.Generator().manual_seed(1))(torch.ones(shape), 0.5))
    assert set(mask.unique().tolist()) == {0.0, 2.0}


def test_second_derivatives() -> None:
    x = torch.randn(4, 2, 9, requires_grad=True)
    mask = dropped(torch.ones(4, 2, 9), 0.4, 0.3)
    for out in (dropped(x, 0.4, 0.3), x * mask):
        (first,) = torch.autograd.grad((out**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, 6 * x.detach() * mask**3)


def test_nothing_and_everything() -> None:
    x, state = torch.randn(4, 2, 9), torch.get_rng_state()
    with use_backend("triton"):
        assert Drops()(x) is x
    assert torch.equal(torch.get_rng_state(), state)
    for each, shared in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        assert not dropped(x, each, shared).any()
    assert dropped(x[:0], 0.5).shape == (0, 2, 9)
    assert dropped(x[..., :0], 0.5, 0.5).shape == (4, 2, 0)


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from rrnn.nn.dropout import BLOCK
from rrnn.nn.dropout_kernel import dropped

usual = dict.fromkeys(dropped.arg_names, "i32") | {"seed": "*i64", "scale": "fp32"}
odd = [{}, {"batch": 1}, {"steps": 1, "units": 1, "x_row": 1}, {"units": "i64", "x_step": "i64", "batch": 1}]
for dtype, each, shared, more in [("bf16", True, True, more) for more in odd] + [
    ("fp16", True, False, {}), ("fp32", False, True, {})
]:
    known = {"EACH": each, "SHARED": shared, "BLOCK": BLOCK} | {k: v for k, v in more.items() if v == 1}
    signature = usual | {"x": "*" + dtype, "out": "*" + dtype} | more | dict.fromkeys(known, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(dropped.arg_names) if n in ("x", "out", "x_step")}
    source = ASTSource(dropped, signature, known, aligned)
    options = {"num_warps": BLOCK // 32, "enable_fp_fusion": True}
    print("bar.sync" in compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])
"""


@pytest.mark.slow
def test_compiles_for_a_gpu_without_threads_waiting(compiled_elsewhere: Compile) -> None:
    """The interpreter forgives what the compiler does not. A barrier would mean that random numbers change threads."""
    done = compiled_elsewhere(COMPILED)
    assert done.stdout.split() == ["False"] * 6, done.stdout + done.stderr[-2000:]


# ---- what it drops ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.9])
def test_rate_and_scale(p: float) -> None:
    size = (64, 32, 100)
    each, shared = dropped(torch.ones(size), p), dropped(torch.ones(size), 0.0, p)
    assert torch.equal(shared, shared[:1].expand(size))
    for mask in (each, shared[0]):
        sigma = (p * (1 - p) / mask.numel()) ** 0.5
        assert abs(float((mask == 0).double().mean()) - p) < 4 * sigma
        torch.testing.assert_close(mask.unique(), torch.tensor([0.0, 1 / (1 - p)]))
    both = dropped(torch.ones(size), p, 0.25)
    torch.testing.assert_close(both, each * dropped(torch.ones(size), 0.0, 0.25))


@pytest.mark.slow
def test_masks_are_independent() -> None:
    """Between steps, sequences, units, masks of a pass, and seeds."""
    ones = torch.ones(64, 32, 100)
    mask = dropped(ones, 0.5)
    pairs = {f"steps {k} apart": (mask[k:], mask[:-k]) for k in (1, 2, 3, 4, 5, 8, 16)}
    pairs |= {f"units {k} apart": (mask[..., k:], mask[..., :-k]) for k in (1, 2, 4, 32, 64)}
    pairs |= {f"sequences {k} apart": (mask[:, k:], mask[:, :-k]) for k in (1, 2, 16)}
    pairs["passes"] = (mask, dropped(ones, 0.5, seed=1))
    pairs["masks of a pass"] = (mask, dropped(ones, 0.5, times=2))
    pairs["both masks"] = (mask, dropped(ones, 0.0, 0.5))
    for name, (a, b) in pairs.items():
        correlation = ((a - 1) * (b - 1)).mean()
        # the shared mask has as many independent numbers as one step
        count = a[0].numel() if name == "both masks" else a.numel()
        assert abs(float(correlation)) < 4 / count**0.5, name


def test_a_seed_brings_the_masks_again() -> None:
    x = torch.ones(4, 2, 50)

    def masks() -> list[Tensor]:
        with use_backend("triton"):
            drops = Drops()
            return [drops(x, 0.5), drops(x, 0.5), drops(x, 0.0, 0.5)]

    torch.manual_seed(3)
    first = masks()
    assert not torch.equal(first[0], first[1])
    assert not any(torch.equal(a, b) for a, b in zip(first, masks(), strict=True))
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(first, masks(), strict=True))


@pytest.mark.parametrize("backend", ["triton", "auto"])
def test_a_generator_of_ones_own(backend: str) -> None:
    x, state = torch.ones(4, 2, 50), torch.get_rng_state()
    with use_backend(backend):
        masks = [Drops(torch.Generator().manual_seed(seed))(x, 0.5, 0.2) for seed in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_a_generator_draws_as_torchs_dropout_does(p: float) -> None:
    x = torch.randn(4, 2, 50)
    torch.manual_seed(1)
    expected = nn.functional.dropout(x, p)
    assert torch.equal(Drops(torch.Generator().manual_seed(1))(x, p), expected)


# ---- in layers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, float]]:
    """(the seed, each, shared) of every launch."""
    seen: list[tuple[int, float, float]] = []
    real = dropout._launch

    def spy(x: Tensor, seed: Tensor, number: int, each: float, shared: float) -> Tensor:
        seen.append((int(seed), each, shared))
        return real(x, seed, number, each, shared)

    monkeypatch.setattr(dropout, "_launch", spy)
    return seen


def rnn_of(name: str, **options: float) -> nn.Module:
    if name == "lstm":
        return TorchRNN("lstm", 6, 6, 2, **options)  # pyright: ignore[reportArgumentType]
    return RationalRNN(cell(name), 6, 6, 2, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["B", "lstm"])
def test_one_launch_a_layer_and_direction_of_time(name: str, launches: list) -> None:
    rnn = rnn_of(name, input_dropout=0.1, dropout=0.2, recurrent_dropout=0.3)
    x = torch.randn(5, 2, 6, requires_grad=True)
    with use_backend("triton"):
        rnn(x)[0].sum().backward()
        rates = [how for _, *how in launches]
        assert rates == [[0.1, 0.3], [0.2, 0.3], [0.2, 0.3], [0.1, 0.3]]
        assert len({seed for seed, *_ in launches}) == 1  # one for all
        launches.clear()
        rnn.eval()
        rnn(x)
    assert not launches


@pytest.mark.slow
@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("name", ["B", "lstm"])
def test_launches_of_a_language_model(name: str, locked: bool, launches: list) -> None:
    model = LanguageModel(30, 6, 2, cell=name, dropouts=Dropouts(0.1, 0.2, 0.3, 0.4, locked=locked))
    ids = torch.randint(30, (5, 2))
    with use_backend("triton"):
        model(ids)
    first = [[0.0, 0.1], [0.0, 0.4]] if locked else [[0.1, 0.4]]
    last = [0.0, 0.2] if locked else [0.2, 0.0]
    assert [how for _, *how in launches] == [*first, [0.3, 0.4], last]


@pytest.mark.parametrize("options", [{"skip": "residual"}, {"bidirectional": True}], ids=str)
def test_apart_where_more_than_projections_read_the_input(options: dict, launches: list) -> None:
    rnn = RationalRNN(cell("B"), 6, 6, input_dropout=0.1, recurrent_dropout=0.3, **options)
    with use_backend("triton"):
        rnn(torch.randn(5, 2, 6))
    assert [how for _, *how in launches] == [[0.1, 0.0]] + [[0.0, 0.3]] * rnn.num_directions


def test_a_cell_that_reads_its_input_sees_no_mask_of_the_projections() -> None:
    """SRU's carry: with nothing projected, c stays 0, and the output is half of x."""
    rnn, x = RationalRNN(cell("SRU"), 6, 6, recurrent_dropout=1.0), torch.randn(5, 2, 6)
    for backend in ("triton", "reference"):
        with use_backend(backend):
            torch.testing.assert_close(rnn(x)[0], x / 2)


def test_a_skip_connection_sees_no_mask_of_the_projections() -> None:
    rnn = RationalRNN(cell("B"), 6, 6, recurrent_dropout=1.0, skip="residual")
    zero = RationalRNN(cell("B"), 6, 6)
    zero.load_state_dict(rnn.state_dict())
    x = torch.randn(5, 2, 6)
    for backend in ("triton", "reference"):
        with use_backend(backend):
            torch.testing.assert_close(rnn(x)[0], zero(0 * x)[0] + x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["B", "lstm"])
def test_recomputed_with_the_same_masks(name: str) -> None:
    """Activation checkpoints run the layers again, with the generator as it was."""
    torch.manual_seed(0)
    rnn = rnn_of(name, input_dropout=0.3, dropout=0.3, recurrent_dropout=0.3)
    x, found = torch.randn(2, 2, 6, requires_grad=True), []
    with use_backend("triton"):
        for run in (rnn, lambda x: checkpoint(rnn, x, use_reentrant=False)):
            torch.manual_seed(1)
            found.append(torch.autograd.grad(run(x)[0].square().sum(), x)[0])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.slow
def test_compiles_in_training() -> None:
    rnn = rnn_of("B", input_dropout=0.2, dropout=0.3, recurrent_dropout=0.4)
    x = torch.randn(5, 2, 6, requires_grad=True)
    with use_backend("triton"):
        compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
        outs = [compiled(x)[0] for _ in range(2)]
        outs[0].sum().backward()
    assert not torch.equal(*outs) and x.grad is not None and x.grad.any()


def test_under_torch_func() -> None:
    rnn = rnn_of("B", input_dropout=0.2, recurrent_dropout=0.4)
    x = torch.randn(3, 5, 2, 6)
    out = torch.func.vmap(lambda x: rnn(x)[0], randomness="different")(x)
    assert out.shape == (3, 5, 2, 6)
