"""What the compiler makes of the paper's cells, pinned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rrnn.ir import Program, adjoint, lower, scan_form
from rrnn.zoo import get_cell

CELLS = ["B", "B-max-plus", "C", "F", "ngram4"]


@pytest.mark.parametrize("name", CELLS)
def test_program(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"ir/{name}.txt", lower(get_cell(name)).program.text)


@pytest.mark.parametrize("name", ["B", "B-max-plus"])
def test_adjoint(name: str, golden: Callable[[str, str], None]) -> None:
    gradient = adjoint(lower(get_cell(name)).program)
    golden(f"ir/{name}.adjoint.txt", gradient.step.text + "\n" + gradient.epilogue.text)


@pytest.mark.parametrize(
    ("name", "stored"),
    [("B", 1), ("B-max-plus", 1), ("C", 2), ("F", 2), ("SRU", 1)] + [(f"ngram{n}", n) for n in (1, 2, 4, 9)],
)
def test_only_what_needs_memory_is_stored(name: str, stored: int) -> None:
    assert len(lower(get_cell(name)).program.states) == stored


@pytest.mark.parametrize(
    ("name", "carried"), [("B", 2), ("B-max-plus", 2), ("C", 5), ("F", 5), ("ngram4", 14)]
)
def test_a_chunk_carries_what_reachability_allows(name: str, carried: int) -> None:
    assert len(scan_form(lower(get_cell(name)).program).carried) == carried


@pytest.mark.parametrize("name", CELLS)
def test_lowering_gives_the_same_text_each_time(name: str) -> None:
    lower.cache_clear()
    first = lower(get_cell(name)).program.text
    lower.cache_clear()
    assert lower(get_cell(name)).program.text == first
    assert Program.parse(first).text == first
