"""Make programs of one function, and run them on many arguments at once by generated C code."""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.backends import get_backend
from rrnn.backends.interface import CellCall
from rrnn.ir import Op, Program
from rrnn.ir.builder import Builder, Value
from rrnn.semirings import get_semiring


def function_program(op: Op | str, *, of_logaddexp: bool = False) -> Program:
    """Return a program without states whose output is one function of its projections.

    The function is an op, or the name of a composite of one argument. `of_logaddexp` replaces the last argument by the
    logaddexp of both, as SHARE gets it in gradients.
    """
    b, arity = Builder(get_semiring("real")), 1 if isinstance(op, str) else op.arity
    args = [b.leaf(Op.PREACT, k) for k in range(arity)]
    if of_logaddexp:
        args[1] = b.emit(Op.LOGADDEXP, *args)
    name = op if isinstance(op, str) else op.text
    value = b.number_of(getattr(b.arithmetic, name)(*(Value(b, n) for n in args)))
    program, _ = b.finish(
        f"test_{name}",
        projections=tuple("abc"[:arity]),
        parameters=(),
        states=(),
        initial=(),
        outputs=[("score", 0, value), ("output", 0, value)],
    )
    return program


def apply(program: Program, *args: Tensor) -> Tensor:
    """Return the output of the program on 1-dimensional arguments, computed by the native backend."""
    n = args[0].numel()
    x = torch.stack([a.reshape(n) for a in args]).view(1, 1, len(args), n)
    out, none = torch.empty(1, 1, n, dtype=x.dtype), torch.empty(0, n, dtype=x.dtype)
    state = torch.empty(0, 1, n, dtype=x.dtype)
    get_backend("native").forward(CellCall(program, x, none), state, out)
    return out.view(n)
