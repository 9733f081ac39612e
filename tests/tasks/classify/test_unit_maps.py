"""Maps of a classifier's strongest units: of units or of heads, each once, and only for texts that fit."""

from __future__ import annotations

import json

import pytest
from random_classifiers import TEXT, classifier

from rrnn.draw.heat_maps import MAX_WORDS
from rrnn.errors import DataError
from rrnn.tasks.classify.explanations import explain


def test_units_of_thin_cells_have_maps_of_their_own() -> None:
    found = explain(classifier(), TEXT, units=3, maps=2)
    assert [each.units for each in found.maps] == [(unit.unit,) for unit in found.units[:2]]
    assert all(each.head is None and len(each.rows) == 5 for each in found.maps)
    assert all(abs(sum(map(abs, row)) - 1) < 1e-9 for each in found.maps for row in each.rows)
    assert "Unit" in found.maps[0].picture(found.tokens) and "enter at each word" in found.maps[0].says
    assert explain(classifier(), TEXT).maps == () and json.dumps(found.to_json(), allow_nan=False)


def test_units_of_a_head_share_one() -> None:
    found = explain(classifier(cell="GLA", bidirectional=True), TEXT, units=8, maps=8)
    assert [(each.units, each.head) for each in found.maps] == [((0, 1, 2, 3), 0)] * 2
    assert {each.direction for each in found.maps} == {"forward", "backward"}
    assert "Head 0 (GLA, backward), units 0 to 3" in {each.title for each in found.maps}


@pytest.mark.parametrize("cell", ["Mamba", "RetNet", "B-max-plus"])
def test_other_cells(cell: str) -> None:
    assert len(explain(classifier(cell=cell), TEXT, maps=1).maps) == 1


def test_no_maps() -> None:
    assert explain(classifier(cell="LSTM"), TEXT, maps=1).maps == ()
    assert explain(classifier(), "film " * (MAX_WORDS + 1), maps=1).maps == ()
    with pytest.raises(DataError, match="maps must be a non-negative integer"):
        explain(classifier(), TEXT, maps=-1)
