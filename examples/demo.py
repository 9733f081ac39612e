"""What rrnn does, end to end, in under two minutes. Run by `make demo`; what it writes goes to demo-output/."""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.columns import Columns
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.status import Status
from rich.syntax import Syntax
from rich.table import Table

import rrnn
from rrnn import zoo
from rrnn.cli import main as command
from rrnn.report import write_report
from rrnn.tasks import classify, lm
from rrnn.tasks.classify import single_units
from rrnn.tasks.training import Progress, Record
from rrnn.theory import verify_model

console = Console()


@dataclass(frozen=True)
class Plan:
    """How much of it."""

    verified: tuple[str, ...] = tuple(zoo.MODELS)
    parameters: int = 450_000
    epochs: int = 4
    tasks: tuple[str, ...] = tuple(single_units.NAMES)
    cells: tuple[str, ...] = single_units.CELLS
    pattern_epochs: int = 20
    classifier_epochs: int = 12


FULL = Plan()
QUICK = Plan(("B", "F", "ISAN", "LSTM"), 100_000, 1, ("synthetic:not-good",), ("B", "F"), 2, 2)
"""Every step, of little use but soon done: for trying the program itself."""

LENGTHS = (10, 100, 1000, 10_000)
"""The lengths of texts, in words, at which layers are timed."""

SHOWN = ("B", "B-max-plus", "C", "F", "SRU", "RCNN2", "T-LSTM", "QRNN2", "SoPa4", "minGRU", "ISAN", "LSTM")
"""Of what is verified, the lines that are printed."""


# ---- 1 ---------------------------------------------------------------------------------------------------------------

# A soft pattern: a word that turns meaning around, then a word with a feeling, perhaps with others in between.
WORDS = ["not", "never", "really", "a", "good", "bad", "film"]
TURNS = {"not": 1.0, "never": 1.2}
FEELS = {"good": 1.0, "bad": -1.0}
REVIEWS = ["a good film", "not a good film", "never a really bad film", "a film"]


def weights(table: dict[str, float], default: float = 0.0) -> dict[str, float]:
    """A weight function μ over all words."""
    return {word: table.get(word, default) for word in WORDS}


def negation() -> rrnn.WFSA:
    """F of the paper: "good" by itself counts a little (through the ε-arc), "not … good" counts against it."""
    return rrnn.automaton_f(
        WORDS,
        mu1={word: -2.0 * w for word, w in weights(TURNS).items()},
        phi1=weights({"film": 0.2}, default=0.7),  # a gap costs something, and "film" nearly ends the pattern
        mu2=weights(FEELS),
        phi2=0.9,
        gamma=0.5,
        rho1=0.0,
        rho2=1.0,
    )


def derive(out: Path) -> None:
    console.rule("[bold]1. From an automaton to a recurrence")
    cell = rrnn.get_cell("F")
    text = Syntax(cell.to_text().rstrip(), "python", background_color="default")
    left = Panel(text, title="the cell F, as an automaton", expand=False, padding=0)
    right = Panel(rrnn.equations(cell).rstrip(), title="what the compiler derives", expand=False, padding=0)
    console.print(Columns([left, right]))
    console.print(f"Its picture: {rrnn.to_svg(cell).save(out / 'F.svg')}\n")

    machine = negation()
    console.print(
        "F with weights written by hand, for “not … good”: its score by Forward is the sum over all its paths."
    )
    table = Table("text", "by Forward", "by its paths", "heaviest path", box=None)
    for review in REVIEWS:
        words = tuple(review.split())
        path = machine.best_path(words)
        steps = "(none)" if path is None else " → ".join(str(q) for q in path.states)
        by_paths = machine.score_by_paths(words)
        table.add_row(review, f"{machine.score(words).item():+.4f}", f"{by_paths:+.4f}", steps)
    console.print(table)
    path = machine.best_path(tuple(REVIEWS[2].split()))
    assert path is not None
    marked = [*((arc.source, arc.target) for arc in path.arcs), *path.states]
    saved = rrnn.to_svg(machine, highlight=marked).save(out / "negation.svg")
    console.print(f"The heaviest path of “{REVIEWS[2]}”, in colour: {saved}")


# ---- 2 ---------------------------------------------------------------------------------------------------------------


def verify(models: tuple[str, ...]) -> None:
    console.rule("[bold]2. Every unit of a layer is the score of an automaton")
    console.print(
        "How far the outputs of layers with random weights are from the scores of their units' automata:"
    )
    verdicts = [verify_model(name) for name in models]
    table = Table("model", "automaton", "semiring", "states", "largest difference", "verdict", box=None)
    for v in verdicts:
        if v.model in SHOWN:
            error = "" if v.max_error is None else f"{v.max_error:.0e}"
            states = "" if v.states is None else str(v.states)
            verdict = v.verdict.partition(" over ")[0]  # the semirings are in `rrnn verify`'s notes
            table.add_row(v.model, v.automaton, v.semiring, states, error, verdict)
    console.print(table)
    known = [v for v in verdicts if v.max_error is not None]
    worst = max(v.max_error for v in known if v.max_error is not None)
    assert all(v.holds for v in verdicts)
    console.print(
        f"The scores are those of Forward and those of the sum over all paths: {len(known)} of {len(known)} models of "
        f"the zoo agree (to {worst:.0e}); the other {len(verdicts) - len(known)} are proved not to be rational. "
        "`rrnn verify` prints them all."
    )


# ---- 3 ---------------------------------------------------------------------------------------------------------------


class OneLine(Progress):
    """How a training goes, on a line that is gone when it ends."""

    def __init__(self, status: Status, name: str, key: str) -> None:
        self.status, self.name, self.key = status, name, key

    def begin(self, epochs: int, history: list[Record]) -> None:
        self.epochs = epochs
        self.status.update(f"{self.name}: epoch 1 of {epochs}")

    def epoch(self, record: Record, is_best: bool) -> None:
        done = f"{self.name}: epoch {record['epoch']} of {self.epochs}"
        self.status.update(f"{done}, {self.key.replace('_', ' ')} {record[self.key]:.1f}")


def language_models(runs: Path, plan: Plan) -> list[Path]:
    console.rule("[bold]3. Language models, at equal parameters and at equal hidden size")
    console.print(
        "Perplexity (lower is better) on the language reference inside Python, one layer, one thread. The first four "
        "models have the same number of parameters; the second LSTM has as many units as F, and more parameters."
    )
    table = Table("model", "units", "parameters", "dev perplexity", "test perplexity", "tokens/s", box=None)
    folders, units, reached = [], {}, {}
    for cell in ("B", "C", "F", "lstm"):
        sizes = lm.prepare(lm.preset("tiny", cell=cell, params=plan.parameters)).sizes
        assert sizes is not None
        units[cell] = sizes.exact
    for cell, size in (*units.items(), ("lstm", units["F"])):
        config = lm.preset("tiny", cell=cell, hidden_size=size, epochs=plan.epochs)
        name = f"lm-{cell}" if size == units[cell] else f"lm-{cell}{size}"
        folder = fresh(runs / name)
        with console.status("") as status:
            done = lm.train(config, folder, progress=OneLine(status, name, "dev_ppl")).summary
        test = "" if done.test_ppl is None else f"{done.test_ppl:.1f}"
        numbers = (f"{done.parameters:,}", f"{done.dev_ppl:.1f}", test, f"{done.tokens_per_s:,.0f}")
        table.add_row(cell.upper() if cell == "lstm" else f"RRNN({cell})", str(size), *numbers)
        folders.append(folder)
        reached[name] = done.dev_ppl
    console.print(table)
    change = 100 * (reached["lm-F"] / reached["lm-lstm"] - 1)
    side = "above" if change > 0 else "below"
    console.print(f"At equal parameters, F's dev perplexity is {abs(change):.0f} % {side} the LSTM's.")
    sample = rrnn.load(folders[2]).generate("The", length=30, temperature=0.7, seed=1)
    console.print(f"F goes on: “{' '.join(sample.split())} …”\n", markup=False)
    at_length(units["F"])
    return folders


def at_length(units: int) -> None:
    """Compare the speed of F and of an LSTM on one text, short and long."""
    console.print(
        "Why one would still want F: exact explanations (step 5); streaming, where a word changes two numbers per "
        "unit, however long the text was before; and speed at length, since its matrix products do not wait for each "
        "other. Words per second of one layer that reads one text, one thread, without gradients:"
    )
    models = {"F": zoo.layer("F", units, units), "LSTM": torch.nn.LSTM(units, units)}
    table = Table("words", "F, words/s", "LSTM, words/s", "F is faster by", box=None)
    for words in LENGTHS:
        x = torch.randn(words, 1, units)
        seconds = {name: shortest(model, x) for name, model in models.items()}
        rates = (f"{words / seconds[name]:,.0f}" for name in models)
        table.add_row(f"{words:,}", *rates, f"{seconds['LSTM'] / seconds['F']:.1f}×")
    console.print(table)


def shortest(model: torch.nn.Module, x: torch.Tensor, times: int = 5) -> float:
    """Return the seconds of the fastest of several runs."""
    found = []
    with torch.no_grad():
        for _ in range(times + 1):  # the first one may compile
            start = time.perf_counter()
            model(x)
            found.append(time.perf_counter() - start)
    return min(found[1:])


def fresh(folder: Path) -> Path:
    """Without the run that an earlier demonstration left there."""
    if (folder / "config.json").exists():
        shutil.rmtree(folder)
    return folder


# ---- 4 ---------------------------------------------------------------------------------------------------------------


def learners(plan: Plan) -> None:
    console.rule("[bold]4. Who can learn what")
    console.print(
        "Test accuracy in % of one unit, which is one automaton, read out linearly, on tasks whose truth is known:"
    )
    with console.status("training"):
        found = single_units.who_learns_what(plan.cells, plan.tasks, epochs=plan.pattern_epochs)
    console.print(Markdown(single_units.to_markdown(found)))
    console.print(
        "A pattern of two words takes the two arcs of C and F. Counting takes sums, so max-plus cannot; and it leaks "
        "(u = (1 − f)·Wv: to add, a unit has to forget), as texts eight times as long show."
    )


# ---- 5 ---------------------------------------------------------------------------------------------------------------


def explain(out: Path, plan: Plan) -> list[Path]:
    console.rule("[bold]5. Why did it say that?")
    # F without its tanh: behind a linear read-out, what words add is then exact.
    own = out / "F-score.cell"
    own.write_text(rrnn.get_cell("F").output(rrnn.score).to_text(), encoding="utf-8")
    console.print(
        "Two classifiers, and how much each word adds to the margin of “yes”, its logit minus that of “no”:"
    )
    folders = []
    for cell in (str(own), "B-max-plus"):
        name = Path(cell).stem
        options: dict[str, Any] = {"hidden_size": 4, "readout": "linear", "epochs": plan.classifier_epochs}
        config = classify.ClassifyConfig.for_data("synthetic:not-good", cell=cell, **options)
        folder = fresh(out / "runs" / f"not-good-{name}")
        with console.status("") as status:
            done = classify.train(config, folder, progress=OneLine(status, name, "dev_accuracy")).summary
        console.print(
            f"{name}, 4 units: is there “not … good”? Right for {done.test:.1f} % of the test texts."
        )
        folders.append(folder)
    texts = ("the film was not that good", "its story was good and its music not")
    for text in texts:
        console.print(
            f'\n$ rrnn explain {folders[0]} "{text}" --label yes --units 1', style="bold", markup=False
        )
        command(["explain", str(folders[0]), text, "--label", "yes", "--units", "1"])
    return folders


# ---- 6 ---------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="the folder for what it writes")
    parser.add_argument("--quick", action="store_true", help="a little of every step")
    options = parser.parse_args()
    out, plan = options.out, QUICK if options.quick else FULL
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(
        1
    )  # models this small gain little from a second one, and this way a busy machine matters less
    start = time.perf_counter()
    derive(out)
    verify(plan.verified)
    runs = language_models(out / "runs", plan)
    learners(plan)
    runs += explain(out, plan)
    console.rule("[bold]6. The report")
    with console.status("writing"):
        report = write_report(runs, out / "report.html")
    console.print(f"Curves, automata, examples, samples, in one file for a browser: {report.resolve()}")
    console.rule(f"[bold]done in {time.perf_counter() - start:.0f} s")
    next_steps(out)


def next_steps(out: Path) -> None:
    """Print what a visitor can do now."""
    console.print("What to try next:")
    for command_line, what in (
        (
            f"rrnn explore --runs {out / 'runs'}",
            "design a cell, score strings with it, explain these classifiers",
        ),
        (f'rrnn explain {out / "runs" / "not-good-F-score"} "not so good"', "explain a sentence of your own"),
        (f"rrnn lm generate {out / 'runs' / 'lm-F'}", "let F write"),
        ("rrnn classify train --help", "train on texts of your own"),
    ):
        console.print(f"  {command_line}", style="bold", markup=False, highlight=False, soft_wrap=True)
        console.print(f"      {what}")


if __name__ == "__main__":
    main()
