"""`rrnn rank`: bound the number of states of a WFSA with the scores of a unit, from below with proof."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rrnn.cli.shared import option, table

if TYPE_CHECKING:
    from rrnn.theory import Rank as Bounds


@dataclass
class Rank:
    """Bound the number of states that a WFSA with the same scores needs.

    Lower bounds are certified by interval arithmetic; upper bounds come from the unit's own automaton.
    """

    subjects: Annotated[tuple[str, ...], tyro.conf.Positional, option("[NAME|FILE|RUN …]")] = ()
    """Models of the zoo, .cell files, files of WFSAs (.json), or run folders (default: all models of the zoo)."""
    seed: int = 0
    """The seed of the random weights and of the vectors of the symbols."""
    symbols: int = 2
    """The number of symbols of the alphabet."""
    units: int = 2
    """The number of units of a layer with random or given weights."""
    unit: int = 0
    """The unit to examine."""
    weights: Annotated[Path | None, option("FILE")] = None
    """A safetensors file with the state dict of a layer, instead of random weights; the symbols are one-hot."""
    words: Annotated[tuple[str, ...], option("WORD …")] = ()
    """The words of a run's vocabulary that are the alphabet."""
    states: int = 12
    """The lower bound at which the search stops."""
    semiring: Annotated[str | None, option("NAME")] = None
    """The semiring of the WFSA, for models that are not cells (default: real)."""
    precision: int = 256
    """The precision of the intervals in bits; it is doubled as long as this proves more."""
    max_precision: int = 8192
    """The greatest precision in bits."""
    json: Annotated[bool, option()] = False
    """Print one JSON object, {"rows": [...]}, instead of a table."""


def rank(options: Rank) -> None:
    from rrnn import zoo  # imported here, so that --help does not wait for torch

    found = [_bounds(subject, options) for subject in options.subjects or tuple(zoo.MODELS)]
    if options.json:
        print(json.dumps({"rows": [r.as_dict() for r in found]}, indent=1, ensure_ascii=False, default=str))
    else:
        print(_table(found))


def _bounds(subject: str, options: Rank) -> Bounds:
    from rrnn import theory
    from rrnn.errors import RunError
    from rrnn.theory.bounds import random_layer

    search: dict[str, Any] = {
        "states": options.states,
        "precision": options.precision,
        "max_precision": options.max_precision,
        "name": subject,
    }
    if subject.endswith(".json"):
        from rrnn.wfsa.io import load

        return theory.rank(load(subject), **search)
    search["semiring"] = options.semiring
    if Path(subject).is_dir():
        model, vectors = unit_of_run(Path(subject), options.words)
        return theory.rank(model, options.unit, vectors, **search)
    if options.words:
        raise RunError(f"--words name the words of a run's vocabulary; {subject} is not the folder of a run")
    weights = None
    if options.weights is not None:
        weights = _weights(options.weights)
    layer, vectors = random_layer(
        subject, seed=options.seed, symbols=options.symbols, units=options.units, weights=weights
    )
    return theory.rank(layer, options.unit, vectors, **search)


def _weights(file: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from rrnn.errors import FormatError

    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise FormatError(f"cannot read the weights: {error}", source=str(file)) from None


def unit_of_run(folder: Path, words: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """Return the first layer of a trained model, and the vectors of words of its vocabulary."""
    import torch

    from rrnn.cli.shared import load_model
    from rrnn.errors import DataError
    from rrnn.tasks.runs import load

    trained = load_model(load, folder)
    module, vocabulary = trained.module, trained.vocabulary
    if not words:
        raise DataError(
            f"an alphabet is needed: name a few words of the run's {len(vocabulary):,}, as in --words good bad not"
        )
    missing = [word for word in words if word not in vocabulary]
    if missing:
        raise DataError(
            f"the vocabulary of {folder} lacks {', '.join(map(repr, missing))}: choose words that it has"
        )
    with torch.no_grad():
        vectors = module.embed(torch.from_numpy(vocabulary.encode(words)))
    layer = module.layers[0] if hasattr(module, "layers") else module.rnn
    return layer, dict(zip(words, vectors, strict=True))


def _table(found: list[Bounds]) -> str:
    rows = [
        (
            r.name,
            r.semiring,
            f"{r.lower} ({r.lower_kind})",
            "none known" if r.upper is None else f"{r.upper} ({r.upper_kind})",
            r.verdict,
        )
        for r in found
    ]
    return table(("model", "semiring", "at least", "at most", "verdict"), rows)
