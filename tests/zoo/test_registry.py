"""Cells by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rrnn.automata import Cell, linear, score, sigmoid, tanh
from rrnn.draw import to_svg
from rrnn.errors import CellError, FormatError
from rrnn.ir.equations import equations, latex, scan_text
from rrnn.nn import RationalRNN
from rrnn.theory import verify_model
from rrnn.zoo import (
    CELLS,
    MODELS,
    Model,
    b,
    b_max_plus,
    c,
    f,
    get_cell,
    get_model,
    layer,
    ngram,
    read_cell,
    sru,
)
from rrnn.zoo.chains import cnn, rcnn, sopa
from rrnn.zoo.gated import hgrn, qrnn, scrn
from rrnn.zoo.rrnn import b_automaton

GATED = ["B+o", "B-max-plus+o", "C+o", "F+o", "ngram4+o", "ngram2+o"]
NAMES = [*CELLS, *GATED, "ngram1", "ngram64"]


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_cell_that_round_trips(name: str, tmp_path: Path) -> None:
    cell = get_cell(name).check()
    assert get_cell(name.upper()) == get_cell(name.lower()) == cell
    path = tmp_path / "x.cell"
    path.write_text(cell.to_text(), encoding="utf-8")
    for again in (get_cell(str(path)), get_cell(path), read_cell(path), Cell.from_text(cell.to_text())):
        assert again == cell and again.to_text() == cell.to_text()


@pytest.mark.parametrize("name", GATED)
def test_gates(name: str) -> None:
    plain, gated = get_cell(name.removesuffix("+o")), get_cell(name)
    assert gated.arcs == plain.arcs and gated.states == plain.states
    assert gated != plain and "o = " in gated.to_text() and "o = " not in plain.to_text()


def test_shapes() -> None:
    assert (
        len(get_cell("B").states) == 2 and len(get_cell("C").states) == 3 and len(get_cell("F").states) == 4
    )
    assert len(get_cell("ngram7").states) == 8
    assert get_cell("B-max-plus").semiring_name == "max-plus"
    assert get_cell("F").output_expr == tanh(score)
    assert get_cell("F+o").output_expr == tanh(sigmoid(linear("o", bias=True)) * score)


def test_short_chains_are_b_and_c() -> None:
    assert [a[:2] for a in ngram(1).arcs] == [a[:2] for a in get_cell("B").arcs]
    assert ngram(2).arcs == get_cell("C").arcs and ngram(2).finals == get_cell("C").finals


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("G", "no cell is called 'G'. The zoo has B, B-max-plus, B-max-plus-gated"),
        ("SRUU", "Did you mean 'SRU'"),
        ("b_max_plus", "Did you mean 'B-max-plus'"),
        ("ngrm", "Did you mean 'ngram4'"),
        ("ngram0", "n from 1 to 64; got 0"),
        ("ngram65", "n from 1 to 64; got 65"),
        ("ngram1234567890", "no cell is called 'ngram1234567890'"),
        ("ngram٣", "no cell is called"),
        (
            "SRU+o",
            "SRU has no variant with an output gate; these have one: B, B-max-plus, B-max-plus-gated, ",
        ),
        ("+o", "no cell is called"),
        ("", "no cell is called ''"),
        ("x" * 100_000, "no cell is called 'xxx"),
        ("a\0b", "no cell is called"),
    ],
    ids=range(13),
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(CellError, match=message) as caught:
        get_cell(name)
    assert len(str(caught.value)) < 700


def test_names_are_text() -> None:
    with pytest.raises(CellError, match="a cell's name must be a str or a Path; got int"):
        get_cell(3)  # type: ignore[arg-type]
    with pytest.raises(CellError, match="n from 1 to 64; got '4'"):
        ngram("4")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["missing.cell", "no/such", "a\0b.cell", "x" * 5000 + ".cell", "." + "/"])
def test_unreadable_files(name: str) -> None:
    with pytest.raises(FormatError, match="cannot read the cell"):
        get_cell(name)


def test_a_missing_file_is_named_once() -> None:
    with pytest.raises(FormatError) as caught:
        get_cell("missing.cell")
    assert str(caught.value) == "missing.cell: cannot read the cell: No such file or directory"


@pytest.mark.parametrize("number", [65, 9999, 999_999_999])
def test_a_number_that_is_too_large_is_told_from_an_unknown_name(number: int) -> None:
    with pytest.raises(CellError, match=f"n from 1 to 64; got {number}$"):
        get_cell(f"ngram{number}")


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = get_cell("B").to_text()
    Path("mine").write_text("\ufeff" + text, encoding="utf-8")  # as some editors write it
    assert get_cell("mine") == get_cell("B")
    Path("bad.cell").write_text(text.replace("loop q1", "lop q1"), encoding="utf-8")
    with pytest.raises(FormatError, match=r"bad.cell:10: cannot read 'lop q1 : f'"):
        get_cell("bad.cell")
    Path("latin.cell").write_bytes(text.encode() + b"\xff")
    with pytest.raises(FormatError, match=r"latin.cell: cannot read the cell: .*utf-8"):
        get_cell("latin.cell")
    Path("huge.cell").write_text("#" * 1_000_000)
    with pytest.raises(FormatError, match="at most 200000 characters"):
        get_cell("huge.cell")
    Path("B").write_text("not a cell")
    assert get_cell("B").name == "B"  # the zoo comes first


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_can_be_drawn_and_derived(name: str) -> None:
    cell = get_cell(name)
    assert equations(cell).count("=") >= 2 and latex(cell).isascii()
    assert cell.name in to_svg(cell)
    assert scan_text(cell)


@pytest.mark.parametrize(
    ("name", "given", "same"),
    [
        ("QRNN3-ifo", {}, qrnn(3, "ifo")),
        ("qrnn", {}, qrnn()),
        ("QRNN2", {"window": 5, "pooling": "f"}, qrnn(5, "f")),
        ("RCNN3-additive", {"decay": "constant"}, rcnn(3, "constant", True)),
        ("sopa6-max-times", {}, sopa(6, "max-times")),
        ("CNN5", {}, cnn(5)),
        ("SRU", {"activation": "relu"}, sru("relu")),
        ("SCRN-context", {"alpha": 0.5}, scrn(0.5)),
        ("HGRN", {"gamma": 0.25}, hgrn(0.25)),
        ("B-max-plus-coupled+o", {}, b_max_plus(True, "coupled")),
        ("QRNN3:pooling=ifo", {}, qrnn(3, "ifo")),
        ("qrnn:window=4,pooling=f", {}, qrnn(4, "f")),
        ("QRNN3:pooling=ifo", {"pooling": "f"}, qrnn(3, "f")),
        ("HGRN:gamma=0.25", {}, hgrn(0.25)),
        ("F:g=tanh,b_u", {}, f(g="tanh", b_u=True)),
        ("F+o:g=tanh,b_u=false", {}, f(True, g="tanh")),
        ("C", {"g": "silu", "b_u": True}, c(g="silu", b_u=True)),
        ("ngram1:g=relu", {}, ngram(1, g="relu")),
    ],
)
def test_numbers_and_options(name: str, given: dict[str, object], same: Cell) -> None:
    assert get_cell(name, **given) == same


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_cell("LSTM"), "LSTM is not a cell: it is not rational over real, log, max-plus"),
        (lambda: get_cell("RCNN3-state"), "RCNN3-state is not a cell"),
        (lambda: layer("LSTM", 4, 4, skip="residual"), "LSTM is not a cell and has its own options"),
        (lambda: get_cell("HGRN", gamma="x"), "gamma must be a number from 0 to 1; got 'x'"),
        (lambda: get_cell("HGRN", gamma=3.0), "gamma must be a number from 0 to 1; got 3.0"),
        (lambda: get_cell("SCRN-context", alpha="q"), "alpha must be a number from 0 to 1; got 'q'"),
        (lambda: get_cell("RCNN3-state"), "may not be rational"),
        (lambda: get_cell("B", n=3), "B has the options gate, g, b_u, signed; got 'n'"),
        (lambda: get_cell("B", gat=True), "got 'gat'. Did you mean 'gate'?"),
        (lambda: get_cell("F", g="tan"), "'silu'; got 'tan'. Did you mean 'tanh'?"),
        (lambda: get_cell("F:b_u=1"), "b_u must be True or False; got 1"),
        (lambda: get_cell("F:hh=1"), "F has the options gate, g, b_u, signed; got 'hh'"),
        (lambda: get_cell("F:"), "no cell is called 'F:'"),
        (lambda: get_cell("FF:g=tanh"), "no cell is called 'FF:g=tanh'"),
        (lambda: get_cell("B-max-plus:g=tanh"), "B-max-plus has the options gate, inputs; got 'g'"),
        (lambda: get_cell("minGRU", n=3), "minGRU has no options; got 'n'"),
        (lambda: get_cell("QRNN", pooling="of"), "pooling must be 'f', 'fo' or 'ifo'; got 'of'"),
        (lambda: get_cell("QRNN0"), "window must be a whole number from 1"),
        (
            lambda: get_cell("SoPa", semiring="boolean"),
            "SoPa's semiring must have a gradient and one component",
        ),
        (lambda: get_cell("SoPa0"), "length from 1 to 64; got 0"),
        (lambda: get_cell("CNN65"), "n from 1 to 64; got 65"),
        (lambda: get_cell("RCNN0"), "n from 1 to 64; got 0"),
        (lambda: get_cell("RCNN2", decay="none"), "'input' or 'constant'; got 'none'"),
        (lambda: get_cell("SRU", activation="selu"), "'tanh', 'relu' or 'identity'; got 'selu'"),
        (lambda: get_cell("B-max-plus", inputs="half"), "'plain', 'gated' or 'coupled'; got 'half'"),
        (lambda: layer("RCNN0-state", 3, 4), "n from 1 to 64; got 0"),
        (lambda: layer("LSTMM", 3, 4), "no model is called 'LSTMM'. Did you mean 'LSTM'. The zoo has"),
        (lambda: layer("LSTM+o", 3, 4), "LSTM has no variant with an output gate"),
        (lambda: get_model("nothing"), "no model is called 'nothing'"),
        (
            lambda: get_model("my.cell"),
            "takes models of the zoo; got the file 'my.cell'. Try: rrnn derive my.cell",
        ),
    ],
)
def test_mistakes_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(CellError, match=message):
        call()


def test_a_model_needs_its_automaton_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(power: int = 1) -> Cell:
        """Build a leaky integrator."""
        return b_automaton("mine", linear("u"), 0.5**power)

    monkeypatch.setitem(MODELS, "mine2", Model(mine, "nobody 2030", size="power"))
    assert get_cell("Mine3") == mine(3) and get_model("mine").paper == "nobody 2030"
    assert layer("mine2", 4, 3).cells == ((mine(), 3),)
    assert verify_model("mine").verdict == "rational"


def test_what_is_known_of_models() -> None:
    assert get_model("QRNN7-f").rational and get_model("F+o").kind == "cell"
    assert not get_model("LSTM").rational and get_model("lstm").kind == "layer"
    assert {name for name, model in MODELS.items() if not model.rational} == {
        *("SCRN", "RCNN2-state", "SRU-v2", "LSTM", "GRU", "RNN")
    }


def test_layers_are_built_by_name(tmp_path: Path) -> None:
    """`RationalRNN` takes a name wherever it takes a cell, with the cell's default options."""
    for name in ("F", "f+o", "SRU", "ngram3", "QRNN2", "QRNN2:pooling=ifo", "F:g=tanh,b_u"):
        rnn = RationalRNN(name, 4, 3, num_layers=2, bidirectional=True)
        same = RationalRNN(get_cell(name), 4, 3, num_layers=2, bidirectional=True)
        assert rnn.cells == ((get_cell(name), 3),) and repr(rnn) == repr(same)
        assert rnn.state_dict().keys() == same.state_dict().keys()
    assert RationalRNN([("B", 2), (get_cell("C"), 3)], 4).cells == ((get_cell("B"), 2), (get_cell("C"), 3))
    path = tmp_path / "mine.cell"
    path.write_text(get_cell("B").to_text(), encoding="utf-8")
    assert RationalRNN(str(path), 4, 3).cells == ((get_cell("B"), 3),)


def test_the_papers_g_and_b_u_are_off_by_default() -> None:
    for name, make in (("B", b), ("C", c), ("F", f)):
        assert make() == make(False, "identity", False) == get_cell(name)
        assert "tanh(W_u" not in equations(get_cell(name)) and "b_u" not in equations(get_cell(name))
    assert b(g="tanh", b_u=True).renamed("example") == get_cell("example")
    shown = equations(f(g="tanh", b_u=True))
    assert "u¹ₜ = (1 − f¹ₜ) ⊙ tanh(W_u¹ vₜ + b_u¹)" in shown and "tanh(W_u² vₜ + b_u²)" in shown
    assert "uₜ = (1 − fₜ) ⊙ (W_u vₜ + b_u)" in equations(b(b_u=True))


def test_layers_take_options_of_their_cells(tmp_path: Path) -> None:
    rnn = layer("QRNN2", 4, 3, 2, pooling="ifo", zoneout=0.1, dropout=0.5)
    assert rnn.cells == ((qrnn(2, "ifo"), 3),) and rnn.zoneout == 0.1 and rnn.num_layers == 2
    assert layer([("SoPa2", 3), ("SoPa3-real", 2)], 4).hidden_size == 5
    assert layer("RCNN3-state", 4, 3).layers[0].states == 3
    path = tmp_path / "mine.cell"
    path.write_text(get_cell("B").to_text(), encoding="utf-8")
    assert layer(str(path), 4, 3).cells == ((get_cell("B"), 3),)


def test_cells_do_not_wait_for_torch() -> None:
    code = "import sys, rrnn.zoo; rrnn.zoo.get_cell('QRNN3'); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
