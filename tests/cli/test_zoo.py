"""`rrnn zoo`, as users call it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rrnn import zoo
from rrnn.cli import main
from rrnn.ir.equations import equations
from rrnn.zoo.references import REFERENCES


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["zoo", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    head, *lines = out.splitlines()
    assert (code, err) == (0, "") and head.split() == ["name", "semiring", "states", "rational", "source"]
    rows = {line.split()[0]: line.split(maxsplit=4)[1:] for line in lines[: len(zoo.MODELS)]}
    assert list(rows) == list(zoo.MODELS)
    assert rows["F"] == ["real", "4", "yes", "Peng et al. 2018"]
    assert rows["SoPa4-max-times"] == ["max-times", "7", "yes", "Schwartz et al. 2018"]
    assert rows["LSTM"] == ["–", "–", "no", "Hochreiter and Schmidhuber 1997"]
    assert rows["Mamba"] == ["real", "17", "yes", "Gu and Dao 2023"]  # one, and a family of 16
    assert rows["ISAN"] == ["real", "units+1", "yes", "Foerster et al. 2017"]
    for name, (semiring, states, rational, source) in rows.items():
        model = zoo.MODELS[name]
        assert (rational == "yes") == model.rational and source == model.paper
        if model.is_cell:
            cell = zoo.get_cell(name)
            assert (semiring, int(states)) == (cell.semiring_name, cell.state_count)
    assert f"{len(zoo.MODELS)} models" in out and "proved not to be" in out


def test_first_values_are_called_random_only_if_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "RWKV-6:states=8")[1].splitlines()
    assert [line.split()[-3:] for line in lines if "bias.w" in line] == [
        ["-6", "to", "-1"]
    ]  # rises with the index


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--json")
    models = json.loads(out)["models"]
    assert [model["name"] for model in models] == list(zoo.MODELS)
    assert models[0] == {
        "name": "B",
        "semiring": "real",
        "states": 2,
        "rational": "yes",
        "source": "Peng et al. 2018",
    }


def test_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "F")
    assert code == 0
    for line in equations(zoo.get_cell("F")).splitlines():
        assert f"  {line}\n" in out
    for text in (
        "Rational Recurrences. EMNLP 2018, arXiv:1808.09357",
        "Rational: yes.",
        "F over the real semiring: 4 states, 7 arcs (1 ε)",
        "q0 →ε q3 : r",
        "850 numbers",
        "layers.0.weight                40 × 20  random, up to ±0.39",
        "layers.0.cells.0.parameter.r   10       0",
        "The rows of weight: 10 of W_f¹, 10 of W_u¹, 10 of W_f², 10 of W_u².",
        "Initial state: c¹ = 0, c² = 0.",
        'To build: rrnn.RationalRNN("F", input_size, hidden_size)',
        "gate=False, g='identity', b_u=False",
    ):
        assert text in out


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("f+o:g=tanh,b_u", ["tanh(W_u² vₜ + b_u²)", "oₜ  = σ(W_o vₜ + b_o)", "cells.0.bias.u1"]),
        ("B-max-plus", ["Initial state: c = −∞.", "2 states, 3 arcs", "inputs='plain'"]),
        ("SRU", ["10 of W_r, 10 of a projection that replaces v", "activation='tanh'"]),
        ("QRNN3-ifo", ["layers.0.lagged.2", "pooling='ifo'"]),
        (
            "LSTM",
            ['rrnn.zoo.layer("LSTM", input_size, hidden_size)', "Rational: no.", "weight_hh_l0", "zeros"],
        ),
        (
            "ISAN",
            [
                'rrnn.zoo.layer("ISAN", num_symbols, hidden_size)',
                "reads 20 symbols",
                "W_x cₜ₋₁ + b_x",
                "h ⇉ h : W",
            ],
        ),
        ("Mamba", ["parameter.A_log 16 × 10 0 to 2.8", "bias.delta 10 random, -"]),
        ("RCNN3-state", ["may not be rational", "λₜ = σ(W_c cₜ₋₁"]),
    ],
)
def test_others(name: str, texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, name)
    assert code == 0 and out.startswith(f"{name}: ")
    for text in texts:
        assert text in " ".join(out.split()) or text in out


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_model_is_shown_and_fits(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in (80, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, _ = run(capsys, name)
        assert code == 0 and "Paper: " in out and "Parameters" in out and "To build: " in out
        assert max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 60])
def test_the_list_fits(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run(capsys)
    assert max(map(len, out.splitlines())) <= width


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "SRUU")
    assert (code, out) == (2, "") and "no model is called 'SRUU'" in err and "Did you mean 'SRU'?" in err
    code, _, err = run(capsys, "F:h=tanh")
    assert code == 2 and "F has the options gate, g, b_u, signed; got 'h'" in err


def test_every_paper_of_the_table_has_a_reference() -> None:
    papers = {model.paper for model in zoo.MODELS.values()}
    assert papers - {"rrnn"} == REFERENCES.keys()


def test_the_list_does_not_wait_for_torch() -> None:
    code = "import sys; from rrnn.cli import main; main(['zoo']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
