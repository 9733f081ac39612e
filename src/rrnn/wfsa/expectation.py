"""Expected values of features, and entropies, of the paths of a machine.

A path π has the probability w(π) / Z, where Z = Σ w(π) over the paths that derive a string, or over all paths of all
strings. The expected value of a feature that adds up along a path is Σ w(π) f(π) / Z: over the expectation semiring,
whose weights are pairs ⟨p, p·f⟩, one Forward pass (or one star, for all strings) gives Z and Σ w(π) f(π) together.

Scaling the weights does not change probabilities, so it is done such that nothing underflows: for a string, the
greatest weight of the initial states, of each symbol's arcs and of the final states is brought to 1, and Forward keeps
its rows in the range of floats; for all strings, weights are pushed, so that those that leave a state sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.semirings import get_semiring
from rrnn.wfsa import checks
from rrnn.wfsa.marginals import require_non_negative
from rrnn.wfsa.scoring import scaled_scores
from rrnn.wfsa.strings import encode_batch, is_batch
from rrnn.wfsa.symbols import Arc
from rrnn.wfsa.total import suffix_weights, total_weight

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA

Feature = Mapping[Any, Any] | Callable[[Arc], Any]
Three = tuple[Tensor, Tensor, Tensor]
"""Numbers of the arcs, of the initial and of the final weights."""


def expected(machine: WFSA, feature: Feature, strings: Any = None) -> Tensor:
    """Return the expected value of an additive feature over paths; see `WFSA.expected`."""
    require_non_negative(machine, "expected")
    values = _feature_values(machine, feature)
    nothing = values.new_zeros(machine.num_states)
    weights = _scaled(machine, everything=strings is None)
    return _expectation(machine, weights, (values, nothing, nothing), strings)[1]


def entropy(machine: WFSA, strings: Any = None) -> Tensor:
    """Return the entropy of the distribution of paths in nats, log Z − E[log w]; see `WFSA.entropy`."""
    require_non_negative(machine, "entropy")
    arc, initial, final = _scaled(machine, everything=strings is None)
    log_total, mean = _expectation(
        machine, (arc, initial, final), (_logs(arc), _logs(initial), _logs(final)), strings
    )
    return log_total - mean


def _expectation(machine: WFSA, weights: Three, values: Three, strings: Any) -> tuple[Tensor, Tensor]:
    """Return log Z and the expected sum of the values that the parts of a path have."""
    ring = get_semiring("expectation")
    pairs = machine._replace(
        ring, *(torch.stack((p, p * v), -1) for p, v in zip(weights, values, strict=True))
    )
    if strings is None:
        scores = total_weight(pairs).unsqueeze(0)
        exponent = torch.zeros(1)
    else:
        scores, exponent = scaled_scores(pairs, encode_batch(machine, strings))
    total, sums = scores.unbind(-1)
    dead = (total.detach() == 0).nonzero().flatten().tolist()
    if dead:
        which = (
            ""
            if strings is None
            else f" that derives {(strings[dead[0]] if is_batch(strings) else strings)!r}"
        )
        raise AutomatonError(
            f"expected values and entropies are those of paths of non-zero weight; this machine has none{which}. "
            "Ask for a string that it accepts."
        )
    # The power of two is the same for both components: it leaves their quotient, and the logarithm only adds it.
    results = total.log() + exponent.double() * math.log(2.0), sums / total
    return results if strings is not None and is_batch(strings) else (results[0][0], results[1][0])


# ---- weights as numbers of a common scale ------------------------------------------------------------------


def _scaled(machine: WFSA, *, everything: bool) -> Three:
    """Return weights as real numbers, scaled such that all paths (of one string) keep their probabilities."""
    arc, initial, final = (_log_weights(machine, w.detach()) for w in machine.weights)
    if not everything:
        symbols = machine.arc_symbol
        peak = arc.new_full(
            (len(machine.alphabet) + 1,), -math.inf
        )  # the last one is ε's, which is not scaled
        peak = peak.scatter_reduce(0, symbols % len(peak), arc, "amax")
        peak[-1] = 0.0
        factors = (-_finite(peak)[symbols], -_peak(initial), -_peak(final))
    else:
        push = _log_suffix_weights(machine)
        factors = (push[machine.arc_target] - push[machine.arc_source], push - _peak(initial + push), -push)
    weights = zip(machine.weights, factors, strict=True)
    return tuple(_times_exp(machine, w, factor) for w, factor in weights)  # pyright: ignore[reportReturnType]


def _log_weights(machine: WFSA, weights: Tensor) -> Tensor:
    return machine.semiring.on_tensors(machine.semiring.to_log, weights.to(torch.float64))


def _log_suffix_weights(machine: WFSA) -> Tensor:
    """Return the logarithm of the weight of all that can follow each state; 0 for states that are on no path."""
    return _finite(suffix_weights(machine.detach().with_semiring("log")))


def _peak(logs: Tensor) -> Tensor:
    return _finite(logs.max())


def _finite(logs: Tensor) -> Tensor:
    return logs.where(logs.isfinite(), 0.0)


def _times_exp(machine: WFSA, weights: Tensor, factor: Tensor) -> Tensor:
    """Return weights · e^factor as real numbers, 0 for 0̄."""
    ring = machine.semiring
    if ring.logarithmic:
        dead = ring.is_zero(weights.detach())
        logs = ring.on_tensors(ring.to_log, ring.where(dead, ring.ones(len(dead)), weights))
        return (logs + factor).exp().where(~dead, 0.0)
    half = (
        (factor / 2).clamp(-700.0, 700.0).exp()
    )  # in two steps: e^factor may be out of range where the product is not
    return ring.on_tensors(ring.to_real, weights.to(torch.float64)) * half * half


def _logs(weights: Tensor) -> Tensor:
    """Return logarithms, 0 for weights that no path has."""
    alive = weights.detach() > 0
    return weights.where(alive, 1.0).log()


# ---- features ----------------------------------------------------------------------------------------------


def _feature_values(machine: WFSA, feature: Feature) -> Tensor:
    """Return the feature of each arc, (A,), checked to be a finite number."""
    arcs = machine.arcs
    if isinstance(feature, Mapping):
        by_arc = {_arc_key(key): value for key, value in feature.items()}
        unknown = by_arc.keys() - {arc[:3] for arc in arcs}
        if unknown:
            raise AutomatonError(
                "a feature maps arcs of the machine, (source, symbol, target), to numbers; got "
                f"{min(unknown, key=repr)!r}, which is none of them. Remove it, or correct its names."
            )
        found = [by_arc.get(arc[:3], 0.0) for arc in arcs]
    elif callable(feature):
        found = [feature(arc) for arc in arcs]
    else:
        raise AutomatonError(
            "a feature is a mapping from arcs to numbers or a function of an arc, such as "
            f"lambda arc: arc.symbol == 'a'; got {type(feature).__name__}"
        )
    real = get_semiring("real")
    what = "feature of the arc {!r} --{}--> {!r}"
    return checks.stack(
        real, [checks.check_weight(real, f, what, *arc[:3]) for f, arc in zip(found, arcs, strict=True)]
    )


def _arc_key(key: Any) -> tuple[Any, ...]:
    if not isinstance(key, tuple) or len(key) not in (3, 4):
        raise AutomatonError(
            f"a feature maps arcs, as `Arc` or as (source, symbol, target), to numbers; got the key {key!r}"
        )
    return tuple(key[:3])
