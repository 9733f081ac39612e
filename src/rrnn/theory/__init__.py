"""Layers read as automata, and the claims about them as checks."""

from rrnn.theory.unit_automata import scores, to_wfsa
from rrnn.theory.verify import Verdict, verify_cell, verify_layer, verify_model

__all__ = ["Verdict", "scores", "to_wfsa", "verify_cell", "verify_layer", "verify_model"]
