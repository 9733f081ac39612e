"""Score: the table, the prefixes and the paths are those of the automaton; odd requests are answered with a message."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from rrnn.automata import Cell, construct, linear
from rrnn.automata.expressions import Linear, walk
from rrnn.automata.unroll import is_wide
from rrnn.explorer.machines import EXAMPLE, MAX_STRING, TEMPLATES, cell_template, machine_of
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa.io import to_json
from rrnn.wfsa.paths import paths
from rrnn.zoo import CELLS, get_cell


def asked(
    name: str, semiring: str = "real", alphabet: str = EXAMPLE["alphabet"], **changes: Any
) -> dict[str, Any]:
    template, symbols = TEMPLATES[name], alphabet.split()
    functions = {key: {s: f.get(s, f[""]) for s in symbols} for key, f in template.functions.items()}
    return {
        "automaton": name,
        "semiring": semiring,
        "alphabet": symbols,
        "functions": functions,
        "constants": dict(template.constants),
    } | changes


def score(client: Any, machine: dict[str, Any], string: str = EXAMPLE["string"]) -> Any:
    answer = client.post("/api/score", json={"machine": machine, "string": string})
    assert answer.status_code == 200, answer.text
    return answer.json()


def number(value: float | str) -> float:
    return {"∞": math.inf, "−∞": -math.inf}.get(value, math.nan) if isinstance(value, str) else value


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("semiring", ["real", "max-plus", "log", "min-plus"])
def test_forward_is_path_by_path(client: Any, name: str, semiring: str) -> None:
    found = score(client, asked(name, semiring), "the not so good")
    machine = machine_of(asked(name, semiring))
    string = ("the", "not", "so", "good")
    for length, prefix in enumerate(found["prefixes"]):
        assert machine.semiring.close(number(prefix), machine.score_by_paths(string[:length]))
    all_paths = sorted((p.weight for p in paths(machine, string)), key=lambda w: abs(w), reverse=True)
    assert found["count"] == len(all_paths)
    if semiring == "real":
        listed = [number(path["weight"]) for path in found["paths"]]
        assert listed == pytest.approx(all_paths[: len(listed)])


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_steps_that_the_page_shows_add_up(client: Any, name: str) -> None:
    """The page explains an entry as the ⊕ over arcs of the symbol from the column before, and ε-arcs in its own."""
    found = score(client, asked(name))
    for t, row in enumerate(found["table"]):
        for q, value in enumerate(row):
            total = found["initial"][q] if t == 0 else 0.0
            for source, symbol, target, weight, _ in found["arcs"]:
                if target == q and symbol is None:
                    total += row[source] * weight
                elif target == q and t and symbol == found["string"][t - 1]:
                    total += found["table"][t - 1][source] * weight
            assert total == pytest.approx(value)
    ends = sum(a * b for a, b in zip(found["table"][-1], found["final"], strict=True))
    assert ends == pytest.approx(found["prefixes"][-1])


def test_arrows_of_paths_are_in_the_picture(client: Any) -> None:
    found = score(client, asked("F"))
    for path in found["paths"]:
        for arrow, source, target in zip(path["edges"], path["states"], path["states"][1:], strict=False):
            assert found["picture"]["edges"][arrow] == [source, target]
    for source, _, target, _, arrow in found["arcs"]:
        assert found["picture"]["edges"][arrow] == [source, target]


def test_arcs_of_weight_zero_are_no_terms(client: Any) -> None:
    machine = asked("F")
    found = score(client, machine)["arcs"]
    assert all(weight != 0 for _, _, _, weight, _ in found)
    next(iter(machine["functions"].values()))["the"] = 1.0  # it was 0
    assert len(score(client, machine)["arcs"]) == len(found) + 1


def test_texts(client: Any) -> None:
    assert score(client, {"text": EXAMPLE["text"]}, "abbabab")["prefixes"][-1] == 3  # how often "ab" is there
    machine = machine_of(asked("C", alphabet="a b"))
    for text in (to_json(machine), "\n" + to_json(machine)):
        assert (
            score(client, {"text": text}, "a b b a")["prefixes"]
            == score(client, {"text": text}, "abba")["prefixes"]
        )
    costs = score(client, {"text": "0 1 1 0.5\n1 1 2 0.25\n1 2 0\n2 1.0\n"}, "1 2 2")
    assert costs["semiring"]["name"] == "min-plus" and costs["prefixes"] == ["∞", 1.5, 1.75, 2.0]
    coin = "I: (state)\n\t(0) 1.0\nF: (state)\n\t(0) 0.5\nS: (state,symbol)\n\t(0,0) 1.0\n"
    assert score(client, {"text": coin + "T: (state,symbol,state)\n\t(0,0,0) 1.0\n"}, "0 0")["prefixes"] == [
        0.5,
        0.25,
        0.125,
    ]


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_every_semiring_has_an_answer(client: Any, semiring: str) -> None:
    functions = {key: dict.fromkeys("ab", 1) for key in TEMPLATES["B"].functions}
    machine = asked("B", semiring, "a b", functions=functions)
    assert len(score(client, machine, "abba")["prefixes"]) == 5
    assert len(score(client, machine, "")["prefixes"]) == 1


HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    "machine",
    [
        {},
        {"automaton": "Z"},
        {"automaton": ["F"]},
        asked("F", "complex"),
        asked("F", "x" * 10_000),
        asked("F", semiring="real") | {"semiring": 7},
        asked("F", alphabet="a") | {"alphabet": "a"},
        asked("F", alphabet="a") | {"alphabet": []},
        asked("F", alphabet="a") | {"alphabet": ["a", "a"]},
        asked("F", alphabet="a") | {"alphabet": [["a"]]},
        asked("F", alphabet=" ".join(map(str, range(25)))),
        asked("F", functions={}),
        asked("F", functions=[1, 2]),
        asked("F", constants={"r": 1}),
        asked("F", constants={"r": "1", "p1": 1, "p2": 1}),
        asked("F", constants={"r": True, "p1": 1, "p2": 1}),
        asked("F", constants={"r": 10**400, "p1": 1, "p2": 1}),
        asked("F", constants={"r": 1e300, "p1": 1, "p2": 1}),
        asked("F", constants={"r": None, "p1": 1, "p2": 1}),
        asked("B", "boolean"),  # 0.8 is no truth
        asked("B", "counting"),
        {"text": ""},
        {"text": "{"},
        {"text": "{}"},
        {"text": "[" * 60_000},
        {"text": "{" * 30_000},
        {"text": "x" * 60_000},
        {"text": "I: (state)\n"},
        {"text": "0 1 1 nan\n1\n"},
        {"text": "0 99999999999999999999 1\n"},
        {"text": HOSTILE},
        {"text": EXAMPLE["text"].replace('"q2"]', '"q2", ' + ", ".join(f'"x{i}"' for i in range(50)) + "]")},
        {"text": EXAMPLE["text"].replace("[0, 1]", "[0, 1e999]")},
        {"text": 7, "automaton": 7},
    ],
)
def test_machines_that_are_none(client: Any, machine: dict[str, Any]) -> None:
    answer = client.post("/api/score", json={"machine": machine, "string": "a"})
    assert answer.status_code == 422, answer.text[:300]
    assert answer.json()["error"] and "Traceback" not in answer.text


@pytest.mark.parametrize("string", ["awful", "the " * (MAX_STRING + 1), HOSTILE, "\u202e", "\0"])
def test_strings_that_are_none(client: Any, string: str) -> None:
    answer = client.post("/api/score", json={"machine": asked("F"), "string": string})
    assert answer.status_code == 422
    assert "symbols" in answer.json()["error"]


def test_a_text_names_its_line(client: Any) -> None:
    answer = client.post("/api/score", json={"machine": {"text": "0 1 1 0.5\nx\n1\n"}, "string": ""})
    assert (answer.status_code, answer.json()["line"]) == (422, 2)


def test_cycles_of_epsilon(client: Any) -> None:
    """The score exists (a geometric series), and so do best paths; but they cannot be counted."""
    text = (
        EXAMPLE["text"]
        .replace('"counting"', '"real"')
        .replace("[0, 0, 0, 1]", "[0, null, 0, 0.5], [0, 0, 0, 1]")
    )
    found = score(client, {"text": text}, "ab")
    assert found["prefixes"][-1] == pytest.approx(2.0) and found["count"] is None
    diverging = text.replace("0.5", "2")
    answer = client.post("/api/score", json={"machine": {"text": diverging}, "string": "ab"})
    assert answer.status_code == 422 and answer.json()["error"]


def test_names_are_text(client: Any) -> None:
    """States and symbols may be called anything; in the picture's text they are escaped."""
    text = EXAMPLE["text"].replace('"q1"', f'"{HOSTILE}"').replace('"b"', '"</text><script>"')
    found = score(client, {"text": text}, "a")
    assert "<img" not in found["picture"]["svg"] and "<script" not in found["picture"]["svg"]


@pytest.mark.parametrize("name", [name for name, ring in SEMIRINGS.items() if ring.components])
def test_elements_of_several_components_are_texts(client: Any, name: str) -> None:
    machine = machine_of(asked("B")).with_semiring(name)
    found = score(client, {"text": to_json(machine)}, "not so good")
    ring = machine.semiring
    assert found["semiring"]["zero"] in ("⟨0, 0⟩", "⟨0, −∞⟩") and found["semiring"]["one"] == "⟨1, 0⟩"
    for value in [
        *found["prefixes"],
        *(v for row in found["table"] for v in row),
        *(a[3] for a in found["arcs"]),
    ]:
        assert re.fullmatch(r"⟨−?(∞|[\d.]+(e−?\d+)?), −?(∞|[\d.]+(e−?\d+)?)⟩", value), value
    first = machine.score_by_paths(("not", "so", "good"))
    shown = [float(x.replace("−", "-")) for x in found["prefixes"][-1].strip("⟨⟩").split(", ")]
    assert ring.close(tuple(shown), first, 1e-3)
    sizes = [path["size"] for path in found["paths"]]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 0 and found["count"] == len(sizes)
    score(client, asked("F", name))  # real weights of a template stand for elements


def of_cell(cell: Cell) -> dict[str, Any]:
    """Ask for a cell with the numbers that the page shows first."""
    template, symbols = cell_template(cell), EXAMPLE["alphabet"].split()
    return {
        "cell": cell.to_text(),
        "semiring": cell.semiring_name,
        "alphabet": symbols,
        "functions": {key: {s: f[s] for s in symbols} for key, f in template.functions.items()},
        "constants": dict(template.constants),
    }


NARROW = [
    name
    for name in CELLS
    if not any(isinstance(e, Linear) and e.window > 1 for _, w in get_cell(name).weights() for e in walk(w))
    and not (is_wide(get_cell(name)) or get_cell(name).semiring.components)
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name.startswith("SoPa") else name for name in NARROW],
)
def test_any_cell_is_scored_with_numbers_for_its_weights(client: Any, name: str) -> None:
    cell = get_cell(name)
    found = score(client, of_cell(cell), "film is not so good")
    machine = machine_of(of_cell(cell))
    expected = machine.score_by_paths(("film", "is", "not", "so", "good"))
    assert machine.semiring.close(number(found["prefixes"][-1]), expected) and found["paths"]
    if cell.epsilon_limit is None:
        assert set(machine.states) == set(cell.states)


def test_the_paper_s_automata_have_the_notation_of_their_cells(client: Any) -> None:
    automata = {each["name"]: each for each in client.get("/api/start").json()["automata"]}
    for name in ("B", "C", "F"):
        weights = client.post("/api/design", json={"text": get_cell(name).to_text()}).json()["weights"]
        for kind in ("functions", "constants"):
            labels = [[each["label"] for each in some[kind]] for some in (automata[name], weights)]
            assert labels[0] == labels[1]
    assert [each["label"] for each in automata["F"]["functions"]] == ["u₁", "f₁", "u₂", "f₂"]
    assert [each["label"] for each in automata["F"]["constants"]] == ["r", "p₁", "p₂"]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (get_cell("QRNN2"), "2 symbols at a time"),
        (get_cell("Mamba"), "families of states"),
        (
            Cell("pole", "complex").initial("q").loop("q", construct("polar", 0.5, linear("a"))).final("q"),
            "weights of one number",
        ),
    ],
)
def test_cells_that_have_no_table_of_numbers_say_why(client: Any, cell: Cell, words: str) -> None:
    weights = client.post("/api/design", json={"text": cell.to_text()}).json()["weights"]
    assert words in weights["why"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cell": "rrnn-cell 1\ncell B C"}, "name"),
        ({"cell": "x" * 30_000}, "characters"),
        ({"functions": {}}, "functions"),
        ({"constants": {"r": 1}}, "constants"),
    ],
)
def test_odd_requests_about_cells(client: Any, changes: dict[str, Any], words: str) -> None:
    machine = of_cell(get_cell("F")) | changes
    answer = client.post("/api/score", json={"machine": machine, "string": "good"})
    assert answer.status_code == 422 and words in answer.json()["error"]
