"""Generated Triton modules: their source, and launches of their kernels that skip Triton's own launcher.

All kernels share one frame. A Triton program owns BLOCK units of one batch row and one chunk of time; it walks its
chunk serially, `unroll` steps at a time, with all loads issued ahead of the arithmetic. One chunk is the serial
schedule. With several, `summary` first composes each chunk's transition (the scan form), `join` runs the states from
chunk to chunk, and `forward` starts every chunk from its joined state; `chained` does all three in one launch.
Backwards the same with the reverse scan form. Packed sequences have kernels of their own, serial ones, in which a
program moves its pointers to its sequence and finds the length there.

At every call Triton's own launcher asks of each argument what a kernel may be specialised on, a quarter of the host's
time for a layer. All it can find is dtypes, which numbers are 1 or multiples of 16, and which pointers are. So what it
compiled for the same dtypes and numbers fits again, as long as all pointers are multiples of 16.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from types import ModuleType
from typing import Any

from torch import Tensor

from rrnn.backends.cache import cached
from rrnn.backends.triton.backward_kernels import BackwardKernels
from rrnn.backends.triton.forward_kernels import ForwardKernels
from rrnn.backends.triton.kernel_text import HEAD
from rrnn.backends.triton.plan import Plan, takes_chunks
from rrnn.ir import Program


@lru_cache(maxsize=256)
def render(program: Program, unroll: int, every: int, stages: int = 0, packed: bool = False) -> str:
    """Return the source of a module with the kernels of a program: `unroll` steps at a time forwards, states saved
    every `every` steps (0: none, and then no backward kernels), loads `stages` turns ahead in shared memory (0: one
    turn, in registers). Kernels of `packed` sequences walk each of them serially."""
    forwards = ForwardKernels(program, unroll, every, stages, packed)
    about = f"{program.name}, generated: unroll {unroll}, states saved every {every} steps, {stages} stages."
    about += " Packed sequences." if packed else ""
    parts = [f'"""{about}"""\n\n', HEAD, forwards.forward()]
    chunks = not packed and takes_chunks(program)
    if chunks:
        parts += [forwards.summary(), forwards.join(), forwards.chained()]
    if every:
        backwards = BackwardKernels(program, unroll, every, stages, packed)
        parts += [backwards.backward(), backwards.parameters()]
        if chunks:
            parts += [backwards.reverse_summary(), backwards.reverse_join(), backwards.reverse_chained()]
    return "".join(parts)


REMEMBERED = 4096  # calls with different numbers, of one module: lengths of sequences vary


class Kernels:
    """The kernels of a generated module, and what Triton has compiled of them."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self,
        name: str,
        grid: tuple[int, int, int],
        tensors: tuple[Tensor | None, ...],
        numbers: tuple[int, ...],
        how: Plan,
        masked: bool | None = None,
    ) -> None:
        """Launch a kernel, whose arguments are pointers, numbers, and constants: `masked`, if it knows masks, and the
        plan's block. The tensors' device is the current one."""
        pointers, dtypes, bits, device = [], [], 0, -1
        for t in tensors:
            if t is None:
                pointers.append(None)
                dtypes.append(None)
            else:
                pointers.append(at := t.data_ptr())
                dtypes.append(t.dtype)
                bits |= at
                device = t.get_device()
        key = (name, device, grid, masked, how.block, how.warps, numbers, *dtypes)
        known = None if bits & 15 else self._compiled.get(key)
        if known is not None:
            run, rest = known
            run(*pointers, *rest)
            return
        kernel = getattr(self.module, name)[grid](*tensors, *numbers, **how.options(MASKED=masked))
        if kernel is not None and not bits & 15:  # (Triton's interpreter compiles nothing.)
            if len(self._compiled) >= REMEMBERED:
                self._compiled.clear()
            constants = (how.block,) if masked is None else (masked, how.block)
            self._compiled[key] = kernel[grid], (*numbers, *constants)


@lru_cache(maxsize=512)
def kernels_of(program: Program, unroll: int, every: int, stages: int, packed: bool = False) -> Kernels:
    """Return the kernels of a program."""
    return Kernels(imported(render(program, unroll, every, stages, packed)))


def imported(source: str) -> ModuleType:
    """Return a generated module, imported from a content-hashed file, since Triton reads its kernels' source."""
    path = cached(source, ".py", source.encode)
    spec = importlib.util.spec_from_file_location(f"rrnn_generated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
