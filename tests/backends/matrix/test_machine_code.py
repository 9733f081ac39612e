"""The machine code of kernels with decays, compiled for a Hopper GPU without one.

ptxas 12.8 assembled some tiles (see `NARROW`) such that products read shared memory through uniform registers that
nothing had written. No interpreter shows that, and a GPU shows it only as wrong numbers now and then.
"""

from __future__ import annotations

import json
import re

import pytest
from kernel_cases import needs_interpreter
from triton_compiler import Compile

SCRIPT = """
import json, sys
import torch, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from rrnn.backends.matrix.gradient_kernels import key_gradients, query_gradients
from rrnn.backends.matrix.kernels import outputs, segment_states
from rrnn.backends.matrix.plan import tiles_of
from rrnn.backends.triton.plan import H200

def built(kernel, walk, **constants):
    rows = ["weights", "skips", "dweights", "dskips"]
    tensors = dict.fromkeys(["G", "S", "E", "gS", "end_state", "gfirst", "w", *rows], "*fp32")
    tensors |= {"harsh": "*i32", "scale": "fp32"}
    tensors |= dict.fromkeys(["q", "k", "v", "o", "go", "dq", "dk", "dv", "Z"], "*bf16")
    constants |= {"C": tiles.chunk, "BN": walk.states, "BU": walk.units, "STAGES": walk.stages, "DECAY": decay}
    constants |= {"DOT": tl.bfloat16, "P": "ieee", "shared": 1, "UNIT": unit}
    constants |= dict.fromkeys(["mask", "table", *(rows if decay == 2 else ["harsh"])])
    if decay == 1 and "KEYS" in constants:
        constants |= {} if constants["KEYS"] else {"dskips": None}
        constants |= {} if constants["VALUES"] else {"dweights": None}
    signature, known = {}, {}
    for i, name in enumerate(kernel.arg_names):
        type = signature[name] = "constexpr" if name in constants else tensors.get(name, "i32")
        extent = type == "i32" and name.isupper()  # other integers are strides
        if type[0] == "*" or extent or (type == "i32" and unit == 1):
            known[i,] = [["tt.divisibility", 16]]
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    source, options = ASTSource(kernel, signature, constants, known), {"num_warps": walk.warps}
    options |= {"maxnreg": walk.registers} if walk.registers else {}
    return compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["sass"]

size, decay, unit = map(int, sys.argv[1:])
tiles = tiles_of(size, size, ("none", "head", "state")[decay], torch.bfloat16, H200, 2048, 128)[0]
found = {
    "outputs": built(outputs, tiles.outputs),
    "queries": built(query_gradients, tiles.queries),
    "keys": built(key_gradients, tiles.keys, KEYS=True, VALUES=tiles.values is None),
    "segments": built(segment_states, tiles.enter, REVERSE=False),
    "gradients of segments": built(segment_states, tiles.enter, REVERSE=True, weights=None),
}
if tiles.values is not None:
    found["values"] = built(key_gradients, tiles.values, KEYS=False, VALUES=True)
print(json.dumps(found))
"""
INSTRUCTION = re.compile(r"(?:@!?U?P\w+ +)?\b([A-Z][A-Z0-9_.]+) +([^;]*);")


def unwritten(code: str) -> set[str]:
    """Return the uniform registers that are read before, in the order of the text, an instruction writes them."""
    written, found = set[int](), set[int]()
    for name, operands in INSTRUCTION.findall(code):
        target = re.match(r"UR(\d+) *(?=,)", operands)
        sources = operands[target.end() :] if target else operands
        for described, number in re.findall(r"(gdesc\[)?\bUR(\d+)", sources):
            first, count = int(number), 2 if name == "UIADD3.64" else 1
            if (
                described
            ):  # of two matrices in shared memory, or of the second one if the first is in registers
                in_registers = re.match(r"R\d+, R\d+", operands) is not None
                first, count = (first + 2, 2) if in_registers else (first, 4)
            found.update(set(range(first, first + count)) - written)
        if target:
            written.update(
                range(int(target[1]), int(target[1]) + (2 if re.search(r"[.]64|WIDE", name) else 1))
            )
    return {f"UR{each}" for each in found}


def test_registers_that_nothing_wrote_are_found() -> None:
    """The lines are those that ptxas 12.8 made of the outputs of 64 states and 32 units."""
    code = """
        USGXT.U32 UR48, UR48, 0xe ;
        UIADD3 UR26, UP1, UR26, 0x40, URZ ;
        UIADD3.X UR27, UR27, -0x7fffffe0, URZ, UP1, !UPT ;
        HGMMA.64x32x16.F32.BF16 R56, R104, gdesc[UR24].tnspB, R56 ;
    """
    assert unwritten("UMOV UR48, 0x400 ;" + code) == {"UR26", "UR27"}
    assert unwritten("UMOV UR48, 0x400 ; UMOV UR26, UR48 ; UMOV UR27, URZ ;" + code) == set()
    assert unwritten("ULDC.64 UR4, c[0x0][0x208] ; HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24 ;") == {
        "UR6",
        "UR7",
    }


@needs_interpreter
@pytest.mark.parametrize("decay", [1, 2])
@pytest.mark.parametrize("size", [64, 128])
def test_products_read_through_registers_that_are_written(
    size: int, decay: int, compiled_elsewhere: Compile
) -> None:
    done = compiled_elsewhere(SCRIPT, str(size), str(decay), "1")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert all("HGMMA" in code for code in found.values())
    assert not {name: unwritten(code) for name, code in found.items() if unwritten(code)}


@needs_interpreter
@pytest.mark.parametrize("unit", [8, 4])
def test_rows_are_read_in_pieces_as_wide_as_strides_allow(unit: int, compiled_elsewhere: Compile) -> None:
    """Also where these are no multiples of 16, for which Triton looks by itself."""
    done = compiled_elsewhere(SCRIPT, "64", "1", str(unit))
    assert done.returncode == 0, done.stderr[-2000:]
    for name, code in json.loads(done.stdout).items():
        assert unit < 8 or "LDGSTS.E.BYPASS.128" in code, name
        assert "U16" not in code, name
