"""What rrnn does, end to end, in under three minutes. Run by `make demo`; pictures go to demo-output/."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

import rrnn
from rrnn.draw.paper import FIGURES

console = Console()

# A soft pattern: a word that turns meaning around, then a word with a feeling, perhaps with others in between.
WORDS = ["not", "never", "really", "a", "good", "bad", "film"]
TURNS = {"not": 1.0, "never": 1.2}
FEELS = {"good": 1.0, "bad": -1.0}
REVIEWS = ["a good film", "not a good film", "never a really bad film", "not good not bad", "a film"]


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


def draw(out: Path) -> None:
    console.rule("[bold]1. The automata of the paper, as pictures")
    table = Table("automaton", "states", "arcs", "picture", box=None)
    for name, figure in FIGURES.items():
        diagram = figure()
        path = rrnn.to_svg(diagram).save(out / f"paper-{name}.svg")
        table.add_row(name, str(len(diagram.nodes)), str(len(diagram.edges)), str(path))
    for name in ("F", "B-max-plus", "SRU", "ngram10"):
        cell = rrnn.get_cell(name)
        path = rrnn.to_svg(cell).save(out / f"{name}.svg")
        table.add_row(f"cell {name}", str(len(cell.states)), str(len(cell.arcs)), str(path))
    console.print(table)
    console.print("\nThe cell F as text, which `rrnn draw FILE.cell -o out.svg` reads:")
    console.print(
        Panel(Syntax(rrnn.get_cell("F").to_text(), "python", background_color="default"), expand=False)
    )


def score(out: Path) -> None:
    console.rule("[bold]2. Scores: Forward, and every path one by one")
    machine = negation()
    table = Table("review", "⟦x⟧ by Forward", "by paths", "heaviest path", box=None)
    for review in REVIEWS:
        words = tuple(review.split())
        path = machine.best_path(words)
        steps = "(none)" if path is None else " → ".join(str(q) for q in path.states)
        by_paths = machine.score_by_paths(words)
        table.add_row(review, f"{machine.score(words).item():+.4f}", f"{by_paths:+.4f}", steps)
    console.print(machine)
    console.print(table)
    path = machine.best_path(tuple(REVIEWS[2].split()))
    assert path is not None
    steps = [(arc.source, arc.target) for arc in path.arcs]
    saved = rrnn.to_svg(machine, highlight=[*steps, *path.states]).save(out / "negation.svg")
    console.print(f"The heaviest path of “{REVIEWS[2]}”, in colour: {saved}")


def recur() -> None:
    console.rule("[bold]3. A recurrence is the score of an automaton")
    f, u = {"x": 0.9, "y": 0.5}, {"x": 0.1, "y": -1.0}
    string = "xyxxyyx"
    scores = rrnn.automaton_b("xy", mu=u, phi=f).prefix_scores(string)
    c, by_hand = 0.0, [0.0]
    for symbol in string:
        c = f[symbol] * c + u[symbol]
        by_hand.append(c)
    table = Table("prefix", "c = f(x)·c' + u(x)", "B⟦prefix⟧", box=None)
    for i, (left, right) in enumerate(zip(by_hand, scores.tolist(), strict=True)):
        table.add_row(string[:i] or "(empty)", f"{left:+.6f}", f"{right:+.6f}")
    console.print(table)

    generator = torch.Generator().manual_seed(1)
    matrices = {a: 0.5 * torch.randn(3, 3, generator=generator, dtype=torch.float64) for a in "xy"}
    vectors = {a: torch.randn(3, generator=generator, dtype=torch.float64) for a in "xy"}
    hidden = torch.zeros(3, dtype=torch.float64)
    for symbol in string:
        hidden = matrices[symbol] @ hidden + vectors[symbol]
    machines = rrnn.automaton_d("xy", matrices, vectors)
    exact = torch.stack([machine.score(string) for machine in machines])
    console.print(
        f"And ISAN, c = W(x)·c' + b(x), of three dimensions, as three automata of {machines[0].num_states} states: "
        f"the largest difference after {string!r} is {(hidden - exact).abs().max().item():.1e}."
    )


def semirings() -> None:
    console.rule("[bold]4. One automaton, many number systems")
    machine = rrnn.automaton_c("ab", {"a": 0.5, "b": 0.1}, 0.6, {"a": 0.2, "b": 0.8}, 0.9)
    ones = torch.ones_like
    table = Table("semiring", "what ⟦abab⟧ says", "score", box=None)
    for name, meaning, convert in (
        ("real", "the sum over all paths", None),
        ("log", "its logarithm, without underflow", None),
        ("max-times", "the weight of the best path", None),
        ("min-plus", "its cost", None),
        ("boolean", "is there a path?", None),
        ("counting", "how many paths are there?", ones),
    ):
        value = machine.with_semiring(name, convert).score("abab").item()
        table.add_row(name, meaning, str(value) if isinstance(value, bool) else f"{value:.6g}")
    console.print(table)


def learn(out: Path) -> None:
    console.rule("[bold]5. From an automaton to a layer, and back")
    cell = rrnn.get_cell("F")
    console.print("What the compiler makes of F:")
    console.print(Panel(rrnn.equations(cell).rstrip(), expand=False))

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a layer gains nothing from a second one
    vectors = dict(zip(WORDS, torch.eye(len(WORDS)), strict=True))
    layer = rrnn.RationalRNN(cell, input_size=len(WORDS), hidden_size=8)
    judge = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *judge.parameters()], lr=0.03)
    teacher = negation()  # the automaton of part 2 says which reviews are kind
    ids = torch.randint(len(WORDS), (512, 8))
    lengths = torch.randint(1, 9, (512,))
    reviews = [tuple(WORDS[i] for i in row[:n]) for row, n in zip(ids, lengths, strict=True)]
    kind = (teacher.score(reviews) > 0).float()
    inputs = torch.stack(list(vectors.values()))[ids].transpose(0, 1)  # (time, batch, features)
    rows = torch.arange(512)
    for step in range(151):
        hidden, _ = layer(inputs, lengths=lengths)
        logits = judge(hidden[lengths - 1, rows]).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            right = ((logits > 0) == (kind > 0)).float().mean().item()
            console.print(
                f"step {step:3}: loss {loss.item():.3f}, {right:.1%} of {len(reviews)} reviews right"
            )

    unit = int(judge.weight.detach().abs().argmax())
    machine = rrnn.to_wfsa(layer, unit=unit, alphabet=vectors)
    words = tuple(REVIEWS[1].split())
    hidden, _ = layer(torch.stack([vectors[word] for word in words]))
    exact = machine.prefix_scores(words)[1:].tanh()
    console.print(f"\nThe unit that counts most, {unit}, as an automaton: {machine}")
    table = Table("prefix", "the layer's output", "tanh of the automaton's score", box=None)
    for i, (left, right) in enumerate(zip(hidden[:, unit].tolist(), exact.tolist(), strict=True)):
        table.add_row(" ".join(words[: i + 1]), f"{left:+.6f}", f"{right:+.6f}")
    console.print(table)
    path = machine.best_path(words)
    assert path is not None
    console.print(f"Its heaviest path: {path}")
    steps = [(arc.source, arc.target) for arc in path.arcs]
    saved = rrnn.to_svg(machine, highlight=[*steps, *path.states]).save(out / "learned.svg")
    console.print(f"Its picture: {saved}. `rrnn verify` checks all models of the zoo in this way.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="the folder for pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    draw(out)
    score(out)
    recur()
    semirings()
    learn(out)
    console.rule(f"[bold]done in {time.perf_counter() - start:.1f} s: open {out}/learned.svg")


if __name__ == "__main__":
    main()
