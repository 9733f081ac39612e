"""ISAN and linear Elman networks as cells: the recurrence of their papers on every backend, and their automata."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from kernel_cases import needs_interpreter
from torch import Tensor
from zoo.test_wide import close, gradients

import rrnn
from rrnn import RationalRNN, zoo
from rrnn.automata import Cell
from rrnn.cli import main
from rrnn.errors import CellError, ShapeError
from rrnn.theory import to_wfsa

SYMBOLS, UNITS = 4, 5
NAMES = ["ISAN", "linear-Elman"]


def build(name: str, dtype: torch.dtype = torch.float64) -> RationalRNN:
    torch.manual_seed(0)
    rnn = RationalRNN(zoo.get_cell(name, units=UNITS), SYMBOLS, UNITS, dtype=torch.float64)
    for value in rnn.parameters():
        if value.requires_grad:
            torch.nn.init.normal_(value, std=0.4)
    return rnn.to(dtype)


def only_layer(rnn: RationalRNN) -> Any:
    return rnn.layers[0]


def symbols(*shape: int) -> Tensor:
    """Return one-hot vectors."""
    drawn = torch.randint(SYMBOLS, shape, generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.one_hot(drawn, SYMBOLS).double()


def equations(name: str, rnn: RationalRNN, x: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Return all states (T, B, d), zeros where a sequence has ended, and the last ones (B, d)."""
    layer, d = only_layer(rnn), UNITS
    weight, given = layer.weight, dict(layer.named_parameters())
    outputs, finals = [], []
    for b, length in enumerate(lengths):
        c, states = x.new_zeros(d), []
        for t in range(x.shape[0]):
            if t < length:
                v = x[t, b]
                if name == "ISAN":  # b first, then the matrix, source by source
                    matrix = (weight[d:] @ v).view(d, d).T
                    c = matrix @ c + weight[:d] @ v
                else:
                    matrix = given["cells.0.parameter.W"].view(d, d).T
                    c = matrix @ c + weight @ v + given["cells.0.bias.U"].view(d)
            states.append(c if t < length else torch.zeros_like(c))
        outputs.append(torch.stack(states))
        finals.append(c)
    return torch.stack(outputs, 1), torch.stack(finals)


def run(name: str, rnn: RationalRNN, x: Tensor, **options: Any) -> list[Tensor]:
    """Return outputs, last states (B, d) and all gradients."""
    v = x.clone().requires_grad_()
    if name in NAMES:
        out, last = equations(name, rnn, v, options["lengths"])
    else:
        with rrnn.use_backend(name):
            out, state = rnn(v, **options)
            last = state[0].states[0][0]  # all units have the same states: there is one row
            return [out, last, *gradients(rnn, v, out, last)]
    return [out, last, *gradients(rnn, v, out, last)]


BACKENDS = [
    ("reference", torch.float64, 1e-10),
    ("affine", torch.float64, 1e-10),
    ("affine", torch.float32, 1e-4),
    ("affine", torch.bfloat16, 0.05),
    pytest.param("native", torch.float64, 1e-10, marks=pytest.mark.slow),
    pytest.param("native", torch.float32, 1e-4, marks=pytest.mark.slow),
    pytest.param("native", torch.bfloat16, 0.05, marks=pytest.mark.slow),
    pytest.param("triton", torch.float32, 1e-4, marks=[pytest.mark.slow, needs_interpreter]),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend, dtype, tolerance", BACKENDS)
def test_equations(name: str, backend: str, dtype: torch.dtype, tolerance: float) -> None:
    rnn, x, lengths = build(name, dtype), symbols(6, 3), [6, 4, 0]
    exact = build(name)
    exact.load_state_dict(rnn.state_dict())
    expected = run(name, exact, x, lengths=lengths)
    found = run(backend, rnn, x.to(dtype), lengths=lengths)
    assert all(close(a.double(), b, tolerance) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_steps_states_and_packed_sequences(name: str) -> None:
    rnn, x = build(name), symbols(7, 1)
    whole, end = rnn(x)
    _, state = rnn(x[:4])
    rest, after = rnn(x[4:6], state)
    last, final = rnn.step(x[6], after)
    assert close(torch.cat([rest, last.unsqueeze(0)]), whole[4:])
    assert close(final[0].states[0], end[0].states[0])
    packed, _ = rnn(x[:, 0], cu_seqlens=[0, 3, 3, 7])
    assert close(packed, torch.cat([rnn(x[:3])[0], rnn(x[3:])[0]])[:, 0])


def test_equal_to_the_layer() -> None:
    """The layer with kernels of its own computes what its cell says."""
    torch.manual_seed(0)
    layer, rnn = zoo.layer("ISAN", SYMBOLS, UNITS, dtype=torch.float64), build("ISAN")
    with torch.no_grad():
        only_layer(rnn).weight[:UNITS] = layer.bias.T
        only_layer(rnn).weight[UNITS:] = layer.weight.mT.flatten(1).T
    x = symbols(6, 3)
    assert close(rnn(x)[0], layer(x.argmax(-1))[0])
    elman, rnn = zoo.layer("linear-Elman", SYMBOLS, UNITS, dtype=torch.float64), build("linear-Elman")
    with torch.no_grad():
        only_layer(rnn).weight.copy_(elman.weight_ih)
        given = dict(only_layer(rnn).named_parameters())
        given["cells.0.parameter.W"].view(UNITS, UNITS).copy_(elman.weight_hh.T)
        given["cells.0.bias.U"].view(UNITS).copy_(elman.bias)
    assert close(rnn(x)[0], elman(x)[0])


@pytest.mark.parametrize("name", NAMES)
def test_automata(name: str) -> None:
    """Unit j is the score of the paper's D_j, on every string."""
    rnn = build(name)
    machines = [to_wfsa(rnn, j, torch.eye(SYMBOLS, dtype=torch.float64)) for j in range(UNITS)]
    for string in product(range(SYMBOLS), repeat=3):
        out = rnn(torch.eye(SYMBOLS, dtype=torch.float64)[list(string)].unsqueeze(1))[0][-1, 0]
        scores = torch.tensor([float(machine.score(string)) for machine in machines], dtype=torch.float64)
        assert close(scores, out)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_texts(name: str) -> None:
    cell = zoo.get_cell(f"{name}:units=3")
    assert Cell.from_text(cell.to_text()) == cell
    assert "Σⱼ" in rrnn.equations(cell)
    assert (
        zoo.cell_to_show(name) == zoo.get_cell(name, units=4) and zoo.cell_to_show(f"{name}:units=3") == cell
    )
    assert RationalRNN(f"{name}:units=3", 4, 3)(torch.randn(2, 1, 4))[0].shape == (2, 1, 3)
    with pytest.raises(CellError, match=f"Say how many, as in {name}:units=4"):
        zoo.get_cell(name)
    for made in (zoo.layer(f"{name}:units=3", 4, 3), zoo.layer(name, 4, 3, units=3)):
        assert isinstance(made, RationalRNN) and made.cells[0][0] == cell
    assert zoo.get_model(f"{name}:units=3").is_cell and not zoo.get_model(name).is_cell


def test_commands_take_them_with_a_number_of_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "ISAN:units=8"]) == 0
    shown = capsys.readouterr().out
    assert "Parameters of a layer of 8 units" in shown
    assert 'To build: rrnn.RationalRNN("ISAN:units=8", input_size, hidden_size)\nThe automaton alone' in shown
    assert main(["verify", "ISAN:units=8", "linear-Elman:units=9"]) == 0
    assert "2 models agree with their automata" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("units, heads", [(5, 1), (8, 2)])
def test_each_unit_must_read_a_state(name: str, units: int, heads: int) -> None:
    message = rf"with 4 states and {units} units, unit 4 reads none.* Give h at least {units} states, or"
    with pytest.raises(ShapeError, match=message):
        RationalRNN(f"{name}:units=4", 3, units, heads=heads)
    with pytest.raises(ShapeError, match=message):
        RationalRNN(f"{name}:units=4", 3, [4, units], heads=heads, num_layers=2)
    out, _ = RationalRNN(f"{name}:units={units}", 3, units - 1)(torch.randn(6, 1, 3))
    assert out.abs().sum((0, 1)).all()
