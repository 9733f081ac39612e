"""Which backend runs: by name, by default, inside `with`, and what is said when one cannot."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from cell_calls import cell

from rrnn.backends import Backend, chosen, get_backend, registry, report, resolve, use_backend
from rrnn.backends.reference import Reference
from rrnn.errors import BackendError
from rrnn.ir import Program, lower

CPU = torch.device("cpu")
PROGRAM = lower(cell("F")).program


class Picky(Reference):
    """Works, but not for everyone."""

    name = "picky"

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        return None if dtype == torch.float32 else "it wants float32"


@pytest.fixture(autouse=True)
def undo() -> object:
    with use_backend("auto"):
        yield


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A table with one more backend, preferred to the reference."""
    monkeypatch.setattr(
        registry, "TABLE", {"picky": f"{__name__}:Picky", "reference": registry.TABLE["reference"]}
    )
    monkeypatch.setattr(
        registry, "_candidates", cache(registry._candidates.__wrapped__)
    )  # it remembers the table
    found = Picky()
    get_before = registry.get_backend
    monkeypatch.setattr(registry, "get_backend", lambda name: found if name == "picky" else get_before(name))
    return found


def test_use_backend_from_now_on_and_inside_with() -> None:
    use_backend("reference")
    assert chosen() == "reference"
    with use_backend("auto"):
        assert chosen() == "auto"
        with use_backend("reference"):
            assert chosen() == "reference"
        assert chosen() == "auto"
    assert chosen() == "reference"
    with pytest.raises(RuntimeError), use_backend("auto"):
        raise RuntimeError
    assert chosen() == "reference"


def test_an_unknown_name_changes_nothing() -> None:
    with pytest.raises(BackendError, match=r"unknown backend 'cuda': the backends are auto, .*reference"):
        use_backend("cuda")
    assert chosen() == "auto"


def test_the_first_that_works_runs(picky: Backend) -> None:
    assert resolve("auto", CPU, torch.float32, [PROGRAM]) is picky
    assert resolve("auto", CPU, torch.float64, [PROGRAM]).name == "reference"
    assert dict(report(CPU)) == {"picky": None, "reference": None}


def test_packed_sequences_on_a_gpu_take_a_backend_that_has_kernels_for_them(
    picky: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ones wait for the device, to read the offsets. (Any device but the CPU will do here.)"""
    elsewhere = torch.device("meta")
    assert resolve("auto", elsewhere, torch.float32, [PROGRAM], packed=True) is picky  # neither has kernels
    monkeypatch.setattr(get_backend("reference"), "packs", True)
    assert resolve("auto", elsewhere, torch.float32, [PROGRAM], packed=True).name == "reference"
    assert resolve("auto", elsewhere, torch.float32, [PROGRAM]) is picky
    assert resolve("auto", CPU, torch.float32, [PROGRAM], packed=True) is picky
    assert resolve("picky", elsewhere, torch.float32, [PROGRAM], packed=True) is picky


def test_which_backends_have_kernels_for_packed_sequences() -> None:
    assert {name for name in registry.TABLE if get_backend(name).packs} == {"native", "triton", "matrix"}


def test_one_asked_for_must_work(picky: Backend) -> None:
    assert resolve("picky", CPU, torch.float32, [PROGRAM]) is picky
    with pytest.raises(BackendError, match="the picky backend cannot run 'F' here: it wants float32"):
        resolve("picky", CPU, torch.float64, [PROGRAM])


def test_every_backend_answers() -> None:
    for name in registry.TABLE:
        backend = get_backend(name)
        assert backend.name == name and backend is get_backend(name)
        why = backend.why_not(CPU, torch.float32, PROGRAM)
        assert why is None or (why and not why.endswith("."))
    assert get_backend("reference").why_not(CPU, torch.float64) is None
