"""Generated Triton against the float64 reference, over a pairwise sample of everything that changes a kernel.

Without a GPU the kernels run in Triton's interpreter, at tiny sizes; `pytest -m gpu` (in parallel:
tests/run_gpu.py) runs larger ones on the device.
`RRNN_MATRIX=full` runs the whole product instead of the sample: hours.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from kernel_cases import OWN, Case, Schedule, check, needs_interpreter, program_of
from pairwise_sample import pairwise

from rrnn.backends.triton.plan import LARGE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # NumPy on ∞ − ∞, in the interpreter

CELLS = ("B", "B-max-plus", "C", "F+o", "SRU", *OWN)
COMMON: dict[str, Any] = {
    "cell": CELLS,
    "dtype": ("float32", "bfloat16", "float16"),
    "mask": ("whole", "padded", "dead"),
    "start": ("given", "initial", "own"),
    "layout": ("dense", "strided", "columns"),
}
TINY = COMMON | {
    "shape": ((5, 1, 3), (1, 2, 1), (7, 1, 17), (11, 1, 2)),
    "schedule": (
        Schedule(2, 0, 2),
        Schedule(1, 3, 1),
        Schedule(4, 4, 2, stages=2),
        Schedule(2, 0, 3, stages=3),
        Schedule(2, 2, 2, chained=True),
    ),
}
LARGER = COMMON | {
    "cell": (*CELLS, "ngram4", "max-plus-3"),
    "shape": ((33, 2, 70), (1, 3, 1), (150, 2, 40), (257, 1, 129)),
    "schedule": (
        Schedule(4, 0, 4),
        Schedule(2, 64, 4),
        Schedule(1, 32, 8, stages=3),
        Schedule(2, 0, 3, stages=2),
        Schedule(4, 4, 4, chained=True),
    ),
    "device": ("cuda",),
    "block": (64,),
}


def cases(factors: dict[str, Any]) -> list[Case]:
    if os.environ.get("RRNN_MATRIX") == "full":
        return [Case(**dict(zip(factors, row, strict=True))) for row in product(*factors.values())]
    return [Case(**row) for row in pairwise(factors)]


@pytest.mark.slow
@needs_interpreter
@pytest.mark.parametrize("case", cases(TINY), ids=str)
def test_interpreted(case: Case) -> None:
    check(case)


def compilable(case: Case) -> Case:
    """Large programs unrolled are compiled for minutes; no plan unrolls or chains them."""
    if len(program_of(case.cell).instructions) <= LARGE:
        return case
    return replace(case, schedule=case.schedule._replace(unroll=1, every=1, chained=False))


@pytest.mark.gpu
@pytest.mark.parametrize("case", [compilable(case) for case in cases(LARGER)], ids=str)
def test_on_the_gpu(case: Case) -> None:
    check(case)
