"""Configurations say what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrnn.errors import RunError
from rrnn.tasks.configs import RENAMED, with_current_names
from rrnn.tasks.lm.config import PRESETS, LMConfig, preset, recipe_rate
from rrnn.tasks.lm.experiment import cell_of, count_parameters, solve_hidden_size
from rrnn.tasks.lm.model import architecture

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_go_through_json(name: str) -> None:
    config = preset(name, emas=(0.999, 0.9995)).resolved(500)
    assert LMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layer": 3}, "has no 'layer'. Did you mean 'layers'?"),
        ({"xyzzy": 3}, "has no 'xyzzy'. It has data, level"),
        ({"task": "classify"}, "for the task 'classify', not 'lm'"),
        ({"layers": "3"}, "layers must be a whole number; got '3'"),
        ({"layers": 2.0}, "layers must be a whole number; got 2.0"),
        ({"layers": True}, "layers must be a whole number; got True"),
        ({"layers": 0}, "layers must be between 1 and 64; got 0"),
        ({"clip": 0}, "clip must be at least 1e-06; got 0"),
        ({"clip": float("nan")}, "clip must be a number; got nan"),
        ({"forget_bias": float("nan")}, "forget_bias must be a number; got nan"),
        ({"lr": 0}, "lr must be above 0"),
        ({"level": "byte"}, "level must be one of word, char; got 'byte'"),
        ({"optimiser": None}, "optimiser must be one of sgd, adam; got None"),
        ({"emas": 0.9}, "emas must be a list of numbers; got 0.9"),
        ({"emas": ["0.9"]}, "emas must be a list of numbers; got ['0.9']"),
        ({"emas": [1.5]}, "emas must lie between 0 and 1; got 1.5"),
        ({"shift": 1}, "shift must be true or false; got 1"),
        ({"max_words": "many"}, "max_words must be a whole number or nothing; got 'many'"),
        ({"hidden_size": None}, "a model needs a size"),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError) as caught:
        LMConfig.from_dict({"hidden_size": 8, **values})
    assert message in str(caught.value)


def test_a_whole_number_is_a_number() -> None:
    lr = LMConfig(hidden_size=8, lr=1).lr
    assert lr == 1.0 and isinstance(lr, float)


@pytest.mark.parametrize(("old", "new"), RENAMED["lm"].items())
def test_old_names_are_read(old: str, new: str) -> None:
    value = 0.5 if "dropout" in old else 24
    values = {"task": "lm", "params": 10**6, old: value}
    assert with_current_names(values) == {"task": "lm", "params": 10**6, new: value}
    assert getattr(LMConfig.from_dict(values), new) == value
    assert getattr(LMConfig.from_run({**values, "facts": {}, "rrnn": "0.1.0"}), new) == value
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert getattr(preset("tiny", **{old: value}), new) == value


def test_every_stored_configuration_is_read() -> None:
    files = [file for file in (ROOT / "docs" / "results").rglob("config.json") if '"lm"' in file.read_text()]
    assert len(files) > 20
    for file in files:
        values = json.loads(file.read_text(encoding="utf-8"))
        assert LMConfig.from_run(values).batch_size == values.get("batch", values.get("batch_size"))


def test_presets_have_what_their_models_need() -> None:
    assert preset("paper-10m", cell="C").rnn_gain == 4 and preset("paper-24m", cell="c+o").rnn_gain == 6
    assert preset("paper-10m", cell="C", rnn_gain=2.0).rnn_gain == 2  # what is given counts
    gated = preset("paper-24m", cell="B-max-plus")
    assert (gated.output_bias, gated.lr) == (4, 0.5)
    assert preset("paper-24m", cell="B-max-plus-scaled").lr is None  # the recipe's
    recipe = LMConfig(data="ptb", layers=2, params=10_000_000, scale_weight_decay=False)
    assert preset("paper-10m") == recipe
    assert preset("best-24m").lr == 1 and preset("best-24m", cell="C").lr is None
    assert preset("tiny", cell="C").rnn_gain == 1


@pytest.mark.parametrize("cell", ["B", "B-max-plus", "B-max-plus-scaled", "C", "F", "lstm"])
@pytest.mark.parametrize(("name", "most"), [("paper-10m", 10e6), ("paper-24m", 24e6), ("best-24m", 24e6)])
def test_presets_have_the_size_of_their_names(name: str, most: float, cell: str) -> None:
    config = preset(name, cell=cell)
    model = {"layers": config.layers, **architecture(config, cell_of(config, None))}
    size = config.hidden_size or solve_hidden_size(config.params or 0, 10_000, **model).hidden_size
    assert 0.97 * most < count_parameters(10_000, size, **model) <= most


def test_presets_with_changes() -> None:
    assert preset("paper-10m", hidden_size=100).params is None
    assert preset("tiny", params=10**6).hidden_size is None
    with pytest.raises(
        RunError, match="there is no preset 'huge': the presets are tiny, paper-10m, paper-24m, best-24m"
    ):
        preset("huge")
    with pytest.raises(RunError, match="Did you mean 'epochs'"):
        preset("tiny", epoch=3)


def test_the_recipe() -> None:
    """The numbers of the paper's appendix and of the paper it follows."""
    config = preset("paper-24m", cell="B").resolved(910)
    assert (config.batch_size, config.bptt, config.lr, config.clip, config.weight_decay) == (
        32,
        35,
        1.0,
        5.0,
        1e-5,
    )
    assert config.embedding_dropout == config.output_dropout == 0.7
    assert config.recurrent_dropout == config.between_dropout == 0.2
    assert (config.lr_decay, config.lr_decay_from, config.epochs) == (0.98, 175, 300)
    assert preset("paper-10m").resolved(200).embedding_dropout == 0  # never more units than there are
    rates = {cell: recipe_rate(cell) for cell in ("B", "B-max-plus", "C", "f", "F+o", "lstm", "my/F.cell")}
    assert [cell for cell, rate in rates.items() if rate == 0.5] == ["C", "f", "F+o", "my/F.cell"]
