"""Concrete weighted finite-state automata: the objects of the theory, scored exactly."""

from rrnn.wfsa.instantiate import instantiate
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.minimise import Equivalence
from rrnn.wfsa.paper import automaton_b, automaton_c, automaton_d, automaton_f, ngram_chain
from rrnn.wfsa.paths import Path
from rrnn.wfsa.symbols import EPSILON, Arc

__all__ = [
    "EPSILON",
    "WFSA",
    "Arc",
    "Equivalence",
    "Path",
    "automaton_b",
    "automaton_c",
    "automaton_d",
    "automaton_f",
    "instantiate",
    "ngram_chain",
]
