"""Keep the import paths of version 0.1 working for one release, with a DeprecationWarning.

A row of `MODULES` makes `import rrnn.old` and `from rrnn.old import name` work: each name is looked up in the modules
that replaced the old one. A row of `NAMES` is a class or function that has another name or module now; if its old
module still exists, that module ends with `__getattr__ = moved.attributes(__name__)`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# A module that is gone, and the modules that hold its names now, separated by spaces.
MODULES: dict[str, str] = {
    # search
    "rrnn.tasks.search_run": "rrnn.tasks.search",
    "rrnn.tasks.search_space": "rrnn.tasks.search",
    "rrnn.tasks.search_workers": "rrnn.tasks.workers",
    # explorer
    "rrnn.explorer.design": "rrnn.explorer.design_tab",
    "rrnn.explorer.explain": "rrnn.explorer.explain_tab",
    "rrnn.explorer.guard": "rrnn.explorer.security",
    "rrnn.explorer.jobs": "rrnn.explorer.worker_main",
    "rrnn.explorer.runs": "rrnn.explorer.classifier_runs",
    "rrnn.explorer.score": "rrnn.explorer.score_tab",
    "rrnn.explorer.start": "rrnn.explorer.worker_main",
    # interpret
    "rrnn.interpret.masses": "rrnn.interpret.decompose",
    "rrnn.interpret.ranks": "rrnn.interpret.trellises",
    "rrnn.interpret.tables": "rrnn.interpret.trellises",
    "rrnn.interpret.values": "rrnn.interpret.reading",
    # theory
    "rrnn.theory.describe": "rrnn.theory.verify",
    "rrnn.theory.histories": "rrnn.theory.unit_automata",
    "rrnn.theory.layers": "rrnn.theory.unit_automata",
    # zoo
    "rrnn.zoo.elman": "rrnn.zoo.mixing",
    "rrnn.zoo.isan": "rrnn.zoo.mixing",
    "rrnn.zoo.modules": "rrnn.zoo.controls rrnn.zoo.recurrent",
    "rrnn.zoo.modules.controls": "rrnn.zoo.controls",
    "rrnn.zoo.modules.looped": "rrnn.zoo.controls",
    "rrnn.zoo.modules.recurrent": "rrnn.zoo.recurrent",
    "rrnn.zoo.modules.scrn": "rrnn.zoo.controls",
    "rrnn.zoo.modules.torch_rnns": "rrnn.zoo.recurrent",
    "rrnn.zoo.ngram": "rrnn.zoo.rrnn",
    "rrnn.zoo.qrnn": "rrnn.zoo.gated",
    "rrnn.zoo.patterns": "rrnn.zoo.chains",
    "rrnn.zoo.rcnn": "rrnn.zoo.chains",
    "rrnn.zoo.recent": "rrnn.zoo.gated",
    "rrnn.zoo.scrn": "rrnn.zoo.gated",
    "rrnn.zoo.sru": "rrnn.zoo.gated",
    "rrnn.zoo.strongly_typed": "rrnn.zoo.gated",
    "rrnn.zoo.table": "rrnn.zoo.models",
    # draw
    "rrnn.draw.cells": "rrnn.draw.automaton_diagrams",
    "rrnn.draw.curves": "rrnn.draw.routing",
    "rrnn.draw.dot": "rrnn.draw.diagram",
    "rrnn.draw.machines": "rrnn.draw.automaton_diagrams",
    "rrnn.draw.maths": "rrnn.draw.richtext",
    "rrnn.draw.paper": "rrnn.draw.paper_figures",
    "rrnn.draw.picture": "rrnn.draw.svg rrnn.draw.automaton_diagrams",
    "rrnn.draw.scene": "rrnn.draw.layout",
    "rrnn.draw.shapes": "rrnn.draw.geometry",
    "rrnn.draw.text": "rrnn.draw.richtext",
    # report
    "rrnn.report.explain": "rrnn.tasks.classify.explanations",
    "rrnn.report.explain_html": "rrnn.report.pages rrnn.tasks.classify.explanations",
    "rrnn.report.page": "rrnn.report.pages",
    "rrnn.report.page_curves": "rrnn.draw.charts",
    "rrnn.report.page_looks": "rrnn.tasks.classify.examples",
    "rrnn.report.page_parts": "rrnn.report.pages",
    "rrnn.report.page_runs": "rrnn.report.run_summaries",
    "rrnn.report.phrases": "rrnn.tasks.classify.examples",
}

# A name that moved or was renamed, with its module: the same for the new one.
NAMES: dict[str, str] = {
    # interpret
    "rrnn.interpret.Path": "rrnn.interpret.TokenPath",
    "rrnn.interpret.Step": "rrnn.interpret.PathStep",
    "rrnn.interpret.paths.Step": "rrnn.interpret.paths.PathStep",
    # report
    "rrnn.report.explain_html.page": "rrnn.report.explanation_page",
    "rrnn.report.page.page": "rrnn.report.report_page",
    "rrnn.report.page_curves.Curve": "rrnn.draw.charts.Series",
    "rrnn.report.page_runs.Kind": "rrnn.report.run_summaries.RunKind",
    "rrnn.report.page_runs.Reported": "rrnn.report.run_summaries.RunSummary",
}


def attributes(module: str) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that finds the names of `module` that moved."""

    def getattr_moved(name: str) -> Any:
        old = f"{module}.{name}"
        if old in NAMES:
            warnings.warn(f"{old} is now {NAMES[old]}", DeprecationWarning, stacklevel=2)
            owner, _, new = NAMES[old].rpartition(".")
            return getattr(import_module(owner), new)
        for owner in MODULES.get(module, "").split():
            if not name.startswith("__") and hasattr(import_module(owner), name):
                return getattr(import_module(owner), name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return getattr_moved


class _OldModules(MetaPathFinder, Loader):
    """Import an empty module for each row of `MODULES`; its names are looked up when they are used."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        # As a package, so that the rows below an old package are asked for.
        return ModuleSpec(fullname, self, is_package=True) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = " and ".join(MODULES[old].split())
        warnings.warn(
            f"{old} is now {new}", DeprecationWarning, stacklevel=2
        )  # importlib's frames do not count
        module.__dict__["__getattr__"] = attributes(old)


sys.meta_path.append(_OldModules())
