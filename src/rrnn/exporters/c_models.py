"""Models as one freestanding C99 file and its header: weights as arrays, `model_init`, `model_step`.

The file allocates nothing and needs libm only. All that changes between steps is in one struct, which the caller
provides, so several sequences can run side by side.
"""

from __future__ import annotations

from torch import nn

from rrnn import __version__
from rrnn.errors import ExportError
from rrnn.exporters.c_layers import Stack, array_of, check, dense
from rrnn.exporters.c_text import Source, string
from rrnn.exporters.parts import check_classifier, check_layer
from rrnn.nn.rnn import RationalRNN
from rrnn.tasks.classify.model import UNKNOWN_ID, TextClassifier
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.vocabulary import Vocabulary


def c_sources(
    module: nn.Module, name: str, header: str, words: Vocabulary | None, labels: list[str] | None
) -> dict[str, str]:
    """Return the ends of file names and their texts, ".h" and ".c". `header` is the name of the header's file."""
    source = Source(name)
    if isinstance(module, LanguageModel):
        model = _language_model(source, module, words)
    elif isinstance(module, TextClassifier):
        model = _classifier(source, module, words, labels)
    else:
        check(module)
        assert isinstance(module, RationalRNN)
        model = _layer(source, module)
    return {".h": _header(source, model), ".c": _file(source, model, header)}


# ---- models ----------------------------------------------------------------------------------------------------------


class _Model:
    """What a file's header and its public functions are made of."""

    def __init__(self, stack: Stack, about: str, argument: str, result: str) -> None:
        self.about, self.argument, self.result = about, argument, result
        self.init, self.step = list(stack.first), list[str]()
        self.defines: dict[str, int] = {}
        self.declared: list[str] = []
        self.defined: list[str] = []


def _layer(source: Source, rnn: RationalRNN) -> _Model:
    stack = Stack(source)
    out = stack.add(rnn, "input")
    model = _Model(stack, "Layers of rational recurrences.", "const float *input", "output")
    model.defines = {"INPUTS": rnn.input_size, "OUTPUTS": rnn.output_size}
    model.step = [*stack.calls, f"if (output) set({rnn.output_size}, {out}, output);"]
    return model


def _language_model(source: Source, module: LanguageModel, words: Vocabulary | None) -> _Model:
    stack, size, count = Stack(source), module.embedding_size, module.vocabulary
    check_layer(module.rnn, "C", (RationalRNN,))
    assert isinstance(module.rnn, RationalRNN)
    # Its columns are words, so that the product with it runs along rows.
    table = source.array("embedding", array_of(module.embedding[:count]).T)
    bias = source.array("output_bias", array_of(module.bias[:count]))
    x = source.field("embedded", size)
    out = stack.add(module.rnn, x)
    model = _Model(stack, "A language model: scores of the next word.", "int word", "scores")
    model.defines = {"VOCABULARY": count, "START": module.start}
    model.step = [
        f"if (word < 0 || word >= {count}) return -1;",
        f"for (int i = 0; i < {size}; i++) {x}[i] = {table}[i * {count} + word];",
        *stack.calls,
        "if (scores) {",
        f"    set({count}, {bias}, scores);",
        f"    add_linear({size}, {count}, {table}, {out}, scores);",
        "}",
    ]
    _add_words(source, model, words, None if words is None else words.unknown)
    return model


def _classifier(
    source: Source, module: TextClassifier, words: Vocabulary | None, labels: list[str] | None
) -> _Model:
    check_classifier(module)
    stack, (count, size) = Stack(source), module.embedding.shape
    table = source.array("embedding", array_of(module.embedding))
    out, width = f"({table} + word * {size})", size
    for rnn in module.layers:
        check(rnn)
        assert isinstance(rnn, RationalRNN)
        out, width = stack.add(rnn, out), rnn.output_size
    model = _Model(stack, "A text classifier: logits of the text so far.", "int word", "logits")
    model.defines = {"VOCABULARY": count, "CLASSES": module.classes}
    if module.config.tokenizer is None:  # a tokenizer itself says what is unknown
        model.defines["UNKNOWN"] = UNKNOWN_ID
    model.step = [f"if (word < 0 || word >= {count}) return -1;", *stack.calls]
    pooled = _pool(source, model, module, out, width)
    readout, result = dense(source, module.readout, pooled, "readout")
    model.step += ["if (logits) {", *("    " + line for line in readout)]
    model.step += [f"    set({module.classes}, {result}, logits);", "}"]
    _add_words(source, model, words, None if words is None else words.unknown)
    if labels is not None:
        texts = ",\n    ".join(string(label) for label in labels)
        model.declared.append(f"extern const char *const {source.name}_labels[{len(labels)}];")
        model.defined.append(f"const char *const {source.name}_labels[{len(labels)}] = {{\n    {texts}\n}};")
    return model


def _pool(source: Source, model: _Model, module: TextClassifier, h: str, size: int) -> str:
    """Add the pooling of outputs so far to a model; return the array that holds the pooled output."""
    how = module.config.pooling
    if how == "last":
        return h
    pooled, kept = (
        source.field("pooled", size),
        source.field("kept", size, "what pooling keeps of earlier outputs"),
    )
    each = f"for (int i = 0; i < {size}; i++) "
    steps = source.field("steps", 1)
    model.init += [f"set(1, 0, {steps});", f"set({size}, 0, {kept});"]
    if how == "mean":
        model.step += [f"{steps}[0] += 1.0f;", each + f"{kept}[i] += {h}[i];"]
        model.step += [each + f"{pooled}[i] = {kept}[i] / {steps}[0];"]
    elif how == "max":
        value = f"{steps}[0] > 0.0f && {kept}[i] > {h}[i] ? {kept}[i] : {h}[i]"
        model.step += [each + f"{pooled}[i] = {kept}[i] = {value};", f"{steps}[0] = 1.0f;"]
    else:
        lines, score = dense(source, module.attention, h, "attention")
        best, total = source.field("best", 1), source.field("total", 1)
        model.init += [f"{best}[0] = -INFINITY;", f"set(1, 0, {total});"]
        # A softmax over the words so far: sums are scaled anew whenever a larger score comes.
        model.step += [
            *lines,
            "{",
            f"    const float score = {score}[0], top = score > {best}[0] ? score : {best}[0];",
            f"    const float before = expf({best}[0] - top), now = expf(score - top);",
            f"    {best}[0] = top;",
            f"    {total}[0] = {total}[0] * before + now;",
            f"    {each}{{",
            f"        {kept}[i] = {kept}[i] * before + {h}[i] * now;",
            f"        {pooled}[i] = {kept}[i] / {total}[0];",
            "    }",
            "}",
        ]
        model.init.remove(f"set(1, 0, {steps});")
        del source.fields["steps"]
    return pooled


_FIND = """\
int @_find(const char *word) {
    int low = 0, high = @COUNT@;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const char *a = word, *b = @_words[sorted_words[middle]];
        while (*a && *a == *b) a++, b++;
        if (*a == *b) return sorted_words[middle];
        if ((unsigned char)*a < (unsigned char)*b) high = middle;
        else low = middle + 1;
    }
    return @UNKNOWN@;
}"""


def _add_words(source: Source, model: _Model, words: Vocabulary | None, unknown: str | None) -> None:
    """Add the words of a vocabulary, and the function that finds one."""
    if words is None:
        return
    if any("\0" in word for word in words.words):
        raise ExportError(
            "a word of the vocabulary contains NUL, which ends a C text: export without the vocabulary"
        )
    count = len(words)
    texts = ",\n    ".join(string(word) for word in words.words)
    order = sorted(range(count), key=lambda n: words.words[n].encode())
    number_of_unknown = -1 if unknown is None else words.number(unknown)
    model.declared += [
        f"extern const char *const {source.name}_words[{count}];",
        f"/* Return the id of a word, or {number_of_unknown} for one that is not in the vocabulary. */",
        f"int {source.name}_find(const char *word);",
    ]
    find = _FIND.replace("@COUNT@", str(count)).replace("@UNKNOWN@", str(number_of_unknown))
    model.defined += [
        f"const char *const {source.name}_words[{count}] = {{\n    {texts}\n}};",
        f"static const int sorted_words[{count}] = {{\n    {', '.join(map(str, order))}\n}};",
        find.replace("@", source.name),
    ]


# ---- files -----------------------------------------------------------------------------------------------------------


def _header(source: Source, model: _Model) -> str:
    name, upper = source.name, source.name.upper()
    fields = "\n".join(
        f"    float {field}[{size}];" + (f" /* {note} */" if note else "")
        for field, (size, note) in source.fields.items()
    )
    defines = "\n".join(f"#define {upper}_{key} {value}" for key, value in model.defines.items())
    result = {"scores": "VOCABULARY", "logits": "CLASSES", "output": "OUTPUTS"}[model.result]
    declared = "\n".join(model.declared)
    refused = ", or -1, changing nothing, if there is no such word" if model.argument == "int word" else ""
    return f"""\
/* {model.about} Written by rrnn {__version__}. */
#ifndef {upper}_H
#define {upper}_H

#ifdef __cplusplus
extern "C" {{
#endif

{defines}

/* All that changes from step to step, and room to compute in: one for each sequence that is read. */
typedef struct {{
{fields}
}} {name}_state;

/* Begin a new sequence. */
void {name}_init({name}_state *m);

/* Read one more step, and write {upper}_{result} {model.result} unless the pointer is null. Returns 0{refused}. */
int {name}_step({name}_state *m, {model.argument}, float *{model.result});
{declared and chr(10) + declared + chr(10)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _file(source: Source, model: _Model, header: str) -> str:
    name = source.name
    init = "\n".join("    " + line for line in model.init or ["(void)m;"])
    step = "\n".join("    " + line for line in [*model.step, "return 0;"])
    public = [
        *model.defined,
        f"void {name}_init({name}_state *m) {{\n{init}\n}}",
        f"int {name}_step({name}_state *m, {model.argument}, float *{model.result}) {{\n{step}\n}}",
    ]
    used = source.used_functions(*source.functions, *public)
    parts = [*source.arrays.values(), used, *source.functions, *public]
    head = (
        f"/* {model.about} Written by rrnn {__version__}.\n"
        "   Compile as C99, at best with -O3, and link libm (-lm). */\n"
        f'#include "{header}"\n\n#include <math.h>'
    )
    return "\n\n".join([head, *parts]) + "\n"
