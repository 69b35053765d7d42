"""Equations that count positions before each other, as the rank of an element in an order.

    rank[k] = Sum_l [c(l, k)],  c(k, k) false:      0 <= rank[k] < size(k)

An operation that only asks whether a rank is below K, or which one it is of the first K, does not
depend on the order of the others. A partial sort is enough for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from derive.algebra.expr import (
    MIRRORED,
    Access,
    Expr,
    Index,
    Iverson,
    Reduce,
    Rel,
    Size,
    is_number,
    num,
    tensors,
)
from derive.algebra.logic import truth
from derive.algebra.substitution import substitute
from derive.notation.operation import Equation, Operation


def counted_axes(equation: Equation) -> list[Index]:
    """The axes of which the equation counts positions, but never its own."""
    match equation.body:
        case Reduce("sum", (other,), Iverson(condition), None):
            alike = (i for i in equation.axes if isinstance(i, Index) and i.extent == other.extent)
            return [i for i in alike if _is_false(substitute(condition, {other: i}))]
    return []


def _is_false(condition: Expr) -> bool:
    """True if the condition is false since it compares a value with itself, nan or not."""

    def of_equal_sides(c: Expr) -> bool | None:
        return False if isinstance(c, Rel) and c.op in "<>" and c.left is c.right else None

    return truth(condition, of_equal_sides) is False


def asked_ranks(op: Operation) -> dict[str, Expr]:
    """Name of a rank -> the number K of first ranks that the operation distinguishes.

    A rank that is an output, or is read other than in a comparison with a number, is not in it; nor
    is one that is compared with several numbers.
    """
    found = {}
    for equation in op.equations:
        if equation.name not in op.outputs and counted_axes(equation):
            bounds = {k for e in op.equations for k in _asked(e.body, equation.name)}
            if len(bounds) == 1 and None not in bounds:
                found[equation.name] = bounds.pop()
    return {name: bound for name, bound in found.items() if bound is not None}


def _asked(e: Expr, name: str) -> Iterator[Expr | None]:
    """The number of first ranks that each read distinguishes; None if that is not known."""
    if name not in tensors(e):
        return
    bound = _bound(e, name)
    if bound is not None:
        yield bound
        return
    if isinstance(e, Access) and e.tensor == name:
        yield None
    for part in e.parts():
        yield from _asked(part, name)


def _bound(e: Expr, name: str) -> Expr | None:
    """K, if e compares the rank with what depends on the first K alone."""
    match e:
        case Rel(op, Access(tensor), other) if tensor == name:
            pass
        case Rel(op, other, Access(tensor)) if tensor == name:
            op = MIRRORED[op]
        case _:
            return None
    if isinstance(other, Index) and op in ("==", "!="):
        return Size(other.extent)
    if not is_number(other):
        return None
    return other if op in ("<", ">=") else other + num(1)
