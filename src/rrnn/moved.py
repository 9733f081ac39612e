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
    # arithmetic
    "rrnn.arithmetic.text": "rrnn.arithmetic",
    "rrnn.arithmetic.ops": "rrnn.arithmetic.scalar_ops",
    # semirings
    "rrnn.semirings.base": "rrnn.semirings.semiring",
    "rrnn.semirings.closure": "rrnn.semirings.epsilon_closure",
    "rrnn.semirings.convergence": "rrnn.semirings.epsilon_closure",
    "rrnn.semirings.components": "rrnn.semirings.tensor_products",
    "rrnn.semirings.kernels": "rrnn.semirings.autograd",
    "rrnn.semirings.products": "rrnn.semirings.tensor_products",
    # automata
    "rrnn.automata.algebra": "rrnn.automata.cell_algebra",
    "rrnn.automata.check": "rrnn.automata.cell_rules",
    "rrnn.automata.evaluate": "rrnn.automata.evaluator",
    "rrnn.automata.names": "rrnn.automata.expression_text",
    "rrnn.automata.ranges": "rrnn.automata.evaluator",
    "rrnn.automata.rules": "rrnn.automata.expression_rules",
    "rrnn.automata.syntax": "rrnn.automata.expression_text",
    "rrnn.automata.text": "rrnn.automata.cell_text rrnn.automata",
    # ir
    "rrnn.ir.evaluate": "rrnn.ir.interpreter",
    "rrnn.ir.flat": "rrnn.ir.builder",
    "rrnn.ir.idioms": "rrnn.ir.formulas",
    "rrnn.ir.ops": "rrnn.ir.program",
    "rrnn.ir.scan_text": "rrnn.ir.equations",
    "rrnn.ir.verify": "rrnn.ir.interpreter",
    "rrnn.ir.write": "rrnn.ir.formulas",
    # backends
    "rrnn.backends.base": "rrnn.backends.interface",
    "rrnn.backends.cells": "rrnn.backends.layer_call",
    "rrnn.backends.fork": "rrnn.backends.interface",
    "rrnn.backends.native.affine": "rrnn.backends.native.backend",
    "rrnn.backends.native.lines": "rrnn.backends.native.loops",
    "rrnn.backends.native.threads": "rrnn.backends.native.compiler",
    "rrnn.backends.triton.backwards": "rrnn.backends.triton.backward_kernels",
    "rrnn.backends.triton.chain": "rrnn.backends.triton.chained_chunks",
    "rrnn.backends.triton.forwards": "rrnn.backends.triton.forward_kernels",
    "rrnn.backends.triton.kernel": "rrnn.backends.triton.kernel_text",
    "rrnn.backends.triton.launch": "rrnn.backends.triton.module",
    "rrnn.backends.triton.render": "rrnn.backends.triton.module",
    "rrnn.backends.triton.walk": "rrnn.backends.triton.time_loop",
    # nn
    "rrnn.nn.dense": "rrnn.nn.affine",
    "rrnn.nn.init": "rrnn.nn.layer_weights",
    "rrnn.nn.layout": "rrnn.nn.sequences",
    "rrnn.nn.masks": "rrnn.nn.sequences",
    "rrnn.nn.parameters": "rrnn.nn.layer_weights",
    "rrnn.nn.rows": "rrnn.nn.layer_weights",
    "rrnn.nn.state": "rrnn.nn.sequences rrnn.nn.arguments",
}

# A name that moved or was renamed, with its module: the same for the new one.
NAMES: dict[str, str] = {
    # arithmetic
    "rrnn.arithmetic.text.NAMES": "rrnn.arithmetic.TEXTS",
    "rrnn.arithmetic.text.Text": "rrnn.arithmetic.TextValue",
    # semirings
    "rrnn.semirings.closure.Grid": "rrnn.semirings.epsilon_closure.SparseMatrix",
    "rrnn.semirings.closure.Tensors": "rrnn.semirings.epsilon_closure.TensorMatrix",
    # backends
    "rrnn.backends.base.rows": "rrnn.backends.interface.units_contiguous",
    "rrnn.backends.cells.Cells": "rrnn.backends.layer_call.LayerCells",
    # nn
    "rrnn.nn.rows.Rows": "rrnn.nn.layer_weights.ProjectionRows",
    "rrnn.nn.rows.rows_of": "rrnn.nn.layer_weights.lay_out_rows",
    # interpret
    "rrnn.interpret.Path": "rrnn.interpret.TokenPath",
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
