"""JSON round-trips exactly, and says what is wrong with everything else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrnn.errors import FormatError, RRNNError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa.io import from_json, load, save, to_json
from rrnn.wfsa.machine import EPSILON, WFSA

labels = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


def types(label: Any) -> Any:
    """A label with its types, as 1 == 1.0 == True."""
    return (type(label), [types(part) for part in label] if isinstance(label, tuple) else repr(label))


@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("seed", range(5))
def test_every_semiring_comes_back_bit_by_bit(
    machines: Any, tmp_path: Path, semiring: str, seed: int
) -> None:
    machine = machines(semiring, seed)
    save(machine, tmp_path / "m.json")
    assert load(tmp_path / "m.json", allow_empty=True).same_as(machine)


@pytest.mark.parametrize("semiring", [name for name, ring in SEMIRINGS.items() if ring.components])
def test_several_components_are_lists(machines: Any, semiring: str) -> None:
    machine = machines(semiring, 1)
    text = json.loads(to_json(machine))
    assert text["version"] == 2
    assert all(
        isinstance(row[-1], list) and len(row[-1]) == 2
        for key in ("arcs", "initial", "final")
        for row in text[key]
    )
    for change, message in (
        ({"version": 1}, "need version 2 of the format"),
        (
            {"initial": [[0, 1.0]]},
            r"initial\[0\]: a weight over .* must be a list of 2 numbers \(.*\); got 1.0",
        ),
        ({"initial": [[0, [1.0, 2.0, 3.0]]]}, "must be a list of 2 numbers"),
        ({"initial": [[0, [1.0, True]]]}, "a weight must be a number"),
        ({"initial": [[0, [1.0, None]]]}, "a weight must be a number"),
        ({"initial": [[0, ["Infinity", 1.0]]]}, "outside the"),
        ({"arcs": [[0, 0, 0, {"re": 1.0}]]}, "must be a list of 2 numbers"),
    ):
        with pytest.raises(FormatError, match=message):
            from_json(json.dumps(text | change))
    with pytest.raises(FormatError, match="a weight must be a number"):
        from_json(to_json(machines("real", 1)).replace('"initial": [', '"initial": [[0, [1.0, 0.0]],'))


@given(
    st.tuples(
        st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False)
    )
)
def test_components_come_back(weight: tuple[float, float]) -> None:
    for ring in ("complex", "expectation"):
        machine = WFSA(ring, alphabet="a", arcs=[(0, "a", 0, weight)], initial={0: 1}, final={0: 1})
        (arc,) = from_json(to_json(machine)).arcs
        assert [x.hex() for x in arc.weight] == [x.hex() for x in weight]


@given(st.lists(labels, min_size=1, unique=True), st.lists(labels, min_size=1, unique=True))
def test_names_of_states_and_symbols_come_back(states: list[Any], alphabet: list[Any]) -> None:
    arcs = [(states[0], a, states[-1], 0.5) for a in (*alphabet, EPSILON)]
    machine = WFSA(alphabet=alphabet, arcs=arcs, states=states, initial={states[0]: 1}, final={states[-1]: 1})
    again = from_json(to_json(machine))
    assert again.same_as(machine)
    assert [types(state) for state in again.states] == [types(state) for state in states]
    assert [types(symbol) for symbol in again.alphabet] == [types(symbol) for symbol in alphabet]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_weights_come_back(weight: float) -> None:
    machine = WFSA(alphabet="a", arcs=[(0, "a", 0, weight)], initial={0: 1.0}, final={0: 5e-324})
    again = from_json(to_json(machine))
    assert again.arc_weight.item().hex() == weight.hex()
    assert again.final_weight.item() == 5e-324


def test_infinities_are_strings_in_plain_json() -> None:
    machine = WFSA("max-plus", alphabet="a", arcs=[(0, "a", 0, -math.inf)], initial={0: 0.0}, final={0: 0.0})

    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads(to_json(machine), parse_constant=refuse)["arcs"] == [[0, 0, 0, "-Infinity"]]
    assert from_json(to_json(machine)).same_as(machine)


@pytest.mark.parametrize("label", [b"a", math.nan, frozenset("a"), (10**5000,), "\ud800", ("x", b"a")])
def test_other_names_are_refused(label: Any, tmp_path: Path) -> None:
    machine = WFSA(alphabet=[label], initial={0: 1.0}, final={0: 1.0})
    with pytest.raises(FormatError, match="in JSON a state or symbol must be"):
        save(machine, tmp_path / "m.json")
    assert not list(tmp_path.iterdir())


def test_tuples_nested_too_deeply_are_refused() -> None:
    label: Any = ()
    for _ in range(2000):
        label = (label,)
    with pytest.raises(FormatError, match="at most 50 deep"):
        to_json(WFSA(alphabet=[label], initial={0: 1.0}, final={0: 1.0}))


GOOD: dict[str, Any] = {
    "format": "rrnn-wfsa",
    "version": 1,
    "semiring": "real",
    "states": ["p", "q"],
    "alphabet": ["a"],
    "initial": [[0, 1.0]],
    "final": [[1, 1.0]],
    "arcs": [[0, 0, 1, 0.5], [0, None, 1, 0.25]],
}


def test_the_example_is_good() -> None:
    assert from_json(json.dumps(GOOD)).num_arcs == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "this is something else"),
        ({"version": 3}, "reads versions 1 and 2"),
        ({"version": True}, "reads versions 1 and 2"),
        ({"semiring": "rael"}, "Did you mean 'real'"),
        ({"semiring": 3}, "the name of a semiring"),
        ({"colour": 1}, "'colour' is unknown"),
        ({"states": "pq"}, "states must be a list"),
        ({"states": ["p", "p"]}, "listed twice"),
        ({"states": [["p"], "q"]}, r"states\[0\]: a name"),
        ({"states": [{"tuple": 1}, "q"]}, r"states\[0\]: a name"),
        ({"alphabet": []}, "at least one symbol"),
        ({"initial": []}, "initial state"),
        ({"initial": [[0, 1.0], [0, 1.0]]}, r"initial\[1\].*two weights"),
        ({"final": []}, "final state"),
        ({"final": [[2, 1.0]]}, r"final\[0\].*from 0 to 1; got 2"),
        ({"final": [[True, 1.0]]}, r"final\[0\]"),
        ({"arcs": [[0, 0, 1]]}, r"arcs\[0\] must be \[source"),
        ({"arcs": [[0, 1, 1, 0.5]]}, r"arcs\[0\]: a symbol"),
        ({"arcs": [[0, -1, 1, 0.5]]}, r"arcs\[0\]: a symbol"),
        ({"arcs": [[0, 0, 1, "x"]]}, r"arcs\[0\]: a weight"),
        ({"arcs": [[0, 0, 1, True]]}, r"arcs\[0\]: a weight"),
        ({"arcs": [[0, 0, 1, None]]}, r"arcs\[0\]: a weight"),
        ({"arcs": [[0, 0, 1, "Infinity"]]}, r"arcs\[0\].*outside the real semiring"),
        ({"arcs": [[0, 0, 1, 10**400]]}, r"arcs\[0\]"),
        ({"arcs": [[0, 0, 1, 1.0], [0, 0, 1, 2.0]]}, "given twice"),
    ],
)
def test_a_wrong_file_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        from_json(json.dumps({**GOOD, **change}), source="m.json")
    assert caught.value.source == "m.json" and str(caught.value).startswith("m.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ('{\n"format": \n nope}', ":3: this is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (json.dumps(GOOD).replace("0.5", "NaN"), "NaN is not JSON"),
        (json.dumps(GOOD).replace("0.5", "1e999"), "too large"),
        (json.dumps(GOOD).replace("0.5", "9" * 5000), "not a WFSA"),
        (json.dumps(GOOD).replace('"version"', '"format"'), "same key twice"),
    ],
)
def test_wrong_text_is_named(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_json(text, source="m.json")


@pytest.mark.parametrize("count", [2**63, 10**400])
def test_counts_beyond_int64_are_refused_however_large(count: int) -> None:
    text = json.dumps(
        {
            **{
                "format": "rrnn-wfsa",
                "version": 1,
                "semiring": "counting",
                "states": ["q"],
                "alphabet": ["a"],
            },
            **{"initial": [[0, 1]], "final": [[0, 1]], "arcs": [[0, 0, 0, count]]},
        }
    )
    with pytest.raises(RRNNError, match=r"to fit an int64; got one of [0-9]+ digits"):
        from_json(text)


def test_counts_beyond_int64_are_refused() -> None:
    text = json.dumps({**GOOD, "semiring": "counting", "arcs": [[0, 0, 1, 2**63]]})
    with pytest.raises(RRNNError, match="int64"):
        from_json(text)
