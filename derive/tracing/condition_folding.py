"""Conditions that hold for every index, or for none, and what follows from them.

An index counts from 0: n == -100 never holds, and where(n != -100, a, b) is a.
"""

from __future__ import annotations

from derive.algebra.expr import RELATIONS
from derive.tracing.values import (
    Joined,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    apply,
    gap_of,
)

_OF_NEGATIVE = {"==": False, "<": False, "<=": False, "!=": True, ">": True, ">=": True}
"""Whether a position stands so to a negative number."""
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(symbol: str, a: TracedNode, b: TracedNode) -> TracedNode:
    """a and b compared; for good where both are numbers, or positions a known way from each other.

    So are an index and a negative number. A truth value that is compared as 1 or 0 is itself.
    """
    if _is_plain(a) and _is_plain(b):
        assert isinstance(a, TracedNumber) and isinstance(b, TracedNumber)
        return TracedNumber(bool(RELATIONS[symbol](a.value, b.value)))
    for one, other, own in ((a, b, symbol), (b, a, _TURNED.get(symbol, symbol))):
        if _is_from_zero(one) and _is_negative(other):
            return TracedNumber(_OF_NEGATIVE[own])
    if (gap := gap_of(a, b)) is not None:
        return TracedNumber(bool(RELATIONS[symbol](gap, 0)))
    match a:
        case TracedApply("where", (c, x, y)) if isinstance(b, TracedNumber):
            made = chosen(c, compared(symbol, x, b), compared(symbol, y, b))
            if isinstance(made, TracedNumber):
                return made
    match symbol, a, b:
        case "!=", TracedApply("where", (c, TracedNumber(1), TracedNumber(0))), TracedNumber(0):
            return c
    return apply(symbol, a, b)


def chosen(c: TracedNode, a: TracedNode, b: TracedNode) -> TracedNode:
    """a where c holds, else b."""
    if isinstance(c, TracedNumber) and isinstance(c.value, bool):
        return a if c.value else b
    if a == b:
        return a
    return apply("where", c, a, b)


_NOT = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def negated(c: TracedNode) -> TracedNode:
    """Where c does not hold; of two positions, which are never nan, the other comparison."""
    match c:
        case TracedApply(symbol, (a, b)) if symbol in _NOT and _is_counted(a) and _is_counted(b):
            return apply(_NOT[symbol], a, b)
        case TracedApply("not", (inner,)):
            return inner
    return apply("not", c)


def multiplied(a: TracedNode, b: TracedNode) -> TracedNode:
    """a*b; (1/x)*n, which is what torch makes of n/x, is n/x."""
    for one, number in ((a, b), (b, a)):
        match one, number:
            case TracedApply("/", (TracedNumber(1), x)), TracedNumber():
                return apply("/", number, x)
    return apply("*", a, b)


def _is_counted(node: TracedNode) -> bool:
    return isinstance(node, TracedNumber) or _is_position(node)


def _is_position(node: TracedNode) -> bool:
    items = node.items if isinstance(node, Joined) else (node,)
    return all(isinstance(i, Position) for i in items)


def _is_from_zero(node: TracedNode) -> bool:
    """Whether it is a position, or a sum of positions and sizes."""
    match node:
        case TracedApply("+", parts):
            return all(_is_from_zero(p) or _is_size(p) for p in parts)
        case Position() | Joined():
            return _is_position(node)
    return False


def _is_size(node: TracedNode) -> bool:
    return isinstance(node, TracedNumber) and getattr(node.value, "is_nonnegative", False) is True


def _is_plain(node: TracedNode) -> bool:
    """Whether it is a number that no size decides."""
    value = node.value if isinstance(node, TracedNumber) else None
    return isinstance(value, int | float)


def _is_negative(node: TracedNode) -> bool:
    value = node.value if isinstance(node, TracedNumber) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0
