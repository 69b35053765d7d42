"""Every reduction of the notation, by loops over Python numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Taken: TypeAlias = Sequence[tuple[int, Any]]
"""(row-major position, value) of every element that is reduced, in order."""


def _best(sign: int, taken: Taken) -> tuple[int, Any] | None:
    """The first (position, value) with the largest sign*value; the first nan takes precedence."""
    best = None
    for at, value in taken:
        if value != value:
            return at, value
        if best is None or sign * value > sign * best[1]:
            best = at, value
    return best


def _reference_extremum(sign: int) -> Callable[[Taken], Any]:
    def extreme(taken: Taken) -> Any:
        best = _best(sign, taken)
        return -sign * math.inf if best is None else best[1]

    return extreme


def _reference_argextremum(sign: int) -> Callable[[Taken], int]:
    """The row-major position of the first winner; 0 for an empty selection."""

    def winner(taken: Taken) -> int:
        best = _best(sign, taken)
        return 0 if best is None else best[0]

    return winner


def _reference_mean(taken: Taken) -> float:
    values = [value for _, value in taken]
    return sum(values) / len(values) if values else math.nan


def _reference_logsumexp(taken: Taken) -> float:
    """m + log Sum exp(x - m) with m the largest x."""
    values = [float(value) for _, value in taken]
    best = _best(1, list(enumerate(values)))
    if best is None or math.isnan(best[1]) or math.isinf(best[1]):
        return -math.inf if best is None else float(best[1])
    return float(best[1]) + math.log(sum(math.exp(value - best[1]) for value in values))


def _reference_norm(taken: Taken) -> Any:
    """sqrt Sum x**2."""
    return sum([value * value for _, value in taken]) ** 0.5


REDUCTIONS: dict[str, Callable[[Taken], Any]] = {
    "sum": lambda taken: sum([value for _, value in taken]),
    "prod": lambda taken: math.prod([value for _, value in taken]),
    "mean": _reference_mean,
    "max": _reference_extremum(1),
    "amax": _reference_extremum(1),
    "min": _reference_extremum(-1),
    "amin": _reference_extremum(-1),
    "argmax": _reference_argextremum(1),
    "argmin": _reference_argextremum(-1),
    "logsumexp": _reference_logsumexp,
    "norm2": _reference_norm,
    "any": lambda taken: any(value for _, value in taken),
    "all": lambda taken: all(value for _, value in taken),
}
