"""Sums weighted by a product over the positions between two: linear recurrences along the axis.

    r(t) = Sum_k [t <= k] x(k) Prod_l [t < l <= k] a(l)  =  x(t) + a(t + 1)*r(t + 1)
    Sum_{s,k} [s <= t <= k] x(s) z(k) Prod_l [s <= l <= k] a(l)  =  p(t)*r(t)
        p(t) = Sum_s [s <= t] x(s) Prod_l [s <= l < t] a(l),  r(t) that of z

and the first from the other end, with either position in the product or not. The second is the
gradient for f of the first with exp(Sum_l f(l)), which is the product of exp(f(l)). A factor
c**(k - t) belongs to the product: c*a(l) in place of a(l). There is no quotient, so zeros are fine.
No tensor has two positions, unless matrices of all products have fewer indices, as for many
features with one a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Call,
    Expr,
    Guard,
    Index,
    Iverson,
    Reduce,
    Where,
    factors_of,
    free_indices,
    indices_of,
    is_number,
    num,
    product_of,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import Poly, atom, mul
from derive.algebra.substitution import substitute
from derive.lowering.ground.axis_order import common_axis_order, with_binders
from derive.lowering.ground.context import Scope
from derive.lowering.ground.contract import contract
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value
from derive.lowering.ground.windows import unguarded_position
from derive.lowering.patterns.cumulative import Running, compared_indices
from derive.lowering.patterns.recurrences import with_axes_of
from derive.program.torch_ir import Binary, Code, Dim, FunctionCall, Keyword, Literal, literal


@dataclass(frozen=True)
class Segment:
    """Prod body(element) over the elements between two positions."""

    body: Poly
    element: Index
    low: Index
    high: Index
    takes_low: bool
    takes_high: bool
    apart: bool = False
    """True if it has this value only where low < high."""

    def halves(self, t: Index, taken_below: bool, taken_above: bool) -> tuple[Segment, Segment]:
        """Return the products of the elements up to t and of those from t on."""
        return (
            replace(self, high=t, takes_high=taken_below),
            replace(self, low=t, takes_low=taken_above),
        )


def _segment(scope: Scope, weight: Expr) -> Segment | None:
    """Return the product that a factor is, if it is one over a segment."""
    if isinstance(weight, Call):
        return _exponential(scope.frame.bounds, weight)
    let = scope.find(weight.tensor) if isinstance(weight, Access) else None
    if let is None or let.condition is None or len(let.binders) != 1 or let.kind != "prod":
        return None
    assert isinstance(weight, Access)
    (element,) = let.binders
    at = dict(zip(let.formals, weight.positions, strict=True))
    found = _ends(scope.frame.bounds, element, substitute(let.condition, at))
    if found is None:
        return None
    ends, others = found
    body = substitute(let.body, at)
    if others:
        body = atom(Where(conjunction(others), body, num(1)))
    return None if free_indices(body) & {*ends[:2]} else Segment(body, element, *ends)


def _exponential(bounds: Bounds, weight: Call) -> Segment | None:
    """exp(c Sum_l f(l)) = Prod_l exp(c f(l))."""
    if weight.function != "exp":
        return None
    (exponent,) = weight.args
    within = exponent.condition if isinstance(exponent, Guard) else None
    exponent = unguarded_position(exponent)
    sums = [f for f in factors_of(exponent) if isinstance(f, Reduce)]
    if len(sums) != 1 or sums[0].kind != "sum" or len(sums[0].indices) != 1:
        return None
    (whole,) = sums
    (element,) = whole.indices
    brackets = [f.condition for f in factors_of(whole.body) if isinstance(f, Iverson)]
    if whole.condition is not None or not brackets:
        return None
    found = _ends(bounds, element, conjunction(brackets))
    if found is None:
        return None
    ends, others = found
    parts = [f for f in factors_of(whole.body) if not isinstance(f, Iverson)]
    parts = [*(f for f in factors_of(exponent) if f is not whole), *map(Iverson, others), *parts]
    if indices_of(parts) & {*ends[:2]}:
        return None
    order = _in_order(*ends[:2])
    known = order if within is None else compared_indices(bounds, (ends[1],), within)
    if known is None or replace(known, is_strict=False) != order:
        return None
    body = atom(Call("exp", (product_of(parts),)))
    return Segment(body, element, *ends, apart=known.is_strict)


def _ends(
    bounds: Bounds, element: Index, condition: Expr
) -> tuple[tuple[Index, Index, bool, bool], list[Expr]] | None:
    """Return (low, high, whether low is taken, whether high is) of low <= element <= high.

    The other conditions follow. None if both ends are one index, which is no segment.
    """
    found = {c: compared_indices(bounds, (element,), c) for c in conditions_of(condition)}
    low = [r for r in found.values() if r is not None and r.is_reversed]
    high = [r for r in found.values() if r is not None and not r.is_reversed]
    if len(low) != 1 or len(high) != 1 or low[0].index is high[0].index:
        return None
    ends = low[0].index, high[0].index, not low[0].is_strict, not high[0].is_strict
    return ends, [c for c, r in found.items() if r is None]


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
        else:
            rest.append(f)
    return segment, rest


def _in_order(low: Index, high: Index) -> Running:
    return Running(high, low, is_reversed=True, is_strict=False)


def sum_weighted_by_segments(scope: Scope, s: Summation) -> Value | None:
    """Sum_k [t <= k] x(k) Prod_l [t < l <= k] a(l) = r(t) = x(t) + a(t + 1) r(t + 1).

    And from the other end. If it is summed over t too, that is done after the recurrence.
    """
    for weight in s.others if s.brackets else ():
        segment = _segment(scope, weight)
        found = None if segment is None else _from_one_end(scope.frame.bounds, s, segment)
        if segment is None or found is None:
            continue
        along, brackets = found
        if segment.apart and not along.is_strict:
            continue
        segment, rest = _with_rates(scope, segment, [f for f in s.others if f is not weight])
        rest += brackets
        beside = [f for f in rest if along.index in free_indices(f)]
        summed = [f for f in rest if f not in beside]
        return _joined(scope, s, [(along, summed, segment)], beside)
    return None


def _from_one_end(
    bounds: Bounds, s: Summation, segment: Segment
) -> tuple[Running, list[Expr]] | None:
    """Return low <= high as a comparison of the end that is summed, and the other brackets."""
    conditions = conditions_of(s.condition)
    for end, other in ((segment.high, segment.low), (segment.low, segment.high)):
        order = (other, end is segment.high)
        for c in conditions if end in s.binders else ():
            along = compared_indices(bounds, (end,), c)
            if along is not None and (along.index, along.is_reversed) == order:
                return along, [Iverson(x) for x in conditions if x is not c]
    return None


def sum_over_ends_of_segments(scope: Scope, s: Summation) -> Value | None:
    """Sum_s,k [s <= t <= k] x(s) z(k) Prod_l [s <= l <= k] a(l) = p(t) r(t),
    p from the other end.
    """
    for weight in s.others if s.brackets else ():
        segment = _segment(scope, weight)
        found = None if segment is None else _between(scope.frame.bounds, s, segment)
        if segment is None or found is None:
            continue
        (to_low, to_high), low, high = found, segment.low, segment.high
        t = to_low.index
        left = _without_comparisons(scope.frame.bounds, s, segment, (to_low, to_high))
        if left is None or not {low, high} <= {*s.binders}:
            continue
        segment, rest = _with_rates(scope, segment, [f for f in s.others if f is not weight])
        rest += left
        of_low, of_high = ([f for f in rest if i in free_indices(f)] for i in (low, high))
        beside = [f for f in rest if f not in of_low and f not in of_high]
        # The lower product takes the element t if the whole one does.
        below = to_high.is_strict or segment.takes_high
        if not (below or to_low.is_strict or segment.takes_low):
            continue
        if segment.apart and not (to_low.is_strict or to_high.is_strict):
            continue
        one, other = segment.halves(t, below, not below)
        if t in indices_of([*of_low, *of_high]):
            continue
        made = _joined(scope, s, [(to_low, of_low, one), (to_high, of_high, other)], beside)
        if made is not None:
            return made
    return None


def _between(bounds: Bounds, s: Summation, segment: Segment) -> tuple[Running, Running] | None:
    """Return low <= t and t <= high for some element t."""
    low, high = segment.low, segment.high
    below = [compared_indices(bounds, (low,), c) for c in conditions_of(s.condition)]
    above = [compared_indices(bounds, (high,), c) for c in conditions_of(s.condition)]
    for one in below:
        for other in above:
            if one is not None and other is not None and one.index is other.index:
                if not one.is_reversed and other.is_reversed and one.index not in (low, high):
                    return one, other
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


Side = tuple[Running, Sequence[Expr], Segment]
"""The comparison of a binder with t, the factors with the binder, the product between the two."""


def _joined(
    scope: Scope, s: Summation, sides: Sequence[Side], beside: Sequence[Expr]
) -> Value | None:
    """Return the recurrences of these sides times the other factors, summed over what is left."""
    run = [along.binder for along, _, _ in sides]
    if any(set(run) & free_indices(f) for f in beside):
        return None
    own = [indices_of(f) - {along.binder} for along, f, _ in sides]
    if any({*run} & free for free in own):
        return None
    segment = sides[0][2]
    products = free_indices(segment.body) - {segment.element}
    after: list[Index] = []
    for i in s.binders:
        places = sum(i in free for free in own)
        if i not in run and (places != 1 or i in products or i in indices_of(beside)):
            after.append(i)
    (t,) = {along.index for along, _, _ in sides}
    kept = [i for i in s.order if i in free_indices(s.expr)]
    whole = with_binders(kept, after, s.expr)
    values = []
    for (along, factors, segment), free in zip(sides, own, strict=True):
        inside = [i for i in s.binders if i in free and i not in after]
        x = summed_product(inside, factors)
        axes = {t} | products | (free - set(inside))
        if len(axes) > len({t, along.binder} | products):
            return None  # the matrix of products has fewer elements
        # Not in the order of the result, so that several results may share it.
        order = sorted(axes, key=lambda i: (i.extent, i.name))
        value = _recurrence(scope, along, x, segment, order)
        if value is None:
            return None
        values.append(value)
    values += [scope.as_float(scope.lower(f, common_axis_order(f))) for f in beside]
    return contract(scope.frame, [scope.frame.squeeze(v) for v in values], after, whole)


def _recurrence(
    scope: Scope, along: Running, factor: Expr, segment: Segment, order: Indices
) -> Value | None:
    """Return Sum_k x(k) Prod_l a(l), l between the index t and the binder k; None of integers.

    Of k above t: if the product takes a(k), r(t) = x(t) + a(t + 1)*r(t + 1), and s(t) = a(t)*r(t)
    takes a(t) too. Otherwise s(t) = x(t) + a(t)*s(t + 1) takes a(t) alone. The others are r(t) or
    s(t + 1), with a(t) in front, or x(t) beside it. None reads an a(t) that no product takes.
    """
    t = along.index
    ends = segment.takes_low, segment.takes_high
    takes_t, takes_k = ends if along.is_reversed else reversed(ends)
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
    place, up = scope.frame.place(x, t), 1 if along.is_reversed else -1

    def moved(code: Code, by: int) -> Code:
        return FunctionCall("rt.window", (code, place, literal(by * up), Dim(t.extent)))

    a = weight.code
    name = "rt.adjoint_recurrence" if takes_k else "rt.linear_recurrence"
    turned = () if takes_k is along.is_reversed else (Keyword("reverse", Literal("True")),)
    code: Code = FunctionCall(name, (x.code, a, place, *turned))
    if takes_k and (takes_t or along.is_strict):
        code = Binary("*", a, code)
    if takes_t and along.is_strict:
        code = Binary("*", moved(a, -1), code)
    if along.is_strict or not (takes_t or takes_k):
        code = moved(code, 1)
    if not (along.is_strict or takes_t or takes_k):
        code = Binary("+", x.code, code)
    return replace(x, code=code)
