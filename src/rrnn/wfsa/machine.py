"""`WFSA`: a concrete weighted finite-state automaton, assembled from its data and its operations.

| methods | defined in |
|---|---|
| construction, weights, conversion to another semiring | `automaton.Automaton` |
| `score`, `prefix_scores` | `scoring.Scoring` |
| `forward`, `backward`, `arc_marginals` | `forward_backward.ForwardBackward` |
| `score_by_paths`, `best_path`, `k_best` | `paths.Paths` |
| `total_weight`, `expected`, `entropy`, `sample`, `sample_paths` | `distribution.Distribution` |
| `union`, `concatenate`, `closure`, `intersect`, `reverse`, `scale`, `trim`, `remove_epsilon` | `algebra.Algebra` |
| `minimise`, `equivalent` | `minimise.Minimisation` |
"""

from __future__ import annotations

from rrnn.wfsa.distribution import Distribution
from rrnn.wfsa.forward_backward import ForwardBackward
from rrnn.wfsa.minimise import Minimisation
from rrnn.wfsa.paths import Paths
from rrnn.wfsa.symbols import EPSILON, Arc, State, Symbol


class WFSA(Minimisation, Distribution, Paths, ForwardBackward):
    """A weighted finite-state automaton over a finite alphabet.

    `arcs` are `(source, symbol, target, weight)`; `initial` and `final` map states to weights. Weights are numbers or
    0-d tensors, whose graph is kept. Over a semiring of several components (complex: re, im) a weight is a tuple of
    numbers or a tensor of them; it may also be given as a Python complex number, or as a number that stands for a
    real one. Weights always come back as tuples. If `states` is not given, the states are those that appear in
    `initial`, then in `arcs`, then in `final`, in this order. The same `(source, symbol, target)` twice is an error,
    unless `merge="plus"`, which adds the weights with ⊕. A machine in which no final state can be reached gives every
    string the score 0̄: that is an error, too, unless `allow_empty=True` says that it is intended.

    A string is a `str`, a tuple, or a 1-d array or tensor of symbols; a *list is always a batch* of strings.
    """


__all__ = ["EPSILON", "WFSA", "Arc", "State", "Symbol"]
