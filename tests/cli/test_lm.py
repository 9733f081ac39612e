"""`rrnn lm`, as users call it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny_lm

from rrnn.cli import main
from rrnn.tasks.runs import Run
from rrnn.zoo import get_cell


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_lm.write_corpus(tmp_path_factory.mktemp("corpus") / "text.txt", 200)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    tiny_lm.train_tiny(folder, corpus, checkpoint_seconds=30.0)
    return folder


def options(corpus: Path, out: Path) -> list[str]:
    return [
        "lm",
        "train",
        "--out",
        str(out),
        "--data",
        str(corpus),
        "--hidden-size",
        "8",
        "--epochs",
        "1",
        "--device",
        "cpu",
    ]


def test_train_from_the_command_line(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    extra = ["--cell", "B", "--emas", "0.9", "0.99", "--shift", "True", "--lr", "0.25", "--seed", "7"]
    assert main([*options(corpus, out), *extra]) == 0
    shown, errors = capsys.readouterr()
    assert (
        "B: 1 layer, hidden size 8, 316 parameters" in shown
        and "epoch   1  train ppl" in shown
        and errors == ""
    )
    assert f"run: {out}" in shown and "test perplexity" in shown
    config = Run.open(out).config
    assert (config["cell"], config["emas"], config["shift"], config["lr"]) == ("B", [0.9, 0.99], True, 0.25)
    assert config["batch_size"] == 16 and config["seed"] == 7  # of the preset tiny, of the command line

    assert main([*options(corpus, out), *extra]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main(["lm", "train", "--out", str(out), "--resume", "--epochs", "2"]) == 0
    assert "resumed after epoch 1" in capsys.readouterr().out
    assert main(["lm", "train", "--out", str(out), "--resume", "--lr", "3"]) == 2
    assert "lr: was 0.25, now 3.0" in capsys.readouterr().err
    assert main([*options(corpus, out), "--resume", *extra, "--preset", "tiny", "--epochs", "2"]) == 0


@pytest.mark.slow  # compiles a kernel
def test_options_of_the_cell(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main([*options(corpus, out), "--cell", "F:g=tanh,b_u"]) == 0
    run = Run.open(out)
    assert run.config["lr"] == 0.5  # of F
    assert run.cell_text == get_cell("F", gate=True, g="tanh", b_u=True).to_text()
    assert main(["lm", "eval", str(out), "--device", "cpu"]) == 0


def test_a_budget_and_a_baseline(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [arg for arg in options(corpus, tmp_path / "run") if arg not in ("--hidden-size", "8")]
    assert main([*arguments, "--model", "gru", "--params", "20k", "--layers", "2"]) == 0
    assert "gru: 2 layers, hidden size 32, 13,068 parameters (39 would have" in capsys.readouterr().out
    assert Run.open(tmp_path / "run").config["params"] == 20_000


def test_the_folder_has_a_name_of_its_own(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lm", "train", *options(corpus, tmp_path)[4:], "--cell", "C"]) == 0
    assert Run.open(tmp_path / "runs" / "tiny-C").config["cell"] == "C"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "lstm", "--cell", "F"], "--cell and --model lstm exclude each other"),
        (["--params", "many"], "a number of parameters looks like 10M"),
        (["--params", "10M"], "a model has one size; got two, hidden_size 8 and params 10000000"),
        (
            ["--batch-size", "100000"],
            "too few for a batch of 100000",
        ),  # which only the model's trainer finds out
        (["--layers", "0"], "layers must be between 1 and 64; got 0"),
        (["--config", "x.json", "--preset", "tiny"], "--preset and --config exclude each other"),
        (["--config", "no/such.json"], "no/such.json: No such file"),
        (["--data", "no/such/text"], "a corpus is python, ptb"),
    ],
)
def test_mistakes(
    corpus: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options(corpus, tmp_path / "run"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("[]", "a JSON object"), ('{"lrr": 1}', "Did you mean 'lr'?")],
)
def test_bad_configuration_files(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text(content)
    assert main(["lm", "train", "--out", str(tmp_path / "run"), "--config", str(tmp_path / "bad.json")]) == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rrnn.tasks.experiment.fit", interrupt)
    assert main(options(corpus, tmp_path / "run")) == 130
    shown = capsys.readouterr()
    assert f"rrnn lm train --out {tmp_path / 'run'} --resume" in shown.err and "no loss plot" in shown.out


def test_eval(run: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads((run / "result.json").read_text())
    assert main(["lm", "eval", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"test: perplexity {result['test_ppl']:.4f} (")
    last = tmp_path / "last.txt"
    last.write_text("\n".join(corpus.read_text().splitlines()[-20:]) + "\n")  # the test split, as a file
    assert main(["lm", "eval", str(run), "--split", str(last)]) == 0
    assert f": perplexity {result['test_ppl']:.4f} (" in capsys.readouterr().out
    assert main(["lm", "eval", str(run), "--split", "nothing"]) == 2
    assert "a split is train, dev, test or a text file" in capsys.readouterr().err
    assert main(["lm", "eval", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_generate(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "lm",
        "generate",
        str(run),
        "--prompt",
        "anna and",
        "--length",
        "8",
        "--seed",
        "2",
        "--top-k",
        "3",
    ]
    assert main(command) == 0
    text, errors = capsys.readouterr()
    assert (
        text.startswith("anna and ")
        and len(text.replace("\n", " </s> ").split()) in (10, 11)
        and errors == ""
    )
    assert main(command) == 0 and capsys.readouterr().out == text
    assert main([*command, "--temperature", "-1"]) == 2
    assert "temperature must be a number, at least 0" in capsys.readouterr().err
    assert main([*command, "--length", "-1"]) == 2
    assert "length must be a number of tokens" in capsys.readouterr().err


def test_words_that_are_not_known(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This vocabulary is closed: it has no <unk>."""
    assert main(["lm", "generate", str(run), "--prompt", "anna drinks"]) == 2
    assert "the word 'drinks' is not one of the" in capsys.readouterr().err


def test_unknown_words_are_counted(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options(corpus, tmp_path / "run"), "--max-words", "6"]) == 0
    text = tmp_path / "text.txt"
    text.write_text("likes likes xenia\nyvo likes\n")
    capsys.readouterr()
    assert main(["lm", "eval", str(tmp_path / "run"), "--split", str(text)]) == 0
    assert ", 7 tokens (2 of them replaced by <unk>), " in capsys.readouterr().out
    assert main(["lm", "generate", str(tmp_path / "run"), "--prompt", "xenia likes", "--length", "1"]) == 0
    assert capsys.readouterr().err == "not in the vocabulary, replaced by <unk>: xenia\n"


def test_a_damaged_checkpoint_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    shutil.copy(run / "best.safetensors", copy / "best.previous.safetensors")
    (copy / "best.safetensors").write_bytes(b"damaged")
    assert main(["lm", "eval", str(copy)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("note: ") and line.endswith("best.previous.safetensors, is used instead.")


def test_eval_of_a_split_that_is_not_there(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "valid"):
        shutil.copy(corpus, data / f"{split}.txt")
    assert main(options(data, tmp_path / "run")) == 0
    assert main(["lm", "eval", str(tmp_path / "run")]) == 2
    assert "has no test text" in capsys.readouterr().err


def test_table(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lm", "table", str(run), "--json", str(tmp_path / "table.json")]) == 0
    shown = capsys.readouterr().out
    assert "| RRNN(F) " in shown and "63.1" in shown and str(run) in shown
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["ours"]["run"] for row in rows if row["ours"]] == [str(run)]
    assert main(["lm", "table", str(tmp_path / "none")]) == 2


def test_old_flags_still_work(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [arg for arg in options(corpus, tmp_path / "run") if arg not in ("--hidden-size", "8")]
    assert main([*arguments, "--hidden", "8", "--batch=4", "--variational_dropout", "0.1"]) == 0
    errors = capsys.readouterr().err
    assert "note: --hidden is now --hidden-size; the old name will be removed" in errors
    config = Run.open(tmp_path / "run").config
    assert (config["hidden_size"], config["batch_size"], config["recurrent_dropout"]) == (8, 4, 0.1)
