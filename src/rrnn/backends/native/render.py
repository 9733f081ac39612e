"""Turn programs into C sources: the loops of `rrnn.backends.native.loops` in the templates forward.c and backward.c.

A kernel runs blocks of lanes of one batch row. Time is the outer loop, the states of a block stay in a local array,
and lanes go through the loops of a step in strips. Lanes never mix and every lane runs through the same vector code,
so results do not depend on the number of threads, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import torch

from rrnn.backends.native.loops import PLAIN, Lines, Loops, Store
from rrnn.ir import Op, Program, adjoint
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import needed


class CType(NamedTuple):
    """How tensors of one dtype are read, computed with and written."""

    x: str
    real: str
    suffix: str
    load: str = "{0}"
    store: str = PLAIN
    lanes: int = 16  # the widest vectors, of X or real, divide this


TYPES = {
    torch.float32: CType("float", "float", "f"),
    torch.float64: CType("double", "double", "d"),
    torch.bfloat16: CType("bf16", "float", "f", "load_bf16({0})", "{place} = store_bf16({value});", lanes=32),
}

MAX_BLOCK = 768  # lanes
SCRATCH = 1 << 15  # bytes of rows that a block keeps at hand


def block_lanes(rows: int) -> int:
    """Return how many lanes a block has, so that its rows stay in the first-level cache."""
    return max(64, min(MAX_BLOCK, SCRATCH // (4 * max(rows, 1)) // 64 * 64))


@cache
def _resource(name: str) -> str:
    return files("rrnn.backends.native").joinpath(name).read_text(encoding="utf-8")


def header() -> str:
    """Return kernel.h, which every kernel includes."""
    return _resource("kernel.h")


def fill(template: str, **values: object) -> str:
    """Return a template of this folder with every @KEY@ replaced, and with @call@ its `struct call`."""
    text = _resource(template)
    if "@call@" in text:
        text = text.replace("@call@\n", _resource(template.removeprefix("wide_").replace(".c", "_call.c")))
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


_UNITS = """\
/* Per-unit values, once a block. */
static void unit_lanes(long n, const real *restrict params, long stride, real *restrict unit) {
    real row[@rows@][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
@loops@
    (void)params, (void)stride, (void)row;
}

static void units(long n, const real *params, long D, real *unit) {
    real pad[P + 1][LANES] __attribute__((aligned(64)));
    const long whole = n & -LANES, rest = n - whole;
    for (long i = 0; i < whole; i += STRIP)
        unit_lanes(whole - i < STRIP ? whole - i : STRIP, params + i, D, unit + i);
    if (!rest) return;
    memset(pad, 0, sizeof pad);
    for (int k = 0; k < P; k++) few(pad[k], params + k * D + whole, rest * sizeof(real));
    unit_lanes(LANES, pad[0], LANES, unit + whole);
}
"""


def _units(kind: CType, program: Program, units: tuple[int, ...]) -> str:
    """Return the C function that computes per-unit values."""
    if not units:
        return "static void units(long n, const real *params, long D, real *unit) {}\n"
    lines = Lines(kind.suffix)
    leaves = {
        n: (f"params[{i.attr} * stride + i]", program.parameters[int(i.attr or 0)])
        for n, i in enumerate(program.instructions)
        if i.op is Op.PARAM
    }
    number = lines.expand(program, units, leaves)
    loops = Loops(lines, [Store(f"unit[{j} * PITCH + i]", number[n]) for j, n in enumerate(units)])
    return _UNITS.replace("@rows@", str(len(loops.rows) + 1)).replace("@loops@", loops.text(4))


def _leaves(kind: CType, program: Program, units: tuple[int, ...], state: str) -> dict[int, tuple[str, str]]:
    """Return instruction → (where it lies, what it is) for everything a step reads."""
    places = {
        Op.PREACT: (kind.load.format("a[{0} * xk + i]"), program.projections),
        Op.INPUT: (kind.load.format("v[i]"), ()),
        Op.STATE: (state + "[{0} * PITCH + i]", program.states),
        Op.GRAD_OUTPUT: (kind.load.format("q[{0}i]"), ()),
        Op.GRAD_STATE: ("g[{0} * PITCH + i]", ()),
    }
    leaves = {n: (f"unit[{j} * PITCH + i]", "") for j, n in enumerate(units)}
    for n, (op, _, attr) in enumerate(program.instructions):
        if op in places:
            place, names = places[op]
            at = _row(int(attr or 0), "qk") if op is Op.GRAD_OUTPUT else attr
            leaves[n] = (place.format(at), names[int(attr or 0)] if names else "")
    return leaves


def _row(index: int, stride: str) -> str:
    """Return where row number `index` begins, as the beginning of an index; nothing for the first."""
    return f"{index} * {stride} + " if index else ""


def _leaf_line(lines: Lines, place: str) -> int | None:
    """Return the line that reads a place, if there is one."""
    return next((n for n, line in enumerate(lines.lines) if line.text == place), None)


@lru_cache(maxsize=256)
def render_forward(program: Program, dtype: torch.dtype) -> str:
    """Return the C source of a program's forward kernel."""
    program = program.flat
    kind, units = TYPES[dtype], unit_values(program)
    results, outputs = program.of_kind("state"), program.of_kind("output")
    lines = Lines(kind.suffix)
    wanted = [*results.values(), *outputs.values()]
    number = lines.expand(program, wanted, _leaves(kind, program, units, "z"))
    stores = [
        Store(place := f"z[{s} * PITCH + i]", number[n], _leaf_line(lines, place)) for s, n in results.items()
    ]
    stores += [Store(f"o[{_row(k, 'ok')}i]", number[n], form=kind.store) for k, n in outputs.items()]
    loops = Loops(lines, stores)
    return fill(
        "forward.c",
        **_common(kind, program, units),
        units=_units(kind, program, units),
        step=loops.text(4),
        rows=len(loops.rows),
        block=block_lanes(len(program.states) + len(units)),
        N=program.output_count,
    )


@lru_cache(maxsize=256)
def render_backward(program: Program, dtype: torch.dtype) -> str:
    """Return the C source of a program's backward kernel."""
    program = program.flat
    kind, whole = TYPES[dtype], adjoint(program)
    step = whole.step
    units = unit_values(step)
    lines = Lines(kind.suffix)
    leaves = _leaves(kind, step, units, "old")
    number = lines.expand(step, [o.value for o in step.outputs], leaves)

    new = {s: number[n] for s, n in step.of_kind("new_state").items()}
    stores = _gradients(kind, program, step, lines, number)
    kept = kept_values(lines, new.values(), [s.value for s in stores])
    keep = [Store(f"kept[{s} * PITCH + i]", n) for s, n in new.items()]
    keep += [Store(f"kept[{len(new) + j} * PITCH + i]", n) for j, n in enumerate(kept)]
    again = Loops(lines, keep)
    given = {store.value: store.place for store in keep if lines.lines[store.value].args}
    back = Loops(lines, stores, given)
    epilogue = _epilogue(kind, whole.epilogue)
    rows = len(program.states) * 2 + len(units) + len(whole.units)
    return fill(
        "backward.c",
        **_common(kind, step, units),
        U=len(whole.units),
        N=program.output_count,
        units=_units(kind, step, units),
        again=again.text(4),
        back=back.text(4),
        epilogue=epilogue.text(4),
        rows=max(len(again.rows), len(back.rows), len(epilogue.rows)),
        kept=max(1, len(keep)),
        block=block_lanes(rows),
    )


def _epilogue(kind: CType, tail: Program) -> Loops:
    """Return the loops that turn summed gradients of per-unit values into gradients of parameters."""
    places = {Op.PARAM: "params[{0} * stride + i]", Op.GRAD_UNIT: "total[{0} * stride + i]"}
    leaves = {
        n: (places[op].format(attr), "") for n, (op, _, attr) in enumerate(tail.instructions) if op in places
    }
    results, lines = tail.of_kind("grad_param"), Lines(kind.suffix)
    number = lines.expand(tail, results.values(), leaves)
    return Loops(lines, [Store(f"gparams[{p} * stride + i]", number[n]) for p, n in results.items()])


def _gradients(
    kind: CType, program: Program, step: Program, lines: Lines, number: dict[int, int]
) -> list[Store]:
    """Return what the step backwards writes."""
    stores = [
        Store(place := f"g[{s} * PITCH + i]", number[n], _leaf_line(lines, place))
        for s, n in step.of_kind("grad_state").items()
    ]
    preacts = step.of_kind("grad_preact")
    for k in range(len(program.projections)):
        stores.append(Store(f"ga[{k} * gxk + i]", number[preacts[k]], form=kind.store))
    stores += [Store("gv[i]", number[n], form=kind.store) for n in step.of_kind("grad_input").values()]
    for j, n in step.of_kind("grad_unit").items():
        stores.append(Store(f"acc[{j} * PITCH + i]", number[n], form="{place} += {value};"))
    return stores


def kept_values(lines: Lines, states: Iterable[int], gradients: list[int]) -> list[int]:
    """Return the values that the step backwards would have to compute with an exponential again: values on the way to
    the new states that it reads, except those that follow from others by light arithmetic."""
    states = set(states)
    forward, everything = needed(lines.lines, states), needed(lines.lines, gradients)
    back = everything - forward
    read = {a for n in back for a in lines.lines[n].args} | set(gradients)
    depth = Loops(lines, []).depth
    frontier = {n for n in read & forward if lines.lines[n].args and depth[n]}
    light = frontier | states  # what follows from these, and from leaves, without an exponential
    kept = []
    for n in sorted(forward):  # arguments come first
        line = lines.lines[n]
        follows = not line.heavy and all(a in light or not lines.lines[a].args for a in line.args)
        if n in frontier - states and not follows:
            kept.append(n)
        if follows:
            light.add(n)
    return kept


def _common(kind: CType, program: Program, units: tuple[int, ...]) -> dict[str, object]:
    """Return what both templates are filled with."""
    return {
        "name": program.name.removesuffix(".adjoint"),
        "type": kind.x,
        "x": kind.x,
        "real": kind.real,
        "lanes": kind.lanes,
        "S": len(program.states),
        "K": len(program.projections),
        "P": len(program.parameters),
        "V": len(units),
    }
