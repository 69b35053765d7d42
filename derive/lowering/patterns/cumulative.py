"""Sums and logsumexps over all positions up to one's own: cumulative ones along the axis.

    Sum_l [l <= k] f(l)  =  cumsum(f)[k]
    Sum_l [l <  k] f(l)  =  cumsum of f moved on by one position
    Sum_l [l >= k] f(l)  =  flip(cumsum(flip(f)))[k]

l and k run over the same positions, and nothing but the condition has k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import Expr, Index, Iverson, Rel, free_indices, indices_of
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.sizes import Bounds
from derive.calculus.lets import Let
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.summation import Summation, total
from derive.lowering.ground.value import Value
from derive.lowering.ground.windows import padded
from derive.program.code import Code, Dim, Method, literal


@dataclass(frozen=True)
class Running:
    """binder <= index, or binder >= index where it is reversed; strict without equality."""

    binder: Index
    index: Index
    is_reversed: bool
    is_strict: bool
    within: tuple[Expr, ...] = ()
    """The other conditions of what is summed."""
    outside: tuple[Expr, ...] = ()
    """Conditions on the index alone."""


def running(bounds: Bounds, binders: Sequence[Index], condition: Expr) -> Running | None:
    """The condition as one that compares a binder with an index over the same positions."""
    conditions = conditions_of(condition)
    for c in conditions:
        found = _compared(bounds, binders, c)
        if found is None:
            continue
        others = [x for x in conditions if x is not c]
        outside = tuple(x for x in others if free_indices(x).isdisjoint(binders))
        within = tuple(x for x in others if x not in outside)
        if found.index in indices_of(within):
            return None
        return replace(found, within=within, outside=outside)
    return None


def _compared(bounds: Bounds, binders: Sequence[Index], c: Expr) -> Running | None:
    """The relation where it is 0 <= +-(binder - index), or 0 < +-(binder - index)."""
    if not isinstance(c, Rel) or c.op not in ("<", "<="):
        return None
    left, right = bounds.form(c.left), bounds.form(c.right)
    if left is None or right is None:
        return None
    terms = dict((left - right).terms)
    offset = terms.pop((), Fraction(0)) + (c.op == "<")
    indices = {key[0]: coef for key, coef in terms.items() if len(key) == 1}
    if len(terms) != 2 or sorted(indices.values()) != [-1, 1] or offset not in (0, 1):
        return None
    for i, k in (tuple(indices), tuple(reversed(indices))):
        if isinstance(i, Index) and isinstance(k, Index) and i in binders and k not in binders:
            if i.extent == k.extent and not i.group:
                return Running(i, k, indices[i] < 0, offset == 1)
    return None


@dataclass(frozen=True)
class RunningSum:
    """Sum over binders of x*weights, where the weights alone have the index of the comparison."""

    along: Running
    x: Expr
    """What is summed beside the weights, summed over all binders but that of the comparison."""
    weights: tuple[Expr, ...]
    whole: Summation


def running_sum(scope: Scope, s: Summation) -> RunningSum | None:
    """The sum as one over the positions on one side of an index."""
    if not s.brackets:
        return None
    along = running(scope.frame.bounds, s.binders, s.condition)
    if along is None:
        return None
    beside = tuple(i for i in s.binders if i is not along.binder)
    weights = tuple(f for f in s.others if along.index in free_indices(f))
    kept: list[Expr] = [Iverson(conjunction(along.within))] if along.within else []
    kept += [f for f in s.others if f not in weights]
    return RunningSum(along, total(beside, kept), weights, s)


def from_either_end(code: Code, place: Code, turned: bool) -> Code:
    """The code along the axis, or from its end."""
    return Method(code, "flip", (place,)) if turned else code


def where_outside(scope: Scope, found: RunningSum, value: Value) -> Value:
    """value where what is said of the index alone holds."""
    if not found.along.outside:
        return value
    return scope.only_where(conjunction(found.along.outside), value, found.whole.order)


def cumulative_sum(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [l <= k] f(l) = cumsum(f)[k]."""
    found = running_sum(scope, s)
    if found is None or found.weights or found.along.binder not in indices_of(s.others):
        return None
    inner = [found.along.binder if i is found.along.index else i for i in s.order]
    value = scope.frame.fit(scope.lower(found.x, inner), inner)
    if value.kind == "bool":
        value = scope.as_float(value)
    return where_outside(scope, found, _cumulated(scope, value, found.along, "cumsum"))


def cumulative_reduction(scope: Scope, let: Let) -> Value | None:
    """The logsumexp or product of the positions up to one's own."""
    name = let.reduction.cumulative
    if not name or let.condition is None or len(let.binders) > 1:
        return None
    along = running(scope.frame.bounds, let.binders, let.condition)
    if along is None or along.is_strict or along.within or along.outside:
        return None
    free = free_indices(let.body)
    if along.index in free or along.binder not in free:
        return None
    order = [along.binder if i is along.index else i for i in let.formals]
    value = scope.as_float(scope.lower(scope.nested(let.body), order))
    return _cumulated(scope, scope.frame.fit(value, order), along, name)


def _cumulated(scope: Scope, value: Value, along: Running, name: str) -> Value:
    """value.name(axis) from either end, read at the index instead of the binder."""
    n = value.axes.index(along.binder)
    place = scope.frame.position(value.axes, n)
    value = replace(value, code=from_either_end(value.code, place, along.is_reversed))
    if along.is_strict:
        value = padded(scope, value, n, literal(1), literal(0))
    value = value.call(name, place)
    if along.is_strict:
        value = value.call("narrow", place, literal(0), Dim(along.binder.extent))
    value = replace(value, code=from_either_end(value.code, place, along.is_reversed))
    return value.at(n, along.index)
