"""Store a training in a run folder, and load the trained model from it.

A run folder holds the configuration (config.json), the cell's text, the vocabulary, metrics.jsonl (one record per
epoch), and the checkpoints `last` (everything that resuming needs) and `best` (the model with the best dev metric).
One process writes to a run at a time: `Run.create` takes a lock that ends with the process. `Run.open` only reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

from torch import Tensor

from rrnn import __version__
from rrnn.errors import RunError
from rrnn.tasks import checkpoints
from rrnn.tasks.checkpoints import Checkpoint, write_atomic

CONFIG, CELL, VOCABULARY, METRICS, LOCK = (
    "config.json",
    "cell.cell",
    "vocabulary.json",
    "metrics.jsonl",
    ".lock",
)

_OURS = (CONFIG, CELL, VOCABULARY, METRICS, LOCK)

# What may differ between two sittings of one run: how long, how often and where, not what is computed.
FREE = frozenset({"epochs", "device", "checkpoint_epochs", "checkpoint_seconds", "rrnn"})


class Saveable(Protocol):
    """A vocabulary, for instance."""

    def save(self, path: Path) -> None: ...


class Run:
    def __init__(self, folder: Path, config: dict[str, Any], lock: IO[str] | None) -> None:
        self.folder, self.config, self._lock = folder, config, lock

    @classmethod
    def create(
        cls,
        folder: str | Path,
        config: Mapping[str, Any],
        cell_text: str | None = None,
        vocabulary: Saveable | None = None,
        *,
        resume: bool = False,
        defaults: Mapping[str, Any] | None = None,
    ) -> Run:
        """A new run, locked for this process. With `resume` the run that is in the folder, if there is one; its
        configuration, cell and vocabulary must be these (but for `FREE`). It may be older than some options: those
        stay out of its configuration where they have their `defaults`."""
        folder = Path(folder)
        as_read = json.loads(json.dumps({**config, "rrnn": __version__}))
        _check_foreign(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder, as_read, _take_lock(folder))
        try:
            if (folder / CONFIG).exists() and not resume:
                raise RunError(
                    f"{folder} already holds a run, which is not overwritten: choose another folder, or resume it"
                )
            _sweep(folder)
            if (folder / CONFIG).exists():
                run.config = _as_old_as(read_config(folder), as_read, defaults or {})
            run._write_identity(cell_text, vocabulary)
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """To read."""
        return cls(Path(folder), read_config(Path(folder)), None)

    @property
    def writable(self) -> bool:
        return self._lock is not None

    def close(self) -> None:
        """Lets go of the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- its files ----------------------------------------------------------------------------------------------

    @property
    def cell_text(self) -> str | None:
        path = self.folder / CELL
        return path.read_text(encoding="utf-8") if path.exists() else None

    @property
    def vocabulary_path(self) -> Path:
        return self.folder / VOCABULARY

    def log(self, record: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl."""
        with open(self.folder / METRICS, "a", encoding="utf-8") as file:
            file.write(_line(record))

    def rewrite_log(self, records: Iterable[Mapping[str, Any]]) -> None:
        """What came after the checkpoint that a run resumes from will come again."""
        write_atomic(self.folder / METRICS, "".join(map(_line, records)).encode())

    def records(self) -> list[dict[str, Any]]:
        """Of metrics.jsonl, as far as it is written."""
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{path} is damaged: a line of it is not JSON ({error})") from None

    def save(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        checkpoints.save(self.folder, name, tensors, {**meta, "name": name, "config": self.config})

    def load(self, name: str, *, until: int | None = None) -> Checkpoint | None:
        """The newest good checkpoint called "last" or "best", of an epoch up to `until`; None if there is none yet.

        `note` of the answer says if a damaged one was passed over for the one before it."""
        read = checkpoints.settle if self.writable else checkpoints.load
        found = read(self.folder, name, until=until)
        if found is not None and found.meta["name"] != name:
            raise RunError(
                f"{checkpoints.path_of(self.folder, name)} is a checkpoint called {found.meta['name']!r}, which holds "
                f"other things than {name!r} does. Put the right file back, or delete it to go on without it."
            )
        if found is not None and (changes := differences(found.meta.get("config", {}), self.config)):
            raise RunError(
                f"the checkpoint {checkpoints.path_of(self.folder, name)} belongs to another run. It differs from "
                f"{CONFIG} in:\n{changes}\nPut the right file back, or delete it to go on without it."
            )
        return found

    def _write_identity(self, cell_text: str | None, vocabulary: Saveable | None) -> None:
        """config.json comes last: a folder without it holds no run yet."""
        if (self.folder / CONFIG).exists():
            self._check_identity(cell_text, vocabulary)
        else:
            if cell_text is not None:
                write_atomic(self.folder / CELL, cell_text.encode())
            if vocabulary is not None:
                vocabulary.save(self.vocabulary_path)
        write_atomic(self.folder / CONFIG, (json.dumps(self.config, indent=2) + "\n").encode())

    def _check_identity(self, cell_text: str | None, vocabulary: Saveable | None) -> None:
        changes = differences(read_config(self.folder), self.config)
        if cell_text is not None and cell_text != self.cell_text:
            changes += f"\n  the cell is not the one in {CELL}"
        if vocabulary is not None and not self._same_file(vocabulary):
            changes += f"\n  the data's vocabulary is not the one in {VOCABULARY}"
        if changes:
            raise RunError(
                f"the run in {self.folder} cannot be resumed with another configuration. What differs:\n"
                f"{changes.strip(chr(10))}\nResume it with the configuration it has, or train in a new folder."
            )

    def _same_file(self, vocabulary: Saveable) -> bool:
        path = self.folder / f".{VOCABULARY}.part"
        vocabulary.save(path)
        try:
            return path.read_bytes() == self.vocabulary_path.read_bytes()
        finally:
            path.unlink()


def runs_in(folder: Path) -> list[Path]:
    """The folder, where it is a run, else those below it, at any depth, as a search's."""
    if (folder / CONFIG).exists():
        return [folder]
    return [path.parent for path in sorted(folder.rglob(CONFIG))]


def read_config(folder: Path) -> dict[str, Any]:
    """A run's config.json, checked to be one."""
    path = folder / CONFIG
    if not path.exists():
        raise RunError(f"{folder} holds no run: there is no {CONFIG} in it")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is damaged: it is not JSON ({error})") from error
    if not isinstance(config, dict) or "task" not in config:
        raise RunError(f'{path} is no configuration of a run: it is a JSON object with a "task"')
    return config


def _as_old_as(old: Mapping[str, Any], new: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`new` without what `old` does not know of and what is as it was before it could be said."""
    plain = json.loads(json.dumps(dict(defaults)))
    return {key: value for key, value in new.items() if key in old or key not in plain or plain[key] != value}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """One line for each key that has another value, "" if there is none; `FREE` keys may differ."""
    a, b = _flat(old), _flat(new)
    keys = [
        key for key in {**a, **b} if key not in FREE and (key not in a or key not in b or a[key] != b[key])
    ]

    def show(values: dict[str, Any], key: str) -> str:
        return json.dumps(values[key]) if key in values else "(not there)"

    return "\n".join(f"  {key}: was {show(a, key)}, now {show(b, key)}" for key in keys)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"facts": {"parameters": 5}} as {"facts.parameters": 5}."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"


def _check_foreign(folder: Path) -> None:
    """A folder of other things is not littered. What a killed process left of a run's beginning is not foreign."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"a run is a folder, and {folder} is a file: choose another name")
    if folder.exists() and not (folder / CONFIG).exists():
        names = sorted(path.name for path in folder.iterdir())
        foreign = [name for name in names if name not in _OURS and not _is_temporary(name)]
        if foreign:
            raise RunError(
                f"{folder} holds no run and is not empty (there is {foreign[0]!r} in it): choose a new folder"
            )


def _is_temporary(name: str) -> bool:
    """What a file is called until it is whole: .NAME.something."""
    return name.endswith(".part") or name.startswith(tuple(f".{own}." for own in _OURS))


def _sweep(folder: Path) -> None:
    """Removes what a killed process left unfinished."""
    for path in folder.iterdir():
        if path.name.startswith(".") and _is_temporary(path.name):
            path.unlink()


def _take_lock(folder: Path) -> IO[str]:
    """An open file, locked until it is closed or the process ends, however it ends."""
    file = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 - it stays open as long as the run
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError as error:
        file.close()
        raise RunError(
            f"another process is training in {folder}: wait for it, stop it, or choose another folder"
        ) from error
    return file


# ---- loading a trained model -----------------------------------------------------------------------------------------


# config["task"] → "module:function"; the function makes the model of a Run.
LOADERS: dict[str, str] = {
    "classify": "rrnn.tasks.classify.trained:load_run",
    "lm": "rrnn.tasks.lm.trained:load_run",
}


def load(folder: str | Path) -> Any:
    """The best model of a run, on the CPU: a `TrainedLanguageModel` or a text classifier, as its task is."""
    run = Run.open(folder)
    task = run.config["task"]
    if task not in LOADERS:
        raise RunError(
            f"the run in {folder} is of the task {task!r}, and rrnn {__version__} knows {', '.join(LOADERS)}: load it "
            "with the version that made it"
        )
    module, _, name = LOADERS[task].partition(":")
    function: Callable[[Run], Any] = getattr(import_module(module), name)
    return function(run)
