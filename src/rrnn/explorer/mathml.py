"""Write equations as MathML for browsers: a third notation beside plain text and LaTeX."""

from __future__ import annotations

from html import escape

from rrnn.arithmetic import Op
from rrnn.ir.equations import Equations
from rrnn.ir.lower import Lowered
from rrnn.ir.notation import GRADIENTS, GREEK, PRODUCT, QUOTIENT, Formula, Notation, Symbol
from rrnn.ir.notation import PLAIN as _PLAIN


def mathml(lowered: Lowered) -> list[dict[str, str]]:
    """Return the equations of a recurrence as pairs of <math> elements: {"left": …, "right": …}."""
    return [
        {"left": _math(left), "right": _math(right)} for left, right in Equations(lowered, MATHML).lines()
    ]


def _math(inner: str) -> str:
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML">{inner}</math>'


def _mi(text: str) -> str:
    return f"<mi>{escape(text)}</mi>"


def _mo(text: str, attributes: str = "") -> str:
    return f"<mo{attributes}>{escape(text)}</mo>"


def _row(inner: str) -> str:
    return f"<mrow>{inner}</mrow>"


_FLAT = ' stretchy="false"'
_OPEN, _CLOSE = _mo("(", _FLAT), _mo(")", _FLAT)


class MathML(Notation):
    """The notation of equations in MathML."""

    joints = {c: _mo(c) for c in "+−⊙·∨∧≥>⊕⊗"}  # noqa: RUF012
    minus = _mo("−")

    def function(self, op: Op) -> str:
        return "".join(map(_mi, op.value.plain.split()))

    def joint(self, sign: str) -> str:
        return self.joints.get(sign, _mo(sign))

    def word(self, name: str) -> str:
        return _mi(name)

    def tuple(self, pieces: list[str]) -> str:
        return _mo("⟨", _FLAT) + _mo(",").join(pieces) + _mo("⟩", _FLAT)

    def symbol(self, symbol: Symbol) -> str:
        base, number, time, prefix, index = symbol
        letter, below = self._letter(base), self._time(time)
        if index:
            below = _mi(index) + (_mo(",") + below if below else "")
        if prefix in GRADIENTS:
            return _row(_mi(prefix) + self.symbol(symbol._replace(prefix="")))
        if prefix:
            letter, below = _mi(prefix), letter + (_mo(",") + below if below else "")
        above = _OPEN + f"<mn>{number}</mn>" + _CLOSE if number else ""
        if above and below:
            return f"<msubsup>{letter}{_row(below)}{_row(above)}</msubsup>"
        if above:
            return f"<msup>{letter}{_row(above)}</msup>"
        return f"<msub>{letter}{_row(below)}</msub>" if below else letter

    def along(self, function: str, index: str, body: Formula) -> Formula:
        if function in ("Σ", "⊕"):
            inner = self.at_least(body, PRODUCT)
            return Formula(
                f"<munder>{_mo('∑' if function == 'Σ' else '⨁')}{_mi(index)}</munder>{inner}", QUOTIENT
            )
        return Formula(f"<msub>{_mi(function)}{_mi(index)}</msub>" + self.brackets(body.text))

    def indexed(self, indices: list[tuple[str, int]]) -> str:
        ranges = (_mi(i) + _mo("=") + f"<mn>1</mn>{_mi('…')}<mn>{size}</mn>" for i, size in indices)
        return '<mspace width="1.5em"></mspace>' + _mo(",").join(ranges)

    def _letter(self, base: str) -> str:
        word = base.rstrip("′")
        return _mi(GREEK.get(word, word) + base[len(word) :])

    def _time(self, time: str) -> str:
        if not time or time == "t":
            return _mi("t") if time else ""
        return f"<mn>{time}</mn>" if time == "0" else _mi("t") + _mo("−") + f"<mn>{time[2:]}</mn>"

    def number(self, value: float) -> str:
        text = _PLAIN.number(value)
        digits = f"<mn>{escape(text.removeprefix('−'))}</mn>"
        return self.minus + digits if text.startswith("−") else digits

    def matrix_times(self, matrix: Symbol, vectors: list[Symbol], more: bool) -> str:
        inputs = [self.symbol(v) for v in vectors]
        if more:
            inputs.insert(1, _mi("…"))
        stack = inputs[0] if len(inputs) == 1 else _mo("[", _FLAT) + _mo(";").join(inputs) + _mo("]", _FLAT)
        return self.symbol(matrix) + '<mspace width="0.15em"></mspace>' + stack

    def apply(self, function: str, argument: str) -> str:
        return function + _mo("\u2061") + self.brackets(argument)  # the invisible "of", for screen readers

    def brackets(self, text: str) -> str:
        return _OPEN + text + _CLOSE

    def choose(self, function: str, options: list[str]) -> str:
        return _mi(function) + _mo("{", _FLAT) + _mo(",").join(options) + _mo("}", _FLAT)

    def quotient(self, above: Formula, below: Formula) -> Formula:
        return Formula(f"<mfrac>{_row(above.text)}{_row(below.text)}</mfrac>")

    def root(self, text: str) -> str:
        return f"<msqrt>{_row(text)}</msqrt>"

    def component(self, text: str, name: str) -> str:
        return _row(text + _mo(".", ' lspace="0" rspace="0"') + self.word(name))

    def size(self, text: str) -> str:
        return _mo("|", _FLAT) + text + _mo("|", _FLAT)

    def truth(self, statement: str) -> str:
        return _mo("[", _FLAT) + statement + _mo("]", _FLAT)

    def lines(self, equations: list[tuple[str, str]]) -> str:
        rows = (f"<mtr><mtd>{a}</mtd><mtd>{_mo('=')}{b}</mtd></mtr>" for a, b in equations)
        return _math(f"<mtable>{''.join(rows)}</mtable>")


MATHML = MathML()
