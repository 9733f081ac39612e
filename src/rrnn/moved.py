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
from pkgutil import resolve_name
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
    # wfsa
    "rrnn.wfsa.closure": "rrnn.wfsa.transitions",
    "rrnn.wfsa.exact": "rrnn.wfsa.minimise.exact_algebra",
    "rrnn.wfsa.expectation": "rrnn.wfsa.distribution",
    "rrnn.wfsa.io.costs": "rrnn.wfsa.io.labels_and_costs rrnn.wfsa.io.files",
    "rrnn.wfsa.io.symbol_table": "rrnn.wfsa.io.labels_and_costs",
    "rrnn.wfsa.kbest": "rrnn.wfsa.paths",
    "rrnn.wfsa.linear": "rrnn.wfsa.minimise.linear_algebra",
    "rrnn.wfsa.marginals": "rrnn.wfsa.forward_backward",
    "rrnn.wfsa.paper": "rrnn.zoo.paper_automata",
    "rrnn.wfsa.products": "rrnn.wfsa.transitions",
    "rrnn.wfsa.sampling": "rrnn.wfsa.distribution",
    "rrnn.wfsa.strings": "rrnn.wfsa.symbols",
    "rrnn.wfsa.subsets": "rrnn.wfsa.minimise.determinise",
    "rrnn.wfsa.tables": "rrnn.wfsa.forward_backward",
    "rrnn.wfsa.total": "rrnn.wfsa.distribution",
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
    # cli
    "rrnn.cli.overrides": "rrnn.cli.shared",
    "rrnn.cli.tables": "rrnn.cli.shared",
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

# A name that moved or was renamed, with its module: the same for the new one (perhaps a method, with its class).
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
    "rrnn.interpret.Step": "rrnn.interpret.PathStep",
    "rrnn.interpret.paths.Step": "rrnn.interpret.paths.PathStep",
    # report
    "rrnn.report.explain_html.page": "rrnn.report.explanation_page",
    "rrnn.report.page.page": "rrnn.report.report_page",
    "rrnn.report.page_curves.Curve": "rrnn.draw.charts.Series",
    "rrnn.report.page_runs.Kind": "rrnn.report.run_summaries.RunKind",
    "rrnn.report.page_runs.Reported": "rrnn.report.run_summaries.RunSummary",
    # wfsa: the paper's automata are made of the zoo's cells
    "rrnn.wfsa.automaton_b": "rrnn.zoo.paper_automata.automaton_b",
    "rrnn.wfsa.automaton_c": "rrnn.zoo.paper_automata.automaton_c",
    "rrnn.wfsa.automaton_d": "rrnn.zoo.paper_automata.automaton_d",
    "rrnn.wfsa.automaton_f": "rrnn.zoo.paper_automata.automaton_f",
    "rrnn.wfsa.ngram_chain": "rrnn.zoo.paper_automata.ngram_chain",
    # wfsa: functions of machines are methods
    "rrnn.wfsa.algebra.closure": "rrnn.wfsa.machine.WFSA.closure",
    "rrnn.wfsa.algebra.concatenation": "rrnn.wfsa.machine.WFSA.concatenate",
    "rrnn.wfsa.algebra.intersection": "rrnn.wfsa.machine.WFSA.intersect",
    "rrnn.wfsa.algebra.remove_epsilon": "rrnn.wfsa.machine.WFSA.remove_epsilon",
    "rrnn.wfsa.algebra.reverse": "rrnn.wfsa.machine.WFSA.reverse",
    "rrnn.wfsa.algebra.scale": "rrnn.wfsa.machine.WFSA.scale",
    "rrnn.wfsa.algebra.trim": "rrnn.wfsa.machine.WFSA.trim",
    "rrnn.wfsa.algebra.union": "rrnn.wfsa.machine.WFSA.union",
    "rrnn.wfsa.closure.closure": "rrnn.wfsa.transitions.closure_under",
    "rrnn.wfsa.expectation.entropy": "rrnn.wfsa.machine.WFSA.entropy",
    "rrnn.wfsa.expectation.expected": "rrnn.wfsa.machine.WFSA.expected",
    "rrnn.wfsa.kbest.k_best": "rrnn.wfsa.machine.WFSA.k_best",
    "rrnn.wfsa.marginals.arc_marginals": "rrnn.wfsa.machine.WFSA.arc_marginals",
    "rrnn.wfsa.minimise.equivalent": "rrnn.wfsa.machine.WFSA.equivalent",
    "rrnn.wfsa.minimise.minimise": "rrnn.wfsa.machine.WFSA.minimise",
    "rrnn.wfsa.paths.score_by_paths": "rrnn.wfsa.machine.WFSA.score_by_paths",
    "rrnn.wfsa.sampling.sample": "rrnn.wfsa.machine.WFSA.sample",
    "rrnn.wfsa.sampling.sample_paths": "rrnn.wfsa.machine.WFSA.sample_paths",
    "rrnn.wfsa.scoring.prefix_scores": "rrnn.wfsa.machine.WFSA.prefix_scores",
    "rrnn.wfsa.scoring.score": "rrnn.wfsa.machine.WFSA.score",
    "rrnn.wfsa.strings.encode": "rrnn.wfsa.machine.WFSA.encode",
    "rrnn.wfsa.tables.backward": "rrnn.wfsa.machine.WFSA.backward",
    "rrnn.wfsa.tables.forward": "rrnn.wfsa.machine.WFSA.forward",
    "rrnn.wfsa.total.total_weight": "rrnn.wfsa.machine.WFSA.total_weight",
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
            return resolve_name(NAMES[old])
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
