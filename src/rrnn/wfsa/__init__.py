"""Concrete weighted finite-state automata: the objects of the theory, scored exactly."""

from rrnn import moved
from rrnn.wfsa.instantiate import instantiate
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.minimise import Equivalence
from rrnn.wfsa.paths import Path
from rrnn.wfsa.regex import OTHER, from_regex
from rrnn.wfsa.symbols import EPSILON, Arc

__all__ = ["EPSILON", "OTHER", "WFSA", "Arc", "Equivalence", "Path", "from_regex", "instantiate"]

__getattr__ = moved.attributes(__name__)
