"""OpenFst text: what costs mean, what is written, what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import FormatError, RRNNError, SemiringError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa.io import from_openfst, load, load_symbols, save, save_symbols, symbols_for, to_openfst
from rrnn.wfsa.machine import EPSILON, WFSA

STRINGS = [(), (1,), (2,), (1, 2), (3, 1, 2), (1, 1, 1, 1), (2, 3, 1, 2, 3)]


# ---- costs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("semiring", "costs", "text", "weight"),
    [
        ("min-plus", None, "0.5", 0.5),
        ("min-plus", None, "Infinity", math.inf),
        ("max-plus", None, "0.5", -0.5),
        ("max-plus", None, "Infinity", -math.inf),
        ("log", None, "0.5", -0.5),
        ("log", None, "-2.0", 2.0),
        ("real", None, "0.5", math.exp(-0.5)),
        ("real", None, "Infinity", 0.0),
        ("max-times", None, "-0.5", math.exp(0.5)),
        ("boolean", None, "Infinity", 0.0),
        ("counting", None, "3.0", 3),
        ("counting", None, "9007199254740993", 2**53 + 1),
        ("real", "plain", "-0.25", -0.25),
        ("real", "plain", "0.0", 0.0),
        ("log", "plain", "-0.25", -0.25),
        ("max-plus", "plain", "-Infinity", -math.inf),
        ("boolean", "plain", "0.0", 0.0),
    ],
)
def test_a_cost_is_a_weight(semiring: str, costs: Any, text: str, weight: float) -> None:
    machine = from_openfst(f"0 1 1 {text}\n0 1 2\n1\n", semiring=semiring, costs=costs)
    ring = machine.semiring
    assert machine.arc_weight.tolist() == [pytest.approx(weight, rel=1e-15), ring.one]
    assert machine.final == {1: ring.one} and machine.initial == {0: ring.one}
    line = to_openfst(machine, costs=costs).split("\n")[0]
    assert line == f"0\t1\t1\t{text}"


@pytest.mark.parametrize(
    ("semiring", "costs", "text"),
    [
        ("min-plus", None, "-Infinity"),
        ("max-plus", None, "-Infinity"),
        ("boolean", None, "0.5"),
        ("boolean", "plain", "2"),
        ("real", None, "-1000"),
        ("real", None, "1000"),  # e^-1000 is no float64: silently zero would be a surprise
        ("real", "plain", "Infinity"),
        ("max-times", "plain", "-1"),
        ("counting", None, "0.5"),
        ("counting", None, "-1"),
        ("counting", None, "9223372036854775808"),
        ("counting", None, "1e400"),
    ],
)
def test_a_cost_outside_the_semiring_is_named_with_its_line(semiring: str, costs: Any, text: str) -> None:
    with pytest.raises(FormatError, match=r"^f:2: ") as caught:
        from_openfst(f"0 1 2\n0 1 1 {text}\n1\n", semiring=semiring, costs=costs, source="f")
    assert caught.value.line == 2


def test_negative_real_weights_need_plain_costs() -> None:
    machine = WFSA(alphabet=[1], arcs=[("p", 1, "q", -0.5)], initial={"p": 1}, final={"q": 1})
    with pytest.raises(FormatError, match=r"the arc 'p' —1→ 'q': a negative weight .* costs=\"plain\""):
        to_openfst(machine)
    again = from_openfst(to_openfst(machine, costs="plain"), semiring="real", costs="plain")
    assert again.arc_weight.item() == -0.5


def test_conventions_are_checked() -> None:
    with pytest.raises(SemiringError, match="neglog"):
        from_openfst("0\n", costs="minus")  # pyright: ignore[reportArgumentType]
    with pytest.raises(SemiringError, match="plain"):
        from_openfst("0\n", semiring="counting", costs="neglog")


# ---- round trips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", [name for name, ring in SEMIRINGS.items() if not ring.components])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("initials", [1, 2])
def test_a_machine_comes_back(machines: Any, tmp_path: Path, semiring: str, seed: int, initials: int) -> None:
    machine = machines(semiring, seed, initials=initials)
    save(machine, tmp_path / "m.fst", costs="plain")
    again = load(tmp_path / "m.fst", semiring=semiring, costs="plain", acceptor=True, allow_empty=True)
    if machine.initial == {0: machine.semiring.one}:  # one start state of weight one: exact but for arc order
        assert again.states == machine.states
        assert sorted(map(repr, again.arcs)) == sorted(map(repr, machine.arcs))
        assert again.final == machine.final
    else:
        assert again.states == (*machine.states, machine.num_states)
        assert again.initial == {machine.num_states: machine.semiring.one}
        added = {arc.target: arc.weight for arc in again.arcs if arc.source == machine.num_states}
        assert added == machine.initial


@pytest.mark.parametrize("semiring", ["real", "log", "max-plus", "min-plus", "max-times", "boolean"])
@pytest.mark.parametrize("seed", range(4))
def test_scores_come_back_through_costs(machines: Any, tmp_path: Path, semiring: str, seed: int) -> None:
    machine = machines(semiring, seed, non_negative=semiring == "real")
    table = tmp_path / "m.syms"  # keeps the symbols that no arc carries, too
    save(machine, tmp_path / "m.fst", isymbols=table)
    again = load(tmp_path / "m.fst", semiring=semiring, isymbols=table, allow_empty=True)
    expected = machine.score(STRINGS).tolist()
    # the logarithm of a weight as small as e^-100 carries an error of a hundred roundings
    names = [tuple(map(str, string)) for string in STRINGS]
    assert again.score(names).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12 * (semiring != "real"))


def test_tiny_weights_survive_costs() -> None:
    machine = WFSA(alphabet=[1], arcs=[(0, 1, 1, 1e-90)], initial={0: 1}, final={1: 1e-200})
    again = from_openfst(to_openfst(machine), semiring="real")
    assert again.arc_weight.item() == pytest.approx(1e-90, rel=1e-13)
    assert again.final[1] == pytest.approx(1e-200, rel=1e-13)


def test_the_text_that_is_written(machines: Any) -> None:
    machine = WFSA(
        "log",
        alphabet=["a", "b"],
        arcs=[("p", "a", "q", -0.1), ("q", "b", "q", 0.0), ("q", EPSILON, "p", -math.inf)],
        states=["r", "p", "q"],
        initial={"p": 0.0},
        final={"q": -1 / 3},
    )
    table = symbols_for(machine.alphabet)
    assert table == {"<eps>": 0, "a": 1, "b": 2}
    assert to_openfst(machine, isymbols=table) == (
        "1\t2\ta\t0.1\n"  # the start state first
        "0\tInfinity\n"  # a state without arcs must be named somewhere
        "2\t2\tb\n"
        "2\t1\t<eps>\tInfinity\n"
        "2\t0.3333333333333333\n"
    )


def test_several_initial_states_go_through_a_new_one() -> None:
    machine = WFSA(
        "min-plus", alphabet=[1], arcs=[(0, 1, 1, 3.0)], initial={0: 0.0, 1: 0.5}, final={0: 0.0, 1: 1.0}
    )
    assert to_openfst(machine) == "2\t0\t0\n2\t1\t0\t0.5\n0\t1\t1\t3.0\n0\n1\t1.0\n"
    assert from_openfst(to_openfst(machine)).score([(), (1,)]).tolist() == machine.score([(), (1,)]).tolist()


def test_tables_are_written_beside(tmp_path: Path) -> None:
    machine = WFSA(alphabet=["a", "b", 7], arcs=[(0, 7, 0, 0.5)], initial={0: 1}, final={0: 1})
    save(machine, tmp_path / "m.fst", isymbols=tmp_path / "m.syms")
    assert (tmp_path / "m.syms").read_text() == "<eps>\t0\na\t1\nb\t2\n7\t3\n"
    again = load(tmp_path / "m.fst", semiring="real", isymbols=tmp_path / "m.syms")
    assert again.alphabet == ("a", "b", "7")  # names are text in OpenFst
    assert load_symbols(tmp_path / "m.syms") == {"<eps>": 0, "a": 1, "b": 2, "7": 3}
    save_symbols({"x": 2, "y": 1}, tmp_path / "t.syms")
    assert (tmp_path / "t.syms").read_text() == "y\t1\nx\t2\n"


@pytest.mark.parametrize("alphabet", [["a"], [0], [-1], [2**31], [(1, 2)]])
def test_labels_without_a_table_are_positive_integers(alphabet: list[Any], tmp_path: Path) -> None:
    machine = WFSA(alphabet=alphabet, initial={0: 1}, final={0: 1})
    with pytest.raises(FormatError, match="isymbols="):
        save(machine, tmp_path / "m.fst")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "alphabet", [["a b"], ["a\tb"], [""], ["a\n"], [(1, 2)], ["1", 1], ["<eps>"], ["\ud800"]]
)
def test_names_that_a_table_cannot_hold(alphabet: list[Any], tmp_path: Path) -> None:
    machine = WFSA(alphabet=alphabet, initial={0: 1}, final={0: 1})
    with pytest.raises(FormatError):
        save(machine, tmp_path / "m.fst", isymbols=tmp_path / "m.syms")
    assert not list(tmp_path.iterdir())


# ---- reading what others write -----------------------------------------------------------------------------


def test_layout_is_free_as_in_fstcompile() -> None:
    machine = from_openfst("\n7 3   1 0.5\r\n\t3\t3 2\n\n3 .25\n10 1e-3")
    assert machine.states == (3, 7, 10) and machine.initial == {7: 0.0}
    assert machine.final == {3: 0.25, 10: 0.001}
    assert machine.arcs == [(7, 1, 3, 0.5), (3, 2, 3, 0.0)]


def test_parallel_arcs_are_summed_in_the_semiring() -> None:
    text = "0 1 1 1.0\n0 1 1 2.0\n1\n"
    assert from_openfst(text).arc_weight.tolist() == [1.0]
    assert from_openfst(text, semiring="real").arc_weight.item() == pytest.approx(math.exp(-1) + math.exp(-2))
    with pytest.raises(FormatError, match="f:2: sum of parallel arcs"):
        from_openfst("0 1 1 1e308\n0 1 1 1e308\n1\n", semiring="real", costs="plain", source="f")


def test_huge_state_numbers_cost_nothing() -> None:
    machine = from_openfst("1000000000000 1000000000001 999999999999 0.5\n1000000000001\n")
    assert machine.num_states == 2 and machine.score([(999999999999,)]).tolist() == [0.5]


TABLE = {"<eps>": 0, "a": 1, "b": 2, "3": 3}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("0 1 1 1 0.5\n1 1 2 2\n1\n", None),
        ("0 1 a a 0.5\n1 1 b b\n1\n", TABLE),
        ("0 1 a a\n1 1 b b\n1\n", TABLE),
        ("0 1 <eps> <eps>\n1\n", TABLE),
    ],
)
def test_transducer_lines_with_equal_labels(text: str, table: dict[str, int] | None) -> None:
    machine = from_openfst(text, isymbols=table)
    assert machine.num_states == 2 and 0.0 in machine.final.values()


@pytest.mark.parametrize(
    ("text", "table", "line", "message"),
    [
        ("", None, None, "empty"),
        ("\n \n", None, None, "empty"),
        ("x 1 1\n", None, 1, "a state must be an integer"),
        ("0 1 1\n-1 0.5\n", None, 2, "a state must be an integer"),
        ("0 1 1\n" + "9" * 10000 + "\n", None, 2, "a state must be an integer"),
        ("0 1 a\n", None, 1, "isymbols"),
        ("0 1 -1\n", None, 1, "a label must be an integer"),
        ("0 1 a\n1 1 c\n", TABLE, 2, "not in the symbol table"),
        ("0 1 1 x\n", None, 1, "a cost must be a number"),
        ("0 1 1 nan\n1\n", None, 1, "a cost must be a number"),
        ("0 1 1 BadNumber\n1\n", None, 1, "a cost must be a number"),
        ("0 1 1 1e999\n1\n", None, 1, "a cost must be a number"),
        ("0 1 1 1_0\n1\n", None, 1, "a cost must be a number"),
        ("0 1 1\n1 x\n", None, 2, "a cost must be a number"),
        ("0 1 1\n1\n1 0.5\n", None, 3, "one final cost; state 1 has two"),
        ("0 1 1 1 0.5 7\n", None, 1, "got 6 fields"),
        ("0 1 1\n0 1 2 2 0.5\n", None, 2, "got 5 fields"),
        ("0 1 1 2 0.5\n1\n", None, 1, "the input label '1' and the output label '2' differ"),
        ("0 1 a b\n1\n", TABLE, 1, "differ"),
        ("0 1 1 1\n1\n", None, 1, "acceptor=True or acceptor=False"),
        ("0 1 3 3\n1\n", TABLE, 1, "acceptor=True or acceptor=False"),
        ("0\n", None, None, "at least one symbol"),
        ("0 1 1\n", None, None, "final state"),
        ("0 1 1\n2\n", None, None, "reachable"),
    ],
)
def test_a_wrong_file_is_named(text: str, table: Any, line: int | None, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        from_openfst(text, isymbols=table, source="m.fst")
    assert (caught.value.source, caught.value.line) == ("m.fst", line)


def test_an_ambiguous_file_is_read_as_told() -> None:
    assert from_openfst("0 1 1 1\n1\n", acceptor=True).arcs == [(0, 1, 1, 1.0)]
    assert from_openfst("0 1 1 1\n1\n", acceptor=False).arcs == [(0, 1, 1, 0.0)]


def test_binary_files_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "m.fst").write_bytes(b"\xd6\xfd\xb2\x7e\x06\x00\x00\x00vector")
    with pytest.raises(FormatError, match="fstprint"):
        load(tmp_path / "m.fst")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a\n", 1, "`name id`"),
        ("<eps> 0\na 1 2\n", 2, "`name id`"),
        ("<eps> 0\na x\n", 2, "`name id`"),
        ("<eps> 0\na -1\n", 2, "`name id`"),
        ("a 1\na 2\n", 2, "must be distinct"),
        ("a 1\nb 1\n", 2, "must be distinct"),
    ],
)
def test_a_wrong_table_is_named(text: str, line: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        load_symbols(tmp_path / "t")
    assert (caught.value.source, caught.value.line) == (str(tmp_path / "t"), line)


def test_a_table_without_epsilon_serves_machines_without() -> None:
    machine = WFSA("min-plus", alphabet="a", arcs=[(0, "a", 0, 1.5)], initial={0: 0.0}, final={0: 0.0})
    assert to_openfst(machine, isymbols={"a": 1}) == "0\t0\ta\t1.5\n0\n"
    two = WFSA("min-plus", alphabet="a", initial={0: 0.0, 1: 0.0}, final={0: 0.0})
    with pytest.raises(RRNNError, match="id 0"):
        to_openfst(two, isymbols={"a": 1})


@pytest.mark.parametrize("semiring", [name for name, ring in SEMIRINGS.items() if ring.components])
def test_weights_of_several_components_need_json(machines: Any, semiring: str, tmp_path: Path) -> None:
    machine = machines(semiring)
    for name in ("m.fst", "m.pautomac"):
        with pytest.raises(
            FormatError, match=rf"stores a weight as one number; a weight over {semiring} has 2 .* Use JSON"
        ):
            save(machine, tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(FormatError, match="Use JSON"):
        from_openfst("0 0 1 0.5\n0\n", semiring=semiring)
