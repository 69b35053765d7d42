"""Solve sums in which an integer tensor selects one term: gathers.

    Sum_n [s[k] = n] f(n) = f(s[k])    where 0 <= s[k] < size(n) for every k

Without a proof of these bounds, the sum is 0 where s[k] is out of range, and f(s[k]) would be an
error.

If a sum within f does not depend on k, it is computed for every n first and its result is gathered:
once per n, however many s[k] equal n. It is computed for every k only if another sum beside it has
to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from derive.algebra.expr import Access, Expr, Index, Iverson, Rel, Size, free_indices, num, walk
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import Poly, Term, as_atom, poly
from derive.algebra.rules import SumRule
from derive.algebra.substitution import substitute
from derive.calculus.guards import plain_positions, rebuilt_term, simplify_guards


@dataclass(frozen=True)
class _Lookup:
    """[position = index] in a term, its other factors, and its other binders."""

    index: Index
    position: Access
    rest: tuple[Expr, ...]
    others: tuple[Index, ...]

    @property
    def beside(self) -> frozenset[str]:
        """The extents of the other sums."""
        return frozenset(i.extent for i in self.others)


def lookup_rule(bounds: Bounds) -> SumRule:
    """The gather rule for an operation with these extents and positions."""

    def looked_up(p: Poly) -> Poly | None:
        found = [next(_lookups(bounds, t), None) for t in p.terms]
        pairs = {t: x for t, x in zip(p.terms, found, strict=True) if x is not None}
        along = {(x.position, x.beside) for x in pairs.values() if not _is_made_first(x)}
        made = {
            t: _gathered_term(bounds, t, x)
            for t, x in pairs.items()
            if (x.position, x.beside) in along
        }
        if not made:
            return None
        return poly([x for t in p.terms for x in (made[t].terms if t in made else (t,))])

    return SumRule(
        "lookup",
        "Σₙ [s = n]·f(n) = f(s), as 0 ≤ s < size(n)",
        "the number of summed indices",
        looked_up,
    )


def _lookups(bounds: Bounds, t: Term) -> Iterator[_Lookup]:
    for m in t.factors:
        conditions = conditions_of(m.condition) if isinstance(m, Iverson) else ()
        for index, c in product(t.binders, conditions):
            position = None if index.group else _equal_to(index, c)
            if position is None or not _is_inside(bounds, position, index):
                continue
            left = [x for x in conditions if x is not c]
            rest = [f for f in t.factors if f is not m]
            rest += [Iverson(conjunction(left))] if left else []
            within = (e for f in rest for e in walk(f) if e.bound())
            if not any(index in free_indices(e) for e in within):
                known = {index, *free_indices(position)}
                others = tuple(i for i in t.binders if i not in known)
                yield _Lookup(index, position, tuple(rest), others)


def _is_made_first(x: _Lookup) -> bool:
    """True if one of the other sums does not depend on the position, so it is computed first."""
    own = free_indices(x.position)
    shared = frozenset().union(*(free_indices(f) for f in x.rest if own & free_indices(f)))
    return any(i not in shared for i in x.others)


def _gathered_term(bounds: Bounds, t: Term, x: _Lookup) -> Poly:
    moved = (plain_positions(substitute(f, {x.index: x.position})) for f in x.rest)
    binders = [i for i in t.binders if i is not x.index]
    return rebuilt_term(t, binders, [simplify_guards(bounds, f) for f in moved])


def _equal_to(index: Index, c: Expr) -> Access | None:
    """The access that the condition equates with the index."""
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
