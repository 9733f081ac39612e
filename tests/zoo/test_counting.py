"""Cells that count: with saturated gates they compute parity, sums modulo k and products of permutations exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor

from rrnn import WFSA, CellError, get_cell, to_wfsa, zoo
from rrnn.automata import Expr
from rrnn.automata import expressions as ex
from rrnn.backends import use_backend
from rrnn.wfsa import instantiate
from rrnn.zoo.counting import permuting, ring, symmetric

LARGE = 40.0  # σ(40) is 1 in float64, and so is tanh(40)


def saturated(name: str, gates: Mapping[str, Sequence[float]], symbols: int, **parameters: float) -> Any:
    """Return a layer of one unit over one-hot symbols whose projection `name` has these values for each symbol."""
    layer = zoo.layer(name, symbols, 1, dtype=torch.float64)
    inside = layer.layers[0]
    with torch.no_grad():
        for projection, values in gates.items():
            inside.projection(0, projection).weight().copy_(torch.tensor([values], dtype=torch.float64))
        for parameter, value in parameters.items():
            inside.parameters_of(0)[parameter].fill_(value)
    return layer


def broken_stick(choices: Sequence[int], moves: int) -> dict[str, list[float]]:
    """Return the pre-activations with which symbol s draws the move choices[s]."""
    names = ["f", *(f"g{i}" for i in range(1, moves - 1))]
    return {name: [LARGE if move == i else -LARGE for move in choices] for i, name in enumerate(names)}


def run(layer: Any, string: Sequence[int]) -> Tensor:
    x = torch.eye(layer.input_size, dtype=torch.float64)[torch.tensor(string)]
    with use_backend("reference"):
        return layer(x)[0][:, 0]


def random_string(symbols: int, length: int = 300) -> list[int]:
    return torch.randint(symbols, (length,), generator=torch.Generator().manual_seed(symbols)).tolist()


@pytest.mark.parametrize("name", ["B-signed", "F-signed"])
def test_a_signed_gate_computes_parity(name: str) -> None:
    """f = 1 keeps the state, f = −1 reflects it in u: after an odd number of ones it is 2u, otherwise 0."""
    one = "1" if name == "F-signed" else ""
    gates = {f"f{one}": [LARGE, -LARGE], f"u{one}": [0.0, 0.5]}
    more = {"f2": [LARGE, LARGE], "u2": [0.0, 0.0]} if one else {}
    layer = saturated(name, gates | more, 2, **({"p1": LARGE} if one else {}))
    string = random_string(2)
    odd = torch.tensor(string).cumsum(0) % 2
    torch.testing.assert_close(run(layer, string), torch.tanh(odd.double()), atol=1e-12, rtol=0)


def test_an_unsigned_gate_cannot() -> None:
    """With f in [0, 1] the state on 1, 1, 1, … is monotone, so no threshold tells odd from even."""
    layer = saturated("B", {"f": [LARGE, -1.0], "u": [0.0, 0.5]}, 2)
    assert (run(layer, [1] * 30).diff() >= 0).all()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_ring_adds_modulo_k(k: int) -> None:
    layer = saturated(f"ring{k}", broken_stick(range(k), k), k, **{f"p{i}": 1.0 + i for i in range(1, k)})
    string = random_string(k)
    sums = torch.tensor(string).cumsum(0) % k
    torch.testing.assert_close(run(layer, string), 1.0 + sums.double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_permutations_are_multiplied(n: int) -> None:
    """One unit for each point, which reads the permutations in other names, tells the product from all others."""
    moves = list(permutations(range(n)))
    string, images = random_string(len(moves)), []
    for point in range(n):
        swap = list(range(n))
        swap[0], swap[point] = point, 0
        conjugates = [moves.index(tuple(swap[move[swap[i]]] for i in range(n))) for move in moves]
        layer = saturated(
            f"S{n}",
            broken_stick(conjugates, len(moves)),
            len(moves),
            **{f"p{i}": 1.0 + i for i in range(1, n)},
        )
        where = run(layer, string).round().long() - 1
        images.append([swap[i] for i in where.tolist()])
    product = tuple(range(n))
    for step, symbol in enumerate(string):
        product = tuple(moves[symbol][i] for i in product)
        assert tuple(image[step] for image in images) == product


@pytest.mark.parametrize("cell", [ring(3), ring(16), symmetric(3), symmetric(4)], ids=lambda cell: cell.name)
def test_states_stay_a_distribution(cell: Any) -> None:
    """The moves' weights sum to one from and into each state, whatever the gates are."""
    generator = torch.Generator().manual_seed(0)
    names = {node.name for arc in cell.arcs for node in ex.walk(arc.weight) if isinstance(node, ex.Linear)}
    gates = {name: torch.randn((), generator=generator).item() for name in sorted(names)}
    machine = instantiate(cell, {"a": gates}, {f"p{i}": 1.0 for i in range(1, len(cell.states))})
    total = torch.zeros(len(cell.states), len(cell.states), dtype=torch.float64)
    total.index_put_((machine.arc_source, machine.arc_target), machine.arc_weight, accumulate=True)
    assert (total >= 0).all()
    torch.testing.assert_close(total.sum(0), torch.ones_like(total[0]))
    torch.testing.assert_close(total.sum(1), torch.ones_like(total[0]))
    assert machine.score("a" * 500).item() == pytest.approx(1.0)


def test_a_unit_is_the_machine_that_counts() -> None:
    """`equivalent` proves that a saturated ring is the counter modulo 3, up to the tolerance."""
    layer = saturated("ring3", broken_stick([0, 1], 3), 2)
    arcs = [(i, symbol, (i + symbol) % 3, 1.0) for i in range(3) for symbol in (0, 1)]
    counter = WFSA("real", alphabet=[0, 1], arcs=arcs, initial={0: 1.0}, final={0: 1.0})
    assert to_wfsa(layer, 0, torch.eye(2)).equivalent(counter)


@pytest.mark.parametrize(
    "name", ["B", "C", "F", "ngram4", "example", "SRU", "QRNN2", "T-RNN", "T-LSTM", "T-GRU"]
)
def test_signed_gates_are_tanh(name: str) -> None:
    def functions(cell: Any) -> list[Expr]:
        loops = [arc.weight for arc in cell.arcs if arc.source == arc.target and arc.source != "q0"]
        return [weight for weight in loops if isinstance(weight, ex.Call)]

    plain, signed = get_cell(name), get_cell(name, signed=True)
    assert {loop.function for loop in functions(plain)} == {"sigmoid"}  # type: ignore[attr-defined]
    assert {loop.function for loop in functions(signed)} == {"tanh"}  # type: ignore[attr-defined]
    assert signed.name == f"{plain.name}_signed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_cell("ring1"), "a ring takes k from 2 to 16; got 1"),
        (lambda: get_cell("ring17"), "a ring takes k from 2 to 16; got 17"),
        (lambda: ring(True), "k from 2 to 16; got True"),
        (lambda: get_cell("S5"), "a symmetric group takes n from 2 to 4; got 5"),
        (lambda: get_cell("S3+o"), "S3 has no variant with an output gate"),
    ],
)
def test_mistakes(call: Callable[[], object], message: str) -> None:
    with pytest.raises(CellError, match=message):
        call()


def test_other_groups() -> None:
    """`permuting` takes any set of permutations: here the rotations and reflections of a square."""
    cell = permuting("square", [(0, 1, 2, 3), (1, 2, 3, 0), (3, 2, 1, 0)])
    assert len(cell.states) == 4 and cell.check()
