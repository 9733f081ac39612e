"""What bounds the bare recurrence where lanes are few? Needs a CUDA device (or TRITON_INTERPRET=1, to check only).

    python benchmarks/few_lanes.py [--json docs/results/few-lanes-h200.json] [--check]

c = f·c' + u forwards, f and u given, by kernels that do a part of the work each, so that their times bound a schedule:

- stream: reads f and u and writes one number, without a recurrence: what this mix of reading and writing takes.
- twice: cuts time into chunks and walks each twice, a few steps at a time, and no chunk waits for another. (Its
  results are wrong but for the first chunk.) It loads nothing ahead of use, so it is no bound: the backend's kernel,
  which does, is faster although its chunks wait.
- held: reads each chunk once, as a tile that stays in registers, scans it and writes it; nothing waits either. The
  bound of reading once with what registers hold.
- held, joined: the same with the chunks joined in one launch, in groups of 16, as the backend's kernels are. Right.
- held, in pieces: the same again, with a chunk cut into as many pieces as fit one warp each.
- ours: the backend's own kernel, whose states are saved as in training.

Times are replays of a CUDA graph; the per cent are of the copy bandwidth, each number counted as moved once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import triton
import triton.language as tl
from cuda_kernels import Bench
from cuda_timing import CudaClock, copy_bandwidth, describe, hardware
from results import Row, print_table, write
from torch import Tensor

SHAPES = [(2048, 8, 1024), (65536, 1, 1024)]
GROUP = tl.constexpr(16)
SIZES = [
    (32, 32, 1),
    (64, 32, 1),
    (128, 32, 4),
    (256, 32, 8),
    (256, 32, 4),
    (512, 32, 16),
    (128, 64, 8),
    (128, 128, 16),
]
"""Steps of a chunk, lanes and warps of a program, of the kernels that hold a chunk."""


@triton.jit
def stream(f, u, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(f + at, mask=at < n).to(tl.float32)
    b = tl.load(u + at, mask=at < n).to(tl.float32)
    tl.store(out + at, (a + b).to(out.dtype.element_ty), mask=at < n)


@triton.jit
def twice(f, u, out, entries, T, lanes, STEPS: tl.constexpr, BLOCK: tl.constexpr, TURN: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(1).to(tl.int64) * STEPS
    a = tl.full([BLOCK], 1.0, tl.float32)
    c = tl.zeros([BLOCK], tl.float32)
    for turn in range(0, STEPS, TURN):
        for j in tl.static_range(TURN):
            at = (begin + turn + j) * lanes + lane
            x = tl.load(f + at).to(tl.float32)
            c = x * c + tl.load(u + at).to(tl.float32)
            a *= x
    tl.store(entries + tl.program_id(1).to(tl.int64) * lanes + lane, a + c)
    z = c
    for turn in range(0, STEPS, TURN):
        for j in tl.static_range(TURN):
            at = (begin + turn + j) * lanes + lane
            x = tl.load(f + at, eviction_policy="evict_first").to(tl.float32)
            z = x * z + tl.load(u + at, eviction_policy="evict_first").to(tl.float32)
            tl.store(out + at, z.to(out.dtype.element_ty))


@triton.jit
def _then(a, c, b, d):
    return a * b, c * b + d


@triton.jit
def held(f, u, out, T, lanes, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    lane = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    step = tl.program_id(1).to(tl.int64) * STEPS + tl.arange(0, STEPS)[:, None]
    at = step * lanes + lane
    _, c = tl.associative_scan((tl.load(f + at).to(tl.float32), tl.load(u + at).to(tl.float32)), 0, _then)
    tl.store(out + at, c.to(out.dtype.element_ty))


@triton.jit
def _last(x, ROWS: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, ROWS)[:, None] == ROWS - 1, x, 0.0), 0, keep_dims=True)


@triton.jit
def _before(a_last, c_last, queue_place, entries, carry, lanes, lane, BLOCK: tl.constexpr):
    """Publish a chunk's transition (1, BLOCK); return the state before the chunk. Words not written yet are −1,
    the bits of a NaN."""
    mine = entries + queue_place * 2 * lanes + lane
    tl.store(mine, a_last.to(tl.int32, bitcast=True))
    tl.store(mine + lanes, c_last.to(tl.int32, bitcast=True))
    group, before = queue_place // GROUP, queue_place % GROUP
    z = tl.zeros([1, BLOCK], tl.float32)
    if group > 0:
        word = tl.full([1, BLOCK], -1, tl.int32)
        missing = 1
        while missing > 0:
            word = tl.load(carry + group * lanes + lane, volatile=True)
            missing = tl.max(tl.max((word == -1).to(tl.int32), 1), 0)
        z = word.to(tl.float32, bitcast=True)
    g = tl.arange(0, GROUP)[:, None]
    row = entries + (group * GROUP + g) * 2 * lanes + lane
    wanted = (g < before) & (lane < lanes)
    e = tl.full([GROUP, BLOCK], -1, tl.int32)
    d = tl.full([GROUP, BLOCK], -1, tl.int32)
    missing = 1
    while missing > 0:
        e = tl.load(row, mask=wanted, other=0, volatile=True)
        d = tl.load(row + lanes, mask=wanted, other=0, volatile=True)
        missing = tl.max(tl.max(((e == -1) | (d == -1)).to(tl.int32), 1), 0)
    e = tl.where(wanted, e.to(tl.float32, bitcast=True), 1.0)
    d = tl.where(wanted, d.to(tl.float32, bitcast=True), 0.0)
    e, d = tl.associative_scan((e, d), 0, _then)
    z = _last(e, GROUP) * z + _last(d, GROUP)
    if before == GROUP - 1:
        tl.store(carry + (group + 1) * lanes + lane, (a_last * z + c_last).to(tl.int32, bitcast=True))
    return z


@triton.jit
def held_joined(f, u, out, queue, entries, carry, T, lanes, chunks, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Tickets are dealt in the order of time."""
    ticket = tl.atomic_add(queue, 1) + 1
    blocks = lanes // BLOCK
    lane = (ticket % blocks * BLOCK + tl.arange(0, BLOCK))[None, :]
    place = (ticket // blocks).to(tl.int64)
    at = (place * STEPS + tl.arange(0, STEPS)[:, None]) * lanes + lane
    a, c = tl.associative_scan((tl.load(f + at).to(tl.float32), tl.load(u + at).to(tl.float32)), 0, _then)
    z = _before(_last(a, STEPS), _last(c, STEPS), place, entries, carry, lanes, lane, BLOCK)
    tl.store(out + at, (c + a * z).to(out.dtype.element_ty))


@triton.jit
def held_pieces(
    f, u, out, queue, entries, carry, T, lanes, chunks,
    STEPS: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """The same, a chunk in pieces: only what goes from piece to piece crosses warps."""
    COUNT: tl.constexpr = STEPS // PIECE
    ticket = tl.atomic_add(queue, 1) + 1
    blocks = lanes // BLOCK
    lane = ticket % blocks * BLOCK + tl.arange(0, BLOCK)
    place = (ticket // blocks).to(tl.int64)
    piece, step = tl.arange(0, COUNT)[:, None, None], tl.arange(0, PIECE)[None, :, None]
    at = (place * STEPS + piece * PIECE + step) * lanes + lane[None, None, :]
    a, c = tl.associative_scan((tl.load(f + at).to(tl.float32), tl.load(u + at).to(tl.float32)), 1, _then)
    end = step == PIECE - 1
    pa, pc = tl.sum(tl.where(end, a, 0.0), 1), tl.sum(tl.where(end, c, 0.0), 1)
    pa, pc = tl.associative_scan((pa, pc), 0, _then)
    z = _before(_last(pa, COUNT), _last(pc, COUNT), place, entries, carry, lanes, lane[None, :], BLOCK)
    after = pc + pa * z
    number = tl.arange(0, COUNT)[:, None] + tl.zeros([COUNT, BLOCK], tl.int32)
    start = tl.where(number == 0, z, tl.gather(after, tl.maximum(number - 1, 0), 0))
    tl.store(out + at, (c + a * start[:, None, :]).to(out.dtype.element_ty))


def _sized(steps: int, block: int, warps: int) -> str:
    return f"{steps} × {block}, {warps} warp{'s' if warps > 1 else ''}"


class Case:
    """The recurrence at one shape."""

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> None:
        self.bench = Bench.make("B unfused", shape, dtype, device, "triton")
        self.f, self.u = self.bench.f_and_u
        self.steps, self.lanes = shape[0], shape[1] * shape[2]
        self.out = torch.empty_like(self.f)

    def chunks(self, steps: int) -> int:
        assert self.steps % steps == 0
        return self.steps // steps

    def stream(self) -> Tensor:
        n = self.f.numel()
        stream[(triton.cdiv(n, 1024),)](self.f, self.u, self.out, n, BLOCK=1024)
        return self.out

    def twice(self, steps: int, block: int, turn: int) -> Tensor:
        chunks = self.chunks(steps)
        entries = torch.empty(chunks, self.lanes, device=self.f.device)
        grid = self.lanes // block, chunks
        sizes = {"STEPS": steps, "BLOCK": block, "TURN": turn, "num_warps": 1}
        twice[grid](self.f, self.u, self.out, entries, self.steps, self.lanes, **sizes)
        return self.out

    def held(self, steps: int, block: int, warps: int) -> Tensor:
        grid = self.lanes // block, self.chunks(steps)
        sizes = {"STEPS": steps, "BLOCK": block, "num_warps": warps}
        held[grid](self.f, self.u, self.out, self.steps, self.lanes, **sizes)
        return self.out

    def joined(self, steps: int, block: int, warps: int, piece: int = 0) -> Tensor:
        chunks = self.chunks(steps)
        size = 64 + (2 * chunks + chunks // GROUP.value + 2) * self.lanes
        words = torch.full((size,), -1, dtype=torch.int32, device=self.f.device)
        more = words, words[64:], words[64 + 2 * chunks * self.lanes :]
        numbers = self.steps, self.lanes, chunks
        sizes = {"STEPS": steps, "BLOCK": block, "num_warps": warps}
        grid, tensors = (self.lanes // block * chunks,), (self.f, self.u, self.out, *more)
        if piece:
            held_pieces[grid](*tensors, *numbers, PIECE=piece, **sizes)
        else:
            held_joined[grid](*tensors, *numbers, **sizes)
        return self.out

    def pieces(self, steps: int, block: int, warps: int) -> Tensor:
        vector = 16 // self.f.element_size()  # lanes of a thread; the others of a warp lie along time
        return self.joined(steps, block, warps, 32 * vector // block)

    def ours(self) -> Tensor:
        return self.bench.forward()[0]

    def runs(self) -> Iterator[tuple[str, str, Callable[[], Tensor]]]:
        """Yield what is timed: the kernel's name, its sizes, and a call."""
        yield "ours", "", self.ours
        yield "stream", "", self.stream
        for steps, block, turn in ((64, 64, 16), (128, 64, 16), (64, 128, 8), (32, 128, 16)):
            yield "twice", f"{steps} × {block}, 1 warp", lambda s=steps, b=block, t=turn: self.twice(s, b, t)
        fitting = [size for size in SIZES if self.steps % size[0] == 0 and self.lanes % size[1] == 0]
        kernels = {"held": self.held, "held, joined": self.joined, "held, in pieces": self.pieces}
        for name, kernel in kernels.items():
            for size in fitting:
                yield name, _sized(*size), lambda k=kernel, s=size: k(*s)

    def exact(self) -> Tensor:
        """Return the recurrence in float64, one step after another."""
        c = torch.zeros_like(self.f[0], dtype=torch.float64)
        found = torch.empty_like(self.f, dtype=torch.float64)
        for t in range(self.steps):
            c = self.f[t].double() * c + self.u[t].double()
            found[t] = c
        return found


def check(device: str, shape: tuple[int, int, int]) -> None:
    """Compare the kernels that claim to be right, in all sizes that fit the shape, with the recurrence in float64."""
    for dtype in (torch.float32, torch.bfloat16):
        case = Case(shape, dtype, device)
        exact = case.exact()
        for name, sizes, run in case.runs():
            if name in ("ours", "held, joined", "held, in pieces"):
                case.out.fill_(torch.nan)
                error = float((run().double() - exact).norm() / exact.norm())
                if not error < (1e-5 if dtype == torch.float32 else 5e-3):
                    raise AssertionError(f"{name} {sizes} {dtype}: relative error {error}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true", help="compare results only, at a small shape")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    check(device, (2048, 2, 256) if device == "cuda" else (128, 1, 64))
    if options.check:
        return
    clock = CudaClock()
    roof = copy_bandwidth(clock)
    rows: list[Row] = []
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            case = Case(shape, dtype, device)
            moved = 3 * case.f.numel() * case.f.element_size()
            for name, sizes, run in case.runs():
                about = {"name": name, "sizes": sizes, "shape": list(shape)}
                about |= {"dtype": str(dtype).removeprefix("torch."), "pass": "forward"}
                try:
                    ms = clock.graph(run)
                except Exception as error:
                    print(name, sizes, describe(error))
                    continue
                rate = moved / ms / 1e6
                rows.append({**about, "ms": ms, "gb_per_s": rate, "percent_of_copy": 100 * rate / roof})
            del case
            torch.cuda.empty_cache()
    table = [["kernel", "steps × lanes", "T×B×D", "dtype", "µs", "% of copy"]]
    for r in rows:
        shape = "×".join(map(str, r["shape"]))
        figures = f"{1000 * r['ms']:.1f}", f"{r['percent_of_copy']:.0f}"
        table.append([r["name"], r["sizes"], shape, r["dtype"], *figures])
    print_table(table)
    if options.json:
        write(options.json, rows, copy_gb_per_s=roof, device=hardware())


if __name__ == "__main__":
    main()
