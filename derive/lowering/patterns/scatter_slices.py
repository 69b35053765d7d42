"""Sums by place with other addends: these are the base of the scatter instead of zeros.

a(g) + c Sum_n [s[n] == g] f(n)  =  a.index_add(s, f, alpha=c)[g]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from derive.algebra.expr import (
    Expr,
    Index,
    Iverson,
    Reduce,
    factors_of,
    free_indices,
    is_number,
    product_of,
    sum_of,
)
from derive.algebra.substitution import rename_apart, substitute
from derive.lowering.ground.axis_order import renaming
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Added, Indices
from derive.lowering.patterns.segment_reductions import (
    Match,
    added_at,
    at_matched_position,
    matches_of,
)


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
