"""`rrnn derive`: equations, LaTeX, programs and scans, of the zoo and of files, without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cell_calls import CORE

from rrnn.cli import main
from rrnn.ir import Program, adjoint, lower
from rrnn.ir.equations import equations, latex
from rrnn.zoo import get_cell

Capture = pytest.CaptureFixture[str]


def derive(capsys: Capture, *args: str) -> str:
    assert main(["derive", *args]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_recurrence_of_f(capsys: Capture) -> None:
    out = derive(capsys, "F")
    assert out.startswith("F over the real semiring: 4 states, 7 arcs (1 ε)\n")
    assert "  q0 →ε q3 : r\n" in out
    assert "  final q1 : p¹\n" in out
    assert "stored: q1 as c¹, q2 as c²\n" in out
    assert out.endswith(
        "c¹ₜ = f¹ₜ ⊙ c¹ₜ₋₁ + u¹ₜ\n"
        "c²ₜ = f²ₜ ⊙ c²ₜ₋₁ + (c¹ₜ₋₁ + r) ⊙ u²ₜ\n"
        "cₜ  = p¹ ⊙ c¹ₜ + p² ⊙ c²ₜ\n"
        "hₜ  = tanh(cₜ)\n"
    )


@pytest.mark.parametrize("name", CORE)
def test_zoo(name: str, capsys: Capture, golden: Callable[[str, str], None]) -> None:
    golden(f"derive/{name}.txt", derive(capsys, name))
    golden(f"derive/{name}.scan.txt", derive(capsys, name, "--scan"))


def test_the_documentation_shows_it(capsys: Capture) -> None:
    page = Path(__file__).parents[2] / "docs" / "compiler.md"
    assert f"$ rrnn derive F\n{derive(capsys, 'F')}```\n" in page.read_text(encoding="utf-8")


def test_a_file(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "mine.cell"
    path.write_text(get_cell("C").renamed("mine").to_text(), encoding="utf-8")
    out = derive(capsys, str(path))
    assert out.startswith("mine over the real semiring")
    assert out.endswith(equations(get_cell("C")))


def test_arcs_are_shown_without_first_values(capsys: Capture) -> None:
    out = derive(capsys, "LRU")
    assert 'q0 → q1  : complex(exp(parameter("gamma")) * linear("B_re"), ' in out and "start=" not in out


@pytest.mark.parametrize("name", ["B", "F", "SRU", "B-max-plus"])
def test_cells_of_single_states_know_nothing_of_families(name: str, capsys: Capture) -> None:
    for command in (
        ["derive"],
        ["derive", "--latex"],
        ["derive", "--ir"],
        ["derive", "--scan"],
        ["zoo"],
        ["power"],
    ):
        assert main([command[0], name, *command[1:]]) == 0
        assert not re.search(r"famil|\bheads?\b|\bgroups?\b|schedule", capsys.readouterr().out), command


def test_latex(capsys: Capture) -> None:
    assert derive(capsys, "B", "--latex") == latex(get_cell("B"))


def test_programs_can_be_read_back(capsys: Capture) -> None:
    out = derive(capsys, "B", "--ir")
    texts = ["rrnn-program" + part.rstrip("\n") + "\n" for part in out.split("rrnn-program")[1:]]
    program = lower(get_cell("B")).program
    assert [Program.parse(text) for text in texts] == [
        program,
        adjoint(program).step,
        adjoint(program).epilogue,
    ]


@pytest.mark.parametrize(
    ("name", "numbers"), [("B", 2), ("B-max-plus", 2), ("C", 5), ("F", 5), ("ngram4", 14)]
)
def test_how_many_numbers_a_chunk_carries(name: str, numbers: int, capsys: Capture) -> None:
    out = derive(capsys, name, "--scan")
    assert f"a chunk of steps carries {numbers} numbers." in out
    assert f"Backward, over the reals: a chunk carries {numbers} numbers" in out


def test_scans_of_unusual_cells(capsys: Capture, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    texts = {
        "boolean": 'semiring boolean\nloop q0 : one\narc q0 -> q1 : step(linear("u"))\nloop q1 : step(linear("f"))',
        "nothing stored": "loop q0 : one\nepsilon q0 -> q1 : 0.5",
        "cycle": 'arc q0 -> q1 : linear("u")\narc q1 -> q0 : linear("f", window=2)\nepsilon q0 -> q1 : 0.5',
        "log": 'semiring log\nloop q0 : linear("f")\narc q0 -> q1 : linear("u")\nloop q1 : linear("f")',
    }
    parts: list[str] = []
    for title, text in texts.items():
        path = tmp_path / "cell.cell"
        lines = text.splitlines()
        head = [line for line in lines if line.startswith("semiring")]
        rest = [line for line in lines if not line.startswith("semiring")]
        output = "score" if title in ("boolean", "nothing stored") else "tanh(score)"
        path.write_text(
            "\n".join(
                ["rrnn-cell 1", "cell c", *head, "initial q0", *rest, "final q1", f"output {output}", ""]
            ),
            encoding="utf-8",
        )
        parts += [f"# {title}\n", derive(capsys, str(path)), "\n", derive(capsys, str(path), "--scan"), "\n"]
    golden("derive/unusual.txt", "".join(parts))


def test_a_long_chain_stays_readable(capsys: Capture) -> None:
    out = derive(capsys, "ngram12", "--scan")
    assert "Z[i → j] = ⊕ₖ X[i → k] ⊗ Y[k → j]" in out
    assert "Z[1 → c¹]" not in out


def test_several_at_once(capsys: Capture) -> None:
    out = derive(capsys, "B", "--latex", "--scan")
    assert out.startswith(r"\begin{align}") and "carries 2 numbers" in out


def test_mistakes(capsys: Capture, tmp_path: Path) -> None:
    for name, message in (("Q", "no cell is called 'Q'"), (str(tmp_path / "no.cell"), "no.cell")):
        assert main(["derive", name]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ") and message in err


def test_torch_is_not_needed() -> None:
    code = (
        "import sys; from rrnn.cli import main\n"
        "for option in ([], ['--latex'], ['--ir'], ['--scan']):\n"
        "    assert main(['derive', 'F', *option]) == 0\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules), 'not light'"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
