"""One call of the matrix schedule: factors from a step's expressions, chunks as matrix products, outputs from scores.

Keys, queries and values that are projections as they stand are read where they lie; the others are computed first.
Their gradients go the same way back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from rrnn.backends.interface import CellCall, compute_dtype, side_by_side, units_contiguous
from rrnn.backends.matrix import chunks, elementwise
from rrnn.backends.matrix.elementwise import INDEX, UNIT
from rrnn.backends.matrix.factors import Factors, Tiles, count_segments, new_steps, segments_of, sums_dtype
from rrnn.backends.matrix.leaves import Leaf, evaluate, leaves_of, read
from rrnn.ir import Op, Program
from rrnn.ir.program import needed
from rrnn.ir.separable import KEYS, LOG_DECAY, QUERIES, SIGN, SKIP, TURN, VALUE, WEIGHT, Separable, separable


@lru_cache(maxsize=256)
def parts_of(program: Program) -> Separable:
    """Return the parts of a program that is known to be separable."""
    found = separable(program)
    assert isinstance(found, Separable), found
    return found


@lru_cache(maxsize=256)
def plain(parts: Separable) -> dict[int, Leaf]:
    """Return the factors that are leaves as they stand, of which no other factor and no output reads anything."""
    if parts.turns or SIGN in parts.factors.of_kind("factor"):
        return {}
    outputs = parts.factors.of_kind("factor")
    elsewhere = set(leaves_of(parts.readout, parts.readout.of_kind("output").values()))
    found = {}
    for factor, n in outputs.items():
        op, _, attr = parts.factors.instructions[n]
        others = leaves_of(parts.factors, [m for i, m in outputs.items() if i != factor])
        leaf = op, int(attr or 0)
        if (
            op in (Op.PREACT, Op.INPUT)
            and leaf not in others
            and leaf not in elsewhere
            and factor != LOG_DECAY
        ):
            found[factor] = leaf
    return found


def computed(parts: Separable) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the factors that have to be computed, and their instructions."""
    outputs, known = parts.factors.of_kind("factor"), plain(parts)
    found = tuple(i for i in outputs if i not in known)
    return found, tuple(outputs[i] for i in found)


def _heads(t: Tensor, steps: int, batch: int, width: int, heads: int) -> Tensor:
    """Return (…, groups, heads of a group, X) as (T, B, heads or groups, width)."""
    t = t.expand(steps, batch, *t.shape[-3:-1], width)
    return t.flatten(2, 3) if t.shape[3] > 1 or t.shape[2] == heads else t.squeeze(3)


class Call:
    """A call of a program: its parts, its sizes, and its factors."""

    def __init__(self, call: CellCall, tiles: Tiles, grad: bool = False) -> None:
        self.call, self.tiles, self.fast = call, tiles, tiles.kernels
        self.parts = parts_of(call.program)
        own = self.parts.in_place
        if own is not None and tiles.block is None and self.generates(own.factors, computed(own)[1]):
            self.parts = own
        self.plain = plain(self.parts)
        wide = call.program.wide
        assert wide is not None
        self.heads, self.groups, self.units = wide.heads, wide.groups, call.units // wide.heads
        self.steps, self.batch = call.x.shape[:2]
        self.dtype = compute_dtype(call.x.dtype)
        self.leaves: dict[Leaf, Tensor] = {}
        with torch.set_grad_enabled(grad):
            self._factors()

    def leaf(self, leaf: Leaf) -> Tensor:
        """Return a leaf in the compute dtype, without what padding holds; with gradients, autograd knows it."""
        if leaf not in self.leaves:
            value = read(self.call, [leaf])[leaf].to(self.dtype)
            if leaf[0] is not Op.PARAM and self.call.mask is not None:
                value = torch.where(self.call.mask[:, :, None, None, None], value, 0.0)
            self.leaves[leaf] = value.detach().requires_grad_(torch.is_grad_enabled())
        return self.leaves[leaf]

    def _evaluate(
        self, program: Program, wanted: list[int], known: dict[int, Tensor] | None = None
    ) -> list[Tensor]:
        code = program.instructions
        stop = set(known or ())
        values = dict(known or {})
        for n in needed(code, wanted, stop):
            if n not in stop and code[n].op in (Op.PREACT, Op.PARAM, Op.INPUT):
                values[n] = self.leaf((code[n].op, int(code[n].attr or 0)))
        found = evaluate(program, wanted, values, self.call.params.new_empty((), dtype=self.dtype))
        return [found[n] for n in wanted]

    def _factors(self) -> None:
        self.computed, self.wanted = computed(self.parts)
        dtype, size = self.call.x.dtype, self.parts.size
        shape = self.steps, self.batch
        self.turned: list[Tensor] = []
        self.harsh: Tensor | None = None
        known = {KEYS, QUERIES, VALUE, LOG_DECAY, WEIGHT, SKIP}
        self.generated = known.issuperset(self.computed) and self.generates(self.parts.factors, self.wanted)
        if self.generated:
            values = self._generate() if self.computed else {}
        else:
            found_values = self._evaluate(self.parts.factors, list(self.wanted))
            values = dict(zip(self.computed, found_values, strict=True))
        if SIGN in values or TURN in values:
            self._turn(values)
        found: dict[int, Tensor] = {}
        for factor, width in ((KEYS, size), (QUERIES, size), (VALUE, self.units)):
            if factor in self.plain:
                found[factor] = _heads(
                    read(self.call, [self.plain[factor]])[self.plain[factor]], *shape, width, self.heads
                )
            else:
                pair = [values[f] for f in (factor, factor + 1) if f in values and factor != VALUE] or [
                    values[factor]
                ]
                whole = [_heads(t, *shape, width, self.heads) for t in pair]
                if len(whole) > 1:
                    rank = max(t.shape[2] for t in whole)
                    whole = [t.repeat_interleave(rank // t.shape[2], 2) for t in whole]
                found[factor] = whole[0] if len(whole) == 1 else torch.cat(whole, -1)
        for a, b in ((KEYS, QUERIES), (QUERIES, KEYS)):
            if found[a].shape[2] < found[b].shape[2]:
                found[a] = found[a].repeat_interleave(found[b].shape[2] // found[a].shape[2], 2)
        self.g: Tensor | None = None
        if LOG_DECAY in values:
            g = values[LOG_DECAY].expand(*shape, -1, self.heads // values[LOG_DECAY].shape[-3], -1)
            if self.call.mask is not None and not self.generated:
                g = torch.where(self.call.mask[:, :, None, None, None], g, 0.0)
            g = g.flatten(2, 3)
            self.g = g.squeeze(-1) if self.parts.decay == "head" else g
            if self.parts.decay == "state" and found[KEYS].shape[-1] > g.shape[-1]:
                self.g = torch.cat([g, g], -1)
        self.found = found
        with torch.no_grad():
            g = self.g if self.g is None or self.generated else self.g.to(self.dtype)
            q, k, v = (units_contiguous(found[i].to(dtype)) for i in (QUERIES, KEYS, VALUE))
            weights, skips = (
                values[i].flatten(2, 3).squeeze(-1) if i in values else None for i in (WEIGHT, SKIP)
            )
            more = self.generated, self.harsh, weights, skips
            self.factors = Factors(q, k, v, g, self.call.mask, self.call.sequences, *more)

    @property
    def decay_of_steps(self) -> bool:
        """Whether decays depend on more than parameters."""
        n = self.parts.factors.of_kind("factor").get(LOG_DECAY)
        return n is not None and any(op is not Op.PARAM for op, _ in leaves_of(self.parts.factors, [n]))

    def generates(self, program: Program, wanted: tuple[int, ...]) -> bool:
        """Return whether generated kernels compute these values; torch ops do otherwise."""
        read = (self.call.x, self.call.params, *(() if self.call.inp is None else (self.call.inp,)))
        return self.fast and all(map(side_by_side, read)) and elementwise.possible(program, wanted)

    @cached_property
    def place(self) -> elementwise.Place:
        """Where generated kernels find the call's chunks."""
        table, C = None, self.tiles.chunk
        if self.call.sequences is not None:
            table, _ = segments_of(self.call.sequences, self.steps, C)
        sizes = self.steps, self.batch, self.heads, self.heads // self.groups, self.parts.size, self.units
        return elementwise.Place(*sizes, C, self.tiles.segment, self.tiles.mild, self.call.mask, table)

    def by_heads(self, width: int, dtype: torch.dtype) -> Tensor:
        """Return an empty tensor for values of all heads, (T, B, groups, heads of a group, width)."""
        shape = self.steps, self.batch, self.groups, self.heads // self.groups, width
        return self.call.x.new_empty(shape, dtype=dtype)

    def views(self, leaves: Iterable[Leaf], score: Tensor | None = None) -> list[Tensor]:
        """Return what generated kernels read."""
        leaves = list(leaves)
        found = read(self.call, [leaf for leaf in leaves if leaf != elementwise.SCORE])
        if score is not None:
            found[elementwise.SCORE] = score.unflatten(2, (self.groups, -1))
        return [found[leaf] for leaf in leaves]

    def _generate(self) -> dict[int, Tensor]:
        """Compute factors by a generated kernel: log-decays as running sums from the start of each chunk."""
        widths = {KEYS: self.parts.size, QUERIES: self.parts.size, VALUE: self.units}
        widths |= {LOG_DECAY: self.parts.size if self.parts.decay == "state" else 1, WEIGHT: 1, SKIP: 1}
        axes = {KEYS: INDEX, QUERIES: INDEX, VALUE: UNIT, WEIGHT: None, SKIP: None}
        axes[LOG_DECAY] = INDEX if self.parts.decay == "state" else None
        modes = tuple(elementwise.SUMS if i == LOG_DECAY else elementwise.PUT for i in self.computed)
        kernel = elementwise.forward(
            self.parts.factors, self.wanted, modes, tuple(axes[i] for i in self.computed)
        )
        values = {}
        for i in self.computed:
            if i in (LOG_DECAY, WEIGHT, SKIP):
                dtype = sums_dtype(self.call.x.dtype) if i == LOG_DECAY else torch.float32
                rows = new_steps(self.call.x, self.steps, self.batch, self.heads, widths[i], dtype)
                values[i] = rows.unflatten(2, (self.groups, -1))
            else:
                values[i] = self.by_heads(widths[i], self.call.x.dtype)
        if LOG_DECAY in self.computed and self.parts.decay == "state":
            segments = count_segments(self.steps, self.call.sequences, self.tiles.segment)
            self.harsh = values[LOG_DECAY].new_zeros((segments, self.batch, self.heads), dtype=torch.int32)
        written = [values[i] for i in self.computed]
        elementwise.launch(
            kernel, self.views(kernel.reads), written, [False] * len(written), self.place, self.harsh
        )
        return values

    # ---- states that turn, or change their sign ----------------------------------------------------------------

    def _turn(self, values: dict[int, Tensor]) -> None:
        """Turn keys and queries back by all that the states have turned since the first step."""
        mask, packed = self.call.mask, self.call.sequences
        count = torch.ones(self.steps, 1, device=self.call.x.device) if mask is None else mask
        count = since_start(count.to(torch.float64).cumsum(0)[:, :, None, None, None], packed)
        cos: Tensor | float = 1.0
        sin: Tensor | None = None
        if TURN in values:
            angle = values[TURN].to(torch.float64)
            if angle.dim() == 5:
                angle = angle if mask is None else torch.where(mask[:, :, None, None, None], angle, 0.0)
                angle = since_start(angle.cumsum(0), packed)
            else:
                angle = angle * count
            cos, sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        if SIGN in values:
            sign = torch.where((count % 2 == 1) & (values[SIGN].detach() < 0), -1.0, 1.0).to(self.dtype)
            cos, sin = cos * sign, None if sin is None else sin * sign
        assert isinstance(cos, Tensor)
        for first in (KEYS, QUERIES):
            a, b = values[first], values.get(first + 1)
            if sin is None:
                values[first] = a * cos
                if b is not None:
                    values[first + 1] = b * cos
            else:
                b = values[first + 1] = torch.zeros_like(a) if b is None else b
                values[first], values[first + 1] = a * cos + b * sin, b * cos - a * sin
        for t, unturned in ((cos, 1.0), (sin, 0.0)):
            if t is not None:
                self.turned.append(last_steps(t, packed, unturned))

    def turn_states(self, rows: Tensor, back: bool = False) -> Tensor:
        """Return the states (N, n, H·U) after the last step turned as they are, from those that only decay; `back` is
        the gradient's way."""
        if not self.turned:
            return rows
        cos, sin = self.turned[0], self.turned[1] if len(self.turned) > 1 else None

        def rowwise(t: Tensor) -> Tensor:  # (B or 1, groups, heads, N or 1) → (N or 1, B or 1, H, 1)
            wide = t.expand(-1, -1, self.heads // t.shape[1], -1).flatten(1, 2)
            return wide.permute(2, 0, 1).unsqueeze(-1)

        z = rows.unflatten(-1, (self.heads, self.units))
        if sin is None:
            c = rowwise(cos)
            c = torch.cat([c, c]) if c.shape[0] > 1 and c.shape[0] < z.shape[0] else c
            return (z * c).flatten(-2)
        c, s = rowwise(cos), rowwise(-sin if back else sin)
        a, b = z.chunk(2)
        return torch.cat([a * c - b * s, a * s + b * c]).flatten(-2)

    # ---- passes ------------------------------------------------------------------------------------------------

    def run(self, first: Tensor | None, o: Tensor, scale: float) -> tuple[Tensor, Tensor | None]:
        """Write the scores times a number into o; return the final state, not turned, and those before each segment,
        None if these are one segment's zeros."""
        if not self.fast:
            return chunks.forward(self.factors, first, o, self.tiles.chunk, scale)
        from rrnn.backends.matrix import blocks

        return blocks.forward(self.factors, first, o, self.tiles, scale)

    def outputs(self, score: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the outputs (T, B, N·D) from the scores (T, B, H, U)."""
        readout = self.parts.readout
        z = score.unflatten(2, (self.groups, -1))
        states = {n: z for n, i in enumerate(readout.instructions) if i.op is Op.STATE}
        wanted = list(readout.of_kind("output").values())
        shape = *z.shape[:-1], self.units
        return torch.cat([t.expand(shape).flatten(2) for t in self._evaluate(readout, wanted, states)], -1)


def since_start(sums: Tensor, sequences: Tensor | None) -> Tensor:
    """Return running sums (T, …) from the start of each packed sequence, given those from the first step."""
    if sequences is None:
        return sums
    begin = sequences[:, 1].sort().values
    step = torch.arange(sums.shape[0], device=sums.device)
    begin = begin[torch.searchsorted(begin, step, right=True) - 1]
    before = torch.where((begin > 0).view(-1, *[1] * (sums.dim() - 1)), sums[(begin - 1).clamp(0)], 0.0)
    return sums - before


def last_steps(t: Tensor, sequences: Tensor | None, empty: float) -> Tensor:
    """Return the last step (B, …) of t (T, B, …), or that of each packed sequence, (n, …); `empty` for those without
    steps."""
    if sequences is None:
        return t[-1]
    begin, end = sequences[sequences[:, 0].argsort(), 1:].unbind(1)
    own = t[(end - 1).clamp(0)].squeeze(1)
    return torch.where((end > begin).view(-1, *[1] * (own.dim() - 1)), own, empty)
