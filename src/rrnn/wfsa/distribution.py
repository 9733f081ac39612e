"""The distribution of a machine's paths: total weights, expected values, entropies, samples.

A path π has the probability w(π) / Z, where Z = Σ w(π) over the paths that derive a string, or over all paths of all
strings.

**Expected values.** The expected value of a feature that adds up along a path is Σ w(π) f(π) / Z: over the expectation
semiring, whose weights are pairs ⟨p, p·f⟩, one Forward pass (or one star, for all strings) gives Z and Σ w(π) f(π)
together. Scaling the weights does not change probabilities, so they are scaled such that nothing underflows: for a
string, the greatest weight of the initial states, of each symbol's arcs and of the final states becomes 1, and Forward
keeps its rows in the range of floats; for all strings, weights are pushed, so that those that leave a state sum to 1.

**Samples.** With β(q) the total weight of everything that can follow state q, a path starts in q with probability
λ(q)β(q)/Z, and from q stops with ρ(q)/β(q) or takes an arc with wβ(q')/β(q): exactly the paths' weights over their
sum Z.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.semirings import get_semiring
from rrnn.wfsa import checks
from rrnn.wfsa.automaton import Automaton, nonzero_weights, useful_states
from rrnn.wfsa.paths import Path, paths_of
from rrnn.wfsa.scoring import checked_counts, finish, require_probabilities, scaled_scores
from rrnn.wfsa.symbols import Arc, Symbol, encode_batch, is_batch
from rrnn.wfsa.transitions import closure_under, segment_plus

Feature = Mapping[Any, Any] | Callable[[Arc], Any]
Weights = tuple[Tensor, Tensor, Tensor]
"""Numbers of the arcs, of the initial and of the final weights."""


class Distribution(Automaton):
    """Methods of `WFSA` about all of its paths together."""

    def total_weight(self) -> Tensor:
        """Return the ⊕ of the scores of all strings, 0-d.

        Where cycles make that an infinite sum, it is taken by star (over the reals by solving a linear system, if the
        spectral radius is below 1), or refused with the name of a cycle.
        """
        return checked_counts(self, lambda m: finish(m, suffix_weights(m, prefixes=True)))

    def expected(self, feature: Feature, string: Any = None) -> Tensor:
        """Return the expected value of an additive feature over the paths that derive a string, Σ w(π) f(π) / Σ w(π).

        `feature` maps arcs (`Arc`, or (source, symbol, target); arcs left out count 0) to numbers, or is a function of
        an `Arc`; f(π) is the sum over the arcs of π. Initial and final weights have no feature of their own. Without a
        string, the value is that over all paths of all strings; a list of strings gives a tensor of values. Weights
        must be proportional to probabilities: real with no negative weight, log, counting.
        """
        require_probabilities(self, "expected")
        values = _feature_values(self, feature)
        nothing = values.new_zeros(self.num_states)
        weights = _scaled(self, everything=string is None)
        return _expectation(self, weights, (values, nothing, nothing), string)[1]

    def entropy(self, string: Any = None) -> Tensor:
        """Return the entropy in nats of the paths that derive a string, drawn in proportion to their weights.

        It is log Z − E[log w]. Without a string, it is that of all paths of all strings; a list of strings gives a
        tensor. Weights are as in `expected`.
        """
        require_probabilities(self, "entropy")
        arc, initial, final = _scaled(self, everything=string is None)
        logs = (_logs(arc), _logs(initial), _logs(final))
        log_total, mean = _expectation(self, (arc, initial, final), logs, string)
        return log_total - mean

    def sample(self, n: int, generator: torch.Generator | None = None) -> list[tuple[Symbol, ...]]:
        """Return n strings drawn in proportion to their scores (real with no negative weight, log, counting)."""
        symbols = self.arc_symbol.tolist()
        _, drawn = _draw_arcs(self, n, generator)
        return [tuple(self.alphabet[symbols[a]] for a in arcs if symbols[a] >= 0) for arcs in drawn]

    def sample_paths(self, n: int, generator: torch.Generator | None = None) -> list[Path]:
        """Return n paths drawn in proportion to their weights; the strings they derive are those `sample` draws."""
        first, drawn = _draw_arcs(self, n, generator)
        return list(paths_of(self, zip(first, drawn, strict=True)))


# ---- totals ------------------------------------------------------------------------------------------------


def suffix_weights(machine: Automaton, *, prefixes: bool = False) -> Tensor:
    """Return (Q,): the ⊕ over all path suffixes from q, final weight included; or, with `prefixes`, over all path
    prefixes that end in q, initial weight included. States that lie on no path from an initial to a final state get 0̄:
    a cycle there may diverge, and plays no role.
    """
    ring, states = machine.semiring, machine.num_states
    useful = torch.zeros(states, dtype=torch.bool)
    useful[useful_states(machine)] = True
    arcs = nonzero_weights(machine, machine.arc_weight)
    arcs = arcs[useful[machine.arc_source[arcs]] & useful[machine.arc_target[arcs]]]
    # One arc for all symbols (and ε) from one state to another: here it does not matter what is consumed.
    code, place = (machine.arc_source[arcs] * states + machine.arc_target[arcs]).unique(return_inverse=True)
    weight = segment_plus(ring, machine.arc_weight[arcs], place, code.numel())
    source, target = code // states, code % states
    start = machine.initial_weight if prefixes else machine.final_weight
    start = ring.where(useful, start, ring.zeros(states))
    ends = (source, target) if prefixes else (target, source)
    close = closure_under(ring, machine.states, *ends, weight, label="")
    return close(start.unsqueeze(0))[0] if close else start


# ---- expected values ---------------------------------------------------------------------------------------


def _expectation(
    machine: Automaton, weights: Weights, values: Weights, strings: Any
) -> tuple[Tensor, Tensor]:
    """Return log Z, and the expected sum of the values of a path's arcs, start and end."""
    ring = get_semiring("expectation")
    weight, initial, final = (torch.stack((p, p * v), -1) for p, v in zip(weights, values, strict=True))
    pairs = machine.replace(semiring=ring, weight=weight, initial=initial, final=final)
    if strings is None:
        scores = finish(pairs, suffix_weights(pairs, prefixes=True)).unsqueeze(0)
        exponent = torch.zeros(1)
    else:
        scores, exponent = scaled_scores(pairs, encode_batch(machine.symbol_index, strings))
    total, sums = scores.unbind(-1)
    dead = (total.detach() == 0).nonzero().flatten().tolist()
    if dead:
        string = strings[dead[0]] if strings is not None and is_batch(strings) else strings
        which = "" if string is None else f" that derives {string!r}"
        raise AutomatonError(
            f"expected values and entropies need a path of non-zero weight; this machine has none{which}. "
            "Pass a string that the machine accepts."
        )
    # The power of two is the same for both components: it cancels in the quotient and is added to the logarithm.
    results = total.log() + exponent.double() * math.log(2.0), sums / total
    return results if strings is not None and is_batch(strings) else (results[0][0], results[1][0])


# ---- weights as real numbers on a common scale -------------------------------------------------------------


def _scaled(machine: Automaton, *, everything: bool) -> Weights:
    """Return weights as real numbers, scaled without changing the probabilities of paths (of one string)."""
    arc, initial, final = (_log_weights(machine, w.detach()) for w in machine.weights)
    if not everything:
        symbols = machine.arc_symbol
        peak = arc.new_full((len(machine.alphabet) + 1,), -math.inf)  # the last entry is that of ε
        peak = peak.scatter_reduce(0, symbols % len(peak), arc, "amax")
        peak[-1] = 0.0  # ε is not scaled
        factors = (-_finite(peak)[symbols], -_peak(initial), -_peak(final))
    else:
        push = _log_suffix_weights(machine)
        factors = (push[machine.arc_target] - push[machine.arc_source], push - _peak(initial + push), -push)
    weights = zip(machine.weights, factors, strict=True)
    return tuple(_times_exp(machine, w, factor) for w, factor in weights)  # pyright: ignore[reportReturnType]


def _log_weights(machine: Automaton, weights: Tensor) -> Tensor:
    return machine.semiring.on_tensors(machine.semiring.to_log, weights.to(torch.float64))


def _log_suffix_weights(machine: Automaton) -> Tensor:
    """Return the logarithm of the total weight of what can follow each state; 0 for states that lie on no path."""
    return _finite(suffix_weights(machine.detach().with_semiring("log")))


def _peak(logs: Tensor) -> Tensor:
    return _finite(logs.max())


def _finite(logs: Tensor) -> Tensor:
    return logs.where(logs.isfinite(), 0.0)


def _times_exp(machine: Automaton, weights: Tensor, factor: Tensor) -> Tensor:
    """Return weights · e^factor as real numbers; 0̄ becomes 0."""
    ring = machine.semiring
    if ring.logarithmic:
        dead = ring.is_zero(weights.detach())
        logs = ring.on_tensors(ring.to_log, ring.where(dead, ring.ones(len(dead)), weights))
        return (logs + factor).exp().where(~dead, 0.0)
    # Multiply in two steps, since e^factor may be out of range where the product is not.
    half = (factor / 2).clamp(-700.0, 700.0).exp()
    return ring.on_tensors(ring.to_real, weights.to(torch.float64)) * half * half


def _logs(weights: Tensor) -> Tensor:
    """Return the logarithms of weights; 0 for weights of 0, which no path has."""
    alive = weights.detach() > 0
    return weights.where(alive, 1.0).log()


# ---- features ----------------------------------------------------------------------------------------------


def _feature_values(machine: Automaton, feature: Feature) -> Tensor:
    """Return the feature of each arc, (A,), or raise unless it is a finite number."""
    arcs = machine.arcs
    if isinstance(feature, Mapping):
        by_arc = {_arc_key(key): value for key, value in feature.items()}
        unknown = by_arc.keys() - {arc[:3] for arc in arcs}
        if unknown:
            raise AutomatonError(
                "a feature maps arcs of the machine, (source, symbol, target), to numbers; the machine has no arc "
                f"{min(unknown, key=repr)!r}. Remove it, or correct its names."
            )
        found = [by_arc.get(arc[:3], 0.0) for arc in arcs]
    elif callable(feature):
        found = [feature(arc) for arc in arcs]
    else:
        raise AutomatonError(
            "a feature must be a mapping from arcs to numbers or a function of an arc, such as "
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


# ---- samples -----------------------------------------------------------------------------------------------


class _Choices:
    """Draw from each state whether to stop or which of its arcs to take.

    The cumulative probabilities of state q lie in (q, q+1], so that one binary search draws for any number of states.
    """

    def __init__(self, machine: Automaton) -> None:
        n = machine.num_states
        suffix = _log_weights(machine, suffix_weights(machine))
        stop = _log_weights(machine, machine.final_weight) - suffix
        arc = (
            _log_weights(machine, machine.arc_weight)
            + suffix[machine.arc_target]
            - suffix[machine.arc_source]
        )
        state = torch.cat((torch.arange(n), machine.arc_source))
        order = state.argsort(stable=True)
        entered = (suffix > -torch.inf)[state]  # the other states are never reached
        chance = torch.cat((stop, arc)).exp().where(entered, 0.0)[order]
        self.arc = torch.cat((torch.full((n,), -1), torch.arange(arc.numel())))[order]
        self.cumulative, self.last = _cumulative(chance, state[order], n)
        start = _log_weights(machine, machine.initial_weight) + suffix
        if not bool((start > -torch.inf).any()):
            raise AutomatonError("sampling needs a machine with a path of non-zero weight; this one has none")
        begin = (start - start.logsumexp(0)).exp()
        self.begin, self.begin_last = _cumulative(begin, torch.zeros(n, dtype=torch.int64), 1)
        self.target = machine.arc_target

    def starts(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Draw n initial states."""
        u = torch.rand(n, generator=generator, dtype=torch.float64)
        return torch.searchsorted(self.begin, u, right=True).minimum(self.begin_last[0])

    def draw(self, states: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw an arc for each of the states, or −1 to stop."""
        u = torch.rand(states.numel(), generator=generator, dtype=torch.float64)
        place = torch.searchsorted(self.cumulative, states + u, right=True)
        return self.arc[place.minimum(self.last[states])]  # q + u may round up to q + 1


def _cumulative(chance: Tensor, row: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return the cumulative chances of each row, plus the row's number, and the place of each row's last chance
    above 0. Rounding is corrected, so that the last one is row + 1."""
    place = torch.arange(chance.numel())
    last = torch.zeros(rows, dtype=torch.int64).scatter_reduce(0, row, place.where(chance > 0, 0), "amax")
    sums = chance.cumsum(0)
    first = torch.searchsorted(row, torch.arange(rows))
    within = sums - (sums - chance)[first][row]
    within = within.clamp(0, 1).where(place < last[row], 1.0)
    return row + within, last


def _draw_arcs(
    machine: Automaton, n: int, generator: torch.Generator | None
) -> tuple[list[int], list[list[int]]]:
    """Draw n paths together, step by step; return their first states and their arcs."""
    if n < 0:
        raise AutomatonError(f"the number of samples must not be negative; got {n}")
    require_probabilities(machine, "sampling")
    choices = machine.cached("choices", lambda: _Choices(machine.detach()))
    state = choices.starts(n, generator)
    first, arcs = state.tolist(), [[] for _ in range(n)]
    who = torch.arange(n)
    while who.numel():
        arc = choices.draw(state, generator)
        going = arc >= 0
        who, arc = who[going], arc[going]
        for i, a in zip(who.tolist(), arc.tolist(), strict=True):
            arcs[i].append(a)
        state = choices.target[arc]
    return first, arcs
