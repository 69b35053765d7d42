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

from derive.algebra.expr import (
    Expr,
    Index,
    Iverson,
    Mul,
    Reduce,
    Rel,
    free_indices,
)
from derive.calculus.bounds import Bounds
from derive.calculus.conditions import conditions_of, conjunction
from derive.lowering.code import Dim, Method, literal
from derive.lowering.scope import Scope
from derive.lowering.value import Value
from derive.lowering.windows import padded

__all__ = ["Running", "cumulated", "cumulative_sum", "running"]


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
        outside = tuple(x for x in others if not free_indices(x) & set(binders))
        within = tuple(x for x in others if x not in outside)
        if any(found.index in free_indices(x) for x in within):
            return None
        return replace(found, within=within, outside=outside)
    return None


def _compared(bounds: Bounds, binders: Sequence[Index], c: Expr) -> Running | None:
    if not isinstance(c, Rel) or c.op not in ("<", "<="):
        return None
    left, right = bounds.form(c.left), bounds.form(c.right)
    if left is None or right is None:
        return None
    form = left - right
    indices = {key[0]: coef for key, coef in form.terms.items() if len(key) == 1}
    offset = form.terms.get((), Fraction(0)) + (c.op == "<")
    if len(indices) != 2 or set(form.terms) - {()} != {(i,) for i in indices}:
        return None
    if offset not in (0, 1) or set(indices.values()) != {1, -1}:
        return None
    for i, k in (tuple(indices), tuple(reversed(indices))):
        if isinstance(i, Index) and isinstance(k, Index) and i in binders and k not in binders:
            if i.extent == k.extent and not i.group:
                return Running(i, k, indices[i] < 0, offset == 1)
    return None


def cumulative_sum(
    scope: Scope, binders: Sequence[Index], args: Sequence[Expr], order: Sequence[Index]
) -> Value | None:
    """Sum over binders of the product of args as a cumulative sum, if it is one."""
    masks = [a for a in args if isinstance(a, Iverson)]
    rest = [a for a in args if not isinstance(a, Iverson)]
    if not masks or not rest:
        return None
    found = running(scope.frame.bounds, binders, conjunction([m.condition for m in masks]))
    if found is None or any(found.index in free_indices(a) for a in rest):
        return None
    if not any(found.binder in free_indices(a) for a in rest):
        return None
    kept = [Iverson(conjunction(found.within))] if found.within else []
    body: Expr = Mul((*kept, *rest)) if len(kept) + len(rest) > 1 else rest[0]
    beside = tuple(i for i in binders if i is not found.binder)
    if beside:
        body = Reduce("sum", beside, body)
    inner = [found.binder if i is found.index else i for i in order]
    value = scope.frame.fit(scope.lower(body, inner), inner)
    if value.kind == "bool":
        value = replace(scope.as_float(value), kind="float")
    value = cumulated(scope, value, found, "cumsum")
    if not found.outside:
        return value
    zero = Value(literal(0), kind="int", scalar=True)
    return scope.where(scope.condition(conjunction(found.outside), order), value, zero, order)


def cumulated(scope: Scope, value: Value, along: Running, name: str) -> Value:
    """value.name(axis) from either end, read at the index instead of the binder."""
    n = value.axes.index(along.binder)
    place = scope.frame.position(value.axes, n)
    if along.is_reversed:
        value = replace(value, code=Method(value.code, "flip", (place,)))
    if along.is_strict:
        value = padded(scope, value, n, literal(1), literal(0))
    value = replace(value, code=Method(value.code, name, (place,)))
    if along.is_strict:
        size = Dim(along.binder.extent)
        value = replace(value, code=Method(value.code, "narrow", (place, literal(0), size)))
    if along.is_reversed:
        value = replace(value, code=Method(value.code, "flip", (place,)))
    axes = tuple(along.index if i is along.binder else i for i in value.axes)
    return replace(value, axes=axes)
