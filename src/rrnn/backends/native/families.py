"""Turn programs of families into C sources: the loops of `family_loops` in wide_forward.c and wide_backward.c."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch

from rrnn.backends.native.family_loops import Addresses, Body, Kind, Place, Written
from rrnn.backends.native.family_text import KEPT_BY_THREAD, statements
from rrnn.backends.native.render import TYPES, CType, block_lanes, fill, kept_values
from rrnn.ir import Op, Program, adjoint
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import Extent, needed

_COMMON = """\
/* 1 at the first index at which a equals y, which is finite; `seen` remembers that there was one. */
static inline real first_@s@(real *seen, real a, real y) {
    const real hit = a == y && y - y == 0 && *seen == 0 ? 1 : 0;
    *seen += hit;
    return hit;
}
"""
_UNITS = """\
/* Per-unit values of the lanes d0 .. d0 + n, once a block. */
static void unit_lanes(long n, const real *restrict params, long stride, const real *restrict shared,
                       real *restrict unit, long head, long group) {
    n &= -LANES;
@body@
    (void)n, (void)params, (void)stride, (void)shared, (void)unit, (void)head, (void)group;
}

static void units(long n, const real *params, long d0, long D, real *unit, long head, long group) {
    @pads@real pad[PR + 1][LANES] __attribute__((aligned(64)));
    const long whole = n & -LANES, rest = n - whole;
    for (long i = 0; i < whole; i += STRIP)
        unit_lanes(whole - i < STRIP ? whole - i : STRIP, params + d0 + i, D, params + PR * D, unit + i, head, group);
    if (!rest) return;
    memset(pad, 0, sizeof pad);
    for (int k = 0; k < PR; k++) few(pad[k], params + k * D + d0 + whole, rest * sizeof(real));
    unit_lanes(LANES, pad[0], LANES, params + PR * D, unit + whole, head, group);
}
"""


def _unit_place(program: Program, n: int, row: Place) -> Place:
    """Return where something of a per-unit value lies that has a row: in one lane of it if the value is the same in all
    lanes, as it is where heads share all parameters that it is made of."""
    assert program.wide is not None
    if n in program.wide.own_values(program.instructions):
        return row
    return Place(row.text.replace(" + i]", "]"), row.kind._replace(lane=False))


class _Kernel:
    """What the forward and the backward kernel of a program have in common."""

    def __init__(self, program: Program, kind: CType) -> None:
        assert program.wide is not None
        wide = program.wide
        self.program, self.kind, self.wide = program, kind, wide
        self.projections, self.parameters = (
            Addresses(wide, wide.projections),
            Addresses(wide, wide.parameters),
        )
        self.states = Addresses(wide, wide.states)
        self.units = unit_values(program)
        extents = [Extent(tuple(sorted(program.over[n]))) for n in self.units]
        self.unit_rows = Addresses(wide, extents)
        # With rows for pairs of states, the lanes of a last, narrow vector are too much for a thread's stack.
        self.pads = KEPT_BY_THREAD if program.has_pairs else ""

    def leaves(self, state: str) -> dict[int, Place]:
        """Return where everything lies that a step reads."""
        kind, program = self.kind, self.program
        lane = Kind(True)
        found = {
            n: _unit_place(program, n, self.unit_rows.place(j, "unit[{0} * PITCH + i]"))
            for j, n in enumerate(self.units)
        }
        rows, shared = kind.load.format("a[{0} * xk + i]"), kind.load.format("w[{0}]")
        for n, (op, _, attr) in enumerate(program.instructions):
            at = 0 if op is Op.CONST else int(attr or 0)
            if op is Op.PREACT:
                found[n] = self.projections.place(at, rows, shared, program.projections[at])
            elif op is Op.INPUT:
                found[n] = Place(kind.load.format("v[i]"), lane)
            elif op is Op.STATE:
                found[n] = self.states.place(at, state + "[{0} * PITCH + i]", "", program.states[at])
            elif op is Op.GRAD_STATE:
                found[n] = self.states.place(at, "g[{0} * PITCH + i]")
            elif op is Op.GRAD_OUTPUT:
                found[n] = Place(kind.load.format(f"q[{at} * qk + i]" if at else "q[i]"), lane)
        return found

    def unit_text(self) -> str:
        """Return the C functions that compute per-unit values."""
        body = Body(self.program, self.kind.suffix)
        leaves = {
            n: self.parameters.place(int(i.attr or 0), "params[{0} * stride + i]", "shared[{0}]")
            for n, i in enumerate(self.program.instructions)
            if i.op is Op.PARAM
        }
        body.expand(self.units, leaves)
        written = [
            Written(self.unit_rows.place(j, "unit[{0} * PITCH + i]"), body.number[n])
            for j, n in enumerate(self.units)
        ]
        return _UNITS.replace("@body@", statements(body, written)).replace("@pads@", self.pads)

    def common(self) -> dict[str, object]:
        """Return what both templates are filled with."""
        return {
            "name": self.program.name.removesuffix(".adjoint"),
            "type": self.kind.x,
            "x": self.kind.x,
            "real": self.kind.real,
            "lanes": self.kind.lanes,
            "S": self.states.rows,
            "R": self.projections.rows,
            "PR": self.parameters.rows,
            "V": self.unit_rows.rows,
            "heads": self.wide.heads,
            "groups": self.wide.groups,
            "common": _COMMON.replace("@s@", self.kind.suffix),
            "units": self.unit_text(),
            "pads": self.pads,
        }


@lru_cache(maxsize=256)
def render_forward(program: Program, dtype: torch.dtype) -> str:
    """Return the C source of a program's forward kernel."""
    program, kind = program.flat, TYPES[dtype]
    kernel, body = _Kernel(program, kind), Body(program, kind.suffix)
    results, outputs = program.of_kind("state"), program.of_kind("output")
    body.expand([*results.values(), *outputs.values()], kernel.leaves("z"))
    written = [
        Written(kernel.states.place(s, "y[{0} * PITCH + i]"), body.number[n]) for s, n in results.items()
    ]
    for k, n in outputs.items():
        place = Place(f"o[{k} * ok + i]" if k else "o[i]", Kind(True))
        written.append(Written(place, body.number[n], kind.store))
    rows = 2 * kernel.states.rows + kernel.unit_rows.rows
    return fill(
        "wide_forward.c",
        **kernel.common(),
        step=statements(body, written),
        block=block_lanes(rows),
        N=program.output_count,
    )


@lru_cache(maxsize=256)
def render_backward(program: Program, dtype: torch.dtype) -> str:
    """Return the C source of a program's backward kernel."""
    program, kind = program.flat, TYPES[dtype]
    whole = adjoint(program)
    step = whole.step
    kernel, body = _Kernel(step, kind), Body(step, kind.suffix)
    body.expand([o.value for o in step.outputs], kernel.leaves("z"))
    number, states = body.number, kernel.states
    new = {s: number[n] for s, n in step.of_kind("new_state").items()}
    sums = Addresses(kernel.wide, [Extent(tuple(sorted(program.over[n]))) for n in whole.units])
    places = [
        _unit_place(program, n, sums.place(j, "acc[{0} * PITCH + i]")) for j, n in enumerate(whole.units)
    ]
    written = _gradients(kernel, step, number, places)

    keep = [Written(states.place(s, "kept[{0} * PITCH + i]"), n) for s, n in new.items()]
    rows = states.rows
    if not body.folds.keys() & needed(body.lines.lines, new.values()):
        read = [*(each.value for each in written), *(n for fold in body.folds.values() for n in fold.folded)]
        for n in kept_values(body.lines, new.values(), read):
            if body.kinds[n].lane and body.phases[n] == 0:
                own = Addresses(kernel.wide, [Extent(body.kinds[n].over)])
                keep.append(Written(own.place(0, f"kept[({rows} + {{0}}) * PITCH + i]"), n))
                rows += own.rows
    given = {
        each.value: each.place.text
        for each in keep
        if body.lines.lines[each.value].args and body.kinds[each.value] == each.place.kind
    }
    return fill(
        "wide_backward.c",
        **kernel.common(),
        again=statements(body, keep),
        back=statements(body, written, given),
        U=sums.rows,
        W=kernel.projections.shared,
        N=program.output_count,
        kept=max(1, rows),
        block=block_lanes(2 * states.rows + kernel.unit_rows.rows + sums.rows),
        store_shared=kind.store.format(place="gw[c]", value="sum"),
    )


def _gradients(
    kernel: _Kernel, step: Program, number: Mapping[int, int], units: Sequence[Place]
) -> list[Written]:
    """Return what the step backwards writes. `units`: where the gradients of per-unit values are summed up."""
    kind = kernel.kind
    written = [
        Written(kernel.states.place(s, "h[{0} * PITCH + i]"), number[n])
        for s, n in step.of_kind("grad_state").items()
    ]
    for p, n in step.of_kind("grad_preact").items():
        place = kernel.projections.place(p, "ga[{0} * gxk + i]", "gw[{0}]")
        if place.kind.lane:
            written.append(Written(place, number[n], kind.store))
        elif step.instructions[n].op is not Op.CONST:  # zero: nothing to add
            written.append(Written(place, number[n], summed=True))
    for n in step.of_kind("grad_input").values():
        written.append(Written(Place("gv[i]", Kind(True)), number[n], kind.store))
    for j, n in step.of_kind("grad_unit").items():
        shared = not units[j].kind.lane
        written.append(Written(units[j], number[n], "{place} += {value};", summed=shared))
    return written
