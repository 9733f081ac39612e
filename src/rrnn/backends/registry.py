"""Choose the backend that runs: the one asked for by name, or the fastest that works here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cache

import torch

from rrnn.backends.interface import Backend
from rrnn.errors import BackendError
from rrnn.ir import Program

# name → "module:class", imported on first use; in order of preference
TABLE = {
    "matrix": "rrnn.backends.matrix:Matrix",
    "affine": "rrnn.backends.affine:Affine",
    "native": "rrnn.backends.native:Native",
    "triton": "rrnn.backends.triton:Triton",
    "reference": "rrnn.backends.reference:Reference",
}
FAMILIES_ONLY = ("matrix", "affine")
"""The backends that run some families of states, and nothing else."""

_choice = "auto"  # a plain global: torch.compile reads and guards it


@cache
def get_backend(name: str) -> Backend:
    """Return the backend of a name; it is imported on first use."""
    if name not in TABLE:
        raise BackendError(f"unknown backend {name!r}: the backends are auto, {', '.join(TABLE)}")
    module, _, attribute = TABLE[name].partition(":")
    return getattr(importlib.import_module(module), attribute)()


class _UseBackend:
    """The result of `use_backend`: already in force; as a context manager it is undone at the end."""

    def __init__(self, name: str) -> None:
        if name != "auto":
            get_backend(name)
        global _choice
        self._before, _choice = _choice, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        global _choice
        _choice = self._before


def use_backend(name: str) -> _UseBackend:
    """Use one backend from now on, or inside `with use_backend("reference"): …`. "auto" is the default."""
    return _UseBackend(name)


def chosen() -> str:
    """Return the name in force: "auto" or a backend's."""
    return _choice


def resolve(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    programs: Sequence[Program],
    *,
    steps: int | None = None,
    packed: bool = False,
) -> Backend:
    """Return the backend that runs these programs on this device, for so many steps if that is known. One that is asked
    for by name must work, or it is an error. For `packed` sequences, "auto" takes a backend that does not wait for a
    GPU, if there is one."""
    if name != "auto":
        backend = get_backend(name)
        for program in programs:
            if why := backend.why_not(device, dtype, program):
                raise BackendError(f"the {name} backend cannot run {program.name!r} here: {why}")
        return backend
    wide = False  # a plain loop: a generator takes half a microsecond at every call
    for program in programs:
        wide = wide or program.wide is not None
    for candidate in _candidates(device, wide):
        backend = get_backend(candidate)
        if packed and device.type != "cpu" and not backend.packs:
            continue  # it would ask the device for the offsets, and run many short calls
        for program in programs:
            if backend.why_not(device, dtype, program) or not backend.pays(device, dtype, program, steps):
                backend.passed_over(device, dtype)
                break
        else:
            return backend
    if packed:  # no backend that works here has kernels for them
        return resolve(name, device, dtype, programs)
    raise AssertionError("the reference runs everything")


@cache
def _candidates(device: torch.device, wide: bool) -> tuple[str, ...]:
    """Return the backends that "auto" asks on a device, for programs of which some have families, or none."""
    never = {
        "triton": device.type
        != "cuda",  # its interpreter runs on the CPU, for tests: a thousand times slower
        "native": device.type != "cpu",  # no reason to warn at every call
        **dict.fromkeys(FAMILIES_ONLY, not wide),
    }
    return tuple(name for name in TABLE if not never.get(name))


def report(device: torch.device) -> Iterator[tuple[str, str | None]]:
    """Yield (backend, None or why it does not work on this device), for `rrnn doctor`."""
    for name in TABLE:
        yield name, get_backend(name).why_not(device, torch.float32)
