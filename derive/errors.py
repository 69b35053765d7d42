"""Everything a spec can cause to be raised, so that one ``except DeriveError`` is enough."""

from __future__ import annotations

__all__ = [
    "DeriveError",
    "DeriveWarning",
    "LimitError",
    "LoweringError",
    "SpecError",
    "VerificationError",
]


class DeriveError(Exception):
    """Base of every error that an operation can cause: what is wrong, where, and what to do."""


class SpecError(DeriveError):
    """The operation as written has no meaning: an unbound index, a rank mismatch, a cycle, …

    ``line`` and ``column`` are 1-based and given for text; the text of the error carries them,
    ``message`` does not.
    """

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        self.message = message
        self.line = line
        self.column = column
        place = "" if line is None else f"line {line}, column {column}: "
        super().__init__(place + message)


class LoweringError(DeriveError):
    """The operation has a meaning that the engine cannot yet turn into torch operations."""


class LimitError(DeriveError):
    """Deriving the operation takes more time, memory or code than it may: see `derive.limits`."""


class VerificationError(DeriveError):
    """Generated code disagrees with the operation that it was generated from."""


class DeriveWarning(UserWarning):
    """The operation has a meaning, but part of it does nothing, or takes more than it seems."""
