"""Fold conditions that are constant over all indices.

An index counts from 0: n == -100 is false, and where(n != -100, a, b) is a.
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
"""Result of comparing a position, which is never negative, with a negative number."""
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def fold_comparison(symbol: str, a: TracedNode, b: TracedNode) -> TracedNode:
    """Return a comparison of a and b, folded if it is constant.

    It is constant for two numbers, for an index and a negative number, and for positions with a
    known difference. A bool compared as 1 or 0 is the bool itself: where(c, 1, 0) != 0 is c.
    """
    if _is_constant_number(a) and _is_constant_number(b):
        assert isinstance(a, TracedNumber) and isinstance(b, TracedNumber)
        return TracedNumber(bool(RELATIONS[symbol](a.value, b.value)))
    for one, other, own in ((a, b, symbol), (b, a, _TURNED.get(symbol, symbol))):
        if _is_from_zero(one) and _is_negative_constant(other):
            return TracedNumber(_OF_NEGATIVE[own])
    if (gap := gap_of(a, b)) is not None:
        return TracedNumber(bool(RELATIONS[symbol](gap, 0)))
    match a:
        case TracedApply("where", (c, x, y)) if isinstance(b, TracedNumber):
            made = fold_where(c, fold_comparison(symbol, x, b), fold_comparison(symbol, y, b))
            if isinstance(made, TracedNumber):
                return made
    match symbol, a, b:
        case "!=", TracedApply("where", (c, TracedNumber(1), TracedNumber(0))), TracedNumber(0):
            return c
    return apply(symbol, a, b)


def fold_where(c: TracedNode, a: TracedNode, b: TracedNode) -> TracedNode:
    """Return where(c, a, b), folded if c is constant or a == b."""
    if isinstance(c, TracedNumber) and isinstance(c.value, bool):
        return a if c.value else b
    if a == b:
        return a
    return apply("where", c, a, b)


_NOT = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def negated(c: TracedNode) -> TracedNode:
    """Return not c; a comparison of positions, which are never nan, is inverted instead."""
    match c:
        case TracedApply(symbol, (a, b)) if symbol in _NOT and _is_counted(a) and _is_counted(b):
            return apply(_NOT[symbol], a, b)
        case TracedApply("not", (inner,)):
            return inner
    return apply("not", c)


def multiplied(a: TracedNode, b: TracedNode) -> TracedNode:
    """Return a*b, with (1/x)*n as n/x: torch traces n/x as (1/x)*n."""
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
    """True if the node is a position, or a sum of positions and sizes, so never negative."""
    match node:
        case TracedApply("+", parts):
            return all(_is_from_zero(p) or _is_size_number(p) for p in parts)
        case Position() | Joined():
            return _is_position(node)
    return False


def _is_size_number(node: TracedNode) -> bool:
    return isinstance(node, TracedNumber) and getattr(node.value, "is_nonnegative", False) is True


def _is_constant_number(node: TracedNode) -> bool:
    """True if the node is a number without symbols."""
    value = node.value if isinstance(node, TracedNumber) else None
    return isinstance(value, int | float)


def _is_negative_constant(node: TracedNode) -> bool:
    value = node.value if isinstance(node, TracedNumber) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0
