"""The type of a check, a row of the table in `derive.check.checks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Checking = Callable[..., str]
"""check(op, function, made): the difference between a function and its specification at a sample.

'' if they agree. A check with ``slack`` allows for that much rounding error.
"""


class NotApplicable(Exception):
    """Why a check does not apply to an operation."""


@dataclass(frozen=True)
class Column:
    """A check: its name, and what it states about code that passes.

    ``order`` is the order of the derivatives compared; a difference is then adjudicated
    (`derive.check.rounding_adjudication`). ``rounds``: code is compared with itself, up to its
    rounding. ``typical`` restricts the check to the typical case of each option.
    """

    name: str
    states: str
    check: Checking
    order: int | None = None
    rounds: bool = False
    typical: bool = False
