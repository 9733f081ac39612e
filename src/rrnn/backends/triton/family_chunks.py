"""Kernels that run families in chunks of time, for few lanes: each chunk summarised, and the chunks joined.

They are those of thin cells (`forward_kernels.py`, `backward_kernels.py`) on tiles: an entry of a transition has the
index of the states between which it leads, so a chunk carries as many numbers as it has states, times two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_kernels import CONSTANTS, FamilyKernels
from rrnn.backends.triton.family_text import FamilyText
from rrnn.backends.triton.kernel_text import EntryKeys, EntryName, name_of, number
from rrnn.backends.triton.transitions import Transitions
from rrnn.ir import Program, reverse_scan_form, scan_form
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import Extent


class FamilyChunks(FamilyKernels, Transitions):
    """Writes the kernels of chunks of one program, each of whose states reaches those of its own index alone."""

    def __init__(self, program: Program, every: int) -> None:
        super().__init__(program, every)
        assert program.wide is not None
        self.unflattened = program
        # Of a key (i, j, …) forwards, state j − 1 has the index; backwards, of (i, j), the number i.
        self.entries = Addresses(self.wide, [program.wide.states[key[1] - 1] for key in self._keys()])
        self.derivatives = Addresses(self.wide, ())
        if program.semiring.has_gradient:
            self.derivatives = Addresses(self.wide, [self.wide.states[i] for i, _ in self._reverse_keys()])

    def _renew_entries(self, k: FamilyText, keys: EntryKeys, extents: Sequence[Extent], j: int) -> None:
        """Write the entries with step j, as whole tiles, in the place of those without it."""
        for key, extent in zip(keys, extents, strict=True):
            m, n = f"m{name_of(key)}", f"n{name_of(key)}"
            k(f"{n} = {n} + tl.zeros({k.shape(extent.over)}, tl.float32)")
            k("if MASKED:", f"    {n} = tl.where(am{j} != 0, {n}, {m})")
        k(*(f"m{name_of(key)} = n{name_of(key)}" for key in keys))

    @staticmethod
    def _store_entries(k: FamilyText, keys: EntryKeys, table: Addresses) -> None:
        for key, extent, start in zip(keys, table.extents, table.starts, strict=True):
            where = f"entries + (c * {table.rows} + {k.at(extent, start)}) * lanes + lane"
            k(f"tl.store({where}, m{name_of(key)}, mask={k.ok(extent.over)})")

    def summary(self) -> str:
        """Return the kernel that composes each chunk's transition."""
        k, keys, ring = FamilyText(self.wide), self._keys(), self.unflattened.semiring
        p = scan_form(self.unflattened).program.flat
        units, entries = unit_values(p), p.of_kind("entry")
        k.place(False)
        k.units(p, units, self.parameters)
        for key, extent in zip(keys, self.entries.extents, strict=True):
            first = ring.numbers_of(ring.one if key[0] == key[1] else ring.zero)[key[2] if key[2:] else 0]
            k(f"m{name_of(key)} = tl.full({k.shape(extent.over)}, {number(first)}, tl.float32)")

        def step(j: int, whole: bool) -> None:
            k.step(p, entries.values(), units, self._leaf(j, "none"), "s")
            self._compose(k, "s")
            self._renew_entries(k, keys, self.entries.extents, j)

        self._forwards(k, p, step, store=False)
        self._store_entries(k, keys, self.entries)
        arguments = "x, shared, theta, mask, inp, entries, xt, xb, mt, mb, it, ib, T, B, D, C, zero,"
        return k.text("summary", f"{arguments} {CONSTANTS}")

    def reverse_summary(self) -> str:
        """Return the kernel that composes each chunk's derivative."""
        k, keys = FamilyText(self.wide), self._reverse_keys()
        p = reverse_scan_form(self.unflattened).program
        units, wanted = unit_values(p), [o.value for o in p.outputs if o.kind != "new_state"]
        k.place(False)
        k("c += 1")  # nobody needs the first chunk's
        k.units(p, units, self.parameters)
        for (i, j), extent in zip(keys, self.derivatives.extents, strict=True):
            k(f"m_{i}_{j} = tl.full({k.shape(extent.over)}, {1.0 if i == j else 0.0}, tl.float32)")

        def step(j: int, at: object) -> None:
            j = max(j, 0)
            k.step(p, wanted, units, self._leaf(j, f"w{j}_"), "b")
            self._reverse_compose(k, "b")
            self._renew_entries(k, keys, self.derivatives.extents, j)

        self._backwards(k, p, self._piece(), step, lambda _: None, self._pointers(grad=True))
        self._store_entries(k, keys, self.derivatives)
        arguments = "x, shared, theta, mask, inp, saved, go, entries,"
        numbers = "xt, xb, mt, mb, it, ib, gt, gb, T, B, D, C, zero,"
        return k.text("reverse_summary", f"{arguments} {numbers} {CONSTANTS}")

    def _join(
        self,
        name: str,
        keys: EntryKeys,
        table: Addresses,
        back: bool,
        renew: Callable[[FamilyText, EntryName], None],
    ) -> str:
        """Walk the chunks; the states before each go to `starts`."""
        k, rows, states = FamilyText(self.wide), self.states.rows, range(len(self.wide.states))
        k.place(False)
        self._load_states(k, "z", "first")
        k("for past in tl.range(0, chunks - 1, num_stages=STAGES):")
        k.depth += 1
        k("at = tl.cast(chunks - 1 - past, tl.int64)" if back else "at = tl.cast(past, tl.int64)")
        self._store_states(k, "z", f"starts + at * {rows} * lanes")
        for key, extent, start in zip(keys, table.extents, table.starts, strict=True):
            where = f"entries + (at * {table.rows} + {k.at(extent, start)}) * lanes + lane"
            k(f"e{name_of(key)} = tl.load({where}, mask={k.ok(extent.over)}, other=0.0)")
        renew(k, lambda key: f"e{name_of(key)}")
        k(*(f"z{s} = n{s}" for s in states))
        k.depth -= 1
        last = "0" if back else "(chunks - 1)"
        self._store_states(k, "z", f"starts + tl.cast({last}, tl.int64) * {rows} * lanes")
        arguments = "first, entries, starts, T, B, D, chunks, zero,"
        return k.text(name, f"{arguments} BLOCK: tl.constexpr, STAGES: tl.constexpr")

    def join(self) -> str:
        """Return the kernel that finds the states at the start of every chunk."""
        return self._join("join", self._keys(), self.entries, False, self._apply)

    def reverse_join(self) -> str:
        """Return the kernel that takes the gradient from chunk to chunk, backwards."""
        return self._join("reverse_join", self._reverse_keys(), self.derivatives, True, self._reverse_apply)
