"""Check that a program is well-formed: its names, instructions, outputs, and elements of the semiring."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from rrnn.arithmetic import ALONG_FAMILY, SEMIRING_FOLDS, Op
from rrnn.errors import ProgramError
from rrnn.semirings import SEMIRINGS

if TYPE_CHECKING:
    from rrnn.ir.program import Program


class Output(NamedTuple):
    """What an instruction's value is used for: a kind of the list below."""

    kind: str
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
    value: int


# The kinds of outputs, by program:
#   forward       state (the new ones), score, output
#   adjoint       grad_preact, grad_input, grad_state, grad_unit, and new_state, to recompute states with
#   epilogue      grad_param
#   scan          entry (row-major in the augmented transition)
#   reverse scan  jacobian, direct, new_state
#   factors       factor (of a separable family: see `rrnn.ir.separable`)
OUTPUT_KINDS = (
    *("state", "score", "output"),
    *("grad_preact", "grad_input", "grad_state", "grad_unit", "new_state", "grad_param"),
    *("entry", "jacobian", "direct", "factor"),
)

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
    (("factor",), (Op.CONST, Op.PARAM, Op.PREACT, Op.INPUT)),
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
    _verify_families(program)
    _ = program.flat  # computed now, as in `__post_init__`, once the program is known to be well-formed
    return program


def _verify_instruction(program: Program, n: int) -> None:
    """Raise for an instruction with wrong arguments or attribute."""
    op, args, attr = program.instructions[n]
    where = f"%{n} ({op.text})"
    arity = program.semiring.size if op.arity < 0 else op.arity
    if len(args) != arity:
        raise ProgramError(f"{where} takes {arity} arguments; got {len(args)}")
    if any(not 0 <= a < n for a in args):
        raise ProgramError(f"{where} uses a value that is not computed before it")
    if (attr is None) != (op.attribute is None) and op.attribute != "output":
        raise ProgramError(f"{where} {'needs an' if attr is None else 'takes no'} attribute")
    if op is Op.CONST and math.isnan(float(attr or 0)):
        raise ProgramError(f"{where} is NaN")
    families = len(program.wide.sizes) if program.wide else 0
    if op.attribute == "index" or (op.attribute == "output" and attr is not None):
        limit = {
            Op.COMPONENT: program.semiring.size,
            Op.PARAM: len(program.parameters),
            Op.PREACT: len(program.projections),
            Op.STATE: len(program.states),
            Op.GRAD_STATE: len(program.states),
            **dict.fromkeys(ALONG_FAMILY, families),
            Op.MOVE: families**2,
            **dict.fromkeys(SEMIRING_FOLDS, families * program.semiring.size),
        }.get(op)
        if not isinstance(attr, int) or attr < 0 or (limit is not None and attr >= limit):
            there = "" if limit is None else f": there are {limit}"
            raise ProgramError(f"{where} {attr!r} is out of range{there}")


def _verify_families(program: Program) -> None:
    """Raise where extents and names do not match, or a value depends on an index that its place does not have."""
    wide = program.wide
    if wide is None:
        wrong = next((i.op.text for i in program.instructions if i.op in ALONG_FAMILY), None)
        if wrong:
            raise ProgramError(f"a program without families cannot use {wrong}")
        return
    extents = [e for word in ("projections", "parameters", "states", "units") for e in getattr(wide, word)]
    counts = [len(getattr(program, word)) for word in ("projections", "parameters", "states")]
    if counts != [len(wide.projections), len(wide.parameters), len(wide.states)]:
        raise ProgramError("every projection, parameter and state needs one extent")
    for extent in extents:
        if extent.per not in ("unit", "head", "group") or len(set(extent.over)) != len(extent.over):
            raise ProgramError(f"{extent} is not an extent")
    for table in (wide.projections, wide.parameters):
        if sorted(table, key=lambda extent: extent.per != "unit") != list(table):
            raise ProgramError("projections and parameters that units share come after the others")
    if (
        any(size < 1 for _, size in wide.sizes)
        or wide.heads < 1
        or wide.groups < 1
        or wide.heads % wide.groups
    ):
        raise ProgramError("sizes of families, heads and groups are at least 1, and groups divide the heads")
    for n, (op, args, attr) in enumerate(program.instructions):
        if op is Op.MOVE:
            before, after = divmod(int(attr or 0), len(wide.sizes))
            if wide.sizes[before][1] != wide.sizes[after][1] or after in program.over[args[0]]:
                raise ProgramError(f"%{n} (move) takes values to the index of a family that is not free")
    given = {
        "state": wide.states, "new_state": wide.states, "grad_state": wide.states, "initial": wide.states,
        "grad_preact": wide.projections, "grad_param": wide.parameters, "direct": wide.states,
    }  # fmt: skip
    wanted = [Output("initial", s, n) for s, n in enumerate(program.initial)]
    for kind, index, n in (*program.outputs, *wanted):
        if kind not in ("grad_unit", "factor", "entry", "jacobian") and program.over[n] - set(
            given[kind][index].over if kind in given else ()
        ):
            raise ProgramError(
                f"{kind} {index} depends on the index of a family that its place does not have"
            )


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
