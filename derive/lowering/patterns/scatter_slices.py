"""Sums over several brackets that compare an index with a position: all at once.

    Sum_n [s[n] == g] [t[n] == h] f(n)    =  f added at s[n] and t[n]
    Sum_g,h [s[n] == g] [t[n] == h] f(g,h)  =  f(s[n], t[n])

One after the other, the second would be a mask of all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from derive.algebra.expr import (
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Reduce,
    Rel,
    factors_of,
    free_indices,
    is_number,
    product_of,
    sum_of,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of
from derive.algebra.substitution import rename_apart, substitute
from derive.lowering.ground.axis_order import renaming
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Added, Indices, Value
from derive.lowering.patterns.segment_reductions import (
    Match,
    added_at,
    at_matched_position,
    matches_of,
)


def sum_by_places(scope: Scope, s: Summation) -> Value | None:
    """Sum_n [s[n] == g] [t[n] == h] f(n) = zeros.index_put((s, t), f, accumulate=True)[g, h]."""
    outer = (m for m in _first_matches(scope, s) if m.index in {*s.order} - {*s.binders})
    matches = [m for m in outer if not free_indices(m.position).isdisjoint(s.binders)]
    if len(matches) < 2 or not s.others:
        return None
    placed = [
        Delta(m.index, m.position if m.certain else Guard(m.inside, m.position)) for m in matches
    ]
    factors = [*placed, *_brackets_beside_matches(s, matches), *s.others]
    return scope.lower(summed_product(s.binders, factors), s.order)


def sum_by_lookups(scope: Scope, s: Summation) -> Value | None:
    """Sum_g,h [s[n] == g] [t[n] == h] f(g, h) = f(s[n], t[n])."""
    matches = [m for m in _first_matches(scope, s) if m.index in s.binders]
    read = [m.index for m in matches]
    if len(matches) < 2 or any(i in free_indices(m.position) for m in matches for i in read):
        return None
    factors: list[Expr] = [*_brackets_beside_matches(s, matches), *s.others]
    for m in matches:
        factors = [at_matched_position(scope, m, f) for f in factors]
    return scope.lower(summed_product([i for i in s.binders if i not in read], factors), s.order)


def _first_matches(scope: Scope, s: Summation) -> list[Match]:
    found: dict[Expr, Match] = {}
    for match in matches_of(scope, s.factors):
        if any(isinstance(e, Iverson) for e in walk(match.position)):
            continue  # n + 3*[n < 0] is a float, which no scatter takes
        found.setdefault(match.index, match)
    return [*found.values()]


def _brackets_beside_matches(s: Summation, matches: Sequence[Match]) -> list[Expr]:
    """Return the conditions other than the matches, and those for positions in range."""
    asked = {frozenset((m.index, m.position)) for m in matches}

    def is_asked(c: Expr) -> bool:
        return isinstance(c, Rel) and frozenset((factor(c.left), factor(c.right))) in asked

    left = [c for b in s.brackets for c in conditions_of(b.condition) if not is_asked(c)]
    return [Iverson(c) for c in (*left, *(m.inside for m in matches if not m.certain))]


# --------------------------------------------------------------------
# Sums by place with other addends: these are the base of the scatter instead of zeros.
#
# a(g) + c Sum_n [s[n] == g] f(n)  =  a.index_add(s, f, alpha=c)[g]


def added_by_place(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """a(g) + c Sum_n [s[n] == g] f(n) = a.index_add(s, f, alpha=c)[g]."""
    for e in addends:
        others = [a for a in addends if a is not e]
        for match, scale, binders in _by_place(scope, e, order) if others else ():
            base = scope.lower(sum_of(others), order)
            if base.kind != "float" or base.scalar or base.axes != tuple(order):
                return None
            content = product_of([at_matched_position(scope, match, a) for a in match.rest])
            number = scope.lower(product_of(scale), ()).code if scale else None
            made = added_at(scope, match, content, binders, order, base.code, number)
            if made is not None and made.axes == tuple(order) and made.kind == "float":
                return made, []
    return None


def _by_place(
    scope: Scope, e: Expr, order: Indices
) -> Iterator[tuple[Match, list[Expr], tuple[Index, ...]]]:
    """Yield (match, numeric factors, indices) of a sum that has all axes of the order."""
    total = next((f for f in factors_of(e) if isinstance(f, Reduce) and f.kind == "sum"), None)
    if total is None:
        return
    numbers = [f for f in factors_of(e) if f is not total]
    if not all(map(is_number, numbers)):
        return
    own = rename_apart(total.indices, order)
    factors = factors_of(substitute(total.body, renaming(total.indices, own)))
    for match in matches_of(scope, factors):
        read = free_indices(match.position)
        there = free_indices(product_of(match.rest)) | read
        whole = {*order} - {match.index} <= there and match.index in order
        if whole and {*own} <= read and all(not isinstance(f, Iverson) for f in match.rest):
            yield match, numbers, own
