"""All semirings by name: the built-in ones, each a file in `rrnn.semirings.defined`, and those that users register."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rrnn.arithmetic import TEXTS, TextValue
from rrnn.errors import SemiringError, nearest
from rrnn.semirings import defined
from rrnn.semirings.semiring import Semiring

SEMIRINGS: dict[str, Semiring] = {}


def register_semiring(semiring: Semiring) -> Semiring:
    """Make a semiring known by its name, to cells, files and compiled programs; return it.

    A name stands for one definition: registering the same one again changes nothing, another one is an error.
    """
    _check(semiring)
    known = SEMIRINGS.setdefault(semiring.name, semiring)
    if known is not semiring and known.definition != semiring.definition:
        raise SemiringError(
            f"the semiring {semiring.name!r} is defined already, as {known.definition!r}; got another definition, "
            f"{semiring.definition!r}. Give it another name: files and compiled programs know semirings by name."
        )
    return known


def _check(semiring: object) -> None:
    """Raise for a definition that cannot be right: operations that do not run, or that zero and one contradict."""
    if not isinstance(semiring, Semiring):
        raise SemiringError(f"register_semiring takes a rrnn.Semiring(…); got {semiring!r}")
    name, zero, one = semiring.name, semiring.zero, semiring.one
    laws = (
        ("0̄ ⊕ 1̄", "plus", (zero, one), one),
        ("1̄ ⊗ 1̄", "times", (one, one), one),
        ("0̄ ⊗ 1̄", "times", (zero, one), zero),
    )
    for law, word, arguments, wanted in laws:
        try:
            found = getattr(semiring, word)(*arguments)
        except (AttributeError, TypeError, ValueError, IndexError, AssertionError) as error:
            raise SemiringError(
                f"`{word}` of semiring {name!r} must take an arithmetic and two elements; it failed: {error}. Use "
                "operators and the named operations of its first argument, as s.max(a, b)."
            ) from None
        count = len(found) if isinstance(found, tuple) else 0
        if count != len(semiring.components):
            raise SemiringError(
                f"`{word}` of semiring {name!r} must return {_form(semiring)}, as its components say; got {found!r}"
            )
        if found != wanted:
            raise SemiringError(
                f"in semiring {name!r}, {law} must be {wanted!r}; it is {found!r}. Check zero, one and `{word}`."
            )

    for word in (
        "plus",
        "times",
        "star",
        "strength",
        "magnitude",
        "to_real",
        "to_log",
        "from_real",
        "from_log",
    ):
        _check_operations(semiring, word, getattr(semiring, f"_{word}"))
    for word, (arguments, function) in semiring.constructors.items():
        texts = [TextValue(argument) for argument in arguments]
        _check_operations(semiring, word, lambda s, f=function, x=texts: f(s, *x))


def _check_operations(semiring: Semiring, word: str, function: Callable[..., Any] | None) -> None:
    """Raise for a function that computes otherwise than by operations of the arithmetic: on texts, it fails."""
    if function is None:
        return
    a, b = (semiring.element(TextValue(f"{x}{i}") for i in range(semiring.size)) for x in "ab")
    number = TextValue("x")
    given = {"plus": (a, b), "times": (a, b), "from_real": (number,), "from_log": (number,)}
    arguments = given.get(word, () if word in semiring.constructors else (a,))
    try:
        function(TEXTS, *arguments)
    except (AttributeError, TypeError, ValueError, IndexError, AssertionError) as error:
        fix = "Use operators and the named operations of its first argument, as s.exp(a)."
        raise SemiringError(
            f"`{word}` of semiring {semiring.name!r} must run on tensors and in compiled programs, too, but "
            + (f"{error}." if isinstance(error, SemiringError) else f"it failed: {error}. {fix}")
        ) from None


def _form(semiring: Semiring) -> str:
    return f"a tuple of {semiring.size} numbers" if semiring.components else "a number"


def get_semiring(semiring: str | Semiring) -> Semiring:
    """Return the semiring of a name (or a registered semiring itself)."""
    if isinstance(semiring, Semiring):
        if SEMIRINGS.get(semiring.name) is not semiring:
            raise SemiringError(
                f"the semiring {semiring.name!r} is not registered, so files and programs could not name it. Call "
                "rrnn.register_semiring(semiring) first."
            )
        return semiring
    found = SEMIRINGS.get(str(semiring).replace("_", "-").lower()) or SEMIRINGS.get(str(semiring))
    if found is None:
        hint = nearest(semiring, SEMIRINGS)
        raise SemiringError(
            f"unknown semiring {semiring!r}: there are {', '.join(SEMIRINGS)}.{hint} If it is your own, "
            "define it before you use it: rrnn.register_semiring(rrnn.Semiring(…))."
        )
    return found


for _module in sorted(pkgutil.iter_modules(defined.__path__), key=lambda m: m.name):
    for _value in vars(import_module(f"{defined.__name__}.{_module.name}")).values():
        if isinstance(_value, Semiring):
            register_semiring(_value)
