"""Make the explorer's maths font from TeX Gyre Termes Math: `python docs/images/make_font.py texgyretermes-math.otf`.

The font is in Debian's package fonts-texgyre-math. Its glyphs have the widths of Times, for which pictures are laid
out. Two files are written: `math.woff2`, which also keeps the table MATH that browsers need to set equations, and
`math-italic.woff2`, in which plain letters are the mathematical italics, for pictures. Needs fonttools and brotli.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.transformPen import TransformPen
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

STATIC = Path(__file__).parents[2] / "src" / "rrnn" / "explorer" / "static"
FAMILY = "rrnn Math"
ASCII = {chr(c) for c in range(0x20, 0x7F)}
GREEK = set("αβγδεζηθικλμνξοπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ")
SIGNS = set("·−×±′…∞∅√∑∏∈≤≥≠≈∨∧⊕⊗⊙⟨⟩←→\u00a0")
LATIN_ITALIC = {chr(ord("A") + i): chr(0x1D434 + i) for i in range(26)} | {
    chr(ord("a") + i): "ℎ" if i == 7 else chr(0x1D44E + i) for i in range(26)
}
GREEK_ITALIC = {chr(0x3B1 + i): chr(0x1D6FC + i) for i in range(25)}
ITALICS = LATIN_ITALIC | GREEK_ITALIC
SMALL = 0.62
# The characters that are built of others, smaller and lower or higher, with the height of their feet.
SCRIPTS = {
    **{c: (o, -180) for c, o in zip("₀₁₂₃₄₅₆₇₈₉₊₋ₜ", "0123456789+−t", strict=True)},
    **{c: (o, 330) for c, o in zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)},
}


def main(source: str) -> None:
    _save(_subset(source, set(ITALICS.values()) | {"\u2061"}), "math.woff2", "Regular")
    _save(_subset(source, set(), italic=True), "math-italic.woff2", "Italic")


def _subset(source: str, more: set[str], *, italic: bool = False) -> Any:
    font: Any = TTFont(source)
    _add_scripts(font)
    if italic:  # upright digits and signs stand among italic letters, as in TeX
        names = font.getBestCmap()
        for table in font["cmap"].tables:
            table.cmap |= {ord(letter): names[ord(slanted)] for letter, slanted in ITALICS.items()}
    else:
        _keep_tall_roots_only(font)
    options = Options(hinting=False, desubroutinize=True, layout_features=[], name_IDs=[0, 1, 2, 4, 6])
    options.drop_tables += ["GPOS", "GDEF", "GSUB", "FFTM"] + (["MATH"] if italic else [])
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=[ord(c) for c in ASCII | GREEK | SIGNS | set(SCRIPTS) | more])
    subsetter.subset(font)
    return font


def _keep_tall_roots_only(font: Any) -> None:
    """Drop the taller forms of brackets and arrows, which no equation of the page stretches."""
    variants = font["MATH"].table.MathVariants
    kept = [
        (name, form)
        for name, form in zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True)
        if name == font.getBestCmap()[ord("√")]
    ]
    variants.VertGlyphCoverage.glyphs = [name for name, _ in kept]
    variants.VertGlyphConstruction = [form for _, form in kept]
    variants.VertGlyphCount = len(kept)
    variants.HorizGlyphCoverage, variants.HorizGlyphConstruction, variants.HorizGlyphCount = None, [], 0


def _add_scripts(font: Any) -> None:
    """Add ₀ to ₉, ⁰ to ⁹ and a few more, which the font lacks: it has other means for sub- and superscripts."""
    names, glyphs, top = font.getBestCmap(), font.getGlyphSet(), font["CFF "].cff.topDictIndex[0]
    made = {}
    for character, (original, foot) in SCRIPTS.items():
        name = names[ord(original)]
        width = round(font["hmtx"][name][0] * SMALL)
        pen = T2CharStringPen(width, glyphs)
        glyphs[name].draw(TransformPen(pen, (SMALL, 0, 0, SMALL, 0, foot)))
        made[character] = (f"uni{ord(character):04X}", width, pen.getCharString(top.Private, top.GlobalSubrs))
    order = list(font.getGlyphOrder())
    for character, (name, width, drawing) in made.items():
        top.CharStrings.charStringsIndex.append(drawing)
        top.CharStrings.charStrings[name] = len(top.CharStrings.charStringsIndex) - 1
        top.charset.append(name)
        order.append(name)
        font["hmtx"][name] = (width, 0)
        for table in font["cmap"].tables:
            table.cmap[ord(character)] = name
    font.setGlyphOrder(order)


def _save(font: Any, file: str, style: str) -> None:
    for record in font["name"].names:
        whole = f"{FAMILY} {style}"
        text = {1: FAMILY, 2: style, 4: whole, 6: whole.replace(" ", "")}.get(record.nameID)
        if text:
            record.string = text
    font["CFF "].cff.fontNames = [f"{FAMILY} {style}".replace(" ", "")]
    font.recalcTimestamp = False
    font.flavor = "woff2"
    font.save(STATIC / file)
    print(file, (STATIC / file).stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
