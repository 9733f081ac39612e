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

A program of families (version 2) lists them with their sizes, and says of each projection, parameter and state over
which families it extends and whether units share it: `families h:16`, `heads 8 4` (heads, groups of heads),
`projections B@h/head`. Its instructions are of one index alike, as they are of one unit; `sum`, `logsum`, `most` and
`least` look at all indices of a family; so does `fold`, the semiring's own ⊕ where it is no single op. Where arcs lead
from each state of h to each, `h.source` is the index of the state that they leave, as another family of the same size:
`move` takes values from one index to the other, and `A@h.source@h` is a matrix.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple, Protocol

from rrnn.arithmetic import BY_NAME, SEMIRING_FOLDS, Op
from rrnn.errors import ProgramError
from rrnn.ir.families import Extent, Families, families_read
from rrnn.ir.well_formed import Output, verify
from rrnn.semirings import SEMIRINGS, Semiring, get_semiring

HEADER, WIDE_HEADER = "rrnn-program 1", "rrnn-program 2"


class Instruction(NamedTuple):
    """An op of the table (`rrnn.arithmetic.scalar_ops`), its arguments, and what a leaf reads.

    Each value is assigned once: an instruction's number is its place in the program.
    """

    op: Op
    args: tuple[int, ...] = ()
    attr: float | int | None = None


__all__ = [
    "Extent",
    "Families",
    "Instruction",
    "Op",
    "Output",
    "Program",
    "families_read",
    "needed",
    "verify",
]


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
    wide: Families | None = None  # None: a program without families, whose units share nothing

    def __post_init__(self) -> None:
        # Compute these now: torch.compile reads them, but cannot trace a property that is not computed yet.
        _ = self.text, self.first_states, self.per_unit, self.output_count, self.shares_states
        _ = self.state_rows, self.state_count, self.first_number
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
        from rrnn.ir.flatten import flatten

        return flatten(self)

    @cached_property
    def output_count(self) -> int:
        """The number of values that a unit returns at a step."""
        return sum(o.kind == "output" for o in self.outputs)

    # ---- extents -------------------------------------------------------------------------------------------

    @cached_property
    def over(self) -> tuple[frozenset[int], ...]:
        """For each instruction the families on whose index its value depends."""
        found: list[frozenset[int]] = []
        for instruction in self.instructions:
            found.append(families_read(instruction, found, self.wide))
        return tuple(found)

    @cached_property
    def state_rows(self) -> tuple[slice, ...]:
        """For each stored state its rows in a tensor of states: as many as its families have indices. States that the
        units of a head share are as many as the units, and lie side by side in one row."""
        if self.wide is None or self.shares_states:
            return tuple(slice(s, s + 1) for s in range(len(self.states)))
        ends = list(accumulate((self.wide.indices(e) for e in self.wide.states), initial=0))
        return tuple(map(slice, ends, ends[1:]))

    @cached_property
    def state_count(self) -> int:
        """The number of rows in a tensor of states."""
        return self.state_rows[-1].stop if self.state_rows else 0

    def columns(self, units: int) -> int:
        """Return how many pre-activations all units together read at a step."""
        if self.wide is None:
            return len(self.projections) * units
        return sum(self.wide.numbers(e, units) for e in self.wide.projections)

    def with_heads(self, heads: int, groups: int) -> Program:
        """Return the program with units in this many heads, and heads in this many groups."""
        if self.wide is None or (self.wide.heads, self.wide.groups) == (heads, groups):
            return self
        return replace(self, wide=self.wide._replace(heads=heads, groups=groups))

    @cached_property
    def mixes(self) -> bool:
        """Whether an instruction has values for pairs of states, or takes them from one index to another."""
        return self.has_pairs or any(i.op is Op.MOVE for i in self.flat.instructions)

    @cached_property
    def has_pairs(self) -> bool:
        """Whether an instruction has a value for each pair of states of two families: a whole matrix of arcs."""
        return any(len(over) > 1 for over in self.flat.over)

    @cached_property
    def shares_states(self) -> bool:
        """Whether the units of a head have the same states (see `rrnn.ir.affine.share_states`)."""
        return self.wide is not None and any(extent.per != "unit" for extent in self.wide.states)

    @cached_property
    def with_unit_states(self) -> Program:
        """The same program in which each unit has states of its own."""
        if self.wide is None or not self.shares_states:
            return self
        return replace(self, wide=self.wide._replace(states=tuple(Extent(e.over) for e in self.wide.states)))

    @cached_property
    def uses_input(self) -> bool:
        """Whether a step reads the layer's own input."""
        return any(i.op is Op.INPUT for i in self.instructions)

    @cached_property
    def first_states(self) -> tuple[float | None, ...]:
        """The initial values as numbers; None for one that depends on parameters."""
        numbers = {n: float(i.attr or 0.0) for n, i in enumerate(self.instructions) if i.op is Op.CONST}
        return tuple(numbers.get(n) for n in self.initial)

    @cached_property
    def first_number(self) -> float | None:
        """The number that all stored states have at first (0 without states); None if they do not share one."""
        numbers = set(self.first_states) or {0.0}
        return numbers.pop() if len(numbers) == 1 else None

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
        if self.wide is not None:
            lines[0] = WIDE_HEADER
            families = [name for name, _ in self.wide.sizes]
            for k, word in enumerate(("projections", "parameters", "states"), 3):
                pairs = zip(getattr(self, word), getattr(self.wide, word), strict=True)
                lines[k] = " ".join([word, *(name + _extent_text(e, families) for name, e in pairs)])
            sizes = " ".join(["families", *(f"{name}:{size}" for name, size in self.wide.sizes)])
            lines[3:3] = [sizes, f"heads {self.wide.heads} {self.wide.groups}"]
            if self.wide.units:
                lines.insert(
                    5, " ".join(["units", *("-" + _extent_text(e, families) for e in self.wide.units)])
                )
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
        if not self.has_elements and not any(i.op in SEMIRING_FOLDS for i in self.instructions):
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


def _extent_text(extent: Extent, families: Sequence[str]) -> str:
    over = "".join(f"@{families[f]}" for f in extent.over)
    return over + (f"/{extent.per}" if extent.per != "unit" else "")


def _read_extents(words: Sequence[str], families: Sequence[str]) -> tuple[list[str], tuple[Extent, ...]]:
    """Return the names and the extents of a list of projections, parameters or states."""
    names, extents = [], []
    for word in words:
        plain, _, per = word.partition("/")
        name, *over = plain.split("@")
        names.append(name)
        extents.append(Extent(tuple(families.index(f) for f in over), per or "unit"))
    return names, tuple(extents)


_INSTRUCTION = re.compile(r"%(\d+) = (\w+)((?: %\d+)*)(?: ([^ %]+))?")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Program:
    lines = text.split("\n")
    if lines[0] not in (HEADER, WIDE_HEADER):
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
            elif word in ("name", "semiring", "projections", "parameters", "states", "initial") or (
                word in ("families", "heads", "units") and lines[0] == WIDE_HEADER
            ):
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
        wide = None
        if lines[0] == WIDE_HEADER:
            sizes = tuple(
                (name, int(size)) for name, _, size in (f.partition(":") for f in fields["families"])
            )
            fields.setdefault("units", [])
            extents = {}
            for word in ("projections", "parameters", "states", "units"):
                fields[word], extents[word] = _read_extents(fields[word], [name for name, _ in sizes])
            heads, groups = map(int, fields["heads"])
            wide = Families(sizes, **extents, heads=heads, groups=groups)
        program = Program(
            fields["name"][0],
            fields["semiring"][0],
            tuple(fields["projections"]),
            tuple(fields["parameters"]),
            tuple(fields["states"]),
            tuple(instructions),
            tuple(int(i.removeprefix("%")) for i in fields["initial"]),
            tuple(outputs),
            wide,
        )
    except ProgramError:
        raise
    except (KeyError, IndexError, ValueError, TypeError):
        raise ProgramError(
            "the program's text lacks one of name, semiring, projections, parameters, states, initial"
        ) from None
    if verify(program).text != text:  # the text is a key, so a program has one text
        raise ProgramError(
            "the program's text is not as `Program.text` writes it, or its semiring is defined otherwise here"
        )
    return program
