"""The values of what is made of numbers alone: sqrt(-1) and log(0) are none."""

from __future__ import annotations

from math import isinf, isnan

from derive.algebra.expr import Add, Call, Const, Expr, Mul, Num, Pow, walk
from derive.algebra.interpret import evaluate
from derive.notation.raw import Raw, fail, show

__all__ = ["check_number", "number_of"]


def number_of(e: Expr) -> float | None:
    """The value of what is made of numbers and functions of them alone: sqrt(-1), inf - inf."""
    if not all(isinstance(part, Num | Const | Call | Pow | Add | Mul) for part in walk(e)):
        return None
    return float(evaluate(e, {}, {}, {}, {}))


def check_number(e: Expr, written: Raw) -> None:
    """Refuse a nan, and a function of numbers that is infinite."""
    value = number_of(e)
    if value is not None and isnan(value):
        fail(written.at, f"{show(written)} is no real number")
    if value is not None and isinf(value) and isinstance(e, Call | Pow):
        sign = "-" * (value < 0)
        fail(written.at, f"{show(written)} is infinite or beyond float64; write {sign}inf")
