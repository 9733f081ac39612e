"""Read the code blocks of the documentation's pages, and run them.

- ```python``` blocks run in the page's order, in one namespace and an empty folder. A ```text``` block directly after
  one is what it prints.
- ```console``` blocks hold commands (`$ rrnn …`), which run, and what they print; a line `…` stands for any lines. A
  command that prints `error: …` is expected to fail.
- ```sh``` blocks hold commands that take long, or need data or a GPU: the command's own parser checks them.
- `<!-- file: NAME -->` before a block writes it to the file NAME before anything runs.
- ```text```, ```json```, ```bibtex``` and blocks without a language are only shown.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, get_type_hints

from rrnn import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n\n?)?```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.M | re.S
)
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_ELSEWHERE = {"|", ">", ">>", "<", "&&", "&"}  # where a shell goes on without rrnn


@dataclass
class Block:
    """A fenced block; `prints` is the text block directly after it."""

    language: str
    body: str
    mark: str = ""
    line: int = 0
    prints: str | None = None

    @property
    def file(self) -> str | None:
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else None

    @property
    def is_known(self) -> bool:
        """Say whether the mark is one that somebody reads: the runner of pages, or docs/pictures/make.py."""
        return not self.mark or self.mark.startswith(("file: ", "picture: "))

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yield the command lines of a console block with what each prints."""
        for part in re.split(r"^\$ ", self.body, flags=re.M)[1:]:
            line, _, output = part.replace("\\\n", " ").partition("\n")
            yield line, output


def read_blocks(text: str) -> list[Block]:
    blocks: list[Block] = []
    end = 0
    for found in _BLOCK.finditer(text):
        language, body, mark = found["language"], found["body"], found["mark"] or ""
        if language == "text" and not mark and blocks and not text[end : found.start()].strip():
            blocks[-1].prints = body
        else:
            blocks.append(Block(language, body, mark, text.count("\n", 0, found.start("body"))))
        end = found.end()
    return blocks


# ---- commands ----------------------------------------------------------------------------------------------------


def rrnn_arguments(line: str) -> list[str] | None:
    """Return the arguments of `rrnn` in a line of shell, or None if the line does not call it."""
    words = shlex.split(line, comments=True)
    if "rrnn" not in words:
        return None
    words = words[words.index("rrnn") + 1 :]
    return words[: next((i for i, word in enumerate(words) if word in _ELSEWHERE), len(words))]


def parse_command(args: list[str]) -> Any:
    """Parse the options of a command by its own parser, which exits on an error."""
    import tyro

    if args in (["--help"], ["--version"]):
        return None
    name = next((name for name in (" ".join(args[:2]), args[0]) if name in cli.COMMANDS), None)
    assert name, f"there is no command rrnn {' '.join(args)}"
    if args[len(name.split()) :] == ["--help"]:
        return None
    hints = get_type_hints(cli._load(cli.COMMANDS[name][0]))
    (options,) = (hint for key, hint in hints.items() if key != "return")
    return tyro.cli(options, args=args[len(name.split()) :])


def check_shell(line: str) -> None:
    """Check that rrnn understands its commands, `make` has the target, and files that python runs exist."""
    if args := rrnn_arguments(line):
        parse_command(args)
        return
    words = shlex.split(line, comments=True)
    if words[:1] == ["make"]:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:", makefile, re.M), f"the Makefile has no target {words[1]}"
    for word in words:
        if word.endswith(".py") and "/" in word:
            assert (ROOT / word).is_file(), f"there is no {word}"


# ---- running -----------------------------------------------------------------------------------------------------


def run_page(path: Path) -> None:
    """Run every block of a page, in its order, in the working directory."""
    blocks = read_blocks(path.read_text(encoding="utf-8"))
    for block in blocks:
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.body, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        where = f"{path.name}:{block.line}"
        assert block.is_known, f"{where}: what is {block.mark!r}?"
        assert block.language in {*TRY, *SHOWN}, f"{where}: who tries {block.language}?"
        if not block.file and block.language in TRY:
            TRY[block.language](block, names, str(path), where)


def _python(block: Block, names: dict[str, Any], path: str, where: str) -> None:
    code = compile("\n" * block.line + block.body, path, "exec")  # a traceback names the page's line
    printed, _ = _printed(exec, code, names)
    assert block.prints is None or same(printed, block.prints), f"{where} prints\n{printed}"


def _console(block: Block, names: dict[str, Any], path: str, where: str) -> None:
    for line, shown in block.commands():
        check_shell(line)
        args = rrnn_arguments(line)
        if args:
            printed, code = _printed(cli.main, args)
            assert code == (2 if shown.startswith("error: ") else 0), f"{where}: {line}\n{printed}"
            assert not shown or same(printed, shown), f"{where}: {line} prints\n{printed}"


def _shell(block: Block, names: dict[str, Any], path: str, where: str) -> None:
    for line in block.body.replace("\\\n", " ").splitlines():
        check_shell(line)


SHOWN = ("text", "json", "bibtex", "")
TRY = {"python": _python, "console": _console, "sh": _shell}


def _printed(function: Any, *args: Any) -> tuple[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        result = function(*args)
    return out.getvalue() or err.getvalue(), result


def same(printed: str, shown: str) -> bool:
    """Compare up to one unit in the last digit shown of each number; a line `…` stands for any number of lines."""
    got = [line.rstrip() for line in printed.strip("\n").splitlines()]
    want = [line.rstrip() for line in shown.strip("\n").splitlines()]
    if "…" in want:
        head = want.index("…")
        tail = len(want) - head - 1
        if len(got) < head + tail:
            return False
        del want[head], got[head : len(got) - tail]
    return len(got) == len(want) and all(map(_same_line, got, want))


def _same_line(got: str, want: str) -> bool:
    numbers = zip(_NUMBER.findall(got), _NUMBER.findall(want), strict=False)
    return _NUMBER.sub("#", got) == _NUMBER.sub("#", want) and all(_near(a, b) for a, b in numbers)


def _near(got: str, want: str) -> bool:
    a, b = Decimal(got.replace("−", "-")), Decimal(want.replace("−", "-"))
    exponent = b.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent) if "." in want and isinstance(exponent, int) else Decimal(0)
    return abs(a - b) <= max(unit, abs(b) * Decimal("1e-14"))  # a logarithm's last digits are the C library's
