"""A semiring of a user whose ⊗ is not commutative: quaternions. Everything multiplies in the order of the path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chunked_reference
import pytest
import torch

import rrnn
from rrnn import Cell, RationalRNN, Semiring, construct, interpret, linear, one, parameter, tanh
from rrnn.backends import get_backend
from rrnn.backends.interface import CellCall
from rrnn.backends.reference import Inputs
from rrnn.errors import AutomatonError, SemiringError
from rrnn.ir import lower
from rrnn.ops import initial_state
from rrnn.semirings import SEMIRINGS
from rrnn.theory import verify_cell
from rrnn.theory.unit_automata import scores


def times(s: Any, a: Any, b: Any) -> Any:
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


def norm(s: Any, a: Any) -> Any:
    return s.sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2] + a[3] * a[3])


@pytest.fixture
def ring() -> Iterator[Semiring]:
    yield rrnn.register_semiring(
        Semiring(
            "quaternions",
            components=("w", "x", "y", "z"),
            zero=(0.0, 0.0, 0.0, 0.0),
            one=(1.0, 0.0, 0.0, 0.0),
            plus=lambda s, a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
            times=times,
            commutative=False,
            has_gradient=True,
            strength=norm,
            magnitude=norm,
            constructors={"quaternion": (("w", "x", "y", "z"), lambda s, w, x, y, z: (w, x, y, z))},
        )
    )
    del SEMIRINGS["quaternions"]


def bigrams(ring: Semiring) -> Cell:
    u, v, w = (
        construct("quaternion", *(tanh(linear(n)) for n in names)) for names in ("abcd", "efgh", "ijkl")
    )
    cell = Cell("C", ring).initial("q0").loop("q0", one).arc("q0", "q1", u).loop("q1", v).arc("q1", "q2", w)
    cell = cell.epsilon("q1", "q3", construct("quaternion", 0.5, 0.3, parameter("p"), 0.1)).arc("q3", "q2", v)
    return cell.loop("q2", v).final("q2", construct("quaternion", 0.5, 0.3, 0.2, parameter("p")))


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_layers_are_their_automata(ring: Semiring, backend: str) -> None:
    with rrnn.use_backend(backend):
        verdict = verify_cell(bigrams(ring))
    assert verdict.verdict == "rational" and verdict.max_error is not None and verdict.max_error < 1e-14


def test_equations_keep_the_order(ring: Semiring) -> None:
    assert "z²ₜ = (z²ₜ₋₁ ⊕ z¹ₜ₋₁ ⊗ w³) ⊗ w¹ₜ ⊕ z¹ₜ₋₁ ⊗ w⁴ₜ\n" in rrnn.equations(bigrams(ring))
    assert "zₜ  = z²ₜ ⊗ w⁵\n" in rrnn.equations(bigrams(ring))


def test_chunks(ring: Semiring) -> None:
    """The parallel scan of the reference against one step after another."""
    program = lower(bigrams(ring)).program
    g = torch.Generator().manual_seed(0)
    x = torch.randn(7, 2, len(program.projections), 3, generator=g, dtype=torch.float64)
    call = CellCall(program, x, torch.randn(len(program.parameters), 3, generator=g, dtype=torch.float64))
    out = x.new_empty(7, 2, 4 * 3)
    final, _ = get_backend("reference").forward(call, None, out)
    state = initial_state(program, call.params, 2)
    for chunk in (2, 3, 7):
        outputs, end, _ = chunked_reference.forward(program, Inputs.of(call), state, chunk)
        torch.testing.assert_close(outputs, out)
        torch.testing.assert_close(end, final)


def test_readings(ring: Semiring) -> None:
    torch.manual_seed(0)
    layer, x = (
        RationalRNN(bigrams(ring), 3, 2, dtype=torch.float64),
        torch.randn(5, 1, 3, dtype=torch.float64),
    )
    machine = rrnn.to_wfsa(layer, 1, {s: x[i, 0] for i, s in enumerate("abcde")})
    wanted = scores(layer, x)[-1, 0, 1]
    torch.testing.assert_close(machine.score("abcde"), wanted)
    reading = interpret.read(layer, x, [list("abcde")])
    for paths in (machine.k_best("abcde", 1000), interpret.k_best(reading, 1000)[1].paths):
        total = ring.sum(path.weight for path in paths)
        assert ring.close(total, tuple(wanted.tolist()), 1e-6)
    (masses,) = interpret.arc_masses(reading)
    consuming = [n for n, arc in enumerate(masses.arcs) if not arc.epsilon]
    for t in range(5):  # every path consumes one symbol at each step
        torch.testing.assert_close(masses.mass[t, consuming, 0, 1].sum(0), wanted)
    without = interpret.leave_one_out(reading).without[2, 0, 1]
    torch.testing.assert_close(without, machine.score("abde"))


def test_what_needs_another_order_says_so(ring: Semiring) -> None:
    layer, x = (
        RationalRNN(bigrams(ring), 3, 2, dtype=torch.float64),
        torch.randn(3, 1, 3, dtype=torch.float64),
    )
    machine = rrnn.to_wfsa(layer, 1, {s: x[i, 0] for i, s in enumerate("abc")})
    with pytest.raises(
        SemiringError, match=r"need a commutative ⊗; that of quaternions is not. Score the strings"
    ):
        machine.backward("abc")
    with pytest.raises(SemiringError, match="reverse needs a commutative"):
        machine.reverse()
    with pytest.raises(
        AutomatonError, match=r"decompose divides weights by real numbers.*from_real and to_real"
    ):
        interpret.decompose(interpret.read(layer, x, [list("abc")]))
