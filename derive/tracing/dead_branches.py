"""Choices by position of which some are never made: those that others come before.

where(c == 0, a, where(c == 1, b, e)) with size(c) = 2 is where(c == 0, a, b).
"""

from __future__ import annotations

import operator
from typing import Any

import sympy

from derive.tracing.values import (
    Apply,
    Atom,
    Node,
    Number,
    Parameter,
    Position,
    Read,
    rewritten,
    substituted,
    walk,
)

_MEANT = {
    "==": operator.eq,
    "<": operator.lt,
    ">=": operator.ge,
    "-": operator.sub,
    "%": operator.mod,
    "//": operator.floordiv,
}
_MOST = 256
"""The size of an axis up to which positions are counted."""


def chosen(test: Node, value: Node, rest: Node) -> Node:
    """where(test, value, rest), of which a choice in the value with the same rest is a part."""
    value = rewritten(value, _moved_once)
    match value:
        case Apply("where", (inner, made, other)):
            if _from_the_first(other) == _where_it_holds(test, _from_the_first(rest)):
                both = Apply("and", (test, _from_the_first(inner)))
                return Apply("where", (both, made, rest))
    return Apply("where", (test, value, rest))


def _where_it_holds(test: Node, node: Node) -> Node:
    match test:
        case Apply("==", (Position(atom), Number() as n)):
            return substituted(node, {atom: n})
    return node


def _moved_once(node: Node) -> Node:
    """x - 1 + 1 as x, and x from the first position on, said once."""
    match node:
        case Apply("+", (Apply("+", (_, Parameter(own))) as inner, Parameter(other))):
            return inner if own == other else node
        case Apply("+" | "-" as two, (Apply("+" | "-" as one, (x, Number(m))), Number(n))):
            if isinstance(m, bool | float) or isinstance(n, bool | float) or not _is_place(x):
                return node
            by = (m if one == "+" else -m) + (n if two == "+" else -n)
            return x if by == 0 else Apply("+", (x, Number(by)))
    return node


def _from_the_first(node: Node) -> Node:
    """With positions alone where a parameter, 0 as given, says that an axis is longer."""

    def change(x: Node) -> Node:
        match x:
            case Apply("+", (place, Parameter())) if _is_place(place):
                return place
        return _moved_once(x)

    return rewritten(node, change)


def _is_place(node: Node) -> bool:
    return not any(isinstance(x, Read) for x in walk(node))


def without_covered(node: Node, sizes: Any) -> Node:
    """The choice without what is said of no position."""
    match node:
        case Apply("where", (test, value, Apply("where", (other, last, _)))) if _are_opposite(
            test, other, sizes
        ):
            return Apply("where", (test, value, last))
        case Apply("where", (test, _, _)) if (atom := _atom(test)) is not None:
            if isinstance(atom.size, sympy.Integer) and atom.size <= _MOST:
                return _counted(node, atom, set(range(int(atom.size))))
    return node


def _counted(node: Node, atom: Atom, left: set[int]) -> Node:
    """The choice for positions that are left."""
    match node:
        case Apply("where", (test, value, rest)) if _atom(test) == atom:
            here = {n for n in left if _holds(test, n)}
            if here == left:
                return value
            rest = _counted(rest, atom, left - here)
            return Apply("where", (test, value, rest)) if here else rest
    return node


def _atom(test: Node) -> Atom | None:
    """The only index of a test that says no more than where it holds along one axis."""
    found = {x.atom for x in walk(test) if isinstance(x, Position)}
    known = all(_is_known(x) for x in walk(test))
    return found.pop() if len(found) == 1 and known else None


def _is_known(x: Node) -> bool:
    match x:
        case Position():
            return True
        case Number(value):
            return not isinstance(value, bool | float) and bool(sympy.sympify(value).is_Integer)
        case Apply(name):
            return name in ("and", "==", "<", ">=", "-", "%", "//")
    return False


def _holds(node: Node, n: int) -> Any:
    match node:
        case Position():
            return n
        case Number(value):
            return int(value)
        case Apply("and", (a, b)):
            return _holds(a, n) and _holds(b, n)
        case Apply(name, (a, b)):
            return _MEANT[name](_holds(a, n), _holds(b, n))
    raise AssertionError(node)


def _are_opposite(test: Node, other: Node, sizes: Any) -> bool:
    """Whether one holds up to a position and the other from there on."""
    match test, other:
        case (
            Apply("<" | ">=" as one, (Position(a), Number(m))),
            Apply("<" | ">=" as two, (Position(b), Number(n))),
        ):
            return bool(a == b and one != two and sizes.equal(m, n))
    return False
