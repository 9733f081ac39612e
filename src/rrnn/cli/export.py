"""`rrnn export`: write the model of a run for use elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from rrnn.cli.shared import option


@dataclass
class Export:
    """Write the model of a run as an ONNX file, as one C99 file with a header, or as a folder for transformers.

    All contain everything from word ids to scores: embedding, layers, read-out. An ONNX file has dynamic batch and
    time and uses operators of opset 18. The C file allocates nothing and needs only libm. A folder (--format hf) is
    loaded by AutoModelForCausalLM or AutoModelForSequenceClassification of transformers after `import rrnn.hf`.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder of a language model or a text classifier."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")]
    """The file to write: model.onnx, or model.c with model.h beside it. An existing file is replaced. With --format hf
    this is a folder, which must be new or empty."""
    format: Annotated[Literal["onnx", "c", "hf"] | None, option("{onnx,c,hf}")] = None
    """What to write: onnx, c or hf (default: the end of the file's name decides)."""
    lengths: bool = False
    """Let an ONNX language model take the lengths of padded texts; a classifier always does."""
    states: bool = True
    """Let an ONNX language model take states to begin with, so that a text can be fed in pieces."""
    vocabulary: bool = True
    """Include the words and labels."""
    name: Annotated[str | None, option("NAME")] = None
    """What names in the C file begin with (default: the name of the file)."""


def export(options: Export) -> None:
    """Run `rrnn export`."""
    from rrnn.exporters import export as write  # imported here, so that --help does not wait for torch
    from rrnn.tasks.runs import load

    files = write(
        load(options.run),
        options.output,
        format=options.format,
        lengths=True if options.lengths else None,
        states=None if options.states else False,
        vocabulary=options.vocabulary,
        name=options.name,
    )
    for file in files:
        print(f"written: {file} ({file.stat().st_size:,} bytes)")
