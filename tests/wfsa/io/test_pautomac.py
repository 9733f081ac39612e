"""PAutomaC models: the meaning of the four sections, the sums, the inverse, the errors."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import FormatError
from rrnn.wfsa.io import from_pautomac, load, save, to_pautomac
from rrnn.wfsa.machine import EPSILON, WFSA

MODEL = """I: (state)
\t(0) 0.25
\t(1) 0.75
F: (state)
\t(1) 0.5
\t(2) 1.0
S: (state,symbol)
\t(0,0) 0.5
\t(0,3) 0.5
\t(1,3) 1.0
T: (state,symbol,state)
\t(0,0,0) 0.25
\t(0,0,1) 0.75
\t(0,3,2) 1
\t(1,3,0) 1.0
"""


def test_weights_are_products() -> None:
    machine = from_pautomac(MODEL)
    assert machine.semiring.name == "real"
    assert machine.states == (0, 1, 2) and machine.alphabet == (0, 3)
    assert machine.initial == {0: 0.25, 1: 0.75} and machine.final == {1: 0.5, 2: 1.0}
    assert machine.arcs == [(0, 0, 0, 0.125), (0, 0, 1, 0.375), (0, 3, 2, 0.5), (1, 3, 0, 0.5)]
    assert machine.score([(), (3,), (3, 3)]).tolist() == [0.375, 0.125, 0.75 * 0.5 * 0.5]


def random_model(seed: int, states: int = 6, symbols: int = 4, form: str = "{!r}") -> str:
    rng = random.Random(seed)

    def row(keys: list[str]) -> list[str]:
        values = [rng.expovariate(1.0) for _ in keys]
        return [
            f"\t({key}) {form.format(value / sum(values))}" for key, value in zip(keys, values, strict=True)
        ]

    stop = {q: rng.choice([0.0, 1.0, rng.random()]) for q in range(states)} | {0: 0.3}
    lines = ["I: (state)", *row([str(q) for q in range(states)]), "F: (state)"]
    lines += [f"\t({q}) {p!r}" for q, p in stop.items() if p]
    going = [q for q in range(states) if stop[q] < 1]
    chosen = {q: rng.sample(range(symbols), rng.randint(1, symbols)) for q in going}
    lines.append("S: (state,symbol)")
    lines += [line for q in going for line in row([f"{q},{a}" for a in chosen[q]])]
    lines.append("T: (state,symbol,state)")
    for q in going:
        for a in chosen[q]:
            lines += row([f"{q},{a},{r}" for r in rng.sample(range(states), rng.randint(1, states))])
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(10))
def test_a_model_comes_back(seed: int, tmp_path: Path) -> None:
    machine = from_pautomac(random_model(seed))
    save(machine, tmp_path / "1.pautomac_model.txt")
    again = load(tmp_path / "1.pautomac_model.txt")
    assert (again.states, again.alphabet) == (machine.states, machine.alphabet)
    weights = {arc[:3]: arc.weight for arc in machine.arcs}
    assert {arc[:3]: arc.weight for arc in again.arcs} == pytest.approx(weights, rel=1e-12, abs=0)
    assert again.initial == machine.initial and again.final == machine.final


@pytest.mark.parametrize("form", ["{:.3f}", "{:.6f}", "{:.12g}", "{:.6g}", "{:.4e}", "{:.2f}"])
@pytest.mark.parametrize("seed", range(3))
def test_sums_are_checked_to_the_printed_digits(seed: int, form: str) -> None:
    text = random_model(seed, states=3, symbols=3, form=form)
    if form != "{:.2f}":  # six numbers of two digits may miss one by 0.03, which is no rounding any more
        from_pautomac(text)
    from_pautomac(text, tolerance=0.05)


def test_tolerance_is_not_more_than_the_digits() -> None:
    third = "0.3333333333"
    good = MODEL.replace("(1,3) 1.0", f"(1,0) {third}\n(1,1) {third}\n(1,3) {third}").replace(
        "(1,3,0) 1.0", "(1,3,0) 1.0\n(1,1,0) 1.0\n(1,0,0) 1.0"
    )
    from_pautomac(good)
    with pytest.raises(FormatError, match=r"row S\(1\) must sum to one"):
        from_pautomac(good.replace(f"(1,0) {third}", "(1,0) 0.3333343333"))


def test_what_weighs_nothing_is_no_arc() -> None:
    machine = from_pautomac(MODEL.replace("(2) 1.0", "(2) 1.0\n(7) 1") + "(2,0,0) 1.0\n(1,0,0) 1.0\n")
    assert 7 in machine.states and len(machine.arcs) == 4


def test_huge_numbers_of_states_and_symbols_cost_nothing() -> None:
    text = (
        MODEL.replace(",3", ",999999999999").replace("(2)", "(10000000000)").replace(",2)", ",10000000000)")
    )
    machine = from_pautomac(text)
    assert machine.num_states == 3 and machine.alphabet == (0, 999999999999)


def test_layout_is_free() -> None:
    machine = from_pautomac(MODEL)
    loose = MODEL.replace("\t", "   ").replace("\n", "\r\n").replace(",", " , ").replace(" (state)", "")
    assert from_pautomac("\n" + loose + "\n\n").same_as(machine)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("I: (state)\n", "", 1, "the first line must be a section"),
        ("T: (state,symbol,state)", "T: (state,state)", 11, "the sections must be"),
        ("T: (state,symbol,state)", "U: (state)", 11, "the sections must be"),
        ("T: (state,symbol,state)", "S: (state,symbol)", 11, "occurs twice"),
        ("F: (state)\n\t(1) 0.5\n\t(2) 1.0\n", "", None, r"`F: \(state\)` is missing"),
        ("(0) 0.25", "(0 0.25", 2, "a line of section I"),
        ("(0) 0.25", "(0,1) 0.25", 2, "a line of section I"),
        ("(0) 0.25", "(x) 0.25", 2, "a line of section I"),
        ("(0) 0.25", "(-1) 0.25", 2, "a line of section I"),
        ("(0) 0.25", "(0)", 2, "a line of section I"),
        ("(0) 0.25", "(0) 0.25 1", 2, "a line of section I"),
        ("(0) 0.25", "(0) x", 2, "a probability must be"),
        ("(0) 0.25", "(0) nan", 2, "a probability must be"),
        ("(0) 0.25", "(0) -0.25", 2, "a probability must be"),
        ("(0) 0.25", "(0) 1.25", 2, "a probability must be"),
        ("(0) 0.25", "(0) inf", 2, "a probability must be"),
        ("(1) 0.75", "(0) 0.75", 3, r"I\(0\) is given twice"),
        ("(0) 0.25", "(0) 0.2", 2, "section I must sum to one, but its 2 numbers sum to 0.95"),
        ("(0,3) 0.5", "(0,3) 0.4", 8, r"row S\(0\) must sum to one"),
        ("(0,0,1) 0.75", "(0,0,1) 0.76", 12, r"row T\(0,0\) must sum to one"),
        ("\t(0,0,0) 0.25\n\t(0,0,1) 0.75\n", "", 8, r"row T\(0,0\) must be given"),
        ("\t(1,3) 1.0\n", "", 3, r"row S\(1\) is missing, but F\(1\) is 0.5"),
        ("(2) 1.0", "(2) 0.5", 6, r"row S\(2\) is missing"),
        ("(0,3,2) 1", "(0,3,5) 1", 14, r"row S\(5\) is missing, but F\(5\) is 0"),
        ("\t(0) 0.25\n\t(1) 0.75\n", "", None, "no initial state"),
    ],
)
def test_a_wrong_model_is_named(old: str, new: str, line: int | None, message: str) -> None:
    assert old in MODEL
    with pytest.raises(FormatError, match=message) as caught:
        from_pautomac(MODEL.replace(old, new), source="m")
    assert (caught.value.source, caught.value.line) == ("m", line)


def test_an_empty_file_is_named() -> None:
    with pytest.raises(FormatError, match="is missing"):
        from_pautomac("")


def machine(semiring: str = "real", **change: Any) -> WFSA:
    parts: dict[str, Any] = {
        "alphabet": [0, 1],
        "arcs": [("p", 0, "q", 0.5), ("p", 1, "p", 0.25)],
        "initial": {"p": 1.0},
        "final": {"p": 0.25, "q": 1.0},
    }
    return WFSA(semiring, **{**parts, **change})


def test_states_are_numbered() -> None:
    assert to_pautomac(machine()) == (
        "I: (state)\n\t(0) 1.0\nF: (state)\n\t(0) 0.25\n\t(1) 1.0\n"
        f"S: (state,symbol)\n\t(0,0) {2 / 3!r}\n\t(0,1) {1 / 3!r}\n"
        "T: (state,symbol,state)\n\t(0,0,1) 1.0\n\t(0,1,0) 1.0\n"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"semiring": "max-times"}, "max-times semiring"),
        ({"alphabet": [0, 1, "b"]}, "the symbol 'b'"),
        ({"alphabet": [0, 1, -1]}, "the symbol -1"),
        ({"arcs": [("p", 0, "q", 0.5), ("p", EPSILON, "q", 0.25)]}, "has ε-arcs"),
        ({"arcs": [("p", 0, "q", 1.0), ("p", 1, "q", -0.25)]}, "arc weight -0.25"),
        ({"arcs": [("p", 0, "q", 0.5)]}, r"out of state 'p' must sum to one minus its final weight \(0.75\)"),
        ({"initial": {"p": 0.5}}, "the initial weights must sum to one"),
        ({"final": {"p": 0.25}}, "out of state 'q'"),
        ({"final": {"p": 0.25, "q": 2.0}}, "final weight 2.0"),
    ],
)
def test_machines_of_another_form_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        save(machine(**change), tmp_path / "m.pautomac")
    assert not list(tmp_path.iterdir())


def test_a_small_rest_keeps_its_arcs() -> None:
    """(1 − F) carries the error of F: where it is tiny, the arcs read back must still be right."""
    rest = 1.0 - 0.9999999999
    good = machine(final={"p": 0.9999999999, "q": 1.0}, arcs=[("p", 0, "q", rest)])
    assert from_pautomac(to_pautomac(good)).arc_weight.item() == pytest.approx(rest, rel=1e-9)
    with pytest.raises(FormatError, match="sum to one minus"):
        to_pautomac(machine(final={"p": 0.9999999999, "q": 1.0}, arcs=[("p", 0, "q", rest * 1.01)]))


def test_log_scores_do_not_underflow(tmp_path: Path) -> None:
    (tmp_path / "m.pautomac").write_text(
        "I: (state)\n(0) 1\nF: (state)\n(0) 0.5\nS: (state,symbol)\n(0,0) 1\nT: (state,symbol,state)\n(0,0,0) 1\n"
    )
    string = (0,) * 5000
    assert load(tmp_path / "m.pautomac").score([string]).item() == 0.0
    log = load(tmp_path / "m.pautomac", semiring="log").score([string]).item()
    assert log == pytest.approx(5001 * math.log(0.5), rel=1e-12)
