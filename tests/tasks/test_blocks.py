"""Language models and classifiers of blocks: they train, resume, load, generate and predict, by the tools' options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_classifier import tiny
from tiny_classifier import tiny_config as tiny_classifier
from tiny_lm import tiny_config, train_tiny, write_corpus

import rrnn
from rrnn.automata import Cell
from rrnn.cli import main
from rrnn.errors import RRNNError, RunError
from rrnn.nn import BlockStack, RationalRNN
from rrnn.tasks.classify.deletion import logits_by_definition, logits_without_each
from rrnn.tasks.classify.experiment import train as train_classifier
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.lm.config import preset
from rrnn.tasks.lm.experiment import count_parameters, solve_hidden_size
from rrnn.tasks.lm.experiment import train as train_lm
from rrnn.zoo import block_settings, get_cell

SMALL: dict[str, Any] = {"cell": "Mamba-2:states=2", "block": "auto", "heads": 2, "layers": 2}


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    """Run the reference backend, which compiles nothing."""
    with rrnn.use_backend("reference"):
        yield


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt")


def test_language_model(tmp_path: Path, corpus: Path) -> None:
    """A run of blocks trains with Adam, loads, is evaluated and generates; a resumed one ends with the same bits."""
    options = {**SMALL, "optimiser": "adam", "epochs": 2}
    whole = train_tiny(tmp_path / "run", corpus, **options)
    model: Any = rrnn.load(tmp_path / "run")
    stack = model.module.rnn
    assert isinstance(stack, BlockStack) and stack.blocks[0].heads == 2 and stack.blocks[0].conv is not None
    assert model.perplexity("anna likes tea") == pytest.approx(whole.model.perplexity("anna likes tea"))
    assert len(model.generate("anna", length=4, seed=0).split()) >= 4
    train_tiny(tmp_path / "parts", corpus, **{**options, "epochs": 1})
    resumed = train_tiny(tmp_path / "parts", corpus, **options)
    weights = (result.model.module.state_dict() for result in (whole, resumed))
    assert all(torch.equal(a, b) for a, b in zip(*(w.values() for w in weights), strict=True))


@pytest.mark.parametrize("block", ["off", "auto"])
def test_what_is_not_learned_stays(corpus: Path, block: str) -> None:
    """RetNet's decays are in the checkpoint and never change."""
    config = tiny_config(corpus, cell="RetNet:states=2", block=block, heads=2, layers=1, epochs=1)
    rnn = train_lm(config).model.module.rnn
    fixed = {name: p for name, p in rnn.named_parameters() if not p.requires_grad}
    (gamma,) = (p for name, p in fixed.items() if name.endswith("gamma"))
    torch.testing.assert_close(gamma.flatten(), torch.tensor([1 - 2**-5, 1 - 2**-6]))


def test_classifier(tmp_path: Path) -> None:
    config = tiny_classifier(**SMALL)
    train_classifier(config, tmp_path / "run", data=tiny(config))
    model: Any = rrnn.load(tmp_path / "run")
    (stack,) = model.module.layers
    assert isinstance(stack, BlockStack) and stack.input_size == 6 and stack.num_layers == 2
    ids = torch.arange(2, 9)
    for got, expected in zip(
        logits_without_each(model.module, ids), logits_by_definition(model.module, ids), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    found = explain(model, "good film bad")
    assert not found.units and "automata of blocks do not read words" in " ".join(
        map(str, vars(found).values())
    )


def test_heads_without_blocks(corpus: Path) -> None:
    result = train_lm(tiny_config(corpus, cell="GLA:states=2", heads=2, epochs=1))
    assert isinstance(result.model.module.rnn, RationalRNN) and result.model.module.rnn.heads == 2
    config = tiny_classifier(cell="Mamba-2:states=2", heads=4, head_groups=2, epochs=1)
    (first, *_) = train_classifier(config, data=tiny(config)).model.module.layers
    assert (first.heads, first.groups) == (4, 2)


def test_sizes_fit_a_budget() -> None:
    """Only sizes that heads divide are tried."""
    for heads, name in ((None, "GLA"), (12, "GLA"), (None, "Mamba-2")):
        cell = get_cell(name, states=4)
        options: dict[str, Any] = {"cell": cell, "block": block_settings(name, cell), "heads": heads}
        found = solve_hidden_size(200_000, 100, 2, **options)
        assert found.hidden_size % 16 == 0 and found.parameters <= 200_000
        step = 48 if heads else 16
        assert count_parameters(100, found.hidden_size + step, 2, **options) > 200_000


def test_a_block_of_another_model() -> None:
    """Settings that a cell cannot have are left out."""
    f, mamba2 = get_cell("F"), get_cell("Mamba-2")
    assert block_settings("GLA", f) == {"low_rank": {}, "output_norm": "rms", "gate": True, "mlp": 8 / 3}
    assert "conv" not in block_settings("Mamba-2", f) and block_settings("Mamba", f)["conv"] == 4
    assert block_settings("Mamba-2", mamba2) == block_settings("Mamba-2")
    assert block_settings("F") == {}
    for name in ("Mamba", "Mamba-2", "GLA", "HGRN2", "LRU"):
        BlockStack(f, 8, **block_settings(name, f))
    plain: Cell = get_cell("SRU")
    assert BlockStack(plain, 8, **block_settings("S4D", plain)).blocks[0].options.output == "glu"


def test_presets_train_blocks_with_adam() -> None:
    assert preset("tiny", cell="Mamba", block="auto").optimiser == "adam"
    assert preset("tiny", cell="Mamba", block="auto", optimiser="sgd").optimiser == "sgd"
    assert preset("tiny", cell="Mamba").optimiser == preset("tiny", block="off").optimiser == "sgd"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: preset("tiny", cell="lstm", block="auto"), "a block is put around a cell, and lstm is none"),
        (lambda: preset("tiny", layers=2, embedding_size=8, block="auto"), "have the size of the embedding"),
        (lambda: tiny_classifier(block="auto", bidirectional=True), "in one direction"),
    ],
)
def test_contradictions(make: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        make()


def test_the_command(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--block` alone is the cell's own block; with a name it is that model's."""
    usual = [
        "--data",
        str(corpus),
        "--epochs",
        "1",
        "--hidden-size",
        "8",
        "--batch-size",
        "4",
        "--device",
        "cpu",
    ]
    for words, gate in ((["--block"], True), (["--block", "LRU"], False)):
        out = tmp_path / words[-1].strip("-")
        assert main(["lm", "train", "--out", str(out), "--cell", "Mamba:states=2", *words, *usual]) == 0
        model: Any = rrnn.load(out)
        assert model.module.rnn.blocks[0].options.gate is gate
    assert "1 block" in capsys.readouterr().out
    assert main(["lm", "train", "--out", str(tmp_path / "x"), "--block", "Mambo", *usual]) != 0
    assert "'Mambo'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    with pytest.raises(RRNNError, match=r"a block .* is not a layer that can be exported"):
        rrnn.export(model, tmp_path / "model.onnx")
