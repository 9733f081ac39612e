"""Every command is there and says what it takes."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from rrnn.cli import COMMANDS, main

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert f"usage: rrnn {name}" in out and err == ""


def test_the_installed_command_is_this_one() -> None:
    scripts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts.keys() == {"rrnn"}
    module, _, function = scripts["rrnn"].partition(":")
    assert getattr(import_module(module), function) is main
