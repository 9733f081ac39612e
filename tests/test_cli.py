"""The command line's frame: table, help, dispatch, exit codes. Each command is tested beside its subject."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from rrnn import cli
from rrnn.errors import FormatError


@dataclass
class Options:
    """Greet someone."""

    name: str = "world"
    """whom to greet"""
    times: int = 1


def greet(options: Options) -> None:
    print(f"hello {options.name} " * options.times)


def fail(options: Options) -> int:
    raise FormatError("a rule, what came, the fix", source="model.txt", line=3)


def three(options: Options) -> int:
    return 3


def interrupt(options: Options) -> None:
    raise KeyboardInterrupt


def missing(options: Options) -> None:
    open("no/such/file").close()


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the functions above, in a module found by name as the real commands are."""
    module = ModuleType("rrnn_test_commands")
    for function in (greet, fail, three, interrupt, missing):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    table = {name: (f"{module.__name__}:{name}", f"does {name}") for name in vars(module) if name[0] != "_"}
    table["group greet"] = (f"{module.__name__}:greet", "greets from a group")
    monkeypatch.setattr(cli, "COMMANDS", table)


@pytest.mark.parametrize("args", [[], ["-h"], ["--help"]])
def test_help_is_the_table(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 0
    out = capsys.readouterr().out
    assert "  greet        does greet\n" in out
    assert "  group greet  greets from a group\n" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rrnn 0.")


def test_options_reach_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["greet", "--name", "you", "--times", "2"]) == 0
    assert capsys.readouterr().out == "hello you hello you \n"


def test_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["group", "greet", "--name", "you"]) == 0
    assert capsys.readouterr().out == "hello you \n"
    for args in (["group"], ["group", "--help"]):
        assert cli.main(args) == 0
        out = capsys.readouterr().out
        assert "greets from a group" in out
        assert "does fail" not in out


def test_command_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["greet", "--help"]) == 0
    out = capsys.readouterr().out
    assert "usage: rrnn greet" in out
    assert "whom to greet" in out


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["three"]) == 3
    assert cli.main(["interrupt"]) == 130
    assert cli.main(["greet", "--times", "many"]) == 2
    assert capsys.readouterr().out == ""


def test_a_mistake_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fail"]) == 2
    assert capsys.readouterr() == ("", "error: model.txt:3: a rule, what came, the fix\n")
    assert cli.main(["missing"]) == 2
    assert capsys.readouterr() == ("", "error: no/such/file: No such file or directory\n")


@pytest.mark.parametrize(
    ("args", "near"),
    [
        (["gret"], "Did you mean `rrnn greet`?"),
        (["group", "gret", "--times", "2"], "Did you mean `rrnn group greet`?"),
        (["zzzzzz"], "`rrnn --help` lists"),
        (["--zzzz"], "`rrnn --help` lists"),
    ],
)
def test_unknown_command(args: list[str], near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: there is no command") and near in err


def test_closed_pipe_is_quiet() -> None:
    code = (
        "import sys; from rrnn import cli\n"
        "cli._call = lambda name, args: print('line\\n' * 100_000) or 0\n"
        "cli.COMMANDS['flood'] = ('', '')\n"
        "sys.exit(cli.main(['flood']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert err == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_and_a_closed_output() -> None:
    command = f"{shlex.quote(sys.executable)} -m rrnn --version"
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    assert (full.returncode, full.stderr) == (2, "error: standard output: No space left on device\n")
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_help_is_quick_and_light() -> None:
    code = "import sys; from rrnn.cli import main; main(['--help']); assert not {'torch', 'jinja2'} & set(sys.modules)"
    best = float("inf")
    for _ in range(10):  # it takes a tenth of the bound; trying again is for busy machines
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
        if best < 0.5:
            break
    assert best < 0.5


def test_real_commands_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the true table
    for name, (target, line) in cli.COMMANDS.items():
        assert 1 <= len(name.split()) <= 2
        assert callable(cli._load(target))
        assert line and "\n" not in line


def test_python_m() -> None:
    result = subprocess.run([sys.executable, "-m", "rrnn", "--version"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("modules", ["torch", "torch, triton"])
def test_a_process_ends_without_a_word(modules: str) -> None:
    """Extensions such as Triton's report what the process leaves to the operating system as leaks."""
    pytest.importorskip("triton")
    code = f"import sys, {modules}; sys.argv = ['rrnn', '--version']; from rrnn.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
