"""The recurrence as a person would write it, from the program: gates, constants, states, score, output.

    fₜ = σ(W_f vₜ + b_f)
    uₜ = (1 − fₜ) ⊙ W_u vₜ
    cₜ = fₜ ⊙ cₜ₋₁ + uₜ
    hₜ = tanh(cₜ)

Named expressions keep their names. What has none is written out where it stands, unless it is long: then a weight
becomes w¹, w² …, a constant of the ε-closure e¹, e² …, and a sum of states that is used twice z¹, z² ….

`scan_text` writes how a cell runs in parallel over time: which numbers a chunk of steps carries.
"""

from __future__ import annotations

from collections.abc import Mapping

from rrnn.automata import Cell
from rrnn.ir.formulas import FormulaWriter
from rrnn.ir.lower import Lowered, lower
from rrnn.ir.notation import LATEX, PLAIN, Notation
from rrnn.ir.program import Op, Program
from rrnn.ir.scan import Pattern, has_scan_form, reverse_scan_form, scan_form

Lines = list[tuple[str, str]]


def equations(cell: Cell) -> str:
    """Return the cell's recurrence in plain text, one equation a line."""
    return PLAIN.lines(Equations(lower(cell), PLAIN).lines())


def latex(cell: Cell) -> str:
    """Return the cell's recurrence as a LaTeX `align` environment (amsmath)."""
    return LATEX.lines(Equations(lower(cell), LATEX).lines())


class Equations(FormulaWriter):
    """Writes the lines of a cell's recurrence in order."""

    def __init__(self, lowered: Lowered, notation: Notation) -> None:
        windows = {p.name: p.window for p in lowered.projections}
        super().__init__(lowered.program, notation, lowered.names, lowered.weights, windows)

    def lines(self) -> Lines:
        p = self.program
        new, score, outputs = p.of_kind("state"), p.of_kind("score")[0], p.of_kind("output")
        one_state = len(new) == 1 and new[0] == score

        over = {s: p.wide.states[s].over if p.wide else () for s in new}
        updates = [
            (self.state(s, "t"), self.write(value, over=over[s]) + self.indices(over[s]))
            for s, value in new.items()
        ]
        inside = self.take_definitions()
        starts = [
            (self.state(s, "0"), self.write(start))
            for s, start in enumerate(p.initial)
            if not self.is_zero(start)
        ]

        # What time does not change is written out: definitions made of it stand before the states' equations.
        after = {v: self.state(s, "t") for s, v in reversed(new.items()) if v not in p.per_unit}
        total = self.write(score, after, states=set(after))
        between = self.take_definitions()
        lines = [line for kind, line in inside if kind != "state"]
        lines += [line for kind, line in between if kind == "unit"]
        lines += [*starts, *(line for kind, line in inside if kind == "state"), *updates]
        lines += [line for kind, line in between if kind != "unit"]
        if not one_state:
            lines.append((self.score_symbol, total))

        known = {} if self.constant(score) is not None else {score: self.score_symbol}
        results = [(self.output(k), self.write(n, known, states=set(known))) for k, n in outputs.items()]
        lines += [line for _, line in self.take_definitions()]
        return [*lines, *results]


def state_symbols(cell: Cell) -> dict[str, str]:
    """Return stored state → its symbol in the equations, without the time: {"q1": "c¹", "q2": "c²"}."""
    lowered = lower(cell)
    writer = FormulaWriter(lowered.program, PLAIN, lowered.names, lowered.weights)
    return {q: writer.state(s, "") for s, q in enumerate(lowered.program.states)}


_LONGER = "only in chunks of several steps"
_MANY = 40  # with more entries than this, compositions are not written out


def scan_text(cell: Cell) -> str:
    """Return the numbers that a chunk carries, forwards over the semiring and backwards over the reals, as text."""
    lowered = lower(cell)
    if not has_scan_form(lowered.program):
        return "States of a family depend on those of other indices: such cells run one step after another.\n"
    parts = [_forward(lowered)]
    if lowered.program.semiring.has_gradient:
        parts.append(_backward(lowered))
    else:
        parts.append(f"Backward: the {cell.semiring_name} semiring has no gradient.\n")
    return "\n".join(parts)


def _forward(lowered: Lowered) -> str:
    form, p = scan_form(lowered.program), lowered.program
    writer = _writer(lowered, form.program)
    place = ["1", *(writer.state(s, "") for s in range(len(p.states)))]
    entries = form.program.of_kind("entry")
    rows: Lines = []
    for i, j in sorted(form.carried):
        value = entries.get(i * form.size + j)
        rows.append((_arrow(place, i, j), _LONGER if value is None else writer.write(value)))
    steps = [line for _, line in writer.take_definitions()]
    size = p.semiring.size
    elements = f", {len(rows)} elements of {size}" if size > 1 and rows else ""
    carried = _numbers(len(rows) * size) + elements + (" for each index" if p.wide else "")
    text = f"Forward, over the {p.semiring_name} semiring: a chunk of steps carries {carried}.\n"
    if not rows:
        return text
    text += "\n" + _block(_aligned(steps)) if steps else ""
    text += "\nOne step:\n" + _block(_aligned(rows, " : "))
    text += "\nA chunk X and then a chunk Y make Z:\n"
    if len(rows) > _MANY:
        return text + _block("Z[i → j] = ⊕ₖ X[i → k] ⊗ Y[k → j]")
    return text + _block(_aligned(_composition(place, form.carried | {(0, 0)})))


def _backward(lowered: Lowered) -> str:
    form, p = reverse_scan_form(lowered.program), lowered.program.flat
    writer = _writer(lowered, form.program)
    # States, score and output of this step are known by their symbols.
    equations = writer if p is not lowered.program else Equations(lowered, PLAIN)
    symbols = {n: equations.output(k) for k, n in p.of_kind("output").items()}
    if p is lowered.program:
        symbols[p.of_kind("score")[0]] = equations.score_symbol
    symbols |= {value: equations.state(s, "t") for s, value in reversed(p.of_kind("state").items())}
    computed = {n: symbol for n, symbol in symbols.items() if p.instructions[n].op is not Op.CONST}
    known = translate(computed, p, form.program)
    states = range(len(p.states))
    jacobian = form.program.of_kind("jacobian")
    direct = {j: n for j, n in form.program.of_kind("direct").items() if writer.constant(n) != 0}
    offsets = {i for i, j in form.carried if j in direct}
    rows: Lines = []
    d = writer.gradient
    for j, i in sorted((j, i) for i, j in form.carried):
        value = jacobian.get(i * form.size + j)
        left = f"{writer.state(j, 't', d)} → {writer.state(i, 't-1', d)}"
        rows.append((left, _LONGER if value is None else writer.write(value, known)))
    rows += [(f"{writer.state(j, 't', d)} gets", writer.write(n, known)) for j, n in direct.items()]
    steps = [line for _, line in writer.take_definitions()]
    total = len(form.carried) + len(offsets)
    each = " for each index" if p.wide else ""
    text = f"Backward, over the reals: a chunk carries {_numbers(total)}{each}"
    if not states or not total:
        return text + ".\n"
    text += f", {len(form.carried)} of the Jacobian and {len(offsets)} for what outputs add ({d} is dL/d·).\n"
    text += "\n" + _block(_aligned(steps)) if steps else ""
    return text + "\nOne step, backwards:\n" + _block(_aligned(rows, " : "))


def _writer(lowered: Lowered, program: Program) -> FormulaWriter:
    """Return a writer of a derived program that knows the names of the cell's expressions."""
    names = translate(lowered.names, lowered.program, program)
    weights = translate(dict.fromkeys(lowered.weights, ""), lowered.program, program)
    windows = {p.name: p.window for p in lowered.projections}
    taken = lowered.names.values()  # so that letters are the same in all formulas of a cell
    return FormulaWriter(
        program, PLAIN, names, frozenset(weights), windows, lowered.program.output_count, taken
    )


def translate(labels: Mapping[int, str], source: Program, target: Program) -> dict[int, str]:
    """Return the labels of one program's instructions on those instructions of another that compute the same."""
    number: dict[object, int] = {}

    def keys(program: Program) -> list[int]:
        found: list[int] = []
        for op, args, attr in program.instructions:
            key = (op, tuple(found[a] for a in args), attr)
            found.append(number.setdefault(key, len(number)))
        return found

    of_source, of_target = keys(source), keys(target)
    by_key = {of_source[n]: label for n, label in labels.items()}
    return {n: by_key[key] for n, key in enumerate(of_target) if key in by_key}


def _arrow(place: list[str], i: int, j: int) -> str:
    return f"{place[i]} → {place[j]}"


def _composition(place: list[str], entries: Pattern) -> Lines:
    """Return how entries of two chunks compose. Entry (0, 0), for always-on states, is one in every chunk."""
    rows: Lines = []
    for i, j in sorted(entries - {(0, 0)}):
        terms: list[str] = []
        for k in range(len(place)):
            if (i, k) in entries and (k, j) in entries:
                first = "" if i == k == 0 else f"X[{_arrow(place, i, k)}] ⊗ "
                terms.append(f"{first}Y[{_arrow(place, k, j)}]")
        rows.append((f"Z[{_arrow(place, i, j)}]", " ⊕ ".join(terms)))
    return rows


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count or 'no'} numbers"


def _aligned(rows: Lines, joint: str = " = ") -> str:
    width = max(len(left) for left, _ in rows)
    return "".join(f"{left:<{width}}{joint}{right}\n" for left, right in rows)


def _block(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
