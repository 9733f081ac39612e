"""The matrix schedule on a GPU: every model and dtype against the reference in float64, and the same bits."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from backends.matrix.test_kernels import Case, by_kernels, draw, exact, ratio
from backends.matrix.test_matrix import MODELS, make, rms, run

import rrnn
from rrnn.backends.matrix.factors import Tiles
from rrnn.backends.matrix.plan import tiles_of
from rrnn.backends.triton.plan import H200, Gpu

pytestmark = pytest.mark.gpu

LAYERS = {torch.bfloat16: 0.02, torch.float16: 0.02, torch.float32: 1e-5}
GRADIENTS = {"q": 0.008, "k": 0.008, "v": 0.008, "g": 0.02, "weights": 0.008}
DECAYS = ("none", "head", "state")


@pytest.fixture
def tf32() -> Iterator[None]:
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("dtype", LAYERS)
@pytest.mark.parametrize("name", [*MODELS, "own"])
@pytest.mark.parametrize("states, units", [(64, 256), (20, 96), (128, 512)])
def test_equal_to_the_reference(name: str, dtype: torch.dtype, states: int, units: int) -> None:
    exact, rnn = make(name, torch.float64, units, states), make(name, dtype, units, states)
    rnn.load_state_dict(exact.state_dict())
    exact.load_state_dict(rnn.state_dict())
    torch.manual_seed(2)
    x, lengths = torch.randn(200, 3, units).to(dtype), [200, 77, 1]
    projection = exact.double()
    ours = run(rnn.cuda(), x.cuda(), "matrix", lengths=lengths)
    wanted = run(projection, x.double(), "reference", lengths=lengths)
    assert max(map(rms, ours, wanted)) < LAYERS[dtype]


def planned(case: Case, dtype: torch.dtype, gpu: Gpu = H200) -> Tiles:
    """Return the sizes that the plan chooses for a GPU."""
    decay, columns = DECAYS[case.decay], case.batch * case.heads
    return tiles_of(case.N, case.U, decay, dtype, gpu, case.steps, columns)[0]


PACKED = (0, 70, 70, 71, 199, 400)
SIZES = [(16, 16), (48, 80), (64, 64), (80, 48), (128, 128), (192, 256), (256, 192)]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]
EVERY = [(size, d, t, p) for size in SIZES for d in (0, 1, 2) for t in DTYPES for p in (False, True)]
MATRIX = EVERY if os.environ.get("RRNN_MATRIX") == "full" else EVERY[::5]  # every value meets every other one


def check(case: Case, tiles: Tiles, dtype: torch.dtype, tolerance: float | None = None) -> None:
    data = draw(case, dtype)
    wanted, ours = exact(data), by_kernels(tiles, data.to(dtype, "cuda"))
    differences = {name: ratio(ours[name], value) for name, value in wanted.items()}
    print(case, tiles, differences)
    for name, difference in differences.items():
        assert difference < (tolerance or GRADIENTS.get(name, 0.005)), (name, difference)


@pytest.mark.parametrize("size, decay, dtype, packed", MATRIX)
def test_sizes(size: tuple[int, int], decay: int, dtype: torch.dtype, packed: bool) -> None:
    case = Case(*size, decay, 0.3, steps=400, heads=2, groups=1, masked=not packed, weighted=decay == 1)
    if packed:
        case = case._replace(offsets=PACKED, batch=1)
    tiles = planned(case, dtype)
    if decay == 2 and max(size) > 128:
        assert not tiles.kernels  # torch's products are left
        return
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
    if decay == 2 and size[0] * dtype.itemsize > 256:
        assert not tiles.kernels  # torch's products are left
        return
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


@pytest.mark.parametrize("name", ["GLA", "Mamba-2", "RetNet"])
def test_packed_sequences_never_wait_for_the_device(name: str) -> None:
    rnn = make(name, torch.bfloat16, 256, 64).cuda()
    x = torch.randn(400, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    offsets = torch.tensor([0, 7, 7, 130, 400], device="cuda")
    with rrnn.use_backend("matrix"):
        for attempt in range(2):  # the first call compiles and fills caches
            torch.cuda.set_sync_debug_mode("error" if attempt else "default")
            try:
                out, _ = rnn(x, cu_seqlens=offsets)
                torch.autograd.grad(out.float().sum(), [x, *rnn.parameters()])
            finally:
                torch.cuda.set_sync_debug_mode("default")


def test_decoding_does_not_grow() -> None:
    rnn = make("GLA", torch.bfloat16, 256, 64).cuda()
    x, used = torch.randn(40, 2, 256, device="cuda", dtype=torch.bfloat16), []
    with rrnn.use_backend("matrix"), torch.no_grad():
        _, state = rnn(x[:5])
        for t in range(5, 40):
            _, state = rnn.step(x[t], state)
            used.append(torch.cuda.memory_allocated())
    assert max(used[10:]) == min(used[10:])
