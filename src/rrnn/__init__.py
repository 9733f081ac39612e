"""Write a weighted finite-state automaton, get a fast recurrent layer; train a layer, read it back.

The public names, on one screen. Each is imported from its module when first used, so that `import rrnn`
and `rrnn --help` do not wait for torch. A name stands twice: in `_EXPORTS`, for Python, and under
`TYPE_CHECKING`, for type checkers and editors; a test keeps the two equal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name → module (inside rrnn) that owns it
_EXPORTS: dict[str, str] = {
    "AutomatonError": "errors",
    "BackendError": "errors",
    "CellError": "errors",
    "EPSILON": "wfsa",
    "FormatError": "errors",
    "ProgramError": "errors",
    "RRNNError": "errors",
    "SemiringError": "errors",
    "ShapeError": "errors",
    "WFSA": "wfsa",
}

if TYPE_CHECKING:
    from rrnn.errors import AutomatonError as AutomatonError
    from rrnn.errors import BackendError as BackendError
    from rrnn.errors import CellError as CellError
    from rrnn.errors import FormatError as FormatError
    from rrnn.errors import ProgramError as ProgramError
    from rrnn.errors import RRNNError as RRNNError
    from rrnn.errors import SemiringError as SemiringError
    from rrnn.errors import ShapeError as ShapeError
    from rrnn.wfsa import EPSILON as EPSILON
    from rrnn.wfsa import WFSA as WFSA

__all__ = ["__version__", *_EXPORTS]  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # a type checker that saw this would believe in any name

    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'rrnn' has no attribute {name!r}")
        value = getattr(import_module(f"rrnn.{_EXPORTS[name]}"), name)
        globals()[name] = value  # next time without this function
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
