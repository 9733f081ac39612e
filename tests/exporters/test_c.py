"""Exported C files compile without warnings, everywhere, and compute what the model computes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_c import STRICT, Stepper, check_layer, compiled
from layer_cases import CASES, make_layer, randomised
from random_classifiers import KINDS, classifier
from wide_layers import build, over

from rrnn.exporters import export
from rrnn.exporters.c_text import FUNCTIONS, number, string
from rrnn.nn import RationalRNN
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.zoo import CELLS, get_cell, layer

ZIG = [sys.executable, "-m", "ziglang", "cc"]
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")

COMPILERS = {
    "gcc": pytest.param(["gcc"], marks=pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")),
    "clang": pytest.param(["clang"], marks=pytest.mark.skipif(not shutil.which("clang"), reason="no clang")),
    "zig": pytest.param(ZIG, marks=[needs_zig, pytest.mark.slow]),
    "zig for aarch64": pytest.param(
        [*ZIG, "-target", "aarch64-linux-musl", "-static"], marks=[needs_zig, pytest.mark.slow]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_of_the_zoo(name: str, tmp_path: Path) -> None:
    net = randomised(layer(name, 5, 4))
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0.7)
    check_layer(net.eval(), tmp_path)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("Mamba", 12),
        pytest.param("RetNet", 72, marks=pytest.mark.slow),
        pytest.param("GLA", 12, marks=pytest.mark.slow),
        pytest.param("Mamba-2", 132, marks=pytest.mark.slow),
        pytest.param("S4D", 70, marks=pytest.mark.slow),
        pytest.param("Mamba-3", 12, marks=pytest.mark.slow),
        pytest.param("RWKV-6", 12, marks=pytest.mark.slow),
    ],
)
def test_families_of_states(name: str, units: int, tmp_path: Path) -> None:
    """With heads and groups, and more units than a tile has."""
    net = build(name, units=units, dtype=torch.float32).eval()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_((12 / units) ** 0.5)
    check_layer(net, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "semiring", ["real", "log", "max-plus", "min-plus", "max-times", "complex", "signed-log"]
)
def test_families_over_any_semiring(semiring: str, tmp_path: Path) -> None:
    cells = [(get_cell("SRU"), 3), (over(semiring), 6)]  # side by side with units that have no family
    check_layer(randomised(RationalRNN(cells, 4, heads=3, num_layers=2)).eval(), tmp_path)


@pytest.mark.parametrize(
    "name", [n if n in ("windowed", "mixed") else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_every_kind_of_cell(name: str, tmp_path: Path) -> None:
    check_layer(make_layer(name, dtype=torch.float32).eval(), tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "skip": "highway", "norm": "layer"},
        {"num_layers": 2, "skip": "residual", "bias": False},
        {"low_rank": {"r": 2, "f": 1}},
    ],
)
def test_options_of_layers(options: dict[str, Any], tmp_path: Path) -> None:
    check_layer(make_layer("mixed", dtype=torch.float32, **options).eval(), tmp_path)


def language_model() -> TrainedLanguageModel:
    words = Vocabulary(["<s>", "</s>", "été", "b", 'w"\\ ??/', "<unk>"], unknown="<unk>")
    module = randomised(LanguageModel(len(words), 6, 2, embedding_size=4, cell="QRNN2")).eval()
    return TrainedLanguageModel(module, words, LMConfig(cell="QRNN2", hidden_size=6))


def test_language_models(tmp_path: Path) -> None:
    model = language_model()
    path, header = export(model, tmp_path / "lm.c")
    run, state = Stepper(path, 6), None
    for word in (model.module.start, 3, 2, 5, 2):
        with torch.no_grad():
            scores, state = model.module.step(torch.tensor([word]), state)
        np.testing.assert_allclose(run.step(word), scores[0].numpy(), rtol=1e-5, atol=1e-5)
    assert run.call("step", run.state, 6, None) == -1 and run.call("step", run.state, -1, None) == -1
    find = {word: run.call("find", word.encode()) for word in model.vocabulary.words}
    assert list(find.values()) == list(range(6))
    assert run.call("find", b"nowhere") == 5 and run.call("find", b"") == 5
    assert "#define LM_VOCABULARY 6" in header.read_text()
    path, header = export(model, tmp_path / "lm.c", vocabulary=False, name="other")
    compiled(path)
    assert "find" not in path.read_text() and "other_step" in header.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one layer", "max", "windows", "mean", "attention", "highway", "max-plus"])
def test_classifiers(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"mean": {"pooling": "mean"}, "attention": {"pooling": "attention"}}.get(
        kind, KINDS.get(kind, {})
    )
    model = classifier(**options)
    path, _ = export(model, tmp_path / "judge.c")
    run, ids = Stepper(path, 2), [2, 5, 1, 4, 4, 3]
    for length in range(1, len(ids) + 1):  # the logits of the text so far
        given = torch.tensor(ids[:length]).unsqueeze(1)
        with torch.inference_mode():
            expected = model.module(given, torch.tensor([length]))[0].numpy()
        np.testing.assert_allclose(run.step(ids[length - 1]), expected, rtol=1e-5, atol=1e-5)


MAIN = """
#include <stdio.h>
#include "lm.h"
int main(void) {{
    static lm_state m;
    static float scores[LM_VOCABULARY];
    const int words[] = {{ {words} }};
    lm_init(&m);
    for (int t = 0; t < {count}; t++) {{
        if (lm_step(&m, words[t], scores)) return 1;
        for (int v = 0; v < LM_VOCABULARY; v++) printf("%.9g ", (double)scores[v]);
    }}
    return 0;
}}
"""


@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
def test_compilers(compiler: list[str], tmp_path: Path) -> None:
    """A program of each compiler prints the same scores; that for aarch64 runs under qemu."""
    model, words = language_model(), [0, 3, 2, 5]
    path, _ = export(model, tmp_path / "lm.c")
    (tmp_path / "main.c").write_text(MAIN.format(words=", ".join(map(str, words)), count=len(words)))
    program, elsewhere = tmp_path / "program", any("aarch64" in word for word in compiler)
    command = [*compiler, *STRICT, str(path), "-o", str(program)]
    # For another processor zig builds the C library first, which takes a minute and serves only a program that can run.
    runs = not elsewhere or QEMU is not None
    more = [str(tmp_path / "main.c"), "-lm"] if runs else ["-c"]
    done = subprocess.run([*command, *more], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    if not runs:
        pytest.skip("there is no qemu-aarch64 to run the model that was compiled")
    prefix = [QEMU] if elsewhere and QEMU is not None else []
    done = subprocess.run([*prefix, str(program)], capture_output=True, text=True, check=True)
    with torch.no_grad():
        hidden, _ = model.module(torch.tensor(words).unsqueeze(1))
        expected = model.module.scores(hidden).flatten().numpy()
    got = np.array([float(word) for word in done.stdout.split()])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_the_file_needs_libm_only(tmp_path: Path) -> None:
    path, _ = export(language_model(), tmp_path / "lm.c")
    assert re.findall(r"#include (.*)", path.read_text()) == ['"lm.h"', "<math.h>"]
    assert not re.search(r"\b(malloc|calloc|free|alloca|memcpy|printf)\b", path.read_text())
    compiled(path)
    if nm := shutil.which("nm"):
        done = subprocess.run(
            [nm, "-Du", str(tmp_path / "lm.so")], capture_output=True, text=True, check=True
        )
        names = {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
        own = {name for name in names if not name.startswith("_")}
        assert own <= {
            "expf",
            "logf",
            "tanhf",
            "log1pf",
            "memset",
            "memcpy",
        }  # a compiler may call the last two


def test_numbers_and_texts() -> None:
    for value in (0.1, -2.5, 1e-38, 3.0, -0.0, 16777216.0):
        assert np.float32(number(value).strip("()").rstrip("f")) == np.float32(value)
    assert number(float("-inf")) == "(-INFINITY)"
    assert string('a"\\?é') == '"a\\042\\134\\077\\303\\251"'
    assert set(FUNCTIONS) >= {"sigmoid_f", "logaddexp_f"}
