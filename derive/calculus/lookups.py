"""Sums in which an integer tensor picks one term.

    Sum_n [s[k] = n] f(n) = f(s[k])    where 0 <= s[k] < size(n) for every k

Without that proof the sum is 0 where s[k] is no position of n, and f(s[k]) would be an error. A sum
within f is made for every n first: then it is made once, however many s[k] are n.
"""

from __future__ import annotations

from collections.abc import Iterator

from derive.algebra.expr import Access, Expr, Index, Iverson, Rel, Size, free_indices, num, walk
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.rules import Rule
from derive.algebra.substitution import substitute
from derive.calculus.bounds import Bounds
from derive.calculus.conditions import (
    conditions_of,
    conjunction,
    plain_positions,
    rebuilt,
    settled,
)

__all__ = ["lookup_rule"]


def lookup_rule(bounds: Bounds) -> Rule:
    """The rule for an operation with these extents and positions."""

    def looked_up(t: Term) -> Poly | None:
        return next(_looked_up(bounds, t), None)

    return Rule(
        "lookup",
        "Σₙ [s = n]·f(n) = f(s), as 0 ≤ s < size(n)",
        "the number of summed indices",
        looked_up,
    )


def _looked_up(bounds: Bounds, t: Term) -> Iterator[Poly]:
    if len(t.binders) != 1 or t.binders[0].group:
        return
    (index,) = t.binders
    if any(index in free_indices(e) and e.bound() for f in t.factors for e in walk(f)):
        return
    for m in t.factors:
        conditions = conditions_of(m.condition) if isinstance(m, Iverson) else ()
        for c in conditions:
            position = _equal_to(index, c)
            if position is None or not _is_inside(bounds, position, index):
                continue
            left = [x for x in conditions if x is not c]
            rest = [f for f in t.factors if f is not m]
            rest += [Iverson(conjunction(left))] if left else []
            moved = (plain_positions(substitute(f, {index: position})) for f in rest)
            yield rebuilt(t, (), [settled(bounds, f) for f in moved])


def _equal_to(index: Index, c: Expr) -> Access | None:
    """The access that the index is equal to where the condition holds."""
    if not isinstance(c, Rel) or c.op != "==":
        return None
    sides = [as_atom(s) if isinstance(s, Poly) else s for s in (c.left, c.right)]
    for one, other in (sides, sides[::-1]):
        if one is index and isinstance(other, Access) and index not in free_indices(other):
            return other
    return None


def _is_inside(bounds: Bounds, position: Expr, index: Index) -> bool:
    inside = Rel("<=", num(0), position), Rel("<", position, Size(index.extent))
    return all(bounds.holds(c) is True for c in inside)
