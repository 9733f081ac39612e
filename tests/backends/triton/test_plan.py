"""The rule that picks a schedule, and how it cuts time."""

from __future__ import annotations

from itertools import product

import pytest

from rrnn.backends.triton.plan import BARE, FULL, LARGE, LONG, SMALL, Plan, plan, save_every, takes_logarithms
from rrnn.ir import lower
from rrnn.zoo import get_cell


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
