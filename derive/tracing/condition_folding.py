"""Conditions that hold for every index, or for none, and what follows from them.

An index counts from 0: n == -100 never holds, and where(n != -100, a, b) is a.
"""

from __future__ import annotations

from derive.algebra.expr import RELATIONS
from derive.tracing.values import Apply, Joined, Node, Number, Position, apply, gap_of

_OF_NEGATIVE = {"==": False, "<": False, "<=": False, "!=": True, ">": True, ">=": True}
"""Whether a position stands so to a negative number."""
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(symbol: str, a: Node, b: Node) -> Node:
    """a and b compared; for good where both are numbers, or positions a known way from each other.

    So are an index and a negative number. A truth value that is compared as 1 or 0 is itself.
    """
    if _is_plain(a) and _is_plain(b):
        assert isinstance(a, Number) and isinstance(b, Number)
        return Number(bool(RELATIONS[symbol](a.value, b.value)))
    for one, other, own in ((a, b, symbol), (b, a, _TURNED.get(symbol, symbol))):
        if _is_from_zero(one) and _is_negative(other):
            return Number(_OF_NEGATIVE[own])
    if (gap := gap_of(a, b)) is not None:
        return Number(bool(RELATIONS[symbol](gap, 0)))
    match a:
        case Apply("where", (c, x, y)) if isinstance(b, Number):
            made = chosen(c, compared(symbol, x, b), compared(symbol, y, b))
            if isinstance(made, Number):
                return made
    match symbol, a, b:
        case "!=", Apply("where", (c, Number(1), Number(0))), Number(0):
            return c
    return apply(symbol, a, b)


def chosen(c: Node, a: Node, b: Node) -> Node:
    """a where c holds, else b."""
    if isinstance(c, Number) and isinstance(c.value, bool):
        return a if c.value else b
    if a == b:
        return a
    return apply("where", c, a, b)


_NOT = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def negated(c: Node) -> Node:
    """Where c does not hold; of two positions, which are never nan, the other comparison."""
    match c:
        case Apply(symbol, (a, b)) if symbol in _NOT and _is_counted(a) and _is_counted(b):
            return apply(_NOT[symbol], a, b)
        case Apply("not", (inner,)):
            return inner
    return apply("not", c)


def multiplied(a: Node, b: Node) -> Node:
    """a*b; (1/x)*n, which is what torch makes of n/x, is n/x."""
    for one, number in ((a, b), (b, a)):
        match one, number:
            case Apply("/", (Number(1), x)), Number():
                return apply("/", number, x)
    return apply("*", a, b)


def _is_counted(node: Node) -> bool:
    return isinstance(node, Number) or _is_position(node)


def _is_position(node: Node) -> bool:
    items = node.items if isinstance(node, Joined) else (node,)
    return all(isinstance(i, Position) for i in items)


def _is_from_zero(node: Node) -> bool:
    """Whether it is a position, or a sum of positions and sizes."""
    match node:
        case Apply("+", parts):
            return all(_is_from_zero(p) or _is_size(p) for p in parts)
        case Position() | Joined():
            return _is_position(node)
    return False


def _is_size(node: Node) -> bool:
    return isinstance(node, Number) and getattr(node.value, "is_nonnegative", False) is True


def _is_plain(node: Node) -> bool:
    """Whether it is a number that no size decides."""
    value = node.value if isinstance(node, Number) else None
    return isinstance(value, int | float)


def _is_negative(node: Node) -> bool:
    value = node.value if isinstance(node, Number) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0
