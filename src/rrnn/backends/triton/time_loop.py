"""Write how kernels walk along time: pointers, loads ahead of use, selection by the mask, joining chunks in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rrnn.backends.triton.kernel_text import EntryKeys, EntryName, KernelText, name_of
from rrnn.ir import Op, Program


class TimeLoop:
    """Writes loops over time; its subclasses write the kernels around them."""

    def __init__(self, program: Program, unroll: int, every: int, stages: int, packed: bool = False) -> None:
        self.unflattened, self.program = program, program.flat
        self.unroll, self.every, self.stages, self.packed = unroll, every, stages, packed
        # Numbers of stored states, projections and outputs, as in `rrnn.backends.interface`
        self.S, self.K, self.N = len(self.program.states), len(program.projections), program.output_count

    # ---- pieces ------------------------------------------------------------------------------------------------

    def _pointers(self, *, grad: bool = False, store: bool = False) -> dict[str, tuple[str, str]]:
        """Return name → (where it starts, its stride in time) of the tensors that a kernel walks along."""
        places = {"xp": ("x + t * xt + b * xb + d", "xt"), "mp": ("mask + t * mt + b * mb", "mt")}
        if self.program.uses_input:
            places["ip"] = ("inp + t * it + b * ib + d", "it")
        if grad:
            places["gp"] = ("go + t * gt + b * gb + d", "gt")
            places["sp"] = (f"saved + t // {self.every} * {self.S} * lanes + lane", f"{self.S} * lanes")
        if store:
            places["xo"] = ("gx + t * gxt + b * gxb + d", "gxt")
            if self.program.uses_input:
                places["io"] = ("gi + t * git + b * gib + d", "git")
        return places

    def _loads(
        self,
        k: KernelText,
        program: Program,
        offsets: Iterable[object],
        into: str,
        when: str = "",
        *,
        grad: bool = False,
        again: bool = False,
    ) -> None:
        """Write all loads of some steps (at the pointers plus offset·stride), before any arithmetic. `when` is a
        condition of the whole program under which there is anything to load. `again` marks the last reading, from the
        L2 cache."""
        used = {(i.op, i.attr) for i in program.instructions}
        ok = f"mask=d < tl.where({when}, D, 0), other=0.0" if when else "mask=ok, other=0.0"
        if again:
            ok += ', eviction_policy="evict_first"'
        for j, at in enumerate(offsets):
            for p in range(self.K):
                if (Op.PREACT, p) in used:
                    k(f"{into}{j}_{p} = tl.load(xp + {at} * xt + {p} * xk, {ok})")
            if (Op.INPUT, None) in used:
                k(f"{into}i{j} = tl.load(ip + {at} * it, {ok})")
            if grad:
                for n in range(self.N):
                    k(f"{into}q{j}{self._part(n)} = tl.load(gp + {at} * gt{self._column(n)}, {ok})")
            k(
                "if MASKED:",
                f"    {into}m{j} = tl.load(mp + {at} * mt" + (f", mask={when}, other=0)" if when else ")"),
            )
        if grad:
            k(*(f"{into}w{s} = tl.load(sp + {s} * lanes, {ok})" for s in range(self.S)))

    def _turns(
        self,
        k: KernelText,
        program: Program,
        steps: int,
        back: bool,
        grad: bool,
        store: bool,
        body: Callable[[], None],
        again: bool = False,
    ) -> None:
        """Write a loop over turns of `steps` steps, whose loads are ahead of its arithmetic: by the stages of Triton's
        pipeline, through shared memory; without stages by one turn, in registers, which starts quicker."""
        places = self._pointers(grad=grad, store=store)
        read = {
            name: stride for name, (_, stride) in places.items() if name in ("xp", "mp", "ip", "gp", "sp")
        }
        move = "-=" if back else "+="

        def advance(names: Iterable[str]) -> None:
            for name in names:
                by = 1 if name == "sp" else steps
                k(f"{name} {move} {by} * ({places[name][1]})")

        if self.stages:
            k(f"for _ in tl.range(0, turns, num_stages={self.stages}):")
            k.depth += 1
            self._loads(k, program, range(steps), "a", grad=grad, again=again)
            body()
            advance(places)
            k(f"t {move} {steps}")
            k.depth -= 1
            return
        self._loads(k, program, range(steps), "a", "turns > 0", grad=grad, again=again)
        k("for turn in range(0, turns):")
        k.depth += 1
        advance(read)
        first = len(k.lines)
        self._loads(k, program, range(steps), "n", "turn + 1 < turns", grad=grad, again=again)
        loaded = [line.strip() for line in k.lines[first:]]
        body()
        advance(name for name in places if name not in read)
        k(f"t {move} {steps}")
        for line in loaded:  # what was loaded for the next turn becomes current
            name = line.split(" = ")[0]
            if name == "if MASKED:":
                k(line)
            else:
                k(("    " if name[1] == "m" else "") + f"a{name[1:]} = {name}")
        k.depth -= 1

    def _leaf(self, j: int, state: str) -> Callable[[Op, int], str]:
        """Return the function that names a leaf of step j; `state` is the beginning of the states' names."""

        def leaf(op: Op, index: int) -> str:
            return {
                Op.PREACT: f"a{j}_{index}.to(tl.float32)",
                Op.INPUT: f"ai{j}.to(tl.float32)",
                Op.STATE: f"{state}{index}",
                Op.GRAD_OUTPUT: f"aq{j}{self._part(index)}.to(tl.float32)",
                Op.GRAD_STATE: f"g{index}",
            }[op]

        return leaf

    @staticmethod
    def _part(n: int) -> str:
        """Return what tells the names of a unit's further outputs apart."""
        return f"_{n}" if n else ""

    @staticmethod
    def _column(n: int) -> str:
        """Return the offset of a unit's further outputs behind its first one."""
        return f" + {n} * D" if n else ""

    @staticmethod
    def _select(k: KernelText, name: str, new: str, old: str, j: int) -> None:
        """Write name = new, or old on a padded step."""
        k("if MASKED:", f"    {name} = tl.where(am{j} != 0, {new}, {old})", "else:", f"    {name} = {new}")

    def _join(
        self,
        name: str,
        keys: EntryKeys,
        renew: Callable[[KernelText, EntryName], None],
        values: Sequence[float | None],
    ) -> str:
        """Walk `chunks` chunks from the first (step 1) or the last (step −1); the state before each goes to `starts`,
        the last to `final`, if it is asked for. `values`: what `first` holds where it is None."""
        k, group = KernelText(), 8
        k("c = tl.cast(tl.where(step > 0, 0, chunks - 1), tl.int64)")
        k.first("z", "first", lambda s: f"{s} * lanes + lane", values)

        def body(steps: int) -> None:
            k.depth += 1
            for g in range(steps):
                for e, key in enumerate(keys):
                    at = f"entries + ((c + {g} * step) * {len(keys)} + {e}) * lanes + lane"
                    k(f"e{g}{name_of(key)} = tl.load({at}, mask=ok, other=0.0)")
            for g in range(steps):
                for s in range(self.S):
                    k(f"tl.store(starts + ((c + {g} * step) * {self.S} + {s}) * lanes + lane, z{s}, mask=ok)")
                renew(k, lambda key, g=g: f"e{g}{name_of(key)}")
                k(*(f"z{s} = n{s}" for s in range(self.S)))
            k(f"c += {steps} * step")
            k.depth -= 1

        k(f"for _ in range(0, chunks // {group}):")
        body(group)
        k(f"for _ in range(0, chunks % {group}):")
        body(1)
        k("if final is not None:")
        k(*(f"    tl.store(final + {s} * lanes + lane, z{s}, mask=ok)" for s in range(self.S)))
        return k.text(name, "first, entries, starts, final, B, D, chunks, step, BLOCK: tl.constexpr,")
