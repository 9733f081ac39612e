"""Read-outs written as arcs of an automaton: beside ε-arcs and final weights, over several semirings."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from layer_cases import inputs

from rrnn import RationalRNN, interpret
from rrnn.automata import Cell, Expr, family, linear, log_sigmoid, one, parameter, sigmoid, unroll
from rrnn.automata.unroll import read_out_arcs, written_states
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS, get_semiring
from rrnn.theory import scores, to_wfsa

H = family("h", 2)
TEXT = (0, 2, 1, 1, 0)


def weight(ring: str, x: Expr) -> Expr:
    return log_sigmoid(x) if get_semiring(ring).logarithmic else 0.5 * sigmoid(x)


def chain(ring: str) -> Cell:
    """Two read states, one reached by one ε-arc, the other by two; and an arc that leaves the last one."""
    cell = started(ring).epsilon("q1", "q2", number(ring, "e")).epsilon("q2", "q3", number(ring, "f"))
    cell = cell.arc("q3", "q1", weight(ring, linear("b"))).read("q3", weight(ring, linear("c")))
    return cell.read("q2", weight(ring, linear("d"))).final("q1", number(ring, "z"))


def cycle(ring: str) -> Cell:
    cell = started(ring).epsilon("q1", "q2", number(ring, "e")).epsilon("q2", "q1", number(ring, "f"))
    return cell.epsilon("q2", "q2", number(ring, "g")).read("q2", weight(ring, linear("c")))


def limited(ring: str) -> Cell:
    return cycle(ring).read("q1", weight(ring, linear("d"))).limit_epsilon(3)


def none_at_the_end(ring: str) -> Cell:
    return chain(ring).limit_epsilon(2, after_last=False).read("q1", weight(ring, linear("a")))


def windows(ring: str) -> Cell:
    cell = (
        started(ring).epsilon("q1", "y1", number(ring, "e")).read("q1", weight(ring, linear("d", window=2)))
    )
    return cell.read("y1", weight(ring, linear("c")))


def families(ring: str) -> Cell:
    cell = Cell("f", ring).initial("q0").loop("q0", one).epsilon("q0", "q1", number(ring, "e"))
    cell = cell.arc("q1", H, weight(ring, linear("u", over=H))).loop(H, weight(ring, linear("f", over=H)))
    return cell.read(H, weight(ring, linear("c", over=H, per="head")))


def with_final_weights(ring: str) -> Cell:
    """They count for the empty string alone: q1's is reached by an ε-arc, q2's not at all, the family's is initial."""
    cell = (
        started(ring).epsilon("q0", "q1", number(ring, "e")).initial(H, weight(ring, parameter("i", over=H)))
    )
    cell = cell.loop(H, weight(ring, linear("k", over=H))).arc("q1", "q2", weight(ring, linear("a")))
    for state in ("q1", "q2"):
        cell = cell.read(state, weight(ring, linear(f"c{state}"))).final(state, number(ring, f"r{state}"))
    return cell.read(H, weight(ring, linear("c", over=H))).final(H, weight(ring, parameter("r", over=H)))


def without_loops(ring: str) -> Cell:
    """The family's initial weights count for the empty string alone."""
    cell = (
        started(ring)
        .initial(H, weight(ring, parameter("i", over=H)))
        .arc("q0", H, weight(ring, linear("a", over=H)))
    )
    return cell.read(H, weight(ring, linear("c", over=H))).final(H).final("q1")


def number(ring: str, name: str) -> Expr:
    return weight(ring, parameter(name))


def started(ring: str) -> Cell:
    cell = Cell("x", ring).initial("q0", number(ring, "l")).loop("q0", one)
    return cell.arc("q0", "q1", weight(ring, linear("u"))).loop("q1", weight(ring, linear("w")))


CELLS = [chain, cycle, limited, none_at_the_end, windows, families, with_final_weights, without_loops]


def layer_of(cell: Cell) -> RationalRNN:
    torch.manual_seed(0)
    layer = RationalRNN(cell, 3, 3, dtype=torch.float64)
    for value in layer.parameters():
        torch.nn.init.normal_(value)
    return layer


@pytest.mark.parametrize(
    ("build", "ring"),
    [
        (build, ring)
        for build in CELLS
        for ring in ("real", "log", "max-plus")
        if (build, ring) != (cycle, "log")
    ],
)
def test_every_prefix_is_scored_as_the_layer_does(build: Any, ring: str) -> None:
    layer, vectors = layer_of(build(ring)), inputs(3, 3, seed=1)
    found = scores(layer, vectors[list(TEXT)]).detach()
    for unit in range(3):
        machine = to_wfsa(layer, unit, vectors)
        torch.testing.assert_close(machine.prefix_scores(TEXT)[1:], found[:, unit])
        by_paths = (
            machine.score_by_paths(TEXT[:3]) if build not in (cycle, limited) else machine.score(TEXT[:3])
        )
        assert float(by_paths) == pytest.approx(float(found[2, unit]), rel=1e-12)


@pytest.mark.parametrize("build", CELLS)
def test_rows_of_entry_maps_add_up(build: Any) -> None:
    layer = layer_of(build("real"))
    x = inputs(5, 3, seed=2)
    found = interpret.entry_map(interpret.read(layer, x))
    total = found.mass.sum(1) + (0 if found.constant is None else found.constant)
    torch.testing.assert_close(total[:, 0], scores(layer, x))


def test_the_empty_string_has_the_final_weights() -> None:
    """λ(q0) · e · ρ(q1), and λ · ρ of each state of the family."""
    layer = layer_of(with_final_weights("real"))
    p = {
        name: 0.5 * torch.sigmoid(value.detach()) for name, value in layer.layers[0].parameters_of(0).items()
    }  # type: ignore[operator]
    for unit in range(3):
        expected = p["l"][unit] * p["e"][unit] * p["rq1"][unit] + (p["i"] * p["r"])[:, unit].sum()
        machine = to_wfsa(layer, unit, inputs(3, 3))
        assert float(machine.score(())) == pytest.approx(float(expected), rel=1e-12)


def test_names() -> None:
    """Copies stand for the state that is left; no state of the cell begins as they do."""
    cell = windows("real")
    known = written_states(cell)
    assert [known.get(name) for name in unroll(cell).states if name not in cell.states] == [None, "q1", "y1"]
    assert {source for source, _ in read_out_arcs(chain("real"))} == {"q1"}


def test_a_read_out_before_weights_of_arcs_needs_a_commutative_product() -> None:
    ring = get_semiring("log")
    with mock.patch.object(ring, "commutative", False):
        assert unroll(families("log")).check()
        with pytest.raises(
            CellError, match=r"the ⊗ of log is not commutative. Put the weights of these ε-arcs"
        ):
            unroll(chain("log"))
    assert SEMIRINGS["log"].commutative
