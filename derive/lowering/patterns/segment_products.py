"""Sums weighted by a product over the positions between two: linear recurrences along the axis.

    r(t) = Sum_k [t <= k] x(k) Prod_l [t < l <= k] a(l)  =  x(t) + a(t + 1)*r(t + 1)
    Sum_{s,k} [s <= t <= k] x(s) z(k) Prod_l [s <= l <= k, l != t] a(l)  =  p(t)*r(t)
        p(t) = Sum_s [s <= t] x(s) Prod_l [s <= l < t] a(l),  r(t) that of z

and the first from the other end, with either position in the product or not. The second is the
gradient of the first for a. A factor c**(k - t) belongs to the product: c*a(l) in place of a(l).
There is no quotient, so zeros are fine. No tensor has two positions, unless matrices of all
products have fewer indices, as for many features with one a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    And,
    Call,
    Expr,
    Guard,
    Index,
    Iverson,
    Rel,
    free_indices,
    indices_of,
    is_number,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of
from derive.algebra.poly import Poly, atom, mul
from derive.algebra.reductions import OTHERS
from derive.algebra.substitution import substitute
from derive.calculus.lets import Let
from derive.lowering.ground.axis_order import common_axis_order, with_binders
from derive.lowering.ground.context import Scope
from derive.lowering.ground.contract import contract
from derive.lowering.ground.summation import Summation, masked_triangle, summed_product
from derive.lowering.ground.value import Value
from derive.lowering.patterns.cumulative import (
    Running,
    compared_indices,
    cumulative_reduction,
    from_either_end,
    running,
)
from derive.lowering.patterns.recurrences import with_axes_of
from derive.program.torch_ir import Binary, Code, Dim, FunctionCall, literal


@dataclass(frozen=True)
class Segment:
    """Prod body(element) over the elements between two positions, all but ``without``."""

    body: Poly
    element: Index
    low: Index
    high: Index
    takes_low: bool
    takes_high: bool
    without: Index | None = None


def _segment(scope: Scope, weight: Expr) -> Segment | None:
    """Return the product that a factor reads, if it is one over a segment."""
    let = scope.find(weight.tensor) if isinstance(weight, Access) else None
    if let is None or let.condition is None or len(let.binders) != 1:
        return None
    if let.kind != "prod" and let.reduction is not OTHERS:
        return None
    assert isinstance(weight, Access)
    (element,) = let.binders
    at = dict(zip(let.formals, weight.positions, strict=True))
    without = at.pop(element, None)
    ends = _ends(scope.frame.bounds, element, substitute(let.condition, at))
    if ends is None or not (without is None or isinstance(without, Index)):
        return None
    body = substitute(let.body, at)
    if free_indices(body) & {*ends[:2], without}:
        return None
    return Segment(body, element, *ends, without)


def _ends(
    bounds: Bounds, element: Index, condition: Expr
) -> tuple[Index, Index, bool, bool] | None:
    """Return (low, high, whether low is taken, whether high is) of low <= element <= high."""
    found = [compared_indices(bounds, (element,), c) for c in conditions_of(condition)]
    low = [r for r in found if r is not None and r.is_reversed]
    high = [r for r in found if r is not None and not r.is_reversed]
    if len(found) != 2 or not low or not high:
        return None
    return low[0].index, high[0].index, not low[0].is_strict, not high[0].is_strict


def _with_rates(
    scope: Scope, segment: Segment, factors: Sequence[Expr]
) -> tuple[Segment, list[Expr]]:
    """Return the segment with each c of a factor c**(high - low) in it, and the other factors."""
    bounds, low, high = scope.frame.bounds, segment.low, segment.high
    length = Polynomial.of(high) - Polynomial.of(low)
    rest: list[Expr] = []
    for f in factors:
        base, exponent = f.args if isinstance(f, Call) and f.function == "pow" else (f, f)
        if isinstance(exponent, Guard):
            within = compared_indices(bounds, (high,), exponent.condition)
            exponent = exponent.position if within == _in_order(low, high) else f
        is_rate = is_number(base) and bounds.form(exponent) == length
        if is_rate and segment.takes_low is not segment.takes_high:
            segment = replace(segment, body=mul(atom(base), segment.body))
            rest += [base] if segment.without else []
        else:
            rest.append(f)
    return segment, rest


def _in_order(low: Index, high: Index) -> Running:
    return Running(high, low, is_reversed=True, is_strict=False)


def sum_weighted_by_segments(scope: Scope, s: Summation) -> Value | None:
    """Sum_k [t <= k] x(k) w(t) Prod_l [t <= l < k] a(l), and from the other end."""
    for weight in s.others if s.brackets else ():
        segment = _segment(scope, weight)
        along = running(scope.frame.bounds, s.binders, s.condition)
        if segment is None or along is None or along.outside or segment.without:
            continue
        ends = (segment.low, segment.high)[:: 1 if along.is_reversed else -1]
        if ends != (along.index, along.binder):
            continue
        segment, rest = _with_rates(scope, segment, [f for f in s.others if f is not weight])
        rest += [Iverson(c) for c in along.within]
        beside = [f for f in rest if along.index in free_indices(f)]
        summed = [f for f in rest if f not in beside]
        return _joined(scope, s, segment, [(along, summed)], beside)
    return None


def sum_of_products_of_others(scope: Scope, s: Summation) -> Value | None:
    """Sum_{s,k} [s <= t] [t <= k] x(s) z(k) Prod_l [s <= l <= k, l != t] a(l)."""
    for weight in s.others if s.brackets else ():
        segment = _segment(scope, weight)
        if segment is None or segment.without is None:
            continue
        t, low, high = segment.without, segment.low, segment.high
        to_low = Running(low, t, False, not segment.takes_low)
        to_high = Running(high, t, True, not segment.takes_high)
        left = _without_comparisons(scope.frame.bounds, s, segment, (to_low, to_high))
        if left is None or {t, low, high}.isdisjoint(s.binders):
            continue
        segment, rest = _with_rates(scope, segment, [f for f in s.others if f is not weight])
        rest += left
        sides = [[f for f in rest if i in free_indices(f)] for i in (low, high)]
        beside = [f for f in rest if not any(f in side for side in sides)]
        args = scope, s, segment, [(to_low, sides[0]), (to_high, sides[1])], beside
        made = None
        if {low, high} <= {*s.binders} and not any(t in indices_of(side) for side in sides):
            made = _joined(*args)
        made = made or _by_matrices(*args)
        if made is not None:
            return made
    return None


def _without_comparisons(
    bounds: Bounds, s: Summation, segment: Segment, needed: Sequence[Running]
) -> list[Expr] | None:
    """Return the brackets without those that say low <= t <= high; None if they do not."""
    left, order = list(needed), _in_order(segment.low, segment.high)
    # s <= t and t < k say that s < k.
    said = [replace(order, is_strict=n) for n in (False, any(r.is_strict for r in needed))]
    others: list[Expr] = []
    for c in conditions_of(s.condition):
        found = [compared_indices(bounds, (r.binder,), c) for r in needed]
        if any(r in left for r in found):
            left = [r for r in left if r not in found]
        elif found[1] not in said:
            others.append(Iverson(c))
    return None if left else others


def _joined(
    scope: Scope,
    s: Summation,
    segment: Segment,
    sides: Sequence[tuple[Running, Sequence[Expr]]],
    beside: Sequence[Expr],
) -> Value | None:
    """Return the recurrences of these sides times the other factors, summed over what is left."""
    run = [along.binder for along, _ in sides]
    if any(set(run) & free_indices(f) for f in beside):
        return None
    own = [indices_of(f) - {along.binder} for along, f in sides]
    if any({*run} & free for free in own):
        return None
    products = free_indices(segment.body) - {segment.element}
    after: list[Index] = []
    for i in s.binders:
        places = sum(i in free for free in own)
        if i not in run and (places != 1 or i in products or i in indices_of(beside)):
            after.append(i)
    (t,) = {along.index for along, _ in sides}
    kept = [i for i in s.order if i in free_indices(s.expr)]
    whole = with_binders(kept, after, s.expr)
    values = []
    for (along, factors), free in zip(sides, own, strict=True):
        inside = [i for i in s.binders if i in free and i not in after]
        x = summed_product(inside, factors)
        axes = {t} | products | (free - set(inside))
        if len(axes) > len({t, along.binder} | products):
            return None  # the matrix of products has fewer elements
        value = _recurrence(scope, along, x, segment, [i for i in whole if i in axes])
        if value is None:
            return None
        values.append(value)
    values += [scope.as_float(scope.lower(f, common_axis_order(f))) for f in beside]
    return contract(scope.frame, [scope.frame.squeeze(v) for v in values], after, whole)


def _by_matrices(
    scope: Scope,
    s: Summation,
    segment: Segment,
    sides: Sequence[tuple[Running, Sequence[Expr]]],
    beside: Sequence[Expr],
) -> Value | None:
    """Return the sum with a matrix of the products on each side of the element left out."""
    values = []
    for along, _ in sides:
        t, k, element = along.index, along.binder, segment.element
        takes_k = segment.takes_high if along.is_reversed else segment.takes_low
        between = [(t, element, False), (element, k, takes_k), (t, k, not along.is_strict)]
        ordered = [pair if along.is_reversed else (pair[1], pair[0], pair[2]) for pair in between]
        *ends, side = (Rel("<=" if or_same else "<", a, b) for a, b, or_same in ordered)
        free = free_indices(segment.body) - {element}
        formals = (*(i for i in common_axis_order(s.expr) if i in free), k, t)
        let = Let("", formals, segment.body, "prod", (element,), And(tuple(ends)))
        matrix = cumulative_reduction(scope, let)
        if matrix is None:
            return None
        values.append(masked_triangle(scope, side, matrix, formals))
    every = dict.fromkeys([*(f for _, factors in sides for f in factors), *beside])
    values += [scope.as_float(scope.lower(f, common_axis_order(f))) for f in every]
    kept = [i for i in s.order if i in free_indices(s.expr)]
    whole = with_binders(kept, s.binders, s.expr)
    return contract(scope.frame, [scope.frame.squeeze(v) for v in values], s.binders, whole)


def _recurrence(
    scope: Scope, along: Running, factor: Expr, segment: Segment, order: Sequence[Index]
) -> Value | None:
    """Return Sum_k x(k) Prod_l a(l), l between the index t and the binder k; None of integers.

    If the product takes a(k), r(t) = x(t) + a(t + 1)*r(t + 1), and s(t) = a(t)*r(t) takes a(t)
    too. Otherwise s(t) = x(t) + a(t)*s(t + 1) takes a(t) alone. The others are r(t) or s(t + 1),
    with a(t) in front, or x(t) beside it. None reads an a(t) that no product takes.
    """
    t = along.index
    ends = segment.takes_low, segment.takes_high
    takes_t, takes_k = ends if along.is_reversed else reversed(ends)
    takes_t = takes_t and segment.without is None
    parts = [
        scope.lower(substitute(e, {i: t}), order)
        for e, i in ((factor, along.binder), (scope.nested(segment.body), segment.element))
    ]
    if all(value.kind != "float" for value in parts):
        return None
    x, weight = (scope.as_float(scope.frame.fit(value, order)) for value in parts)
    x = scope.frame.expand(x, order, scope.like)
    if t in weight.axes:
        weight = with_axes_of(scope, weight, order)
    else:
        weight = scope.frame.expand(weight, order, scope.like)
    place, turned = scope.frame.place(x, t), not along.is_reversed

    def moved(code: Code, by: int) -> Code:
        return FunctionCall("rt.window", (code, place, literal(by), Dim(t.extent)))

    a = from_either_end(weight.code, place, turned)
    before = moved(a, -1)
    weights = a if takes_k else before
    code: Code = FunctionCall(
        "rt.linear_recurrence", (from_either_end(x.code, place, turned), weights, place)
    )
    if takes_k and (takes_t or along.is_strict):
        code = Binary("*", a, code)
    if takes_t and along.is_strict:
        code = Binary("*", before, code)
    if along.is_strict or not (takes_t or takes_k):
        code = moved(code, 1)
    code = from_either_end(code, place, turned)
    if not (along.is_strict or takes_t or takes_k):
        code = Binary("+", x.code, code)
    return replace(x, code=code)
