"""What a check of generated code is: a row of the table in `derive.check.checks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Checking = Callable[..., str]
"""check(op, function, made): what differs between a function at a sample and what it should be.

Nothing where nothing differs. One that takes ``slack`` allows for that much rounding.
"""


class NotApplicable(Exception):
    """Why a check says nothing of an operation."""


@dataclass(frozen=True)
class Column:
    """A check by its name, and what it states of code that passes.

    ``order`` is the order of the derivatives compared; a difference is then adjudicated
    (`derive.check.rounding_adjudication`). ``rounds`` says that code is compared with itself, up to
    its rounding. ``typical`` restricts the check to the typical case of each option.
    """

    name: str
    states: str
    check: Checking
    order: int | None = None
    rounds: bool = False
    typical: bool = False
