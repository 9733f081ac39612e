"""A program: straight-line scalar code of one time step, for every unit alike.

Its canonical text is its key: ops, caches and exported graphs carry the text, and `Program.parse` reads it back.

    rrnn-program 1
    name B
    semiring real
    projections u f
    parameters f.bias
    states q1
    %0 = param 0
    …
    initial %7
    out state 0 %6
    out output 0 %8
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

from rrnn.arithmetic import BY_NAME, Op
from rrnn.errors import ProgramError
from rrnn.semirings import SEMIRINGS, Semiring, get_semiring

HEADER = "rrnn-program 1"


class Instruction(NamedTuple):
    """An op of the table (`rrnn.arithmetic.scalar_ops`), its arguments, and what a leaf reads.

    Each value is assigned once: an instruction's number is its place in the program.
    """

    op: Op
    args: tuple[int, ...] = ()
    attr: float | int | None = None


class Output(NamedTuple):
    """What an instruction's value is used for. `kind` is one of `OUTPUT_KINDS`."""

    kind: str
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    value: int


# forward: state (the new ones), score, output.   adjoint: grad_preact, grad_input, grad_state, grad_unit,
# and new_state, to recompute states with.
# epilogue: grad_param.   scan: entry (row-major in the augmented transition), jacobian, direct.
OUTPUT_KINDS = (
    *("state", "score", "output"),
    *("grad_preact", "grad_input", "grad_state", "grad_unit", "new_state", "grad_param"),
    *("entry", "jacobian", "direct"),
)


class HasArguments(Protocol):
    """An instruction of any straight-line code."""

    @property
    def args(self) -> tuple[int, ...]: ...


def needed(
    code: Sequence[HasArguments], wanted: Iterable[int], stop: Container[int] = frozenset()
) -> set[int]:
    """Return the places in `code` that the wanted values are computed from, themselves included. What only values in
    `stop` need is left out."""
    found: set[int] = set()
    todo = list(wanted)
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            todo += () if n in stop else code[n].args
    return found


@dataclass(frozen=True)
class Program:
    """One time step of a cell, or a program derived from it: instructions, initial values of states, and outputs."""

    name: str
    semiring_name: str
    projections: tuple[str, ...]
    parameters: tuple[str, ...]
    states: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    initial: tuple[int, ...]  # per stored state: its value before the first symbol, from parameters alone
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        # Compute these now: torch.compile reads them, but cannot trace a property that is not computed yet.
        _ = self.text, self.first_states, self.per_unit, self.output_count
        if not self.has_elements:
            self.__dict__["flat"] = self  # `verify` flattens the others

    @property
    def has_elements(self) -> bool:
        """Whether some instructions are elements of the semiring that `flat` writes out."""
        return any(i.op in (Op.ELEMENT, Op.COMPONENT, Op.PLUS, Op.TIMES) for i in self.instructions)

    @property
    def semiring(self) -> Semiring:
        return get_semiring(self.semiring_name)

    def of_kind(self, kind: str) -> dict[int, int]:
        """Return index → instruction of the outputs of one kind, ordered by index."""
        return {o.index: o.value for o in sorted(self.outputs, key=lambda o: o.index) if o.kind == kind}

    @cached_property
    def flat(self) -> Program:
        """The same program with elements of the semiring written out as numbers: the one that backends run."""
        from rrnn.ir.builder import flatten

        return flatten(self)

    @cached_property
    def output_count(self) -> int:
        """The number of values that a unit returns at a step."""
        return sum(o.kind == "output" for o in self.outputs)

    @cached_property
    def uses_input(self) -> bool:
        """Whether a step reads the layer's own input."""
        return any(i.op is Op.INPUT for i in self.instructions)

    @cached_property
    def first_states(self) -> tuple[float | None, ...]:
        """The initial values as numbers; None for one that depends on parameters."""
        numbers = {n: float(i.attr or 0.0) for n, i in enumerate(self.instructions) if i.op is Op.CONST}
        return tuple(numbers.get(n) for n in self.initial)

    def depending_on(self, *leaves: Op) -> frozenset[int]:
        """Return the instructions whose value depends on a leaf of these kinds."""
        found: set[int] = set()
        for n, (op, args, _) in enumerate(self.instructions):
            if op in leaves or any(a in found for a in args):
                found.add(n)
        return frozenset(found)

    @cached_property
    def per_unit(self) -> frozenset[int]:
        """The instructions computed once per unit: those that depend on parameters and numbers alone."""
        step = (Op.PREACT, Op.INPUT, Op.STATE, Op.GRAD_OUTPUT, Op.GRAD_STATE)
        return frozenset(range(len(self.instructions))) - self.depending_on(*step)

    def needed_for(self, values: Iterable[int]) -> frozenset[int]:
        """Return the instructions that these values are computed from, themselves included."""
        return frozenset(needed(self.instructions, values))

    @cached_property
    def text(self) -> str:
        """The canonical text, which `parse` reads back."""
        lines = [
            HEADER,
            f"name {self.name}",
            " ".join(["semiring", self.semiring_name, *self._definition_key]),
            " ".join(["projections", *self.projections]),
            " ".join(["parameters", *self.parameters]),
            " ".join(["states", *self.states]),
        ]
        for n, (op, args, attr) in enumerate(self.instructions):
            words = [op.text, *(f"%{a}" for a in args)]
            if attr is not None:
                words.append(repr(float(attr)) if op is Op.CONST else str(attr))
            lines.append(f"%{n} = {' '.join(words)}")
        lines.append(" ".join(["initial", *(f"%{i}" for i in self.initial)]))
        lines += [f"out {o.kind} {o.index} %{o.value}" for o in self.outputs]
        return "\n".join(lines) + "\n"

    @property
    def _definition_key(self) -> list[str]:
        """A hash of the definition of ⊕ and ⊗, where instructions use them by name."""
        if not self.has_elements:
            return []
        return [hashlib.sha256(self.semiring.definition.encode()).hexdigest()[:16]]

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def parse(text: str) -> Program:
        """Return the verified program of a canonical text; each text is parsed once per process."""
        return _parse(text)


_INSTRUCTION = re.compile(r"%(\d+) = (\w+)((?: %\d+)*)(?: ([^ %]+))?")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Program:
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ProgramError(f"a program's text starts with {HEADER!r}; got {lines[0][:60]!r}")
    fields: dict[str, list[str]] = {}
    instructions: list[Instruction] = []
    outputs: list[Output] = []
    for n, line in enumerate(lines[1:], 2):
        word, *rest = line.split(" ")
        try:
            if m := _INSTRUCTION.fullmatch(line):
                op = BY_NAME[m[2]]
                args = tuple(int(a[1:]) for a in m[3].split())
                attr = None if m[4] is None else float(m[4]) if op is Op.CONST else int(m[4])
                if int(m[1]) != len(instructions):
                    raise ValueError
                instructions.append(Instruction(op, args, attr))
            elif word == "out":
                outputs.append(Output(rest[0], int(rest[1]), int(rest[2].removeprefix("%"))))
            elif word in ("name", "semiring", "projections", "parameters", "states", "initial"):
                fields[word] = rest
            elif line:
                raise ValueError
        except (ValueError, KeyError, IndexError):
            raise ProgramError(f"line {n} of the program cannot be read: {line[:80]!r}") from None
    try:
        if fields["semiring"][0] not in SEMIRINGS:
            raise ProgramError(
                f"unknown semiring {fields['semiring'][0]!r}: register it before reading its programs"
            )
        program = Program(
            fields["name"][0],
            fields["semiring"][0],
            tuple(fields["projections"]),
            tuple(fields["parameters"]),
            tuple(fields["states"]),
            tuple(instructions),
            tuple(int(i.removeprefix("%")) for i in fields["initial"]),
            tuple(outputs),
        )
    except ProgramError:
        raise
    except (KeyError, IndexError, ValueError):
        raise ProgramError(
            "the program's text lacks one of name, semiring, projections, parameters, states, initial"
        ) from None
    if verify(program).text != text:  # the text is a key, so a program has one text
        raise ProgramError(
            "the program's text is not as `Program.text` writes it, or its semiring is defined otherwise here"
        )
    return program


# Which outputs belong together, the leaves such a program may read, and the outputs it must have.
_FORWARD = (Op.CONST, Op.PARAM, Op.PREACT, Op.INPUT, Op.STATE)
_FAMILIES: tuple[tuple[tuple[str, ...], tuple[Op, ...]], ...] = (
    (("state", "score", "output"), _FORWARD),
    (
        ("grad_preact", "grad_input", "grad_state", "grad_unit", "new_state"),
        (*_FORWARD, Op.GRAD_OUTPUT, Op.GRAD_STATE),
    ),
    (("grad_param",), (Op.CONST, Op.PARAM, Op.GRAD_UNIT)),
    (("entry",), (Op.CONST, Op.PARAM, Op.PREACT, Op.INPUT)),
    (("jacobian", "direct", "new_state"), (*_FORWARD, Op.GRAD_OUTPUT)),
)
_NAME = re.compile(r"[^\W\d]\w*(\.\w+)*")


def verify(program: Program) -> Program:
    """Raise `ProgramError` for a malformed program; return it."""
    if program.semiring_name not in SEMIRINGS:
        raise ProgramError(f"unknown semiring {program.semiring_name!r}")
    for what in ("projections", "parameters", "states"):
        names = getattr(program, what)
        if len(set(names)) != len(names):
            raise ProgramError(f"a name occurs twice among the {what}: {' '.join(names)}")
    for name in (program.name, *program.projections, *program.parameters, *program.states):
        if not _NAME.fullmatch(name):
            raise ProgramError(f"{name!r} is not a name: it must be an identifier, perhaps with dots")
    for n in range(len(program.instructions)):
        _verify_instruction(program, n)
    _verify_outputs(program)
    if len(program.initial) != len(program.states) or any(
        not 0 <= i < len(program.instructions) or i not in program.per_unit for i in program.initial
    ):
        raise ProgramError(
            "every stored state needs one initial value, computed from parameters and numbers alone"
        )
    _verify_elements(program)
    _ = program.flat  # computed now, as in `__post_init__`, once the program is known to be well-formed
    return program


def _verify_instruction(program: Program, n: int) -> None:
    """Raise for an instruction with wrong arguments or attribute."""
    op, args, attr = program.instructions[n]
    where = f"%{n} ({op.text})"
    arity = program.semiring.size if op is Op.ELEMENT else op.arity
    if len(args) != arity:
        raise ProgramError(f"{where} takes {arity} arguments; got {len(args)}")
    if any(not 0 <= a < n for a in args):
        raise ProgramError(f"{where} uses a value that is not computed before it")
    if (attr is None) != (op.attribute is None) and op.attribute != "output":
        raise ProgramError(f"{where} {'needs an' if attr is None else 'takes no'} attribute")
    if op is Op.CONST and math.isnan(float(attr or 0)):
        raise ProgramError(f"{where} is NaN")
    if op.attribute == "index" or (op.attribute == "output" and attr is not None):
        limit = {
            Op.COMPONENT: program.semiring.size,
            Op.PARAM: len(program.parameters),
            Op.PREACT: len(program.projections),
            Op.STATE: len(program.states),
            Op.GRAD_STATE: len(program.states),
        }.get(op)
        if not isinstance(attr, int) or attr < 0 or (limit is not None and attr >= limit):
            there = "" if limit is None else f": there are {limit}"
            raise ProgramError(f"{where} {attr!r} is out of range{there}")


_ON_ELEMENTS = (Op.COMPONENT, Op.PLUS, Op.TIMES)


def _verify_elements(program: Program) -> None:
    """Raise where an element of several components is used as a number, or a number as an element."""
    code = program.instructions
    if not any(i.op in (Op.ELEMENT, *_ON_ELEMENTS) for i in code):
        return
    if program.semiring.size == 1:
        wrong = next((n for n, i in enumerate(code) if i.op in (Op.ELEMENT, Op.COMPONENT)), None)
        if wrong is not None:
            raise ProgramError(
                f"%{wrong} ({code[wrong].op.text}): over {program.semiring_name} an element is a number"
            )
        return
    element = [i.op in (Op.ELEMENT, Op.STATE, Op.PLUS, Op.TIMES) for i in code]
    for n, (op, args, _) in enumerate(code):
        if any(element[a] != (op in _ON_ELEMENTS) for a in args):
            raise ProgramError(
                f"%{n} ({op.text}) takes {'elements' if op in _ON_ELEMENTS else 'numbers'} alone"
            )
    wanted = [("initial", n) for n in program.initial] + [(o.kind, o.value) for o in program.outputs]
    for kind, n in wanted:
        if element[n] != (kind in ("initial", "state", "score", "entry")):
            raise ProgramError(f"{kind} %{n} must be {'a number' if element[n] else 'an element'}")


def _verify_outputs(program: Program) -> None:
    """Raise for outputs that are invalid, missing, given twice, or of kinds that do not belong together."""
    states, given = len(program.states), {(o.kind, o.index) for o in program.outputs}
    many = {kind: max(1, sum(o.kind == kind for o in program.outputs)) for kind in ("score", "output")}
    count = {
        **{"state": states, **many, "entry": (states + 1) ** 2},
        **{
            "grad_preact": len(program.projections),
            "grad_input": 1,
            "grad_state": states,
            "new_state": states,
        },
        **{"grad_param": len(program.parameters), "jacobian": states**2, "direct": states},
    }
    for kind, index, value in program.outputs:
        in_range = kind in OUTPUT_KINDS and 0 <= index < count.get(kind, index + 1)
        if not in_range or not 0 <= value < len(program.instructions):
            raise ProgramError(f"output {kind} {index} %{value} is not valid")
    if len(given) != len(program.outputs):
        raise ProgramError("an output is given twice")
    kinds = {kind for kind, _ in given}
    for family, leaves in _FAMILIES:
        if not kinds & (set(family) - {"new_state"}):  # several families may have it
            continue
        if kinds - set(family):
            raise ProgramError(f"one program cannot have outputs of the kinds {', '.join(sorted(kinds))}")
        for n, (op, _, _) in enumerate(program.instructions):
            if op.leaf and op not in leaves:
                raise ProgramError(f"%{n} ({op.text}) cannot be read by a program that gives {family[0]}")
        for kind in {"state", "score", "output", "grad_state", "grad_param", "direct"} & set(family):
            missing = [i for i in range(count[kind]) if (kind, i) not in given]
            if missing:
                raise ProgramError(f"the output {kind} {missing[0]} is missing")
