"""`rrnn lm`: train, evaluate and sample language models, and set them beside the paper's."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rrnn.cli.overrides import given, overrides_of
from rrnn.errors import RunError
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.config import preset as preset_named

DEFAULT = "tiny"
_Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
_Settings: Any = overrides_of(
    LMConfig, "What decides the training; a preset sets some of it.", without=["cell", "params"]
)


def _option(metavar: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass
class Train:
    """Train a language model. Without options: a tiny one, on the language reference inside Python.

    Its folder gets the configuration, the cell, the vocabulary, metrics.jsonl, the checkpoints `best` and `last`,
    result.json and a loss plot. Several processes: torchrun --nproc-per-node 2 -m rrnn lm train …
    """

    out: Annotated[Path | None, _option("FOLDER")] = None
    """The run's folder (default: runs/PRESET-CELL)."""
    cell: Annotated[str | None, _option("NAME|FILE")] = None
    """A cell of the zoo (B, B-max-plus, C, F, SRU, …; default: F), or a .cell file."""
    model: Annotated[Literal["lstm", "gru"] | None, _option("{lstm,gru}")] = None
    """One of torch's own layers instead of a cell."""
    params: Annotated[str | None, _option("NUMBER")] = None
    """Take the largest hidden size within so many parameters: 10M, 250k."""
    preset: Annotated[
        Literal["tiny", "paper-10m", "paper-24m"] | None, _option("{tiny,paper-10m,paper-24m}")
    ] = None
    """What to begin with (default: tiny). The paper's read the Penn Treebank and want a GPU."""
    config: Annotated[Path | None, _option("FILE")] = None
    """A JSON file to begin with instead of a preset, such as a run's config.json."""
    resume: Annotated[bool, _option("")] = False
    """Go on with the run in the folder, as it was configured; begin it if there is none yet."""
    settings: Annotated[_Settings, tyro.conf.arg(name="")] = field(default_factory=_Settings)  # pyright: ignore[reportInvalidTypeForm]


def train(options: Train) -> None:
    from rrnn.tasks.lm.experiment import train as train_model
    from rrnn.tasks.training import is_first_process

    changes = _changes(options)
    name = f"{options.preset or DEFAULT}-{Path(changes.get('cell', LMConfig.cell)).stem}"
    folder = options.out or Path("runs") / name
    try:
        result = train_model(_configure(options, folder, changes), folder, resume=options.resume)
    except KeyboardInterrupt:
        print(f"stopped. Go on with: rrnn lm train --out {folder} --resume", file=sys.stderr)
        raise
    if is_first_process():
        s = result.summary
        test = "" if s.test_ppl is None else f", test perplexity {s.test_ppl:.2f}"
        print(f"best epoch {s.best_epoch}: dev perplexity {s.dev_ppl:.2f}{test}; run: {folder}")


@dataclass
class Eval:
    """The perplexity of a text under a trained model: one stream, every token counted."""

    run: _Run
    """The run's folder."""
    split: str = "test"
    """train, dev or test of the data it was trained with, or a file of text."""
    device: str = "auto"
    """cpu, cuda, or auto: a GPU if there is one."""


def evaluate(options: Eval) -> None:
    from rrnn.tasks.experiment import pick_device

    model = _load(options.run).to(pick_device(options.device))
    tokens = model.read_split(options.split)
    start = time.perf_counter()
    score = model.score(tokens)
    seconds = time.perf_counter() - start
    unknown = sum(token not in model.vocabulary for token in tokens)
    note = f" ({unknown:,} of them read as {model.vocabulary.unknown})" if unknown else ""
    bits = f", {score.loss / math.log(2):.4f} bits a character" if model.config.level == "char" else ""
    print(
        f"{options.split}: perplexity {score.perplexity:.4f} ({score.loss:.6f} nats a token{bits}), "
        f"{score.tokens:,} tokens{note}, {score.tokens / seconds:,.0f}/s"
    )


@dataclass
class Generate:
    """Draw a text from a trained model, word by word."""

    run: _Run
    """The run's folder."""
    prompt: str = ""
    """What the text begins with."""
    length: int = 100
    """Tokens to draw; 0: without end."""
    temperature: float = 1.0
    """Below 1 likely words become likelier; 0 always takes the likeliest."""
    top_k: Annotated[int | None, _option("INT")] = None
    """Draw among the k likeliest words (default: among all)."""
    seed: Annotated[int | None, _option("INT")] = None
    """The same text again (default: another each time)."""


def generate(options: Generate) -> None:
    if options.length < 0:
        raise RunError(f"length is a number of tokens, or 0 for a text without end; got {options.length}")
    model = _load(options.run)
    unknown = [t for t in model.tokenise(options.prompt) if t not in model.vocabulary]
    if unknown and model.vocabulary.unknown is not None:
        print(
            f"not in the vocabulary, read as {model.vocabulary.unknown}: {' '.join(unknown)}", file=sys.stderr
        )
    drawn = model.stream(
        options.prompt,
        length=options.length or None,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    print(options.prompt, end="", flush=True)
    for piece in model.pieces(options.prompt, drawn):
        print(piece, end="", flush=True)
    print()


@dataclass
class Table:
    """The paper's table of perplexities on the Penn Treebank beside our runs, in Markdown."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, _option("[RUN …]")] = ()
    """Runs, or folders that hold some, among others; none: the paper's table alone."""
    json: Annotated[Path | None, _option("FILE")] = None
    """Write the table to this file, too."""


def table(options: Table) -> None:
    from rrnn.tasks.lm.table import table_of, to_json, to_markdown

    rows = table_of(options.runs)
    print(to_markdown(rows))
    if options.json is not None:
        text = json.dumps(to_json(rows), indent=2) + "\n"
        options.json.write_text(text, encoding="utf-8")


def _changes(options: Train) -> dict[str, Any]:
    """What the command line says, as fields of a configuration."""
    changes = given(options.settings)
    if options.params is not None:
        from rrnn.tasks.lm.experiment import read_count

        changes["params"] = read_count(options.params)
    if options.model is not None and options.cell is not None:
        raise RunError(f"a model has a cell or is {options.model}: leave out --cell or --model")
    cell = options.model or options.cell
    return changes if cell is None else {**changes, "cell": cell}


def _configure(options: Train, folder: Path, changes: dict[str, Any]) -> LMConfig:
    """A run's own configuration when it is resumed, the file's, or the preset's; with the changes."""
    own = folder / "config.json"
    file = options.config
    if file is None and options.preset is None and options.resume and own.exists():
        file = own
    if file is None:
        return preset_named(options.preset or DEFAULT, **changes)
    if options.preset is not None:
        raise RunError("a training begins with a preset or with a file: leave out --preset or --config")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{file} is not JSON: {error}") from None
    return LMConfig.from_run(values).changed(**changes)


def _load(folder: Path) -> Any:
    from rrnn.tasks.lm.trained import lm_run, load_run

    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        model = load_run(lm_run(folder))
    for note in notes:
        print(f"note: {note.message}", file=sys.stderr)
    return model
