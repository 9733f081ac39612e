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
    # cli
    "rrnn.cli.overrides": "rrnn.cli.tasks",
    # tasks
    "rrnn.tasks.averaging": "rrnn.tasks.update",
    "rrnn.tasks.classify.batches": "rrnn.tasks.classify.prepare",
    "rrnn.tasks.classify.evaluate": "rrnn.tasks.classify.trained",
    "rrnn.tasks.classify.fused": "rrnn.tasks.update",
    "rrnn.tasks.classify.graphs": "rrnn.tasks.graphs",
    "rrnn.tasks.classify.kernels": "rrnn.tasks.step_kernels",
    "rrnn.tasks.classify.patterns": "rrnn.tasks.classify.single_units",
    "rrnn.tasks.classify.spelling": "rrnn.tasks.classify.model",
    "rrnn.tasks.classify.table": "rrnn.tasks.paper_tables",
    "rrnn.tasks.classify.train": "rrnn.tasks.classify.experiment",
    "rrnn.tasks.data.cleaning": "rrnn.tasks.data.text_files",
    "rrnn.tasks.data.cooccurrence": "rrnn.tasks.data.vectors",
    "rrnn.tasks.data.decimals": "rrnn.tasks.data.vector_files",
    "rrnn.tasks.data.published": "rrnn.tasks.data.labelled",
    "rrnn.tasks.data.python_reference": "rrnn.tasks.data.corpus",
    "rrnn.tasks.data.rows": "rrnn.tasks.data.labelled_files",
    "rrnn.tasks.data.sources": "rrnn.tasks.data.download rrnn.tasks.data.catalogue",
    "rrnn.tasks.data.splits": "rrnn.tasks.data.text_files",
    "rrnn.tasks.data.text": "rrnn.tasks.data.text_files",
    "rrnn.tasks.lm.baselines": "rrnn.tasks.lm.model",
    "rrnn.tasks.lm.evaluate": "rrnn.tasks.lm.trained",
    "rrnn.tasks.lm.generate": "rrnn.tasks.lm.trained",
    "rrnn.tasks.lm.graph": "rrnn.tasks.graphs",
    "rrnn.tasks.lm.kernels": "rrnn.tasks.step_kernels",
    "rrnn.tasks.lm.precision": "rrnn.tasks.lm.loss",
    "rrnn.tasks.lm.sizes": "rrnn.tasks.lm.experiment",
    "rrnn.tasks.lm.table": "rrnn.tasks.paper_tables",
    "rrnn.tasks.lm.train": "rrnn.tasks.lm.experiment rrnn.tasks.runs",
    "rrnn.tasks.lm.weights": "rrnn.tasks.update",
    "rrnn.tasks.load": "rrnn.tasks.runs",
    "rrnn.tasks.parallel": "rrnn.tasks.training",
    "rrnn.tasks.plots": "rrnn.tasks.progress",
    "rrnn.tasks.update_kernels": "rrnn.tasks.step_kernels",
}

# A name that moved or was renamed, with its module: the same for the new one.
NAMES: dict[str, str] = {
    # interpret
    "rrnn.interpret.Path": "rrnn.interpret.TokenPath",
    # tasks
    "rrnn.tasks.data.synthetic.Task": "rrnn.tasks.data.synthetic.SyntheticTask",
    "rrnn.tasks.classify.table.PAPER": "rrnn.tasks.paper_tables.PAPER_ACCURACIES",
    "rrnn.tasks.classify.table.Row": "rrnn.tasks.paper_tables.AccuracyRow",
    "rrnn.tasks.classify.table.table_of": "rrnn.tasks.paper_tables.accuracy_table",
    "rrnn.tasks.classify.table.to_json": "rrnn.tasks.paper_tables.accuracies_to_json",
    "rrnn.tasks.classify.table.to_markdown": "rrnn.tasks.paper_tables.accuracies_to_markdown",
    "rrnn.tasks.lm.table.PAPER": "rrnn.tasks.paper_tables.PAPER_PERPLEXITIES",
    "rrnn.tasks.lm.table.OurRow": "rrnn.tasks.paper_tables.PerplexityRow",
    "rrnn.tasks.lm.table.PaperRow": "rrnn.tasks.paper_tables.PaperPerplexity",
    "rrnn.tasks.lm.table.table_of": "rrnn.tasks.paper_tables.perplexity_table",
    "rrnn.tasks.lm.table.to_json": "rrnn.tasks.paper_tables.perplexities_to_json",
    "rrnn.tasks.lm.table.to_markdown": "rrnn.tasks.paper_tables.perplexities_to_markdown",
    "rrnn.tasks.lm.graph.Beside": "rrnn.tasks.graphs.SideStream",
    "rrnn.tasks.lm.graph.Steps": "rrnn.tasks.graphs.Graphs",
    "rrnn.tasks.lm.weights.Weights": "rrnn.tasks.update.FlatWeights",
    "rrnn.tasks.lm.sizes.solve_hidden": "rrnn.tasks.lm.experiment.solve_hidden_size",
    "rrnn.tasks.lm.train.Work": "rrnn.tasks.lm.experiment.Prepared",
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
