"""The errors and the warning of derive. ``except DeriveError`` catches every error of a spec.

>>> import derive
>>> try:
...     derive.parse("y[i] = x[j]")
... except derive.SpecError as error:
...     print(error.line, error.column, error.code)
1 10 D011
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Literal, ParamSpec, TypeVar, get_args

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

ErrorKind = Literal[
    # what is written
    "syntax",
    "invalid-name",
    "incomplete-operation",
    "several-operations",
    "unknown-name",
    "defined-twice",
    "two-roles",
    "used-before-defined",
    "unknown-function",
    "wrong-arguments",
    "unbound-index",
    "repeated-index",
    "not-an-index",
    "axis-count",
    "unknown-size",
    "two-sizes",
    "circular-size",
    "out-of-bounds",
    "position-form",
    "not-an-integer",
    "number-or-condition",
    "not-finite",
    "parameter-value",
    "axis-parameter",
    "choice",
    "ambiguous-groups",
    "optional-input",
    "sympy-equation",
    "sympy-expression",
    "spec-too-large",
    # where it is written
    "spec-file",
    "spec-module",
    "unknown-operation",
    "project-table",
    "output-file",
    # what is asked for
    "unknown-index",
    "unknown-gradient",
    "unknown-option",
    "given-size",
    "no-sample",
    "not-in-blocks",
    "given-gradient",
    "stale-module",
    "missing-package",
    "unknown-code",
    # what derive makes of it
    "nothing-to-differentiate",
    "no-torch-code",
    "over-limit",
    "not-verified",
    # what is read from PyTorch
    "torch-call",
    "outside-tensor",
    "data-dependent",
    "torch-state",
    "torch-result",
    "torch-arguments",
    "reading-differs",
    # what is audited
    "audit-subject",
    "audit-inputs",
    "examples-file",
    "internal-error",
]
"""What an error is about. The place in this list gives the code, and the page of the guide
``docs/error-codes.md`` has a section for each: append new kinds, and keep the order."""

KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
_NUMBERS = {kind: number for number, kind in enumerate(KINDS, 1)}

_LONGEST = 3_900
"""Maximum length of an error message in characters."""


def shortened(text: str, most: int = _LONGEST) -> str:
    """Return the text, or its beginning and end around the number of omitted characters."""
    if len(text) <= most:
        return text
    left_out = f" … ({len(text) - most} characters omitted) … "
    return text[: most * 2 // 3] + left_out + text[len(text) - most // 3 :]


def code_of(kind: ErrorKind) -> str:
    """Return the code of a kind of error, such as ``D009``."""
    return f"D{_NUMBERS[kind]:03}"


class DeriveError(Exception):
    """Base class of all errors that an operation can cause.

    The message states what is wrong, where, and what to do. `SpecError`, `LoweringError`,
    `LimitError` and `VerificationError` are its subclasses. ``kind`` says in words what the error
    is about, and ``code`` as a number, which ends the first line of the printed message; both are
    None for an error that derive does not raise. ``derive explain CODE`` prints what helps.
    """

    kind: ErrorKind | None = None

    def __init__(self, message: str = "", *, kind: ErrorKind | None = None) -> None:
        super().__init__(shortened(message))
        if kind is not None:
            self.kind = kind

    @property
    def code(self) -> str | None:
        """The code of the kind, such as ``D009``."""
        return None if self.kind is None else code_of(self.kind)

    @property
    def text(self) -> str:
        """The message without the code."""
        return super().__str__()

    def __str__(self) -> str:
        first, end, rest = self.text.partition("\n")
        return f"{first} [{self.code}]{end}{rest}" if self.kind else self.text


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
                "with sys.setrecursionlimit",
                kind="over-limit",
            ) from None

    return bounded


class SpecError(DeriveError):
    """The operation as written has no meaning: an unbound index, a rank mismatch, a cycle.

    ``message`` is the text without its place and its code. ``line`` and ``column`` count from 1;
    they are None for SymPy equations, which have no place.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        self.message = shortened(message)
        self.line = line
        self.column = column
        place = "" if line is None else f"line {line}, column {column}: "
        super().__init__(place + message, kind=kind)


class LoweringError(DeriveError):
    """The operation has a meaning, but derive cannot express it in torch operations.

    The message shows the equation. A separate equation for the part that it names often helps.
    """

    kind = "no-torch-code"


class LimitError(DeriveError):
    """The derivation exceeds a limit of time, memory or code size; see `derive.limits`."""

    kind = "over-limit"


class VerificationError(DeriveError):
    """Generated code disagrees with its operation. `derive generate` then writes nothing."""

    kind = "not-verified"


class DeriveWarning(UserWarning):
    """The operation has a meaning, but probably not the intended one.

    Examples: an input that no equation uses, a large intermediate tensor, and a function of
    `derive.differentiate` that cannot be read.
    """
