"""The `.cell` text form. Text and Python round-trip; text is parsed, never evaluated.

    rrnn-cell 1
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

`arc+`, `loop+`, `epsilon+` add a second arc between the same states (⊕); `#` starts a comment.
"""

from __future__ import annotations

import ast
import re

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell
from rrnn.automata.names import RESERVED, definitions
from rrnn.errors import FormatError, RRNNError

HEADER = "rrnn-cell 1"
MAX_TEXT, MAX_LINE, MAX_DEPTH = 200_000, 4_000, 40
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


# ---- writing ---------------------------------------------------------------------------------------------------


def to_text(cell: Cell) -> str:
    names = definitions(cell)
    lines = [HEADER, f"cell {cell.name}", f"semiring {cell.semiring_name}"]
    if cell.epsilon_limit is not None:
        lines.append(f"epsilon_limit {cell.epsilon_limit}" + ("" if cell.epsilon_after_last else " not after last"))
    lines += [f"{name} = {expr_text(expr, names, top=True)}" for expr, name in names.items()]
    lines.append("states " + " ".join(cell.states))
    lines += [f"initial {q}" + _suffix(w, names) for q, w in cell.initials]
    seen: set[tuple[str, str, bool]] = set()
    for source, target, weight, epsilon in cell.arcs:
        plus = "+" if (source, target, epsilon) in seen else ""
        seen.add((source, target, epsilon))
        if source == target and not epsilon:
            lines.append(f"loop{plus} {source} : {expr_text(weight, names)}")
        else:
            lines.append(
                f"{'epsilon' if epsilon else 'arc'}{plus} {source} -> {target} : {expr_text(weight, names)}"
            )
    lines += [f"final {q}" + _suffix(w, names) for q, w in cell.finals]
    lines.append(f"output {expr_text(cell.output_expr, names)}")
    return "\n".join(lines) + "\n"


def _suffix(weight: ex.Expr, names: dict[ex.Expr, str]) -> str:
    return "" if isinstance(weight, ex.One) else f" : {expr_text(weight, names)}"


def expr_text(expr: ex.Expr, names: dict[ex.Expr, str] | None = None, *, top: bool = False) -> str:
    """The expression as Python-like text, named subexpressions by their names (`top`: spell this one out)."""
    names = names or {}

    def show(e: ex.Expr, parent: int = 0, top: bool = False) -> str:
        if e in names and not top:
            return names[e]
        match e:
            case ex.Number(value=value):
                text = repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
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
                return (
                    f'linear("{name}"'
                    + (", bias=True" if bias else "")
                    + (f", window={window})" if window > 1 else ")")
                )
            case ex.Parameter(name=name):
                return f'parameter("{name}")'
            case ex.Call(function="neg", argument=argument):
                text = "-" + show(argument, 3)
                return f"({text})" if parent else text
            case ex.Call(function=function, argument=argument):
                return f"{function}({show(argument)})"
            case ex.Binary(operator=operator, left=left, right=right):
                level = 2 if operator == "*" else 1
                # a - (b + c) and a * (b * c) keep their brackets: text and Python must give the same tree back
                text = f"{show(left, level)} {operator} {show(right, level + 1)}"
                return f"({text})" if parent > level else text
        raise AssertionError(e)

    return show(expr, top=top)


# ---- reading ---------------------------------------------------------------------------------------------------

_ARC = re.compile(r"(arc|epsilon)(\+?)\s+(\w+)\s*->\s*(\w+)\s*:\s*(.+)")
_LOOP = re.compile(r"loop(\+?)\s+(\w+)\s*:\s*(.+)")
_ENDS = re.compile(r"(initial|final)\s+(\w+)\s*(?::\s*(.+))?")
_LIMIT = re.compile(r"epsilon_limit\s+(\d{1,4})(\s+not\s+after\s+last)?")
_DEFINE = re.compile(r"(\w+)\s*=\s*(.+)")


def from_text(text: str, source: str = "cell text") -> Cell:
    """Read a cell; a `FormatError` names the line."""
    if len(text) > MAX_TEXT:
        raise FormatError(f"a cell's text has at most {MAX_TEXT} characters; got {len(text)}", source=source)
    lines = [(i, line.split("#", 1)[0].strip()) for i, line in enumerate(text.split("\n"), 1)]
    lines = [(i, line) for i, line in lines if line]
    if not lines or lines[0][1].split() != HEADER.split():
        got = lines[0][1][:60] if lines else "nothing"
        raise FormatError(
            f"a cell's text starts with the line {HEADER!r}; got {got!r}", source=source, line=lines[0][0] if lines else 1
        )
    cell, known = Cell("cell"), dict[str, ex.Expr]()
    for number, line in lines[1:]:
        try:
            cell = _line(cell, line, known)
        except RRNNError as error:
            raise FormatError(str(error), source=source, line=number) from None
    try:
        definitions(cell)  # an inconsistent use of names shows here
        return cell.check()
    except RRNNError as error:
        raise FormatError(str(error), source=source) from None


def _line(cell: Cell, line: str, known: dict[str, ex.Expr]) -> Cell:
    if len(line) > MAX_LINE:
        raise FormatError(f"a line has at most {MAX_LINE} characters; this one has {len(line)}")
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "cell" and rest:
        return cell.renamed(rest)
    if word == "semiring" and rest:
        return cell.with_semiring(rest)
    if word == "states" and rest:
        return cell._with(states=cell._states_with(*rest.split()))
    if word == "output" and rest:
        return cell.output(parse_expr(rest, known))
    if m := _LIMIT.fullmatch(line):
        return cell.limit_epsilon(int(m[1]), after_last=m[2] is None)
    if m := _ARC.fullmatch(line):
        add = cell.epsilon if m[1] == "epsilon" else cell.arc
        return add(m[3], m[4], parse_expr(m[5], known), merge="plus" if m[2] else None)
    if m := _LOOP.fullmatch(line):
        return cell.loop(m[2], parse_expr(m[3], known), merge="plus" if m[1] else None)
    if m := _ENDS.fullmatch(line):
        add = cell.initial if m[1] == "initial" else cell.final
        return add(m[2], parse_expr(m[3], known) if m[3] else ex.one)
    if m := _DEFINE.fullmatch(line):
        name = m[1]
        if name in RESERVED:
            raise FormatError(f"{name!r} is a word of the cell language and cannot be defined")
        if name in known:
            raise FormatError(f"{name!r} is defined twice")
        known[name] = parse_expr(m[2], known).named(name)
        return cell
    raise FormatError(
        f"cannot read {line[:80]!r}. A line is one of: cell NAME, semiring NAME, states Q…, epsilon_limit K, "
        "NAME = EXPRESSION, initial Q [: W], loop Q : W, arc Q -> Q : W, epsilon Q -> Q : W, final Q [: W], "
        "output EXPRESSION."
    )


def parse_expr(text: str, known: dict[str, ex.Expr] | None = None) -> ex.Expr:
    """An expression from text, through Python's own grammar but without evaluating anything."""
    depth = 0
    for ch in text:
        depth += (ch == "(") - (ch == ")")
        if depth > MAX_DEPTH:
            raise FormatError(f"brackets are nested more than {MAX_DEPTH} deep")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = getattr(error, "msg", None) or "it cannot be parsed"
        raise FormatError(f"{text[:80]!r} is not an expression: {why}") from None
    return _expr(tree, known or {}, 0)


def _expr(node: ast.expr, known: dict[str, ex.Expr], depth: int) -> ex.Expr:
    if depth > 200:
        raise FormatError("the expression is nested more than 200 operations deep")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if isinstance(value, int) and abs(value) > 10**300:
                raise FormatError("a number in a weight must fit a floating-point number")
            return ex.as_expr(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_expr(operand, known, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return ex.Binary(
                _OPERATORS[type(op)], _expr(left, known, depth + 1), _expr(right, known, depth + 1)
            )
        case ast.Name(id="one"):
            return ex.one
        case ast.Name(id="zero"):
            return ex.zero
        case ast.Name(id="score"):
            return ex.score
        case ast.Name(id=name):
            if name not in known:
                raise FormatError(
                    f'{name!r} is not defined above this line. Write {name} = sigmoid(linear("{name}")) or the like.'
                )
            return known[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            return _call(name, args, keywords, known, depth)
    raise FormatError(f"{ast.unparse(node)[:60]!r} is not part of the cell language (numbers, names, + - *, calls)")


def _call(
    name: str, args: list[ast.expr], keywords: list[ast.keyword], known: dict[str, ex.Expr], depth: int
) -> ex.Expr:
    if name in ex.FUNCTIONS and len(args) == 1 and not keywords:
        return ex.FUNCTIONS[name](_expr(args[0], known, depth + 1))
    if name == "input" and not args and not keywords:
        return ex.input()
    if name in ("linear", "parameter") and len(args) == 1:
        first = args[0]
        label = first.value if isinstance(first, ast.Constant) else first.id if isinstance(first, ast.Name) else None
        options = {k.arg: k.value.value for k in keywords if isinstance(k.value, ast.Constant)}
        allowed = {"bias": bool, "window": int} if name == "linear" else {}
        if isinstance(label, str) and len(options) == len(keywords):
            if all(k in allowed and type(v) is allowed[k] for k, v in options.items()):
                return ex.linear(label, **options) if name == "linear" else ex.parameter(label)
    raise FormatError(
        f'cannot read the call of {name!r}. Calls are linear("name", bias=True, window=K), parameter("name"), '
        f"input(), and {', '.join(ex.FUNCTIONS)} of one expression."
    )
