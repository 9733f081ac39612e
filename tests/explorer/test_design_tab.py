"""Design: every cell of the zoo, with figures that agree with what `rrnn derive` says, and mistakes at their lines."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from rrnn.explorer.machines import MAX_CELL_ARCS, MAX_CELL_TEXT, MAX_STATES
from rrnn.ir.equations import equations, scan_text
from rrnn.zoo import CELLS, get_cell

SVG = "{http://www.w3.org/2000/svg}"


def design(client: Any, text: str) -> Any:
    answer = client.post("/api/design", json={"text": text})
    assert answer.status_code == 200, answer.text
    return answer.json()


def mistake(client: Any, text: str) -> Any:
    answer = client.post("/api/design", json={"text": text})
    assert answer.status_code == 422, answer.text[:300]
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    return answer.json()


def test_the_examples_are_the_zoo(client: Any) -> None:
    page = client.get("/api/start").json()
    assert {cell["name"]: cell["text"] for cell in page["cells"]} == {
        name: get_cell(name).to_text() for name in CELLS
    }


@pytest.mark.parametrize("name", CELLS)
def test_zoo(client: Any, name: str) -> None:
    cell = get_cell(name)
    found = design(client, cell.to_text())
    facts = found["facts"]

    # the figures are those of the compiler's own account
    account = scan_text(cell)
    assert found["code"]["chunks"] == account
    if cell.families:
        assert facts["carried"] is None and "for (long k0 = 0; k0 < " in found["code"]["c"]
        return
    forward, _, backward = account.partition("\nBackward")
    assert (re.search(r"carries (\w+) number", forward) or [""])[1] == str(facts["carried"] or "no")
    if facts["carried_back"] is None:
        assert "no gradient" in backward
    else:
        assert (re.search(r"carries (\w+) number", backward) or [""])[1] == str(facts["carried_back"] or "no")
    assert found["code"]["plain"] == equations(cell)

    # the picture has a group for each arrow, each state, each label, and no style of its own
    root = ElementTree.fromstring(found["picture"]["svg"])
    groups = [child for child in root if child.tag == f"{SVG}g"]
    assert len(groups) == 2 * len(found["picture"]["edges"]) + found["picture"]["states"]
    assert root.find(f"{SVG}style") is None

    # C and Triton have what they are to be
    stored = len(facts["stored"]) * cell.semiring.size
    assert f"enum {{ S = {stored}, K = {facts['projections']}" in found["code"]["c"]
    assert "@triton.jit" in found["code"]["triton"]


@pytest.mark.parametrize("name", CELLS)
def test_equations_are_those_of_the_plain_text(client: Any, name: str) -> None:
    """MathML is a third notation of the same lines: the same operators, functions and numbers in each."""
    rows = design(client, get_cell(name).to_text())["equations"]
    lines = equations(get_cell(name)).splitlines()
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        written = "".join("".join(ElementTree.fromstring(row[side]).itertext()) for side in ("left", "right"))
        for mark in ("⊙", "σ", "tanh", "exp", "max", "+", "[", "W", "/"):
            shown = written.count(mark) + (mark == "/") * row["right"].count("<mfrac>")
            assert shown == line.count(mark), (mark, line)


def test_bytes_are_those_that_a_kernel_must_move(client: Any) -> None:
    """B reads two pre-activations and writes an output; SRU also reads its input."""
    facts = {name: design(client, get_cell(name).to_text())["facts"] for name in ("B", "F", "SRU")}
    assert facts["B"]["bytes"] == 3 * 4 and facts["B"]["bytes_training"] == 8 * 4
    assert facts["F"]["bytes"] == 5 * 4 and facts["F"]["bytes_training"] == 14 * 4
    assert facts["SRU"]["bytes"] == (facts["SRU"]["projections"] + 1 + 1) * 4


B = get_cell("B").to_text().splitlines()


@pytest.mark.parametrize(
    ("line", "text", "words"),
    [
        (2, "cell B C", "name"),
        (3, "semiring imaginary", "unknown semiring"),
        (4, "f = sigmoid(linear('f'", ""),
        (4, "f = __import__('os').system('id')", ""),
        (4, "f = (lambda: 1)()", ""),
        (4, "f = open('/etc/passwd').read()", ""),
        (4, "f = [x for x in ()]", ""),
        (4, "f = 9**9**9**9", ""),
        (4, "f = 1e999", ""),
        (4, "f = " + "(" * 5000, ""),
        (4, "f = " + "-" * 5000 + "1", ""),
        (4, "f = " + "tanh(" * 900 + "1" + ")" * 900, ""),
        (8, "loop q9 : one", "unknown state"),
        (8, "this is no line", "cannot read"),
        (8, "loop q0 : \u0000", ""),
    ],
)
def test_mistakes_are_at_their_line(client: Any, line: int, text: str, words: str) -> None:
    found = mistake(client, "\n".join([*B[: line - 1], text, *B[line:]]))
    assert found["line"] == line
    assert words in found["error"] and not found["error"].startswith("cell text")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n" * 5000,
        "x" * (MAX_CELL_TEXT + 1),
        "\ufeff\u202e",
        "<script>alert(1)</script>",
        "rrnn-cell 1\ncell X\ninitial q0\narc q0 -> q1 : one",  # no final state
        'rrnn-cell 1\ncell X\ninitial q\nepsilon q -> q : parameter("a")\nfinal q',  # an ε-cycle
        "rrnn-cell 1\ncell X\ninitial q0\n"
        + "\n".join(f"arc q{i} -> q{i + 1} : one" for i in range(MAX_STATES))
        + f"\nfinal q{MAX_STATES}",
        "rrnn-cell 1\ncell X\ninitial q0\n"
        + "\n".join("arc+ q0 -> q0 : one" for i in range(MAX_CELL_ARCS + 1))
        + "\nfinal q0",
    ],
)
def test_what_is_no_cell(client: Any, text: str) -> None:
    assert mistake(client, text)["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"text": 7}',
        b'{"text": null}',
        b'{"text": ["rrnn-cell 1"]}',
        b'{"text": NaN}',
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"other": "' + b"9" * 100 + b'"}',
        b"[" * 100_000,
        b'{"text": ' + b"9" * 100_000 + b"}",
    ],
)
@pytest.mark.parametrize("job", ["design", "score", "explain"])
def test_bodies_that_are_no_request(client: Any, job: str, body: bytes) -> None:
    answer = client.post(f"/api/{job}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert json.loads(answer.text)["error"] and "Traceback" not in answer.text


def test_an_automaton_too_dense_to_draw_still_compiles(client: Any) -> None:
    states = range(12)
    arcs = [f'arc q{i} -> q{j} : linear("w{i}_{j}")' for i in states for j in states if i != j]
    found = design(client, "\n".join(["rrnn-cell 1", "cell X", "initial q0", *arcs, "final q11"]))
    assert "svg" not in found["picture"] and "rrnn draw" in found["picture"]["why"]
    assert found["facts"]["arcs"] == len(arcs) and found["code"]["c"]


def test_numbers_of_elements_and_outputs(client: Any) -> None:
    """Two components are two numbers in a chunk, and two outputs are written."""
    text = "\n".join(
        [
            *("rrnn-cell 1", "cell pole", "semiring complex", "states q0 q1", "initial q0", "loop q0 : one"),
            *('arc q0 -> q1 : complex(linear("u"), linear("v"))', "loop q1 : polar(0.5, 1)", "final q1"),
        ]
    )
    answer = client.post("/api/design", json={"text": text + "\n"})
    assert answer.status_code == 200, answer.text
    facts = answer.json()["facts"]
    assert (facts["carried"], facts["carried_back"]) == (4, 6)
    assert (facts["bytes"], facts["bytes_training"]) == ((2 + 2) * 4, (3 * 2 + 2 * 2) * 4)
    equations = answer.json()["equations"]
    assert (
        "<mo>.</mo>" in re.sub(r"<mo [^>]*>", "<mo>", equations[-1]["right"])
        and "<mi>im</mi>" in equations[-1]["right"]
    )
