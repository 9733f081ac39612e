from __future__ import annotations

import pytest

from rrnn.tasks.classify.single_units import who_learns_what


@pytest.mark.slow
def test_what_one_automaton_can_tell() -> None:
    """B has no order of two words; max-plus has no negation, so no counting against each other."""
    found = {
        (row.task, row.cell): row
        for row in who_learns_what(("C", "B"), ("synthetic:not-good",), epochs=5)
        + who_learns_what(("B", "B-max-plus"), ("synthetic:more-a-than-b",), epochs=7)
    }
    assert found["synthetic:not-good", "C"].test > 97 > 93 > found["synthetic:not-good", "B"].test
    b, max_plus = (found["synthetic:more-a-than-b", cell] for cell in ("B", "B-max-plus"))
    assert b.test > 95 and max_plus.test < 85
    assert b.longer is not None and b.longer < b.test - 5  # the count leaks
