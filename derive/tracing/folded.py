"""Conditions that hold for every index, or for none, and what follows from them.

An index counts from 0: n == -100 never holds, and where(n != -100, a, b) is a.
"""

from __future__ import annotations

from derive.tracing.values import Joined, Node, Number, Position, apply

_OF_NEGATIVE = {"==": False, "<": False, "<=": False, "!=": True, ">": True, ">=": True}
"""Whether a position stands so to a negative number."""
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(symbol: str, a: Node, b: Node) -> Node:
    """a and b compared; an index and a negative number are compared for good."""
    for one, other, own in ((a, b, symbol), (b, a, _TURNED.get(symbol, symbol))):
        if isinstance(one, Position | Joined) and _is_position(one) and _is_negative(other):
            return Number(_OF_NEGATIVE[own])
    return apply(symbol, a, b)


def chosen(c: Node, a: Node, b: Node) -> Node:
    """a where c holds, else b."""
    if isinstance(c, Number) and isinstance(c.value, bool):
        return a if c.value else b
    return apply("where", c, a, b)


def _is_position(node: Node) -> bool:
    items = node.items if isinstance(node, Joined) else (node,)
    return all(isinstance(i, Position) for i in items)


def _is_negative(node: Node) -> bool:
    value = node.value if isinstance(node, Number) else None
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0
