"""Sums over all later positions, weighted by the positions between: recurrences along the axis.

    Sum_l [k <= l] x(l) exp(a(k) - F(l))  =  exp(a(k) - F(k)) * r(k)
    Sum_l [l <= k] x(l) exp(a(l) - F(k))  =  r(k) of x(l)*exp(a(l) - F(l)), from the other end
        r(k) = x(k) + exp(F(k) - F(k + 1))*r(k + 1),  F(l) = logsumexp_{j <= l} a(j)
    Sum_l [k <= l] [a(k) == m(l)] x(l)  =  [a(k) == m(k)] r(k),  m(l) = max_{j <= l} a(j)
    Sum_l [l <= k] [a(l) == m(k)] x(l)  =  r(k) of [a(l) == m(l)] x(l), from the other end
        r(k) = x(k) + [m(k) == m(k + 1)] r(k + 1)

and all of them from the other end. F never decreases, so no exponential exceeds 1. No tensor has
both k and l.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from derive.algebra.expr import Access, Expr, Index, Iverson, Rel, free_indices, indices_of
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import as_atom, as_poly
from derive.algebra.substitution import substitute
from derive.calculus.lets import Let
from derive.calculus.softmax import NormalizedExp
from derive.lowering.ground.context import Scope
from derive.lowering.ground.contract import elementwise_product
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value, broadcast
from derive.lowering.patterns.cumulative import (
    Running,
    RunningSum,
    from_either_end,
    running,
    running_sum,
    where_outside,
)
from derive.program.torch_ir import Attribute, Binary, FunctionCall, Unary, literal


def sum_weighted_by_exponentials(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [k <= l] x(l) exp(a(k) - F(l)) = exp(a(k) - F(k)) r(k),
    r(k) = x(k) + exp(F(k) - F(k + 1)) r(k + 1).

    The weight is a softmax over the positions up to l, read at k, or the reverse.
    """
    found = running_sum(scope, s)
    if found is None or len(found.weights) != 1 or found.along.is_strict:
        return None
    along, (weight,) = found.along, found.weights
    taken = _taken_along(scope, weight, along) if isinstance(weight, NormalizedExp) else None
    if taken is None or ({*s.binders} - {along.binder}) & free_indices(weight):
        return None
    assert isinstance(weight, NormalizedExp) and weight.level is not None
    free = {along.index} | indices_of((found.x, weight))
    order = [i for i in s.order if i in free]
    after = weight.position is along.index
    other = along.binder if after else along.index
    at: dict[Index, Expr] = {weight.index: along.index, other: along.index}
    a, level = (scope.lower(substitute(e, at), order) for e in (weight.body, weight.level))
    if taken:
        test = scope.condition(conjunction(taken), order)
        a = scope.where(test, a, Value(literal(-inf), scalar=True), order)
    a, level = (with_axes_of(scope, value, order) for value in (a, level))
    # exp(-inf - F) is 0 for F = -inf too: such a row has no terms.
    least = Attribute(FunctionCall("torch.finfo", (Attribute(scope.like, "dtype"),)), "min")
    level = level.call("clamp_min", least)
    share = Value(Binary("-", a.code, level.code), broadcast(a.axes, level.axes)).call("exp")
    x = _summand(scope, found, order)
    if not after:
        x = elementwise_product(scope.frame, x, share, order)
        level = replace(level, code=Unary("-", level.code))
    place, turned = scope.frame.place(x, along.index), not along.is_reversed
    sides = [from_either_end(v.code, place, turned) for v in (x, level)]
    code = from_either_end(FunctionCall("rt.decayed_sum", (*sides, place)), place, turned)
    value = replace(x, code=code)
    if after:
        value = elementwise_product(scope.frame, value, share, order)
    return where_outside(scope, found, value)


def sum_of_ties(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [k <= l] [a(k) == m(l)] x(l) = [a(k) == m(k)] r(k), m(l) = max_{j <= l} a(j),
    r(k) = x(k) + [m(k) == m(k + 1)] r(k + 1).

    The summands are those where a running extremum is attained, as in its gradient.
    """
    conditions = conditions_of(s.condition) if s.brackets else []
    ties = [c for c in conditions if isinstance(c, Rel) and c.op == "=="]
    others = [c for c in conditions if c not in ties]
    if len(ties) != 1 or len(others) != 1:
        return None
    along, (tie,) = running(scope.frame.bounds, s.binders, others[0]), ties
    top = None if along is None else _running_extremum(scope, along, tie)
    if along is None or along.is_strict or top is None:
        return None
    weights = [f for f in s.others if along.index in free_indices(f)]
    own = indices_of((tie, *weights)) - {along.binder}
    shared = [i for i in s.binders if i in own]
    inside = [i for i in s.binders if i not in shared]
    if along.binder in indices_of(weights):
        return None
    if weights or shared:
        inner = summed_product(inside, [f for f in s.factors if f not in weights])
        return scope.lower(summed_product(shared, (*weights, inner)), s.order)
    # As long as the extremum stays the same, it is the one at each position.
    here, later = {along.binder: along.index}, along.binder in free_indices(top)
    attained = substitute(tie, {along.index: along.binder})
    kept = s.others if later else [Iverson(attained), *s.others]
    x = summed_product([i for i in inside if i is not along.binder], kept)
    if along.binder not in free_indices(x):
        return None
    free = {along.index} | indices_of((tie, x))
    order = [i for i in s.order if i in free]
    value = _summand(scope, RunningSum(along, x, (), s), order)
    level = with_axes_of(scope, scope.lower(substitute(top, here), order), order)
    place, turned = scope.frame.place(value, along.index), not along.is_reversed
    sides = [from_either_end(v.code, place, turned) for v in (value, level)]
    code = from_either_end(FunctionCall("rt.sum_while_equal", (*sides, place)), place, turned)
    value = replace(value, code=code)
    return scope.only_where(substitute(attained, here), value, order) if later else value


def any_of_ties(scope: Scope, let: Let) -> Value | None:
    """any_l ([k <= l] [a(k) == m(l)]) = their number > 0."""
    if let.kind != "any":
        return None
    found = sum_of_ties(scope, Summation(let.binders, (scope.nested(let.body),), let.formals))
    return found and replace(found, code=Binary(">", found.code, literal(0)), kind="bool")


def _running_extremum(scope: Scope, along: Running, tie: Rel) -> Access | None:
    """Return the side of the tie that is an extremum of the other up to one of the indices."""
    for x, top in ((tie.left, tie.right), (tie.right, tie.left)):
        let = scope.find(top.tensor) if isinstance(top, Access) else None
        if let is None or let.condition is None or len(let.binders) > 1:
            continue
        assert isinstance(top, Access)
        p, q = along.index, along.binder
        p, q = (p, q) if q in free_indices(top) else (q, p)
        at = dict(zip((*let.formals, *let.binders), (*top.positions, p), strict=True))
        up_to = Running(p, q, along.is_reversed is (p is along.binder), is_strict=False)
        is_top = let.reduction.gradient in ("first", "shared") and q not in free_indices(x)
        if p in free_indices(top) or as_atom(as_poly(substitute(let.body, at))) is not x:
            continue
        if is_top and running(scope.frame.bounds, (p,), substitute(let.condition, at)) == up_to:
            return top
    return None


def _taken_along(scope: Scope, weight: NormalizedExp, along: Running) -> tuple[Expr, ...] | None:
    """Return the other conditions of a softmax over the compared positions, read at one of them."""
    if weight.kind != "softmax" or weight.condition is None or weight.level is None:
        return None
    own = substitute(weight.condition, {weight.index: weight.position})
    compared = running(scope.frame.bounds, (along.binder,), own)
    if compared is None:
        return None
    taken = (*compared.within, *compared.outside)
    if replace(compared, within=(), outside=()) != replace(along, within=(), outside=()):
        return None
    k, other = along.index, along.binder
    if weight.position is not k:
        k, other = other, k
    if weight.position is not k or {k, other} & free_indices(weight.body):
        return None
    is_level = weight.level.positions.count(other) == 1 and k not in free_indices(weight.level)
    if not is_level or other in indices_of(taken):
        return None
    return tuple(substitute(c, {k: along.index}) for c in taken)


def _summand(scope: Scope, found: RunningSum, order: Indices) -> Value:
    """Return x at full size, with the index in place of the binder."""
    x = substitute(found.x, {found.along.binder: found.along.index})
    value = scope.as_float(scope.frame.fit(scope.lower(x, order), order))
    return scope.frame.expand(value, order, scope.like)


def with_axes_of(scope: Scope, value: Value, order: Indices) -> Value:
    """Return the value with one axis for each index of order, of size 1 if it lacks the index."""
    value = scope.frame.fit(scope.as_float(value), order)
    return scope.frame.fill(value, [i if i in value.axes or i.group else None for i in order])
