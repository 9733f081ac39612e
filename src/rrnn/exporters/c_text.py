"""Pieces of C99: arrays of weights, the functions that steps call, and the step of a cell.

A step is rendered from the flat program with the same table of C expressions that the native backend uses. Here the
functions behind them are libm's, in float, since a generated file must compile anywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rrnn.errors import ExportError
from rrnn.exporters.parts import finite
from rrnn.ir import Op, Program
from rrnn.ir.program import needed

FUNCTIONS = {
    "exp_f": "static float exp_f(float x) { return expf(x); }",
    "log_f": "static float log_f(float x) { return logf(x); }",
    "sqrt_f": "static float sqrt_f(float x) { return sqrtf(x); }",
    "sin_f": "static float sin_f(float x) { return sinf(x); }",
    "cos_f": "static float cos_f(float x) { return cosf(x); }",
    "tanh_f": "static float tanh_f(float x) { return tanhf(x); }",
    "max_f": "static float max_f(float a, float b) { return a >= b || a != a ? a : b; }",
    "min_f": "static float min_f(float a, float b) { return a <= b || a != a ? a : b; }",
    "sigmoid_f": """static float sigmoid_f(float x) {
    const float e = expf(-fabsf(x)); /* never overflows */
    return x >= 0.0f ? 1.0f / (1.0f + e) : e / (1.0f + e);
}""",
    "softplus_f": """static float softplus_f(float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}""",
    "log_sigmoid_f": """static float log_sigmoid_f(float x) {
    return (x < 0.0f ? x : 0.0f) - log1pf(expf(-fabsf(x)));
}""",
    "logaddexp_f": """static float logaddexp_f(float a, float b) {
    const float high = a >= b ? a : b, low = a >= b ? b : a;
    return isinf(high) ? high : high + log1pf(expf(low - high));
}""",
    "share_f": """static float share_f(float a, float b) {
    return a == -INFINITY ? 0.0f : expf(a - b);
}""",
    "set": """/* y = from, or zeros. */
static void set(int count, const float *from, float *y) {
    for (int i = 0; i < count; i++) y[i] = from ? from[i] : 0.0f;
}""",
    "add_linear": """/* y += x w, where w has a row of `outputs` numbers for each input. */
static void add_linear(int inputs, int outputs, const float *restrict w, const float *restrict x, float *restrict y) {
    int i = 0;
    for (; i + 4 <= inputs; i += 4, w += 4 * outputs) {
        const float a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
        const float *restrict p = w, *restrict q = p + outputs, *restrict r = q + outputs, *restrict s = r + outputs;
        for (int o = 0; o < outputs; o++) y[o] += a * p[o] + b * q[o] + (c * r[o] + d * s[o]);
    }
    for (; i < inputs; i++, w += outputs)
        for (int o = 0; o < outputs; o++) y[o] += x[i] * w[o];
}""",
    "layer_norm": """static void layer_norm(int count, const float *scale, const float *bias, float epsilon, float *y) {
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < count; i++) mean += y[i];
    mean /= (float)count;
    for (int i = 0; i < count; i++) variance += (y[i] - mean) * (y[i] - mean);
    const float factor = 1.0f / sqrtf(variance / (float)count + epsilon);
    for (int i = 0; i < count; i++) y[i] = (y[i] - mean) * factor * scale[i] + bias[i];
}""",
}
"""Name → C function; a file holds those that it calls."""
LARGEST = 2**31 - 1


def _literal(value: float) -> str:
    """Return a float32 as C text; nine digits give the same float again."""
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def number(value: float) -> str:
    """Return a number as C text that can stand in any expression."""
    text = _literal(float(np.float32(value)))
    return f"({text})" if text.startswith("-") else text


def numbers(array: np.ndarray) -> str:
    """Return the elements of a C array, a few per line."""
    texts = [_literal(value) for value in np.asarray(array, np.float32).ravel().tolist()]
    lines = (", ".join(texts[start : start + 10]) for start in range(0, len(texts), 10))
    return ",\n    ".join(lines)


def string(text: str) -> str:
    """Return a C string literal of the UTF-8 bytes of a text."""
    escaped = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{escaped}"'


class Source:
    """A C file in the making: arrays, fields of the state, statements. `name` is what public names begin with."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrays: dict[str, str] = {}
        self.fields: dict[str, tuple[int, str]] = {}
        self.functions: list[str] = []

    def array(self, name: str, values: np.ndarray, what: str = "") -> str:
        """Add weights as a constant array, and return its name."""
        if values.size > LARGEST:
            raise ExportError(
                f"{name} has {values.size:,} weights, and a C array here at most {LARGEST:,}: export to .onnx"
            )
        note = f"/* {what} */\n" if what else ""
        text = f"{note}static const float {name}[{values.size}] = {{\n    {numbers(finite(values))}\n}};"
        self.arrays[name] = text
        return name

    def constants(self, name: str, values: np.ndarray) -> str:
        """Add values that may be infinite, such as a first state, and return the array's name."""
        self.arrays[name] = f"static const float {name}[{values.size}] = {{\n    {numbers(values)}\n}};"
        return name

    def field(self, name: str, size: int, note: str = "") -> str:
        """Add an array to the state, as large as its largest use, and return how code reads it."""
        before, told = self.fields.get(name, (0, note))
        self.fields[name] = max(before, size), told
        return f"m->{name}"

    def used_functions(self, *texts: str) -> str:
        """Return the C functions that these texts call."""
        text = "\n".join(texts)
        found = [body for name, body in FUNCTIONS.items() if re.search(rf"\b{name}\(", text)]
        return "\n\n".join(found)


# ---- a cell ----------------------------------------------------------------------------------------------------------


def cell_step(
    program: Program,
    units: int,
    leaf: Callable[[Op, int], str],
    constants: Mapping[int, str],
    state: str,
    out: str,
) -> list[str]:
    """Return the loop over the units of a cell that computes one step.

    `leaf(op, index)` is the C text of a projection or of the input at unit i, `constants` the arrays of per-unit values
    by instruction, `state` and `out` the arrays that are read and written.
    """
    program = program.flat
    results, outputs = program.of_kind("state"), program.of_kind("output")
    wanted = [*results.values(), *outputs.values()]
    lines, names = [], dict[int, str]()
    for n in sorted(needed(program.instructions, wanted, stop=constants)):
        op, args, attr = program.instructions[n]
        if op is Op.CONST:
            names[n] = number(float(attr or 0.0))
            continue
        names[n] = f"v{n}"
        note = ""
        if n in constants:
            value = f"{constants[n]}[i]"
        elif op is Op.STATE:
            value = f"{state}[{int(attr or 0) * units} + i]"
        elif op in (Op.PREACT, Op.INPUT):
            value = leaf(op, int(attr or 0))
            note = f" /* {program.projections[int(attr or 0)]} */" if op is Op.PREACT else " /* input */"
        else:
            value = expression(op, [names[a] for a in args])
        lines.append(f"const float v{n} = {value};{note}")
    # All values are computed before a state is overwritten.
    lines += [f"{state}[{s * units} + i] = {names[n]};" for s, n in results.items()]
    lines += [f"{out}[{k * units} + i] = {names[n]};" for k, n in outputs.items()]
    return [f"for (int i = 0; i < {units}; i++) {{", *("    " + line for line in lines), "}"]


def expression(op: Op, args: list[Any]) -> str:
    """Return the C expression of an op, from the table that the native backend reads, too."""
    return op.value.c.format(*args, s="f").replace("(real)1", "1.0f").replace("(real)0", "0.0f")
