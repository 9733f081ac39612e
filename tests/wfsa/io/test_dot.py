"""Graphviz dot: what is drawn, and that any name is quoted right."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from rrnn.wfsa.io import to_dot
from rrnn.wfsa.machine import EPSILON, WFSA


def test_the_text() -> None:
    machine = WFSA(
        "max-plus",
        alphabet=["a", 'say "hi"\\n'],
        arcs=[("q0", "a", "q0", 0.0), ("q0", EPSILON, "q1", -0.5), ("q1", 'say "hi"\\n', "q1", -math.inf)],
        initial={"q0": 0.0, "q1": -1.0},
        final={"q1": -1 / 3},
    )
    assert to_dot(machine) == "\n".join(
        [
            "digraph WFSA {",
            "  rankdir=LR;",
            "  node [shape=circle];",
            '  0 [label="q0", style=bold];',
            '  1 [label="−1 / q1 / −0.3333", style=bold, shape=doublecircle];',
            '  0 -> 0 [label="a"];',
            '  0 -> 1 [label="ε / −0.5"];',
            '  1 -> 1 [label="say \\"hi\\"\\\\n / −∞"];',
            "}\n",
        ]
    )


@given(st.lists(st.text() | st.tuples(st.text(), st.integers()), min_size=1, max_size=4, unique=True))
def test_every_name_is_one_quoted_string(names: list[object]) -> None:
    machine = WFSA(
        alphabet=names,
        arcs=[(names[0], a, names[-1], 0.5) for a in names],
        states=names,
        initial={names[0]: 1},
        final={names[-1]: 1},
    )
    lines = to_dot(machine).encode("utf-8").decode().split("\n")
    assert len(lines) == 3 + 2 * len(names) + 2
    string = r'"(?:[^"\\]|\\"|\\\\)*"'
    form = rf"  \d+( -> \d+)? \[label={string}(, style=bold)?(, shape=doublecircle)?\];"
    assert all(re.fullmatch(form, line) for line in lines[3:-2])


def test_a_weight_of_several_components() -> None:
    machine = WFSA("complex", alphabet="a", arcs=[(0, "a", 0, 0.5 - 0.25j)], initial={0: 1}, final={0: 2j})
    assert 'label="a / ⟨0.5, −0.25⟩"' in to_dot(machine) and 'label="0 / ⟨0, 2⟩"' in to_dot(machine)
