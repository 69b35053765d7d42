"""Choices by position of which some are never made: those that others come before.

where(c == 0, a, where(c == 1, b, e)) with size(c) = 2 is where(c == 0, a, b).
"""

from __future__ import annotations

import operator
from typing import Any

import sympy

from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedParameter,
    TracedRead,
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


def chosen(test: TracedNode, value: TracedNode, rest: TracedNode) -> TracedNode:
    """where(test, value, rest), of which a choice in the value with the same rest is a part."""
    value = rewritten(value, _moved_once)
    match value:
        case TracedApply("where", (inner, made, other)):
            if _from_the_first(other) == _where_it_holds(test, _from_the_first(rest)):
                both = TracedApply("and", (test, _from_the_first(inner)))
                return TracedApply("where", (both, made, rest))
    return TracedApply("where", (test, value, rest))


def _where_it_holds(test: TracedNode, node: TracedNode) -> TracedNode:
    match test:
        case TracedApply("==", (Position(atom), TracedNumber() as n)):
            return substituted(node, {atom: n})
    return node


def _moved_once(node: TracedNode) -> TracedNode:
    """x - 1 + 1 as x, and x from the first position on, said once."""
    match node:
        case TracedApply(
            "+", (TracedApply("+", (_, TracedParameter(own))) as inner, TracedParameter(other))
        ):
            return inner if own == other else node
        case TracedApply(
            "+" | "-" as two, (TracedApply("+" | "-" as one, (x, TracedNumber(m))), TracedNumber(n))
        ):
            if isinstance(m, bool | float) or isinstance(n, bool | float) or not _is_place(x):
                return node
            by = (m if one == "+" else -m) + (n if two == "+" else -n)
            return x if by == 0 else TracedApply("+", (x, TracedNumber(by)))
    return node


def _from_the_first(node: TracedNode) -> TracedNode:
    """With positions alone where a parameter, 0 as given, says that an axis is longer."""

    def change(x: TracedNode) -> TracedNode:
        match x:
            case TracedApply("+", (place, TracedParameter())) if _is_place(place):
                return place
        return _moved_once(x)

    return rewritten(node, change)


def _is_place(node: TracedNode) -> bool:
    return not any(isinstance(x, TracedRead) for x in walk(node))


def without_covered(node: TracedNode, sizes: Any) -> TracedNode:
    """The choice without what is said of no position."""
    match node:
        case TracedApply("where", (test, value, TracedApply("where", (other, last, _)))) if (
            _are_opposite(test, other, sizes)
        ):
            return TracedApply("where", (test, value, last))
        case TracedApply("where", (test, _, _)) if (atom := _atom(test)) is not None:
            if isinstance(atom.size, sympy.Integer) and atom.size <= _MOST:
                return _counted(node, atom, set(range(int(atom.size))))
    return node


def _counted(node: TracedNode, atom: Atom, left: set[int]) -> TracedNode:
    """The choice for positions that are left."""
    match node:
        case TracedApply("where", (test, value, rest)) if _atom(test) == atom:
            here = {n for n in left if _holds(test, n)}
            if here == left:
                return value
            rest = _counted(rest, atom, left - here)
            return TracedApply("where", (test, value, rest)) if here else rest
    return node


def _atom(test: TracedNode) -> Atom | None:
    """The only index of a test that says no more than where it holds along one axis."""
    found = {x.atom for x in walk(test) if isinstance(x, Position)}
    known = all(_is_known(x) for x in walk(test))
    return found.pop() if len(found) == 1 and known else None


def _is_known(x: TracedNode) -> bool:
    match x:
        case Position():
            return True
        case TracedNumber(value):
            return not isinstance(value, bool | float) and bool(sympy.sympify(value).is_Integer)
        case TracedApply(name):
            return name in ("and", "==", "<", ">=", "-", "%", "//")
    return False


def _holds(node: TracedNode, n: int) -> Any:
    match node:
        case Position():
            return n
        case TracedNumber(value):
            return int(value)
        case TracedApply("and", (a, b)):
            return _holds(a, n) and _holds(b, n)
        case TracedApply(name, (a, b)):
            return _MEANT[name](_holds(a, n), _holds(b, n))
    raise AssertionError(node)


def _are_opposite(test: TracedNode, other: TracedNode, sizes: Any) -> bool:
    """Whether one holds up to a position and the other from there on."""
    match test, other:
        case (
            TracedApply("<" | ">=" as one, (Position(a), TracedNumber(m))),
            TracedApply("<" | ">=" as two, (Position(b), TracedNumber(n))),
        ):
            return bool(a == b and one != two and sizes.equal(m, n))
    return False
