"""Turn the units of a layer into automata, and check that their scores agree with the layer's."""

from rrnn.theory.unit_automata import scores, to_wfsa
from rrnn.theory.verify import Verdict, verify_cell, verify_layer, verify_model

__all__ = ["Verdict", "scores", "to_wfsa", "verify_cell", "verify_layer", "verify_model"]
