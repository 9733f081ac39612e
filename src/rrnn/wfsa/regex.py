"""Turn regular expressions into machines: `from_regex("(not|never) .* good", match="contains")`.

A pattern (see `regex_syntax`) becomes the automaton of its positions (Glushkov): one state for each symbol written in
it, and one before the first. It is made deterministic and minimal over the boolean semiring, so that every accepted
string has exactly one path. An ambiguous automaton would count paths over the reals; this one scores 1̄ or 0̄ over any
semiring.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from rrnn.errors import AutomatonError, nearest
from rrnn.semirings import Semiring
from rrnn.wfsa import checks
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.minimise import determinise
from rrnn.wfsa.regex_syntax import (
    Alternative,
    Choice,
    Concatenation,
    Node,
    Repeat,
    Symbols,
    Tokens,
    choice_of,
    fail,
    parse,
)
from rrnn.wfsa.symbols import preview

OTHER = "<other>"
"""The symbol that stands for all symbols a pattern does not mention, in the alphabet of a machine made without one."""

MAX_POSITIONS, MAX_PAIRS = 10_000, 200_000
_MAX_RANGE = 1024


def from_regex(
    pattern: str,
    alphabet: Iterable[Hashable] | None = None,
    *,
    tokens: Tokens = "words",
    match: Literal["whole", "contains"] = "whole",
    semiring: str | Semiring = "boolean",
    max_states: int = 1000,
) -> WFSA:
    """Return the minimal deterministic machine that accepts the strings which a regular expression matches.

    `rrnn.wfsa.regex_syntax` defines the syntax. Symbols are words, separated by blanks, or characters: `tokens`.
    `match="whole"` asks for strings that the pattern matches from beginning to end, `match="contains"` for those with a
    matching part, unless `^` or `$` ties it to an end. `alphabet` must have all symbols of the pattern; `.` and `[^…]`
    stand for its other symbols, too. Without an alphabet, the machine's is that of the pattern's own symbols and
    `"<other>"` (`rrnn.wfsa.OTHER`), which stands for all others.

    A string scores the semiring's one if it matches, and zero otherwise. The machine is trimmed: a string for which an
    arc is missing is rejected. Determinisation stops with an error at more than `max_states` states.
    """
    alternatives = parse(pattern, tokens)
    if match not in ("whole", "contains"):
        raise AutomatonError(f"match must be 'whole' or 'contains'; got {match!r}")
    if not isinstance(max_states, int) or isinstance(max_states, bool) or max_states < 1:
        raise AutomatonError(f"max_states must be a whole number above 0; got {max_states!r}")
    symbols = _Alphabet(pattern, alternatives, alphabet)
    positions = _Positions(pattern, symbols)
    positions.build(
        _searched(alternatives) if match == "contains" else choice_of([a.node for a in alternatives])
    )
    machine = positions.machine().trim()
    try:
        machine = determinise.reduced(machine, max_states)
    except AutomatonError:
        raise AutomatonError(
            f"the deterministic machine of the pattern may have at most {max_states:,} states, and this one has more. "
            f"Raise max_states=, or write a simpler pattern: a count after a part that may begin anywhere, as in "
            f"`.* a .{{20}}`, multiplies states."
        ) from None
    if not machine.final:
        raise AutomatonError(
            f"a pattern must match some string over its alphabet, {preview(symbols.all)}; {pattern!r} matches none, "
            "because it asks for a symbol that is none of them"
        )
    return symbols.spread(machine).with_semiring(semiring)


def pattern_symbols(pattern: str, tokens: Tokens = "words") -> list[str]:
    """Return the symbols that a pattern mentions, in order, without repetition."""
    return _Alphabet(pattern, parse(pattern, tokens), None).mentioned


def _searched(alternatives: Sequence[Alternative]) -> Node:
    """Return the alternatives between any symbols, except at the ends of the string to which they are tied."""
    anything = Repeat(Symbols((), True, ()), 0, None)
    tied: dict[tuple[bool, bool], list[Node]] = {}
    for alternative in alternatives:
        tied.setdefault((alternative.at_start, alternative.at_end), []).append(alternative.node)
    return choice_of(
        [
            Concatenation((*([] if start else [anything]), choice_of(nodes), *([] if end else [anything])))
            for (start, end), nodes in tied.items()
        ]
    )


class _Alphabet:
    """The alphabet of a pattern. Symbols that it does not mention behave alike, so one symbol stands for all of them
    until the machine is finished: `OTHER`."""

    def __init__(
        self, pattern: str, alternatives: Sequence[Alternative], given: Iterable[Hashable] | None
    ) -> None:
        if isinstance(given, str):
            given = tuple(given)
        self.pattern = pattern
        self.given = None if given is None else checks.alphabet(given)
        known = None if self.given is None else set(self.given)
        mentioned: dict[str, None] = {}
        for symbols in (s for a in alternatives for s in _leaves(a.node)):
            for symbol, place in zip(symbols.listed, symbols.places, strict=True):
                if known is not None and symbol not in known:
                    fail(pattern, place, _missing(symbol, self.given or ()))
            mentioned |= dict.fromkeys((*symbols.listed, *self.between(symbols.ranges)))
        self.mentioned = list(mentioned)
        if self.given is None:
            self.others: list[Hashable] = [OTHER] if OTHER not in mentioned else []
        else:
            self.others = [symbol for symbol in self.given if symbol not in mentioned]
        self.all: list[Hashable] = [*self.mentioned, *self.others] if self.given is None else list(self.given)
        # Any of the others can stand for all of them; the pattern mentions none.
        self.used: list[Hashable] = [*self.mentioned, *self.others[:1]]

    def between(self, ranges: Sequence[tuple[str, str]]) -> list[str]:
        """Return the characters in ranges: those of the alphabet, or all of them if there is none yet."""
        found: list[str] = []
        for low, high in ranges:
            if self.given is not None:
                found += [s for s in self.given if isinstance(s, str) and len(s) == 1 and low <= s <= high]
            elif ord(high) - ord(low) >= _MAX_RANGE:
                raise AutomatonError(
                    f"without an alphabet, a range has at most {_MAX_RANGE} characters; {low}-{high} has "
                    f"{ord(high) - ord(low) + 1:,}. Pass alphabet=, whose characters it then means."
                )
            else:
                found += [chr(code) for code in range(ord(low), ord(high) + 1)]
        return found

    def meant(self, symbols: Symbols) -> list[Hashable]:
        """Return the symbols, of those in use, that one symbol of a pattern stands for."""
        listed = {*symbols.listed, *self.between(symbols.ranges)}
        return [symbol for symbol in self.used if (symbol in listed) != symbols.negated]

    def spread(self, machine: WFSA) -> WFSA:
        """Return the machine over the whole alphabet: each arc of the symbol that stands for the others becomes one
        arc for each of them."""
        index = {symbol: i for i, symbol in enumerate(self.all)}
        means = [[index[symbol]] for symbol in self.mentioned]
        means += [[index[symbol] for symbol in self.others]] if self.others else []
        counts = torch.tensor([len(each) for each in means])[machine.arc_symbol]
        return machine.replace(
            alphabet=self.all,
            source=machine.arc_source.repeat_interleave(counts),
            symbol=torch.tensor(
                [i for s in machine.arc_symbol.tolist() for i in means[s]], dtype=torch.int64
            ),
            target=machine.arc_target.repeat_interleave(counts),
            weight=machine.arc_weight.repeat_interleave(counts),
        )


def _missing(symbol: str, alphabet: Sequence[Hashable]) -> str:
    return (
        f"the alphabet must have every symbol of the pattern; {symbol!r} is not one of {preview(alphabet)}."
        f"{nearest(symbol, (s for s in alphabet if isinstance(s, str)))} Add it to alphabet=, or remove it here."
    )


def _leaves(node: Node) -> Iterable[Symbols]:
    if isinstance(node, Symbols):
        yield node
    elif isinstance(node, Repeat):
        yield from _leaves(node.part)
    else:
        for part in node.parts:
            yield from _leaves(part)


# ---- the automaton of positions ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fragment:
    """A part of a pattern: the positions at which its strings begin and end, and whether it matches no symbols."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    empty: bool = True

    def then(self, other: _Fragment) -> _Fragment:
        return _Fragment(
            self.first | other.first if self.empty else self.first,
            other.last | self.last if other.empty else other.last,
            self.empty and other.empty,
        )


@dataclass
class _Positions:
    """The symbols written in a pattern, numbered from 1; a count writes its part several times."""

    pattern: str
    alphabet: _Alphabet
    symbols: list[list[Hashable]] = field(default_factory=list)
    follow: list[set[int]] = field(default_factory=lambda: [set()])
    whole: _Fragment = field(default_factory=_Fragment)
    pairs: int = 0
    """How many pairs of positions were joined."""

    def build(self, node: Node) -> None:
        """Number the positions of a pattern, and find which may follow which."""
        self.whole = self._of(node)
        self.follow[0] = set(self.whole.first)

    def machine(self) -> WFSA:
        """Return the nondeterministic machine: an arc into a position reads one of its symbols."""
        arcs = [
            (p, s, q, True) for p, after in enumerate(self.follow) for q in after for s in self.symbols[q - 1]
        ]
        final = {q: True for q in self.whole.last} | ({0: True} if self.whole.empty else {})
        return WFSA(
            "boolean",
            alphabet=self.alphabet.used,
            states=range(len(self.follow)),
            arcs=arcs,
            initial={0: True},
            final=final,
            allow_empty=True,
        )

    def _of(self, node: Node) -> _Fragment:
        if isinstance(node, Symbols):
            return self._position(node)
        if isinstance(node, Repeat):
            return self._repeated(node)
        if isinstance(node, Choice):
            parts = [self._of(part) for part in node.parts]
            return _Fragment(
                frozenset[int]().union(*(p.first for p in parts)),
                frozenset[int]().union(*(p.last for p in parts)),
                any(p.empty for p in parts),
            )
        whole = _Fragment()
        for part in node.parts:
            whole = self._then(whole, self._of(part))
        return whole

    def _position(self, node: Symbols) -> _Fragment:
        self.symbols.append(self.alphabet.meant(node))
        self.follow.append(set())
        place = len(self.symbols)
        if place > MAX_POSITIONS:
            raise AutomatonError(
                f"a pattern may have at most {MAX_POSITIONS:,} symbols, with counted parts written out; this one has "
                "more. Use smaller counts."
            )
        return _Fragment(frozenset({place}), frozenset({place}), False)

    def _repeated(self, node: Repeat) -> _Fragment:
        """Write the part `low` times; then as often as `high` allows, each time if wanted, or in a loop."""
        whole = _Fragment()
        for number in range(node.low if node.high is None else node.high):
            part = self._of(node.part)
            if node.high is None and number == node.low - 1:
                self._join(part, part)
            if number >= node.low:
                part = _Fragment(part.first, part.last, True)
            whole = self._then(whole, part)
        if node.high is None and not node.low:
            part = self._of(node.part)
            self._join(part, part)
            whole = _Fragment(part.first, part.last, True)
        return whole

    def _then(self, before: _Fragment, after: _Fragment) -> _Fragment:
        self._join(before, after)
        return before.then(after)

    def _join(self, before: _Fragment, after: _Fragment) -> None:
        self.pairs += len(before.last) * len(after.first)
        if self.pairs > MAX_PAIRS:
            raise AutomatonError(
                f"at most {MAX_PAIRS:,} pairs of symbols of a pattern may follow each other, with counted parts "
                "written out; in this one more do. List single symbols in a class, [a b c], not in alternatives of "
                "several, or use smaller counts."
            )
        for place in before.last:
            self.follow[place] |= after.first
