"""One call of the matrix schedule: factors from a step's expressions, chunks as matrix products, outputs from scores.

Keys, queries and values that are projections as they stand are read where they lie; the others are computed first.
Their gradients go the same way back.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from rrnn.backends.interface import CellCall, Gradients, compute_dtype
from rrnn.backends.matrix import chunks
from rrnn.backends.matrix.factors import FactorGradients, Factors, Tiles, segments_of
from rrnn.backends.matrix.leaves import Leaf, evaluate, leaves_of, read
from rrnn.ir import Op, Program
from rrnn.ir.program import needed
from rrnn.ir.separable import KEYS, LOG_DECAY, QUERIES, SIGN, TURN, VALUE, Separable, separable


@lru_cache(maxsize=256)
def parts_of(program: Program) -> Separable:
    """Return the parts of a program that is known to be separable."""
    found = separable(program)
    assert isinstance(found, Separable), found
    return found


@lru_cache(maxsize=256)
def plain(program: Program) -> dict[int, Leaf]:
    """Return the factors that are leaves as they stand, of which no other factor and no output reads anything."""
    parts = parts_of(program)
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


def _heads(t: Tensor, steps: int, batch: int, width: int, heads: int) -> Tensor:
    """Return (…, groups, heads of a group, X) as (T, B, heads or groups, width)."""
    t = t.expand(steps, batch, *t.shape[-3:-1], width)
    return t.flatten(2, 3) if t.shape[3] > 1 or t.shape[2] == heads else t.squeeze(3)


class Call:
    """A call of a program: its parts, its sizes, and its factors."""

    def __init__(self, call: CellCall, tiles: Tiles, grad: bool = False) -> None:
        self.call, self.tiles, self.fast = call, tiles, tiles.kernels
        self.parts, self.plain = parts_of(call.program), plain(call.program)
        wide = call.program.wide
        assert wide is not None
        self.heads, self.units = wide.heads, call.units // wide.heads
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
        outputs = self.parts.factors.of_kind("factor")
        computed = [i for i in outputs if i not in self.plain]
        values = dict(
            zip(computed, self._evaluate(self.parts.factors, [outputs[i] for i in computed]), strict=True)
        )
        dtype, size = self.call.x.dtype, self.parts.size
        shape = self.steps, self.batch
        self.turned: list[Tensor] = []
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
            if self.call.mask is not None:
                g = torch.where(self.call.mask[:, :, None, None, None], g, 0.0)
            g = g.flatten(2, 3)
            self.g = g.squeeze(-1) if self.parts.decay == "head" else g
            if self.parts.decay == "state" and found[KEYS].shape[-1] > g.shape[-1]:
                self.g = torch.cat([g, g], -1)
        self.found = found
        with torch.no_grad():
            g = None if self.g is None else self.g.to(self.dtype)
            q, k, v = (_side_by_side(found[i].to(dtype)) for i in (QUERIES, KEYS, VALUE))
            self.factors = Factors(q, k, v, g, self.call.mask, self.call.sequences)

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
                self.turned.append(last_steps(t.detach(), packed, unturned))

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
        from rrnn.backends.matrix import launch

        return launch.forward(self.factors, first, o, self.tiles, scale)

    def outputs(self, score: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the outputs (T, B, N·D) from the scores (T, B, H, U)."""
        readout = self.parts.readout
        groups = self.call.program.wide.groups if self.call.program.wide else 1
        z = score.unflatten(2, (groups, -1))
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


def _side_by_side(t: Tensor) -> Tensor:
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def _first_places(call: CellCall, every: int) -> Tensor | list[int]:
    """Return where the states before each sequence's first step are saved: one place each, or one for all columns."""
    if call.sequences is None:
        return [0]
    return segments_of(call.sequences, call.x.shape[0], every)[1][:, 0]


def forward(call: CellCall, state: Tensor | None, out: Tensor, tiles: Tiles) -> tuple[Tensor, Tensor | None]:
    """Run a call forward, as `Backend.forward` describes it."""
    own = Call(call, tiles)
    scale = own.parts.scale
    direct = scale is not None and out.stride(-1) == 1
    o = out if direct else call.x.new_empty((own.steps, call.x.shape[1], call.units), dtype=own.dtype)
    end, states = own.run(state, o.unflatten(-1, (own.heads, own.units)), scale if direct and scale else 1.0)
    if not direct:
        scores = o.unflatten(-1, (own.heads, own.units))
        result = own.outputs(scores)
        if call.mask is not None:
            result = torch.where(call.mask[:, :, None], result, 0.0)
        out.copy_(result)
    saved = None
    if call.every:
        saved = states
        if saved is None or call.every != tiles.segment:  # the first ones are enough to compute the others
            saved = end.new_zeros(call.saved_shape(end.shape[0]))
            if states is not None:
                saved[_first_places(call, call.every)] = states[_first_places(call, tiles.segment)]
    return own.turn_states(end), saved


def backward(call: CellCall, saved: Tensor, grads: Gradients, tiles: Tiles) -> tuple[Tensor, Tensor | None]:
    """Run the gradient of a call, as `Backend.backward` describes it; return gradients of parameters (1, P)."""
    own = Call(call, tiles, grad=True)
    f, go, scale = own.factors, grads.out, own.parts.scale
    if call.mask is not None:
        go = torch.where(call.mask[:, :, None], go, 0.0)
    back = _LeafGradients(own, grads)
    states = saved if call.every == tiles.segment else None
    first = None
    if states is None or scale is None:
        own_first = saved[_first_places(call, call.every)]  # (1, N, B, H·U) or (n, N, 1, H·U)
        first = (own_first[0] if call.sequences is None else own_first[:, :, 0].transpose(0, 1)).contiguous()
    if scale is None or (states is None and not own.fast):
        scores = call.x.new_empty((own.steps, call.x.shape[1], own.heads, own.units), dtype=own.dtype)
        _, states = own.run(first, scores, 1.0)
        if scale is None:
            with torch.enable_grad():
                result = own.outputs(scores.requires_grad_())
            go = back.through([result], [go.to(own.dtype)], scores)
    go = _side_by_side(go if scale is None else go.unflatten(-1, (own.heads, own.units)))
    target = FactorGradients(back.target(QUERIES), back.target(KEYS), back.target(VALUE))
    grad_end = None if grads.state is None else own.turn_states(grads.state, back=True).contiguous()
    if own.fast:
        from rrnn.backends.matrix import launch

        grad_first, dg = launch.backward(f, states, first, go, grad_end, tiles, target, scale or 1.0)
    else:
        assert states is not None
        grad_first, dg = chunks.backward(f, states, go, grad_end, target, tiles.chunk, scale or 1.0)
    back.factors(target, dg)
    return back.finish(), grad_first if grads.wants_first else None


class _LeafGradients:
    """The gradients of what a call reads: projections, the layer's input, parameters."""

    def __init__(self, own: Call, grads: Gradients) -> None:
        self.own, self.grads = own, grads
        self.found: dict[Leaf, Tensor] = {}
        self.params = torch.zeros_like(own.call.params, dtype=own.dtype)
        self.in_place: dict[int, Tensor] = {}  # gradients of plain factors that are written where they belong

    def place(self, leaf: Leaf) -> Tensor:
        """Return where the gradient of a leaf belongs."""
        call = self.own.call._replace(x=self.grads.x, inp=self.grads.inp, params=self.params)
        return read(call, [leaf])[leaf]

    def target(self, factor: int) -> Tensor:
        """Return where the gradient of a factor, per head, is to be written."""
        own, width = (
            self.own,
            self.own.factors.v.shape[-1] if factor == VALUE else self.own.factors.k.shape[-1],
        )
        shape = own.steps, own.batch, own.heads, width
        if factor in own.plain:
            place = self.place(own.plain[factor])
            if place.stride(-1) == 1 and place.shape[2] * place.shape[3] == own.heads:
                self.in_place[factor] = place.view(shape)
                return self.in_place[factor]
        return own.call.x.new_empty(shape, dtype=own.dtype)

    def factors(self, target: FactorGradients, dg: Tensor | None) -> None:
        """Take the gradients of all factors back to the leaves."""
        own, outputs, given = self.own, [], []
        for factor, grad in ((QUERIES, target.q), (KEYS, target.k), (VALUE, target.v)):
            value = own.found[factor]
            if factor in self.in_place:
                continue
            if grad.shape != value.shape:  # heads share it
                grad = grad.unflatten(2, (value.shape[2], -1)).sum(3)
            if factor in own.plain:
                place = self.place(own.plain[factor])
                place.copy_(grad.view(place.shape))
            elif value.requires_grad:
                outputs.append(value)
                given.append(grad)
        if dg is not None and own.g is not None and own.g.requires_grad:
            outputs.append(own.g)
            given.append(dg)
        if outputs:
            self.through(outputs, given)

    def through(self, outputs: list[Tensor], given: list[Tensor], *more: Tensor) -> Tensor:
        """Add to the leaves' gradients what comes through values computed from them; return the gradient of `more`."""
        leaves = self.own.leaves
        found = torch.autograd.grad(outputs, [*leaves.values(), *more], given, allow_unused=True)
        for leaf, g in zip(leaves, found, strict=False):
            if g is not None:
                self.found[leaf] = self.found[leaf] + g if leaf in self.found else g
        return found[-1]

    def finish(self) -> Tensor:
        """Write the gradients of all that is not in place yet; return those of parameters, (1, P)."""
        wide, done = self.own.call.program.wide, set(self.own.plain.values())
        assert wide is not None
        every: list[Leaf] = [(Op.PREACT, i) for i in range(len(wide.projections))]
        every += [(Op.PARAM, i) for i in range(len(wide.parameters))]
        every += [(Op.INPUT, 0)] if self.grads.inp is not None else []
        for leaf in every:
            if leaf in self.found:
                self.place(leaf).copy_(self.found[leaf])
            elif leaf not in done:
                self.place(leaf).zero_()
        return self.params
