"""Regular expressions become minimal deterministic machines. Python's `re` says which strings match."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrnn import WFSA, AutomatonError, from_regex
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import OTHER
from rrnn.wfsa.regex import pattern_symbols

STRINGS = ["".join(s) for length in range(5) for s in product("abc", repeat=length)]


def accepted(machine: WFSA, strings: list[Any]) -> list[bool]:
    return [bool(score) for score in machine.score(strings).tolist()]


def patterns() -> st.SearchStrategy[str]:
    """Patterns in the syntax that this project and `re` share."""
    atoms = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "[a-b]", "[^b-c]", "()"])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda parts: f"({parts[0]}|{parts[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,1}"])).map(
                lambda parts: f"({parts[0]}){parts[1]}"
            ),
        ),
        max_leaves=5,
    )


@given(patterns())
def test_whole_strings(pattern: str) -> None:
    machine = from_regex(pattern, "abc", tokens="characters")
    assert accepted(machine, STRINGS) == [bool(re.fullmatch(pattern, s)) for s in STRINGS]
    starts = [(arc.source, arc.symbol) for arc in machine.arcs]
    assert len(machine.initial) == 1 and len(set(starts)) == len(starts)  # deterministic
    assert machine.minimise().num_states == machine.num_states


@given(patterns(), st.sampled_from(["{}", "^{}", "{}$", "^{}$", "^{}|c$", "a|^{}"]))
def test_parts_of_strings(pattern: str, anchors: str) -> None:
    pattern = anchors.format(pattern)
    machine = from_regex(pattern, "abc", tokens="characters", match="contains")
    assert accepted(machine, STRINGS) == [bool(re.search(pattern, s)) for s in STRINGS]


def test_words() -> None:
    machine = from_regex("(not|never) .* good", match="contains")
    assert machine.alphabet == ("not", "never", "good", OTHER) and machine.num_states == 3
    texts = ["not good", "not at all good", "good not", "never good again", "good"]
    strings: list[Any] = [
        tuple(w if w in machine.symbol_index else OTHER for w in text.split()) for text in texts
    ]
    assert accepted(machine, strings) == [True, True, False, True, False]
    assert not accepted(from_regex("(not|never) .* good"), [("never", "good", OTHER)])[0]


WORDS = ["a", "b", "not", "good", "great", "movie", "x", "u.s.", ".", "!", "(", "*", "\\", "a b", "\n", OTHER]
NEITHER = [(word,) for word in WORDS if word not in ("good", "great")]


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("a  b", [("a", "b")]),
        ("not.*good", [("not", "good"), ("not", "x", "good")]),
        ("good *", [(), ("good",), ("good", "good")]),
        ("[good great] movie", [("good", "movie"), ("great", "movie")]),
        ("[^good great]", NEITHER),
        ("[^ good great ]", NEITHER),
        (r"u\.s\. [. ! (]", [("u.s.", "."), ("u.s.", "("), ("u.s.", "!")]),
        (r"\* \\ a\ b \n", [("*", "\\", "a b", "\n")]),
        ("", [()]),
        ("a|", [(), ("a",)]),
        ("^a$|^b", [("a",), ("b",)]),
    ],
)
def test_syntax_of_words(pattern: str, matching: list[Any]) -> None:
    machine = from_regex(pattern, WORDS)
    strings: list[Any] = [s for length in range(3) for s in product(WORDS, repeat=length)] + matching
    found = {s for s, yes in zip(strings, accepted(machine, strings), strict=True) if yes}
    infinite = "*" in pattern.replace("\\*", "")
    assert found >= set(matching) if infinite else found == set(matching)


def test_characters_take_blanks_and_ranges() -> None:
    machine = from_regex("[a-c-] [^a]", tokens="characters")
    assert set(machine.alphabet) == {"a", "b", "c", "-", " ", OTHER}
    assert accepted(machine, [tuple("- b"), tuple("a a"), ("b", " ", OTHER)]) == [True, False, True]
    digits = from_regex(
        "[0-9]+", ["1", "7", "x", 5], tokens="characters"
    )  # a range means symbols of the alphabet
    assert accepted(digits, [("1", "7"), ("x",), (5,)]) == [True, False, False]


@pytest.mark.parametrize("name", SEMIRINGS)
def test_every_semiring_scores_one_or_zero(name: str) -> None:
    machine = from_regex("(a|a b|a b b*) b*", ["a", "b"], semiring=name)  # ambiguous before determinisation
    ring = machine.semiring
    assert ring.numbers(machine.score(("a", "b", "b"))) == ring.one
    assert ring.numbers(machine.score(("b",))) == ring.zero


def test_large_alphabets_cost_little() -> None:
    """Words that are not mentioned behave alike, so determinisation sees one of them."""
    words = [f"w{i}" for i in range(20_000)]
    machine = from_regex("w1 .* w2 .* (w3|w4)", words, match="contains")
    assert machine.num_states == 4 and machine.num_arcs == 4 * len(words)
    assert accepted(machine, [("w9", "w1", "w7", "w2", "w4", "w9")]) == [True]


def test_what_follows_a_match_needs_no_states() -> None:
    """After a match every string is accepted, so determinisation follows no more sets of states."""
    pattern = "|".join(f"a{i} b{i}" for i in range(40))
    assert from_regex(pattern, match="contains", max_states=43).num_states == 42


def test_symbols_of_a_pattern() -> None:
    assert pattern_symbols("(not|never) .* [^ good not] bad") == ["not", "never", "good", "bad"]


@pytest.mark.parametrize(
    ("pattern", "place", "message"),
    [
        ("a (b", 3, r"this '\(' is never closed"),
        ("a)", 2, r"this '\)' closes no group"),
        ("*a", 1, r"nothing before this '\*' to repeat"),
        ("(|+)", 3, r"nothing before this '\+' to repeat"),
        ("a** b", 3, r"'\*' cannot repeat a repetition"),
        ("a{3", 2, r"a count is written \{3\}, \{2,\} or \{2,5\}"),
        ("a{x}", 2, "a count is written"),
        ("a{5,2}", 2, "must not be less than the first; got 5,2"),
        ("a{1001}", 2, "a count is at most 1000"),
        ("a{" + "9" * 9999 + "}", 2, "a count is at most 1000"),
        ("x [a", 3, r"this '\[' is never closed"),
        ("[]", 1, "a class lists at least one symbol"),
        ("a]", 2, r"this '\]' has no '\[' before it"),
        ("a\\", 2, "here the pattern ends"),
        (r"a \d", 3, r"\\d has no meaning"),
        ("a ^b", 3, r"'\^' may stand only at the beginning"),
        ("(a$)", 3, r"'\$' may stand only at the end"),
        ("(" * 101, 101, "nested at most 100 deep"),
        ("a good", 3, "the alphabet must have every symbol of the pattern; 'good' is not one of 'a', 'god'"),
        ("a [^good]", 5, "Did you mean 'god'"),
    ],
    ids=range(20),
)
def test_mistakes_show_their_place(pattern: str, place: int, message: str) -> None:
    with pytest.raises(AutomatonError, match=message) as caught:
        from_regex(pattern, ["a", "god"])
    text = str(caught.value)
    assert f"at character {place}:" in text and len(text) < 500
    shown, caret = text.split("\n")[1:]
    assert shown[caret.index("^")] == pattern[place - 1]


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        (".* a .{20}", {}, "at most 1,000 states, and this one has more. Raise max_states="),
        ("a b c", {"max_states": 3}, "at most 3 states"),
        ("((a{999}){999}){999}", {}, "at most 10,000 symbols, with counted parts written out"),
        ("(a b?|c d?){400}", {"max_states": 5}, "at most 5 states"),
        ("(" + "|".join(f"a{i} b" for i in range(500)) + ")*", {}, "at most 200,000 pairs of symbols"),
        (
            "[^a]",
            {"alphabet": ["a"]},
            "a pattern must match some string over its alphabet, 'a'; '\\[\\^a\\]' matches none",
        ),
        ("[!-\uffff]", {"tokens": "characters"}, "a range has at most 1024 characters"),
        ("[b-a]", {"tokens": "characters"}, "a range goes up; 'b' comes after 'a'"),
        ("a", {"tokens": "letters"}, "tokens must be 'words' or 'characters'; got 'letters'"),
        ("a", {"match": "search"}, "match must be 'whole' or 'contains'; got 'search'"),
        ("a", {"max_states": 0}, "max_states must be a whole number above 0; got 0"),
        (3, {}, "a regular expression is a str; got int"),
        ("a" * 100_001, {}, "at most 100,000 characters; this one has 100,001"),
        ("a", {"alphabet": []}, "an alphabet needs at least one symbol"),
    ],
    ids=range(14),
)
def test_other_mistakes(pattern: Any, options: Any, message: str) -> None:
    with pytest.raises(AutomatonError, match=message):
        from_regex(pattern, **options)
