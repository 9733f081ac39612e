"""Concrete weighted finite-state automata: the objects of the theory, scored exactly."""

from rrnn.wfsa.instantiate import instantiate
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON, Arc

__all__ = ["EPSILON", "WFSA", "Arc", "instantiate"]
