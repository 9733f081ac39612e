"""Models for transformers: saving and loading, generation with the state as cache, padding, losses, training."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_cases import randomised
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from rrnn.automata import Cell, linear, one, score, step
from rrnn.errors import CellError, ProgramError, RRNNError, ShapeError
from rrnn.hf import RRNNConfig, RRNNForCausalLM, RRNNForSequenceClassification, RRNNModel
from rrnn.zoo import CELLS, get_cell

PAD, END, START = 0, 1, 2
CELL_TEXT = "rrnn-cell 1\ncell mine\nsemiring real\nstates q0 q1\ninitial q0\nloop q0 : one\n"
CELL_TEXT += (
    'arc q0 -> q1 : linear("u")\nloop q1 : sigmoid(linear("f", bias=True))\nfinal q1\noutput tanh(score)\n'
)


def config(**options: Any) -> RRNNConfig:
    ids = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START}
    return RRNNConfig(**{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, **ids, **options})


def language_model(**options: Any) -> RRNNForCausalLM:
    """Return a model whose continuations depend on the whole prompt."""
    torch.manual_seed(0)
    model = RRNNForCausalLM(config(**options))
    with torch.no_grad():
        for value in model.backbone.layers.parameters():
            value.mul_(1.5)
    return model.eval()


def tokens(batch: int, steps: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 20, (batch, steps), generator=torch.Generator().manual_seed(seed))


def padded(rows: list[Tensor], left: bool) -> tuple[Tensor, Tensor]:
    """Return (ids, attention_mask) of texts of different lengths."""
    steps = max(map(len, rows))
    ids, mask = torch.full((len(rows), steps), PAD), torch.zeros(len(rows), steps, dtype=torch.long)
    for n, row in enumerate(rows):
        place = slice(steps - len(row), None) if left else slice(len(row))
        ids[n, place], mask[n, place] = row, 1
    return ids, mask


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_is_saved_and_loaded(cell: str, tmp_path: Path) -> None:
    untied = {"tie_word_embeddings": False}  # units with several outputs do not fit the embedding
    model = randomised(RRNNForCausalLM(config(cell=cell, **untied))).eval()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    assert json.loads((tmp_path / "config.json").read_text())["cell"] == get_cell(cell).to_text()
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = tokens(2, 6)
    torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=0, equal_nan=True)
    fixed = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert fixed == {name for name, value in again.named_parameters() if not value.requires_grad}


def test_the_auto_classes_know_the_models(tmp_path: Path) -> None:
    model = RRNNForSequenceClassification(config(num_labels=3))
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), RRNNConfig)
    assert isinstance(
        AutoModelForSequenceClassification.from_pretrained(tmp_path), RRNNForSequenceClassification
    )
    assert isinstance(AutoModel.from_pretrained(tmp_path), RRNNModel)
    assert isinstance(AutoModelForCausalLM.from_config(config()), RRNNForCausalLM)


def test_options_and_texts_of_cells(tmp_path: Path) -> None:
    options = {"heads": 4, "groups": 2, "norm": "layer", "skip": "residual", "low_rank": {"delta": 2}}
    model = language_model(cell="Mamba-2:states=3", **options)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(tokens(1, 5)).logits, model(tokens(1, 5)).logits)
    assert RRNNConfig(CELL_TEXT).build_cell().name == "mine"
    assert RRNNConfig(get_cell("F")).cell == RRNNConfig("F").cell


def test_tied_embeddings(tmp_path: Path) -> None:
    model = language_model()
    assert model.lm_head.weight is model.backbone.embeddings.weight
    model.save_pretrained(tmp_path)
    again = RRNNForCausalLM.from_pretrained(tmp_path)
    assert again.lm_head.weight is again.backbone.embeddings.weight
    untied = language_model(tie_word_embeddings=False, embedding_size=5)
    assert untied.lm_head.weight.shape == (20, 8) and untied.backbone.embeddings.weight.shape == (20, 5)
    model.resize_token_embeddings(23)
    assert model(tokens(1, 3)).logits.shape == (1, 3, 23)


def test_a_fresh_process_loads_a_folder(tmp_path: Path) -> None:
    model = language_model()
    model.save_pretrained(tmp_path)
    code = (
        "import sys, torch, rrnn.hf\n"
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "print(*model.generate(torch.tensor([[5, 7, 9]]), max_new_tokens=4, do_sample=False)[0].tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    expected = model.generate(torch.tensor([[5, 7, 9]]), max_new_tokens=4, do_sample=False)
    assert done.stdout.split() == [str(n) for n in expected[0].tolist()]


def test_nothing_else_imports_transformers() -> None:
    code = "import sys, rrnn.exporters, rrnn.tasks.lm, rrnn.tasks.classify, rrnn.cli\n"
    code += "print([m for m in sys.modules if m.split('.')[0] in ('transformers', 'tokenizers')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RRNNConfig("no such cell"), "no such cell"),
        (lambda: RRNNConfig("/etc/hostname"), "/etc/hostname"),
        (lambda: RRNNConfig("LSTM"), "LSTM is not a cell"),
        (lambda: RRNNConfig("rrnn-cell 1\nexec('1')"), "the cell of config.json:2: cannot read"),
        (lambda: RRNNConfig(7), "got int"),  # pyright: ignore[reportArgumentType]
        (lambda: RRNNConfig(pooling="median"), "pooling must be one of 'last'.*got 'median'"),
        (lambda: language_model(bidirectional=True), "leave out bidirectional"),
        (lambda: language_model(embedding_size=5), "embedding_size=8, or tie_word_embeddings=False"),
        (lambda: RRNNModel(config())(), "either input_ids or inputs_embeds"),
    ],
)
def test_bad_configurations(make: Any, message: str) -> None:
    with pytest.raises(RRNNError, match=message):
        make()


def test_a_name_in_a_configuration_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text(CELL_TEXT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CellError, match="mine"):
        RRNNConfig("mine")


# ---- generation ------------------------------------------------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 5},
    "beams": {"num_beams": 4, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 3, "do_sample": True},
}


@pytest.mark.parametrize("cell", ["F", "QRNN2", "B-max-plus", "Mamba:states=3"])
@pytest.mark.parametrize("way", WAYS)
def test_generation_with_the_state_equals_reading_everything_again(cell: str, way: str) -> None:
    model, ids = language_model(cell=cell), tokens(3, 5)
    found = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        found.append(model.generate(ids, max_new_tokens=8, use_cache=use_cache, **WAYS[way]))
    assert torch.equal(*found)
    assert len({tuple(row) for row in found[0][:, 5:].tolist()}) > 1  # prompts matter


@pytest.mark.parametrize("cell", ["F", "QRNN2", "Mamba:states=3"])
@pytest.mark.parametrize("way", ["greedy", "beams"])
def test_left_padding_changes_no_continuation(cell: str, way: str) -> None:
    """Texts of different lengths, padded on the left, go on as each does alone."""
    model = language_model(cell=cell)
    rows = [tokens(1, steps, seed)[0] for seed, steps in enumerate((7, 3, 1))]
    ids, mask = padded(rows, left=True)
    options = {**WAYS[way], "max_new_tokens": 6, "num_return_sequences": 1}
    together = model.generate(ids, attention_mask=mask, **options)[:, ids.shape[1] :]
    for row, found in zip(rows, together.tolist(), strict=True):
        alone = model.generate(row[None], **options)[0, len(row) :].tolist()
        assert found[: len(alone)] == alone and set(found[len(alone) :]) <= {PAD, END}


@pytest.mark.parametrize("left", [True, False])
def test_padding_on_either_side_changes_no_score(left: bool) -> None:
    model = language_model(cell="QRNN2", norm="layer")
    rows = [tokens(1, steps, seed)[0] for seed, steps in enumerate((6, 2))]
    ids, mask = padded(rows, left)
    logits = model(ids, attention_mask=mask).logits
    for n, row in enumerate(rows):
        torch.testing.assert_close(logits[n][mask[n].bool()], model(row[None]).logits[0])


def test_a_text_in_pieces() -> None:
    model, ids = language_model(), tokens(2, 7)
    whole = model(ids, output_hidden_states=True)
    assert [h.shape for h in whole.hidden_states] == [(2, 7, 8)] * 3
    first = model(ids[:, :4])
    rest = model(ids[:, 4:], state=first.state, attention_mask=torch.ones(2, 7))
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), whole.logits)
    torch.testing.assert_close(model(ids, logits_to_keep=1).logits, whole.logits[:, -1:])
    assert model(ids, use_cache=False).state is None
    plain = model(ids, labels=ids, return_dict=False)
    torch.testing.assert_close(plain[1], whole.logits)
    embedded = model(inputs_embeds=model.backbone.embeddings(ids))
    torch.testing.assert_close(embedded.logits, whole.logits)


# ---- losses and training ---------------------------------------------------------------------------------------------


def test_the_loss_of_a_language_model() -> None:
    model, ids = language_model(), tokens(2, 6)
    labels = ids.clone()
    labels[1, 4:] = -100
    found = model(ids, labels=labels)
    expected = torch.nn.functional.cross_entropy(
        found.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
    )
    torch.testing.assert_close(found.loss, expected)


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_classifiers_read_padded_texts(pooling: str, bidirectional: bool) -> None:
    torch.manual_seed(0)
    options = {"pooling": pooling, "bidirectional": bidirectional, "num_labels": 3, "readout": "mlp"}
    model = randomised(RRNNForSequenceClassification(config(**options))).eval()
    rows = [tokens(1, steps, seed)[0] for seed, steps in enumerate((6, 2, 1))]
    alone = torch.cat([model(row[None]).logits for row in rows])
    for left in (True, False):
        ids, mask = padded(rows, left)
        torch.testing.assert_close(model(ids, attention_mask=mask).logits, alone)
        torch.testing.assert_close(model(ids).logits, alone)  # pad_token_id says the same
    found = model(ids, labels=torch.tensor([0, 2, 1]))
    expected = torch.nn.functional.cross_entropy(found.logits, torch.tensor([0, 2, 1]))
    torch.testing.assert_close(found.loss, expected)
    if bidirectional:
        with pytest.raises(ShapeError, match="takes no state"):
            model.backbone(ids, state=())


def counted(calls: list[int], function: Any, *args: Any) -> Any:
    calls.append(1)
    return function(*args)


@pytest.mark.parametrize("cell", ["F", "Mamba:states=3"])
def test_checkpointed_activations_give_the_same_gradients(cell: str) -> None:
    ids, mask = padded([tokens(1, 6)[0], tokens(1, 3)[0]], left=True)
    found = []
    for checkpointed in (False, True):
        model = language_model(cell=cell, recurrent_dropout=0.2, layer_dropout=0.3).train()
        calls = []
        if checkpointed:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # newer versions have another name
                model.gradient_checkpointing_enable()
            inner = model.backbone._gradient_checkpointing_func
            model.backbone._gradient_checkpointing_func = partial(counted, calls, inner)
        torch.manual_seed(1)
        model(ids, attention_mask=mask, labels=ids).loss.backward()
        found.append([p.grad for p in model.parameters() if p.requires_grad])
        assert len(calls) == 2 * checkpointed  # each layer
    torch.testing.assert_close(*found)


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, n: int) -> dict[str, Any]:
        return self.rows[n]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("task", ["causal", "classification"])
def test_the_trainer(task: str, tmp_path: Path) -> None:
    texts = tokens(64, 6).tolist()
    if task == "causal":
        model: Any = language_model(layer_dropout=0.1).train()
        rows = [{"input_ids": t, "attention_mask": [1] * 6, "labels": t} for t in texts]
    else:
        torch.manual_seed(0)
        model = RRNNForSequenceClassification(config(num_labels=2, pooling="max"))
        rows = [{"input_ids": t, "attention_mask": [1] * 6, "labels": int(5 in t)} for t in texts]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=32,
        learning_rate=0.03,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        gradient_checkpointing=task == "causal",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Rows(rows), eval_dataset=Rows(rows))
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before - 0.01
    trainer.save_model(str(tmp_path / "saved"))
    again = type(model).from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(again(tokens(2, 6)).logits, model.eval()(tokens(2, 6)).logits)


def test_a_cell_without_a_gradient_runs_and_cannot_be_trained() -> None:
    cell = Cell("hard", "boolean").initial("q0").loop("q0", one).arc("q0", "q1", step(linear("u", bias=True)))
    cell = cell.loop("q1", step(linear("f"))).final("q1").output(score)
    model = RRNNForCausalLM(RRNNConfig(cell, vocab_size=9, hidden_size=4, num_hidden_layers=1))
    ids = torch.randint(0, 9, (2, 5))
    assert model.eval().generate(ids, max_new_tokens=3).shape[0] == 2
    with pytest.raises(ProgramError, match=r"the boolean semiring has no gradient.*or use one that has: "):
        model.train()(ids, labels=ids).loss.backward()
