"""Read expressions from text, by recursive descent; nothing read is ever evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rrnn.automata import expressions as ex
from rrnn.automata.expression_text import PRECEDENCE
from rrnn.errors import FormatError, nearest

_MAX_NESTING = 2 * ex.MAX_DEPTH + 2  # -(-(-x)) nests twice per operation

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
        left = self.at_end(self.operand())
        while self.kind == "sign" and PRECEDENCE.get(self.token, 0) >= level:
            operator = self.token
            self.advance()
            left = ex.Binary(operator, left, self.expression(PRECEDENCE[operator] + 1))
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
                inner = -self.at_end(self.operand())
            else:
                inner = self.expression()
                self.take(")")
            self.nest(-1)
            return inner
        raise self.error("a number, a name, a call or a bracket")

    def at_end(self, found: ex.Expr) -> ex.Expr:
        """Read .source or .target after an operand, if one is there."""
        while self.families is not None and self.kind == "sign" and self.token == ".":
            self.advance()
            found = ex.At(found, self.end())
        return found

    def end(self) -> str:
        """Read the word source or target."""
        word = self.token
        if self.kind != "name" or word not in ex.ENDS:
            raise self.error("source or target")
        self.advance()
        return word

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
        define = f' Define it first, as in {_clip(name)} = sigmoid(linear("{_clip(name)}")).'
        hint = nearest(_clip(name), [*self.known, *_CONSTANTS]) or define
        raise FormatError(f"{_clip(name)!r} is not defined above this line.{hint}")

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
            hint = nearest(
                _clip(name), ("linear", "parameter", "input", *ex.FUNCTIONS, *ex.FUNCTIONS_OF_SEVERAL)
            )
            raise FormatError(
                f"{_clip(name)!r} is not a function of the cell language.{hint} Calls are linear("
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
        narrow = self.families is None
        allowed = allowed if narrow else (*allowed, *wide)
        found: dict[str, Any] = {}
        while self.token == "," and self.kind == "sign":
            self.advance()
            option = self.token
            if self.kind == "name" and narrow and option in wide:
                raise FormatError(
                    f"{option}= belongs to version 2 of the format, and this text is of version 1. Begin it with "
                    "the line rrnn-cell 2."
                )
            if self.kind != "name" or option not in allowed or option in found:
                forms = [_OPTIONS[each][0] for each in allowed]
                raise self.error(f"{' or '.join(forms)}, each once" if forms else "')'")
            self.advance()
            self.take("=")
            if option == "start":
                found[option] = self.expression()
            elif option == "over":
                found[option] = self.over()
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
        family = (self.families or {}).get(word)
        if family is None or self.token != ".":
            return ex.index(family or word)
        self.advance()
        return ex.index(ex.End(family, self.end()))

    def over(self) -> ex.Over:
        """Read the value of over=: a family, or (g.source, h.target)."""
        if self.kind != "sign" or self.token != "(":
            return self.family()
        self.advance()
        ends = []
        for sign in (",", ")"):
            family = self.family()
            self.take(".")
            ends.append(ex.End(family, self.end()))
            self.take(sign)
        return ends[0], ends[1]

    def family(self) -> ex.Family:
        """Read the name of a family."""
        found = self.families.get(self.token) if self.families and self.kind == "name" else None
        if found is None:
            raise self.error(_OPTIONS["over"][1])
        self.advance()
        return found

    def uniform(self) -> ex.Expr:
        """Read the arguments of uniform(…)."""
        given = [end.value for end in self.arguments() if isinstance(end, ex.Number)]
        if len(given) not in (2, 3) or not all(draw >= 0 and draw == int(draw) for draw in given[2:]):
            raise FormatError(
                f"uniform takes two numbers, as in uniform(0, 1), and perhaps the whole number of a draw; got "
                f"{_clip(self.text)!r}"
            )
        return ex.uniform(given[0], given[1], int(given[2]) if given[2:] else 0)

    def option(self, option: str) -> Any:
        """Return the value of an option, the present token."""
        kind, token = self.kind, self.token
        if option in ("bias", "learned") and token in ("True", "False"):
            return token == "True"
        if option == "window" and kind == "number" and re.fullmatch("[0-9]{1,4}", token):
            return int(token)
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
    "over": (
        "over=FAMILY",
        "the name of a family that a line above defines, as in family h 16, or two of them as (h.source, h.target)",
    ),
    "start": ("start=EXPRESSION", "an expression"),
    "learned": ("learned=False", "True or False"),
    "per": ('per="head"', '"unit", "head" or "group"'),
}
_CONSTANTS: dict[str, ex.Expr] = {"one": ex.one, "zero": ex.zero, "score": ex.score}


def _clip(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
