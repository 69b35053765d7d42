"""Sums over all later positions, weighted by what lies between: recurrences along the axis.

    Sum_l [k <= l] x(l) Prod_{j <= l, j != k} a(j)  =  Prod_{j < k} a(j) * r(k)
        r(k) = x(k) + a(k + 1)*r(k + 1)

    Sum_l [k <= l] x(l) exp(a(k) - F(l))  =  exp(a(k) - F(k)) * r(k)
    Sum_l [l <= k] x(l) exp(a(l) - F(k))  =  r(k) of x(l)*exp(a(l) - F(l)), from the other end
        r(k) = x(k) + exp(F(k) - F(k + 1))*r(k + 1),  F(l) = logsumexp_{j <= l} a(j)

and all of them from the other end. No quotient is formed, so zeros are fine; F never falls, so no
exponential exceeds 1. No tensor has both k and l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from derive.algebra.expr import Access, Expr, Index, Iverson, Mul, Reduce, free_indices
from derive.algebra.substitution import substitute
from derive.calculus.bounds import Bounds
from derive.calculus.conditions import conjunction
from derive.lowering.code import Attribute, Binary, Code, Function, Method, Unary, literal
from derive.lowering.contract import times
from derive.lowering.cumulative import Running, running
from derive.lowering.recognise import Normal
from derive.lowering.scope import Scope
from derive.lowering.value import Value, broadcast

__all__ = ["recurrent_sum"]


@dataclass(frozen=True)
class _Sum:
    """Sum over binders of x*weight, where the weight alone has the index of the comparison."""

    along: Running
    x: Expr | None
    """What is summed beside the weight, summed over all binders but one; None is 1."""
    weight: Expr


def recurrent_sum(
    scope: Scope, binders: Sequence[Index], args: Sequence[Expr], order: Sequence[Index]
) -> Value | None:
    """Sum over binders of the product of args as a recurrence, if it is one."""
    masks = [a for a in args if isinstance(a, Iverson)]
    if not masks:
        return None
    along = running(scope.frame.bounds, binders, conjunction([m.condition for m in masks]))
    if along is None or along.is_strict:
        return None
    rest = [a for a in args if not isinstance(a, Iverson)]
    weights = [a for a in rest if along.index in free_indices(a)]
    if len(weights) != 1:
        return None
    (weight,) = weights
    beside = tuple(i for i in binders if i is not along.binder)
    if free_indices(weight) & set(beside):
        return None
    kept: list[Expr] = [Iverson(conjunction(along.within))] if along.within else []
    kept += [a for a in rest if a is not weight]
    x = kept[0] if len(kept) == 1 else Mul(tuple(kept)) if kept else None
    if beside:
        x = None if x is None else Reduce("sum", beside, x)
        if x is None:
            return None
    found = _Sum(along, x, weight)
    free = {along.index}.union(*(free_indices(a) for a in rest))
    inner = [i for i in order if i in free]
    value = _of_products(scope, found, inner)
    if value is None:
        value = _of_exponentials(scope, found, inner)
    if value is None or not along.outside:
        return value
    zero = Value(literal(0), kind="int", scalar=True)
    return scope.where(scope.condition(conjunction(along.outside), order), value, zero, order)


def _of_products(scope: Scope, found: _Sum, order: Sequence[Index]) -> Value | None:
    """The weight is a product over all positions up to l but k."""
    along, weight = found.along, found.weight
    let = scope.find(weight.tensor) if isinstance(weight, Access) else None
    if let is None or let.kind != "others" or let.condition is None:
        return None
    assert isinstance(weight, Access)
    mapping = dict(zip(let.formals, weight.positions, strict=True))
    if not _is_same(scope.frame.bounds, along, substitute(let.condition, mapping)):
        return None
    body = substitute(let.body, mapping)
    if mapping[let.binders[0]] is not along.index or along.binder in free_indices(body):
        return None
    factors = _laid_out(scope, scope.lower(scope.nested(body), order), order)
    x = _summand(scope, found, order)
    place = scope.frame.position(x.axes, x.axes.index(along.index))
    sides = [factors.code, x.code]
    if not along.is_reversed:
        sides = [Method(side, "flip", (place,)) for side in sides]
    codes: list[Code] = [
        Function("_product_before", (sides[0], place)),
        Function("_recurrence", (sides[1], sides[0], place)),
    ]
    if not along.is_reversed:
        codes = [Method(code, "flip", (place,)) for code in codes]
    return replace(x, code=Binary("*", *codes))


def _of_exponentials(scope: Scope, found: _Sum, order: Sequence[Index]) -> Value | None:
    """The weight is softmax over the positions up to l, read at k, or the other way round."""
    along, weight = found.along, found.weight
    if not isinstance(weight, Normal) or weight.kind != "softmax":
        return None
    if weight.condition is None or weight.level is None:
        return None
    own = substitute(weight.condition, {weight.index: weight.position})
    if not _is_same(scope.frame.bounds, along, own):
        return None
    after = weight.position is along.index
    k, other = (along.index, along.binder) if after else (along.binder, along.index)
    if weight.position is not k or {k, other} & free_indices(weight.body):
        return None
    positions = weight.level.positions
    if [i for i in positions if i is other] != [other] or k in free_indices(weight.level):
        return None
    at = {weight.index: along.index, other: along.index}
    a, level = (scope.lower(substitute(e, at), order) for e in (weight.body, weight.level))
    a, level = (_laid_out(scope, value, order) for value in (a, level))
    # exp(-inf - F) is 0 where F is -inf too, as nothing is exponentiated there.
    least = Attribute(Function("torch.finfo", (Attribute(scope.like, "dtype"),)), "min")
    level = replace(level, code=Method(level.code, "clamp_min", (least,)))
    axes = broadcast(a.axes, level.axes)
    share = Value(Method(Binary("-", a.code, level.code), "exp"), axes)
    x = _summand(scope, found, order)
    if not after:
        x = times(scope.frame, x, share, order)
        level = replace(level, code=Unary("-", level.code))
    place = scope.frame.position(x.axes, x.axes.index(along.index))
    sides = [x.code, level.code]
    if not along.is_reversed:
        sides = [Method(side, "flip", (place,)) for side in sides]
    code: Code = Function("_decayed_sum", (*sides, place))
    if not along.is_reversed:
        code = Method(code, "flip", (place,))
    value = replace(x, code=code)
    return times(scope.frame, value, share, order) if after else value


def _is_same(bounds: Bounds, along: Running, own: Expr) -> bool:
    """Whether the weight's own condition is the comparison of the sum, and nothing else."""
    compared = running(bounds, (along.binder,), own)
    return compared == replace(along, within=(), outside=())


def _summand(scope: Scope, found: _Sum, order: Sequence[Index]) -> Value:
    """x with the index in place of the binder, at full size."""
    if found.x is None:
        return scope.frame.expand(Value(literal(1), scalar=True), order, scope.like)
    x = substitute(found.x, {found.along.binder: found.along.index})
    value = scope.as_float(scope.frame.fit(scope.lower(x, order), order))
    return scope.frame.expand(value, order, scope.like)


def _laid_out(scope: Scope, value: Value, order: Sequence[Index]) -> Value:
    """value with one axis for each index of order, of size 1 where it does not have it."""
    value = scope.frame.fit(scope.as_float(value), order)
    return scope.frame.fill(value, [i if i in value.axes or i.group else None for i in order])
