"""How many states a WFSA needs: lower bounds that are proved, upper bounds from automata, and a verdict.

Lower bounds come from minors of the Hankel matrix (`rrnn.theory.hankel`), computed on intervals that contain the true
scores. Too little precision makes the intervals wide and the bound weak, never wrong; it is raised automatically.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrnn import zoo
from rrnn.automata import unroll
from rrnn.errors import AutomatonError, RRNNError, SemiringError, ShapeError
from rrnn.ir import lower
from rrnn.nn import RationalRNN
from rrnn.nn.affine import AffineRNN
from rrnn.nn.layer import RationalLayer
from rrnn.semirings import Semiring, get_semiring
from rrnn.theory.hankel import Minor, String, count_above, field_minor, selective_minor, singular_values
from rrnn.theory.intervals import Intervals, PrecisionError
from rrnn.theory.recurrences import recurrence_of
from rrnn.theory.series import BITS, MAX_BITS, FunctionScores, MachineUnit, Scores, scored
from rrnn.theory.unit_automata import proved_of, reach, to_wfsa, why_open
from rrnn.wfsa import WFSA
from rrnn.wfsa.minimise.exact_algebra import exact_rank
from rrnn.zoo.mixing import ISAN

STATES = 12
"""The lower bound at which a search stops."""
TOLERANCE = 1e-10
"""A singular value counts for the numerical rank if it is above this multiple of the greatest one."""
Bound = Literal["certified", "exact", "structural", "numerical"]


@dataclass(frozen=True)
class Rank:
    """How many states a WFSA with the scores of a unit, machine or function needs."""

    name: str
    semiring: str
    lower: int
    lower_kind: Bound
    """"certified" (intervals), "exact" (fractions), or "numerical" (floats without a stated error: no proof)."""
    upper: int | None = None
    upper_kind: Bound | None = None
    """"structural" (for any weights of the model) or "exact" (for the weights as rounded to float64); None if no WFSA
    is known."""
    searched: int = STATES
    """The lower bound at which the search stopped; a lower bound below it is all that was found."""
    bits: int | None = None
    """The precision of the intervals, in bits."""
    limited: bool = False
    """Whether the search ended at the greatest precision that was allowed, where more might have proved more."""
    prefixes: tuple[String, ...] = ()
    suffixes: tuple[String, ...] = ()
    """Rows and columns of the matrix that proves the lower bound."""
    log10: float | None = None
    """log₁₀ |determinant| of this matrix; over a selective semiring, the gap to its second-best permutation."""
    theorem: str = ""
    """What is proved about the model, whatever its weights are in this instance."""

    @property
    def minimal(self) -> bool:
        """Whether the bounds meet and both are proved."""
        return self.lower == self.upper and self.lower_kind != "numerical"

    @property
    def verdict(self) -> str:
        """The bounds in words."""
        states = f"{self.lower} state" + "s" * (self.lower != 1)
        states += (
            f" (the limit of {self.bits} bits was reached: more might prove more)" if self.limited else ""
        )
        if self.lower_kind == "numerical":
            return f"numerical rank {self.lower} (floats without a stated error: nothing is proved)"
        if self.minimal:
            return f"rational: minimal with {states}"
        if self.upper is not None:
            return f"rational: at least {self.lower} and at most {self.upper} states"
        if self.theorem:
            return f"{self.theorem}; these weights need at least {states}"
        return f"needs at least {states}; no WFSA is known"

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        log10 = None if self.log10 is None or not math.isfinite(self.log10) else self.log10
        return asdict(self) | {"log10": log10, "minimal": self.minimal, "verdict": self.verdict}


def rank(
    subject: nn.Module | WFSA | Callable[..., Any],
    unit: int = 0,
    alphabet: Mapping[Any, Any] | Tensor | Sequence[Any] | str | None = None,
    *,
    states: int = STATES,
    semiring: str | Semiring | None = None,
    error: float | None = None,
    tolerance: float = TOLERANCE,
    precision: int = BITS,
    max_precision: int = MAX_BITS,
    name: str | None = None,
) -> Rank:
    """Return proved bounds on the number of states of a WFSA with given scores.

    `subject` is a layer (with `unit` and the `alphabet` of `to_wfsa`), a WFSA, or a function of strings over
    `alphabet`. The search stops at a lower bound of `states`. `semiring` is the semiring of the WFSA that is looked
    for (default: the cell's; real for a function and for layers that are not cells).

    A function is called with a string if the alphabet is one, else with a tuple of symbols. Its values are proved if
    they are intervals (of mpmath, or pairs of a lower and an upper bound), whole numbers or fractions; floats are if
    `error` bounds the absolute error of each. Otherwise the result is a numerical rank, of singular values above
    `tolerance` times the greatest one. A function with a parameter named `precision` is given the number of bits.

    Intervals begin with `precision` bits, which are doubled up to `max_precision` as long as this proves more.
    """
    _check_numbers(states, precision, max_precision, error)
    options = _Search(states, precision, max_precision)
    if isinstance(subject, WFSA):
        return _of_machine(subject, name or "WFSA", options)
    if isinstance(subject, nn.Module):
        return _of_unit(subject, unit, alphabet, semiring, name or type(subject).__name__, options)
    if not callable(subject):
        raise AutomatonError(
            f"expected a layer, a WFSA or a function of strings; got {type(subject).__name__}"
        )
    ring = get_semiring(semiring or "real")
    called = FunctionScores(subject, alphabet, error)
    return _of_function(called, ring, name or getattr(subject, "__name__", "function"), tolerance, options)


def rank_model(model: str, *, seed: int = 0, symbols: int = 2, units: int = 2, **options: Any) -> Rank:
    """Return bounds for a unit of a model of the zoo, or of a `.cell` file, with random weights and vectors."""
    layer, vectors = random_layer(model, seed=seed, symbols=symbols, units=units)
    return rank(layer, 0, vectors, name=model, **options)


def random_layer(
    model: str,
    *,
    seed: int = 0,
    symbols: int = 2,
    units: int = 2,
    weights: Mapping[str, Tensor] | None = None,
) -> tuple[nn.Module, Any]:
    """Return a layer of a model with random weights, and an alphabet of random vectors for it.

    With given `weights`, the layer's state dict, the vectors are one-hot.
    """
    if not isinstance(symbols, int) or symbols < 1:
        raise ShapeError(f"an alphabet has at least one symbol; got {symbols!r}")
    g = torch.Generator().manual_seed(seed)
    inputs = max(symbols, 2)
    if weights is not None:
        inputs = symbols
    layer = zoo.layer(model, symbols if _reads_symbols(model) else inputs, units, dtype=torch.float64)
    if weights is not None:
        try:
            layer.load_state_dict({name: value.double() for name, value in weights.items()})
        except RuntimeError as error:
            raise ShapeError(
                f"the weights do not fit a layer of {model} with {inputs} inputs and {units} units: {error}"
            ) from None
        return layer, None if isinstance(layer, ISAN) else dict(
            zip(_letters(symbols), torch.eye(symbols), strict=True)
        )
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    vectors = torch.randn(symbols, inputs, generator=g, dtype=torch.float64)
    return layer, None if isinstance(layer, ISAN) else dict(zip(_letters(symbols), vectors, strict=True))


def _reads_symbols(model: str) -> bool:
    try:
        return zoo.get_model(model).factory is ISAN
    except RRNNError:
        return False  # a file


def _letters(count: int) -> list[str]:
    return [chr(ord("a") + i) if count <= 26 else f"a{i}" for i in range(count)]


# ---- lower bounds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    states: int
    precision: int
    max_precision: int

    def run(self, scores: Scores, alphabet: Sequence[Any], limit: int | None = None) -> dict[str, Any]:
        """Return what was proved, as fields of a `Rank`; `limit` is an upper bound that is known."""
        stop = self.states if limit is None else min(limit, self.states)
        best, bits, helps = self._at(self.precision, scores, alphabet, stop), self.precision, True
        # Over a selective semiring weights only add up, so the first precision is enough.
        while best.size < stop and helps and 2 * bits <= self.max_precision and not scores.ring.selective:
            again = self._at(2 * bits, scores, alphabet, stop)
            helps = again.size > best.size
            if helps:
                best, bits = again, 2 * bits
        return {
            "lower": best.size,
            "lower_kind": "certified",
            "searched": self.states,
            "bits": bits,
            "limited": best.size < stop and helps and not scores.ring.selective,
            "prefixes": best.prefixes,
            "suffixes": best.suffixes,
            "log10": best.log10,
        }

    def _at(self, bits: int, scores: Scores, alphabet: Sequence[Any], stop: int) -> Minor:
        exact = Intervals(bits)
        value = scores.at(exact)
        if scores.ring.selective:
            return selective_minor(value, alphabet, stop, exact)
        return field_minor(value, alphabet, stop)


# ---- units of layers -------------------------------------------------------------------------------------------------


def _of_unit(
    model: nn.Module, unit: int, alphabet: Any, semiring: str | Semiring | None, name: str, search: _Search
) -> Rank:
    if isinstance(alphabet, Tensor):
        alphabet = dict(enumerate(alphabet))
    if isinstance(model, ISAN):
        names = range(model.num_symbols) if alphabet is None else alphabet
        alphabet = dict(names) if isinstance(names, Mapping) else {a: i for i, a in enumerate(names)}
    if not isinstance(alphabet, Mapping) or not alphabet:
        raise ShapeError(
            "alphabet is missing: pass a mapping from symbol to input vector with at least one symbol"
        )
    machine = None if why_open(model) is not None else to_wfsa(model, unit, alphabet)
    vectors: Mapping[Any, Any] = alphabet
    probe = recurrence_of(model, unit, vectors)
    ring = probe.semiring if semiring is None else get_semiring(semiring)
    if machine is not None and ring is not probe.semiring:
        raise SemiringError(
            f"a cell over {probe.semiring.name} is a WFSA over {probe.semiring.name}; leave out semiring={ring.name!r}"
        )

    def make(exact: Intervals) -> Callable[[String], Any]:
        return scored(recurrence_of(model, unit, vectors, exact, exact.number))

    scores = Scores(ring, make)
    if machine is None:
        return Rank(name, ring.name, theorem=proved_of(model), **search.run(scores, list(alphabet)))
    structural, least = _structural(model, unit, machine), machine.trim().num_states
    if min(structural, least) <= 64 and not machine.has_epsilon and ring.minimised_by == "linear algebra":
        least = exact_rank(machine)
    # The machine's weights are rounded, which may have lost states: σ(45) is 1.0. So search for more than it has.
    found = search.run(scores, list(alphabet), min(structural, least + 1))
    if found["lower"] > least:
        found, least = search.run(scores, list(alphabet), structural), structural
    if least >= structural:
        return Rank(name, ring.name, upper=structural, upper_kind="structural", **found)
    found["limited"] = found["limited"] and found["lower"] < least
    return Rank(name, ring.name, upper=least, upper_kind="exact", **found)


def _structural(model: nn.Module, unit: int, machine: WFSA) -> int:
    """Return a number of states that suffices for any weights: stored states and a constant, or the machine's own."""
    own = machine.num_states
    if isinstance(model, AffineRNN):
        return min(own, model.hidden_size + 1)
    assert isinstance(model, RationalRNN)
    layer = model.layers[0]
    assert isinstance(layer, RationalLayer)
    cell = layer.cell_types[layer.locate(unit)[0]]
    return own if reach(cell) else min(own, len(lower(unroll(cell)).program.states) + 1)


# ---- machines and functions ------------------------------------------------------------------------------------------


def _of_machine(machine: WFSA, name: str, search: _Search) -> Rank:
    ring = machine.semiring
    if ring.minimised_by == "linear algebra" and not machine.has_epsilon:
        least = exact_rank(machine)
        return Rank(name, ring.name, least, "exact", least, "exact", searched=search.states)

    def make(exact: Intervals) -> Callable[[String], Any]:
        return scored(MachineUnit(machine.remove_epsilon(), exact))

    states = machine.trim().num_states
    found = search.run(Scores(ring, make), machine.alphabet, states)
    return Rank(name, ring.name, upper=states, upper_kind="exact", **found)


def _of_function(f: FunctionScores, ring: Semiring, name: str, tolerance: float, search: _Search) -> Rank:
    f(())
    if not f.floats or ring.selective:
        found = search.run(Scores(ring, lambda exact: lambda x: f.interval(x, exact)), f.alphabet)
        result = Rank(name, ring.name, **found)
        if not f.floats:
            return result
        if ring.selective:
            return replace(result, lower_kind="numerical") if f.error is None else result
    if ring.logarithmic and f.error is not None:
        raise SemiringError(
            "over a semiring of logarithms the error of a float is not that of the number it stands for: return "
            "intervals, or pass semiring='real'"
        )

    singular, size = singular_values(
        lambda string: float(ring.to_real(f.number(string))), f.alphabet, search.states
    )
    if f.error is not None:
        return Rank(
            name, ring.name, count_above(singular, size, f.error), "certified", searched=search.states
        )
    largest = float(singular[0]) if len(singular) else 0.0
    return Rank(
        name, ring.name, int((singular > tolerance * largest).sum()), "numerical", searched=search.states
    )


def _check_numbers(states: Any, precision: Any, max_precision: Any, error: Any) -> None:
    for what, value, least in (
        ("states", states, 1),
        ("precision", precision, 53),
        ("max_precision", max_precision, 53),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ShapeError(f"{what} must be a whole number of at least {least}; got {value!r}")
    if precision > max_precision:
        raise PrecisionError(
            f"precision, {precision} bits, must not exceed max_precision, {max_precision} bits. Raise max_precision."
        )
    if error is not None and not (isinstance(error, (int, float)) and error >= 0 and math.isfinite(error)):
        raise ShapeError(f"error must be a bound on the absolute error of each value; got {error!r}")
