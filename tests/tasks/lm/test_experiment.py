"""From a configuration to a run, and back from its folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tiny_lm
import torch

import rrnn
from rrnn.errors import DataError, RRNNError, RunError
from rrnn.tasks import checkpoints
from rrnn.tasks.configs import RENAMED
from rrnn.tasks.experiment import pick_device
from rrnn.tasks.lm.config import LMConfig, preset
from rrnn.tasks.lm.experiment import prepare, train
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.runs import LOADERS, Run
from rrnn.tasks.training import Progress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_lm.write_corpus(tmp_path_factory.mktemp("corpus") / "text.txt", 200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    tiny_lm.train_tiny(folder, corpus, lr_decay_from=9, epochs=4, checkpoint_seconds=30.0)
    return folder


def test_what_a_run_holds(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    wanted = {
        "config.json",
        "cell.cell",
        "vocabulary.json",
        "metrics.jsonl",
        "best.safetensors",
        "last.safetensors",
    }
    assert wanted <= names and {"result.json", "loss.svg"} <= names
    assert not [name for name in names if name.endswith((".part", ".pt", ".pkl"))]
    config = json.loads((folder / "config.json").read_text())
    assert config["task"] == "lm" and config["lr"] == 0.5 and config["hidden_size"] == 8
    assert config["facts"]["tokens"].keys() == {"train", "dev", "test"}
    text = (folder / "cell.cell").read_text()
    assert text == rrnn.get_cell("F+o").to_text()  # with the output gate


def test_it_learns(folder: Path) -> None:
    records = Run.open(folder).records()
    assert records[-1]["dev_ppl"] < 0.5 * records[0]["dev_ppl"] < 0.5 * 14


def test_what_is_loaded_is_what_was_best(folder: Path) -> None:
    model = rrnn.load(folder)
    assert isinstance(model, TrainedLanguageModel)
    result = json.loads((folder / "result.json").read_text())
    assert model.perplexity(model.read_split("dev")) == pytest.approx(result["dev_ppl"], rel=1e-5)
    assert model.perplexity(model.read_split("test")) == result["test_ppl"]
    best = min(Run.open(folder).records(), key=lambda record: record["dev_ppl"])
    assert (result["dev_ppl"], result["best_epoch"]) == (best["dev_ppl"], best["epoch"])
    assert "8 units" in repr(model) and f"{result['parameters']:,} parameters" in repr(model)


def test_in_memory_the_same(folder: Path, corpus: Path) -> None:
    config = tiny_lm.tiny_config(corpus, lr_decay_from=9, epochs=4)
    result = train(config, progress=Progress())
    assert result.folder is None
    loaded = rrnn.load(folder).module.state_dict()
    for name, tensor in result.model.module.state_dict().items():
        assert tensor.equal(loaded[name]), name


def test_dev_in_pieces_while_training_and_whole_in_the_end(corpus: Path) -> None:
    config = tiny_lm.tiny_config(corpus, dev_streams=4)
    result = train(config, progress=Progress(), test=False)
    assert result.summary.test_ppl is None
    pieces = min(record["dev_ppl"] for record in result.history)
    whole = result.model.perplexity(result.model.read_split("dev"))
    assert result.summary.dev_ppl != pieces and math.isclose(result.summary.dev_ppl, whole, rel_tol=1e-5)


def test_perplexity_of_a_text_by_hand(folder: Path) -> None:
    """The twin: one step after another, each token's probability by softmax."""
    model = rrnn.load(folder)
    tokens = ["anna", "likes", "tea", "</s>", "ben", "likes"]
    total, state, word = 0.0, None, "<s>"
    for token in tokens:
        with torch.no_grad():
            scores, state = model.module.step(torch.tensor([model.vocabulary.number(word)]), state)
        total -= float(scores[0].double().log_softmax(-1)[model.vocabulary.number(token)])
        word = token
    assert model.perplexity(tokens) == pytest.approx(math.exp(total / len(tokens)), rel=1e-5)
    assert model.tokenise("anna likes tea\nben likes\n") == [*tokens, "</s>"]
    assert model.perplexity("anna likes tea\n") == pytest.approx(model.perplexity(tokens[:4]), rel=1e-6)


def test_generation(folder: Path) -> None:
    model = rrnn.load(folder)
    text = model.generate("anna and", length=12, seed=3)
    assert (
        text == model.generate("anna and", length=12, seed=3) != model.generate("anna and", length=12, seed=4)
    )
    assert text.startswith("anna and ") and len(model.tokenise(text)) in (14, 15)
    assert set(text.split()) <= set(model.vocabulary.words) and "\n" in text
    greedy = list(model.stream("anna and ben like", length=1, temperature=0))
    with torch.no_grad():
        ids = torch.from_numpy(model.vocabulary.encode(["<s>", "anna", "and", "ben", "like"])).unsqueeze(1)
        hidden, _ = model.module(ids)
    assert greedy == [model.vocabulary.words[int(model.module.scores(hidden[-1, 0]).argmax())]]


def test_characters(corpus: Path, tmp_path: Path) -> None:
    config = tiny_lm.tiny_config(corpus, level="char", epochs=1, checkpoint_seconds=30.0, cell="B")
    train(config, tmp_path / "run", progress=Progress())
    model = rrnn.load(tmp_path / "run")
    assert model.tokenise("a b") == ["a", " ", "b", "</s>"]
    text = model.generate("an", length=9, seed=0)
    assert len(text) == 11 and text.startswith("an")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_baselines_have_no_cell(corpus: Path, tmp_path: Path, cell: str) -> None:
    config = tiny_lm.tiny_config(corpus, cell=cell, epochs=1, checkpoint_seconds=30.0)
    result = train(config, tmp_path / "run", progress=Progress())
    assert not (tmp_path / "run" / "cell.cell").exists()
    model = rrnn.load(tmp_path / "run")
    assert model.perplexity(model.read_split("test")) == result.summary.test_ppl


def test_a_cell_of_a_file_is_kept_in_the_run(corpus: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.cell"
    file.write_text(rrnn.get_cell("B").to_text().replace("cell B", "cell mine"))
    config = tiny_lm.tiny_config(corpus, cell=str(file), epochs=1, checkpoint_seconds=30.0)
    train(config, tmp_path / "run", progress=Progress())
    file.unlink()
    assert rrnn.load(tmp_path / "run").module.rnn.cells[0][0].name == "mine"
    result = train(config.replace(epochs=2), tmp_path / "run", resume=True, progress=Progress())
    assert len(result.history) == 2


def test_names_of_files_hold_anywhere(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    tiny_lm.train_tiny(tmp_path / "run", Path(corpus.name), epochs=1, checkpoint_seconds=30.0)
    monkeypatch.chdir(tmp_path)
    model = rrnn.load("run")
    assert model.perplexity(model.read_split("test")) > 1
    tiny_lm.train_tiny(tmp_path / "run", corpus, epochs=2, checkpoint_seconds=30.0)  # by its full name


def test_kept_units_take_the_place_of_dropouts() -> None:
    """Of a preset's, of a run's; what comes with them stays."""
    for config in (preset("tiny", kept_units=16), preset("tiny").resolved(64).changed(kept_units=16)):
        done = config.resolved(64)
        assert (done.embedding_dropout, done.output_dropout) == (0.75, 0.75)
    own = preset("tiny", kept_units=16, output_dropout=0.3).resolved(64)
    assert (own.embedding_dropout, own.output_dropout) == (0.75, 0.3)
    assert preset("tiny").resolved(64).output_dropout == 0.1


def test_an_embedding_of_another_size(corpus: Path, tmp_path: Path) -> None:
    """Trained, resumed, loaded; kept units are those of embedded words."""
    sizes: dict[str, Any] = {"layers": 2, "hidden_size": 12, "embedding_size": 8, "epochs": 2}
    config = tiny_lm.tiny_config(corpus, **sizes, embedding_dropout=None, output_dropout=None, kept_units=6)
    assert config.resolved(12).output_dropout == 0.25
    train(config.replace(epochs=1), tmp_path / "run", progress=Progress())
    resumed = train(config, tmp_path / "run", resume=True, progress=Progress())
    whole = train(config, progress=Progress())
    assert [r["train_loss"] for r in resumed.history] == [r["train_loss"] for r in whole.history]
    loaded = rrnn.load(tmp_path / "run")
    assert loaded.perplexity("anna likes tea") == pytest.approx(resumed.model.perplexity("anna likes tea"))
    assert "12 → 8 units" in repr(loaded) and "anna" in loaded.generate("anna", length=3, seed=1)
    assert "embedding size 8, hidden size 12" in prepare(config).describe()
    with pytest.raises(RunError, match="needs two layers or more"):
        config.replace(layers=1)


def test_a_budget_decides_the_size(corpus: Path) -> None:
    config = tiny_lm.tiny_config(corpus, hidden_size=None, params=20_000)
    work = prepare(config)
    assert work.config.hidden_size is not None and work.config.hidden_size % 16 == 0
    larger = prepare(config.replace(hidden_size=work.config.hidden_size + 16))
    assert work.parameters <= 20_000 < larger.parameters
    assert prepare(work.config).config == work.config  # as when it is resumed


def test_other_data_are_noticed(corpus: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(corpus.read_bytes())
    tiny_lm.train_tiny(tmp_path / "run", text, epochs=1, checkpoint_seconds=30.0)
    lines = text.read_text().splitlines()
    text.write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with pytest.raises(RunError, match="data_sha256"):
        tiny_lm.train_tiny(tmp_path / "run", text, epochs=2, checkpoint_seconds=30.0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"cell": "nonsense"}, RRNNError, "no cell is called 'nonsense'"),
        ({"hidden_size": None, "params": 100}, RunError, "100 parameters is too small"),
        ({"batch_size": 10**6}, DataError, "too few for a batch"),
        ({"device": "tpu9"}, RunError, "device is cpu, cuda or auto; got 'tpu9'"),
    ],
)
def test_what_cannot_be_trained(corpus: Path, changes: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        train(tiny_lm.tiny_config(corpus, **changes), progress=Progress())


def test_data_that_are_not_there() -> None:
    with pytest.raises(DataError, match="a corpus is python, ptb"):
        train(tiny_lm.tiny_config(Path("no-such-corpus")), progress=Progress())


def test_a_loss_that_explodes_stops(corpus: Path, tmp_path: Path) -> None:
    config = tiny_lm.tiny_config(corpus, cell="lstm", lr=1e30, clip=1e30, epochs=5)
    with pytest.raises(RunError, match=r"became (nan|inf).*smaller learning rate \(it is 1e\+30\)"):
        train(config, tmp_path / "run", progress=Progress())


def test_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    if not torch.cuda.is_available():
        assert pick_device("auto") == torch.device("cpu")
        with pytest.raises(RunError, match="needs a GPU, but torch finds no GPU"):
            pick_device("cuda")


def test_loading_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        rrnn.load(tmp_path)
    Run.create(tmp_path / "new", {"task": "lm", "hidden_size": 8}).close()
    with pytest.raises(RunError, match="no checkpoint yet"):
        rrnn.load(tmp_path / "new")
    Run.create(tmp_path / "foreign", {"task": "chess"}).close()
    with pytest.raises(RunError, match=r"of the task 'chess'; rrnn .* can load"):
        rrnn.load(tmp_path / "foreign")


def test_a_damaged_best_says_so(folder: Path, tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", {"task": "lm", "hidden_size": 8}) as run:
        run.save("best", {}, {"epoch": 1})
        run.save("best", {}, {"epoch": 2})
    (tmp_path / "run" / "best.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=r"best\.previous\.safetensors, is used"), pytest.raises(RRNNError):
        rrnn.load(tmp_path / "run")  # there is no vocabulary


@pytest.mark.parametrize("task", LOADERS)
def test_loaders_are_there(task: str) -> None:
    from importlib import import_module

    module, _, name = LOADERS[task].partition(":")
    assert callable(getattr(import_module(module), name))


def test_a_config_of_a_run_is_a_config(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    assert LMConfig.from_run(values).hidden_size == 8
    with pytest.raises(RunError, match="a JSON object; got list"):
        LMConfig.from_run([1])


def test_a_run_of_version_0_1_is_resumed(corpus: Path, tmp_path: Path) -> None:
    folder, old = tmp_path / "run", {new: old for old, new in RENAMED["lm"].items()}
    train(tiny_lm.tiny_config(corpus, epochs=2), folder, progress=Progress())
    config = {
        old.get(key, key): value for key, value in json.loads((folder / "config.json").read_text()).items()
    }
    assert "hidden" in config and "hidden_size" not in config
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("best", "last"):
        path = checkpoints.path_of(folder, name)
        tensors, meta, _ = checkpoints.decode(path.read_bytes(), name)
        path.write_bytes(checkpoints.encode(tensors, {**meta, "config": config}))
    resumed = train(tiny_lm.tiny_config(corpus, epochs=3), folder, resume=True, progress=Progress())
    whole = train(tiny_lm.tiny_config(corpus, epochs=3), progress=Progress())
    assert [r["train_loss"] for r in resumed.history] == [r["train_loss"] for r in whole.history]
    assert rrnn.load(folder).config.hidden_size == 8
