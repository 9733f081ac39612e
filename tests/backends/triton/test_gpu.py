"""What only a GPU can show: determinism, 64-bit offsets, strides read in place, CUDA graphs, torch.compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cell_calls import cell
from kernel_cases import Case, Schedule, arguments, compare, expected, program_of, run, schedule_options
from torch import Tensor, nn

from rrnn import RationalRNN
from rrnn.backends import get_backend, resolve
from rrnn.backends.interface import CellCall, Gradients
from rrnn.ops import initial_state, rational

pytestmark = pytest.mark.gpu

SERIAL, CHUNKED = Schedule(8, 0, 8), Schedule(8, 64, 8)
STAGED, CHAINED = Schedule(8, 0, 8, 3), Schedule(8, 16, 8, 0, True)
EVERY = pytest.mark.parametrize(
    "schedule", [SERIAL, CHUNKED, STAGED, CHAINED], ids=["serial", "chunked", "staged", "chained"]
)


def gpu_case(
    name: str, dtype: str, shape: tuple[int, int, int], schedule: Schedule, mask: str = "whole"
) -> Case:
    return Case(name, dtype, shape, mask, schedule, "given", "dense", "cuda", 64)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


# ---- the rule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(35, 8, 200), (300, 2, 129), (700, 1, 65)], ids=str)
@pytest.mark.parametrize("name", ["unfused", "B", "F+o", "B-max-plus", "SRU"])
def test_whatever_schedule_the_rule_picks(name: str, shape: tuple[int, int, int], dtype: str) -> None:
    """Through `rational` and autograd, as layers call it: no schedule given."""
    a = arguments(gpu_case(name, dtype, shape, SERIAL))
    assert resolve("auto", torch.device("cuda"), a.x.dtype, [a.program]).name == "triton"
    theirs = expected(a)
    here = a.to("cuda")
    leaves = {"dx": here.x, "dstate": here.state} | ({} if here.inp is None else {"dinput": here.inp})
    for t in (*leaves.values(), here.params):
        t.requires_grad_()
    out, (final,) = rational(
        here.x.flatten(2), [here.params], [here.state], [a.program], inp=here.inp, mask=here.mask
    )
    grads = torch.autograd.grad([out, final], list(leaves.values()), [here.grad_out, here.grad_state])
    ours = {"output": out, "final state": final, **dict(zip(leaves, grads, strict=True))}
    compare(ours, {name: theirs[name] for name in ours}, looser=2.0)


# ---- determinism ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("deterministic")
@EVERY
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["B", "F+o"])
def test_two_runs_are_bit_identical(name: str, dtype: str, schedule: Schedule) -> None:
    case = gpu_case(name, dtype, (500, 3, 300), schedule, "padded")
    a = arguments(case).to("cuda")
    first, second = (
        run(get_backend("triton"), a, schedule.every, **schedule_options(case)) for _ in range(2)
    )
    for what, t in first.items():
        assert torch.equal(t, second[what]), what


# ---- addresses -----------------------------------------------------------------------------------------------------


@EVERY
def test_more_than_two_to_the_31_elements(schedule: Schedule) -> None:
    """Outputs beyond 2³¹ elements, pre-activations beyond 2³²: the last sequences equal the same ones run alone."""
    steps, batch, units, tail = 4200, 512, 1024, 2
    assert steps * batch * units > 2**31
    if torch.cuda.mem_get_info()[0] < 50 * 2**30:
        pytest.skip("needs 50 GiB of GPU memory")
    program, backend = program_of("unfused"), get_backend("triton")
    options = {"schedule": schedule.plan(64)}
    g = torch.Generator("cuda").manual_seed(0)
    x = torch.empty(steps, batch, 2, units, dtype=torch.bfloat16, device="cuda")
    for part in x.split(300):
        part.copy_(torch.rand(part.shape, generator=g, device="cuda"))
    grad = x[:, :, 0]  # numbers are numbers
    params = x.new_empty(0, units, dtype=torch.float32)
    state = torch.rand(1, batch, units, generator=g, device="cuda")

    def both(x: Tensor, state: Tensor, grad: Tensor) -> dict[str, Tensor]:
        out, grad_x = torch.empty_like(grad, memory_format=torch.contiguous_format), torch.empty_like(x)
        call = CellCall(program, x, params, every=schedule.every)
        final, saved = backend.forward(call, state, out, **options)
        assert saved is not None
        _, first = backend.backward(call, saved, Gradients(grad, state, grad_x), **options)
        return {"output": out, "final state": final, "dx": grad_x, "dstate": first}

    whole = both(x, state, grad)
    alone = both(x[:, -tail:].contiguous(), state[:, -tail:].contiguous(), grad[:, -tail:].contiguous())
    for what, t in alone.items():
        assert torch.equal(whole[what][:, -tail:], t), what
        assert t.isfinite().all(), what


def test_strided_inputs_are_read_in_place() -> None:
    """Batch first, and a slice of wider rows: the same bits, and no room for a copy."""
    program, backend = program_of("F+o"), get_backend("triton")
    steps, batch, units = 400, 16, 512
    k = len(program.projections)
    wide = torch.randn(batch, steps, k, 2 * units, device="cuda")
    x = wide[..., units:].transpose(0, 1)
    params = torch.randn(len(program.parameters), units, device="cuda")
    state = initial_state(program, params, batch)
    out = torch.empty(batch, steps, 3 * units, device="cuda")[..., :units].transpose(0, 1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    final, _ = backend.forward(CellCall(program, x, params), state, out)
    assert torch.cuda.max_memory_allocated() - before < x.numel() * 4 // 2
    dense = torch.empty(steps, batch, units, device="cuda")
    final_dense, _ = backend.forward(CellCall(program, x.contiguous(), params), state, dense)
    assert torch.equal(out, dense) and torch.equal(final, final_dense)


# ---- layers --------------------------------------------------------------------------------------------------------


def make_layer(name: str, dtype: torch.dtype, layers: int = 2) -> tuple[RationalRNN, Tensor]:
    torch.manual_seed(0)
    layer = RationalRNN(cell(name), 64, 96, num_layers=layers, device="cuda", dtype=dtype)
    return layer, torch.randn(50, 4, 64, device="cuda", dtype=dtype)


def gradients(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Output, and the gradient of every parameter."""
    module.zero_grad(set_to_none=True)
    out, _ = module(x)
    out.float().square().sum().backward()
    return [out.detach().clone(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", ["B", "F+o", "B-max-plus"])
def test_no_host_synchronisation(name: str) -> None:
    layer, x = make_layer(name, torch.bfloat16)
    expected = gradients(layer, x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        again = gradients(layer, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for ours, theirs in zip(again, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["B", "F+o"])
def test_a_cuda_graph_replays_forward_and_backward(name: str) -> None:
    layer, x = make_layer(name, torch.bfloat16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            gradients(layer, x)
    torch.cuda.current_stream().wait_stream(side)
    layer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = layer(x)
        out.float().square().sum().backward()
    kept = [p.grad for p in layer.parameters()]
    for seed in (1, 2):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        graph.replay()
        replayed = [out.clone(), *(g.clone() for g in kept if g is not None)]
        for ours, theirs in zip(replayed, gradients(layer, x), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["B", "F+o", "B-max-plus"])
def test_compiled_in_one_graph(name: str) -> None:
    layer, x = make_layer(name, torch.float32, layers=1)
    eager = gradients(layer, x)
    compiled = torch.compile(layer, fullgraph=True)
    for ours, theirs in zip(gradients(compiled, x), eager, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
