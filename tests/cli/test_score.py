"""`rrnn score`, as users call it."""

from __future__ import annotations

import io
import math
import os
import random
import sys
import threading
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from rrnn.cli import main
from rrnn.wfsa.io import save
from rrnn.wfsa.machine import WFSA

MODEL = """I: (state)
\t(0) 1.0
F: (state)
\t(0) 0.5
S: (state,symbol)
\t(0,0) 0.75
\t(0,2) 0.25
T: (state,symbol,state)
\t(0,0,0) 1.0
\t(0,2,0) 1.0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and strings, and the command run inside it."""
    (tmp_path / "m.txt").write_text(MODEL)
    (tmp_path / "s.txt").write_text("4 3\n0\n1 0\n2 0 2\n1 2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, list[str], str]:
    code = main(["score", *args])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def test_pautomac(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, err = run(capsys, "m.txt", "--format", "pautomac", "--strings", "s.txt")
    assert (code, err) == (0, "")
    assert lines == ["0.5", "0.1875", repr(0.5 * 0.375 * 0.125), "0.0625"]


def test_scores_are_exact_down_to_tiny_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = [0, 50, 99, 300]
    (folder / "s.txt").write_text("".join(f"{n}{' 2' * n}\n" for n in lengths))
    code, lines, _ = run(capsys, "m.txt", "--format", "pautomac", "--strings", "s.txt")
    assert code == 0
    assert [float(line) for line in lines] == [2.0 ** -(1 + 3 * n) for n in lengths]  # to 1e-271, bit by bit
    _, lines, _ = run(capsys, "m.txt", "--format", "pautomac", "--strings", "s.txt", "--semiring", "log")
    assert [float(line) for line in lines] == pytest.approx([-(1 + 3 * n) * math.log(2) for n in lengths])


def test_scores_beyond_floats_have_a_sign_and_a_logarithm(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A string of either sign that underflows, one that overflows, one whose paths cancel, and one without a path."""
    arcs = [(0, "n", 0, -1e-3), (0, "h", 0, 1e3), (0, "c", 1, 1e-200), (0, "c", 2, -1e-200), (0, "x", 9, 1.0)]
    arcs += [(1, "c", 3, 1e-200), (2, "c", 3, 1e-200)]
    save(WFSA(alphabet="nhcx", arcs=arcs, initial={0: 1.0}, final={0: 1.0, 3: 1.0}), "m.json")
    lengths = {"n": [200, 201], "h": [200]}
    lines = [f"{n}{f' {symbol}' * n}" for symbol, sizes in lengths.items() for n in sizes]
    Path("s").write_text("\n".join([*lines, "2 c c", "1 x", "1 n"]) + "\n")
    code, printed, err = run(capsys, "m.json", "--strings", "s")
    assert (code, err) == (0, "")
    assert printed[3:] == ["0.0", "0.0", "-0.001"]
    for line, n, sign, factor in zip(
        printed, (200, 201, 200), ("", "-", ""), (1e-3, 1e-3, 1e3), strict=False
    ):
        assert line.startswith(f"{sign}exp(") and line.endswith(")")
        assert float(line.removeprefix(f"{sign}exp(")[:-1]) == pytest.approx(n * math.log(factor), rel=1e-14)


def test_every_semiring_can_be_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("m.txt", "--format", "pautomac", "--strings", "s.txt", "--semiring")
    assert run(capsys, *args, "complex")[1][:2] == ["(0.5, 0.0)", "(0.1875, 0.0)"]
    assert run(capsys, *args, "signed_log")[1][0] == repr((1.0, math.log(0.5)))
    code, lines, err = run(capsys, *args, "reel")
    assert (code, lines) == (2, []) and "Did you mean 'real'?" in err


def test_scores_are_those_of_exact_arithmetic(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A branching model against fractions, where scores go down to 1e-90 and below."""
    rng, states = random.Random(0), range(4)

    def row(size: int) -> list[Fraction]:
        cuts = [0, *sorted(rng.sample(range(1, 1000), size - 1)), 1000]
        return [Fraction(b - a, 1000) for a, b in pairwise(cuts)]

    start, stop = row(4), [Fraction(1, 1000)] * 4
    emit = [row(3) for _ in states]
    go = [[row(4) for _ in range(3)] for _ in states]
    lines = ["I: (state)", *(f"({q}) {float(start[q])}" for q in states)]
    lines += ["F: (state)", *(f"({q}) {float(stop[q])}" for q in states)]
    lines += ["S: (state,symbol)", *(f"({q},{a}) {float(emit[q][a])}" for q in states for a in range(3))]
    lines += ["T: (state,symbol,state)"]
    lines += [f"({q},{a},{r}) {float(go[q][a][r])}" for q in states for a in range(3) for r in states]
    Path("m").write_text("\n".join(lines))
    strings = [[rng.randrange(3) for _ in range(length)] for length in (0, 1, 5, 40, 100, 200, 400)]
    Path("s").write_text("".join(" ".join(map(str, [len(x), *x])) + "\n" for x in strings))

    code, printed, _ = run(capsys, "m", "--format", "pautomac", "--strings", "s")
    assert code == 0
    smallest = 1.0
    for string, line in zip(strings, printed, strict=True):
        alpha = start
        for a in string:
            out = [alpha[q] * (1 - stop[q]) * emit[q][a] for q in states]
            alpha = [sum((out[q] * go[q][a][r] for q in states), Fraction()) for r in states]
        exact = sum((alpha[q] * stop[q] for q in states), Fraction())
        smallest = min(smallest, float(exact))
        assert abs(Fraction(float(line)) / exact - 1) < 1e-12
    assert 0 < smallest < 1e-90


def test_a_symbol_without_arcs_scores_zero_when_the_header_counts_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "s.txt").write_text("2 3\n2 1 0\n1 0\n")
    assert run(capsys, "m.txt", "--format", "pautomac", "--strings", "s.txt")[1] == ["0.0", "0.1875"]
    (folder / "s.txt").write_text("2 0 0\n2 1 0\n")
    code, _, err = run(capsys, "m.txt", "--format", "pautomac", "--strings", "s.txt")
    assert code == 2 and err.startswith("error: s.txt:2: symbol '1'")


def test_openfst_and_json_agree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = WFSA(
        "min-plus",
        alphabet=["a", "b"],
        arcs=[(0, "a", 1, 0.1), (1, "b", 1, 0.2)],
        initial={0: 0.0},
        final={1: 0.3},
    )
    save(machine, "m.fst", isymbols="m.syms")
    save(machine, "m.json")
    Path("s").write_text("1 a\n3 a b b\n1 b\n")
    expected = [repr(0.1 + 0.3), repr(0.1 + 0.2 + 0.2 + 0.3), "inf"]
    assert run(capsys, "m.json", "--strings", "s") == (0, expected, "")
    args = ("m.fst", "--format", "openfst", "--isymbols", "m.syms", "--strings", "s")
    assert run(capsys, *args) == (0, expected, "")
    code, lines, _ = run(capsys, *args, "--semiring", "real", "--costs", "plain")
    assert code == 0 and [float(line) for line in lines] == pytest.approx(
        [0.1 * 0.3, 0.1 * 0.2 * 0.2 * 0.3, 0]
    )


def test_integers_without_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m").write_text("0 1 1 1\n1\n")
    Path("s").write_text("1 1\n")
    args = ("m", "--format", "openfst", "--strings", "s")
    assert run(capsys, *args, "--acceptor", "yes")[:2] == (0, ["1.0"])
    assert run(capsys, *args, "--acceptor", "no")[:2] == (0, ["0.0"])
    code, lines, err = run(capsys, *args)
    assert (code, lines) == (2, []) and "m:1:" in err


def test_standard_input(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 0\n")))
    assert run(capsys, "m.txt", "--format", "pautomac", "--strings", "-")[:2] == (0, ["0.1875"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_models_come_through_pipes_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`rrnn score <(fstprint m.fst) …`: a pipe can be read once only."""
    os.mkfifo("pipe")
    Path("s").write_text("1 1\n")
    writer = threading.Thread(target=Path("pipe").write_text, args=("0 1 1 0.5\n1\n",))
    writer.start()
    assert run(capsys, "pipe", "--format", "openfst", "--strings", "s")[:2] == (0, ["0.5"])
    writer.join()


def test_the_header_can_be_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("s").write_text("1 2\n1 0\n")
    args = ("m.txt", "--format", "pautomac", "--strings", "s")
    assert run(capsys, *args)[1] == ["0.1875"]
    assert run(capsys, *args, "--header", "no")[1] == ["0.0625", "0.1875"]


def test_batches_change_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [(i * 7) % 11 for i in range(200)]
    Path("s").write_text("".join(f"{n}{' 0' * n}\n" for n in lengths))
    args = ("m.txt", "--format", "pautomac", "--strings", "s")
    whole = run(capsys, *args)[1]
    assert len(whole) == 200 and len(set(whole)) == 11
    for name, value in (("_BATCH_STRINGS", 7), ("_BATCH_SYMBOLS", 30), ("_BATCH_NUMBERS", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["rrnn.cli.score"], name, value)
            assert run(capsys, *args)[1] == whole


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("m.txt", "--strings", "s.txt"), "Pass format="),
        (("no.json", "--strings", "s.txt"), "no.json: No such file"),
        (("m.txt", "--format", "pautomac", "--strings", "no"), "no: No such file"),
        (("m.txt", "--format", "json", "--strings", "s.txt"), "m.txt:1: this is not JSON"),
        (("m.txt", "--format", "openfst", "--strings", "s.txt"), "m.txt:1: a state must be an integer"),
        (
            ("m.txt", "--format", "pautomac", "--strings", "m.txt"),
            "m.txt:1: a string must start with its length",
        ),
        (("m.txt", "--format", "pautomac", "--isymbols", "s.txt", "--strings", "s.txt"), "got isymbols"),
        ((".", "--format", "json", "--strings", "s.txt"), "Is a directory"),
    ],
)
def test_mistakes_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    code, lines, err = run(capsys, *args)
    assert (code, lines) == (2, []) and err.startswith("error: ") and message in err
