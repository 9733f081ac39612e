"""The rule that picks a schedule, and how it cuts time."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from kernel_cases import program_of

from rrnn.automata import Cell, complex, linear, one, polar, score, sigmoid
from rrnn.backends.triton.plan import (
    BARE,
    FULL,
    H200,
    LARGE,
    LONG,
    SMALL,
    Gpu,
    Plan,
    plan,
    plan_of,
    save_every,
    takes_logarithms,
    turn_bytes,
)
from rrnn.ir import Program, lower
from rrnn.zoo import get_cell

RECORDED = json.loads((Path(__file__).parent / "h200_plans.json").read_text(encoding="utf-8"))
RESULTS = Path(__file__).parents[3] / "docs" / "results"


def properties(
    multiprocessors: int, shared: tuple[int, int], l2: float, clock: int = 0, width: int = 0
) -> SimpleNamespace:
    """Return what torch says of a GPU: shared memory in KB per block and per multiprocessor, the L2 cache in MB, the
    memory's clock in MHz and its width in bits."""
    return SimpleNamespace(
        multi_processor_count=multiprocessors,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=shared[0] << 10,
        shared_memory_per_multiprocessor=shared[1] << 10,
        L2_cache_size=round(l2 * 2**20),
        memory_clock_rate=1000 * clock,
        memory_bus_width=width,
    )


SIMULATED = {
    "H200": properties(132, (227, 228), 60, 3201, 6144),
    "H100": properties(132, (227, 228), 50, 2619, 5120),
    "A100": properties(108, (163, 164), 40, 1215, 5120),
    "L4": properties(58, (99, 100), 48, 6251, 192),
    "laptop": properties(24, (99, 100), 32, 8001, 128),
    "T4": properties(40, (64, 64), 4, 5001, 256),
    "tiny": properties(1, (48, 48), 0.25, 1000, 64),
    "unknown": SimpleNamespace(multi_processor_count=20),
}
GPUS = {name: Gpu.of(given) for name, given in SIMULATED.items()}


def test_lanes_that_fill_the_chip_are_walked_serially() -> None:
    assert plan(4096, FULL, 4, BARE).chunk == 0
    assert plan(4096, FULL - 1, 4, BARE).chunk > 0


def test_short_walks_have_no_pipeline() -> None:
    for size in (2, 4):
        assert plan(LONG - 1, FULL, size, SMALL, backward=True).stages == 0
        assert plan(LONG, FULL, size, SMALL, backward=True).stages > 0


def test_programs_that_take_logarithms_go_forwards_without_a_pipeline() -> None:
    heavy, light = (takes_logarithms(lower(get_cell(name)).program) for name in ("B-max-plus", "F"))
    assert heavy and not light
    assert plan(512, FULL, 4, SMALL, logs=True) == Plan(64, 1, 16, 0)
    assert plan(512, FULL, 4, SMALL, logs=True, backward=True).stages > 0


def test_only_the_bare_recurrence_is_chained() -> None:
    assert plan(2048, 8192, 4, BARE).chained and plan(2048, 8192, 2, BARE, backward=True).chained
    assert not plan(2048, 8192, 4, BARE + 1).chained


@pytest.mark.parametrize("instructions", [BARE, SMALL, LARGE, LARGE + 1])
def test_chunks_cover_time(instructions: int) -> None:
    every = save_every(instructions)
    lanes = (1, 1024, 8192, 10**6)
    for steps, *rest in product((1, 35, 127, 128, 5000, 65536), lanes, (2, 4), (False, True)):
        how = plan(steps, rest[0], rest[1], instructions, backward=rest[2])
        chunk, chunks = how.cut(steps, every, stateful=True)
        assert chunk % every == 0  # a chunk starts where a state is saved
        assert (chunks - 1) * chunk < steps <= chunks * chunk
        assert how.cut(steps, every, stateful=False)[1] == 1


def test_a_cut_without_saved_states() -> None:
    assert Plan(64, 1, 8, 48).cut(100, 0, stateful=True) == (48, 3)


# ---- other GPUs -----------------------------------------------------------------------------------------------------


@cache
def recorded_program(name: str) -> Program:
    if name != "B-complex":
        return program_of(name)
    cell = Cell("B_complex", "complex").initial("q0").loop("q0", one)  # as in benchmarks/complex_b.py
    cell = cell.arc("q0", "q1", complex(linear("u"), linear("v")))
    cell = cell.loop("q1", polar(sigmoid(linear("f", bias=True)), linear("theta", bias=True)))
    return lower(cell.final("q1").output(score.re, score.im)).program


def test_an_h200_runs_what_was_measured() -> None:
    """docs/results was measured with the recorded plans, so they may not change for any of its shapes."""
    shapes = set()
    for path in RESULTS.glob("*-h200.json"):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        # A shape of a family's kernels also has its states and groups; these plans are not for them.
        shapes |= {"x".join(map(str, row["shape"])) for row in rows if len(row.get("shape", ())) == 3}
    assert shapes == {key.split()[1] for key in RECORDED} and len(RECORDED) == 616
    found = {}
    for key in RECORDED:
        name, shape, size, which = key.split()
        program, (steps, batch, units) = recorded_program(name), map(int, shape.split("x"))
        every = save_every(len(program.flat.instructions))
        back = which == "backward"
        found[key] = list(plan_of(program, steps, batch * units, int(size), every, back, GPUS["H200"]))
    assert found == RECORDED


def test_the_tuned_figures_are_an_h200s() -> None:
    for gpu in (H200, GPUS["H200"], GPUS["H200"]._replace(bandwidth=0.0)):
        assert gpu.lanes(FULL) == FULL and gpu.shared() == 113 * 1024
        assert plan(2048, 8192, 4, BARE, gpu=gpu) == Plan(64, 1, 16, 64, chained=True)


def test_slower_memory_is_filled_by_fewer_lanes() -> None:
    lanes = {name: gpu.lanes(FULL) for name, gpu in GPUS.items()}
    assert lanes["tiny"] < lanes["laptop"] < lanes["T4"] < lanes["L4"] < lanes["A100"] < lanes["H100"] < FULL
    assert all(lanes[name] >= 64 * gpu.multiprocessors for name, gpu in GPUS.items())
    few = lanes["L4"]
    assert plan(4096, few, 4, SMALL, gpu=GPUS["L4"]).chunk == 0 < plan(4096, few, 4, SMALL).chunk


def test_chunks_are_chained_where_the_cache_holds_them() -> None:
    small = H200._replace(l2_cache=H200.l2_cache * 2 // 5)
    assert plan(2048, 8192, 4, BARE, gpu=small) == Plan(64, 1, 16, 32, chained=True)
    without = plan(2048, 1024, 4, BARE, gpu=GPUS["T4"])
    assert not without.chained and 0 < without.chunk < 2048


def broad() -> Program:
    """Return a cell with twenty projections, of which a pipeline of three stages takes 43 KB."""
    cell = Cell("broad").initial("q0").loop("q0", one).final("q1").output(score)
    weight = sum((linear(f"u{i}") for i in range(1, 20)), linear("u0"))
    return lower(cell.arc("q0", "q1", weight).loop("q1", 0.5)).program


@pytest.mark.parametrize("name", GPUS)
def test_every_plan_fits_every_gpu(name: str) -> None:
    gpu = GPUS[name]
    assert 0 < gpu.shared() < gpu.shared_per_block
    programs = [lower(get_cell(each)).program for each in ("B", "F", "F+o", "SRU", "B-max-plus")]
    for program in (*programs, program_of("unfused"), broad()):
        for steps, lanes, size, back in product(
            (1, 35, 512, 65536), (1, 1024, 6000, 10**6), (2, 4), (False, True)
        ):
            every = save_every(len(program.flat.instructions))
            how = plan_of(program, steps, lanes, size, every, back, gpu)
            turn = turn_bytes(program, every if back else how.unroll, size, back)
            assert how.block >= 32 and max(0, how.stages - 1) * how.block * turn <= gpu.shared()
            chunk, chunks = how.cut(steps, every, stateful=True)
            assert chunk % every == 0 and (chunks - 1) * chunk < steps <= chunks * chunk


def test_a_pipeline_that_does_not_fit_gets_shorter_then_narrower_then_goes() -> None:
    program, found = broad(), []
    for room in (100, 24, 12, 6):
        gpu = H200._replace(shared_per_block=room << 10)
        how = plan_of(program, 512, FULL, 4, 4, True, gpu)
        found.append((how.stages, how.block))
    assert found == [(3, 64), (2, 64), (2, 32), (0, 32)]
