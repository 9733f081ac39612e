"""Every command is there and says what it takes."""

from __future__ import annotations

import dataclasses
import io
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from rrnn.cli import COMMANDS, main
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.configs import Config
from rrnn.tasks.lm.config import preset

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert f"usage: rrnn {name}" in out and err == ""


@pytest.mark.parametrize(
    ("name", "width"), [*((name, 60) for name in ["", *COMMANDS]), ("", 80), ("lm train", 80)]
)
def test_help_fits_the_terminal(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*name.split(), "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_help_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without box characters gets headings instead of boxes."""
    monkeypatch.setenv("COLUMNS", "70")
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors="replace")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["verify", "--help"]) == 0
    out.flush()
    lines = out.buffer.getvalue().decode("latin-1").splitlines()  # pyright: ignore[reportAttributeAccessIssue]
    assert lines[0].startswith("usage: rrnn verify") and lines[2].startswith("Compare the scores")
    assert max(map(len, lines)) <= 70 and sum(line.startswith("  --") for line in lines) >= 3


def boxes(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Title → text of each box of a command's help, in one line each."""
    monkeypatch.setenv("COLUMNS", "90")
    assert main([*name.split(), "--help"]) == 0
    parts = capsys.readouterr().out.split("╭─ ")[1:]
    texts = [part.partition(" ─") for part in parts]
    return {title: " ".join(text.replace("│", " ").replace("─", "").split()) for title, _, text in texts}


@pytest.mark.parametrize(
    ("name", "titles", "config"),
    [
        (
            "lm train",
            ["data", "model", "regularisation", "optimisation", "averaged weights", "run"],
            preset("tiny"),
        ),
        (
            "classify train",
            ["data", "word vectors", "model", "regularisation", "optimisation", "run"],
            ClassifyConfig.for_data(),
        ),
    ],
)
def test_options_are_grouped_and_have_the_defaults_of_a_bare_call(
    name: str,
    titles: list[str],
    config: Config,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = boxes(name, capsys, monkeypatch)
    assert list(found) == ["options", *(f"{title} options" for title in titles)]
    text = " ".join(found.values())
    assert max(len(box.split(" --")) for box in found.values()) <= 14  # no box lists more options
    for field in dataclasses.fields(config):
        flag, value = f"--{field.name}".replace("_", "-"), getattr(config, field.name)
        own = text.partition(f" {flag} ")[2].partition(" --")[0]
        assert own, f"{flag} is missing"
        if value is not None and value != () and field.name != "cell":
            assert f"(default: {value}" in own
    assert "recipe:" not in text


def test_other_defaults_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = boxes("lm train", capsys, monkeypatch)
    assert (
        "number of recurrent layers (default: 1; paper-10m: 2; paper-24m: 3; best-24m: 4)"
        in lm["model options"]
    )
    assert (
        "largest number of epochs (default: 8; paper-10m, paper-24m: 300; best-24m: 560)" in lm["run options"]
    )
    classify = boxes("classify train", capsys, monkeypatch)
    assert "units per layer and direction (default: 32; other data: 150)" in classify["model options"]


def test_the_installed_command_is_this_one() -> None:
    scripts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts.keys() == {"rrnn"}
    module, _, function = scripts["rrnn"].partition(":")
    assert getattr(import_module(module), function) is main
