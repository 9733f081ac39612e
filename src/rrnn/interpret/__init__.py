"""Explain what a layer of automata found in a sentence: paths, tokens, phrases, contributions to a prediction.

Everything starts with `read`, which lays a layer's automata over sentences; the other functions take its result.
"""

from rrnn import moved
from rrnn.interpret.attention import AttentionMap, attention_map
from rrnn.interpret.decompose import ArcMasses, Decomposition, Term, arc_masses, decompose
from rrnn.interpret.deletion import LeaveOneOut, leave_one_out
from rrnn.interpret.entry_maps import EntryMap, entry_map
from rrnn.interpret.logits import LogitContributions, logit_contributions
from rrnn.interpret.paths import PathStep, TokenPath, UnitPaths, best_paths, k_best
from rrnn.interpret.phrases import Phrase, UnitPhrases, phrases
from rrnn.interpret.reading import Reading, read
from rrnn.interpret.trellises import scores
from rrnn.interpret.wordings import k_best_wordings

__all__ = [
    "ArcMasses",
    "AttentionMap",
    "Decomposition",
    "EntryMap",
    "LeaveOneOut",
    "LogitContributions",
    "PathStep",
    "Phrase",
    "Reading",
    "Term",
    "TokenPath",
    "UnitPaths",
    "UnitPhrases",
    "arc_masses",
    "attention_map",
    "best_paths",
    "decompose",
    "entry_map",
    "k_best",
    "k_best_wordings",
    "leave_one_out",
    "logit_contributions",
    "phrases",
    "read",
    "scores",
]

__getattr__ = moved.attributes(__name__)
