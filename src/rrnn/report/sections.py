"""Gather what a report shows of a group of runs; `templates/report.html` says how it looks.

A run whose model or data cannot be loaded does not spoil the report: the reason stands in their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from rrnn.automata import Cell
from rrnn.draw import to_svg
from rrnn.draw.charts import Series, chart
from rrnn.errors import AutomatonError, CellError, RRNNError
from rrnn.ir import lower
from rrnn.ir.equations import equations
from rrnn.report.run_summaries import FACTS, RunKind, RunSummary
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.examples import RankedUnit, choose_examples, has_words, strongest_units
from rrnn.tasks.classify.explanations import Explanation, explain
from rrnn.tasks.classify.prepare import read_dataset
from rrnn.tasks.data.labelled import Example
from rrnn.tasks.runs import load
from rrnn.zoo import get_model

CANDIDATES = 500
"""Texts of the development set from which examples are chosen."""
SAMPLES, SAMPLE_WORDS, SAMPLE_CHARACTERS, TEMPERATURE = 2, 45, 260, 0.8


class TrainingChart(NamedTuple):
    title: str
    note: str
    svg: str


class AutomatonCard(NamedTuple):
    """A model with the runs (by number) that train it, and its cell where it has one."""

    model: str
    members: list[int]
    cell: Cell | None
    note: str = ""
    """Why there is no picture."""
    picture: str = ""
    equations: str = ""
    stored: int = 0
    """How many numbers a unit stores."""


class ExplainedExample(NamedTuple):
    """A text with its label, and what each model (by the number of its run) says: an explanation or a problem."""

    truth: str
    answers: list[tuple[int, Explanation | str]]


class Section:
    """The runs of one task on the same data."""

    temperature = TEMPERATURE

    def __init__(self, title: str, runs: Sequence[RunSummary]) -> None:
        self.title, self.runs = title, runs
        self.kind: RunKind = runs[0].kind
        self.is_lm = runs[0].run.config["task"] == "lm"

    # ---- from the files of the runs alone ----------------------------------------------------------------------------

    @property
    def best_dev(self) -> float | None:
        return _top([run.dev for run in self.runs], self.kind.best)

    @property
    def best_test(self) -> float | None:
        return _top([run.test for run in self.runs], self.kind.best)

    @property
    def best_speed(self) -> float | None:
        return _top([run.speed for run in self.runs], max)

    def charts(self) -> list[TrainingChart]:
        """Plot the trainings by epoch, and with several runs also by time."""
        kind, every = self.kind, list(enumerate(self.runs))
        name = kind.metric.partition(",")[0]
        dev = [Series(run.name, i, run.curve(kind.dev), run.best) for i, run in every]
        loss = [Series(run.name, i, run.curve("train_loss")) for i, run in every]
        loss += [Series(run.name, i, run.curve("dev_loss"), faint=True) for i, run in every]
        timed = [Series(run.name, i, run.by_time()) for i, run in every] if len(every) > 1 else []
        by_epoch = chart(dev, title=f"{name} on the development set, by epoch", x_title="epoch", whole=True)
        losses = chart(loss, title="training loss, by epoch", x_title="epoch", whole=True)
        by_time = chart(timed, title=f"{name} on the development set, by time", x_title="seconds of training")
        drawn = [
            TrainingChart(f"Dev {kind.metric}", "a dot marks the best epoch", by_epoch),
            TrainingChart("Loss", "solid: training, dashed: dev", losses),
            TrainingChart(f"Dev {kind.metric}, by time", "", by_time),
        ]
        return [each for each in drawn if each.svg]

    def automata(self) -> list[AutomatonCard]:
        """Return every cell once, with the runs that have it, and the models that are no cells."""
        groups: dict[tuple[str, str], list[int]] = {}
        for i, run in enumerate(self.runs):
            groups.setdefault((run.model, run.run.cell_text or ""), []).append(i)
        return [_card(model, members, self.runs[members[0]].cell) for (model, _), members in groups.items()]

    def options(self) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Return the options that differ between the runs, and those that all share."""
        hidden = (FACTS, "task")
        keys = dict.fromkeys(key for run in self.runs for key in run.run.config if key not in hidden)
        values = {key: [_option(run.run.config, key) for run in self.runs] for key in keys}
        differ = {key: each for key, each in values.items() if len(set(each)) > 1}
        return differ, {key: each[0] for key, each in values.items() if key not in differ}

    @property
    def says(self) -> str:
        """One sentence on what the table of results shows."""
        better = "lower" if self.kind.aim == "min" else "higher"
        sizes = [run.parameters for run in self.runs if run.parameters]
        compared = ""
        if len(self.runs) > 1 and sizes:
            alike = max(sizes) <= 1.03 * min(sizes)
            compared = (
                ", all with about the same number of parameters"
                if alike
                else f", with {min(sizes):,.0f} to {max(sizes):,.0f} parameters: compare models of equal size"
            )
            compared += ", or of equally many units" if not alike else ""
        name = self.kind.metric.partition(",")[0]
        mark = "; the best of each column is marked" if len(self.runs) > 1 else ""
        return (
            f"The {name} of each model on the validation and test set ({better} is better){compared}{mark}."
        )

    @property
    def reason(self) -> str:
        """Why one would want an automaton beside a model that is none, or "" where there is nothing to compare."""
        cell, other = (
            self._best_of([r for r in self.runs if (r.cell is None) == none]) for none in (False, True)
        )
        if cell is None or other is None:
            return ""
        behind = self.kind.best([cell[1], other[1]]) == other[1]
        start = (
            f"Why {cell[0]}, if {other[0]} is as good or better?"
            if behind
            else f"What else {cell[0]} offers:"
        )
        return (
            f"{start} Every unit of {cell[0]} is the score of an automaton, which splits exactly into what words and "
            "phrases add; it reads a stream with a few numbers of memory per unit; and it computes all steps of a "
            f"long text side by side, where {other[0]} takes one after the other."
        )

    def _best_of(self, runs: list[RunSummary]) -> tuple[str, float] | None:
        """Return the model and the validation metric of the best of some runs; None if none has finished an epoch."""
        found = [(run.model, run.dev) for run in runs if run.dev is not None]
        best = self.kind.best([dev for _, dev in found]) if found else None
        return next((each for each in found if each[1] == best), None)

    # ---- from the trained models -------------------------------------------------------------------------------------

    @cached_property
    def _loaded(self) -> tuple[dict[int, Any], list[tuple[str, str]]]:
        models, problems = {}, []
        for i, run in enumerate(self.runs):
            try:
                models[i] = load(run.run.folder)
            except RRNNError as error:
                problems.append((run.name, str(error)))
        return models, problems

    @property
    def models(self) -> dict[int, Any]:
        """The trained models, by the number of their run."""
        return self._loaded[0]

    @property
    def not_loaded(self) -> list[tuple[str, str]]:
        """The names of the other runs, and why their models cannot be loaded."""
        return self._loaded[1]

    @property
    def first_loaded(self) -> RunSummary:
        return self.runs[next(iter(self.models))]

    def samples(self) -> Iterator[tuple[int, list[str]]]:
        """Generate texts with each language model, from the same random numbers."""
        for i, model in self.models.items():
            length = SAMPLE_CHARACTERS if model.config.level == "char" else SAMPLE_WORDS
            texts = [
                model.generate(length=length, temperature=TEMPERATURE, seed=seed) for seed in range(SAMPLES)
            ]
            yield i, [text.strip() for text in texts]

    @cached_property
    def _data(self) -> tuple[list[Example], str]:
        """The examples of the first model's development set that every model can read, and why there are none."""
        models = list(self.models.values())
        try:
            dev = read_dataset(_by_words(models[0].config)).dev
        except (RRNNError, OSError) as error:
            return [], str(error)
        return [example for example in dev[:CANDIDATES] if has_words(example, models)], ""

    @property
    def no_data(self) -> str:
        """Why the data cannot be read, or "" where they can."""
        return self._data[1]

    def examples(self) -> Iterator[ExplainedExample]:
        """Explain a few texts by every classifier."""
        models = self.models
        labels = next(iter(models.values())).labels
        for example in choose_examples(self._data[0], list(models.values())):
            text = " ".join(example.tokens)
            answers = [(i, _or_problem(partial(explain, maps=1), model, text)) for i, model in models.items()]
            yield ExplainedExample(labels[example.label], answers)

    def units(self) -> Iterator[tuple[int, str, list[RankedUnit] | str]]:
        """Return, for each classifier, a label and the units that speak most for or against it."""
        for i, model in self.models.items():
            label = model.labels[-1]
            yield i, label, _or_problem(strongest_units, model, self._data[0], label)


def _by_words(config: ClassifyConfig) -> ClassifyConfig:
    """Return a configuration that splits texts into words, which every model then splits in its own way."""
    return config if config.tokenizer is None else config.replace(tokenizer=None, cleaning="none")


_T = TypeVar("_T")


def _or_problem(compute: Callable[..., _T], *arguments: Any) -> _T | str:
    """Return the result, or what went wrong in words."""
    try:
        return compute(*arguments)
    except RRNNError as error:
        return str(error)


def _top(values: Sequence[float | None], best: Callable[[list[float]], float]) -> float | None:
    """Return the best of the values, or None where there is nothing to be better than."""
    known = [value for value in values if value is not None]
    return best(known) if len(known) > 1 else None


def _option(config: dict[str, Any], key: str) -> str:
    if key not in config:
        return "–"
    value = config[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _card(model: str, members: list[int], cell: Cell | None) -> AutomatonCard:
    if cell is None:
        try:
            known = get_model(model)
            why = known.open or "Its units depend on each other, so it is not a cell."
            no_automaton = (
                f"This model is no automaton: it is {known.proved}; docs/theory.md has the proof. "
                if known.proved
                else ""
            )
        except CellError:
            no_automaton, why = "", "Nothing is known of an automaton for this model."
        return AutomatonCard(model, members, None, f"No picture. {no_automaton}{why}")
    picture, note = "", ""
    try:
        picture = to_svg(cell, legend=False)  # the equations say what the names stand for
    except AutomatonError as error:
        note = str(error)
    stored = lower(cell).program.state_count
    return AutomatonCard(model, members, cell, note, picture, equations(cell).rstrip(), stored)
