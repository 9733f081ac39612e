"""The class itself: how a machine is built, looked at and changed."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from random_machines import random_machine

import rrnn
from rrnn.errors import SemiringError, ShapeError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA, Arc


def small(semiring: str = "real", **changes: object) -> WFSA:
    given: dict[str, object] = {
        "alphabet": "ab",
        "arcs": [
            ("q0", "a", "q0", 1.0),
            ("q0", "b", "q1", 0.5),
            ("q0", EPSILON, "q2", 0.25),
            ("q2", "b", "q1", 2),
        ],
        "initial": {"q0": 1.0},
        "final": {"q1": 3.0},
    }
    return WFSA(semiring, **(given | changes))  # type: ignore[arg-type]


def test_attributes() -> None:
    machine = small()
    assert machine.semiring is SEMIRINGS["real"]
    assert machine.states == ("q0", "q1", "q2")
    assert machine.alphabet == ("a", "b")
    assert machine.state_index == {"q0": 0, "q1": 1, "q2": 2}
    assert machine.symbol_index == {"a": 0, "b": 1}
    assert (machine.num_states, machine.num_arcs) == (3, 4)
    assert machine.arc_source.tolist() == [0, 0, 0, 2]
    assert machine.arc_symbol.tolist() == [0, 1, -1, 1]
    assert machine.arc_target.tolist() == [0, 1, 2, 1]
    assert machine.arc_weight.tolist() == [1.0, 0.5, 0.25, 2.0]
    assert machine.initial_weight.tolist() == [1.0, 0.0, 0.0]
    assert machine.final_weight.tolist() == [0.0, 3.0, 0.0]
    assert machine.arcs[2] == Arc("q0", EPSILON, "q2", 0.25)
    assert (machine.initial, machine.final) == ({"q0": 1.0}, {"q1": 3.0})
    assert repr(machine) == "<WFSA real: 3 states, 4 arcs (1 ε), 2 symbols, 1 initial, 1 final>"
    assert str(machine.arcs[2]) == "q0 --ε/0.25--> q2"
    assert not machine.requires_grad


def test_states_in_order_of_appearance_or_as_given() -> None:
    assert WFSA(alphabet="a", arcs=[(3, "a", 1, 1.0)], initial={2: 1, 3: 1}, final={1: 1, 0: 1}).states == (
        2,
        3,
        1,
        0,
    )
    assert small(states=["q2", "q1", "q0", "alone"]).states == ("q2", "q1", "q0", "alone")


def test_any_hashable_may_be_a_state_or_a_symbol() -> None:
    machine = WFSA(
        alphabet=[("x", 1), None, 7],
        arcs=[((0, 1), ("x", 1), None, 2.0), (None, None, None, 3.0), (None, 7, None, 5.0)],
        initial={(0, 1): 1.0},
        final={None: 1.0},
    )
    assert machine.score((("x", 1), None, 7)).item() == 30.0
    assert machine.score([(("x", 1), None), [("x", 1)]]).tolist() == [6.0, 2.0]


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_dtypes(semiring: str) -> None:
    machine = random_machine(0, semiring)
    wanted = torch.int64 if semiring == "counting" else torch.float64
    assert {w.dtype for w in machine.weights} == {wanted}
    assert machine.score("ab").dtype == wanted


def test_merge() -> None:
    twice = [("q0", "a", "q1", 0.5), ("q0", "a", "q1", 0.25)]
    assert small(arcs=twice, merge="plus").arc_weight.tolist() == [0.75]
    assert small("max-plus", arcs=twice, merge="plus").arc_weight.tolist() == [0.5]
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    merged = small(arcs=[("q0", "a", "q1", weight), ("q0", "a", "q1", 0.25)], merge="plus")
    assert merged.score("a").item() == 2.25
    merged.score("a").backward()
    assert weight.grad is not None and weight.grad.item() == 3.0


def test_weights_may_be_tensors_with_a_graph() -> None:
    weight = torch.tensor(0.5, requires_grad=True)  # float32: the machine works in float64 all the same
    machine = small(arcs=[("q0", "b", "q1", weight * 2), ("q0", "a", "q0", 1)], final={"q1": weight})
    assert machine.requires_grad and machine.arc_weight.dtype == torch.float64
    machine.score("b").backward()
    assert weight.grad is not None and weight.grad.item() == pytest.approx(2.0)
    assert not machine.detach().requires_grad


def test_from_tensors_keeps_the_tensors() -> None:
    machine = small()
    weight = machine.arc_weight.clone().requires_grad_()
    again = WFSA.from_tensors(
        "real",
        machine.alphabet,
        machine.states,
        machine.arc_source,
        machine.arc_symbol,
        machine.arc_target,
        weight,
        machine.initial_weight,
        machine.final_weight,
    )
    assert again.same_as(machine) and machine.same_as(again)
    again.score("b").backward()
    assert weight.grad is not None and weight.grad.tolist() == [0.0, 3.0, 6.0, 0.75]
    with pytest.raises(ShapeError, match=r"shape \(4,\); got \(3,\)"):
        WFSA.from_tensors(
            "real",
            machine.alphabet,
            machine.states,
            machine.arc_source,
            machine.arc_symbol,
            machine.arc_target,
            weight[:3],
            machine.initial_weight,
            machine.final_weight,
        )


def test_same_as() -> None:
    machine = small()
    assert machine.same_as(small())
    assert machine != small()  # equality is identity: scores decide whether machines are equivalent
    for other in (
        small("max-plus"),
        small(alphabet="ba"),
        small(states=["q1", "q0", "q2"]),
        small(final={"q1": 3.5}),
        small(initial={"q0": 1.0, "q1": 1e-300}),
        small(arcs=machine.arcs[::-1]),
        small(arcs=machine.arcs[:-1]),
    ):
        assert not machine.same_as(other)


def test_changing_weights() -> None:
    machine = small()
    doubled = machine.map_weights(lambda w: 2 * w)
    assert doubled.arc_weight.tolist() == [2.0, 1.0, 0.5, 4.0]
    assert doubled.final_weight.tolist() == [0.0, 6.0, 0.0]
    shifted = small("max-plus").map_weights(lambda w: w + 1)
    assert shifted.final_weight.tolist() == [-torch.inf, 4.0, -torch.inf]  # 0̄ stays 0̄
    assert machine.with_semiring("boolean").score("b").item() == 1.0
    counts = machine.with_semiring("boolean").with_semiring("counting")
    assert counts.score(["b", "ab", "a"]).tolist() == [2, 2, 0]
    with pytest.raises(SemiringError, match="outside the max-times"):
        machine.with_semiring("max-times", torch.neg)


@pytest.mark.parametrize("semiring", ["log", "max-times", "max-plus", "min-plus"])
def test_reading_probabilities_in_another_semiring(semiring: str) -> None:
    machine = random_machine(2, "max-times", epsilon="acyclic").with_semiring("real")
    there = machine.with_semiring(semiring)
    back = there.with_semiring("real")
    for a, b in zip(machine.weights, back.weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-14, atol=0)
    if semiring == "log":
        torch.testing.assert_close(there.score("abba").exp(), machine.score("abba"))


def test_converting_keeps_gradients_and_zero_gets_none() -> None:
    weights = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)
    arcs = [("q0", "a", "q1", weights[0]), ("q0", "b", "q1", weights[1])]
    machine = small(arcs=arcs).with_semiring("log")
    machine.score(["b"]).sum().backward()
    assert weights.grad is not None and weights.grad.tolist() == [0.0, 2.0]


def test_weights_changed_in_place_are_seen() -> None:
    machine = small()
    assert machine.score("b").item() == 3.0
    with torch.no_grad():
        machine.arc_weight.mul_(2)
    assert machine.score("b").item() == 6.0 + 3 * (0.5 * 4 - 1)
    trained = WFSA(alphabet="a", arcs=[(0, "a", 0, 1.0)], initial={0: 1.0}, final={0: 1.0})
    trained.arc_weight.requires_grad_()
    for _ in range(2):  # a graph serves one backward pass; each score makes its own
        trained.score("aa").backward()
    assert trained.arc_weight.grad is not None and trained.arc_weight.grad.item() == 4.0


@pytest.mark.parametrize("semiring", ["real", "max-plus", "log"])
def test_inference_mode(semiring: str) -> None:
    outside = small(semiring)
    with torch.inference_mode():
        inside = small(semiring)
        for machine in (inside, outside):
            assert machine.score("ab").item() == machine.score_by_paths("ab")
            assert machine.best_path("ab") is not None
    assert outside.score("b").item() == inside.score("b").item() == inside.score_by_paths("b")
    outside.arc_weight.requires_grad_()
    outside.score("b").backward()


def test_copies() -> None:
    machine = small()
    machine.score("ab")
    assert pickle.loads(pickle.dumps(EPSILON)) is EPSILON and copy.deepcopy(EPSILON) is EPSILON
    for other in (copy.deepcopy(machine), pickle.loads(pickle.dumps(machine))):
        assert other.same_as(machine) and other.semiring is machine.semiring


def test_public_names() -> None:
    assert rrnn.WFSA is WFSA and rrnn.EPSILON is EPSILON and repr(EPSILON) == "ε"


def test_an_empty_machine_must_be_meant() -> None:
    nothing = WFSA(alphabet="a", states=[0], initial={}, final={}, allow_empty=True)
    assert nothing.score(["", "a"]).tolist() == [0.0, 0.0]
    assert nothing.score_by_paths("a") == 0.0
    assert nothing.total_weight().item() == 0.0
    assert nothing.k_best("a", 3) == [] and nothing.best_path("a") is None
