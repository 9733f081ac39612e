"""The generated Triton text: pinned, and rendered without triton and without a GPU."""

from __future__ import annotations

import subprocess
import symtable
import sys
from collections.abc import Callable

import pytest
from cell_calls import cell

from rrnn.automata import Cell, linear, score, tanh
from rrnn.backends.triton.module import render
from rrnn.backends.triton.plan import plan_of
from rrnn.cli import main
from rrnn.ir import lower
from rrnn.zoo import CELLS, get_cell

FORWARDS = ["forward", "summary", "join", "chained"]
KERNELS = [*FORWARDS, "backward", "parameters", "reverse_summary", "reverse_join", "reverse_chained"]


def functions(source: str) -> list[str]:
    """Return the functions of a text that must be Python. (A tree of all its nodes takes five times as long.)"""
    tables = symtable.symtable(source, "kernels", "exec").get_children()
    return [table.get_name() for table in tables if table.get_type() == "function"]


@pytest.mark.parametrize("name", ["B", "F", "B-max-plus"])
def test_golden(name: str, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]) -> None:
    assert main(["derive", name, "--triton"]) == 0
    golden(f"triton/{name}.py.txt", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CELLS if not get_cell(name).families])
def test_every_cell_is_rendered(name: str) -> None:
    program = lower(get_cell(name)).program
    assert functions(render(program, 4, 2)) == KERNELS
    assert functions(render(program, 1, 0)) == FORWARDS  # inference
    assert render(program, 4, 2) == render(program, 4, 2) != render(program, 2, 2)


@pytest.mark.slow
def test_rendering_needs_no_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from rrnn.backends.triton.module import render\n"
        "from rrnn.ir import lower\n"
        "from rrnn.zoo import get_cell\n"
        "print(len(render(lower(get_cell('F')).program, 8, 4)))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0 and int(result.stdout) > 1000, result.stderr


@pytest.mark.parametrize("name", ["complex-1", "expectation-1", "signed-log-1"])
def test_a_sum_of_several_ops_is_written_once(name: str) -> None:
    """Written as one expression, each ⊕ of signed-log would repeat its arguments, and a kernel take megabytes."""
    assert len(render(lower(cell(name)).program, unroll=2, every=1)) < 1_000_000


@pytest.mark.parametrize("states", [8, 16])
def test_dense_cells_have_no_kernels_for_chunks(states: int) -> None:
    """Composing transitions of states that are all connected costs more than chunks gain: 16 states took 6 MB."""
    names = [f"q{i}" for i in range(states)]
    dense = Cell("Dense").initial(names[0]).final(names[-1])
    for source in names:
        for target in names:
            dense = dense.arc(source, target, tanh(linear(f"{source}_{target}")))
    program = lower(dense.output(score)).program
    text = render(program, unroll=2, every=1)
    assert "def forward(" in text and "def backward(" in text and "def summary(" not in text
    assert len(text) < 500_000
    for backward in (False, True):
        assert plan_of(program, 1024, 16, 4, 1, backward).chunk == 0
    assert plan_of(lower(get_cell("F")).program, 1024, 16, 4, 4, False).chunk > 0
