"""Bounds on the number of states: they are proved, they are those of known series, and bad input has clear errors."""

from __future__ import annotations

import math
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact_machines import Rational
from random_machines import random_machine

from rrnn import zoo
from rrnn.errors import AutomatonError, SemiringError, ShapeError
from rrnn.theory import Rank, rank, rank_model
from rrnn.theory.hankel import field_minor, selective_minor, shortlex
from rrnn.theory.intervals import Intervals, PrecisionError
from rrnn.theory.series import MachineUnit, scored
from rrnn.wfsa.minimise.exact_algebra import exact_rank

pytestmark = pytest.mark.slow

NUMBERS = [name for name in zoo.MODELS if name not in zoo.CELLS or not zoo.get_cell(name).semiring.components]
QUICK = ["B", "B-max-plus", "C", "F", "T-LSTM", "QRNN2", "CNN3", "ISAN", "linear-Elman", "GRU"]


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NUMBERS]
)
def test_the_zoo(name: str) -> None:
    wide = name in zoo.CELLS and zoo.get_cell(name).families  # more states than the search looks for
    found = rank_model(name, states=3) if wide else rank_model(name)
    if zoo.MODELS[name].rational:
        assert found.upper is not None and 1 < found.lower <= found.upper
        assert not wide or (found.lower, found.lower_kind) == (3, "certified")
        assert found.minimal == (name not in ("SoPa4", "SoPa4-max-times") and not wide)
    else:
        assert (found.lower, found.upper, found.lower_kind) == (12, None, "certified")
        assert found.verdict == f"{zoo.MODELS[name].proved}; these weights need at least 12 states"


@pytest.mark.parametrize(("symbols", "states"), [(1, 3), (2, 4), (3, 5), (4, 6)])
def test_a_window_of_two_needs_fewer_states_than_the_paper_s_construction(symbols: int, states: int) -> None:
    """The paper's automaton has 2·n + 1 states over n symbols (it is minimal for n = 1); n + 2 are enough."""
    found = rank_model("QRNN2", symbols=symbols)
    assert found.verdict == f"rational: minimal with {states} states"
    assert found.upper_kind == ("structural" if symbols == 1 else "exact")


@pytest.mark.parametrize("semiring", ["real", "log"])
def test_the_instances_of_proposition_1(semiring: str) -> None:
    """One unit and one letter: the orbit of Elman's F(x) = tanh(x/2 + 1) needs as many states as asked for."""
    layer = zoo.layer("RNN", 1, 1, dtype=torch.float64)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        layer.weight_hh_l0.fill_(0.5)
        layer.weight_ih_l0.fill_(1.0)
    found = rank(layer, 0, {"a": torch.ones(1)}, semiring=semiring, states=8)
    assert found.lower == 8 and found.log10 is not None and found.log10 < -40
    assert found.prefixes[0] == () or len({len(p) for p in found.prefixes}) == 8


def _filled(name: str, weight: float, bias: float) -> Rank:
    """Return the bounds for a unit whose weights and biases all have one value."""
    layer = zoo.layer(name, 2, 1, dtype=torch.float64)
    with torch.no_grad():
        for key, p in layer.named_parameters():
            p.fill_(bias if "bias" in key else weight)
    return rank(layer, 0, {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0, 2.0])})


@pytest.mark.parametrize(("name", "states"), [("B", 2), ("QRNN2", 3)])
def test_states_that_rounding_loses_are_found(name: str, states: int) -> None:
    """σ(45) is 1.0 in float64, so that 1 − f is 0 in the unit's machine, and its scores are all 0."""
    found = _filled(name, 0.5, 45.0)
    assert found.lower >= states and found.lower_kind == "certified"
    assert found.upper is not None and found.upper >= found.lower and found.upper_kind == "structural"


def test_a_bound_of_weights_that_are_0_is_not_called_one_of_all_weights() -> None:
    found = _filled("F", 0.0, 0.0)
    assert (found.lower, found.upper_kind) == (0, "exact") and found.upper is not None and found.upper < 3


# ---- known series ----------------------------------------------------------------------------------------------------


def _fibonacci(string: str) -> int:
    a, b = 0, 1
    for _ in string:
        a, b = b, a + b
    return a


@pytest.mark.parametrize(
    ("function", "alphabet", "states"),
    [
        (len, "a", 2),
        (lambda x: len(x) ** 3, "a", 4),
        (_fibonacci, "a", 2),
        (lambda x: Fraction(1, 3) ** len(x), "ab", 1),
        (lambda x: x.count("a") % 2, "ab", 2),
        (lambda x: x.count("a") * x.count("b"), "ab", 4),
        (lambda x: int(len(x) >= 3 and x[-3] == "a"), "ab", 4),
        (lambda x: int(x == "aaaaaa"), "ab", 7),
        (lambda x: 0, "ab", 0),
    ],
)
def test_known_series(function: Any, alphabet: str, states: int) -> None:
    found = rank(function, alphabet=alphabet, states=10)
    assert (found.lower, found.upper, found.lower_kind) == (states, None, "certified")


def test_a_series_without_a_wfsa() -> None:
    assert rank(lambda x: int(x.count("a") == x.count("b")), alphabet="ab", states=6).verdict == (
        "needs at least 6 states; no WFSA is known"
    )


def test_tuples_of_words_and_pairs_of_bounds() -> None:
    def f(words: tuple[str, ...]) -> tuple[float, float]:
        exact = float(words.count("good"))
        return exact - 1e-9, exact + 1e-9

    assert rank(f, alphabet=["good", "bad"]).lower == 2


def test_floats_with_a_stated_error_are_certified_and_others_are_numerical() -> None:
    def noisy(x: str) -> float:
        return len(x) + 1e-7 * ((hash(len(x)) * 2654435761) % 1000) / 1000

    assert rank(noisy, alphabet="a", error=1e-7).lower == 2
    assert rank(noisy, alphabet="a", error=1e-7).lower_kind == "certified"
    found = rank(noisy, alphabet="a", tolerance=1e-6)
    assert found.lower == 2 and found.lower_kind == "numerical" and not found.minimal
    assert found.verdict == "numerical rank 2 (floats without a stated error: nothing is proved)"
    assert (
        rank(lambda x: float(max(0, len(x) - 2)), alphabet="a", semiring="max-plus").lower_kind == "numerical"
    )


@pytest.mark.slow
def test_floats_after_whole_numbers_are_floats() -> None:
    """0.1·n has rank 2; rounding gives any float of it any rank."""

    def tenths(x: str) -> float:
        return 0.1 * len(x) if x else 0

    assert (rank(tenths, alphabet="a").lower, rank(tenths, alphabet="a").lower_kind) == (2, "numerical")
    found = rank(tenths, alphabet="a", error=1e-12)
    assert (found.lower, found.lower_kind) == (2, "certified")
    with pytest.raises(AutomatonError, match="return intervals for all strings or for none; for 'aa' it"):
        rank(lambda x: (0, 1) if len(x) == 2 else 0.1 * len(x), alphabet="a")


def test_an_infinite_float_is_exact_over_max_plus() -> None:
    found = rank(lambda x: len(x) if x else -math.inf, alphabet="a", semiring="max-plus")
    assert (found.lower, found.lower_kind) == (2, "certified")


def test_intervals_of_mpmath_and_precision_on_demand() -> None:
    from mpmath.ctx_iv import MPIntervalContext

    asked = []

    def f(x: str, precision: int) -> Any:
        asked.append(precision)
        context: Any = MPIntervalContext()
        context.prec = precision
        value = context.mpf(0)
        for _ in x:
            value = 1 / (1 + context.exp(-value / 8))
        return value

    found = rank(f, alphabet="a", states=8, precision=64)
    assert found.lower == 8 and found.bits == max(asked) > 64
    small = rank(f, alphabet="a", states=8, precision=64, max_precision=128)
    assert small.limited and 2 < small.lower < 8 and "the limit of 128 bits was reached" in small.verdict


# ---- machines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_machines(seed: int) -> None:
    machine = random_machine(seed, states=4)
    least = Rational((1, machine)).rank()
    assert exact_rank(machine) == least == rank(machine).lower == rank(machine).upper
    assert rank(machine).lower_kind == "exact"
    exact = Intervals(256)
    score = scored(MachineUnit(machine, exact))
    assert field_minor(score, machine.alphabet, 9).size == least


@pytest.mark.parametrize("seed", range(6))
def test_bounds_over_max_plus_never_exceed_the_states(seed: int) -> None:
    machine = random_machine(seed, "max-plus", states=3)
    found = rank(machine)
    assert found.upper is not None and found.lower <= found.upper <= 3


def test_the_unique_permutation_is_proved() -> None:
    """On max(i, j) no two rows are needed: it is a sum over one maximum. On −|i − j| every row is."""
    exact = Intervals(64)

    def value(f: Any) -> Any:
        return lambda string: exact.number(f(len(string)))

    assert selective_minor(value(lambda n: 3 * n), "a", 5, exact).size == 1
    assert selective_minor(value(lambda n: -((n - 4) ** 2)), "a", 5, exact).size == 5


def test_determinants_agree_with_numpy() -> None:
    exact = Intervals(256)
    sequence = [exact.number(Fraction(1, n + 1)) for n in range(20)]  # Hilbert's matrix
    minor = field_minor(lambda string: sequence[len(string)], "a", 5)
    matrix = [[1 / (len(p) + len(s) + 1) for s in minor.suffixes] for p in minor.prefixes]
    assert minor.size == 5 and minor.log10 == pytest.approx(np.log10(abs(np.linalg.det(matrix))), abs=1e-4)


def test_strings_come_in_order() -> None:
    assert shortlex("ab", 7) == [(), ("a",), ("b",), ("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]
    assert len(shortlex("abcd", 3)) == 5


# ---- bad input -------------------------------------------------------------------------------------------------------


def test_bad_functions() -> None:
    rng = random.Random(0)
    with pytest.raises(AutomatonError, match="not deterministic: for the empty string it returned"):
        rank(lambda x: rng.random(), alphabet="ab")
    with pytest.raises(AutomatonError, match="for 'b' it returned nan"):
        rank(lambda x: float("nan") if x == "b" else 1.0, alphabet="ab")
    with pytest.raises(AutomatonError, match="returned a str"):
        rank(lambda x: "many", alphabet="ab")
    with pytest.raises(AutomatonError, match=r"a tuple is an interval"):
        rank(lambda x: (1, 2, 3), alphabet="ab")
    with pytest.raises(AutomatonError, match=r"for the empty string it returned \(2, 1\)"):
        rank(lambda x: (2, 1), alphabet="ab")
    with pytest.raises(ShapeError, match="needs an alphabet"):
        rank(len)


def test_bad_arguments() -> None:
    with pytest.raises(AutomatonError, match="expected a layer, a WFSA or a function"):
        rank(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="states must be a whole number of at least 1; got 0"):
        rank(len, alphabet="a", states=0)
    with pytest.raises(PrecisionError, match="must not exceed max_precision, 64 bits"):
        rank(len, alphabet="a", precision=128, max_precision=64)
    with pytest.raises(ShapeError, match="error must be a bound"):
        rank(len, alphabet="a", error=-1.0)
    with pytest.raises(ShapeError, match="alphabet is missing"):
        rank(zoo.layer("LSTM", 2, 2))
    with pytest.raises(SemiringError, match="leave out semiring='log'"):
        rank_model("B", semiring="log")
    with pytest.raises(SemiringError, match="complex is neither"):
        rank(len, alphabet="a", semiring="complex")


def test_without_mpmath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpmath", None)
    with pytest.raises(PrecisionError, match=r"pip install 'rrnn\[rank\]'"):
        rank(len, alphabet="a")
    assert rank(lambda x: float(len(x)), alphabet="a").lower == 2  # floats do not need it


def test_given_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import save_file

    layer = zoo.layer("B", 2, 2)
    save_file(layer.state_dict(), tmp_path / "w.safetensors")
    from rrnn.cli import main

    assert main(["rank", "B", "--weights", str(tmp_path / "w.safetensors")]) == 0
    assert "rational: minimal with 2 states" in capsys.readouterr().out
    assert main(["rank", "B", "--weights", str(tmp_path / "w.safetensors"), "--units", "3"]) == 2
    assert "do not fit a layer of B with 2 inputs and 3 units" in capsys.readouterr().err
    assert main(["rank", "B", "--weights", str(tmp_path / "none")]) == 2
