"""Checkpoints are whole or refused."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch

import rrnn
from rrnn.errors import RunError
from rrnn.tasks.checkpoints import decode, encode, load, path_of, save, settle

TENSORS = {
    "weight": torch.randn(3, 4),
    "half": torch.randn(5).bfloat16(),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "state": torch.arange(7, dtype=torch.uint8),
    "columns": torch.randn(4, 3).T,
}
META = {"epoch": 3, "text": "ε", "nested": {"list": [1, 2.5, None, 0.1 + 0.2]}}


def test_round_trip_to_the_bit() -> None:
    found = decode(encode(TENSORS, META), "file")
    assert found.meta == META
    assert found.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found.tensors[name].dtype == tensor.dtype and found.tensors[name].equal(tensor)


def test_tensors_that_share_memory_are_stored_each() -> None:
    tied = torch.randn(3)
    found = decode(encode({"a": tied, "b": tied, "c": tied[1:]}, {}), "file")
    assert found.tensors["b"].equal(tied) and found.tensors["c"].equal(tied[1:])


def test_others_read_the_file(tmp_path: Path) -> None:
    save(tmp_path, "last", TENSORS, META)
    with safetensors.safe_open(path_of(tmp_path, "last"), "pt") as file:
        assert file.get_tensor("weight").equal(TENSORS["weight"])


def test_any_changed_byte_and_any_cut_is_found() -> None:
    good = encode({"weight": torch.arange(3.0)}, {"epoch": 1})
    for position in range(len(good)):
        for damaged in (
            good[:position],
            good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :],
        ):
            with pytest.raises(RunError, match="file"):
                decode(damaged, "file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a safetensors file"),
        (b"PK\x03\x04 a pickle of torch.save", "not a safetensors file"),
        (safetensors.torch.save({"a": torch.zeros(2)}), "not a checkpoint of rrnn"),
        (safetensors.torch.save({"a": torch.zeros(2)}, {"format": "pt"}), "its format is 'pt'"),
        ((2).to_bytes(8, "little") + b"[]", "not a safetensors file"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, message: str) -> None:
    path_of(tmp_path, "last").write_bytes(content)
    with pytest.raises(RunError, match=message) as caught:
        load(tmp_path, "last")
    assert "last.safetensors" in str(caught.value) and "no older one" in str(caught.value)


def test_the_one_before_is_kept_and_stands_in(tmp_path: Path) -> None:
    assert load(tmp_path, "last") is None
    for epoch in (1, 2, 3):
        save(tmp_path, "last", {"weight": torch.full((2,), float(epoch))}, {"epoch": epoch})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last.previous.safetensors", "last.safetensors"]
    found = load(tmp_path, "last")
    assert found and found.meta == {"epoch": 3} and found.note is None

    path_of(tmp_path, "last").write_bytes(b"damaged")
    found = load(tmp_path, "last")
    assert found and found.meta == {"epoch": 2} and found.note and "last.previous.safetensors" in found.note
    assert path_of(tmp_path, "last").read_bytes() == b"damaged"  # reading changes nothing

    path_of(tmp_path, "last").unlink()  # as when the process dies between the two renames
    found = load(tmp_path, "last")
    assert found and found.meta == {"epoch": 2} and found.note is None


def test_a_damaged_file_never_replaces_the_good_one_before(tmp_path: Path) -> None:
    for epoch in (1, 2):
        save(tmp_path, "last", {}, {"epoch": epoch})
    path_of(tmp_path, "last").write_bytes(b"damaged")
    assert settle(tmp_path, "last")
    save(tmp_path, "last", {}, {"epoch": 3})
    path_of(tmp_path, "last").unlink()
    found = load(tmp_path, "last")
    assert found and found.meta == {"epoch": 1}


def test_until_passes_over_what_is_too_new(tmp_path: Path) -> None:
    for epoch in (4, 7):
        save(tmp_path, "best", {}, {"epoch": epoch})
    for until, epoch in ((9, 7), (7, 7), (6, 4)):
        found = load(tmp_path, "best", until=until)
        assert found and found.meta == {"epoch": epoch}
    assert settle(tmp_path, "best", until=3) is None
    assert not path_of(tmp_path, "best").exists()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, "last", {}, {"epoch": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(RunError, match="No space left on device"):
        patch.setattr("os.fsync", full)
        save(tmp_path, "last", {}, {"epoch": 2})
    found = load(tmp_path, "last")
    assert found and found.meta == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["last.safetensors"]


def test_nothing_reads_pickles() -> None:
    """They run what they hold. Optimisers, random states, messages between processes: all go without."""
    banned = re.compile(
        r"(?<!\.)\b(torch\.(load|save)\(|import pickle|from pickle|broadcast_object|all_gather_object)"
    )
    sources = Path(rrnn.__file__).parent.rglob("*.py")
    assert not [path.name for path in sources if banned.search(path.read_text(encoding="utf-8"))]
