"""Every code block of the README and the documentation runs, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from unittest import mock

import pytest
from documented_code import PAGES, ROOT, Block, check_shell, read_blocks, rrnn_arguments, run_page, same

from rrnn.cli import main
from rrnn.cli.lm import DEFAULT
from rrnn.semirings import SEMIRINGS
from rrnn.tasks.lm.config import LMConfig


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RRNN_DATA", raising=False)
    with mock.patch.dict(SEMIRINGS):  # a page may register semirings, which are those of the whole process
        run_page(page)


def test_what_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the README's commands, except the one that takes minutes and the one that serves a page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RRNN_DATA", raising=False)
    blocks = read_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [line for b in blocks if b.language == "sh" for line in b.body.splitlines()]
    ran = []
    for line in filter(rrnn_arguments, lines):
        _, *args = shlex.split(line, comments=True)
        if args[0] not in ("lm", "explore", "export"):
            args = [found for a in args for found in (map(str, tmp_path.glob(a)) if "*" in a else (a,))]
            assert main(args) == 0, line
            ran.append(args[0])
    assert (
        ran == ["zoo", "verify", "classify", "explain", "report"]
        and "the margin of" in capsys.readouterr().out
    )


def test_the_readme_names_runs_that_its_commands_train() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    trained = {f"{DEFAULT}-{LMConfig.cell}", "classify-synthetic-not-good-F"}
    assert set(re.findall(r"^rrnn \w+ runs/([\w-]+)", text, re.M)) == trained


# ---- the mechanism itself ----------------------------------------------------------------------------------------

PAGE = """
<!-- file: a.txt -->
```text
hello
```

```python
print(open("a.txt").read(), 2 / 3)
```

```text
hello
 0.667
```

Then:

```text
not its output
```

```console
$ rrnn score \\
    x.json
1
$ rrnn doctor
```
"""


def test_blocks() -> None:
    file, code, text, console = read_blocks(PAGE)
    assert file.file == "a.txt" and file.body == "hello\n"
    assert (
        code.language == "python"
        and code.prints == "hello\n 0.667\n"
        and PAGE.splitlines()[code.line] == code.body.rstrip()
    )
    assert text == Block("text", "not its output\n", line=text.line)
    assert list(console.commands()) == [("rrnn score      x.json", "1\n"), ("rrnn doctor", "")]


@pytest.mark.parametrize(
    ("block", "what"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "prints"),
        ("```python\n1 / 0\n```\n", "division"),
        ("```console\n$ rrnn derive B\nnonsense\n```\n", "prints"),
        ("```console\n$ rrnn derive no-such-cell\n```\n", "derive"),
        ("```console\n$ rrnn nonsense\n```\n", "no command"),
        ("```sh\nrrnn lm train --no-such-option 1\n```\n", "2"),
        ("```sh\nmake nonsense\n```\n", "no target"),
        ("```sh\npython benchmarks/none.py\n```\n", "none.py"),
        ("<!-- fiel: a.txt -->\n```text\n1\n```\n", "fiel"),
        ("```bash\nls\n```\n", "bash"),
    ],
)
def test_mistakes_are_found(block: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(block, encoding="utf-8")
    with pytest.raises((AssertionError, ArithmeticError, SyntaxError, SystemExit), match=what):
        run_page(page)


def test_what_prints_the_same() -> None:
    assert same("a 0.123\nb\n", "a 0.124\nb")
    assert same("-6.9e-05", "-7.0e-05") and not same("-6.7e-05", "-7.0e-05")
    assert not same("a 0.123", "a 0.125") and not same("3 rows", "4 rows") and not same("a", "b")
    assert same("a\nx\ny\nb\n", "a\n…\nb\n") and same("a\nb\n", "a\n…\nb\n")
    assert not same("a\nx\nc\n", "a\n…\nb\n") and not same("b\n", "a\n…\nb\n")


def test_shell_lines() -> None:
    assert rrnn_arguments("X=1 rrnn lm train --params 1M > out.txt  # so") == [
        "lm",
        "train",
        "--params",
        "1M",
    ]
    assert rrnn_arguments("torchrun --nproc-per-node 2 -m rrnn verify B | head") == ["verify", "B"]
    assert rrnn_arguments("make test") is None
    check_shell("make test WORKERS=8")
