"""The text form: round trips, messages with line numbers, and nothing but `RRNNError` from hostile text."""

from __future__ import annotations

import time

import pytest
from cell_language_strategies import cells, expressions
from hypothesis import given
from hypothesis import strategies as st

from rrnn.automata import Cell, Expr, expr_text, linear, one, parse_expr, sigmoid, tanh
from rrnn.automata import expressions as ex
from rrnn.automata.cell_text import MAX_TEXT
from rrnn.errors import CellError, FormatError, RRNNError

B = """rrnn-cell 1
cell B
semiring real
f = sigmoid(linear("f", bias=True))
u = (1 - f) * linear("u")
states q0 q1
initial q0
loop q0 : one
arc q0 -> q1 : u
loop q1 : f
final q1
output tanh(score)
"""


def labels(cell: Cell) -> list[str | None]:
    return [node.label for top in cell.expressions() for node in ex.walk(top)]


# Random weights may grow; that there is a warning is tried elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")

# ---- round trips -------------------------------------------------------------------------------------------


@given(cells())
def test_cells_round_trip(cell: Cell) -> None:
    assert cell.check() is cell
    text = cell.to_text()
    again = Cell.from_text(text)
    assert again == cell and hash(again) == hash(cell)
    assert again.to_text() == text
    fields = "name semiring_name states arcs initials finals output_exprs epsilon_limit epsilon_after_last"
    assert all(getattr(again, field) == getattr(cell, field) for field in fields.split())
    # labels survive: of several for one expression the first, and none moves to another expression
    first: dict[Expr, str] = {}
    for top in cell.expressions():
        for node in ex.walk(top):
            if node.label:
                first.setdefault(node, node.label)
    assert all(
        node.label == first.get(node, node.label) for top in again.expressions() for node in ex.walk(top)
    )
    assert labels(Cell.from_text(text)) == labels(again)


@given(expressions())
def test_expressions_round_trip(expr: Expr) -> None:
    assert parse_expr(expr_text(expr)) == expr


def test_deep_expressions_round_trip() -> None:
    for grow in (lambda e: -e, lambda e: 1 - e, lambda e: e - 1, tanh, lambda e: e * (1 - ex.one)):
        deep: Expr = linear("u")
        while deep.depth < ex.MAX_DEPTH:
            try:
                deep = grow(deep)
            except CellError:
                break
        assert parse_expr(expr_text(deep)) == deep
        cell = Cell("X").initial("q0").final("q0").output(deep) if ex.one not in ex.walk(deep) else None
        assert cell is None or Cell.from_text(cell.to_text()) == cell


def test_text_of_b() -> None:
    f = sigmoid(linear("f", bias=True))
    cell = (
        Cell("B").initial("q0").loop("q0", one).arc("q0", "q1", (1 - f) * linear("u")).loop("q1", f)
        .final("q1").output(tanh("score"))
    )  # fmt: skip
    assert cell.to_text() == B
    assert Cell.from_text(B) == cell


def test_every_kind_of_line() -> None:
    text = """rrnn-cell 1
cell X
semiring log
epsilon_limit 2 not after last
output = linear("u", window=3)
states q0 q1
initial q0 : -0.5
loop q0 : output
loop+ q0 : zero
arc q0 -> q1 : output
arc+ q0 -> q1 : 1e-05
epsilon q1 -> q0 : log_sigmoid(parameter("r"))
epsilon+ q1 -> q0 : 0.1
epsilon q0 -> q0 : one
final q0
final q1 : -(parameter("r") * 2) - (1 - 2) - 1
output input() * score
"""
    cell = Cell.from_text(text)
    # two things are named by the writer: the gate of r, and the one weight that r alone explains stays unnamed
    again = cell.to_text()
    assert 'r = log_sigmoid(parameter("r"))' in again
    assert Cell.from_text(again) == cell
    assert cell.epsilon_limit == 2 and not cell.epsilon_after_last


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.replace("\n", "   # a comment : -> = \n\n# more\n\n"),
        lambda t: t.replace(" ", "\t"),
        lambda t: "\n\n# first a comment\n" + t,
        lambda t: t.replace("loop q0 : one", "loop q0:one").replace("q0 -> q1 : u", "q0->q1:u"),
        lambda t: t.replace('"', "'").replace("(1 - f)", "((1) - (f))"),
        lambda t: t.replace("states q0 q1\n", ""),
        lambda t: t.replace("f = ", "unused = 3\nf = ").replace("semiring real\n", ""),
        lambda t: t.replace("(1 - f)", "(1.0e0 - f)").replace("loop q0", "arc q0 -> q0"),
        lambda t: t.rstrip(),
    ],
)
def test_other_ways_to_write_it(change) -> None:
    assert Cell.from_text(change(B)).to_text() == B


def test_precedence() -> None:
    a, b = linear("a"), linear("b")
    known = {"a": a, "b": b}
    for text, expected in {
        "a + b * a": a + b * a,
        "a * b + a": a * b + a,
        "a - b - a": (a - b) - a,
        "a - (b - a)": a - (b - a),
        "-a * b": (-a) * b,
        "-a - -b": (-a) - (-b),
        "a * -b": a * (-b),
        "--a": ex.Call("neg", -a),
        "-2 * a": ex.as_expr(-2) * a,
        "- 2": ex.as_expr(-2),
        ".5 + 1. + 1E+2": ex.as_expr(0.5) + 1 + 100,
    }.items():
        assert parse_expr(text, known) == expected, text


# ---- mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("rrnn-cell 1", "rrnn-cell 3", 1, "starts with the line 'rrnn-cell 1'; got 'rrnn-cell 3'"),
        ("cell B", "cell B C", 2, "a cell's name must be an identifier"),
        ("cell B", "sell B", 2, "cannot read 'sell B'. A line is one of: cell NAME"),
        ("semiring real", "semiring rael", 3, "unknown semiring 'rael'.*Did you mean 'real'"),
        ("semiring real", "semiring boolean", 9, "may be other than 0 and 1"),
        (
            "semiring real",
            "semiring real\nsemiring log",
            4,
            "a text has one 'semiring' line; this is the second",
        ),
        ("semiring real", "epsilon_limit 99", 3, "whole number from 0 to 64; got 99"),
        ("semiring real", "epsilon_limit two", 3, "expected epsilon_limit K"),
        ("f = sig", "f = sg", 4, "'sgmoid' is not a function of the cell language. Did you mean 'sigmoid'"),
        ("u = (1 - f)", "u = (1 - g)", 5, "'g' is not defined above this line.*Define it first"),
        ("tanh(score)", "tanh(scor)", 12, r"'scor' is not defined above this line. Did you mean 'score'\?$"),
        ("states q0 q1", "states q0, q1", 6, "separates names by blanks; write: states q0 q1"),
        ("u = (1", "f = (1", 5, "'f' is defined twice"),
        ("u = (1", "tanh = (1", 5, "'tanh' is a word of the cell language"),
        ("u = (1", "1u = (1", 5, "an expression's name must be an identifier"),
        ("(1 - f)", "(1 - f", 5, r"cannot read .* expected '\)', got the end"),
        ("(1 - f)", "(1 - - f))", 5, r"expected an operator .* got '\)'"),
        ("(1 - f)", "(1 f)", 5, r"expected '\)', got 'f'"),
        ('linear("u")', "linear(u)", 5, "a name in quotes, as in linear\\(\"u\"\\), got 'u'"),
        ('linear("u")', 'linear("u", bias=1)', 5, "expected True or False, got '1'"),
        ('linear("u")', 'linear("u", window=0)', 5, "window must be a whole number from 1"),
        ('linear("u")', 'linear("u", window=1.5)', 5, "a whole number from 1 to 1000, got '1.5'"),
        ('linear("u")', 'linear("u", bias=True, bias=True)', 5, "each once, got 'bias'"),
        ('linear("u")', 'linear("u", size=3)', 5, "expected bias=True or window=K"),
        ('linear("u")', 'linear("u v")', 5, "a projection's name must be an identifier"),
        ("states q0 q1", "states q0 q-1", 6, "a state's name must be an identifier"),
        ("states q0 q1", "states q0 q2", 9, "unknown state 'q1': the states line does not list it"),
        (
            "states q0 q1\ninitial q0",
            "initial q0\nstates q0 q1",
            7,
            "the states line comes before all lines with states",
        ),
        ("initial q0", "initial q0 : f", 7, "the initial weight of 'q0' depends on the input"),
        ("loop q1 : f", "loop q_1 : f", 10, "unknown state 'q_1'.* Did you mean 'q1'"),
        (
            "loop q1 : f",
            "loop q0 : f",
            10,
            r"given twice. Write arc\+ \(loop\+, epsilon\+\) to let both count",
        ),
        ("loop q1 : f", "loop q1 -> q1 : f", 10, "cannot read 'loop q1 -> q1 : f'"),
        ("loop q1 : f", "loop q1 : 1e999", 10, "must be finite"),
        ("loop q1 : f", "loop q1 : score", 10, "uses `score`"),
        ("loop q1 : f", "loop q1 : one * f", 10, "`one` or `zero` inside arithmetic"),
        ("loop q1 : f", "epsilon q1 -> q0 : f", 10, "the ε-arc 'q1' → 'q0' depends on the input"),
        ("final q1", "final q1\nfinal q1", 12, "'q1' is given a second"),
        ("output tanh(score)", "output", 12, "cannot read 'output'"),
        ("output tanh(score)", "output tanh(scores)", 12, "'scores' is not defined"),
        ("output tanh(score)", "output zero", 12, "the output expression uses `one` or `zero`"),
        ("initial q0\n", "", None, "no initial state"),
        ("final q1\n", "", None, "no final state"),
        ("arc q0 -> q1 : u\n", "", None, "no final state .* is reachable"),
        ("loop q1 : f", "epsilon q1 -> q1 : 1", None, "ε-cycle q1 → q1"),
        ('linear("u")', 'linear("f")', None, "uses the name 'f' in two ways"),
    ],
)
def test_mistakes_name_their_line(old: str, new: str, line: int | None, message: str) -> None:
    assert old in B
    with pytest.raises(FormatError, match=message) as caught:
        Cell.from_text(B.replace(old, new), "b.cell")
    assert caught.value.source == "b.cell" and caught.value.line == line
    assert str(caught.value).startswith(f"b.cell:{line}: " if line else "b.cell: ")


@pytest.mark.parametrize(
    ("old", "new", "call", "fix"),
    [
        ("initial q0\n", "", "call .initial(state)", "add a line, such as: initial q0"),
        ("final q1\n", "", "call .final(state, weight)", "add a line, such as: final q1"),
        ("loop q1 : f", "epsilon q1 -> q1 : 1", "call .limit_epsilon(k)", "add the line: epsilon_limit 3"),
        ("loop q1 : f", "loop q0 : f", 'merge="plus"', "Write arc+ (loop+, epsilon+)"),
        ("semiring real", "semiring complex", ".output(score.re, score.im)", "output score.re, score.im"),
        ("loop q1 : f", "loop q1 : polar(f, 1)", "Cell(name, 'complex')", "semiring complex"),
    ],
)
def test_fixes_are_lines_of_the_text(old: str, new: str, call: str, fix: str) -> None:
    """A message about a text says what to write there; about a cell in Python, what to call."""
    assert old in B
    with pytest.raises(FormatError) as caught:
        Cell.from_text(B.replace(old, new))
    assert fix in str(caught.value) and call not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "#", "rrnn-cell", "\0", "B", B.encode(), None, 3])
def test_no_cell_at_all(text) -> None:
    with pytest.raises(FormatError):
        Cell.from_text(text)


# ---- hostile text ------------------------------------------------------------------------------------------

WEIGHTS = {
    "deep brackets": "(" * 50_000 + "f" + ")" * 50_000,
    "deep calls": "tanh(" * 10_000 + "f" + ")" * 10_000,
    "deep minus": "-" * 50_000 + "f",
    "open brackets": "(" * 100_000,
    "long sum": " + ".join(["f"] * 20_000),
    "doubling by hand": "*".join(["f"] * 3_000),
    "infinite": "1e999",
    "huge integer": "1" + "0" * 400,
    "digits": "9" * 150_000,
    "negative": "-1e999",
    "attribute": "f.__class__",
    "attribute of a call": 'linear("u").label',
    "subscript": "f[0]",
    "lambda": "lambda: 0",
    "lambda called": "(lambda x: x)(f)",
    "f-string": 'f"{1}"',
    "f-string name": 'linear(f"{1}")',
    "bytes": 'linear(b"u")',
    "escape": r'linear("\d")',
    "walrus": "(f := 3)",
    "import": '__import__("os")',
    "conditional": "1 if f else 2",
    "comparison": "f < 1",
    "power": "9**9**9**9",
    "floor": "f // 2",
    "matrix product": "f @ f",
    "shift": "1 << 1000000",
    "complex": "1j",
    "underscores": "1_000",
    "hexadecimal": "0x10",
    "list": "[f]",
    "tuple": "f, f",
    "star": "tanh(*f)",
    "keywords": "tanh(x=f)",
    "two arguments": "tanh(f, f)",
    "no argument": "tanh()",
    "input of something": "input(f)",
    "neg": "neg(f)",
    "await": "await f",
    "unknown": "nan",
    "infinity": "inf",
    "True": "True",
    "ellipsis": "...",
    "semicolon": "f; f",
    "NUL": "f\0",
    "NUL in a name": 'linear("u\0")',
    "surrogate": "\ud800",
    "look-alike": "ｆ",
    "ligature": 'linear("ﬁ")',
    "quote": '"',
    "quotes": "'" * 1001,
    "right-to-left": "\u202ef",
    "backslash": "f \\",
    "nothing but spaces": " " * 100_000 + "!",
    "arrows": "->" * 50_000,
    "unicode digit": "٣",
    "superscript": "²",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_hostile_expressions(name: str) -> None:
    weight = WEIGHTS[name]
    start = time.perf_counter()
    with pytest.raises(FormatError):
        Cell.from_text(B.replace("loop q1 : f", f"loop q1 : {weight}"))
    for place in (f"x = {weight}\nloop q1 : f", f"loop q1 : f\nfinal q0 : {weight}", f"{weight}"):
        with pytest.raises(FormatError) as caught:
            Cell.from_text(B.replace("loop q1 : f", place))
        assert len(str(caught.value)) < 1000
    assert time.perf_counter() - start < 2


def many(line: str, count: int) -> str:
    return B.replace("final q1", "\n".join(line.replace("%", str(i)) for i in range(count)) + "\nfinal q1")


TEXTS = {
    "too long": B + "#" * MAX_TEXT,
    "doubling by names": B.replace(
        "states q0", "x0 = f\n" + "\n".join(f"x{i + 1} = x{i} * x{i}" for i in range(200)) + "\nstates q0"
    ),
    "deepening by names": B.replace(
        "states q0", "x0 = f\n" + "\n".join(f"x{i + 1} = -x{i}" for i in range(200)) + "\nstates q0"
    ),
    "many states": B.replace("states q0 q1", "states q0 q1 " + " ".join(f"s{i}" for i in range(20_000))),
    "many arcs": many("arc+ q0 -> q1 : 1", 9_000),
    "large arcs": B.replace("states q0", "big = " + "*".join(["f"] * 90) + "\nstates q0").replace(
        "final q1", "loop+ q1 : big * big\n" * 8_000 + "final q1"
    ),
    "many new states": many("arc p% -> q1 : 1", 5_000).replace("states q0 q1\n", ""),
    "ε everywhere": many("epsilon+ q1 -> q1 : 1", 4_000),
    "garbage": "rrnn-cell 1\n" + "\0\n" * 50_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_texts(name: str) -> None:
    start = time.perf_counter()
    with pytest.raises(FormatError):
        Cell.from_text(TEXTS[name])
    assert time.perf_counter() - start < 5


def test_a_cell_as_large_as_allowed_is_read_quickly() -> None:
    lines = [f"epsilon q{i} -> q{j} : r" for i in range(63) for j in range(i + 1, 63)]
    text = (
        "rrnn-cell 1\nr = sigmoid(parameter('r'))\ninitial q0\n"
        + "\n".join(lines)
        + "\nfinal q62\noutput score"
    )
    start = time.perf_counter()
    assert len(Cell.from_text(text).arcs) == 63 * 31
    assert time.perf_counter() - start < 5


@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    for whole in (text, "rrnn-cell 1\n" + text, B + text, B.replace("(1 - f)", text)):
        try:
            Cell.from_text(whole)
        except RRNNError as error:
            assert isinstance(error, FormatError)


@given(st.data())
def test_mangled_text(data: st.DataObject) -> None:
    text = data.draw(cells()).to_text()
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        middle = data.draw(
            st.sampled_from(["", text[i:j] * 2, "\n", "(", ")", "1e999", "zero", "->", "=", "\0"])
        )
        text = text[:i] + middle + text[min(j, i + 10) :]
    try:
        cell = Cell.from_text(text)
    except FormatError:
        return
    assert Cell.from_text(cell.to_text()) == cell


def test_a_text_too_long_to_be_read_is_not_written() -> None:
    names = ["s" * 60 + f"{i}" for i in range(100)]
    cell = Cell("X").initial(names[0]).final(names[0])
    for a in names[:40]:
        for b in names[:40]:
            cell = cell.arc(a, b, one)
    with pytest.raises(CellError, match="at most 200000 characters; that of cell 'X' would have"):
        cell.to_text()
