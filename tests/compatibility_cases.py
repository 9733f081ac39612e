"""Define the cells, machines and measurements whose results of an older version are kept in tests/fixtures.

`tests/fixtures/make.py` wrote the results; `tests/test_compatibility.py` compares them with today's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrnn.automata import (
    Cell,
    concatenate,
    exp,
    input,
    interpolate,
    linear,
    log,
    log_sigmoid,
    one,
    parameter,
    relabel,
    relu,
    scale,
    score,
    sigmoid,
    softplus,
    sqrt,
    step,
    tanh,
    union,
    zero,
)
from rrnn.errors import RRNNError
from rrnn.nn import RationalRNN
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA
from rrnn.zoo import get_cell

FOLDER = Path(__file__).with_name("fixtures")


# ---- cells -----------------------------------------------------------------------------------------------------------


def chain(semiring: str, loop: Any, arc: Any, output: Any = score) -> Cell:
    """Return B over a semiring: q0 is always on, q1 keeps what `arc` adds."""
    cell = Cell(f"B_{semiring.replace('-', '_')}", semiring).initial("q0").loop("q0", one)
    return cell.arc("q0", "q1", arc).loop("q1", loop).final("q1").output(output)


def epsilon_cycle() -> Cell:
    """Return a cell with an ε-cycle, which lowering closes by star."""
    cell = (
        Cell("cycle")
        .initial("q0")
        .loop("q0", one)
        .arc("q0", "q1", linear("u"))
        .loop("q1", sigmoid(linear("f")))
    )
    cell = cell.epsilon("q1", "q2", 0.4 * sigmoid(parameter("a"))).epsilon("q2", "q1", tanh(parameter("b")))
    return cell.arc("q2", "q2", 0.5).final("q2", parameter("r"))


def epsilon_limit(semiring: str, *, after_last: bool) -> Cell:
    """Return a chain of three words in which at most two ε-arcs may follow each other."""
    weight: Callable[[Any], Any] = sigmoid if semiring in ("real", "max-times") else log_sigmoid
    cell = Cell("limited", semiring).initial("q0", weight(parameter("first"))).loop("q0", one)
    for j in range(1, 4):
        cell = cell.arc(f"q{j - 1}", f"q{j}", weight(linear(f"u{j}", bias=True)))
        cell = cell.epsilon(f"q{j - 1}", f"q{j}", weight(parameter(f"e{j}")))
        cell = cell.loop(f"q{j}", weight(linear(f"s{j}")))
    return cell.final("q3").limit_epsilon(2, after_last=after_last)


def functions() -> Cell:
    """Return a cell that uses every function, unusual numbers, names given by a user, and the layer's input."""
    f = sigmoid(linear("f", bias=True) - log(1 + softplus(parameter("scale")))).named("forget")
    u = (sqrt(1 - f * f) * relu(linear("u", window=3)) - 1e-300 * exp(-input() * input())).named("new")
    cell = Cell("functions").initial("q0", 0.1).loop("q0", one).arc("q0", "q1", u).loop("q1", f)
    cell = cell.arc("q0", "q1", 1e16 * (1e-16 * tanh(linear("v", bias=True, window=2))), merge="plus")
    return cell.final("q1").final("q0", zero).output(step(score) + tanh(score) * input() - 0.5)


def learned_start() -> Cell:
    """Return a cell of two kept states whose initial weights are learned."""
    cell = (
        Cell("learned", "max-plus")
        .initial("q0", log_sigmoid(parameter("training")))
        .loop("q0", linear("half"))
    )
    cell = cell.initial("q1", parameter("start")).arc("q0", "q1", linear("weight", window=2))
    cell = cell.loop("q1", log_sigmoid(parameter("forward"))).arc("q1", "q0", -softplus(linear("back")))
    return cell.final("q1").output(tanh(score) + 0.1 * input())


def memoryless() -> Cell:
    """Return a cell without a stored state."""
    cell = Cell("memoryless").initial("q0").loop("q0", one).final("q0", sigmoid(parameter("r")))
    return cell.output(score * tanh(linear("o")))


_ZOO = ("B", "B-max-plus", "B-max-plus-gated", "B-max-plus-coupled", "B-max-plus-scaled", "C", "F", "ngram4")
_ZOO += (
    "example",
    "SRU",
    "RCNN2",
    "RCNN2-constant",
    "RCNN2-additive",
    "SCRN-context",
    "T-RNN",
    "T-LSTM",
    "T-GRU",
)
_ZOO += ("QRNN2", "QRNN2-f", "QRNN2-ifo", "SoPa4", "SoPa4-real", "SoPa4-max-times", "CNN3")
_ZOO += ("minGRU", "minLSTM", "HGRN", "RG-LRU")  # all of that version, with their default options
_ZOO += ("ngram1", "RCNN3-additive", "QRNN3-ifo", "CNN2", "SoPa2")
_ZOO += ("B+o", "C+o", "F+o", "ngram3+o", "B-max-plus+o", "B-max-plus-gated+o", "B-max-plus-coupled+o")
_B = partial(get_cell, "B")
CELLS: dict[str, Callable[[], Cell]] = {
    **{name: partial(get_cell, name) for name in _ZOO},
    "SRU-relu": partial(get_cell, "SRU", activation="relu"),
    "SRU-identity": partial(get_cell, "SRU", activation="identity"),
    "HGRN-fixed": partial(get_cell, "HGRN", gamma=0.25),
    "SCRN-half": partial(get_cell, "SCRN-context", alpha=0.5),
    "SoPa3-rigid": partial(get_cell, "SoPa3", self_loops=False, epsilon=False),
    "SoPa3-real-rigid": partial(get_cell, "SoPa3", semiring="real", self_loops=False),
    "log": lambda: chain("log", log_sigmoid(linear("f", bias=True)), linear("u"), tanh(score)),
    "min-plus": lambda: chain("min-plus", softplus(linear("f", bias=True)), linear("u"), tanh(score)),
    "max-times": lambda: chain("max-times", sigmoid(linear("f", bias=True)), exp(linear("u"))),
    "boolean": lambda: chain("boolean", step(linear("f", bias=True)), step(linear("u"))),
    "counting": lambda: chain("counting", step(linear("f", bias=True)), 2 * step(linear("u")) + 1),
    "union": lambda: union(_B(), relabel(get_cell("C"), prefix="c_"), output=tanh(score)),
    "concatenation": lambda: concatenate(_B(), relabel(_B(), prefix="b_"), "BB", output=score),
    "interpolation": lambda: interpolate(_B(), relabel(_B(), prefix="b_"), sigmoid(parameter("mix"))),
    "scaled": lambda: scale(_B(), 0.5 * parameter("how_much")).output(score),
    "epsilon-cycle": epsilon_cycle,
    "epsilon-limit": lambda: epsilon_limit("real", after_last=True),
    "epsilon-limit-log": lambda: epsilon_limit("log", after_last=False),
    "functions": functions,
    "learned-start": learned_start,
    "memoryless": memoryless,
}
"""File name in tests/fixtures/cells → how today's code makes the same cell."""

NO_GRADIENT = ("boolean", "counting")
PROGRAMS = ("B", "B+o", "C", "C+o", "F", "F+o", "SRU", "SRU-relu", "SRU-identity")
PROGRAMS += ("QRNN2", "QRNN2-f", "QRNN2-ifo", "QRNN3-ifo")
"""Cells whose programs (the intermediate representation) are kept as texts."""

STEPS, BATCH, SIZE = 4, 2, 2
LENGTHS = [4, 2]


def measure_layer(cell: Cell, parameters: dict[str, Tensor] | None, x: Tensor) -> dict[str, Tensor]:
    """Run a layer of the cell in float64 and return what is compared.

    Without `parameters`, seeded random ones are used and returned too, as `parameter/NAME`.
    """
    layer, found = RationalRNN(cell, SIZE, SIZE, dtype=torch.float64), {}
    if parameters is None:
        g = torch.Generator().manual_seed(len(cell.to_text()))
        drawn = {
            name: torch.randn(p.shape, generator=g, dtype=p.dtype) for name, p in layer.state_dict().items()
        }
        found = {f"parameter/{name}": value for name, value in drawn.items()}
        parameters = drawn
    layer.load_state_dict(parameters)
    grad = x.detach().cos()  # any fixed numbers
    if cell.semiring_name in NO_GRADIENT:
        with torch.no_grad():
            out, (state,) = layer(x)
    else:
        x = x.detach().requires_grad_()
        out, (state,) = layer(x)
        leaves = [x, *layer.parameters()]
        grads = torch.autograd.grad((out * grad).sum(), leaves, allow_unused=True, materialize_grads=True)
        found["gradients"] = torch.cat([g.flatten() for g in grads])
    with torch.no_grad():
        found["shorter"] = layer(x, lengths=torch.tensor(LENGTHS))[0]
    found |= {"output": out, "states": state.states[0]}
    if state.history is not None:
        found["history"] = state.history
    return {name: value.detach().contiguous() for name, value in found.items()}


# ---- machines --------------------------------------------------------------------------------------------------------

# arc weights, an ε-weight, and an initial or final weight of each semiring
_WEIGHTS: dict[str, tuple[list[float], float, float]] = {
    "real": ([0.25, -0.5, 0.125, 0.3], 0.1, 0.7),
    "log": ([-1.5, -2.25, -3.0, -1.1], -2.5, -0.3),
    "max-plus": ([-0.5, 1.25, -2.0, -0.75], -1.5, 0.1),
    "min-plus": ([0.5, 1.25, 0.1, 2.0], 0.75, 0.3),
    "max-times": ([0.5, 0.25, 0.9, 0.3], 0.4, 0.7),
    "boolean": ([1, 1, 1, 1], 1, 1),
    "counting": ([1, 2, 3, 1], 2, 3),
}
MACHINES = tuple(_WEIGHTS)
"""The semirings of that version; each has a machine, machines/NAME.json."""
STRINGS: list[tuple[str, ...]] = [(), ("a",), ("b",), ("a", "b"), ("b", "a", "a"), ("a", "a", "b", "b", "a")]


def machine(semiring: str) -> WFSA:
    """Return a machine with ε-arcs, states of every kind of name, and an arc of weight zero (maybe infinite)."""
    (w1, w2, w3, w4), silent, end = _WEIGHTS[semiring]
    zero_weight = SEMIRINGS[semiring].zero
    p, q, r = ("p", 1), ("q", ("deep", 2.5)), 7
    cycle = [] if semiring == "counting" else [(p, "a", p, w1), (r, "b", r, w4)]
    arcs = [*cycle, (p, "a", q, w2), (p, "b", q, w3), (q, "b", r, w4), (q, "a", r, w1), (r, "a", "end", w2)]
    arcs += [(p, EPSILON, q, silent), (q, EPSILON, "end", silent), (p, "b", r, zero_weight)]
    finals = {r: end, "end": SEMIRINGS[semiring].one}
    return WFSA(
        semiring, alphabet="ab", arcs=arcs, initial={p: SEMIRINGS[semiring].one, q: end}, final=finals
    )


def measure_machine(wfsa: WFSA, strings: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Score strings, list their best paths, and add up all strings; return JSON data."""
    found: dict[str, Any] = {
        "strings": [list(string) for string in strings],
        "scores": wfsa.score(strings).tolist(),
        "prefixes": wfsa.prefix_scores(strings[-1]).tolist(),
        "k_best": [[[path.weight, str(path.states)] for path in wfsa.k_best(s, 3)] for s in strings],
        "total": _or_none(lambda: wfsa.total_weight().item()),
        "scores_over": {
            name: _or_none(lambda name=name: wfsa.with_semiring(name).score(strings).tolist())
            for name in MACHINES
        },
    }
    return json.loads(json.dumps(found))


def _or_none(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except RRNNError:
        return None


def assert_close(now: Any, then: Any, tolerance: float = 1e-10, place: str = "") -> None:
    """Compare JSON data: numbers up to the tolerance, everything else exactly."""
    if isinstance(then, float) and isinstance(now, float | int):
        near = now == then or abs(now - then) <= tolerance * max(1.0, abs(then))
        assert near or (math.isnan(now) and math.isnan(then)), f"{place}: {now!r}, once {then!r}"
    elif isinstance(then, dict):
        assert set(now) == set(then), f"{place}: {sorted(now)}, once {sorted(then)}"
        for key, value in then.items():
            assert_close(now[key], value, tolerance, f"{place}/{key}")
    elif isinstance(then, list):
        assert len(now) == len(then), f"{place}: {len(now)} entries, once {len(then)}"
        for number, value in enumerate(then):
            assert_close(now[number], value, tolerance, f"{place}/{number}")
    else:
        assert now == then and type(now) is type(then), f"{place}: {now!r}, once {then!r}"


# ---- files of other programs -----------------------------------------------------------------------------------------

OPENFST: dict[str, dict[str, Any]] = {
    "numbered.fst.txt as min-plus": {},
    "numbered.fst.txt as log": {"semiring": "log"},
    "numbered.fst.txt as real": {"semiring": "real"},
    "numbered.fst.txt as max-times": {"semiring": "max-times"},
    "plain.fst.txt as real": {"semiring": "real", "costs": "plain"},
    "named.fst.txt as max-plus": {"semiring": "max-plus", "isymbols": "named.isyms"},
}
"""Name in expected.json, which begins with the file's → options of `rrnn.wfsa.io.load`."""
OPENFST_STRINGS: dict[str, list[tuple[Any, ...]]] = {
    "numbered.fst.txt": [(), (1,), (1, 2), (2, 2, 1), (1, 2, 2, 2)],
    "plain.fst.txt": [(), (1,), (1, 2), (2, 2, 1), (1, 2, 2, 2)],
    "named.fst.txt": [(), ("good",), ("not", "good"), ("not", "not", "good")],
}
PAUTOMAC_STRINGS: list[tuple[Any, ...]] = [(), (3,), (0, 3), (0, 0, 3), (3, 0, 0, 3)]


def openfst_options(name: str) -> tuple[str, dict[str, Any]]:
    """Return an OpenFst fixture's file name and the options to load it with, paths completed."""
    options = dict(OPENFST[name])
    if "isymbols" in options:
        options["isymbols"] = FOLDER / "machines" / options["isymbols"]
    return name.split(" as ")[0], options


# ---- trained models --------------------------------------------------------------------------------------------------

TEXTS = ["this film was not good", "good , not bad", "the plot", "not in the cast : good music", "we saw it"]


def measure_language_model(model: Any) -> dict[str, Any]:
    """Return the perplexity of lines and a greedy continuation."""
    lines = ["anna likes tea", "ben and carl like rice", "tea likes ben"]
    return {
        "perplexities": [model.perplexity(line + "\n") for line in lines],
        "greedy": model.generate("anna", length=8, temperature=0.0),
        "drawn": model.generate("ben", length=8, seed=3),
    }


def measure_classifier(model: Any) -> dict[str, Any]:
    """Return labels and probabilities of texts."""
    return {"predictions": [[p.label, p.probabilities] for p in model.predict(TEXTS)]}
