"""The matrix schedule on a GPU: every model and dtype against the reference in float64, and the same bits."""

from __future__ import annotations

import os

import pytest
import torch
from backends.matrix import recurrences
from backends.matrix.recurrences import LIMITS, MODELS, Recurrence, differences
from backends.matrix.test_kernels import Case, by_kernels, draw, exact, limit, ratio
from backends.matrix.test_matrix import make, rms, run

import rrnn
from rrnn.backends import resolve
from rrnn.backends.matrix.factors import Tiles
from rrnn.backends.matrix.plan import tiles_of
from rrnn.backends.triton.plan import H200, Gpu
from rrnn.ir import lower

pytestmark = pytest.mark.gpu

DECAYS = ("none", "head", "state")
PACKED = (0, 70, 70, 71, 199, 400)
SIZES = [(16, 16), (48, 80), (64, 64), (80, 48), (128, 128), (192, 256), (256, 192), (32, 32), (64, 32)]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def check_recurrence(call: Recurrence, dtype: torch.dtype, tolerance: float | None = None) -> None:
    """Compare outputs, states and all gradients with the reference in float64, which reads the same numbers. It runs on
    the CPU: processes that share a GPU wait for each other at each of its thousands of small kernels."""
    ours, wanted = call.run("matrix", dtype, "cuda"), call.run("reference", torch.float64)
    found = differences(ours, wanted)
    print(found)
    for name, (kind, difference) in found.items():
        assert difference < (tolerance or LIMITS[kind]), (name, difference)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*MODELS, "own"])
@pytest.mark.parametrize("states, units", [(64, 256), (20, 96), (128, 512)])
def test_equal_to_the_reference(name: str, dtype: torch.dtype, states: int, units: int) -> None:
    call = recurrences.draw(name, dtype, states, units)
    check_recurrence(call, dtype, 1e-5 if dtype == torch.float32 else None)


@pytest.mark.parametrize("name, dtype", list(zip([*MODELS, "own"], 2 * DTYPES, strict=True)))
def test_packed_sequences_equal_the_reference(name: str, dtype: torch.dtype) -> None:
    call = recurrences.draw(name, dtype, 32, 128, 400, offsets=PACKED)
    check_recurrence(call, dtype, 1e-5 if dtype == torch.float32 else None)


@pytest.mark.parametrize("name", [*MODELS, "own"])
def test_recurrences_with_tf32(name: str, tf32: None) -> None:
    check_recurrence(recurrences.draw(name, torch.float32, 64, 256), torch.float32, 2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_heads_that_are_cut_into_blocks(dtype: torch.dtype) -> None:
    call = recurrences.draw("HGRN2", dtype, 192, 512, 150, heads=2)
    check_recurrence(call, dtype, 1e-5 if dtype == torch.float32 else None)


def planned(case: Case, dtype: torch.dtype, gpu: Gpu = H200) -> Tiles:
    """Return the sizes that the plan chooses for a GPU."""
    decay, columns = DECAYS[case.decay], case.batch * case.heads
    return tiles_of(case.N, case.U, decay, dtype, gpu, case.steps, columns)[0]


EVERY = [(size, d, t, p) for size in SIZES for d in (0, 1, 2) for t in DTYPES for p in (False, True)]
MATRIX = EVERY if os.environ.get("RRNN_MATRIX") == "full" else EVERY[::5]  # every value meets every other one


def check(case: Case, tiles: Tiles, dtype: torch.dtype, tolerance: float | None = None) -> None:
    """Compare with torch's products in float64."""
    data = draw(case, dtype)
    ours = by_kernels(tiles, data.to(dtype, "cuda"))
    differences = {name: ratio(ours[name], value) for name, value in exact(data).items()}
    print(case, tiles, differences)
    for name, difference in differences.items():
        assert difference < (tolerance or limit(name)), (name, difference)


@pytest.mark.parametrize("size, decay, dtype, packed", MATRIX)
def test_sizes(size: tuple[int, int], decay: int, dtype: torch.dtype, packed: bool) -> None:
    case = Case(*size, decay, 0.3, steps=400, heads=2, groups=1, masked=not packed, weighted=decay == 1)
    if packed:
        case = case._replace(offsets=PACKED, batch=1)
    tiles = planned(case, dtype)
    assert tiles.kernels
    if tiles.block is not None:
        case = case._replace(weighted=False)  # weights come with whole heads only
    check(case, tiles, dtype, 1e-5 if dtype == torch.float32 else None)


@pytest.mark.parametrize("decay", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [(64, 64), (128, 128)])
def test_strong_decays(decay: int, dtype: torch.dtype, size: tuple[int, int]) -> None:
    """Gates from 1 − 1e-6 to 1e-6 (log: −14)."""
    case = Case(*size, decay, 14.0, steps=300, heads=2, groups=2)
    check(case, planned(case, dtype), dtype, 1e-5 if dtype == torch.float32 else None)


@pytest.mark.parametrize("decay", [0, 1, 2])
def test_tf32(decay: int, tf32: None) -> None:
    case = Case(64, 64, decay, 0.3, steps=300)
    check(case, planned(case, torch.float32), torch.float32, 2e-3)


@pytest.mark.parametrize("size", [(64, 64), (128, 128), (256, 256)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("decay", [1, 2])
def test_less_shared_memory(size: tuple[int, int], dtype: torch.dtype, decay: int) -> None:
    from rrnn.backends.matrix import launch

    shared = 99 << 10
    case = Case(*size, decay, 0.3, steps=130, heads=2, groups=2)
    tiles = planned(case, dtype, H200._replace(shared_per_block=shared))
    assert tiles.kernels
    check(case, tiles, dtype, 1e-5 if dtype == torch.float32 else None)
    for kernel in (launch.kernels.outputs, launch.gradient_kernels.key_gradients):
        compiled = [k for device in kernel.device_caches.values() for k in device[0].values()]
        assert compiled and max(k.metadata.shared for k in compiled[-1:]) <= shared


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(
    "decay, chunk, blocks",
    [(0, 64, (32, 64)), (1, 64, (32, 32)), (1, 32, (16, 16)), (2, 64, (64, 64)), (2, 32, (64, 64))],
)
def test_other_tiles(decay: int, chunk: int, blocks: tuple[int, int], warps: int) -> None:
    case = Case(64, 64, decay, 0.3, 128, None, False, blocks, 400, 2, 2, 2, chunk, warps)
    check(case, case.tiles(), torch.bfloat16)


def test_the_same_bits_on_every_run() -> None:
    rnn = make("GLA", torch.bfloat16, 256, 64).cuda()
    x, found = torch.randn(300, 4, 256, device="cuda", dtype=torch.bfloat16), []
    for _ in range(3):
        v = x.clone().requires_grad_()
        with rrnn.use_backend("matrix"):
            out, _ = rnn(v)
        found.append([out, *torch.autograd.grad(out.sum(), [v, *rnn.parameters()])])
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(found[0], one, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["GLA", "Mamba-2"])
def test_chosen(dtype: torch.dtype, name: str) -> None:
    few, many = (lower(rrnn.zoo.get_cell(name, states=n)).program for n in (8, 16))
    for packed in (False, True):
        found = [resolve("auto", torch.device("cuda"), dtype, [p], packed=packed).name for p in (few, many)]
        assert found == ["triton", "matrix"]
    assert resolve("auto", torch.device("cuda"), torch.float64, [many]).name != "matrix"


@pytest.mark.parametrize("name, dtype", list(zip(["GLA", "Mamba-2", "RetNet"], DTYPES, strict=True)))
@pytest.mark.parametrize("states", [16, 64])
def test_packed_sequences_never_wait_for_the_device(name: str, dtype: torch.dtype, states: int) -> None:
    rnn = make(name, dtype, 256, states).cuda()
    x = torch.randn(400, 256, device="cuda", dtype=dtype, requires_grad=True)
    offsets = torch.tensor([0, 7, 7, 130, 400], device="cuda")
    weights = [x, *(p for p in rnn.parameters() if p.requires_grad)]
    for attempt in range(2):  # the first call compiles and fills caches
        torch.cuda.set_sync_debug_mode("error" if attempt else "default")
        try:
            with rrnn.use_backend("matrix"):
                out, _ = rnn(x, cu_seqlens=offsets)
                torch.autograd.grad(out.float().sum(), weights)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", MODELS)
def test_layers_train(name: str) -> None:
    """A whole layer: outputs, states and the gradients of all weights."""
    torch.manual_seed(0)
    rnn = rrnn.RationalRNN(rrnn.zoo.get_cell(name, states=32), 128, 128, heads=4, dtype=torch.float64)
    x, lengths = torch.randn(150, 3, 128).double(), [150, 77, 1]
    wanted = run(rnn, x, "reference", lengths=lengths)
    ours = run(rnn.float().cuda(), x.cuda(), "matrix", lengths=lengths)
    assert max(map(rms, ours, wanted)) < 1e-5


@pytest.mark.parametrize("backend", ["matrix", "auto"])
@pytest.mark.parametrize("name, states", [("GLA", 16), ("GLA", 32), ("Mamba-2", 24), ("RetNet", 16)])
def test_steps_continue_a_sequence(name: str, states: int, backend: str) -> None:
    torch.manual_seed(0)
    cell = rrnn.zoo.get_cell(name, states=states)
    rnn = rrnn.RationalRNN(cell, 96, 96, heads=4, dtype=torch.float32).cuda()
    x, found = torch.randn(90, 2, 96, device="cuda"), []
    with torch.no_grad():
        with rrnn.use_backend("reference"):
            whole, end = rnn.double()(x.double())
        rnn.float()
        with rrnn.use_backend("matrix"):
            out, state = rnn(x[:80])
        with rrnn.use_backend(backend):
            for t in range(80, 90):
                one, state = rnn.step(x[t], state)
                found.append(one)
    assert rms(torch.cat([out, torch.stack(found)]), whole) < 1e-5
    assert rms(state[0].states[0], end[0].states[0]) < 1e-5


def test_decoding_does_not_grow() -> None:
    rnn = make("GLA", torch.bfloat16, 256, 64).cuda()
    x, used = torch.randn(40, 2, 256, device="cuda", dtype=torch.bfloat16), []
    with rrnn.use_backend("matrix"), torch.no_grad():
        _, state = rnn(x[:5])
        for t in range(5, 40):
            _, state = rnn.step(x[t], state)
            used.append(torch.cuda.memory_allocated())
    assert max(used[10:]) == min(used[10:])
