"""Tasks: language models (`rrnn.tasks.lm`), text classifiers (`rrnn.tasks.classify`), and their data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def export_lazily(package: str, exports: Mapping[str, str]) -> None:
    """Let a package export these names, each from a module of `rrnn.tasks` that is imported when the name is used.

    A submodule with the name of an export, such as the old `rrnn.tasks.lm.train`, does not take its place.
    """

    class FrontDoor(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name not in exports:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            value = getattr(import_module(f"rrnn.tasks.{exports[name]}"), name)
            setattr(self, name, value)  # next time without this function
            return value

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in exports or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *exports})

    sys.modules[package].__class__ = FrontDoor
