"""Store a training in a run folder, and load the trained model from it.

A run folder holds the configuration (config.json), the cell's text, the vocabulary, the tokenizer if texts are split by
one, metrics.jsonl (one record per epoch), and the checkpoints `last` (everything that resuming needs) and `best` (the
model with the best dev metric). One process writes to a run at a time: `Run.create` takes a lock that ends with the
process. `Run.open` only reads.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

from torch import Tensor, nn

from rrnn import __version__
from rrnn.errors import RunError
from rrnn.files import parse_json, read_bytes, read_json, read_text
from rrnn.tasks import checkpoints
from rrnn.tasks.checkpoints import Checkpoint, write_atomic
from rrnn.tasks.configs import Config, with_current_names
from rrnn.tasks.workers import lock_file

CONFIG, CELL, VOCABULARY, TOKENIZER, METRICS, RESULT, LOCK = (
    "config.json",
    "cell.cell",
    "vocabulary.json",
    "tokenizer.json",
    "metrics.jsonl",
    "result.json",
    ".lock",
)

_OURS = (CONFIG, CELL, VOCABULARY, TOKENIZER, METRICS, LOCK)

# What may change when a run is resumed: how long, how often and where it is computed, not what is computed.
FREE = frozenset({"epochs", "device", "threads", "checkpoint_epochs", "checkpoint_seconds", "rrnn"})


class Saveable(Protocol):
    """What can write itself to a file, as a vocabulary and a tokenizer can."""

    def save(self, path: Path) -> None: ...


class Run:
    """A run folder, open for reading, or, with a lock, for writing."""

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
        tokenizer: Saveable | None = None,
        resume: bool = False,
        defaults: Mapping[str, Any] | None = None,
    ) -> Run:
        """Create a run and lock it for this process, or, with `resume`, continue the run in the folder if there is one.

        A resumed run must have the same configuration (except for `FREE`), cell, vocabulary and tokenizer. Options that
        are newer than the run stay out of its configuration as long as they have their `defaults`.
        """
        folder = Path(folder)
        as_read = json.loads(json.dumps({**config, "rrnn": __version__}))
        _check_foreign(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder, as_read, _take_lock(folder))
        try:
            if (folder / CONFIG).exists() and not resume:
                raise RunError(f"{folder} already holds a run: add --resume, or choose another --out")
            _sweep(folder)
            if (folder / CONFIG).exists():
                run.config = _as_old_as(read_config(folder), as_read, defaults or {})
            run._write_identity(cell_text, {VOCABULARY: vocabulary, TOKENIZER: tokenizer})
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open an existing run read-only, without its lock."""
        return cls(Path(folder), read_config(Path(folder)), None)

    @property
    def writable(self) -> bool:
        """Whether this process may write to the run."""
        return self._lock is not None

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- files -------------------------------------------------------------------------------------------------

    @property
    def cell_text(self) -> str | None:
        """The text of the run's cell; None for a model that is not a cell."""
        path = self.folder / CELL
        return read_text(path) if path.exists() else None

    @property
    def vocabulary_path(self) -> Path:
        return self.folder / VOCABULARY

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a record to metrics.jsonl."""
        with open(self.folder / METRICS, "a", encoding="utf-8") as file:
            file.write(_line(record))

    def rewrite_log(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace metrics.jsonl by these records: epochs after the checkpoint of a resumed run are trained again."""
        write_atomic(self.folder / METRICS, "".join(map(_line, records)).encode())

    def records(self) -> list[dict[str, Any]]:
        """Read the complete lines of metrics.jsonl."""
        path = self.folder / METRICS
        lines = read_bytes(path).split(b"\n")[:-1] if path.exists() else []
        try:
            records = [parse_json(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{path} is damaged: a line of it is not JSON ({error})") from None
        if not all(isinstance(record, dict) for record in records):
            raise RunError(f"{path} is damaged: each line must be a JSON object, the record of an epoch")
        return records

    def save(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Write the checkpoint of this name, with the run's configuration in it."""
        checkpoints.save(self.folder, name, tensors, {**meta, "name": name, "config": self.config})

    def load(self, name: str, *, until: int | None = None) -> Checkpoint | None:
        """Return the newest intact checkpoint of this name ("last", "best"), or None if there is none yet.

        With `until`, later epochs are ignored. The checkpoint's `note` says if a damaged one was skipped.
        """
        read = checkpoints.settle if self.writable else checkpoints.load
        found = read(self.folder, name, until=until)
        if found is not None and found.meta["name"] != name:
            raise RunError(
                f"{checkpoints.path_of(self.folder, name)} contains the checkpoint {found.meta['name']!r}. Put the "
                f"checkpoint {name!r} back, or delete the file to continue without it."
            )
        config = with_current_names(found.meta.get("config", {})) if found is not None else {}
        if found is not None and (changes := differences(config, self.config)):
            raise RunError(
                f"the checkpoint {checkpoints.path_of(self.folder, name)} belongs to another run. It differs from "
                f"{CONFIG} in:\n{changes}\nPut the right file back, or delete it to continue without it."
            )
        return found

    def best(self) -> Checkpoint:
        """Return the checkpoint `best`, or raise an error if there is none yet. Warn if a damaged one was skipped."""
        found = self.load("best")
        if found is None:
            raise RunError(f"the run in {self.folder} has no checkpoint yet: train it further first")
        if found.note:
            warnings.warn(found.note, stacklevel=4)
        return found

    def _write_identity(self, cell_text: str | None, files: Mapping[str, Saveable | None]) -> None:
        """Write cell, vocabulary, tokenizer and, last, config.json: a folder without it is not a run yet."""
        if (self.folder / CONFIG).exists():
            self._check_identity(cell_text, files)
        else:
            if cell_text is not None:
                write_atomic(self.folder / CELL, cell_text.encode())
            for name, content in files.items():
                if content is not None:
                    content.save(self.folder / name)
        write_atomic(self.folder / CONFIG, (json.dumps(self.config, indent=2) + "\n").encode())

    def _check_identity(self, cell_text: str | None, files: Mapping[str, Saveable | None]) -> None:
        old = read_config(self.folder)
        changes = differences(old, self.config)
        if cell_text is not None and cell_text != self.cell_text:
            changes += f"\n  the cell differs from {CELL}"
        for name, what in ((TOKENIZER, "tokenizer"), (VOCABULARY, "vocabulary of the data")):
            if (content := files.get(name)) is not None and not self._same_file(name, content):
                changes += f"\n  the {what} differs from {name}"
        if changes:
            raise RunError(
                f"the run in {self.folder} cannot be resumed with another configuration. What differs:\n"
                f"{changes.strip(chr(10))}\nResume it with its own configuration, or choose another --out."
            )
        self._check_epochs(old.get("epochs"))

    def _check_epochs(self, before: int | None) -> None:
        """Refuse fewer epochs than were trained: the configuration would no longer tell what the run is."""
        log = self.folder / METRICS
        trained = read_bytes(log).count(b"\n") if log.exists() else 0
        epochs = self.config.get("epochs")
        if epochs != before and epochs is not None and epochs < trained:
            raise RunError(
                f"a run can be trained for more epochs, not for fewer; {self.folder} has trained {trained} already, "
                f"and epochs is {epochs}: leave out --epochs, or choose another --out"
            )

    def _same_file(self, name: str, content: Saveable) -> bool:
        own, path = self.folder / name, self.folder / f".{name}.part"
        content.save(path)
        try:
            return own.exists() and path.read_bytes() == own.read_bytes()
        finally:
            path.unlink()


def runs_in(folder: Path) -> list[Path]:
    """Return the folder if it is a run, else all runs below it, at any depth."""
    if (folder / CONFIG).exists():
        return [folder]
    return [path.parent for path in sorted(folder.rglob(CONFIG))]


def no_run(folder: Path) -> RunError:
    """Return the error that a folder holds no run."""
    what = f"there is no {CONFIG} in it" if folder.is_dir() else "there is no such folder"
    return RunError(f"{folder} holds no run: {what}")


def read_config(folder: Path) -> dict[str, Any]:
    """Read a run's config.json, with the fields of older versions under their current names."""
    path = folder / CONFIG
    if not path.exists():
        raise no_run(folder)
    try:
        config = read_json(path)
    except ValueError as error:
        raise RunError(f"{path} is damaged: it is not JSON ({error})") from error
    if not isinstance(config, dict) or "task" not in config:
        raise RunError(f'{path} is not the configuration of a run, which is a JSON object with a "task"')
    return with_current_names(config)


def open_task_run(folder: str | Path, config: type[Config]) -> Run:
    """Open a run read-only, and check that it is of the task of this configuration class."""
    run = Run.open(folder)
    if run.config["task"] != config.task:
        raise RunError(
            f"the run in {folder} is of the task {run.config['task']!r}, not {config.model_name}: name a run of "
            f"`rrnn {config.task} train`"
        )
    return run


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], run: Run) -> None:
    """Load a checkpoint's weights into the network of the run."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(f"the weights in {run.folder} do not fit its configuration: {error}") from None


def _as_old_as(old: Mapping[str, Any], new: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return `new` without options that are missing in `old` and have their default."""
    plain = json.loads(json.dumps(dict(defaults)))
    return {key: value for key, value in new.items() if key in old or key not in plain or plain[key] != value}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return one line per key with another value, or "" if there is none. Keys in `FREE` may differ."""
    a, b = _flat(old), _flat(new)
    keys = [
        key for key in {**a, **b} if key not in FREE and (key not in a or key not in b or a[key] != b[key])
    ]

    def show(values: dict[str, Any], key: str) -> str:
        return json.dumps(values[key]) if key in values else "(missing)"

    return "\n".join(f"  {key}: was {show(a, key)}, now {show(b, key)}" for key in keys)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dicts as one: {"facts": {"parameters": 5}} becomes {"facts.parameters": 5}."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"


def _check_foreign(folder: Path) -> None:
    """Refuse a folder that contains other files. What a killed process left of a new run is allowed."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"a run is a folder, but {folder} is a file: choose another --out")
    if folder.exists() and not (folder / CONFIG).exists():
        names = sorted(path.name for path in folder.iterdir())
        foreign = [name for name in names if name not in _OURS and not _is_temporary(name)]
        if foreign:
            raise RunError(
                f"{folder} is not empty and holds no run (it contains {foreign[0]!r}): choose another --out"
            )


def _is_temporary(name: str) -> bool:
    """Return whether this is the name of a file that was not completely written: .NAME.something."""
    return name.endswith(".part") or name.startswith(tuple(f".{own}." for own in _OURS))


def _sweep(folder: Path) -> None:
    """Remove files that a killed process left unfinished."""
    for path in folder.iterdir():
        if path.name.startswith(".") and _is_temporary(path.name):
            path.unlink()


def _take_lock(folder: Path) -> IO[str]:
    """Open the lock file and lock it, until it is closed or the process ends in any way."""
    file = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 - it stays open as long as the run
    if not lock_file(file):
        file.close()
        raise RunError(
            f"another process is training in {folder}: wait for it, stop it, or choose another --out"
        )
    return file


# ---- loading a trained model -----------------------------------------------------------------------------------------


# Task → "module:function"; the function returns the trained model of a run.
LOADERS: dict[str, str] = {
    "classify": "rrnn.tasks.classify.trained:load_run",
    "lm": "rrnn.tasks.lm.trained:load_run",
}


def load(folder: str | Path) -> Any:
    """Load the best model of a run, on the CPU: a `TrainedLanguageModel` or a `TrainedClassifier`."""
    run = Run.open(folder)
    task = run.config["task"]
    if task not in LOADERS:
        raise RunError(
            f"the run in {folder} is of the task {task!r}; rrnn {__version__} can load {', '.join(LOADERS)}. Load it "
            "with the version that made it"
        )
    module, _, name = LOADERS[task].partition(":")
    function: Callable[[Run], Any] = getattr(import_module(module), name)
    return function(run)
