"""Remove branches of choices by position that earlier branches shadow.

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
"""Size of an axis up to which positions are enumerated."""


def merged_where(test: TracedNode, value: TracedNode, rest: TracedNode) -> TracedNode:
    """Return where(test, value, rest), merged with a choice in value that has the same rest.

    where(c, where(d, a, rest), rest) is where(c and d, a, rest).
    """
    value = rewritten(value, _moved_once)
    match value:
        case TracedApply("where", (inner, made, other)):
            if _without_start(other) == _where_it_holds(test, _without_start(rest)):
                both = TracedApply("and", (test, _without_start(inner)))
                return TracedApply("where", (both, made, rest))
    return TracedApply("where", (test, value, rest))


def _where_it_holds(test: TracedNode, node: TracedNode) -> TracedNode:
    match test:
        case TracedApply("==", (Position(atom), TracedNumber() as n)):
            return substituted(node, {atom: n})
    return node


def _moved_once(node: TracedNode) -> TracedNode:
    """Fold x - 1 + 1 to x, and a repeated start parameter to one."""
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


def _without_start(node: TracedNode) -> TracedNode:
    """Drop start parameters, 0 as given, which only say that an axis is longer."""

    def change(x: TracedNode) -> TracedNode:
        match x:
            case TracedApply("+", (place, TracedParameter())) if _is_place(place):
                return place
        return _moved_once(x)

    return rewritten(node, change)


def _is_place(node: TracedNode) -> bool:
    return not any(isinstance(x, TracedRead) for x in walk(node))


def without_dead_branches(node: TracedNode, sizes: Any) -> TracedNode:
    """Return the choice without branches that no position selects."""
    match node:
        case TracedApply("where", (test, value, TracedApply("where", (other, last, _)))) if (
            _are_opposite(test, other, sizes)
        ):
            return TracedApply("where", (test, value, last))
        case TracedApply("where", (test, _, _)) if (atom := _tested_index(test)) is not None:
            if isinstance(atom.size, sympy.Integer) and atom.size <= _MOST:
                return _without_unreachable(node, atom, set(range(int(atom.size))))
    return node


def _without_unreachable(node: TracedNode, atom: Atom, left: set[int]) -> TracedNode:
    """Simplify the choice for the positions that are left."""
    match node:
        case TracedApply("where", (test, value, rest)) if _tested_index(test) == atom:
            here = {n for n in left if _holds_at(test, n)}
            if here == left:
                return value
            rest = _without_unreachable(rest, atom, left - here)
            return TracedApply("where", (test, value, rest)) if here else rest
    return node


def _tested_index(test: TracedNode) -> Atom | None:
    """Return the only index of a test that depends on positions of one axis alone."""
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


def _holds_at(node: TracedNode, n: int) -> Any:
    match node:
        case Position():
            return n
        case TracedNumber(value):
            return int(value)
        case TracedApply("and", (a, b)):
            return _holds_at(a, n) and _holds_at(b, n)
        case TracedApply(name, (a, b)):
            return _MEANT[name](_holds_at(a, n), _holds_at(b, n))
    raise AssertionError(node)


def _are_opposite(test: TracedNode, other: TracedNode, sizes: Any) -> bool:
    """True if one test holds below a position and the other from there on."""
    match test, other:
        case (
            TracedApply("<" | ">=" as one, (Position(a), TracedNumber(m))),
            TracedApply("<" | ">=" as two, (Position(b), TracedNumber(n))),
        ):
            return bool(a == b and one != two and sizes.equal(m, n))
    return False
