"""Turn units of layers into automata, compare the two, bound the number of states, and say what cells can compute."""

from rrnn.theory.bounds import Rank, rank, rank_model
from rrnn.theory.capabilities import Power, power
from rrnn.theory.unit_automata import scores, to_wfsa
from rrnn.theory.verify import Verdict, verify_cell, verify_layer, verify_model

__all__ = [
    "Power",
    "Rank",
    "Verdict",
    "power",
    "rank",
    "rank_model",
    "scores",
    "to_wfsa",
    "verify_cell",
    "verify_layer",
    "verify_model",
]
