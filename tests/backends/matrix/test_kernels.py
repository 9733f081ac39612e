"""The kernels of the matrix schedule against torch's products in float64: tiles, segments, packed sequences, decays."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from backends.matrix.recurrences import FACTOR, GATE, LIMITS, SCORE
from kernel_cases import needs_interpreter
from torch import Tensor

from rrnn.backends.interface import sequence_table
from rrnn.backends.matrix import chunks
from rrnn.backends.matrix.factors import FactorGradients, Factors, Tiles, Walk, padded, segments_of
from rrnn.backends.matrix.plan import on_cpu


class Case(NamedTuple):
    """Sizes of a call, its decay (0: none, 1: a head's, 2: a state's), and the sizes of its kernels."""

    N: int = 20
    U: int = 24
    decay: int = 0
    strength: float = 0.1
    segment: int = 32
    offsets: tuple[int, ...] | None = None
    masked: bool = False
    blocks: tuple[int, int] | None = None  # states of a tile of keys, units of one of values; None: all
    steps: int = 75
    batch: int = 2
    heads: int = 4
    groups: int = 4
    chunk: int = 16
    warps: int = 4
    stages: int = 2
    cut: tuple[int, int] | None = None  # states and units of a block, if heads are cut into blocks
    weighted: bool = False  # whether values have weights and skips

    def tiles(self) -> Tiles:
        N, U = map(padded, self.cut or (self.N, self.U))
        n, u = self.blocks or (N, U)
        more = self.warps, self.stages
        part = Walk(N, u, *more)
        keys = Walk(n, U, *more)
        values = None if self.blocks is None else part
        enter = Walk(n, u, *more)
        return Tiles(self.chunk, self.segment, enter, part, keys, keys, values, self.cut)


CASES = [
    Case(),
    Case(decay=1, segment=80),
    Case(decay=2, segment=48, masked=True, heads=2, groups=2),
    Case(decay=2, strength=30.0, N=33, heads=2, groups=1),
    Case(decay=2, strength=30.0, segment=96, masked=True, blocks=(16, 16), N=40, U=20, heads=2, groups=2),
    Case(decay=1, blocks=(16, 16), N=24, U=40, strength=5.0, heads=2, groups=1),
    Case(offsets=(0, 7, 7, 40, 75), batch=1, groups=2, segment=16),
    Case(offsets=(0, 40, 75, 75), decay=1, batch=1, weighted=True),
    Case(offsets=(0, 0, 1, 50, 75), decay=2, batch=1, heads=2, groups=1),
    Case(offsets=(0, 33, 75), decay=2, strength=30.0, batch=1, blocks=(16, 16), heads=2, groups=2),
    Case(decay=2, N=40, U=20, cut=(16, 16), heads=2, groups=1, masked=True),
    Case(decay=2, N=33, U=24, cut=(16, 24), strength=30.0, heads=2, groups=2, segment=80),
    Case(offsets=(0, 33, 33, 75), decay=1, N=20, U=40, cut=(16, 16), batch=1, heads=2, groups=2),
    Case(decay=1, segment=80, weighted=True, groups=2),
    Case(decay=1, blocks=(16, 16), N=48, U=40, weighted=True, masked=True, heads=2, groups=1),
]


class Data(NamedTuple):
    """What a call reads, and gradients to start from."""

    factors: Factors
    first: Tensor
    go: Tensor
    gend: Tensor

    def to(self, dtype: torch.dtype, device: str = "cpu") -> Data:
        """Return it in a dtype; log-decays and states stay float32, or float64."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        q, k, v, g, mask, table, *_, weights, skips = self.factors
        q, k, v = (t.to(device, dtype) for t in (q, k, v))
        mask, table = (None if t is None else t.to(device) for t in (mask, table))
        g, weights, skips = (None if t is None else t.to(device, wide) for t in (g, weights, skips))
        factors = Factors(q, k, v, g, mask, table, weights=weights, skips=skips)
        first, gend = (t.to(device, wide) for t in (self.first, self.gend))
        return Data(factors, first, self.go.to(device, dtype), gend)


def draw(case: Case, dtype: torch.dtype = torch.float32) -> Data:
    """Draw the data of a case such that they are exact in a dtype."""
    torch.manual_seed(0)
    T, B, H = case.steps, case.batch, case.heads

    def some(*shape: int) -> Tensor:
        return torch.randn(shape).to(dtype).double()

    g = mask = table = None
    if case.decay:
        shape = (T, B, H, case.N) if case.decay == 2 else (T, B, H)
        g = -case.strength * torch.rand(shape).pow(4).double()  # from almost nothing to almost all
    if case.masked:
        mask = torch.arange(T)[:, None] < torch.tensor([T] + [T // 2] * (B - 1))
        g = None if g is None else g * mask.view(T, B, *[1] * (g.dim() - 2))
    if case.offsets is not None:
        table = sequence_table(torch.tensor(case.offsets), T)
    n = B if table is None else table.shape[0]
    q, k = some(T, B, case.groups, case.N), some(T, B, case.groups, case.N)
    go = some(T, B, H, case.U)
    if mask is not None:
        go = go * mask[:, :, None, None]
    first, gend = some(case.N, n, H * case.U), some(case.N, n, H * case.U)
    weights, skips = (some(B, H, T).permute(2, 0, 1) if case.weighted else None for _ in range(2))
    v = some(T, B, H, case.U)
    return Data(Factors(q, k, v, g, mask, table, weights=weights, skips=skips), first, go, gend)


def gradients_like(f: Factors) -> FactorGradients:
    shape = (*f.v.shape[:3], f.k.shape[3])
    return FactorGradients(f.v.new_empty(shape), f.v.new_empty(shape), torch.empty_like(f.v))


def exact(data: Data) -> dict[str, Tensor]:
    """Return outputs, states and gradients by torch's products."""
    f, v, o = data.factors, data.factors.v, torch.empty_like(data.factors.v)
    if f.weights is not None:
        f = f._replace(v=v * f.weights[..., None])
    end, states = chunks.forward(f, data.first, o, 16, 0.5)
    into = gradients_like(f)
    first, dg = chunks.backward(f, states, data.go, data.gend, into, 16, 0.5)
    found = {"o": o, "end": end, **into._asdict(), "first": first}
    found |= {} if dg is None else {"g": dg}
    if f.weights is not None and f.skips is not None:
        there = 1.0 if f.mask is None else f.mask[:, :, None, None]
        o += f.skips[..., None] * v * there
        found["v"] = into.v * f.weights[..., None] + f.skips[..., None] * data.go
        found |= {"weights": (into.v * v * there).sum(-1), "skips": (data.go * v).sum(-1)}
    return found


def by_kernels(tiles: Tiles, data: Data) -> dict[str, Tensor]:
    """Return the same by kernels: with states as they were saved, and with states computed again."""
    from rrnn.backends.matrix import blocks

    f, o = data.factors, torch.empty_like(data.factors.v)
    end, states = blocks.forward(f, data.first, o, tiles, 0.5)
    results = []
    for saved, first in ((states, None), (None, data.first)):
        into = gradients_like(f)
        gfirst, (dg, *more) = blocks.backward(f, saved, first, data.go, data.gend, tiles, into, 0.5)
        results.append([*into, gfirst, *(t for t in (dg, *more) if t is not None)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    names = ["o", "end", "q", "k", "v", "first", "g", "weights", "skips"]
    found = dict(zip(names, [o, end, *results[0]], strict=False))
    return found | {name: t.sum(0) for name, t in found.items() if name in names[-2:]}


def ratio(a: Tensor, b: Tensor) -> float:
    return float((a.double().cpu() - b).norm() / b.norm())


def limit(name: str) -> float:
    """Return how far a result may be off with inputs of half precision."""
    kinds = dict.fromkeys(["q", "k", "v", "weights"], FACTOR) | {"g": GATE}
    return LIMITS[kinds.get(name, SCORE)]


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_equal_to_torch(case: Case) -> None:
    data = draw(case)
    wanted, ours = exact(data), by_kernels(case.tiles(), data.to(torch.float32))
    for name, value in wanted.items():
        assert ratio(ours[name], value) < 1e-5, name


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("decay", [1, 2])
def test_strong_decays_in_bfloat16(decay: int, tensor_cores: None) -> None:
    """Gates from 1 − 1e-6 to 1e-6 (log: −14)."""
    case = Case(decay=decay, strength=14.0, heads=2, groups=1, segment=64, chunk=32, weighted=decay == 1)
    data = draw(case, torch.bfloat16)
    wanted, ours = exact(data), by_kernels(case.tiles(), data.to(torch.bfloat16))
    for name, value in wanted.items():
        assert ratio(ours[name], value) < limit(name), name


@needs_interpreter
@pytest.mark.parametrize("decay", [1, 2])
def test_decays_that_are_not_learned(decay: int) -> None:
    from rrnn.backends.matrix import launch

    case = Case(decay=decay, N=16, U=16, steps=40, batch=1, heads=2, groups=2)
    data = draw(case).to(torch.float32)
    f, found = data.factors, []
    _, states = launch.forward(f, data.first, torch.empty_like(f.v), case.tiles(), 0.5)
    for learns in (True, False):
        into = gradients_like(f)
        more = launch.backward(f, states, None, data.go, data.gend, case.tiles(), into, 0.5, learns)
        found.append([*into, more[0]])
        assert (more[1].decay is not None) == learns
    assert all(map(torch.equal, *found))


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("decay, strength", [(1, 1.0), (2, 1.0), (2, 30.0)])
def test_rounding_cancels_in_gradients_of_decays(
    decay: int, strength: float, tf32: None, tensor_cores: None
) -> None:
    """The gradient of a log-decay is a difference. If its two sides rounded differently, its errors would have the same
    sign over many steps, and those of a gate's bias, which is a sum over time, would be far larger."""
    case = Case(decay=decay, strength=strength, heads=2, groups=2, segment=64, chunk=64, steps=128)
    data = draw(case)
    wanted, ours = exact(data), by_kernels(case.tiles(), data.to(torch.float32))
    found = {name: ratio(ours[name], value) for name, value in wanted.items()}
    found["bias"] = ratio(ours["g"].sum((0, 1)), wanted["g"].sum((0, 1)))
    assert max(found.values()) < 2e-3, found


def test_torch_products_equal_a_loop() -> None:
    case = CASES[8]
    data = draw(case)
    f = data.factors
    assert f.g is not None and f.sequences is not None and case.offsets is not None
    o, end = torch.empty_like(f.v), torch.empty_like(data.first)
    q, k = (t.repeat_interleave(2, 2)[:, 0] for t in (f.q, f.k))
    for i, (a, b) in enumerate(zip(case.offsets, case.offsets[1:], strict=False)):
        z = data.first[:, i].unflatten(-1, (2, -1)).transpose(0, 1)  # (H, N, U)
        for t in range(a, b):
            z = z * f.g[t, 0].exp()[..., None] + k[t][..., None] * f.v[t, 0][:, None]
            o[t, 0] = 0.5 * (q[t][..., None] * z).sum(1)
        end[:, i] = z.transpose(0, 1).flatten(1)
    found = exact(data)
    assert ratio(found["o"], o) < 1e-12 and ratio(found["end"], end) < 1e-12


def test_segments_of_packed_sequences() -> None:
    table, places = segments_of(sequence_table(torch.tensor([0, 5, 5, 18]), 18), 18, 4)
    assert places.tolist() == [[0, 2], [2, 2], [3, 7]]
    firsts, stops, numbers, begins = table.T.tolist()
    assert firsts == [0, 4, 5, 5, 9, 13, 17] and stops == [4, 5, 5, 9, 13, 17, 18]
    assert numbers == [0, 0, 1, 2, 2, 2, 2] and begins == [0, 0, 5, 5, 5, 5, 5]


def test_grids_have_no_more_programs_than_cuda_allows() -> None:
    """Along the second and third axis of a grid, CUDA allows 65535 programs. There may be more columns or sequences."""
    from rrnn.backends.matrix.launch import Launch

    tiles, T = Case().tiles(), 48
    for batch, offsets in ((40_000, None), (1, (0, *[T] * 90_000))):
        x = torch.zeros(1).expand(T, batch, 2, 16)
        table = None if offsets is None else sequence_table(torch.tensor(offsets), T)
        own = Launch(Factors(x, x, x, None, None, table), tiles)
        assert max(own.grid(4)[1:]) <= 65_535
        assert math.prod(own.grid(4)) == own.segments * 2 * batch * 4


def test_full_precision_follows_the_setting_of_torch() -> None:
    """It can be set by either of two names, after which torch may refuse to answer by the older one."""
    script = """
import torch
from rrnn.backends.matrix.factors import full_precision
{}
assert full_precision(torch.float32) is {} and not full_precision(torch.bfloat16)
"""
    settings = {"": True, "torch.backends.cuda.matmul.allow_tf32 = True": False}
    settings["torch.set_float32_matmul_precision('high')"] = False
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        settings["torch.backends.cuda.matmul.fp32_precision = 'tf32'"] = False
        settings["torch.backends.cuda.matmul.fp32_precision = 'ieee'"] = True
    for setting, full in settings.items():
        subprocess.run([sys.executable, "-c", script.format(setting, full)], check=True)


def test_sizes_of_torch_products_have_no_kernels() -> None:
    assert not on_cpu().kernels and CASES[0].tiles().kernels


def test_units_of_strides() -> None:
    from rrnn.backends.matrix.launch import unit_of

    rows = torch.empty(5, 3, 264)  # 2 · 128 numbers and 8 gates, as Mamba-2 with 8 heads has them
    assert unit_of(rows[..., :128].unflatten(-1, (1, 128))) == 8
    assert unit_of(torch.empty(5, 3, 2, 64)) == 1
    assert unit_of(torch.empty(5, 3, 2, 64), torch.empty(5, 3, 2, 6)) == 2
    assert unit_of(torch.empty(5, 1, 3, 33)) == 1
