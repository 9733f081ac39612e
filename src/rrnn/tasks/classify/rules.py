"""Start a text classifier from rules: one regular expression per label (FA-RNN, Jiang et al. 2020).

A file of rules has one rule per line: a label, a blank and a pattern over words, as `rrnn.from_regex` reads it. A rule
matches a text that contains the pattern; `^` and `$` tie it to the ends. Several lines of one label are alternatives. A
label without a pattern is the default: the answer where no rule matches. Lines that are blank or begin with `#` are
skipped.

    # sentiment
    negative  (not|never|n't) .{0,2} (good|great|funny)
    negative  dull|boring|tedious
    positive  good|great|funny
    positive

Each label's rule becomes a unit beside the classifier's layers: an automaton over word vectors and one feature for each
word of the rules, which is trained with the rest (`rrnn.nn.from_wfsa`). Before training, the classifier answers exactly
as the rules do: what its layers say is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.errors import AutomatonError, DataError, FormatError, nearest
from rrnn.nn import from_wfsa
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.wfsa import OTHER, from_regex
from rrnn.wfsa.regex import pattern_symbols

STRENGTH = 4.0
"""What a matching rule adds to the logit of its label before training. The default label has half of it."""

MAX_RULES, MAX_STATES = 2**20, 64


@dataclass(frozen=True)
class Rules:
    """The content of a file of rules."""

    text: str
    """The file as it was read, so that a run can keep it."""
    patterns: dict[str, str]
    """Label → the pattern of all its lines."""
    default: str | None

    @property
    def words(self) -> list[str]:
        """The words that the rules mention, in order."""
        return list(dict.fromkeys(word for p in self.patterns.values() for word in pattern_symbols(p)))

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raise unless all labels of the rules are labels of the data."""
        for label in (*self.patterns, *([self.default] if self.default is not None else [])):
            if label not in labels:
                raise DataError(
                    f"the rules are for labels of the data, {', '.join(labels)}; got {label!r}."
                    f"{nearest(label, labels)} A line of rules is a label, a blank and a pattern."
                )


def read_rules(path: str | Path) -> Rules:
    """Read a file of rules."""
    try:
        with Path(path).expanduser().open(encoding="utf-8-sig") as file:
            text = file.read(MAX_RULES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error  # a text that is not UTF-8 raises a ValueError
        raise FormatError(f"cannot read the rules: {why}", source=str(path)[:200]) from None
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str = "rules") -> Rules:
    """Read rules from a text; errors name `source` and the line."""
    if len(text) > MAX_RULES:
        raise FormatError(f"a file of rules has at most {MAX_RULES:,} characters", source=source)
    found: dict[str, list[str]] = {}
    default: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        label, pattern = [*line.split(None, 1), "", ""][:2]
        if not label or label.startswith("#"):
            continue
        if not pattern.strip():
            if default not in (None, label):
                raise FormatError(
                    f"one label may stand without a pattern, as the default; {default!r} and {label!r} do",
                    source=source,
                    line=number,
                )
            default = label
            continue
        try:
            from_regex(pattern, match="contains")
        except AutomatonError as error:
            raise FormatError(f"the rule of {label!r}: {error}", source=source, line=number) from None
        found.setdefault(label, []).append(pattern.strip())
    if not found:
        raise FormatError(
            "there is no rule in this file: write a label, a blank and a pattern", source=source
        )
    joined = {label: "|".join(patterns) for label, patterns in found.items()}
    for label, pattern in joined.items():
        _check_size(label, pattern, source)
    return Rules(text, joined, default)


def _check_size(label: str, pattern: str, source: str) -> None:
    """Raise unless the automaton of all rules of a label is small enough for a layer."""
    try:
        states = from_regex(pattern, match="contains").num_states
    except AutomatonError as error:
        raise FormatError(f"all rules of {label!r} together: {error}", source=source) from None
    if states > MAX_STATES:
        raise FormatError(
            f"all rules of {label!r} together need an automaton of {states} states, and a layer takes at most "
            f"{MAX_STATES}. Write simpler rules: shorter gaps .{{0,3}}, and fewer of them.",
            source=source,
        )


class RuleUnits(nn.Module):
    """The automata of the rules, one unit per label, and what their scores add to the logits."""

    features: Tensor

    def __init__(self, rules: Rules, vocabulary: Vocabulary, labels: Sequence[str], size: int) -> None:
        """`size` is that of an embedded word."""
        super().__init__()
        self.labels = tuple(rules.patterns)
        """The label of each unit."""
        machines = [from_regex(p, match="contains", semiring="real") for p in rules.patterns.values()]
        symbols = {symbol for machine in machines for symbol in machine.alphabet}
        # Vectors of zeros span nothing, so every word of the rules has a feature, whatever its embedding is.
        self.layer = from_wfsa(machines, torch.zeros(len(symbols), size))
        column = {word: i for i, word in enumerate(self.layer.features)}
        columns = torch.tensor([column.get(word, column[OTHER]) for word in vocabulary.words])
        # Not stored with the weights: it follows from the rules and the vocabulary.
        self.register_buffer("features", F.one_hot(columns, len(column)).float(), persistent=False)
        self.readout = nn.Linear(len(machines), len(labels))
        with torch.no_grad():
            self.readout.weight.zero_()
            self.readout.bias.zero_()
            for unit, label in enumerate(rules.patterns):
                self.readout.weight[labels.index(label), unit] = STRENGTH
            if rules.default is not None:
                self.readout.bias[labels.index(rules.default)] = STRENGTH / 2

    def inputs(self, x: Tensor, ids: Tensor) -> Tensor:
        """Return what the automata read: embedded words x (…, size) and the features of their ids (…).

        Ids beyond the vocabulary are words that no rule mentions, as the first one, the padding, is.
        """
        known = ids.where(ids < len(self.features), 0)
        return torch.cat([x, F.embedding(known, self.features)], -1)

    def forward(self, x: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return what the rules add to the logits (B, labels) of embedded words x (T, B, size) with ids (T, B)."""
        scores, _ = self.layer(self.inputs(x, ids))
        last = (lengths - 1).clamp_min(0).view(1, -1, 1).expand(1, -1, scores.shape[-1])
        there = (lengths > 0).unsqueeze(-1)
        return self.readout(torch.where(there, scores.gather(0, last).squeeze(0), 0.0))
