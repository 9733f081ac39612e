"""Minimise and compare boolean machines, which accept or reject strings, by determinisation.

A boolean machine without ε-arcs is a nondeterministic finite automaton. Sets of its states, as bits of an integer,
make it deterministic. There may be up to 2^Q such sets, so their number is limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch

from rrnn.errors import AutomatonError
from rrnn.wfsa.automaton import Automaton, indexed_arcs, merged_alphabet
from rrnn.wfsa.symbols import Symbol

M = TypeVar("M", bound=Automaton)
MOST_SETS = 100_000
"""The most sets of states that are followed."""


@dataclass
class _Nondeterministic:
    """Hold an automaton whose sets of states are the bits of an integer."""

    initial: int
    steps: list[dict[int, int]]
    """`steps[symbol][q]`: the states that follow q."""
    final: int

    def step(self, states: int, symbol: int) -> int:
        """Return the states that follow any of `states`."""
        rows, out = self.steps[symbol], 0
        while states:
            lowest = states & -states
            out |= rows.get(lowest.bit_length() - 1, 0)
            states ^= lowest
        return out

    def accepting_all(self) -> int:
        """Return the states from which every string is accepted: final ones that every symbol leads to such a state."""
        found = self.final
        while True:
            lost = [q for q in _bits(found) if not all(row.get(q, 0) & found for row in self.steps)]
            if not lost:
                return found
            found &= ~sum(1 << q for q in lost)


@dataclass
class _Deterministic:
    """Hold an automaton that starts in state 0 and rejects a string if an arc is missing."""

    steps: list[dict[int, int]]
    """`steps[q][symbol]`: the state that follows q."""
    final: list[bool]


def reduced(a: M, most: int | None = None) -> M:
    """Return the minimal deterministic machine of `a` (trimmed, without ε-arcs).

    Following more than `most` sets of states (default: `MOST_SETS`) is an error. The result is trimmed, so a string is
    rejected if an arc is missing. States are numbered in the order of the first string that reaches each (shortest
    first, then in alphabet order), so machines over one alphabet that accept the same strings give the same result.
    Hopcroft's algorithm merges states.
    """
    machine = _determinised(_read(a, a.symbol_index), a.num_states, most)
    blocks = sorted(_blocks(machine), key=min)
    place = {q: i for i, block in enumerate(blocks) for q in block}
    arcs = [
        (i, symbol, place[target])
        for i, block in enumerate(blocks)
        for symbol, target in sorted(machine.steps[min(block)].items())
    ]
    ring = a.semiring
    initial, final = ring.zeros(max(len(blocks), 1)), ring.zeros(max(len(blocks), 1))
    for i, block in enumerate(blocks):
        initial[i] = ring.one if i == 0 else ring.zero
        final[i] = ring.one if machine.final[min(block)] else ring.zero
    source, symbol, target = torch.tensor(arcs, dtype=torch.int64).reshape(len(arcs), 3).T.contiguous()
    return a.replace(
        states=range(initial.numel()),
        source=source,
        symbol=symbol,
        target=target,
        weight=ring.ones(len(arcs)),
        initial=initial,
        final=final,
    )


def first_difference(a: Automaton, b: Automaton) -> tuple[Symbol, ...] | None:
    """Return the first string that one of two machines accepts and the other does not, or None.

    The sets of states that a string reaches in both machines are followed side by side, shortest strings first and
    then in alphabet order. Pairs of sets that earlier pairs make equivalent are skipped (Hopcroft and Karp): any
    difference behind them also appears behind an earlier pair.
    """
    index = merged_alphabet(a, b)
    alphabet, one, two = list(index), _read(a, index), _read(b, index)
    parent: dict[tuple[int, int], tuple[int, int]] = {}

    def root(node: tuple[int, int]) -> tuple[int, int]:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    pairs = [(one.initial, two.initial)]
    reached_by = [(-1, -1)]  # the number of the pair before it, and a symbol
    for number, (left, right) in enumerate(pairs):  # which grows
        if bool(left & one.final) != bool(right & two.final):
            return tuple(alphabet[s] for s in _string_to(number, reached_by))
        above, below = root((0, left)), root((1, right))
        if above == below:
            continue
        parent[above] = below
        _bounded(len(parent), "equivalence", max(a.num_states, b.num_states))
        for s in range(len(alphabet)):
            pairs.append((one.step(left, s), two.step(right, s)))
            reached_by.append((number, s))
    return None


def _string_to(number: int, reached_by: list[tuple[int, int]]) -> list[int]:
    """Return the symbols that lead from the first pair to pair `number`."""
    string: list[int] = []
    while number:
        number, symbol = reached_by[number]
        string.append(symbol)
    return string[::-1]


def _determinised(a: _Nondeterministic, states: int, most: int | None) -> _Deterministic:
    """Return the deterministic automaton of all sets of states that some string reaches, without the empty set.

    One set stands for all that accept every string: a machine that looks for a part of a string reaches many of them.
    """
    every = a.accepting_all()
    sets = [a.initial] if a.initial and a.final else []
    index = {a.initial: 0}
    steps: list[dict[int, int]] = []
    for current in sets:  # which grows
        following: dict[int, int] = {}
        for symbol in range(len(a.steps)):
            target = a.step(current, symbol)
            if target:
                target = every if target & every else target
                if target not in index:
                    index[target] = len(sets)
                    sets.append(target)
                    _bounded(len(sets), "minimisation", states, most)
                following[symbol] = index[target]
        steps.append(following)
    return _Deterministic(steps, [bool(s & a.final) for s in sets])


def _bits(states: int) -> list[int]:
    """Return the states of a set."""
    return [q for q in range(states.bit_length()) if states >> q & 1]


def _bounded(sets: int, what: str, states: int, most: int | None = None) -> None:
    most = MOST_SETS if most is None else most
    if sets > most:
        raise AutomatonError(
            f"{what} over boolean follows at most {most:,} sets of states; this machine of {states} states needs "
            "more. Make it more deterministic: fewer arcs of one symbol that leave one state, or fewer states."
        )


def _blocks(machine: _Deterministic) -> list[set[int]]:
    """Return the classes of states with the same future. Every state must lie on a path to a final state."""
    before: dict[int, dict[int, list[int]]] = {}
    for source, row in enumerate(machine.steps):
        for symbol, target in row.items():
            before.setdefault(target, {}).setdefault(symbol, []).append(source)
    ends = {q for q, final in enumerate(machine.final) if final}
    blocks = [block for block in (ends, set(range(len(machine.final))) - ends) if block]
    block_of = {q: i for i, block in enumerate(blocks) for q in block}
    waiting = set(range(len(blocks)))
    while waiting:
        into: dict[int, set[int]] = {}
        for q in blocks[waiting.pop()]:
            for symbol, sources in before.get(q, {}).items():
                into.setdefault(symbol, set()).update(sources)
        for sources in into.values():
            touched: dict[int, set[int]] = {}
            for q in sources:
                touched.setdefault(block_of[q], set()).add(q)
            for i, inside in touched.items():
                if len(inside) == len(blocks[i]):
                    continue
                # If the block is waiting, both halves now wait; if it is done, the smaller half is enough.
                small = inside if 2 * len(inside) <= len(blocks[i]) else blocks[i] - inside
                blocks[i] -= small
                blocks.append(small)
                for q in small:
                    block_of[q] = len(blocks) - 1
                waiting.add(len(blocks) - 1)
    return blocks


def _read(a: Automaton, symbol_index: dict[Symbol, int]) -> _Nondeterministic:
    """Return a machine without ε-arcs as sets of states, with its symbols numbered by `symbol_index`."""
    steps: list[dict[int, int]] = [{} for _ in symbol_index]
    place = [symbol_index[s] for s in a.alphabet]
    for source, symbol, target, weight in indexed_arcs(a):
        if weight:
            row = steps[place[symbol]]
            row[source] = row.get(source, 0) | 1 << target
    ends = [
        sum(1 << q for q, w in enumerate(weights.tolist()) if w)
        for weights in (a.initial_weight, a.final_weight)
    ]
    return _Nondeterministic(ends[0], steps, ends[1])
