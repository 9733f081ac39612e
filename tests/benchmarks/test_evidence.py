"""The files of finished trainings: which setting they choose, and what the table of classifiers makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_the_best_on_average_is_chosen(tmp_path: Path) -> None:
    from evidence import Evidence

    devs = {0: 90.0, 1: 89.0, 2: 95.0, 3: 88.0}
    settings = [{"kind": "setting", "number": n, "dev": dev} for n, dev in devs.items()]
    evidence = Evidence(tmp_path, [{"kind": "row"}, *settings])
    assert [line["number"] for line in evidence.best(3)] == [2, 0, 1]
    for number, dev in ((2, 80.0), (0, 86.0), (1, 86.0), (2, 81.0), (0, 86.0), (1, 86.5)):
        evidence.lines.append({"kind": "again", "number": number, "dev": dev})
    assert (evidence.chosen() or {})["number"] == 0  # the first dev counts, too: else it were 1
    assert evidence.finals() == []
    evidence.lines.append({"kind": "again", "number": 0, "error": "the training loss became nan in epoch 1"})
    assert (evidence.chosen() or {})["number"] == 1


def test_held_out_parts_outweigh_dev(tmp_path: Path) -> None:
    from evidence import Evidence

    devs = {0: 90.0, 1: 89.0, 2: 95.0}
    settings = [{"kind": "setting", "number": n, "dev": dev} for n, dev in devs.items()]
    evidence = Evidence(tmp_path, [{"kind": "row"}, *settings])
    evidence.lines += [{"kind": "again", "number": n, "dev": devs[n]} for n in (2, 0)]
    assert (evidence.chosen() or {})["number"] == 2

    def judge(number: int, parts: int, part: int, **score: Any) -> None:
        about = {"kind": "held out", "number": number, "part": part, "parts": parts, "dev": 99.0}
        evidence.lines.append(about | score)

    for part, (first, second) in enumerate([(80.0, 82.0), (81.0, 81.0)]):
        judge(1, 2, part, held_out=second)
        # While a part is missing, dev still decides.
        assert (evidence.chosen() or {})["number"] == (2, 1)[part]
        judge(2, 2, part, held_out=first)
    assert (evidence.chosen() or {})["number"] == 1
    for part in range(3):
        judge(2, 3, part, held_out=70.0)
    assert (evidence.chosen() or {})["number"] == 2  # none but it has the finer parts
    judge(0, 3, 0, error="the training loss became nan in epoch 1")
    for part in (1, 2):
        judge(0, 3, part, held_out=90.0)
    assert (evidence.chosen() or {})["number"] == 2


def test_finals_are_of_the_chosen_setting_alone(tmp_path: Path) -> None:
    """Those of a time when fewer settings had been tried are left out; of equal settings the first drawn is chosen."""
    from evidence import Evidence

    settings = [{"kind": "setting", "number": n, "dev": dev} for n, dev in ((2, 90.0), (0, 80.0), (1, 90.0))]
    finals = [{"kind": "final", "number": n, "test": 70.0 + n} for n in (0, 1, 1, 2)]
    evidence = Evidence(tmp_path, [{"kind": "row"}, *settings, *finals])
    assert [line["test"] for line in evidence.finals()] == [71.0, 71.0]


def test_papers_accuracies_stand_beside_its_own_data_alone() -> None:
    import paper_classify_table

    assert paper_classify_table._paper("F", "cr") == 85.1
    assert paper_classify_table._paper("F", "amazon") is None


def test_what_is_paired_with_what(tmp_path: Path) -> None:
    """Splits, as means over their seeds; models of one label, and labels of one model."""
    from evidence import Evidence
    from paper_classify_table import differences, scores

    def final(split: int, seed: int, test: float) -> dict[str, Any]:
        return {"kind": "final", "number": 0, "split": split, "seed": seed, "test": test}

    finals = [final(0, 0, 70.0), final(1, 1, 80.0), final(0, 2, 72.0), final(1, 3, 82.0)]
    assert scores(finals) == {("split", 0): 71.0, ("split", 1): 81.0}
    assert scores(finals[::2]) == {("seed", 0): 70.0, ("seed", 2): 72.0}
    file = Evidence(tmp_path, [{"kind": "setting", "number": 0, "dev": 1.0}, *finals])
    rows = [(model, label) for label in ("", "max", "mean") for model in ("F", "B")]
    found = differences([({"dataset": "cr", "model": m, "label": name}, file) for m, name in rows])
    names = [(d["model"], d["label"], d["reference"], d["to_label"]) for d in found]
    assert names == [
        ("B", "", "F", ""),
        ("F", "max", "F", ""),
        ("F", "mean", "F", ""),
        ("B", "max", "B", ""),
        ("B", "mean", "B", ""),
        ("B", "max", "F", "max"),
        ("F", "mean", "F", "max"),
        ("B", "mean", "B", "max"),
        ("B", "mean", "F", "mean"),
    ]
