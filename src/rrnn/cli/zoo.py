"""`rrnn zoo`: list the models, or show one: its automaton, equations, parameters, options and paper."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rrnn.cli.derive import summary
from rrnn.cli.shared import option
from rrnn.cli.terminal import paragraph, table
from rrnn.ir.equations import equations, state_symbols
from rrnn.ir.notation import PLAIN, symbol_of
from rrnn.zoo import MODELS, Model, get_cell, get_model, layer
from rrnn.zoo.references import REFERENCES

if TYPE_CHECKING:
    from torch import Tensor

    from rrnn.automata import Cell

INPUTS, UNITS = 20, 10  # of the layer whose parameters are shown


@dataclass
class Zoo:
    """List the models that can be named wherever a cell or a model is asked for, or show one of them."""

    model: Annotated[str | None, tyro.conf.Positional, option("[NAME]")] = None
    """A model, such as F, F+o, QRNN3-ifo or F:g=tanh,b_u (default: list all)."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff, option()] = False
    """Print the list as one JSON object, {"models": [...]}."""


def show(options: Zoo) -> None:
    """Run `rrnn zoo`."""
    if options.model is not None:
        print("\n\n".join(part.strip("\n") for part in _describe(options.model)))
        return
    models = [_row(name, model) for name, model in MODELS.items()]
    if options.json:
        print(json.dumps({"models": models}, indent=1, ensure_ascii=False))
        return
    head = ("name", "semiring", "states", "rational", "source")
    for row in models:  # of a model with a state for each unit, and of one without an automaton
        row["states"] = row["states"] or ("units+1" if row["semiring"] else None)
    print(table(head, [tuple("–" if cell is None else str(cell) for cell in row.values()) for row in models]))
    print()
    print(
        paragraph(
            f"{len(models)} models: {_count(models)}. States are those of the automaton; a layer stores fewer of "
            "them, such as 16 of Mamba's 17 (`rrnn power NAME`). `rrnn zoo NAME` shows a model. A number in a name "
            "can be changed (ngram7), +o adds an output gate (F+o), and options follow a colon (F:g=tanh)."
        )
    )


def _count(models: list[dict[str, Any]]) -> str:
    """Say how many models are rational, how many are proved not to be, and for how many it is open."""
    texts = {"yes": "{} are rational", "no": "{} are proved not to be", "open": "for {} it is open"}
    counts = {kind: sum(model["rational"] == kind for model in models) for kind in texts}
    *first, last = [text.format(counts[kind]) for kind, text in texts.items() if counts[kind]]
    return f"{', '.join(first)} and {last}" if first else last


def _row(name: str, model: Model) -> dict[str, Any]:
    """Return what the list says about a model. Semiring and states are those of its cell, if it has one, and if the
    number of its states is not that of the layer's units."""
    cell = get_cell(name) if model.is_cell else model.automaton(1) if model.automaton else None
    return {
        "name": name,
        "semiring": cell.semiring_name if cell else None,
        "states": cell.state_count if cell and model.is_cell else None,
        "rational": "yes" if model.rational else "no" if model.proved else "open",
        "source": model.paper,
    }


def _describe(name: str) -> Iterator[str]:
    """Yield the parts of a model's description."""
    model = get_model(name)
    cell = get_cell(name) if model.is_cell else None
    made = model.factory.func if isinstance(model.factory, partial) else model.factory
    about = inspect.cleandoc(made.__doc__ or "").partition("\n\n")[0]
    yield paragraph(f"{name}: {' '.join(about.split()).removeprefix('Build ')}")
    reference = REFERENCES.get(model.paper)
    yield paragraph(f"Paper: {model.paper}{f'. {reference}' if reference else ''}.", "  ")
    known = f"no. It is {model.proved}." if model.proved else "open."
    rational = "yes. Every hidden unit is the score of an automaton."
    yield paragraph(f"Rational: {rational if model.rational else f'{known} {model.open}'}", "  ")
    if cell is not None:
        yield "Automaton:\n" + _indented(summary(cell))
        yield "Equations:\n" + _indented(equations(cell))
    elif model.recurrence:
        yield paragraph(f"Recurrence: {model.recurrence}", "  ")
        if model.automaton is not None:
            yield "Automaton, for 4 units:\n" + _indented(summary(model.automaton(4)))
    # A layer of ISAN's cell has at most as many units as the cell has states.
    yield _parameters(name, cell, cell.families[0].size if cell and "units" in model.options else UNITS)
    yield _to_build(name, model)


def _parameters(name: str, cell: Cell | None, units: int) -> str:
    """Return a table of a small layer's parameters, with the values that they start with, and its first state."""
    import torch  # imported here, so that the list does not wait for it

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built, again = (layer(name, INPUTS, units) for _ in range(2))
    rows = [
        (key, " × ".join(map(str, p.shape)), _first_value(p, q))
        for (key, p), q in zip(built.named_parameters(), again.parameters(), strict=True)
    ]
    count = sum(p.numel() for p in built.parameters())
    inputs = f"{INPUTS} symbols" if hasattr(built, "num_symbols") else f"vectors of {INPUTS} numbers"
    title = f"Parameters of a layer of {units} units that reads {inputs}: {count:,} numbers."
    lines = [paragraph(title, "  "), table(("name", "shape", "first values"), rows, indent="  ")]
    if cell is not None:
        parts = [f"{r.stop - r.start} of {_matrix(r.name, own=r.cell < 0)}" for r in built.layers[0].rows]
        lines.append(paragraph(f"  The rows of weight: {', '.join(parts)}.", "  "))
    return "\n".join([*lines, paragraph(f"Initial state: {_first_state(built, cell)}.", "  ")])


def _matrix(name: str, own: bool) -> str:
    """Return the symbol of a projection's matrix; the layer's own one replaces an input of another size."""
    return (
        "a projection that replaces v, since the sizes differ"
        if own
        else f"W_{PLAIN.symbol(symbol_of(name))}"
    )


def _first_value(parameter: Tensor, again: Tensor) -> str:
    """Describe a parameter that was initialised twice: the number that all of it is, or the range that it lies in."""
    low, high = parameter.min().item(), parameter.max().item()
    if low == high:
        return f"{low:g}"
    random = "" if bool((parameter == again).all()) else "random, "
    return f"{random}{low:.2g} to {high:.2g}" if low * high >= 0 else f"{random}up to ±{max(-low, high):.2g}"


def _first_state(built: Any, cell: Cell | None) -> str:
    """Return the values of the stored states of a unit before the first step."""
    if cell is None:
        return "zeros"
    symbols, size = list(state_symbols(cell).values()), cell.semiring.size
    values = [f"{value:g}".replace("-inf", "−∞") for value in built.init_state()[0].states[0][:, 0].tolist()]
    elements = [values[i : i + size] for i in range(0, len(values), size)]
    texts = [parts[0] if size == 1 else f"⟨{', '.join(parts)}⟩" for parts in elements]
    return ", ".join(f"{symbol} = {text}" for symbol, text in zip(symbols, texts, strict=False)) or "none"


def _to_build(name: str, model: Model) -> str:
    """Return how to construct the layer: the call with what it needs, and the model's options with their defaults."""
    parameters = list(inspect.signature(model.factory).parameters.values())
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [] if model.is_cell else needed  # the name says how many units the cell of ISAN has
    options = [
        f"{p.name}={p.default!r}" for p in parameters if p.default is not p.empty and p.name not in _ALL
    ]
    call = "RationalRNN" if model.is_cell else "zoo.layer"
    quoted = json.dumps(name)
    lines = [f"To build: rrnn.{call}({', '.join([quoted, *(needed or _SIZES)])})"]
    if options:
        lines.append(f"Options and their defaults: {', '.join(options)}.")
    if model.is_cell:
        lines.append(f"The automaton alone: rrnn.get_cell({quoted}). A picture: rrnn draw {name}")
    elif model.automaton is not None:
        cell = json.dumps(f"{name}:units=4")
        lines.append(f"The automaton for 4 units: rrnn.get_cell({cell}). A picture: rrnn draw {name}")
    return "\n".join(paragraph(line, "  ") for line in lines)


_SIZES = ("input_size", "hidden_size")
_ALL = ("device", "dtype")  # options of every layer


def _indented(text: str) -> str:
    return "\n".join(paragraph(f"  {line}", "      ") for line in text.splitlines())
