"""The errors and the warning of derive. ``except DeriveError`` catches every error of a spec.

>>> import derive
>>> try:
...     derive.parse("y[i] = x[j]")
... except derive.SpecError as error:
...     print(error.line, error.column)
1 10
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_LONGEST = 3_900
"""Maximum length of an error message in characters."""


def shortened(text: str, most: int = _LONGEST) -> str:
    """Return the text, or its beginning and end around the number of omitted characters."""
    if len(text) <= most:
        return text
    left_out = f" … ({len(text) - most} characters omitted) … "
    return text[: most * 2 // 3] + left_out + text[len(text) - most // 3 :]


class DeriveError(Exception):
    """Base class of all errors that an operation can cause.

    The message states what is wrong, where, and what to do. `SpecError`, `LoweringError`,
    `LimitError` and `VerificationError` are its subclasses.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


def no_recursion_leaves(f: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Wrap f to raise a `DeriveError` instead of RecursionError.

    The message has the name of the first argument of f.
    """

    @wraps(f)
    def bounded(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            return f(*args, **kwargs)
        except RecursionError:
            name = getattr(args[0], "name", "the operation") if args else "the operation"
            raise DeriveError(
                f"{name}: an equation, or a gradient derived from it, is nested too deeply for "
                "Python's recursion limit; split it into named equations, or raise the limit "
                "with sys.setrecursionlimit"
            ) from None

    return bounded


class SpecError(DeriveError):
    """The operation as written has no meaning: an unbound index, a rank mismatch, a cycle.

    ``message`` is the text without its place. ``line`` and ``column`` count from 1; they are None
    for SymPy equations, which have no place.
    """

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        self.message = shortened(message)
        self.line = line
        self.column = column
        place = "" if line is None else f"line {line}, column {column}: "
        super().__init__(place + message)


class LoweringError(DeriveError):
    """The operation has a meaning, but derive cannot express it in torch operations.

    The message shows the equation. A separate equation for the part that it names often helps.
    """


class LimitError(DeriveError):
    """The derivation exceeds a limit of time, memory or code size; see `derive.limits`."""


class VerificationError(DeriveError):
    """Generated code disagrees with its operation. `derive generate` then writes nothing."""


class DeriveWarning(UserWarning):
    """The operation has a meaning, but probably not the intended one.

    Examples: an input that no equation uses, a large intermediate tensor, and a function of
    `derive.differentiate` that cannot be read.
    """
