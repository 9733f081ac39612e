"""The outside opinion: OpenFst itself compiles what we write and prints what we read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rrnn.wfsa.io import from_openfst, save, symbols_for, to_openfst
from rrnn.wfsa.machine import EPSILON, WFSA

fst = pytest.importorskip("pywrapfst")

STRINGS = [(), (1,), (2,), (1, 2), (3, 1, 2), (1, 1, 1, 1)]
ARC_TYPE = {"log": "log64", "real": "log64", "max-plus": "standard", "min-plus": "standard"}


def compile_text(text: str, arc_type: str, **options: Any) -> Any:
    compiler = fst.Compiler(arc_type=arc_type, acceptor=True, **options)
    compiler.write(text)
    return compiler.compile()


def cost(machine: Any, string: tuple[int, ...], arc_type: str) -> float:
    """The shortest distance of the machine composed with one string."""
    chain = "".join(f"{i} {i + 1} {symbol}\n" for i, symbol in enumerate(string)) + f"{len(string)}\n"
    both = fst.compose(machine, compile_text(chain, arc_type).arcsort())
    if both.start() < 0:
        return math.inf
    return float(fst.shortestdistance(both, reverse=True)[both.start()])


@pytest.mark.parametrize("semiring", ARC_TYPE)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("initials", [1, 2])
def test_openfst_scores_what_we_write(machines: Any, semiring: str, seed: int, initials: int) -> None:
    machine = machines(semiring, seed, initials=initials, non_negative=semiring == "real")
    arc_type = ARC_TYPE[semiring]
    theirs = compile_text(to_openfst(machine), arc_type)
    for string, score in zip(STRINGS, machine.score(STRINGS).tolist(), strict=True):
        if semiring == "real":
            ours = -math.log(score) if score else math.inf
        else:
            ours = score if semiring == "min-plus" else -score
        assert cost(theirs, string, arc_type) == pytest.approx(ours, rel=1e-5, abs=1e-4), string


@pytest.mark.parametrize("semiring", ["log", "max-plus", "min-plus"])
@pytest.mark.parametrize("transducer", [False, True])
def test_we_score_what_openfst_prints(machines: Any, semiring: str, transducer: bool) -> None:
    machine = machines(semiring, 3)
    theirs = compile_text(to_openfst(machine), ARC_TYPE[semiring])
    again = from_openfst(theirs.print(acceptor=not transducer), semiring=semiring, acceptor=not transducer)
    # fstprint keeps six digits
    expected = pytest.approx(machine.score(STRINGS).tolist(), rel=1e-4, abs=1e-4)
    assert again.score(STRINGS).tolist() == expected


def test_text_is_the_same_after_openfst() -> None:
    """Six digits are all of these numbers, so that OpenFst prints the very text that it compiled."""
    machine = WFSA(
        "min-plus",
        alphabet=["a", "b"],
        arcs=[(0, "a", 1, 0.5), (0, EPSILON, 2, 0.25), (1, "b", 1, math.inf)],
        initial={0: 0.0},
        final={1: 0.0, 2: 1.5},
    )
    table = fst.SymbolTable()
    for name, key in symbols_for(machine.alphabet).items():
        table.add_symbol(name, key)
    text = to_openfst(machine, isymbols=symbols_for(machine.alphabet))
    compiled = compile_text(text, "standard", isymbols=table, keep_state_numbering=True)
    assert compiled.print(acceptor=True, isymbols=table) == text


def test_symbol_tables_are_openfsts(tmp_path: Path) -> None:
    machine = WFSA("min-plus", alphabet=["ä", "b"], arcs=[(0, "ä", 0, 1.0)], initial={0: 0.0}, final={0: 0.0})
    save(machine, tmp_path / "m.fst", isymbols=tmp_path / "m.syms")
    table = fst.SymbolTable.read_text(str(tmp_path / "m.syms"))
    assert [table.find(name) for name in ("<eps>", "ä", "b")] == [0, 1, 2]
    table.write_text(str(tmp_path / "theirs.syms"))
    assert (tmp_path / "theirs.syms").read_bytes() == (tmp_path / "m.syms").read_bytes()
    compile_text((tmp_path / "m.fst").read_text(), "standard", isymbols=table)


def test_start_state_is_the_same_for_both() -> None:
    machine = WFSA(
        "min-plus",
        alphabet=[1],
        arcs=[(0, 1, 2, 1.0), (2, 1, 0, 1.0)],
        states=[0, 1, 2],
        initial={2: 0.0},
        final={0: 0.0},
    )
    compiled = compile_text(to_openfst(machine), "standard", keep_state_numbering=True)
    assert compiled.start() == 2
