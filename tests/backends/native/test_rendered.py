"""The C itself: golden files, and what the arrangement of loops promises."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

from rrnn import get_cell
from rrnn.backends.native import families
from rrnn.backends.native.loops import Lines, Loops, Store
from rrnn.backends.native.render import block_lanes, header, render_backward, render_forward
from rrnn.cli import main
from rrnn.ir import lower


@pytest.mark.parametrize("name", ["B", "F", "B-max-plus"])
def test_golden_kernels(name: str, golden: Callable[[str, str], None]) -> None:
    program = lower(get_cell(name)).program
    golden(f"c/{name}.forward.c", render_forward(program, torch.float32))
    golden(f"c/{name}.backward.c", render_backward(program, torch.float32))


def test_derive_prints_both_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "B", "--c"]) == 0
    printed = capsys.readouterr().out
    program = lower(get_cell("B")).program
    for source in (render_forward(program, torch.float32), render_backward(program, torch.float32)):
        assert source in printed


def test_no_exponential_is_computed_twice() -> None:
    """log σ and its gradient σ(−x) share one, and so do logaddexp and the shares of its arguments."""
    source = render_backward(lower(get_cell("B-max-plus")).program, torch.float32)
    again, back = source.split("static void back(")
    assert again.count("decay_f(") == 1 and back.count("decay_f(") == 0 and back.count("tanh_f(") == 1


def test_what_heads_share_is_computed_once_for_all_lanes() -> None:
    """The gate of GLA and its bias belong to a head, so exponentials run over the 64 states alone; and the gradient of
    the bias is added up where the gate's is."""
    program = lower(get_cell("GLA", states=64)).program
    forward, backward = (
        families.render_forward(program, torch.float32),
        families.render_backward(program, torch.float32),
    )
    step = forward[forward.index("static void step(") :]
    shared, lanes = step.split("for (long i = 0;", 1)
    assert "exp_f(" in shared and "decay_f(" in shared and "exp_f(" not in lanes and "decay_f(" not in lanes
    back = backward[backward.index("static void back(") :]
    assert back.count("= total(sums[") == 3  # of keys, gates and queries
    assert re.search(r"acc\[\(0 \+ k0\) \* PITCH\] \+= total1;", back)


def test_the_header_never_reads_or_sets_the_processors_mode() -> None:
    assert not any(word in header() for word in ("_MM_SET", "mxcsr", "fesetround", "fast-math\n"))


def test_blocks_shrink_with_their_rows() -> None:
    assert block_lanes(1) == block_lanes(0) == 768
    assert 64 <= block_lanes(200) < block_lanes(20) and all(block_lanes(r) % 64 == 0 for r in range(300))


# ---- loops ---------------------------------------------------------------------------------------------------------


def test_a_stage_ends_where_an_exponential_waits_for_another() -> None:
    lines = Lines("f")
    x = lines.add("a[i]")
    gate = lines.add("tanh_{s}({0})", x)
    twice = lines.add("{0} + {1}", gate, x)
    out = lines.add("tanh_{s}({0})", twice)
    loops = Loops(lines, [Store("o[i]", out)])
    first, second = loops.bodies
    assert first[-1] == "row[0][i] = v2;" and "const real v2 = row[0][i];" in second
    assert not any("a[i]" in line for line in second)  # what waits in scratch need not be computed again


def test_a_place_is_written_after_its_last_read() -> None:
    """z0 ← tanh(z0), z1 ← old z0, while a later stage still reads the old z1."""
    lines = Lines("f")
    z0, z1 = lines.add("z[0]"), lines.add("z[1]")
    new = lines.add("tanh_{s}({0})", z0)
    late = lines.add("{0} * {1}", lines.add("exp_{s}({0})", new), z1)
    loops = Loops(lines, [Store("z[0]", new, z0), Store("z[1]", z0, z1), Store("o[i]", late)])
    first, second = loops.bodies
    assert "z[1] = v0;" not in first and "z[1] = v0;" in second
    # and since the old z0 is read there, the new one waits, too
    assert "z[0] = v2;" not in first and "z[0] = v2;" in second


def test_equal_lines_are_one() -> None:
    lines = Lines("d")
    a = lines.add("a[i]")
    assert lines.add("-{0}", a) == lines.add("-{0}", a)
    assert lines.lines[lines.number(-0.5)].text == "(-0.5)" and Lines("f").number(1.0) == 0
    assert lines.lines[lines.number(float("-inf"))].text == "(-INFINITY)"


def test_long_chains_are_no_recursion() -> None:
    lines = Lines("f")
    total = lines.add("a[i]")
    for k in range(5000):
        total = lines.add("{0} + {1}", total, lines.number(float(k + 1)))
    assert len(Loops(lines, [Store("o[i]", total)]).bodies[0]) == 5002
