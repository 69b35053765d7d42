"""Sums over brackets index == value: the index is substituted.

    Sum_u [u == e] f(u)          =  [0 <= e < size(u)] f(e)
    Sum_t,k [u == s*t + d*k] f   =  f scattered along windows of u

A bracket would be a mask on a tensor with all of the indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Num,
    Rel,
    Size,
    free_indices,
    num,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import Poly, as_atom
from derive.algebra.substitution import replace as replaced
from derive.algebra.substitution import substitute
from derive.calculus.bracket_rules import without_witnessed
from derive.calculus.guard_insertion import safe_where_read
from derive.calculus.guards import simplify_guards, with_guards_outside
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value
from derive.lowering.ground.windows import unguarded_position
from derive.lowering.patterns.unfold import runs_over

_Equality = tuple[Index, Expr]
"""index == value, where the value does not contain the index."""


def sum_at_known_index(scope: Scope, s: Summation) -> Value | None:
    """Sum_u [u == e] f(u) = f(e)."""
    found: tuple[Indices, Sequence[Expr]] = s.binders, s.factors
    while (simpler := _without_one(scope, *found)) is not None:
        found = simpler
    return None if found[1] is s.factors else scope.lower(summed_product(*found), s.order)


def _without_one(
    scope: Scope, binders: Indices, args: Sequence[Expr]
) -> tuple[list[Index], list[Expr]] | None:
    bounds = scope.frame.bounds
    for n, f in enumerate(args):
        if not isinstance(f, Iverson):
            continue
        conditions = conditions_of(f.condition)
        for c in conditions:
            found = _equality(bounds, c, binders)
            if found is None:
                continue
            index, value = found
            left = [x for x in conditions if x is not c]
            beside = [Iverson(conjunction(left))] if left else []
            rest = [*args[:n], *beside, *args[n + 1 :]]
            range_ = _uncertain_range(bounds, found)
            brackets = [Iverson(x) for x in range_]
            if index not in binders:
                value = Guard(conjunction(range_), value) if range_ else value
                return list(binders), [Delta(index, value), *brackets, *rest]
            moved = [with_value(scope, x, index, value, range_) for x in rest]
            return [i for i in binders if i is not index], [*brackets, *moved]
    return None


def with_value(scope: Scope, e: Expr, index: Index, value: Expr, range_: Sequence[Expr]) -> Expr:
    """Return e with the value substituted for the index, guarded by the range conditions."""
    bounds, here = scope.frame.bounds, free_indices(value)
    met = without_witnessed(scope.find, bounds, e, here, {index: value})
    new = substitute(met, {index: Guard(conjunction(range_), value) if range_ else value})
    plain = with_guards_outside(_without_trivial_guards(new, value), frozenset(range_))
    new = simplify_guards(bounds, plain)
    return safe_where_read(new, range_) if range_ else new


def _without_trivial_guards(e: Expr, value: Expr) -> Expr:
    """Return e with trivial conditions value == value removed from its guards."""

    def visit(part: Expr) -> Expr | None:
        if not isinstance(part, Guard):
            return None
        every = conditions_of(part.condition)
        left = [replaced(c, visit) for c in every if not _is_of_itself(c, value)]
        inside = replaced(part.position, visit)
        return Guard(conjunction(left), inside, part.elsewhere) if left else inside

    return replaced(e, visit)


def _is_of_itself(c: Expr, value: Expr) -> bool:
    """True if a condition is value == value, with or without guards."""
    if not (isinstance(c, Rel) and c.op == "=="):
        return False
    sides = (as_atom(x) if isinstance(x, Poly) else x for x in (c.left, c.right))
    return all(unguarded_position(x) is value for x in sides)


def _equality(bounds: Bounds, c: Expr, binders: Indices) -> _Equality | None:
    if not (isinstance(c, Rel) and c.op == "=="):
        return None
    for index, value in ((c.left, c.right), (c.right, c.left)):
        if not isinstance(index, Index) or index.group or isinstance(value, Index | Num):
            continue
        runs = runs_over(bounds, value)
        if not runs or index in runs:
            continue
        if index in binders:
            return index, value
        solved = _solve_summed_index(bounds, index, value, binders)
        if solved is not None:
            return solved
        summed = all(i in binders for i in runs)
        if summed and (len(runs) == 2 or _skips_positions(bounds, (index, value), runs)):
            return index, value
    return None


def _solve_summed_index(
    bounds: Bounds, index: Index, value: Expr, binders: Indices
) -> _Equality | None:
    """Solve for the only summed index of the value; None if there is no single one."""
    form = bounds.form(value)
    summed = [i for i in runs_over(bounds, value) or () if i in binders]
    if form is None or len(summed) != 1:
        return None
    rest = (Polynomial.of(index) - form).solved(summed[0])
    return None if rest is None else (summed[0], rest.expr())


def _skips_positions(bounds: Bounds, e: _Equality, runs: Mapping[Index, Polynomial]) -> bool:
    """True if the value takes some positions of the index with gaps, all of them on the axis."""
    steps = [c.number for c in runs.values()]
    return len(steps) == 1 and steps[0] not in (None, 1, -1) and not _uncertain_range(bounds, e)


def _uncertain_range(bounds: Bounds, e: _Equality) -> list[Expr]:
    """Return the conditions of 0 <= value < size(index) that are not certain."""
    index, value = e
    range_: tuple[Expr, ...] = (Rel("<=", num(0), value), Rel("<", value, Size(index.extent)))
    return [c for c in range_ if bounds.holds(c) is not True]
