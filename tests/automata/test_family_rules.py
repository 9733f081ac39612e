"""Arcs between and within families: what they mean, as text, unrolled, and their rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from zoo.test_wide import close, without_families

import rrnn
from rrnn import RationalRNN
from rrnn.automata import Cell, Expr, family, index, linear, log_sigmoid, one, parameter, score, sigmoid, tanh
from rrnn.errors import FormatError, RRNNError
from rrnn.ir import Program, lower
from rrnn.semirings import get_semiring

H, G = family("h", 3), family("g", 3)
TWO = family("g", 2)


def squashed(semiring: str, x: Expr) -> Expr:
    """Return a weight that any of these semirings takes."""
    ring = get_semiring(semiring)
    if not ring.logarithmic:
        return sigmoid(x)
    return log_sigmoid(x) if ring.maximum else -log_sigmoid(x)


def start(semiring: str, h: Any = H) -> Cell:
    cell = Cell("mixed", semiring).initial("q0").loop("q0", one)
    return cell.arc("q0", h, squashed(semiring, linear("u", over=h, bias=True)))


def ended(cell: Cell, h: Any = H) -> Cell:
    cell = cell.read(h, squashed(cell.semiring_name, linear("r", over=h, per="head")))
    parts = [getattr(score, name) for name in cell.semiring.components] or [score]
    return cell.output(*(tanh(part) for part in parts))


def matrix(semiring: str) -> Cell:
    """A learned matrix between the states of a family."""
    a = parameter("A", over=(H.source, H.target), start=0.1 * index(H.source) - index(H.target))
    return ended(start(semiring).mix(H, H, squashed(semiring, a)))


def matrix_of_input(semiring: str) -> Cell:
    """A matrix that depends on the input and is shared by the units of a head, between two families."""
    a = linear("A", over=(TWO.source, H.target), per="head", bias=True)
    cell = start(semiring, TWO).loop(TWO, squashed(semiring, linear("f")))
    return ended(cell.mix(TWO, H, squashed(semiring, a)).loop(H, squashed(semiring, parameter("l", over=H))))


def factors(semiring: str) -> Cell:
    """Weights of both ends."""
    k = linear("k", over=H, per="head")
    f, g = squashed(semiring, k.source), squashed(semiring, k.target * parameter("b", over=H).target)
    join = (lambda a, b: a + b) if get_semiring(semiring).logarithmic else lambda a, b: a * b
    return ended(start(semiring).loop(H, squashed(semiring, linear("f"))).mix(H, H, join(f, g)))


def pairs(semiring: str) -> Cell:
    """An arc from each state of one family to that of another with the same index, over the one or the other."""
    cell = start(semiring, G).loop(G, squashed(semiring, linear("f", over=G, per="head")))
    w = linear("w", over=G) + parameter("b", over=H)
    cell = cell.arc(G, H, squashed(semiring, w)).loop(H, squashed(semiring, linear("l")))
    return ended(cell.arc(G, H, squashed(semiring, parameter("v", over=H)), merge="plus"))


CELLS = {"matrix": matrix, "input": matrix_of_input, "factors": factors, "pairs": pairs}
RINGS = ["real", "log", "max-plus", "min-plus", "max-times", "complex"]


@pytest.mark.parametrize("semiring", RINGS)
@pytest.mark.parametrize("name, backend", [*((name, "reference") for name in CELLS), ("pairs", "native")])
def test_equal_to_the_cell_written_out(name: str, backend: str, semiring: str) -> None:
    torch.manual_seed(0)
    rnn = RationalRNN(CELLS[name](semiring), 5, 4, heads=2, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    x, found = torch.randn(6, 2, 5, dtype=torch.float64), []
    for layer in (rnn, without_families(rnn)):
        v = x.clone().requires_grad_()
        with rrnn.use_backend(backend if layer is rnn else "reference"):
            out, _ = layer(v)
            (grad,) = torch.autograd.grad((out * torch.arange(out.numel()).view(out.shape).cos()).sum(), v)
            found += [out, grad]
    assert close(found[0], found[2]) and close(found[1], found[3])


@pytest.mark.parametrize("name", CELLS)
def test_gradients(name: str) -> None:
    torch.manual_seed(0)
    rnn = RationalRNN(CELLS[name]("real"), 3, 2, heads=2, dtype=torch.float64)
    for value in rnn.parameters():
        torch.nn.init.normal_(value)
    x = torch.randn(4, 1, 3, dtype=torch.float64, requires_grad=True)
    weights = dict(rnn.named_parameters())

    def run(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(rnn, dict(zip(weights, values, strict=True)), (x,))[0]

    with rrnn.use_backend("reference"):
        assert torch.autograd.gradcheck(run, (x, *weights.values()))


@pytest.mark.parametrize("name", CELLS)
def test_texts_read_back(name: str) -> None:
    cell = CELLS[name]("real")
    assert Cell.from_text(cell.to_text()) == cell
    program = lower(cell).program
    assert Program.parse(program.text) == program


def test_equations() -> None:
    lines = rrnn.equations(matrix("real")).splitlines()
    (update,) = (line for line in lines if line.startswith("cᵢₜ"))
    assert "Σⱼ" in update and "cⱼₜ₋₁" in update and "Aᵢⱼ" in "\n".join(lines)
    assert r"\sum_j" in rrnn.latex(matrix("real"))
    lines = rrnn.equations(factors("real")).splitlines()
    (update,) = (line for line in lines if line.startswith("cᵢₜ"))
    assert "Σⱼ" in update and update.endswith("(i = 1…3)")


def test_factors_need_no_matrix() -> None:
    """A product of what depends on the source and what depends on the target never becomes a matrix."""
    for semiring in ("real", "log", "max-plus", "min-plus"):
        assert not lower(factors(semiring)).program.has_pairs
    assert lower(matrix("real")).program.has_pairs


@pytest.mark.parametrize(
    "build_wrong, message",
    [
        (lambda: Cell("x").mix("q0", H, 1.0), "here is a single state. Use .arc"),
        (lambda: Cell("x").mix(H, H, parameter("a", over=H)), "write .source or .target after it"),
        (lambda: Cell("x").mix(H, H, parameter("a").source), "parameter..a.. is the same for all states"),
        (lambda: Cell("x").mix(H, H, parameter("a", over=H).source.target), "is at an end already"),
        (lambda: Cell("x").mix(H, TWO, parameter("a", over=TWO).source), "it belongs to the family 'h'"),
        (lambda: Cell("x").mix(H, TWO, parameter("a", over=(TWO.source, H.target))), r"over \(h.source, g.target\)"),
        (lambda: Cell("x").loop(H, parameter("a", over=H).source), "which this is not. Use it in .mix"),
        (
            lambda: Cell("x").initial("q").arc("q", G, linear("b", over=H)).loop(G, 0.5).final(G).check(),
            "one value for each state of the family 'h', and no arc of 'x' enters or leaves that family",
        ),
        (lambda: parameter("a", over=(H.target, H.source)), r"as in \(h.source, h.target\)"),
        (lambda: parameter("a", over=(H.source, H.target), start=index(H)), "start depends on index"),
        (lambda: Cell("x").mix(H, H, 1.0).mix(H, H, 1.0), "arcs 'h' → 'h' are given twice"),
    ],
)  # fmt: skip
def test_mistakes(build_wrong: Any, message: str) -> None:
    with pytest.raises(RRNNError, match=message):
        build_wrong()


@pytest.mark.parametrize(
    "line, message",
    [
        ('A = parameter("A", over=(h.source, h))', "expected"),
        ('A = parameter("A", over=(h.source, g.target))', "the name of a family"),
        ('mix h -> h : linear("k", over=h).middle', "expected source or target"),
        ("mix q0 -> h : 1", "Write arc for arcs from or to a single state"),
        ("mix h -> h : 1\nmix h -> h : 1", r"Write mix\+"),
    ],
)
def test_mistakes_in_text(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Cell.from_text(f"rrnn-cell 2\ncell x\nsemiring real\nfamily h 3\n{line}\n")


def test_texts_of_version_1_know_no_ends() -> None:
    text = 'rrnn-cell 1\ncell x\nsemiring real\nu = linear("u")\ninitial q0\nloop q0 : u.source\nfinal q0\n'
    with pytest.raises(FormatError, match="expected an operator"):
        Cell.from_text(text)
