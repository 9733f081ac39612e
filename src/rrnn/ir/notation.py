"""Write mathematics in two notations, plain text and LaTeX: tables of strings over the same symbols and operations.

`ProgramSymbols` chooses the symbols of one program, so that no two of its names look alike.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rrnn.ir.program import Op, Program

# How tightly a text binds; looser text inside tighter gets brackets. NEGATIVE is one term with a minus before it.
# MATRIX is W v, which would read as W (v ⊙ x) if something followed it.
SUM, NEGATIVE, QUOTIENT, PRODUCT, MATRIX, ATOM = range(6)


class Formula(NamedTuple):
    """A piece of mathematics and how tightly it binds."""

    text: str
    level: int = ATOM


class Symbol(NamedTuple):
    """f¹ₜ: a letter or word, perhaps below another one (W_f), a number above it, and a time."""

    base: str
    number: str = ""
    time: str = ""  # "", "t", "t-1", "0"
    prefix: str = ""  # W, b, or one of GRADIENTS
    index: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]


def symbol_of(name: str, time: str = "", prefix: str = "") -> Symbol:
    """Return the symbol of a name of the cell language: digits at its end are a number."""
    base, number = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
    return Symbol(base.rstrip("_") or base or "_", number, time, prefix)


class Notation(ABC):
    """Everything that plain text and LaTeX write differently."""

    joints: dict[str, str]  # + − ⊙ · ∨ ∧ ≥ >
    minus: str

    @abstractmethod
    def function(self, op: Op) -> str:
        """Return how the table of ops writes this one here."""

    def joint(self, sign: str) -> str:
        """Return a sign between two pieces; one that is not in the table, of a user's semiring, is written as it is."""
        return self.joints.get(sign, f" {sign} ")

    def word(self, name: str) -> str:
        """Return the name of a function that is no op."""
        return name

    @abstractmethod
    def tuple(self, pieces: list[str]) -> str:
        """Write the components of an element."""

    def component(self, text: str, name: str) -> str:
        """Write a component as c.re, as in the cell language."""
        return f"{text}.{self.word(name)}"

    @abstractmethod
    def symbol(self, symbol: Symbol) -> str:
        """Write a symbol."""

    @abstractmethod
    def number(self, value: float) -> str:
        """Write a number."""

    @abstractmethod
    def along(self, function: str, index: str, body: Formula) -> Formula:
        """Write a sum ("Σ", or "⊕" of a semiring), maximum ("max") or another fold over an index."""

    @abstractmethod
    def indexed(self, indices: list[tuple[str, int]]) -> str:
        """Write for which indices an equation holds, at its end: (letter, number of indices) of each."""

    @abstractmethod
    def matrix_times(self, matrix: Symbol, vectors: list[Symbol], more: bool) -> str:
        """Write W v, or W on the stacked inputs of a window (`more`: some in the middle are left out)."""

    @abstractmethod
    def apply(self, function: str, argument: str) -> str:
        """Write a function of an argument."""

    @abstractmethod
    def choose(self, function: str, options: list[str]) -> str:
        """Write a choice among options, as max{a, b}."""

    @abstractmethod
    def quotient(self, above: Formula, below: Formula) -> Formula:
        """Write a quotient."""

    @abstractmethod
    def root(self, text: str) -> str:
        """Write a square root."""

    def size(self, text: str) -> str:
        """Write the absolute value."""
        return f"|{text}|"

    @abstractmethod
    def truth(self, statement: str) -> str:
        """Write what is 1 where a statement holds, and 0 elsewhere."""

    @abstractmethod
    def lines(self, equations: list[tuple[str, str]]) -> str:
        """Write equations below each other."""

    def brackets(self, text: str) -> str:
        """Write a text in brackets."""
        return f"({text})"

    def at_least(self, piece: Formula, level: int) -> str:
        """Return a formula's text, in brackets if it binds less tightly than `level`."""
        return piece.text if piece.level >= level else self.brackets(piece.text)


_SMALL = (
    "alpha α beta β gamma γ delta δ epsilon ϵ zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ "
    "pi π rho ρ sigma σ tau τ upsilon υ phi φ chi χ psi ψ omega ω"
)
_LARGE = "Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω"
_WORDS = f"{_SMALL} {_LARGE}".split()
GREEK: dict[str, str] = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
"""Names of letters, for equations and pictures. A parameter called epsilon becomes ϵ, since ε is the empty string."""

GRADIENTS = {"δ": r"\delta", "∂": r"\partial"}  # the second where δ is a weight
_ABOVE = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_BELOW = str.maketrans("ijkl", "ᵢⱼₖₗ")
_PLAIN_TIMES = {"": "", "t": "ₜ", "t-1": "ₜ₋₁", "0": "₀"}


class Plain(Notation):
    minus = "−"
    joints = {c: f" {c} " for c in "+−⊙·∨∧≥>"}  # noqa: RUF012

    def function(self, op: Op) -> str:
        return op.value.plain

    def tuple(self, pieces: list[str]) -> str:
        return f"⟨{', '.join(pieces)}⟩"

    def along(self, function: str, index: str, body: Formula) -> Formula:
        below = index.translate(_BELOW)
        if function in ("Σ", "⊕"):
            return Formula(f"{function}{below} {self.at_least(body, PRODUCT)}", QUOTIENT)
        return Formula(f"{function}{below}{{{body.text}}}")

    def indexed(self, indices: list[tuple[str, int]]) -> str:
        return "   (" + ", ".join(f"{letter} = 1…{size}" for letter, size in indices) + ")"

    def symbol(self, symbol: Symbol) -> str:
        base, number, time, prefix, index = symbol
        joint = "_" if prefix and prefix not in GRADIENTS else ""
        if re.fullmatch(r"t-\d+", time) and time != "t-1":
            end = "ₜ₋" + "".join("₀₁₂₃₄₅₆₇₈₉"[int(d)] for d in time[2:])
        else:
            end = _PLAIN_TIMES[time]
        word = base.rstrip("′")
        letter = GREEK.get(word, word) + base[len(word) :]
        return prefix + joint + letter + number.translate(_ABOVE) + index.translate(_BELOW) + end

    def number(self, value: float) -> str:
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return _digits(value).replace("-", "−")

    def matrix_times(self, matrix: Symbol, vectors: list[Symbol], more: bool) -> str:
        inputs = [self.symbol(v) for v in vectors]
        if more:
            inputs.insert(1, "…")
        return self.symbol(matrix) + " " + (inputs[0] if len(inputs) == 1 else f"[{'; '.join(inputs)}]")

    def apply(self, function: str, argument: str) -> str:
        return f"{function}({argument})"

    def choose(self, function: str, options: list[str]) -> str:
        return f"{function}{{{', '.join(options)}}}"

    def quotient(self, above: Formula, below: Formula) -> Formula:
        return Formula(f"{self.at_least(above, ATOM)} / {self.at_least(below, ATOM)}", QUOTIENT)

    def root(self, text: str) -> str:
        return f"√({text})"

    def truth(self, statement: str) -> str:
        return f"[{statement}]"

    def lines(self, equations: list[tuple[str, str]]) -> str:
        width = max((len(left) for left, _ in equations), default=0)
        return "".join(f"{left:<{width}} = {right}\n" for left, right in equations)


class Latex(Notation):
    minus = "-"
    joints = {  # noqa: RUF012
        **{"+": " + ", "−": " - ", "⊙": r" \odot ", "·": r" \cdot "},
        **{"∨": r" \lor ", "∧": r" \land ", "≥": r" \ge ", ">": " > ", "⊕": r" \oplus ", "⊗": r" \otimes "},
    }

    def function(self, op: Op) -> str:
        return op.value.latex

    def word(self, name: str) -> str:
        return rf"\operatorname{{{self._escape(name)}}}"

    def tuple(self, pieces: list[str]) -> str:
        return rf"\langle {', '.join(pieces)} \rangle"

    def along(self, function: str, index: str, body: Formula) -> Formula:
        if function in ("Σ", "⊕"):
            sign = r"\sum" if function == "Σ" else r"\bigoplus"
            return Formula(rf"{sign}_{index} {self.at_least(body, PRODUCT)}", QUOTIENT)
        name = rf"\{function}" if function in ("max", "min") else rf"\operatorname{{{function}}}"
        return Formula(rf"{name}_{index}\{{{body.text}\}}")

    def indexed(self, indices: list[tuple[str, int]]) -> str:
        return r", \quad " + ", ".join(rf"{letter} = 1, \dots, {size}" for letter, size in indices)

    def symbol(self, symbol: Symbol) -> str:
        base, number, time, prefix, index = symbol
        letter = self._letter(base)
        below = "{" + time + "}" if len(time) > 1 else time
        if index:
            below = "{" + ", ".join(part for part in (index, time) if part) + "}"
        if prefix in GRADIENTS:
            letter = rf"{GRADIENTS[prefix]} {letter}"
        elif prefix:
            below = self._word(base) + (f", {index}" if index else "")
            letter, below = rf"\mathbf{{{prefix}}}", "{" + below + "}"
        return letter + (f"^{{({number})}}" if number else "") + (f"_{below}" if below else "")

    def _letter(self, base: str) -> str:
        primes = len(base) - len(base.rstrip("′"))
        base = base.rstrip("′")
        text = rf"\boldsymbol{{\{base}}}" if base in GREEK else rf"\mathbf{{{self._escape(base)}}}"
        return text + r"{}'" * primes

    def _word(self, base: str) -> str:
        if base in GREEK:
            return "\\" + base
        return self._escape(base) if len(base) == 1 else rf"\mathrm{{{self._escape(base)}}}"

    @staticmethod
    def _escape(text: str) -> str:
        return text.replace("_", r"\_").replace("′", "'")

    def number(self, value: float) -> str:
        if math.isinf(value):
            return r"\infty" if value > 0 else r"-\infty"
        mantissa, _, exponent = _digits(value).partition("e")
        return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa

    def matrix_times(self, matrix: Symbol, vectors: list[Symbol], more: bool) -> str:
        inputs = [self.symbol(v) for v in vectors]
        if more:
            inputs.insert(1, r"\dots")
        stack = inputs[0] if len(inputs) == 1 else f"[{'; '.join(inputs)}]"
        return f"{self.symbol(matrix)} {stack}"

    def apply(self, function: str, argument: str) -> str:
        return function + self.brackets(argument)

    def brackets(self, text: str) -> str:
        return rf"\bigl({text}\bigr)" if " " in text else f"({text})"

    def choose(self, function: str, options: list[str]) -> str:
        name = rf"\{function}" if function in ("max", "min") else rf"\operatorname{{{function}}}"
        return name + rf"\{{{', '.join(options)}\}}"

    def quotient(self, above: Formula, below: Formula) -> Formula:
        return Formula(rf"\frac{{{above.text}}}{{{below.text}}}")

    def root(self, text: str) -> str:
        return rf"\sqrt{{{text}}}"

    def truth(self, statement: str) -> str:
        return rf"\mathbb{{1}}[{statement}]"

    def lines(self, equations: list[tuple[str, str]]) -> str:
        body = " \\\\\n".join(f"{left} &= {right}" for left, right in equations)
        return f"\\begin{{align}}\n{body}\n\\end{{align}}\n"


def _digits(value: float) -> str:
    text = str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
    return re.sub(r"e([+-])0*", lambda m: "e" + m[1].strip("+"), text)


PLAIN, LATEX = Plain(), Latex()


INDEX_LETTERS = "ijklmn"


class ProgramSymbols:
    """The symbols of one program: names of the cell language, states, score and outputs.

    `names` are those of instructions, `outputs` the number of the cell's outputs if the program is derived from it, and
    `taken` are further names whose letters must stay free.
    """

    def __init__(
        self,
        program: Program,
        notation: Notation,
        names: Mapping[int, str],
        outputs: int = 0,
        taken: Iterable[str] = (),
    ) -> None:
        self.program, self.notation = program, notation
        self.output_count = outputs or program.output_count
        self._symbols: dict[str, Symbol] = {}  # name of the cell language → its symbol
        # Family → the letter of its index, where that is not the usual one
        self.index_letters: dict[int, str] = {}
        self.names = {n: self._symbol(name) for n, name in names.items()}
        self.parameters = [self._parameter(name, names) for name in program.parameters]
        self.projections = [self._symbol(name)._replace(prefix="W") for name in program.projections]
        self._letters_used = {s.base for s in (*self.names.values(), *self.parameters) if not s.prefix}
        self._letters_used |= {symbol_of(name).base for name in taken}
        self.gradient = "∂" if self._letters_used & {"delta", "δ"} else "δ"
        self._state_letter, self.input_letter = self._letter("c", "z", "s"), self._letter("v", "x")
        self._output_letter, self._score_letter = self._letter("h", "y"), self._letter("s", "score")

    def index(self, n: int) -> str:
        """Return the index on which an instruction's value depends, "" if there is none."""
        return self._letters_of(sorted(self.program.over[n]))

    def _letters_of(self, families: Iterable[int]) -> str:
        return "".join(self.index_letters.get(f, INDEX_LETTERS[f % len(INDEX_LETTERS)]) for f in families)

    def leaf_symbol(self, op: Op, index: int) -> Symbol:
        """Return the symbol of a parameter, or that of a projection's matrix, with the indices that it has."""
        symbol = self.parameters[index] if op is Op.PARAM else self.projections[index]
        wide = self.program.wide
        return (
            symbol
            if wide is None
            else symbol._replace(index=self._letters_of(sorted(wide.extent(op, index).over)))
        )

    def state(self, s: int, time: str, prefix: str = "") -> str:
        """Return the symbol of a stored state: c if there is one, else c¹, c², …; components are c¹.re and c¹.im."""
        state, _, component = self.program.states[s].partition(".")
        states = list(dict.fromkeys(q.partition(".")[0] for q in self.program.states))
        number = str(states.index(state) + 1) if len(states) > 1 else ""
        index = self._letters_of(self.program.wide.states[s].over) if self.program.wide else ""
        symbol = self.notation.symbol(Symbol(self._state_letter, number, time, prefix, index))
        return self.notation.component(symbol, component) if component else symbol

    @property
    def score_symbol(self) -> str:
        """The symbol of the score: cₜ, but sₜ where c is the one stored state and the score is not just that."""
        score, new = self.program.of_kind("score")[0], self.program.of_kind("state")
        letter = self._score_letter if len(new) == 1 and new[0] != score else self._state_letter
        return self.notation.symbol(Symbol(letter, "", "t"))

    def output(self, k: int, prefix: str = "") -> str:
        """Return the symbol of an output: h if there is one, else h¹, h², …"""
        number = str(k + 1) if self.output_count > 1 else ""
        return self.notation.symbol(Symbol(self._output_letter, number, "t", prefix))

    def _symbol(self, name: str) -> Symbol:
        """Return the symbol of a name: f¹ for f1, but f′¹ if f_1 has that symbol already."""
        symbol = self._symbols.get(name, symbol_of(name))
        while name not in self._symbols:
            if symbol in self._symbols.values():
                symbol = symbol._replace(base=symbol.base + "′")
            else:
                self._symbols[name] = symbol
        return symbol

    def _parameter(self, name: str, names: Mapping[int, str]) -> Symbol:
        """Return the symbol of a parameter: b_f for the bias of f."""
        if name.endswith(".bias"):
            return self._symbol(name.removesuffix(".bias"))._replace(prefix="b")
        # The paper writes r = σ(b_r): if the name stands for more than the parameter, the parameter is called b.
        more = any(name == other and not self._is_parameter(n) for n, other in names.items())
        return self._symbol(name)._replace(prefix="b" if more else "")

    def _is_parameter(self, n: int) -> bool:
        return self.program.instructions[n].op is Op.PARAM

    def _letter(self, *choices: str) -> str:
        """Return the first choice that no name uses, with or without a number."""
        letter = next((c for c in choices if c not in self._letters_used), choices[0] + "′")
        while letter in self._letters_used:
            letter += "′"
        self._letters_used.add(letter)
        return letter
