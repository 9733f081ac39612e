"""Semirings that a user defines outside the package, through all of it: layers, WFSAs, files, pictures, verification.

Łukasiewicz' degrees of truth are one number, and ⊗ is no single op. Dual numbers ⟨x, dx⟩ have two, written with
Python's operators. Layers are compared with a loop over Python floats that uses the definitions of ⊕ and ⊗ alone.
"""

from __future__ import annotations

import ast
import copy
import json
import math
import os
import pickle
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from kernel_cases import needs_interpreter
from torch import Tensor
from user_semirings import (
    BATCH,
    DUAL,
    LUKASIEWICZ,
    UNITS,
    T,
    bigrams,
    expected,
    inputs,
    layer_of,
    machine_over,
)

import rrnn
from rrnn import WFSA, Cell, RationalRNN, Semiring, interpret, linear
from rrnn.backends import get_backend
from rrnn.backends.interface import CellCall, Gradients
from rrnn.backends.layer_call import epilogue
from rrnn.cli import main
from rrnn.cli.derive import summary
from rrnn.errors import CellError, FormatError, SemiringError
from rrnn.explorer.design_tab import design
from rrnn.explorer.score_tab import score as explore
from rrnn.ir import lower
from rrnn.ir.equations import scan_text
from rrnn.semirings import SEMIRINGS
from rrnn.theory import verify_cell
from rrnn.theory.unit_automata import scores
from rrnn.wfsa.io import load, save


@pytest.fixture(params=[LUKASIEWICZ, DUAL], ids=["lukasiewicz", "dual"])
def ring(request: pytest.FixtureRequest) -> Iterator[Semiring]:
    """A semiring that is registered during one test."""
    with mock.patch.dict(SEMIRINGS):
        yield rrnn.register_semiring(request.param)


@pytest.fixture
def dual() -> Iterator[Semiring]:
    with mock.patch.dict(SEMIRINGS):
        yield rrnn.register_semiring(DUAL)


def gradients(layer: RationalRNN, out: Tensor, x: Tensor) -> list[Tensor]:
    """Of a loss that weighs every output differently."""
    seeds = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad((seeds * out).sum(), [x, *layer.parameters()]))


def differ(found: Any, wanted: Any, tolerance: float) -> float:
    """Return the largest difference relative to the largest number, if it is above the tolerance, else 0."""
    worst = max(
        ((a - b).abs().max() / b.abs().max().clamp_min(1.0)).item()
        for a, b in zip(found, wanted, strict=True)
    )
    return worst if not worst <= tolerance else 0.0


# ---- text and programs ------------------------------------------------------------------------------------------


def test_the_text_of_a_cell(ring: Semiring, tmp_path: Path) -> None:
    cell = bigrams(ring)
    assert f"semiring {ring.name}\n" in cell.to_text()
    (tmp_path / "own.cell").write_text(cell.to_text(), encoding="utf-8")
    again = rrnn.read_cell(tmp_path / "own.cell")
    assert again == cell and again.semiring is ring
    assert lower(again).program == lower(cell).program
    for copied in (pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell)):
        assert copied == cell and copied.semiring is ring


def test_a_file_needs_the_definition(tmp_path: Path) -> None:
    """What reads a file of a semiring that is not registered says what to do."""
    with mock.patch.dict(SEMIRINGS):
        rrnn.register_semiring(DUAL)
        text, machine = bigrams(DUAL).to_text(), machine_over(DUAL)
        save(machine, tmp_path / "m.json")
    for read in (lambda: Cell.from_text(text), lambda: load(tmp_path / "m.json")):
        with pytest.raises((SemiringError, FormatError), match=r"unknown semiring 'dual'.*register_semiring"):
            read()


def test_equations_and_programs(ring: Semiring) -> None:
    cell = bigrams(ring)
    text = rrnn.equations(cell)
    assert "⊗ c²ₜ₋₁" in text and (" ⊕ " if ring is DUAL else "max{") in text
    assert rrnn.latex(cell).startswith("\\begin{align}") and "\\otimes" in rrnn.latex(cell)
    assert summary(cell).startswith(f"own over the {ring.name} semiring: 3 states, 6 arcs (1 ε)")
    assert f"over the {ring.name} semiring" in scan_text(cell) and "Backward, over the reals" in scan_text(
        cell
    )


# ---- layers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_layers_against_the_definition(ring: Semiring, backend: str) -> None:
    layer, x = layer_of(ring), inputs().requires_grad_()
    wanted = expected(ring, layer, x)
    with rrnn.use_backend(backend):
        out, _ = layer(x)
        assert out.shape == (T, BATCH, layer.output_size) == (T, BATCH, 2 * UNITS)
        assert not differ([out], [wanted], 1e-12)
        assert not differ(gradients(layer, out, x), gradients(layer, wanted, x), 1e-11)
        whole = copy.deepcopy(layer).float()(inputs(torch.float32))[0]
        assert not differ([whole.double()], [wanted], 1e-5)
    assert wanted.std() > 0.05


@pytest.mark.slow
@needs_interpreter
@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
@pytest.mark.parametrize("chunk", [0, 3])
def test_triton_kernels(ring: Semiring, chunk: int) -> None:
    """Serial, and in parallel over chunks of time."""
    from rrnn.backends.triton.plan import Plan

    layer, x = layer_of(ring), inputs()
    program = lower(bigrams(ring)).program
    wanted_layer = expected(ring, layer, x)
    state: Any = layer.layers[0]
    projected = torch.stack([x @ state.projection(0, n).weight(0).T for n in program.projections], 2)
    rows = [
        state.cells[0].bias[n.removesuffix(".bias")] if n.endswith(".bias") else state.cells[0].parameter[n]
        for n in program.parameters
    ]
    params = torch.stack([r.detach() for r in rows])
    seeds = torch.linspace(-1, 1, wanted_layer.numel()).view_as(wanted_layer)

    def run(name: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
        call = CellCall(program, projected.detach().to(dtype), params.to(dtype), every=3)
        out = torch.full(wanted_layer.shape, math.nan, dtype=dtype)
        grad_x = torch.full_like(call.x, math.nan)
        backend = get_backend(name)
        final, saved = backend.forward(call, None, out, **options)
        assert saved is not None
        grads = Gradients(seeds.to(dtype), torch.ones_like(final), grad_x)
        learned, first = backend.backward(call, saved, grads, **options)
        assert first is not None
        if not backend.gives_parameter_gradients(program):
            learned = epilogue(program, call.params, learned, call.units)
        return [t.double() for t in (out, final, grad_x, learned, first)]

    ours = run("triton", torch.float32, schedule=Plan(16, 1, 1, chunk, 0, False))
    assert not differ(ours[:1], [wanted_layer], 1e-5)
    assert not differ(ours, run("reference", torch.float64), 2e-5)


def test_streaming_and_padding(ring: Semiring) -> None:
    layer, x = layer_of(ring), inputs()
    whole, final = layer(x)
    state, steps = None, []
    for x_t in x:
        out, state = layer.step(x_t, state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps), whole)
    torch.testing.assert_close(state, final)
    first, state = layer(x[:3])
    torch.testing.assert_close(torch.cat([first, layer(x[3:], state)[0]]), whole)
    padded, _ = layer(x, lengths=[T, 3])
    torch.testing.assert_close(padded[:3, 1], whole[:3, 1])
    assert not padded[3:, 1].any()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(ring: Semiring, backend: str) -> None:
    layer, x = layer_of(ring), inputs().requires_grad_()
    wanted = layer(x)[0]
    torch._dynamo.reset()
    out = torch.compile(layer, backend=backend, fullgraph=True)(x)[0]
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(gradients(layer, out, x), gradients(layer, wanted, x))


def test_copies_of_a_layer(ring: Semiring) -> None:
    layer, x = layer_of(ring, num_layers=2, bidirectional=True), inputs()
    out = layer(x)[0]
    assert out.shape[-1] == layer.output_size == 4 * UNITS
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(copied(x)[0], out)
        assert copied.cells[0][0].semiring is ring


# ---- machines ---------------------------------------------------------------------------------------------------


def test_scores_of_a_machine(ring: Semiring, tmp_path: Path) -> None:
    machine = machine_over(ring)
    for string in ("", "a", "ab", "abab", "bbaab"):
        found = ring.numbers(machine.score(string))
        assert ring.close(found, machine.score_by_paths(string)), string
        assert ring.close(found, ring.sum(path.weight for path in machine.k_best(string, 100)))
    save(machine, tmp_path / "m.json")
    assert load(tmp_path / "m.json").same_as(machine)
    assert load(tmp_path / "m.json").semiring is ring


def test_conversions(ring: Semiring) -> None:
    machine = machine_over(ring)
    message = rf"weights over {ring.name} do not stand for real numbers.*with_semiring\(name, f\)"
    for target in ("real", "log", "complex"):
        with pytest.raises(SemiringError, match=message):
            machine.with_semiring(target)
    real = machine.with_semiring("real", lambda w: w[..., 0] if ring is DUAL else w)
    assert real.score("ab").isfinite()
    assert machine.with_semiring("boolean").score("ab").item() == 1.0
    back = real.with_semiring(ring, lambda w: torch.stack([w, w - w], -1) if ring is DUAL else w)
    assert back.semiring is ring
    with pytest.raises(SemiringError, match=f"do not stand for real numbers|{ring.name}"):
        real.with_semiring(ring)


def test_wrong_weights(ring: Semiring) -> None:
    cell = Cell("wrong", ring).initial("q0")
    with pytest.raises(CellError, match=r"\[0, 1\].*Łukasiewicz|Write it with dual\(x, dx\)"):
        cell.arc("q0", "q1", linear("u")).final("q1").check()
    with pytest.raises(SemiringError, match=rf"{ring.name}"):
        WFSA(ring, alphabet="a", arcs=[(0, "a", 0, -3.0)], initial={0: ring.one}, final={0: ring.one})


# ---- pictures, theory, interpretation ---------------------------------------------------------------------------


def test_pictures(ring: Semiring) -> None:
    cell, machine = bigrams(ring), machine_over(ring)
    for drawn in (cell, machine):
        svg, dot = rrnn.to_svg(drawn), rrnn.to_dot(drawn)
        assert ET.fromstring(svg).tag.endswith("svg") and dot.startswith("digraph")
        for text in (svg, dot):
            assert "⊗ is ⊗" not in text and "(0.9, 0.5)" not in text
    legend = "".join(ET.fromstring(rrnn.to_svg(cell)).itertext())
    assert f"{ring.name} semiring" in legend
    assert ("⟨0.9, 0.5⟩" if ring is DUAL else "0.9") in "".join(
        ET.fromstring(rrnn.to_svg(machine)).itertext()
    )


def test_verified(ring: Semiring) -> None:
    verdict = verify_cell(bigrams(ring))
    assert verdict.verdict == "rational" and verdict.holds and verdict.semiring == ring.name
    assert verdict.max_error is not None and verdict.max_error < 1e-13
    json.dumps(verdict.as_dict(), allow_nan=False)


def test_a_unit_as_a_machine(ring: Semiring) -> None:
    layer, vectors = layer_of(ring), inputs()[:4, 0]
    machine = rrnn.to_wfsa(layer, 2, {s: vectors[i] for i, s in enumerate("abcd")})
    ours = scores(layer, vectors[[0, 1, 3, 2]])[:, 2]
    torch.testing.assert_close(ours, machine.prefix_scores("abdc")[1:])
    assert machine.semiring is ring


def test_readings(ring: Semiring) -> None:
    layer, x = layer_of(ring), inputs()[:5]
    reading = interpret.read(layer, x, [list("abcde")] * BATCH)
    found = interpret.scores(reading)
    assert found.shape[:2] == (BATCH, UNITS)
    torch.testing.assert_close(found, scores(layer, x)[-1])
    assert len(interpret.best_paths(reading)) == BATCH * UNITS
    for paths in interpret.k_best(reading, 1000):
        total = ring.sum(path.weight for path in paths.paths)
        assert ring.close(total, paths.score, 1e-9)
        json.dumps(paths.to_json(), allow_nan=False)
    (masses,) = interpret.arc_masses(reading)
    assert masses.mass.shape[-1 - bool(ring.components)] == UNITS


# ---- the explorer and the commands ------------------------------------------------------------------------------


def test_the_explorer(ring: Semiring) -> None:
    from rrnn.wfsa.io import to_json

    json.dumps(design(bigrams(ring).to_text()), allow_nan=False)
    shown = explore({"text": to_json(machine_over(ring))}, "abab")
    json.dumps(shown, allow_nan=False)
    assert shown["semiring"]["name"] == ring.name and shown["count"] and len(shown["table"]) == 5


def test_commands(dual: Semiring, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command knows the semiring if a program registers it before it calls the command, and else asks for it."""
    (tmp_path / "own.cell").write_text(bigrams(dual).to_text(), encoding="utf-8")
    save(machine_over(dual), tmp_path / "m.json")
    (tmp_path / "strings.txt").write_text("2 a b\n1 b\n")
    for words in (
        ["derive", "own.cell"],
        ["derive", "own.cell", "--latex", "--ir", "--scan", "--c", "--triton"],
        ["draw", "own.cell", "-o", "own.svg"],
        ["draw", "m.json", "-o", "m.svg"],
        ["verify", "own.cell"],
        ["score", "m.json", "--strings", "strings.txt"],
    ):
        at = [str(tmp_path / w) if "." in w else w for w in words]
        assert main(at) == 0, words
    wanted = [machine_over(dual).score_by_paths(s) for s in ("ab", "b")]
    for line, score_of in zip(capsys.readouterr().out.splitlines()[-2:], wanted, strict=True):
        assert ast.literal_eval(line) == pytest.approx(score_of)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "rrnn", "derive", "own.cell"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "register_semiring" in done.stderr and "Traceback" not in done.stderr


def test_another_definition_of_the_same_name(dual: Semiring) -> None:
    other = Semiring("dual", zero=0.0, one=1.0, plus=lambda s, a, b: a + b, times=lambda s, a, b: a * b)
    with pytest.raises(SemiringError, match=r"'dual' is defined already.*Give it another name"):
        rrnn.register_semiring(other)
    with pytest.raises(SemiringError, match="'dual' is not registered"):
        Cell("x", other)
