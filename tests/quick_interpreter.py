"""Make Triton's interpreter faster, without a change to what it computes.

A launch replaces the functions of triton.language by interpreted ones. The interpreter does this again at each call of
a device function inside the launch, where nothing is left to replace. Each operation makes the type of its result, the
shape of this type and a table of NumPy's types anew, and each operation on integers does seven more to find overflows,
which it then reports only in debug mode. The source of each function is read three times.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any
from unittest import mock


@cache
def hurry() -> None:
    """Let the interpreter do once what it does at every operation or call."""
    _patch_once_a_launch()
    _make_types_once()
    _skip_unreported_overflows()
    _read_sources_once()


def _patch_once_a_launch() -> None:
    """Let a launch look for functions to replace once in each module of Triton's language, not at every call."""
    from triton.runtime import interpreter

    executor, patch_lang = interpreter.GridExecutor, interpreter._patch_lang
    run, modules = executor.__call__, {id(interpreter.tl), id(interpreter.tl.core)}
    seen: set[Any] = set()  # functions, and the modules that they see

    @wraps(run)
    def launch(self: Any, *args: Any, **options: Any) -> Any:
        seen.clear()
        return run(self, *args, **options)

    @wraps(patch_lang)
    def patch(fn: Any) -> Any:
        if fn in seen:
            return None
        visible = modules.intersection(map(id, fn.__globals__.values()))
        new = not visible <= seen
        seen.update(visible, [fn])
        return patch_lang(fn) if new else None

    executor.__call__, interpreter._patch_lang = launch, patch


def _make_types_once() -> None:
    """Keep what a type's name alone decides: NumPy's type, and what a block or a tensor of it says of its shape."""
    from triton.language import core
    from triton.runtime import interpreter

    interpreter._get_np_dtype = _by_name(interpreter._get_np_dtype)
    same = core.dtype.__eq__
    core.dtype.__eq__ = lambda a, b: a is b or same(a, b)  # most are compared with themselves

    block, tensor = core.block_type.__init__, core.tensor.__init__
    blocks: dict[Any, dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}

    @wraps(block)
    def make_block(self: Any, element_ty: Any, shape: Any) -> None:
        key = element_ty.name, *(getattr(size, "value", size) for size in shape)
        if key not in blocks:
            block(self, element_ty, shape)
            blocks[key] = vars(self).copy()
        vars(self).update(blocks[key], element_ty=element_ty)

    @wraps(tensor)
    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        if type.name not in tensors:
            tensor(self, handle, type)
            tensors[type.name] = {name: vars(self)[name] for name in ("shape", "numel")}
        vars(self).update(tensors[type.name], handle=handle, type=type, dtype=type.scalar)

    core.block_type.__init__, core.tensor.__init__ = make_block, make_tensor


def _by_name(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of a type that keeps its results by the type's name, since not every type can be hashed."""
    known: dict[str, Any] = {}

    @wraps(function)
    def call(dtype: Any) -> Any:
        if dtype.name not in known:
            known[dtype.name] = function(dtype)
        return known[dtype.name]

    return call


def _skip_unreported_overflows() -> None:
    """Look for overflows of integers only where they would be reported: in the interpreter's debug mode."""
    from triton.language.semantic import TritonSemantic

    look = TritonSemantic.binary_op_sanitize_overflow_impl

    @wraps(look)
    def look_in_debug_mode(self: Any, *args: Any) -> None:
        if self.builder.options.debug:
            look(self, *args)

    TritonSemantic.binary_op_sanitize_overflow_impl = look_in_debug_mode


def _read_sources_once() -> None:
    """Let the interpreter read each function's source once, and parse it where it stands, so that no line number of its
    tree has to be moved."""
    from triton.runtime.interpreter import FunctionRewriter

    rewrite = FunctionRewriter.rewrite_ast

    @wraps(rewrite)
    def rewrite_from_one_reading(self: Any) -> Any:
        with mock.patch.object(inspect, "getsourcelines", cache(inspect.getsourcelines)):
            return rewrite(self)

    def transform(self: Any, source: str) -> ast.AST:
        tree = ast.parse("\n" * (self.def_file_lineno - 1) + source)
        return ast.fix_missing_locations(self.ast_transformer.visit(tree))

    FunctionRewriter.rewrite_ast, FunctionRewriter._transform_ast = rewrite_from_one_reading, transform
