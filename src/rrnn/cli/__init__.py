"""The `rrnn` command: one table that maps the name of each command to a function.

A command is a function of one argument, a dataclass whose fields are the command's arguments and options (tyro turns
them into a parser, and their docstrings into help texts). It prints to stdout and returns an exit code, or None for
success. Its module is imported only when the command runs, so that `rrnn --help` stays fast.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, TextIO, get_type_hints

from rrnn import __version__
from rrnn.cli.terminal import paragraph, table
from rrnn.errors import RRNNError, nearest

# name → ("module:function", one line of help). A name of two words is a command of a group: "lm train".
COMMANDS: dict[str, tuple[str, str]] = {
    "classify eval": ("rrnn.cli.classify:eval", "measure the accuracy of a trained text classifier"),
    "classify predict": ("rrnn.cli.classify:predict", "classify any number of texts, with probabilities"),
    "classify search": (
        "rrnn.cli.classify:search",
        "search for the best settings and train them with several seeds",
    ),
    "classify table": ("rrnn.cli.classify:table", "compare runs with the paper's table of accuracies"),
    "classify train": ("rrnn.cli.classify:train", "train a text classifier"),
    "data get": ("rrnn.cli.data:get", "download data sets and verify their checksums"),
    "data list": ("rrnn.cli.data:list_", "list the data sets, their folders and their sources"),
    "data path": ("rrnn.cli.data:path", "print the folder of a data set"),
    "derive": (
        "rrnn.cli.derive:derive",
        "print the recurrence of a cell: equations, LaTeX, IR, generated code",
    ),
    "doctor": ("rrnn.cli.doctor:doctor", "show which backends work on this machine, and why others do not"),
    "draw": ("rrnn.cli.draw:draw", "draw a cell or a WFSA as SVG and dot"),
    "explain": (
        "rrnn.cli.explain:explain",
        "explain the predictions of a text classifier by words, units and paths",
    ),
    "explore": (
        "rrnn.cli.explore:explore",
        "open a local page to design cells, score strings and explain predictions",
    ),
    "export": ("rrnn.cli.export:export", "write the model of a run as an ONNX file or as plain C"),
    "lm eval": ("rrnn.cli.lm:evaluate", "measure the perplexity of a trained language model on a text"),
    "lm generate": ("rrnn.cli.lm:generate", "sample text from a trained language model"),
    "lm table": ("rrnn.cli.lm:table", "compare runs with the paper's table of perplexities"),
    "lm train": ("rrnn.cli.lm:train", "train a language model with any cell"),
    "power": ("rrnn.cli.power:power", "say what one layer of a cell can and cannot compute, and why"),
    "rank": ("rrnn.cli.rank:rank", "bound the number of states that a recurrence needs, with proof"),
    "report": ("rrnn.cli.report:report", "write an HTML report on runs: results, curves, automata, examples"),
    "score": ("rrnn.cli.score:score", "score a file of strings with a WFSA, one score per line"),
    "zoo": ("rrnn.cli.zoo:show", "list the models, or show one: equations, parameters, paper"),
    "verify": ("rrnn.cli.verify:verify", "check that the scores of layers agree with their automata"),
}

USAGE_ERROR = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
BROKEN_PIPE = 141  # 128 + SIGPIPE


class UsageError(RRNNError):
    """A command line that does not name a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code, which is 2 for an error of the user."""
    _spin_briefly()
    if argv is None:  # the process ends after this command
        atexit.register(_end_quickly)
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:  # it is None if stdout is closed: `>&-`
            sys.stdout.flush()  # here, where a closed pipe can still be handled
        return code
    except RRNNError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _sink_output()  # the reader (`| head`) has read enough
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO):
            _sink_output()  # files have names, so this is perhaps the standard output
        unnamed = "standard output: " if error.errno == errno.ENOSPC else ""
        place = unnamed if error.filename is None else f"{error.filename}: "
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
        return USAGE_ERROR
    except ValueError as error:
        if "null byte" not in str(error):
            raise
        print("error: the name of a file cannot contain the character NUL", file=sys.stderr)
        return USAGE_ERROR
    except (MemoryError, OverflowError, RuntimeError) as error:
        if not _is_too_large(error):
            raise
        print(
            f"error: not enough memory ({str(error)[:200] or 'out of memory'}): choose smaller sizes",
            file=sys.stderr,
        )
        return USAGE_ERROR


def _is_too_large(error: BaseException) -> bool:
    """Return whether an error says that memory is lacking; torch has no class of its own for that on a CPU."""
    signs = (
        "can't allocate memory",
        "out of memory",
        "size calculation overflowed",
        "too large to convert to C",
    )
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in signs)


def _spin_briefly() -> None:
    """Let threads of GNU's OpenMP that wait for each other give up their processor after some tenths of a millisecond,
    not after ten milliseconds: on a busy machine, others need it. What the user has set stays."""
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:  # it is read when torch is loaded
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def _end_quickly() -> None:
    """Do not search all that torch has loaded for cycles at the end of the process, which takes a quarter second.

    Extensions that are built with nanobind would report what is not released as leaks.
    """
    if not {"triton", "onnx"} & sys.modules.keys():
        gc.freeze()


def _sink_output() -> None:
    """Redirect stdout to nowhere, since Python flushes it once more at exit and would fail again."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):  # a notebook's output has no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(_help(COMMANDS))
        return 0
    if args[0] == "--version":
        print(f"rrnn {__version__}")
        return 0

    for words in (2, 1):
        name = " ".join(args[:words])
        if name in COMMANDS and len(args) >= words:
            return _call(name, args[words:])

    group = {name: entry for name, entry in COMMANDS.items() if name.split()[0] == args[0]}
    if group and args[1:] in ([], ["-h"], ["--help"]):
        print(_help(group))
        return 0
    raise UsageError(_unknown(args[:2] if group else args[:1]))


def _call(name: str, args: list[str]) -> int:
    import tyro

    function = _load(COMMANDS[name][0])
    args = _with_current_flags(name.split()[0], args)
    (options_type,) = (hint for key, hint in get_type_hints(function).items() if key != "return")
    help = _Help(sys.stdout)
    try:
        with redirect_stdout(help):
            options = tyro.cli(options_type, args=args, prog=f"rrnn {name}")
    except SystemExit as done:  # --help or a message about a wrong option was printed
        if help.getvalue():
            print(help.fitted())
        return done.code if isinstance(done.code, int) else 0
    return function(options) or 0


_BOXES = ("positional arguments", "options")  # the titles of the first box of a command's help


class _Help(io.StringIO):
    """The help of a command as tyro prints it, which fits its boxes into the terminal, but not the text above them."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__()
        self.stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # tyro asks if it can draw boxes
        return (getattr(self.stream, "encoding", None) or "ascii").lower()

    def isatty(self) -> bool:  # and whether to use colours
        return self.stream is not None and self.stream.isatty()

    def fitted(self) -> str:
        """Return the help with the paragraphs above the boxes wrapped."""
        lines = self.getvalue().splitlines()
        plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]  # without colours
        top = next((i for i, line in enumerate(plain) if line.strip(" ─╭╮") in _BOXES), 0)
        blocks = "\n".join(lines[:top]).strip().split("\n\n")
        # The usage has colours in a terminal, whose codes count as letters when lines are filled.
        text = [part if "\x1b" in part else paragraph(" ".join(part.split())) for part in blocks]
        return "\n\n".join([*text, "\n".join(lines[top:])])


def _with_current_flags(task: str, args: list[str]) -> list[str]:
    """Replace options that had another name in version 0.1, with a note: they work for one release more."""
    from rrnn.tasks.configs import RENAMED

    flags = {
        f"--{old}".replace("_", "-"): f"--{new}".replace("_", "-")
        for old, new in RENAMED.get(task, {}).items()
    }
    current = []
    for arg in args:
        flag, equals, value = arg.replace("_", "-").partition("=")[0], *arg.partition("=")[1:]
        if flag in flags:
            print(f"note: {flag} is now {flags[flag]}; the old name will be removed", file=sys.stderr)
            arg = f"{flags[flag]}{equals}{value}"
        current.append(arg)
    return current


def _load(target: str) -> Callable[[Any], int | None]:
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)


def _help(commands: dict[str, tuple[str, str]]) -> str:
    rows = [(name, line) for name, (_, line) in sorted(commands.items())]
    return "\n".join(
        [
            "usage: rrnn COMMAND [OPTIONS]",
            "",
            paragraph("Turn weighted finite-state automata into recurrent layers, and layers into automata."),
            "",
            "commands:",
            table(rows[0], rows[1:], indent="  "),
            "",
            paragraph(
                "`rrnn COMMAND --help` lists the options of a command; `rrnn --version` prints the version."
            ),
        ]
    )


def _unknown(words: list[str]) -> str:
    name = " ".join(words)
    hint = nearest(name, COMMANDS, "`rrnn {}`".format) or " `rrnn --help` lists the commands."
    return f"there is no command `{name}`.{hint}"
