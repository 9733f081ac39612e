"""Read regular expressions over words or characters.

A pattern is made of symbols and operators, from the weakest to the strongest:

| written | matches |
|---|---|
| `a|b` | what a or b matches |
| `a b` | what a matches, then what b matches |
| `a*`, `a+`, `a?` | any number of a's, at least one, at most one |
| `a{3}`, `a{2,}`, `a{2,5}` | so many a's |
| `( … )` | what the pattern inside matches; `()` matches the empty string |
| `.` | any one symbol of the alphabet |
| `[ … ]`, `[^ … ]` | one of the symbols listed, one that is not listed |
| `^`, `$` | the beginning and the end of the string: at the ends of the pattern, or of an alternative outside groups |

**Words.** A symbol is a word: characters other than blanks and `\\ ( ) [ ] { } | * + ? . ^ $`. Blanks separate words
and mean nothing else. In `[…]`, words are separated by blanks, and only `]` and `\\` are special (and `^` at the
beginning).

**Characters.** A symbol is a character, and a blank is one, too. In `[…]`, `a-z` is a range by code point; `-` stands
for itself at either end.

A backslash before a character that is neither a letter nor a digit takes away its special meaning, in words too: `\\.`
is the word ".", and `u\\.s\\.` the word "u.s.". `\\n`, `\\t` and `\\r` are newline, tab and carriage return.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from rrnn.errors import AutomatonError

Tokens = Literal["words", "characters"]
SPECIAL = frozenset("\\()[]{}|*+?.^$")
CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}
MAX_PATTERN, MAX_DEPTH, MAX_COUNT = 100_000, 100, 1000
_SHOWN = 60


@dataclass(frozen=True)
class Symbols:
    """One symbol: one of `listed`, or with `negated` any other one. `places` says where each stands in the pattern.

    `ranges` are pairs of characters, for all those between them.
    """

    listed: tuple[str, ...]
    negated: bool
    places: tuple[int, ...]
    ranges: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Concatenation:
    """The parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of the parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """From `low` to `high` copies of a part; any number from `low` on if `high` is None."""

    part: Node
    low: int
    high: int | None


Node = Symbols | Concatenation | Choice | Repeat


@dataclass(frozen=True)
class Alternative:
    """An alternative of the whole pattern, and whether it is tied to the beginning and to the end of the string."""

    node: Node
    at_start: bool
    at_end: bool


def choice_of(parts: Sequence[Node]) -> Node:
    """Return one of the parts. If all of them are lists of symbols, it is one list, which makes smaller automata."""
    if len(parts) == 1:
        return parts[0]
    lists = [part for part in parts if isinstance(part, Symbols) and not part.negated]
    if len(lists) < len(parts):
        return Choice(tuple(parts))
    return Symbols(
        tuple(symbol for part in lists for symbol in part.listed),
        False,
        tuple(place for part in lists for place in part.places),
        tuple(ends for part in lists for ends in part.ranges),
    )


def parse(pattern: str, tokens: Tokens) -> list[Alternative]:
    """Read a pattern, or raise an `AutomatonError` that shows the position of the mistake."""
    if not isinstance(pattern, str):
        raise AutomatonError(f"a regular expression is a str; got {type(pattern).__name__}")
    if len(pattern) > MAX_PATTERN:
        raise AutomatonError(
            f"a regular expression has at most {MAX_PATTERN:,} characters; this one has {len(pattern):,}"
        )
    if tokens not in ("words", "characters"):
        raise AutomatonError(f"tokens must be 'words' or 'characters'; got {tokens!r}")
    return _Parser(pattern, tokens).alternatives()


def fail(pattern: str, place: int, message: str) -> NoReturn:
    """Raise an error that shows where in the pattern the mistake is."""
    start = max(0, place - _SHOWN // 2)
    part = pattern[start : start + _SHOWN].translate({9: " ", 10: " ", 13: " "})
    lead = "…" if start else ""
    raise AutomatonError(
        f"in the regular expression, at character {place + 1}: {message}\n"
        f"  {lead}{part}\n  {' ' * (len(lead) + place - start)}^"
    )


class _Parser:
    """Read a pattern from left to right: one method for each level of the grammar."""

    def __init__(self, pattern: str, tokens: Tokens) -> None:
        self.pattern, self.words, self.at, self.depth = pattern, tokens == "words", 0, 0

    def fail(self, message: str, place: int | None = None) -> NoReturn:
        fail(self.pattern, self.at if place is None else place, message)

    def peek(self) -> str:
        """Return the next character, or "" at the end. Between words, blanks are skipped."""
        while self.words and self.pattern[self.at : self.at + 1].isspace():
            self.at += 1
        return self.pattern[self.at : self.at + 1]

    def take(self, character: str) -> bool:
        """Skip the next character if it is this one."""
        found = self.peek() == character
        self.at += found
        return found

    def alternatives(self) -> list[Alternative]:
        """Read the whole pattern."""
        found = [self._anchored()]
        while self.take("|"):
            found.append(self._anchored())
        if self.peek():
            self.fail("this ')' closes no group. Remove it, or write \\) for the symbol.")
        return found

    def _anchored(self) -> Alternative:
        at_start = self.take("^")
        node = self._sequence()
        return Alternative(node, at_start, self.take("$"))

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self.take("|"):
            parts.append(self._sequence())
        return choice_of(parts)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            if self._ends_with_dollar():
                break
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _ends_with_dollar(self) -> bool:
        """Return whether a `$` comes next that stands where one may: at the end of an alternative of the pattern."""
        if self.depth or self.peek() != "$":
            return False
        place, self.at = self.at, self.at + 1
        follows, self.at = self.peek(), place
        return follows in ("", "|")

    def _repeated(self) -> Node:
        node = self._atom()
        if not self._at_operator():
            return node
        place, operator = self.at, self.peek()
        self.at += 1
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(operator) or self._counts(place)
        if self._at_operator():
            self.fail(f"{self.peek()!r} cannot repeat a repetition; put that in a group, as (a*)+.")
        return Repeat(node, low, high)

    def _at_operator(self) -> bool:
        return self.peek() in ("*", "+", "?", "{")

    def _counts(self, place: int) -> tuple[int, int | None]:
        """Read what follows `{`: `3}`, `2,}` or `2,5}`."""
        end = self.pattern.find("}", self.at)
        text = self.pattern[self.at : end] if end >= 0 else ""
        low, comma, high = (part.strip() for part in text.partition(","))
        if not low.isascii() or not low.isdecimal() or (high and not (high.isascii() and high.isdecimal())):
            self.fail("a count is written {3}, {2,} or {2,5}; write \\{ for the symbol.", place)
        if max(len(low), len(high)) > len(str(MAX_COUNT)):
            self.fail(f"a count is at most {MAX_COUNT}", place)
        self.at = end + 1
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if max(least, most or 0) > MAX_COUNT:
            self.fail(f"a count is at most {MAX_COUNT}", place)
        if most is not None and most < least:
            self.fail(f"the second number of a count must not be less than the first; got {text}", place)
        return least, most

    def _atom(self) -> Node:
        character = self.peek()
        place = self.at  # after the blanks
        if character == "(":
            return self._group(place)
        if character == "[":
            return self._class(place)
        if character == ".":
            self.at += 1
            return Symbols((), True, ())
        if character in ("*", "+", "?", "{"):
            self.fail(
                f"there is nothing before this {character!r} to repeat; write \\{character} for the symbol."
            )
        if character == "^" or character == "$":
            side = "beginning" if character == "^" else "end"
            self.fail(
                f"{character!r} may stand only at the {side} of the pattern or of an alternative outside groups; "
                f"write \\{character} for the symbol."
            )
        if character in ("]", "}"):
            opening = "[" if character == "]" else "{"
            self.fail(f"this {character!r} has no {opening!r} before it; write \\{character} for the symbol.")
        return Symbols((self._symbol(SPECIAL),), False, (place,))

    def _group(self, place: int) -> Node:
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"groups may be nested at most {MAX_DEPTH} deep", place)
        node = self._choice()
        if not self.take(")"):
            self.fail("this '(' is never closed. Add ')', or write \\( for the symbol.", place)
        self.depth -= 1
        return node

    def _class(self, place: int) -> Symbols:
        self.at += 1
        negated = self.pattern[self.at : self.at + 1] == "^"
        self.at += negated
        listed: list[str] = []
        places: list[int] = []
        ranges: list[tuple[str, str]] = []
        while (character := self.peek()) != "]":
            if not character:
                self.fail("this '[' is never closed. Add ']', or write \\[ for the symbol.", place)
            here = self.at
            symbol = self._symbol(frozenset("\\]"))
            if (
                not self.words
                and self.pattern[self.at : self.at + 1] == "-"
                and self._after_next() not in ("]", "")
            ):
                self.at += 1
                end = self._symbol(frozenset("\\]"))
                if end < symbol:
                    self.fail(f"a range goes up; {symbol!r} comes after {end!r}", here)
                ranges.append((symbol, end))
            else:
                listed.append(symbol)
                places.append(here)
        self.at += 1
        if not listed and not ranges:
            self.fail(
                "a class lists at least one symbol; write . for any symbol, or \\[ for the symbol.", place
            )
        return Symbols(tuple(listed), negated, tuple(places), tuple(ranges))

    def _after_next(self) -> str:
        """Return the character after the next one."""
        return self.pattern[self.at + 1 : self.at + 2]

    def _symbol(self, special: frozenset[str]) -> str:
        """Read a word, or one character."""
        letters = self._letters(special)
        return "".join(letters) if self.words else next(letters)

    def _letters(self, special: frozenset[str]) -> Iterator[str]:
        while (letter := self.pattern[self.at : self.at + 1]) and not (self.words and letter.isspace()):
            if letter == "\\":
                yield self._escaped()
            elif letter in special:
                return
            else:
                self.at += 1
                yield letter

    def _escaped(self) -> str:
        place, letter = self.at, self.pattern[self.at + 1 : self.at + 2]
        self.at += 2
        if not letter:
            self.fail(
                "a backslash stands before the character that it escapes; here the pattern ends.", place
            )
        if letter.isalnum() and letter not in CONTROLS:
            self.fail(f"\\{letter} has no meaning; letters other than n, t and r are not escaped.", place)
        return CONTROLS.get(letter, letter)
