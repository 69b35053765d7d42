"""Pairs of complementary brackets.

[c]*a + [not c]*b    =  torch.where(c, a, b)
x*([c] + s*[not c])  =  torch.where(c, x, s*x)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from derive.algebra.expr import (
    Add,
    Expr,
    Index,
    Iverson,
    Not,
    Num,
    Rel,
    Where,
    factors_of,
    free_indices,
    indices_of,
    num,
    product_of,
)
from derive.algebra.logic import negate
from derive.lowering.ground.context import Scope
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.value import Value


def added_branches(
    scope: Scope, addends: Sequence[Expr], order: Sequence[Index]
) -> tuple[Value, list[Expr]] | None:
    """Return [c]*a + [not c]*b as one ``where``, and the other addends."""
    for pair, (condition, then, other) in complements(addends):
        value = scope.where(
            scope.condition(condition, order),
            scope.lower(under_condition(then, condition), order),
            scope.lower(under_condition(other, negate(condition)), order),
            order,
        )
        return value, [a for a in addends if a not in pair]
    return None


def scaled_by_branches(
    scope: Scope, factors: Sequence[Expr], order: Sequence[Index]
) -> Value | None:
    """Return x*([c] + s*[not c]) as one ``where``, without a tensor for the numbers."""
    for a in factors:
        pairs = complements(a.args) if isinstance(a, Add) and len(a.args) == 2 else ()
        for _, (condition, *branches) in pairs:
            rest = tuple(x for x in factors if x is not a)
            free = free_indices(condition)
            covered = any(free_indices(x) and free <= free_indices(x) for x in rest)
            if free == free_indices(a) and covered and not indices_of(branches):
                scaled = (product_of(rest if b is num(1) else (b, *rest)) for b in branches)
                return scope.lower(Where(condition, *scaled), order)
    return None


def complements(
    addends: Sequence[Expr],
) -> Iterator[tuple[tuple[Expr, Expr], tuple[Expr, Expr, Expr]]]:
    """Yield the first pair [c]*a, [not c]*b of addends, with (c, a, b); nothing for two numbers."""
    for pair in combinations(addends, 2):
        brackets = [[f for f in factors_of(e) if isinstance(f, Iverson)] for e in pair]
        if [len(found) for found in brackets] != [1, 1]:
            continue
        condition = brackets[0][0].condition
        if negate(condition) is not brackets[1][0].condition:
            continue
        then, other = (
            product_of([f for f in factors_of(e) if not isinstance(f, Iverson)]) for e in pair
        )
        if isinstance(then, Num) and isinstance(other, Num):
            return
        unlike = isinstance(condition, Rel) and condition.op == "!=" and isinstance(then, Num)
        if isinstance(condition, Not) or unlike:
            condition, then, other = negate(condition), other, then
        yield pair, (condition, then, other)
        return
