"""The compiler's middle: one program of one time step, its gradient, its parallel-in-time form."""

from rrnn.ir.adjoint import Adjoint, adjoint
from rrnn.ir.lower import Lowered, lower
from rrnn.ir.program import Instruction, Op, Program, verify
from rrnn.ir.scan import ReverseScan, Scan, reverse_scan_form, scan_form

__all__ = [
    "Adjoint",
    "Instruction",
    "Lowered",
    "Op",
    "Program",
    "ReverseScan",
    "Scan",
    "adjoint",
    "lower",
    "reverse_scan_form",
    "scan_form",
    "verify",
]
