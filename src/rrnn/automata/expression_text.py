"""Expressions as text, both ways, and names for them.

What is written reads back as the same tree; nothing read is ever evaluated. Names let text and equations say f¹ and u¹
instead of repeating formulas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rrnn.automata import expressions as ex
from rrnn.errors import CellError, FormatError

if TYPE_CHECKING:
    from rrnn.automata.cell import Cell

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_MAX_NESTING = 2 * ex.MAX_DEPTH + 2  # -(-(-x)) nests twice per operation

# ---- writing -----------------------------------------------------------------------------------------------


def expr_text(expr: ex.Expr, names: Mapping[ex.Expr, str] | None = None, *, top: bool = False) -> str:
    """Return an expression as Python-like text, named subexpressions by their names (`top`: spell this one out)."""
    return _show(expr, names or {}, 0, top)


def _show(e: ex.Expr, names: Mapping[ex.Expr, str], parent: int = 0, top: bool = False) -> str:
    """Write an expression. `parent` is how tightly the surrounding operator binds; looser text gets brackets."""
    if not top and e in names:
        return names[e]
    match e:
        case ex.Number(value=value):
            text = repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
            return f"({text})" if value < 0 and parent else text
        case ex.One():
            return "one"
        case ex.Zero():
            return "zero"
        case ex.Score():
            return "score"
        case ex.Input():
            return "input()"
        case ex.Linear(name=name, bias=bias, window=window):
            options = (", bias=True" if bias else "") + (f", window={window}" if window > 1 else "")
            return f'linear("{name}"{options}{_extent(e)})'
        case ex.Parameter(name=name):
            return f'parameter("{name}"{_extent(e)})'
        case ex.Index(of=of):
            return f"index({of})"
        case ex.Uniform(low=low, high=high):
            return f"uniform({_show(ex.Number(low), {})}, {_show(ex.Number(high), {})})"
        case ex.Component(of=of, name=name):
            return f"{_show(of, names, 3)}.{name}"
        case ex.Construct(function=function, arguments=arguments):
            return f"{function}({', '.join(_show(a, names) for a in arguments)})"
        case ex.Call(function="neg", argument=argument):
            text = "-" + _show(argument, names, 3)
            return f"({text})" if parent else text
        case ex.Call(function=function):
            return f"{function}({', '.join(_show(a, names) for a in e.children)})"
        case ex.Binary(operator=operator, left=left, right=right):
            level = _PRECEDENCE[operator]
            # a - (b + c) and a * (b * c) keep their brackets: reading must give the same tree back
            text = f"{_show(left, names, level)} {operator} {_show(right, names, level + 1)}"
            return f"({text})" if parent > level else text
    raise AssertionError(e)


def _extent(leaf: ex.Linear | ex.Parameter) -> str:
    """Return the options of a leaf that has a value for each state of a family, or is shared by several units."""
    text = f", over={leaf.over}" if leaf.over is not None else ""
    text += f', per="{leaf.per}"' if leaf.per != "unit" else ""
    text += f", start={_show(leaf.start, {})}" if leaf.start is not None else ""
    return text + (", learned=False" if isinstance(leaf, ex.Parameter) and not leaf.learned else "")


# ---- reading -----------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<string>"[^"]*"|'[^']*')
      | (?P<sign>[-+*/(),=.])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


Families = Mapping[str, ex.Family] | None
"""The families of a text by name; None for a text of version 1, which has none and no word about them."""


def parse_list(
    text: str, known: Mapping[str, ex.Expr] | None = None, families: Families = None
) -> list[ex.Expr]:
    """Return the expressions of a text that commas separate."""
    parser = _Parser(text, known or {}, families)
    found = parser.arguments()
    parser.finish()
    return found


def parse_expr(text: str, known: Mapping[str, ex.Expr] | None = None, families: Families = None) -> ex.Expr:
    """Return the expression of a text; `known` are the names defined so far."""
    return _Parser(text, known or {}, families).parse()


class _Parser:
    """Recursive descent: `expression` reads operators, `operand` what stands between them."""

    def __init__(self, text: str, known: Mapping[str, ex.Expr], families: Families) -> None:
        self.text, self.known, self.families = text, known, families
        self.place = self.depth = 0
        self.kind, self.token = "", ""
        self.advance()

    def parse(self) -> ex.Expr:
        found = self.expression()
        self.finish()
        return found

    def finish(self) -> None:
        if self.kind != "end":
            raise self.error("an operator (+ - * /) or the end")

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.place)
        if match is None or match.lastgroup is None:
            rest = self.text[self.place :].strip()
            raise FormatError(
                f"{_clip(rest)!r} is not part of the cell language, which has numbers, names, + - * / and calls"
            )
        self.place, self.kind, self.token = match.end(), match.lastgroup, match[match.lastgroup]

    def error(self, expected: str) -> FormatError:
        """Return the error that something else was expected here."""
        got = "the end of the expression" if self.kind == "end" else repr(_clip(self.token))
        return FormatError(
            f"cannot read {_clip(self.text)!r}: expected {expected}, got {got}. "
            "Expressions are numbers, names, + - * / and calls."
        )

    def take(self, token: str) -> None:
        """Step over a sign that must come next."""
        if self.token != token or self.kind != "sign":
            raise self.error(repr(token))
        self.advance()

    def nest(self, by: int) -> None:
        """Go `by` brackets deeper, within the limit."""
        self.depth += by
        if self.depth > _MAX_NESTING:
            raise FormatError(f"an expression is nested at most {_MAX_NESTING} deep; this one is deeper")

    def expression(self, level: int = 1) -> ex.Expr:
        """Read operators that bind at least as tightly as `level`, the left ones first."""
        left = self.operand()
        while self.kind == "sign" and _PRECEDENCE.get(self.token, 0) >= level:
            operator = self.token
            self.advance()
            left = ex.Binary(operator, left, self.expression(_PRECEDENCE[operator] + 1))
        return left

    def operand(self) -> ex.Expr:
        """Read what stands between operators: a number, a name, a call, a negation or a bracket."""
        kind, token = self.kind, self.token
        if kind == "number":
            self.advance()
            return ex.as_expr(float(token))
        if kind == "name":
            self.advance()
            return self.call(token) if self.token == "(" and self.kind == "sign" else self.name(token)
        if kind == "sign" and token in "-(":
            self.advance()
            self.nest(+1)
            if token == "-":
                inner = -self.operand()
            else:
                inner = self.expression()
                self.take(")")
            self.nest(-1)
            return inner
        raise self.error("a number, a name, a call or a bracket")

    def name(self, name: str) -> ex.Expr:
        if name == "score" and self.kind == "sign" and self.token == ".":
            self.advance()
            component = self.token
            if self.kind != "name":
                raise self.error("a component of the score, as in score.re")
            self.advance()
            return ex.Component(ex.score, component)
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in self.known:
            return self.known[name]
        raise FormatError(
            f"{_clip(name)!r} is not defined above this line. "
            f'Define it first, as in {_clip(name)} = sigmoid(linear("{_clip(name)}")).'
        )

    def call(self, name: str) -> ex.Expr:
        self.take("(")
        self.nest(+1)
        if name in ex.FUNCTIONS or name in ex.FUNCTIONS_OF_SEVERAL:
            found = ex.call(name, *self.arguments())
        elif name == "input":
            found = ex.input()
        elif name == "parameter":
            found = ex.parameter(self.string(), **self.options(wide=("over", "per", "start", "learned")))
        elif name == "linear":
            found = ex.linear(self.string(), **self.options("bias", "window", wide=("over", "per", "start")))
        elif name == "index" and self.families is not None:
            found = self.index()
        elif name == "uniform" and self.families is not None:
            found = self.uniform()
        elif name in ex.constructors():
            found = ex.construct(name, *self.arguments())
        else:
            raise FormatError(
                f"{_clip(name)!r} is not a function of the cell language. Calls are linear("
                '"name", bias=True, window=K), parameter("name"), input(), '
                f"{', '.join(ex.FUNCTIONS)} of one expression, {', '.join(ex.FUNCTIONS_OF_SEVERAL)} of several, "
                f"and the semirings' constructors {', '.join(ex.constructors())}."
            )
        self.take(")")
        self.nest(-1)
        return found

    def arguments(self) -> list[ex.Expr]:
        """Read expressions that commas separate."""
        found = [self.expression()]
        while self.kind == "sign" and self.token == ",":
            self.advance()
            found.append(self.expression())
        return found

    def options(self, *allowed: str, wide: tuple[str, ...]) -> dict[str, Any]:
        """Read the options of linear(…) or parameter(…); `wide` are those of texts of version 2."""
        allowed = allowed if self.families is None else (*allowed, *wide)
        found: dict[str, Any] = {}
        while self.token == "," and self.kind == "sign":
            self.advance()
            option = self.token
            if self.kind != "name" or option not in allowed or option in found:
                forms = [_OPTIONS[each][0] for each in allowed]
                raise self.error(f"{' or '.join(forms)}, each once" if forms else "')'")
            self.advance()
            self.take("=")
            if option == "start":
                found[option] = self.expression()
            else:
                found[option] = self.option(option)
                self.advance()
        return found

    def index(self) -> ex.Expr:
        """Read the argument of index(…)."""
        word = self.token
        if self.kind != "name" or not (word in ex.LEVELS or (self.families and word in self.families)):
            raise self.error("a family, or unit, head or group")
        self.advance()
        return ex.index((self.families or {}).get(word, word))

    def uniform(self) -> ex.Expr:
        """Read the arguments of uniform(…)."""
        ends = self.arguments()
        if len(ends) != 2 or not all(isinstance(end, ex.Number) for end in ends):
            raise FormatError(f"uniform takes two numbers, as in uniform(0, 1); got {_clip(self.text)!r}")
        return ex.uniform(*(end.value for end in ends if isinstance(end, ex.Number)))

    def option(self, option: str) -> Any:
        """Return the value of an option, the present token."""
        kind, token = self.kind, self.token
        if option in ("bias", "learned") and token in ("True", "False"):
            return token == "True"
        if option == "window" and kind == "number" and re.fullmatch("[0-9]{1,4}", token):
            return int(token)
        if option == "over" and kind == "name" and self.families and token in self.families:
            return self.families[token]
        if option == "per" and kind == "string" and token[1:-1] in ex.LEVELS:
            return token[1:-1]
        raise self.error(_OPTIONS[option][1])

    def string(self) -> str:
        """Read a name in quotes."""
        if self.kind != "string":
            raise self.error('a name in quotes, as in linear("u")')
        name = self.token[1:-1]
        self.advance()
        return name


_OPTIONS = {  # as a message shows them, and what their values are
    "bias": ("bias=True", "True or False"),
    "window": ("window=K", "a whole number from 1 to 1000"),
    "over": ("over=FAMILY", "the name of a family that a line above defines, as in family h 16"),
    "start": ("start=EXPRESSION", "an expression"),
    "learned": ("learned=False", "True or False"),
    "per": ('per="head"', '"unit", "head" or "group"'),
}
_CONSTANTS: dict[str, ex.Expr] = {"one": ex.one, "zero": ex.zero, "score": ex.score}


def _clip(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


RESERVED = {
    *("sigmoid", "tanh", "relu", "log_sigmoid", "exp", "log", "softplus", "sqrt", "step"),
    *("linear", "parameter", "input", "score", "one", "zero", "neg"),
}
"""Words that cannot name an expression. Functions that were added later are not among them, so that older texts can
still be read: a call is told from a name by its bracket."""


def definitions(cell: Cell) -> dict[ex.Expr, str]:
    """Return the names of a cell's expressions, inner ones first: expression → name.

    Names given by `.named` come first (of two for the same expression, the first). Then a gate is called after the
    projection or parameter it squashes, and a weight, or an argument of its constructor, after the one projection that
    no inner name explains.
    """
    names: dict[ex.Expr, str] = {}
    for label, node in given_names(cell).items():
        names.setdefault(node, label)
    taken = RESERVED | set(names.values())  # a second name of an expression is not written, so it is free

    def claim(node: ex.Expr, name: str) -> None:
        if node not in names and name not in taken:
            names[node] = name
            taken.add(name)

    weights = [weight for _, weight in cell.weights()]
    nodes = dict.fromkeys(node for top in [*weights, *cell.output_exprs] for node in ex.walk(top))
    # A constructor's arguments are numbers of their own: θ is the angle in polar(r, θ), not the whole weight.
    weights = [part for w in weights for part in (w.children if isinstance(w, ex.Construct) else (w,))]
    for node in nodes:
        # A gate squashes; −x does not, and would take the name from σ(x) in σ(−x) and σ(x).
        if (
            isinstance(node, ex.Call)
            and node.function != "neg"
            and isinstance(node.argument, (ex.Linear, ex.Parameter))
        ):
            claim(node, node.argument.name)
    # Small weights first: what explains a weight is then named before it, so that reading the text and naming
    # again gives the same names.
    for top in sorted(weights, key=lambda weight: weight.size):
        unexplained = _leaves(top, names)
        if len(unexplained) == 1:
            claim(top, *unexplained)
    return {node: names[node] for node in nodes if node in names}


def given_names(cell: Cell) -> dict[str, ex.Expr]:
    """Return the names that `.named` gave, each checked to stand for one expression: name → expression."""
    given: dict[str, ex.Expr] = {}
    for top in cell.expressions():
        for node in ex.walk(top):
            if node.label is None:
                continue
            if node.label in RESERVED:
                raise CellError(
                    f"an expression cannot be called {node.label!r}: the cell language uses that word. "
                    f"Use another name, such as {node.label}_1."
                )
            if given.setdefault(node.label, node) != node:
                raise CellError(
                    f"the name {node.label!r} is given to two different expressions; use two names"
                )
    return given


def _leaves(expr: ex.Expr, names: dict[ex.Expr, str]) -> set[str]:
    """Return the names of projections and parameters below `expr`, without those inside a named subexpression."""
    if isinstance(expr, (ex.Linear, ex.Parameter)):
        return {expr.name}
    return {n for child in expr.children if child not in names for n in _leaves(child, names)}
