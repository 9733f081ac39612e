"""`rrnn lm`: train and evaluate language models, generate text, and compare with the paper."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from rrnn.cli.shared import (
    GROUPED,
    file_stem,
    given,
    load_model,
    option,
    overrides_of,
    print_markdown,
    resumable,
    write_json,
)
from rrnn.errors import RunError
from rrnn.tasks.lm.config import PRESETS, LMConfig
from rrnn.tasks.lm.config import preset as preset_named

DEFAULT = "tiny"
_Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
_Settings: Any = overrides_of(
    LMConfig,
    {"": preset_named(DEFAULT)} | {name: preset_named(name) for name in PRESETS if name != DEFAULT},
    without=["cell", "params"],
)


@dataclass
class Train:
    """Train a language model. Without options, this trains a tiny one on the language reference inside Python.

    The run folder contains the configuration, the cell, the vocabulary, metrics.jsonl, the checkpoints `best` and
    `last`, result.json and a loss plot. To use several GPUs: torchrun --nproc-per-node 2 -m rrnn lm train …
    """

    out: Annotated[Path | None, option("FOLDER")] = None
    """The run folder (default: runs/PRESET-CELL)."""
    cell: Annotated[str | None, option("NAME|FILE")] = None
    """A cell that `rrnn zoo` lists (B, C, F, SRU, …; default: F), or a .cell file. Options: F:g=tanh,b_u."""
    model: Annotated[Literal["lstm", "gru"] | None, option("{lstm,gru}")] = None
    """One of torch's own layers instead of a cell."""
    params: Annotated[str | None, option("NUMBER")] = None
    """Choose the largest hidden size within this number of parameters, such as 10M or 250k."""
    preset: Annotated[
        Literal["tiny", "paper-10m", "paper-24m", "best-24m"] | None,
        option("{tiny,paper-10m,paper-24m,best-24m}"),
    ] = None
    """Start from this preset (default: tiny). The others have the paper's recipe or the best found, and need a GPU."""
    config: Annotated[Path | None, option("FILE")] = None
    """Start from a JSON file instead of a preset, such as a run's config.json."""
    resume: Annotated[bool, option("")] = False
    """Continue the run in the folder with its own configuration; start it if there is none yet."""
    settings: Annotated[_Settings, *GROUPED] = field(default_factory=_Settings)  # pyright: ignore[reportInvalidTypeForm]


def train(options: Train) -> None:
    """Run `rrnn lm train`."""
    from rrnn.tasks.lm.experiment import train as train_model
    from rrnn.tasks.training import is_first_process

    changes = _changes(options)
    name = f"{options.preset or DEFAULT}-{file_stem(changes.get('cell', LMConfig.cell))}"
    folder = options.out or Path("runs") / name
    with resumable("lm train", folder):
        result = train_model(_configure(options, folder, changes), folder, resume=options.resume)
    if is_first_process():
        s = result.summary
        test = "" if s.test_ppl is None else f", test perplexity {s.test_ppl:.2f}"
        print(f"best epoch {s.best_epoch}: dev perplexity {s.dev_ppl:.2f}{test}; run: {folder}")


@dataclass
class Eval:
    """Compute the perplexity of a text under a trained model, as one stream in which every token counts."""

    run: _Run
    """The run folder."""
    split: str = "test"
    """train, dev or test of the data it was trained on, or a text file."""
    device: str = "auto"
    """cpu, cuda, or auto (a GPU if there is one)."""


def evaluate(options: Eval) -> None:
    """Run `rrnn lm eval`."""
    from rrnn.tasks.experiment import pick_device
    from rrnn.tasks.lm.trained import load

    model = load_model(load, options.run).to(pick_device(options.device))
    tokens = model.read_split(options.split)
    start = time.perf_counter()
    score = model.score(tokens)
    seconds = time.perf_counter() - start
    unknown = sum(token not in model.vocabulary for token in tokens)
    note = f" ({unknown:,} of them replaced by {model.vocabulary.unknown})" if unknown else ""
    bits = f", {score.loss / math.log(2):.4f} bits per character" if model.config.level == "char" else ""
    print(
        f"{options.split}: perplexity {score.perplexity:.4f} ({score.loss:.6f} nats per token{bits}), "
        f"{score.tokens:,} tokens{note}, {score.tokens / seconds:,.0f}/s"
    )


@dataclass
class Generate:
    """Generate text with a trained model, word by word."""

    run: _Run
    """The run folder."""
    prompt: str = ""
    """The beginning of the text."""
    length: int = 100
    """Number of tokens to generate; 0 for an endless text."""
    temperature: float = 1.0
    """Below 1 likely words become likelier; 0 always takes the likeliest word."""
    top_k: Annotated[int | None, option("INT")] = None
    """Draw from the k likeliest words (default: from all)."""
    seed: Annotated[int | None, option("INT")] = None
    """Random seed, to get the same text again (default: another text each time)."""


def generate(options: Generate) -> None:
    """Run `rrnn lm generate`."""
    from rrnn.tasks.lm.trained import load

    if options.length < 0:
        raise RunError(f"length must be a number of tokens, or 0 for an endless text; got {options.length}")
    model = load_model(load, options.run)
    unknown = [t for t in model.tokenise(options.prompt) if t not in model.vocabulary]
    if unknown and model.vocabulary.unknown is not None:
        print(
            f"not in the vocabulary, replaced by {model.vocabulary.unknown}: {' '.join(unknown)}",
            file=sys.stderr,
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
    """Print the paper's table of perplexities on the Penn Treebank together with your runs, in Markdown."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, option("[RUN …]")] = ()
    """Runs, or folders that contain runs (default: only the paper's table)."""
    json: Annotated[Path | None, option("FILE")] = None
    """Also write the table to this JSON file."""


def table(options: Table) -> None:
    """Run `rrnn lm table`."""
    from rrnn.tasks.paper_tables import perplexities_to_json, perplexities_to_markdown, perplexity_table

    rows = perplexity_table(options.runs)
    print_markdown(perplexities_to_markdown(rows))
    write_json(perplexities_to_json(rows), options.json)


def _changes(options: Train) -> dict[str, Any]:
    """Return the fields of the configuration that the command line sets."""
    changes = given(options.settings)
    if options.params is not None:
        from rrnn.tasks.lm.experiment import read_count

        changes["params"] = read_count(options.params)
    if options.model is not None and options.cell is not None:
        raise RunError(f"--cell and --model {options.model} exclude each other: leave out one of them")
    cell = options.model or options.cell
    return changes if cell is None else {**changes, "cell": cell}


def _configure(options: Train, folder: Path, changes: dict[str, Any]) -> LMConfig:
    """Return the configuration of the resumed run, of the file, or of the preset, with the changes applied."""
    own = folder / "config.json"
    file = options.config
    if file is None and options.preset is None and options.resume and own.exists():
        file = own
    if file is None:
        return preset_named(options.preset or DEFAULT, **changes)
    if options.preset is not None:
        raise RunError("--preset and --config exclude each other: leave out one of them")
    return LMConfig.from_file(file).changed(**changes)
