"""Write a weighted finite-state automaton, get a fast recurrent layer; train a layer, read it back.

The public names, on one screen. Each is imported from its module when first used, so that `import rrnn`
and `rrnn --help` do not wait for torch. A name stands twice: in `_EXPORTS`, for Python, and under
`TYPE_CHECKING`, for type checkers and editors; a test keeps the two equal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rrnn import moved as _moved  # noqa: F401  # finds the modules of version 0.1

__version__ = "0.2.0"

# name → module (inside rrnn) that owns it
_EXPORTS: dict[str, str] = {
    "automaton_b": "zoo.paper_automata",
    "automaton_c": "zoo.paper_automata",
    "automaton_d": "zoo.paper_automata",
    "automaton_f": "zoo.paper_automata",
    "AutomatonError": "errors",
    "BackendError": "errors",
    "Cell": "automata",
    "CellError": "errors",
    "complex": "automata",
    "concatenate": "automata",
    "construct": "automata",
    "cos": "automata",
    "DataError": "errors",
    "DivergedError": "errors",
    "EPSILON": "wfsa",
    "equations": "ir.equations",
    "Equivalence": "wfsa",
    "exp": "automata",
    "export": "exporters",
    "ExportError": "errors",
    "family": "automata",
    "FormatError": "errors",
    "from_regex": "wfsa",
    "get_cell": "zoo",
    "GrowthWarning": "errors",
    "index": "automata",
    "initial_states": "exporters",
    "input": "automata",
    "instantiate": "wfsa",
    "interpolate": "automata",
    "ISAN": "zoo.mixing",
    "latex": "ir.equations",
    "linear": "automata",
    "LinearElman": "zoo.mixing",
    "load": "tasks.runs",
    "log": "automata",
    "log_sigmoid": "automata",
    "ngram_chain": "zoo.paper_automata",
    "one": "automata",
    "OutputWarning": "errors",
    "onnx_translations": "exporters",
    "pair": "automata",
    "parameter": "automata",
    "polar": "automata",
    "ProgramError": "errors",
    "RationalRNN": "nn",
    "read_cell": "zoo",
    "register_semiring": "semirings",
    "relabel": "automata",
    "relu": "automata",
    "RRNNError": "errors",
    "RunError": "errors",
    "scale": "automata",
    "score": "automata",
    "Semiring": "semirings",
    "SemiringError": "errors",
    "ShapeError": "errors",
    "sigmoid": "automata",
    "signed": "automata",
    "silu": "automata",
    "sin": "automata",
    "softplus": "automata",
    "sqrt": "automata",
    "step": "automata",
    "tanh": "automata",
    "to_dot": "draw",
    "to_svg": "draw",
    "to_wfsa": "theory",
    "uniform": "automata",
    "union": "automata",
    "unroll": "automata",
    "use_backend": "backends",
    "valued": "automata",
    "WFSA": "wfsa",
    "zero": "automata",
}

# packages that can be used without importing them: rrnn.nn.from_wfsa(…)
_PACKAGES = ("nn", "theory", "wfsa", "zoo")

if TYPE_CHECKING:
    from rrnn import nn as nn
    from rrnn import theory as theory
    from rrnn import wfsa as wfsa
    from rrnn import zoo as zoo
    from rrnn.automata import Cell as Cell
    from rrnn.automata import complex as complex
    from rrnn.automata import concatenate as concatenate
    from rrnn.automata import construct as construct
    from rrnn.automata import cos as cos
    from rrnn.automata import exp as exp
    from rrnn.automata import family as family
    from rrnn.automata import index as index
    from rrnn.automata import input as input
    from rrnn.automata import interpolate as interpolate
    from rrnn.automata import linear as linear
    from rrnn.automata import log as log
    from rrnn.automata import log_sigmoid as log_sigmoid
    from rrnn.automata import one as one
    from rrnn.automata import pair as pair
    from rrnn.automata import parameter as parameter
    from rrnn.automata import polar as polar
    from rrnn.automata import relabel as relabel
    from rrnn.automata import relu as relu
    from rrnn.automata import scale as scale
    from rrnn.automata import score as score
    from rrnn.automata import sigmoid as sigmoid
    from rrnn.automata import signed as signed
    from rrnn.automata import silu as silu
    from rrnn.automata import sin as sin
    from rrnn.automata import softplus as softplus
    from rrnn.automata import sqrt as sqrt
    from rrnn.automata import step as step
    from rrnn.automata import tanh as tanh
    from rrnn.automata import uniform as uniform
    from rrnn.automata import union as union
    from rrnn.automata import unroll as unroll
    from rrnn.automata import valued as valued
    from rrnn.automata import zero as zero
    from rrnn.backends import use_backend as use_backend
    from rrnn.draw import to_dot as to_dot
    from rrnn.draw import to_svg as to_svg
    from rrnn.errors import AutomatonError as AutomatonError
    from rrnn.errors import BackendError as BackendError
    from rrnn.errors import CellError as CellError
    from rrnn.errors import DataError as DataError
    from rrnn.errors import DivergedError as DivergedError
    from rrnn.errors import ExportError as ExportError
    from rrnn.errors import FormatError as FormatError
    from rrnn.errors import GrowthWarning as GrowthWarning
    from rrnn.errors import OutputWarning as OutputWarning
    from rrnn.errors import ProgramError as ProgramError
    from rrnn.errors import RRNNError as RRNNError
    from rrnn.errors import RunError as RunError
    from rrnn.errors import SemiringError as SemiringError
    from rrnn.errors import ShapeError as ShapeError
    from rrnn.exporters import export as export
    from rrnn.exporters import initial_states as initial_states
    from rrnn.exporters import onnx_translations as onnx_translations
    from rrnn.ir.equations import equations as equations
    from rrnn.ir.equations import latex as latex
    from rrnn.nn import RationalRNN as RationalRNN
    from rrnn.semirings import Semiring as Semiring
    from rrnn.semirings import register_semiring as register_semiring
    from rrnn.tasks.runs import load as load
    from rrnn.theory import to_wfsa as to_wfsa
    from rrnn.wfsa import EPSILON as EPSILON
    from rrnn.wfsa import WFSA as WFSA
    from rrnn.wfsa import Equivalence as Equivalence
    from rrnn.wfsa import from_regex as from_regex
    from rrnn.wfsa import instantiate as instantiate
    from rrnn.zoo import get_cell as get_cell
    from rrnn.zoo import read_cell as read_cell
    from rrnn.zoo.mixing import ISAN as ISAN
    from rrnn.zoo.mixing import LinearElman as LinearElman
    from rrnn.zoo.paper_automata import automaton_b as automaton_b
    from rrnn.zoo.paper_automata import automaton_c as automaton_c
    from rrnn.zoo.paper_automata import automaton_d as automaton_d
    from rrnn.zoo.paper_automata import automaton_f as automaton_f
    from rrnn.zoo.paper_automata import ngram_chain as ngram_chain

# All but `input` and `complex`: `from rrnn import *` should not hide the built-in ones.
__all__ = ["__version__", *(name for name in _EXPORTS if name not in ("input", "complex"))]  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # a type checker that saw this would believe in any name

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f"rrnn.{name}")
        if name not in _EXPORTS:
            raise AttributeError(f"module 'rrnn' has no attribute {name!r}")
        value = getattr(import_module(f"rrnn.{_EXPORTS[name]}"), name)
        globals()[name] = value  # next time without this function
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_PACKAGES})
