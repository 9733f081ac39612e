"""What cells can compute: every witness solves its task, every proposition is met by the cells that it names."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import pytest

import rrnn
from rrnn.automata import Cell, linear, one, parameter, sigmoid, tanh, uniform
from rrnn.cli import main
from rrnn.theory import Power, power
from rrnn.theory.capabilities import NOTIONS
from rrnn.theory.task_machines import S3, forms_of
from rrnn.theory.witnesses import Witness, find_witness, real_part
from rrnn.wfsa import instantiate
from rrnn.zoo import get_cell

STRINGS = [x for n in range(1, 7) for x in itertools.product("ab", repeat=n)]


def _permuted(string: tuple[str, ...]) -> tuple[int, ...]:
    points = (0, 1, 2)
    for symbol in string:
        points = tuple(S3[symbol][x] for x in points)
    return points


LANGUAGES: dict[str, Any] = {
    "modulo 2": lambda x: x.count("a") % 2 == 0,
    "modulo 3": lambda x: x.count("a") % 3 == 0,
    "modulo 5": lambda x: x.count("a") % 5 == 0,
    "at-least 1": lambda x: x.count("a") >= 1,
    "at-least 2": lambda x: x.count("a") >= 2,
    "at-least 3": lambda x: x.count("a") >= 3,
    "first": lambda x: x[0] == "a",
    "point": lambda x: _permuted(x)[0] == 0,
    "group": lambda x: _permuted(x) == (0, 1, 2),
}


def signed_b() -> Cell:
    f = tanh(linear("f", bias=True))
    cell = Cell("signed_B").initial("q0").loop("q0", one).arc("q0", "q1", (1 - f) * linear("u"))
    return cell.loop("q1", f).final("q1")


def circle(k: int) -> Cell:
    """A ring whose symbols choose between staying and moving on."""
    f = sigmoid(linear("f", bias=True))
    cell = Cell(f"circle{k}").initial("q0").final("q0")
    for i in range(k):
        cell = cell.loop(f"q{i}", f).arc(f"q{i}", f"q{(i + 1) % k}", 1 - f)
    return cell


def free(k: int) -> Cell:
    """All arcs between k states, with any real weights: every machine of k states."""
    cell = Cell(f"free{k}").initial("q0")
    for i, j in itertools.product(range(k), repeat=2):
        cell = cell.arc(f"q{i}", f"q{j}", linear(f"w{i}_{j}"))
    for i in range(k):
        cell = cell.final(f"q{i}", parameter(f"p{i}"))
    return cell


def told(known: Power, task: str) -> list[str]:
    return [s.text for s in known.statements if s.task == task]


# ---- the forms and the witnesses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", LANGUAGES)
def test_forms_solve_their_tasks(task: str) -> None:
    for form in forms_of(task):
        if form.angle:
            continue  # the real part is tested with the rotations
        odd = any(w.real < 0 for w in form.arcs.values())
        for x, score in zip(STRINGS, form.machine.score(STRINGS).tolist(), strict=True):
            inside = LANGUAGES[task](x) != odd
            if form.kind == "exact":
                assert score == inside
            elif form.kind == "support":
                assert (score > 0) == inside
            else:
                assert (score > int(task.split()[1]) - 0.5) == inside


def scores(cell: Cell, witness: Witness, far: float) -> list[float]:
    """Return the scores of all strings, computed by the cell itself, with `far` in place of ∞."""
    at: dict[Any, dict[str, float]] = {"a": {}, "b": {}, None: {}}
    for (symbol, name), x in witness.values.items():
        at[symbol][name] = math.copysign(far, x) if math.isinf(x) else x
    machine = instantiate(cell, {s: at[s] for s in "ab"}, at[None])
    return machine.score(STRINGS).tolist()


@pytest.mark.parametrize(
    ("cell", "task", "kind"),
    [
        (get_cell("B"), "at-least 1", "exact"),
        (get_cell("B"), "at-least 1", "support"),
        (get_cell("B"), "at-least 2", "count"),
        (get_cell("C"), "at-least 2", "exact"),
        (get_cell("C"), "at-least 2", "support"),
        (get_cell("F"), "at-least 2", "exact"),
        (get_cell("HGRN"), "at-least 1", "exact"),
        (signed_b(), "modulo 2", "exact"),
        (signed_b(), "at-least 3", "count"),
        (circle(3), "modulo 3", "exact"),
        (free(2), "first", "exact"),
        (free(3), "point", "exact"),
        (free(6), "group", "exact"),
    ],
)
def test_witnesses_solve_their_tasks_in_the_cell_itself(cell: Cell, task: str, kind: str) -> None:
    (form,) = (f for f in forms_of(task) if f.kind == kind and find_witness(cell, f) is not None)
    witness = find_witness(cell, form)
    assert witness is not None and witness.kind == kind
    far = 12.0 if cell.name == "signed_B" else 30.0
    odd = any(w.real < 0 for w in form.arcs.values())
    for x, score in zip(STRINGS, scores(cell, witness, far), strict=True):
        inside = LANGUAGES[task](x) != odd
        if kind == "exact":
            assert score == pytest.approx(float(inside), abs=1e-6)
        else:
            assert (score > (0 if kind == "support" else int(task.split()[1]) - 0.5)) == inside
    assert witness.finite == (kind == "support" or cell.name.startswith("free"))


@pytest.mark.parametrize("name", ["B", "RCNN2-additive", "minGRU", "HGRN", "RG-LRU"])
def test_a_witness_with_limits_holds_for_other_large_numbers(name: str) -> None:
    """Its finite values stay as they are, but for those that it says to grow with the limits."""
    cell = get_cell(name)
    found = [w for w in power(cell).witnesses if not w.finite and "so that" not in w.text]
    assert found
    for witness in found:
        limits = witness.machine.score(STRINGS).tolist()
        assert scores(cell, witness, 20.0) == pytest.approx(limits, abs=1e-4)


def test_numbers_that_are_not_learned_keep_their_values() -> None:
    def decaying(start: Any) -> Cell:
        g = parameter("g", start=start, learned=False)
        cell = Cell("decaying").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).loop("q1", g)
        return cell.final("q1")

    assert told(power(decaying(1.0)), "at-least 2")[1] == "yes (w1)"
    for start in (0.5, uniform(0, 1)):
        assert told(power(decaying(start)), "at-least 2") == ["unknown"] * 3
    known = power(decaying(0.5))
    assert told(known, "at-least 1") == ["unknown", "unknown", "yes (w1)"]
    assert "g = 0.5" in known.witnesses[0].text


def test_a_cell_that_cannot_has_no_witness() -> None:
    for task in ("modulo 2", "modulo 3", "first", "point", "group"):
        assert not any(find_witness(get_cell("B"), form) for form in forms_of(task))


# ---- statements ------------------------------------------------------------------------------------------------------


def test_gates_between_zero_and_one_do_not_count() -> None:
    for name in ("B", "C", "F", "QRNN2", "SoPa4-real", "SRU"):
        known = power(get_cell(name))
        assert known.triangular
        for task in ("modulo 2", "modulo 3", "point", "group"):
            assert told(known, task) == ["no (P2)"] * 3
    assert told(power(get_cell("B-max-plus")), "modulo 2") == ["no (P4)"] * 3
    assert told(power(get_cell("SoPa4-max-times")), "modulo 3") == ["no (P4)"] * 3


def test_signed_gates_count_modulo_two_only() -> None:
    known = power(signed_b())
    assert told(known, "modulo 2")[:2] == ["no (P5); limit: yes (w1)"] * 2
    assert told(known, "modulo 3") == ["no (P3)"] * 3


def test_b() -> None:
    known = power(get_cell("B"))
    assert (known.stored, known.window, known.semiring) == (1, 1, "real")
    assert known.loops["q1"].endswith("in (0, 1)")
    assert told(known, "at-least 1") == ["no (P5); limit: yes (w1)"] * 2 + ["yes (w2)"]
    assert told(known, "at-least 2")[2] == "no (P7); limit: yes (w3)"
    assert told(known, "first") == ["no (P6)"] * 3
    assert len({w.text for w in known.witnesses}) == len(known.witnesses)


def test_what_is_not_known_is_called_unknown() -> None:
    assert told(power(get_cell("C")), "at-least 3")[2] == "unknown"
    assert told(power(circle(3)), "modulo 2") == ["unknown"] * 3
    assert told(power(get_cell("CNN3")), "at-least 1") == ["unknown"] * 3


def test_cycles() -> None:
    known = power(circle(5))
    assert not known.triangular
    assert told(known, "modulo 5") == ["unknown; limit: yes (w1)"] * 3
    assert told(power(free(2)), "modulo 2") == ["yes (w1)"] * 3


def rotating() -> Cell:
    """B over the complex numbers: its loop rotates."""
    cell = Cell("rotating", "complex").initial("q0").loop("q0", one)
    cell = cell.arc("q0", "q1", rrnn.complex(linear("u"), linear("v")))
    return cell.loop("q1", rrnn.polar(sigmoid(linear("f", bias=True)), linear("theta"))).final("q1")


def test_rotations_count_but_do_not_track_s3() -> None:
    known = power(rotating())
    assert told(known, "modulo 3") == ["unknown"] + ["unknown; limit: yes (w2)"] * 2
    assert told(known, "point") == ["no (P8)", "unknown", "unknown"]
    machine = known.witnesses[1].machine  # the real part of its score is 1 − cos(2πn/3)
    for x, score in zip(STRINGS, machine.score(STRINGS).tolist(), strict=True):
        assert (score[0] < 0.5) == (x.count("a") % 3 == 0)
        assert float(real_part(machine).score(x)) == pytest.approx(score[0], abs=1e-9)


def test_a_search_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_witness(circle(3), forms_of("modulo 3")[0]) is not None
    monkeypatch.setattr("rrnn.theory.witnesses._NODES", 20)
    assert find_witness(circle(3), forms_of("modulo 3")[0]) is None


def test_loops_above_one_are_not_covered_by_proposition_6() -> None:
    """c = 2c' ± 1 remembers the first symbol."""
    cell = (
        Cell("growing")
        .initial("q0")
        .loop("q0", one)
        .arc("q0", "q1", linear("u"))
        .loop("q1", linear("f"))
        .final("q1")
    )
    assert told(power(cell), "first") == ["unknown"] * 3
    machine = instantiate(cell, {"a": {"u": 1.0, "f": 2.0}, "b": {"u": -1.0, "f": 2.0}})
    found = machine.score(STRINGS).tolist()
    assert all((score > 0) == (x[0] == "a") for x, score in zip(STRINGS, found, strict=True))


# ---- the propositions, on random weights -----------------------------------------------------------------------------


def machine_of(cell: Cell, rng: random.Random) -> Any:
    # In a fixed order, so that weights are the same in every process.
    linears = ["f1", "f2", "u1", "u2"] if cell.name in "CF" else ["f", "u"]
    parameters = ["r", "p1", "p2"] if cell.name == "F" else []
    return instantiate(
        cell,
        {s: {name: rng.gauss(0, 2) for name in linears} for s in "ab"},
        {name: rng.gauss(0, 1) for name in parameters},
    )


@pytest.mark.parametrize("name", ["B", "C", "F"])
def test_signs_are_constant_in_the_end(name: str) -> None:
    """Proposition 2, at thresholds that are values of the sequence."""
    rng = random.Random(1)
    for _ in range(5):
        machine = machine_of(get_cell(name), rng)
        tail = machine.score(["ab" + "aab" * n + "b" for n in range(20, 40)]).tolist()
        # What differs by rounding alone has no sign.
        apart = [x for x in tail[1:] if not math.isclose(x, tail[0], rel_tol=1e-9, abs_tol=1e-12)]
        assert len({x > tail[0] for x in apart}) <= 1


@pytest.mark.parametrize("name", ["B", "C", "F"])
def test_the_first_symbol_fades(name: str) -> None:
    """Proposition 5."""
    rng = random.Random(2)
    machine = machine_of(get_cell(name), rng)
    first, second = (machine.score([x + "ab" * n for n in (2, 1000)]) for x in "ab")
    far = (first - second).abs().tolist()
    assert far[0] > 1e-6 and far[1] < 1e-9 * far[0]


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["power", "B", "C"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("B over real: triangular") and "\n\nC over real: triangular" in out
    assert all(words in out for words in NOTIONS.values())
    assert main(["power", "B", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["triangular"] and len(row["statements"]) == 3 * 8
    assert row["statements"][0]["finite_weights"] == {"answer": "no", "reason": "Proposition 2"}
    assert main(["power", "LSTM"]) == 2
    assert "LSTM is not a cell: it is not rational" in capsys.readouterr().err
    assert main(["power"]) == 2
    assert "there is no cell to examine" in capsys.readouterr().err


def test_the_states_of_a_family_share_a_line() -> None:
    loops = power(get_cell("GLA", states=8)).loops
    assert list(loops) == ["q0", "h_i"]
    assert loops["h_i"] == 'exp(log_sigmoid(linear("alpha_i", bias=True)) / 16) in (0, 1)'


@pytest.mark.parametrize("name", ["B", "F", "Mamba", "RetNet", "RWKV-6"])
def test_the_stored_states_are_those_of_a_layer(name: str) -> None:
    cell = get_cell(name)
    (states,) = rrnn.RationalRNN(cell, 3, 64).init_state(1)[0].states
    known = power(cell)
    assert known.stored * cell.semiring.size == states.shape[0]
    assert known.states == cell.state_count > known.stored


def test_both_numbers_of_states_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """`rrnn zoo` lists the automaton's states, so `rrnn power` says which number is which."""
    assert main(["power", "F"]) == 0
    assert "4 states, 2 of them stored by a layer" in capsys.readouterr().out
    assert main(["zoo"]) == 0
    assert "16 of Mamba's 17" in " ".join(capsys.readouterr().out.split())
    mamba = power(get_cell("Mamba"))
    assert (mamba.states, mamba.stored) == (17, 16)
