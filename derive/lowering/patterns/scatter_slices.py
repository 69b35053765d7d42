"""Sums over several brackets that compare an index with a position: all at once.

    Sum_n [s[n] == g] [t[n] == h] f(n)    =  f added at s[n] and t[n]
    Sum_g,h [s[n] == g] [t[n] == h] f(g,h)  =  f(s[n], t[n])

One after the other, the second would be a mask of all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.expr import Delta, Expr, Guard, Iverson, Rel, free_indices
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Value
from derive.lowering.patterns.segment_reductions import Match, at_matched_position, matches_of


def sum_by_places(scope: Scope, s: Summation) -> Value | None:
    """Sum_n [s[n] == g] [t[n] == h] f(n), added at s[n] and t[n]."""
    matches = [
        m
        for m in _first_matches(scope, s)
        if m.index in s.order
        and m.index not in s.binders
        and not free_indices(m.position).isdisjoint(s.binders)
    ]
    if len(matches) < 2 or not s.others:
        return None
    placed = [
        Delta(m.index, m.position if m.certain else Guard(m.inside, m.position)) for m in matches
    ]
    return scope.lower(
        summed_product(s.binders, [*placed, *_brackets_beside_matches(s, matches), *s.others]),
        s.order,
    )


def sum_by_lookups(scope: Scope, s: Summation) -> Value | None:
    """Sum_g,h [s[n] == g] [t[n] == h] f(g,h) = f(s[n], t[n])."""
    matches = [m for m in _first_matches(scope, s) if m.index in s.binders]
    read = [m.index for m in matches]
    if len(matches) < 2 or any(i in free_indices(m.position) for m in matches for i in read):
        return None
    factors: list[Expr] = [*_brackets_beside_matches(s, matches), *s.others]
    for m in matches:
        factors = [at_matched_position(scope, m, f) for f in factors]
    return scope.lower(summed_product([i for i in s.binders if i not in read], factors), s.order)


def _first_matches(scope: Scope, s: Summation) -> list[Match]:
    """Return the first match of each index."""
    found: dict[Expr, Match] = {}
    for match in matches_of(scope, s.factors):
        found.setdefault(match.index, match)
    return [*found.values()]


def _brackets_beside_matches(s: Summation, matches: Sequence[Match]) -> list[Expr]:
    """Return the conditions other than the matches, and those for positions in range."""
    asked = {frozenset((m.index, m.position)) for m in matches}
    conditions = [c for b in s.brackets for c in conditions_of(b.condition)]
    left = [
        c
        for c in conditions
        if not (isinstance(c, Rel) and frozenset((factor(c.left), factor(c.right))) in asked)
    ]
    return [Iverson(c) for c in (*left, *(m.inside for m in matches if not m.certain))]
