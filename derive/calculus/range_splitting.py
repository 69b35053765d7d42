"""Restrict a reduction in a branch to the subrange of an index that the branch admits.

    where(t < size(a), max_k x[t,k], y)  =  where(t < size(a), top[t], y)
    top[t] = max_k x[t,k]  for t of a

Over the whole axis it would also reduce the other entries, or nothing. That is wasted work, and an
infinity that the branch not taken multiplies by 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Expr, Guard, Index, Iverson, sort_key
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conjunction
from derive.algebra.poly import Poly, as_atom
from derive.algebra.substitution import fresh, substitute
from derive.calculus.guards import simplify_guards, with_guards_outside
from derive.calculus.index_ranges import part_of_range


@dataclass(frozen=True)
class SubRange:
    """The values of an index where conditions hold: ``start`` + an index of the subrange."""

    bounds: Bounds
    conditions: tuple[Expr, ...]
    whole: Index
    start: Polynomial
    own: Index

    def inside(self, e: Expr) -> Expr:
        """e, evaluated where the conditions hold, in the subrange's index."""
        place = (Polynomial.of(self.own) + self.start).poly()
        return simplify_guards(self.bounds, substitute(e, {self.whole: place}))

    def outside(self, p: Poly) -> Poly:
        """p in the whole index again, with its positions guarded by the conditions."""
        place = as_atom((Polynomial.of(self.whole) - self.start).poly())
        moved = substitute(p, {self.own: Guard(conjunction(self.conditions), place)})
        made = with_guards_outside(moved, frozenset(self.conditions))
        assert isinstance(made, Poly)
        return made


def part_in_branch(
    bounds: Bounds,
    conditions: Sequence[Expr],
    indices: AbstractSet[Index],
    binders: Sequence[Index],
) -> SubRange | None:
    """The subrange that conditions leave of a free index, if an extent has its size."""
    brackets = [Iverson(c) for c in conditions]
    for i in sorted(indices - set(binders), key=sort_key) if brackets else ():
        found = part_of_range(bounds, brackets, i)
        if found is None:
            continue
        index, start, rest = found
        if bounds.size(index.extent) != bounds.size(i.extent):
            own = fresh(index, (indices | set(binders)) - {i})
            about = tuple(b.condition for b in brackets if b not in rest)
            return SubRange(bounds, about, i, start, own)
    return None
