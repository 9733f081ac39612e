"""The notebooks in examples/ run, and are committed with outputs that a run has produced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[1] / "examples"
CHECKS = {
    "tagger": """
assert accuracies["F"] > 0.94 and accuracies["LSTM"] > 0.94 and commonest < 0.5, accuracies
assert sum(p.numel() for p in taggers["F"].rnn.parameters()) < 0.5 * sum(
    p.numel() for p in taggers["LSTM"].rnn.parameters()
)
""",
    "classifier": """
accuracy = {name: result.summary.test for name, result in results.items()}
assert accuracy["F_score"] > 95 > accuracy["B"], accuracy
first, _ = show("the plot was not that good and the music was very slow")
assert first.exact and first.label == "negative" and abs(first.unexplained) < 1e-3
assert {"not", "slow"} == {word.token for word in sorted(first.words, key=lambda word: -word.without)[:2]}
""",
}
"""Notebook → code that is run after its last cell, on its variables."""


def read(name: str) -> Any:
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == CHECKS.keys()


@pytest.mark.parametrize("name", CHECKS)
def test_outputs_are_those_of_one_run(name: str) -> None:
    code = [cell for cell in read(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert len(outputs) >= 8 and {output.output_type for output in outputs} == {"stream", "execute_result"}
    assert all(output.name == "stdout" for output in outputs if output.output_type == "stream")


@pytest.mark.parametrize("name", CHECKS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    """It raises nothing, writes nothing to stderr, and leaves nothing where it runs."""
    notebook = read(name)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS[name]))
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    streams = [
        out for cell in notebook.cells for out in cell.get("outputs", []) if out.output_type == "stream"
    ]
    assert not [out.text for out in streams if out.name == "stderr"]
    assert not list(tmp_path.iterdir())
