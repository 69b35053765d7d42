"""The words of the notation, the reserved names, and the checks of names."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable

from derive.algebra.functions import FUNCTIONS, POWERS, WRITTEN
from derive.algebra.reductions import REDUCTIONS
from derive.notation.advice import ADVICE
from derive.notation.syntax import SourcePlace, fail

KEEPING = ("softmax", "log_softmax")
"""Heads that keep their indices."""

ALIASES = {"expit": "sigmoid"}
"""Second names of scalar functions."""

SCALAR = (*WRITTEN, *ALIASES)
"""The scalar functions that a spec may call."""

FORMS = ("where", "size", "concat", "axis", "keep")
"""Other words with function syntax."""

CONSTANTS = ("pi", "inf")

WORDS = frozenset((*REDUCTIONS, *KEEPING, *SCALAR, *FORMS, *CONSTANTS))
"""All reserved words: an index or a parameter cannot have such a name. A tensor can; it is meant
where no parenthesis follows, as in ``mean[i]*mean[i](x[i])``.
"""


def arity(function: str) -> int:
    """The number of arguments of a scalar function."""
    return 1 if function in POWERS else FUNCTIONS[ALIASES.get(function, function)].arity


def check_name(name: str, what: str, at: SourcePlace | None) -> None:
    """Refuse a name that is invalid in the notation or in the generated code."""
    if not name.isidentifier():
        fail(at, f"{name!r} cannot name {what}; use letters, digits and _")
    if keyword.iskeyword(name):
        fail(at, f"{name} is a Python keyword and cannot name {what}; choose another name")
    if name.startswith("_"):
        fail(
            at,
            f"{name} cannot name {what}: names that begin with _ are reserved for generated code",
        )
    if name in WORDS and what not in ("an operation", "a tensor"):
        fail(at, f"{name} cannot name {what}: it is a word of the notation; choose another name")
    if name in CONSTANTS and what == "a tensor":
        fail(at, f"{name} cannot name {what}: it is a word of the notation; choose another name")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return advice on the name, or ``; did you mean ...?`` with the nearest known name, or ""."""
    if name in ADVICE:
        return f"; {ADVICE[name]}"
    found = difflib.get_close_matches(name, sorted(known), 1, 0.6)
    return f"; did you mean {found[0]}?" if found else ""


def plural(n: int, what: str) -> str:
    """``1 argument``, ``2 arguments."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
