"""A run's folder: nothing is overwritten, nobody disturbs, nothing foreign gets in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rrnn.errors import FormatError, RunError
from rrnn.tasks.runs import Run, differences, read_config
from rrnn.tasks.vocabulary import Vocabulary

CONFIG = {"task": "toy", "lr": 0.5, "cell": "F", "epochs": 3, "sizes": (2, 3)}
WORDS = Vocabulary(["<s>", "a", "b"])


def test_a_run_reads_back(tmp_path: Path) -> None:
    with Run.create(tmp_path / "a" / "run", CONFIG, "cell F", WORDS) as run:
        run.log({"epoch": 1, "train_loss": 2.5})
        run.log({"epoch": 2, "train_loss": 1.5})
        run.save("best", {"w": torch.ones(2)}, {"epoch": 2})
    found = Run.open(tmp_path / "a" / "run")
    assert found.config["lr"] == 0.5 and found.config["task"] == "toy" and "rrnn" in found.config
    assert found.cell_text == "cell F" and Vocabulary.load(found.vocabulary_path) == WORDS
    assert [record["train_loss"] for record in found.records()] == [2.5, 1.5]
    best = found.load("best")
    assert best and best.tensors["w"].equal(torch.ones(2)) and found.load("last") is None
    assert not found.writable


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", CONFIG).close()
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(RunError, match="already holds a run"):
        Run.create(tmp_path / "run", {**CONFIG, "lr": 1.0})
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_a_folder_of_other_things_is_not_littered(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match=r"not empty and holds no run \(it contains 'thesis.tex'"):
        Run.create(tmp_path, CONFIG)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="is a file"):
        Run.create(tmp_path / "thesis.tex", CONFIG)


def test_resuming_with_another_configuration_says_what_differs(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", CONFIG, "cell F", WORDS).close()
    Run.create(
        tmp_path / "run", {**CONFIG, "epochs": 9}, "cell F", WORDS, resume=True
    ).close()  # longer is the same
    assert read_config(tmp_path / "run")["epochs"] == 9
    with pytest.raises(RunError) as caught:
        Run.create(
            tmp_path / "run", {**CONFIG, "lr": 1.0, "new": 1}, "cell G", Vocabulary(["<s>", "a"]), resume=True
        )
    text = str(caught.value)
    assert "lr: was 0.5, now 1.0" in text and "new: was (missing), now 1" in text
    assert "cell.cell" in text and "vocabulary.json" in text
    assert read_config(tmp_path / "run")["lr"] == 0.5
    Run.create(tmp_path / "run", CONFIG, "cell F", WORDS, resume=True).close()  # the lock was let go


def test_a_run_is_not_resumed_for_fewer_epochs_than_it_has_trained(tmp_path: Path) -> None:
    with Run.create(tmp_path, {**CONFIG, "epochs": 2}) as run:
        run.log({"epoch": 1})
        run.log({"epoch": 2})
    with pytest.raises(RunError, match=r"has trained 2 already, and epochs is 1: leave out --epochs"):
        Run.create(tmp_path, {**CONFIG, "epochs": 1}, resume=True)
    assert read_config(tmp_path)["epochs"] == 2
    Run.create(tmp_path, {**CONFIG, "epochs": 2}, resume=True).close()


def test_a_run_whose_configuration_has_fewer_epochs_than_it_has_trained_is_resumed_with_it(
    tmp_path: Path,
) -> None:
    """Earlier versions wrote such configurations."""
    with Run.create(tmp_path, {**CONFIG, "epochs": 1}) as run:
        run.log({"epoch": 1})
        run.log({"epoch": 2})
    Run.create(tmp_path, {**CONFIG, "epochs": 1}, resume=True).close()


def test_a_run_is_resumed_that_is_older_than_an_option(tmp_path: Path) -> None:
    defaults, older = {"average": 0.0, "rates": (1, 2)}, {"task": "toy", "seed": 3}
    with Run.create(tmp_path, older) as run:
        run.save("last", {}, {"epoch": 1})
    with pytest.raises(RunError, match=r"average: was \(missing\), now 0\.5\nResume"):
        Run.create(tmp_path, older | defaults | {"average": 0.5}, resume=True, defaults=defaults)
    with Run.create(tmp_path, older | defaults, resume=True, defaults=defaults) as run:
        assert run.load("last") is not None
    assert Run.open(tmp_path).load("last") is not None and "average" not in Run.open(tmp_path).config


def test_resume_where_nothing_is_yet_begins(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.json.part").write_text("{")  # killed while creating
    (folder / ".vocabulary.json.4711").write_text("[")
    (folder / "cell.cell").write_text("cell")
    Run.create(folder, CONFIG, "cell F", resume=True).close()
    assert Run.open(folder).cell_text == "cell F"
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "cell.cell", "config.json"]


@pytest.mark.slow
def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from rrnn.tasks.runs import Run\n"
        "run = Run.create(sys.argv[1], {'task': 'toy'}, resume=True); print('locked', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout and process.stdin
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(RunError, match="another process is training"):
        Run.create(tmp_path / "run", {"task": "toy"}, resume=True)
    Run.open(tmp_path / "run")  # reading is fine
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    Run.create(tmp_path / "run", {"task": "toy"}, resume=True).close()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    for name, cell in (("one", "F"), ("two", "B")):
        with Run.create(tmp_path / name, {**CONFIG, "cell": cell}) as run:
            run.save("last", {}, {"epoch": 1})
    (tmp_path / "one" / "last.safetensors").replace(tmp_path / "two" / "last.safetensors")
    with pytest.raises(RunError, match=r'belongs to another run[^$]*cell: was "F", now "B"'):
        Run.open(tmp_path / "two").load("last")


def test_a_checkpoint_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG) as run:
        run.save("best", {}, {"epoch": 1})
    (tmp_path / "run" / "best.safetensors").replace(tmp_path / "run" / "last.safetensors")
    with pytest.raises(RunError, match="contains the checkpoint 'best'"):
        Run.open(tmp_path / "run").load("last")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no run"),
        ("{", "not JSON"),
        ("[]", "not the configuration"),
        ("{}", "not the conf"),
        ('{"task":' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_folders_that_are_no_runs(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        Run.open(tmp_path)


def test_a_damaged_cell(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG, cell_text="rrnn-cell 1\n") as run:
        (tmp_path / "run" / "cell.cell").write_bytes(b"rrnn-cell 1\n\xff\xfe\x00")
        with pytest.raises(FormatError, match=r"cell\.cell:2: a text file must be UTF-8"):
            _ = run.cell_text


def test_a_torn_last_line_of_the_log_is_not_read(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG) as run:
        run.log({"epoch": 1})
        with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
            file.write('{"epoch": 2, "tra')
        assert run.records() == [{"epoch": 1}]
        (tmp_path / "run" / "metrics.jsonl").write_text("not JSON\n")
        with pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
            run.records()


def test_differences_follow_json() -> None:
    assert differences({"a": 1, "epochs": 3}, {"a": 1.0, "epochs": 4}) == ""
    assert json.loads(differences({"a": None}, {"a": [1]}).split("now ")[1]) == [1]
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == "  a.c: was 2, now 3"
