"""Join chunks inside one kernel, in one launch and always in the same order.

A program takes a ticket. Tickets are dealt in the order of time, so whatever a program waits for is running or done. It
publishes its chunk's transition, then takes the state before its group of chunks through the transitions of the chunks
before it in the group; the last program of a group passes the state on. This order never varies, so two runs give the
same bits.

Readers need neither flags nor fences: all words start as −1, the bits of a NaN that no result has (a NaN is published
as another one), so a word with other bits is the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rrnn.backends.triton.kernel_text import EntryKeys, EntryName, KernelText, name_of

GROUP = 16  # chunks of a group: fewer make the chain of groups longer, more make every program read more
_BATCH = 8  # transitions loaded at once
_NAN = 0x7FC00000

CHAIN = "queue, entries, carry,"  # pointers: all int32 words that start as −1

PLACE = """\
    ticket = tl.atomic_add(queue, 1) + 1
    blocks = tl.cdiv(D, BLOCK)
    d = ticket % blocks * BLOCK + tl.arange(0, BLOCK)
    b = (ticket // blocks % B).to(tl.int64)
    place = (ticket // (blocks * B)).to(tl.int64)
    c = {chunk}
"""

Apply = Callable[[KernelText, EntryName], None]


def words(chunks: int, keys: int, states: int) -> int:
    """Return how many words a lane needs."""
    return chunks * keys + (chunks // GROUP + 1) * states


def join(k: KernelText, values: Sequence[float | None], keys: EntryKeys, apply: Apply, first: str) -> None:
    """Write z, the states before this chunk, whose transition is m_{i}_{j}. `first` is where the very first states are;
    where it is None they are `values`."""
    _publish(k, "entries", "place", {e: f"m{name_of(key)}" for e, key in enumerate(keys)})
    _gather(k, values, keys, apply, first)
    _pass_on(k, len(values), apply)


def _publish(k: KernelText, where: str, row: str, values: dict[int, str]) -> None:
    """Store values, index → name, in row `row` of as many."""
    for e, name in values.items():
        bits = f"tl.where({name} == {name}, {name}.to(tl.int32, bitcast=True), {_NAN})"
        k(f"tl.store({where} + (({row}) * {len(values)} + {e}) * lanes + lane, {bits}, mask=ok)")


def _wait(k: KernelText, asked: dict[str, tuple[str, str]]) -> None:
    """Load name → (pointer, mask) until no word is missing."""
    k(*(f"{name} = tl.full([BLOCK], -1, tl.int32)" for name in asked))
    k("missing = 1", "while missing > 0:")
    k.depth += 1
    for name, (pointer, mask) in asked.items():
        k(f"{name} = tl.load({pointer}, mask={mask}, other=0, volatile=True)")
    k("missing = tl.max((" + " | ".join(f"({name} == -1)" for name in asked) + ").to(tl.int32), 0)")
    k.depth -= 1


def _gather(k: KernelText, values: Sequence[float | None], keys: EntryKeys, apply: Apply, first: str) -> None:
    """Write z, the states before this chunk."""
    states = len(values)
    k(f"group = place // {GROUP}", f"before = place % {GROUP}")
    k(*(f"z{s} = tl.zeros([BLOCK], tl.float32)" for s in range(states)))
    k("if group == 0:")
    k.depth += 1
    k.first("z", first, lambda s: f"{s} * lanes + lane", values)
    k.depth -= 1
    k("else:")
    k.depth += 1
    _wait(k, {f"k{s}": (f"carry + (group * {states} + {s}) * lanes + lane", "ok") for s in range(states)})
    k(*(f"z{s} = k{s}.to(tl.float32, bitcast=True)" for s in range(states)))
    k.depth -= 1
    k(f"for q in range(0, before, {_BATCH}):")
    k.depth += 1
    asked = {}
    for g in range(_BATCH):
        for e, key in enumerate(keys):
            row = f"(group * {GROUP} + q + {g}) * {len(keys)} + {e}"
            asked[f"k{g}{name_of(key)}"] = (
                f"entries + ({row}) * lanes + lane",
                f"d < tl.where(q + {g} < before, D, 0)",
            )
    _wait(k, asked)
    for g in range(_BATCH):
        k(*(f"e{g}{name_of(e)} = k{g}{name_of(e)}.to(tl.float32, bitcast=True)" for e in keys))
        apply(k, lambda key, g=g: f"e{g}{name_of(key)}")
        k(*(f"z{s} = tl.where(q + {g} < before, n{s}, z{s})" for s in range(states)))
    k.depth -= 1


def _pass_on(k: KernelText, states: int, apply: Apply) -> None:
    """Let the last chunk of a group publish the states of the next group."""
    k(f"if before == {GROUP - 1}:")
    k.depth += 1
    apply(k, lambda key: f"m{name_of(key)}")
    _publish(k, "carry", "group + 1", {s: f"n{s}" for s in range(states)})
    k.depth -= 1
