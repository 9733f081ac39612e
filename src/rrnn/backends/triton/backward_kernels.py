"""Write the kernels that run backwards: the gradient along a chunk, and chunks summarised and joined."""

from __future__ import annotations

from collections.abc import Callable

from rrnn.backends.triton.chained_chunks import CHAIN, PLACE, join
from rrnn.backends.triton.kernel_text import (
    PACKED,
    KernelText,
    is_const,
    parameter,
    shift,
    whole,
)
from rrnn.backends.triton.time_loop import TimeLoop
from rrnn.backends.triton.transitions import Transitions
from rrnn.ir import Op, Program, adjoint, reverse_scan_form
from rrnn.ir.adjoint import unit_values

_POINTERS = "x, theta, mask, inp, saved, go, ends, gx, gi, gfirst, partial,"
_NUMBERS = "xt, xb, xk, mt, mb, it, ib, gt, gb, gxt, gxb, gxk, git, gib, T, B, D, C,"
_CONSTANTS = "MASKED: tl.constexpr, BLOCK: tl.constexpr,"


class BackwardKernels(TimeLoop, Transitions):
    """Writes the kernels of the gradient."""

    def _renew(self, k: KernelText, program: Program, j: int, before: str, after: str) -> None:
        """Write the states after step j from those before it."""
        units, new = unit_values(program), program.of_kind("new_state")
        k.step(program, new.values(), units, self._leaf(j, before), f"f{j}_")
        for s, n in new.items():
            self._select(k, f"{after}{s}", whole(f"f{j}_v{n}", is_const(program, n)), f"{before}{s}", j)

    def _backwards(
        self,
        k: KernelText,
        program: Program,
        step: Callable[[int, object], None],
        *,
        store: bool,
        again: bool = False,
    ) -> None:
        """Walk the chunk's segments of `every` steps from its end: load everything, recompute the states between the
        saved ones (w{j}_{s}: before step j), then take `step(j, offset)` from last to first. A last segment that T
        cuts off is walked step by step, each time from the saved state: little code, run once."""
        E, places = self.every, self._pointers(grad=True, store=store)
        k("begin = c * C", "end = tl.minimum(begin + C, T)", f"t = begin + (end - begin - 1) // {E} * {E}")
        k(*(f"{name} = {start}" for name, (start, _) in places.items()))
        if E > 1:
            k(f"if t + {E} > end:")
            k.depth += 1
            k("for past in range(0, end - t):", "    j = end - t - 1 - past")
            k.depth += 1
            k(*(f"w0_{s} = tl.load(sp + {s} * lanes, mask=ok, other=0.0)" for s in range(self.S)))
            k("for i in range(0, j):")
            k.depth += 1
            self._loads(k, program, ["i"], "a")
            self._renew(k, program, 0, "w0_", "w1_")
            k(*(f"w0_{s} = w1_{s}" for s in range(self.S)), *([] if self.S else ["pass"]))
            k.depth -= 1
            self._loads(k, program, ["j"], "a", grad=True)
            step(0, "j")
            k.depth -= 1
            k(*(f"{name} -= {1 if name == 'sp' else E} * {stride}" for name, (_, stride) in places.items()))
            k(f"t -= {E}")
            k.depth -= 1
        k(f"turns = (t - begin + {E}) // {E}")

        def body() -> None:
            k(*(f"w0_{s} = aw{s}" for s in range(self.S)))
            for j in range(E - 1):
                self._renew(k, program, j, f"w{j}_", f"w{j + 1}_")
            for j in reversed(range(E)):
                step(j, j)

        self._turns(k, program, E, back=True, grad=True, store=store, body=body, again=again)

    def _recur(self, k: KernelText, again: bool = False) -> None:
        """Write the gradients along a chunk, from those of the states after it, g."""
        p = adjoint(self.program).step
        units, sums = unit_values(p), p.of_kind("grad_unit")
        results, preacts, inputs = p.of_kind("grad_state"), p.of_kind("grad_preact"), p.of_kind("grad_input")
        k.units(p, units)
        k(*(f"acc{u} = tl.zeros([BLOCK], tl.float32)" for u in sums))

        def step(j: int, at: object) -> None:
            tag = f"b{j}_"
            k.step(
                p, [o.value for o in p.outputs if o.kind != "new_state"], units, self._leaf(j, f"w{j}_"), tag
            )

            def value(n: int) -> str:
                return whole(f"{tag}v{n}", is_const(p, n))

            for i, n in preacts.items():
                self._select(k, "r", value(n), "0.0", j)
                k(f"tl.store(xo + {at} * gxt + {i} * gxk, r.to(gx.dtype.element_ty), mask=ok)")
            for n in inputs.values():
                self._select(k, "r", value(n), "0.0", j)
                k(f"tl.store(io + {at} * git, r.to(gi.dtype.element_ty), mask=ok)")
            for u, n in sums.items():
                self._select(k, "r", value(n), "0.0", j)
                k(f"acc{u} += r")
            for s, n in results.items():
                self._select(k, f"h{s}", value(n), f"g{s}", j)
            k(*(f"g{s} = h{s}" for s in results))

        self._backwards(k, p, step, store=True, again=again)
        if self.S:
            k("if gfirst is not None:", "    if c == 0:")
            k(*(f"        tl.store(gfirst + {s} * lanes + lane, g{s}, mask=ok)" for s in range(self.S)))
        k(*(f"tl.store(partial + (c * {len(sums)} + {u}) * lanes + lane, acc{u}, mask=ok)" for u in sums))

    def backward(self) -> str:
        """Return the kernel of the gradient of every chunk."""
        k = KernelText()
        if self.packed:
            steps = {"x": "xt", "go": "gt", "gx": "gxt"}
            steps |= {"inp": "it", "gi": "git"} if self.program.uses_input else {}
            rows = dict[str, str].fromkeys(("ends", "gfirst"), f"{self.S} * D")
            shift(
                k, steps, rows | {"partial": f"{len(adjoint(self.program).units)} * D"}, (self.every, self.S)
            )
        k.first("g", "ends", lambda s: f"(c * {self.S} + {s}) * lanes + lane", [0.0] * self.S)
        self._recur(k)
        if self.packed:
            numbers = _NUMBERS.replace(" T, B, D, C,", " D,")
            return k.text("backward", f"{_POINTERS} sequences,\n    {numbers} {_CONSTANTS}", PACKED)
        return k.text("backward", f"{_POINTERS}\n    {_NUMBERS} {_CONSTANTS}")

    def parameters(self) -> str:
        """Return the kernel that sums gradients of per-unit values over the batch, in its order, and turns them into
        gradients of parameters."""
        tail, k, group = adjoint(self.program).epilogue, KernelText(), 8
        sums, results = adjoint(self.program).units, tail.of_kind("grad_param")
        k(*(f"a{u} = tl.zeros([BLOCK], tl.float32)" for u in range(len(sums))))
        k(f"for row in range(0, B, {group}):")
        k.depth += 1
        for u in range(len(sums)):
            for g in range(group):
                at = f"partial + ({u} * B + row + {g}) * D + d"
                k(f"l{u}_{g} = tl.load({at}, mask=d < tl.where(row + {g} < B, D, 0), other=0.0)")
        k(*(f"a{u} += l{u}_{g}" for u in range(len(sums)) for g in range(group)), *([] if sums else ["pass"]))
        k.depth -= 1

        def leaf(op: Op, index: int) -> str:
            return parameter(index) if op is Op.PARAM else f"a{index}"

        k.step(tail, results.values(), (), leaf, "e_")
        for p, n in results.items():
            k(f"r = {whole(f'e_v{n}', is_const(tail, n))}")
            k(f"tl.store(grad + {p} * D + d, r.to(grad.dtype.element_ty), mask=ok)")
        return k.text("parameters", "partial, theta, grad, B, D, BLOCK: tl.constexpr,")

    def _summarise(self, k: KernelText) -> None:
        """Compose a chunk's derivative: m_{i}_{j}."""
        form = reverse_scan_form(self.program)
        p, units, keys = form.program, unit_values(form.program), self._reverse_keys()
        wanted = [o.value for o in p.outputs if o.kind != "new_state"]
        k.units(p, units)
        for i, j in keys:
            k(f"m_{i}_{j} = tl.full([BLOCK], {1.0 if i == j else 0.0}, tl.float32)")

        def step(s: int, at: object) -> None:
            tag = f"b{s}_"
            k.step(p, wanted, units, self._leaf(s, f"w{s}_"), tag)
            self._reverse_compose(k, tag)
            for i, j in keys:
                self._select(k, f"m_{i}_{j}", f"n_{i}_{j}", f"m_{i}_{j}", s)

        self._backwards(k, p, step, store=False)

    def reverse_summary(self) -> str:
        """Return the kernel that composes each chunk's derivative."""
        k, keys = KernelText(), self._reverse_keys()
        self._summarise(k)
        for e, (i, j) in enumerate(keys):
            k(f"tl.store(entries + (c * {len(keys)} + {e}) * lanes + lane, m_{i}_{j}, mask=ok)")
        arguments = "x, theta, mask, inp, saved, go, entries, xt, xb, xk, mt, mb, it, ib, gt, gb, T, B, D, C,"
        return k.text("reverse_summary", f"{arguments}\n    {_CONSTANTS}")

    def reverse_join(self) -> str:
        """Return the kernel that takes the gradient from chunk to chunk, backwards."""
        return self._join("reverse_join", self._reverse_keys(), self._reverse_apply, [0.0] * self.S)

    def reverse_chained(self) -> str:
        """Return one kernel for all three parts; its second walk reads from the L2 cache what the first has read."""
        k = KernelText()
        self._summarise(k)
        join(k, [0.0] * self.S, self._reverse_keys(), self._reverse_apply, "ends")
        k(*(f"g{s} = z{s}" for s in range(self.S)))
        self._recur(k, again=True)
        place = PLACE.format(chunk="chunks - 1 - place")
        return k.text("reverse_chained", f"{_POINTERS} {CHAIN}\n    {_NUMBERS} chunks, {_CONSTANTS}", place)
