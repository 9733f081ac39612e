"""Where trained layers go: torch.jit.trace, AOTInductor, dynamic quantisation, and what is refused. (torch.compile and
torch.export are in test_torch.)"""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import rrnn
from rrnn.errors import BackendError
from rrnn.nn import RationalRNN
from rrnn.zoo import get_cell

pytestmark = [
    # torch deprecates its older ways; tracing warns of every Python number that it makes a constant
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


class Tagger(nn.Module):
    """A layer inside a model: lengths in, scores of tags out."""

    def __init__(self, cell: str, **options: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = RationalRNN(get_cell(cell), 6, 6, **options)  # pyright: ignore[reportArgumentType]
        self.out = nn.Linear(self.rnn.output_size, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.out(self.rnn(x, lengths=lengths)[0])


def arguments(steps: int, batch: int) -> tuple[Tensor, Tensor]:
    return torch.randn(steps, batch, 6), torch.randint(1, steps + 1, (batch,))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("F", {}),
        ("SRU", {"num_layers": 2, "bidirectional": True}),
        ("B-max-plus", {"batch_first": False}),
        ("Mamba-2", {"heads": 3}),
    ],
    ids=["F", "SRU", "B-max-plus", "Mamba-2"],
)
def test_a_trace_takes_other_shapes_and_has_gradients(
    cell: str, options: dict[str, object], grad: bool
) -> None:
    model = Tagger(cell, **options).eval()
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(model, arguments(5, 2))
    given = arguments(9, 3)
    ours, theirs = traced(*given), model(*given)
    torch.testing.assert_close(ours, theirs)
    parameters = list(model.parameters())
    found = (torch.autograd.grad(out.square().sum(), parameters) for out in (ours, theirs))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_trace_keeps_the_backend(backend: str) -> None:
    model = Tagger("F").eval()
    with rrnn.use_backend(backend), torch.no_grad():
        traced = torch.jit.trace(model, arguments(5, 2))
    graph = str(torch.jit.freeze(traced).graph)
    assert graph.count("rrnn::traced") == 1 and f'"{backend}"' in graph
    given = arguments(7, 1)
    torch.testing.assert_close(traced(*given), model(*given))


@pytest.mark.slow
def test_a_trace_reloads_elsewhere(tmp_path: Path) -> None:
    model = Tagger("F").eval()
    torch.jit.trace(model, arguments(5, 2)).save(tmp_path / "model.pt")  # pyright: ignore[reportAttributeAccessIssue]
    given = arguments(8, 3)
    torch.save([*given, model(*given).detach()], tmp_path / "data.pt")
    code = (
        "import sys, warnings, torch, rrnn.nn\n"
        "warnings.simplefilter('ignore')\n"
        "x, lengths, expected = torch.load(sys.argv[1] + '/data.pt')\n"
        "model = torch.jit.load(sys.argv[1] + '/model.pt')\n"
        "torch.testing.assert_close(model(x, lengths), expected)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_script_is_refused_with_what_to_use_instead() -> None:
    for module in (Tagger("F"), RationalRNN(get_cell("F"), 6, 6)):
        with pytest.raises(
            BackendError, match=r"cannot read .* RationalRNN. Use torch.jit.trace or torch.export"
        ):
            torch.jit.script(module)


@pytest.mark.skipif(torch.backends.quantized.supported_engines == ["none"], reason="needs a quantised engine")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_dynamic_quantisation_leaves_the_layer_as_it_is() -> None:
    model = Tagger("F").eval()
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear, RationalRNN}, dtype=torch.qint8)
    assert not isinstance(small.out, nn.Linear) and isinstance(small.rnn, RationalRNN)
    given = arguments(7, 2)
    torch.testing.assert_close(small.rnn(given[0])[0], model.rnn(given[0])[0], rtol=0, atol=0)
    torch.testing.assert_close(small(*given), model(*given), rtol=0.05, atol=0.05)


@pytest.mark.slow
def test_aot_inductor(tmp_path: Path) -> None:
    inductor = pytest.importorskip("torch._inductor")
    model, given = RationalRNN(get_cell("F"), 6, 6).eval(), torch.randn(5, 2, 6)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("steps", min=2)},)
        exported = torch.export.export(model, (given,), dynamic_shapes=shapes)
        quick = {"aot_inductor.compile_wrapper_opt_level": "O0", "aot_inductor.precompile_headers": False}
        package = inductor.aoti_compile_and_package(
            exported, package_path=str(tmp_path / "model.pt2"), inductor_configs=quick
        )
        loaded = inductor.aoti_load_package(package)
        longer = torch.randn(9, 2, 6)
        torch.testing.assert_close(loaded(longer)[0], model(longer)[0])
