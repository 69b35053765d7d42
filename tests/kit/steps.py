"""The steps of a derivation, and arrays of all that they read."""

from typing import Any

from kit.once import sample

from derive.algebra.expr import Expr, free_indices
from derive.check.samples import cases
from derive.check.step_values import StepValues, steps_of
from derive.reports.result import Derivation

__all__ = ["Values", "letters", "steps_of"]


class Values(StepValues):
    """Those of a derivation on the typical sample of an option, whatever they cost."""

    def __init__(self, op: Any, option: str | None, d: Derivation) -> None:
        case = next(c for c in cases(op) if c.option == option)
        super().__init__(op, d, sample(op, case))


def letters(axes: tuple[Expr, ...]) -> frozenset[Expr]:
    """The indices on the left, those of composite axes included."""
    return frozenset(i for axis in axes for i in free_indices(axis))
