"""Two processes train as one does on the joint batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_lm

from rrnn.tasks.runs import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a loopback device that is called lo")
EPOCHS = 3


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [*command, "-m", "rrnn", "lm", "train", *arguments],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.slow
def test_two_processes_train_as_one_on_the_joint_batch(tmp_path: Path) -> None:
    """Without dropout, whose masks each process draws for itself. The second sitting resumes in both."""
    data, config = tiny_lm.write_corpus(tmp_path / "text.txt"), tmp_path / "config.json"
    changes = {
        "embedding_dropout": 0.0,
        "output_dropout": 0.0,
        "recurrent_dropout": 0.0,
        "between_dropout": 0.0,
    }
    config.write_text(json.dumps(tiny_lm.tiny_config(data, **changes).to_dict()))
    both, one = tmp_path / "both", tmp_path / "one"
    first = torchrun("--out", str(both), "--config", str(config), "--epochs", str(EPOCHS - 1))
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("epoch   1") == 1  # the second process prints nothing
    second = torchrun("--out", str(both), "--resume", "--epochs", str(EPOCHS))
    assert second.returncode == 0, second.stderr
    tiny_lm.train_tiny(one, data, **changes)

    ours, theirs = Run.open(both).records(), Run.open(one).records()
    assert [record["epoch"] for record in ours] == list(range(1, EPOCHS + 1))
    for key in ("train_loss", "dev_loss", "dev_ppl"):
        assert [r[key] for r in ours] == pytest.approx([r[key] for r in theirs], rel=1e-5)
    ours, theirs = Run.open(both).load("best"), Run.open(one).load("best")
    assert ours and theirs
    for name, tensor in theirs.tensors.items():
        assert ours.tensors[name].allclose(tensor, rtol=1e-4, atol=1e-6), name
    results = [json.loads((folder / "result.json").read_text()) for folder in (both, one)]
    assert results[0]["test_ppl"] == pytest.approx(results[1]["test_ppl"], rel=1e-5)
