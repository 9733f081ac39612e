"""The compiler's intermediate representation.

`lower` turns a cell into a `Program`, the straight-line code of one time step. From it come `Program.flat` (numbers in
place of elements), `adjoint` (the step backwards) and `scan_form` (chunks of time in parallel). Backends run these.
"""

from rrnn.ir.adjoint import Adjoint, adjoint
from rrnn.ir.lower import Lowered, lower
from rrnn.ir.program import Instruction, Op, Program, verify
from rrnn.ir.scan import ReverseScan, Scan, has_scan_form, reverse_scan_form, scan_form

__all__ = [
    "Adjoint",
    "Instruction",
    "Lowered",
    "Op",
    "Program",
    "ReverseScan",
    "Scan",
    "adjoint",
    "has_scan_form",
    "lower",
    "reverse_scan_form",
    "scan_form",
    "verify",
]
