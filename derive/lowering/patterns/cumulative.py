"""Reductions over all positions up to the current one: cumulative calls along the axis.

    Sum_l [l <= k] f(l)  =  cumsum(f)[k]
    Sum_l [l <  k] f(l)  =  cumsum of f, shifted by one position
    Sum_l [l >= k] f(l)  =  flip(cumsum(flip(f)))[k]
    Sum_{l,d} [l <= k] w(k, d) f(l, d)  =  Sum_d w(k, d) cumsum(f)[k, d]

l and k have the same extent, and only the condition and w may contain k. If a product with a
masked matrix of all k and l is cheaper, it replaces the weighted form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import Expr, Index, Iverson, Rel, free_indices, indices_of
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.reductions import OTHERS
from derive.calculus.lets import Let
from derive.errors import LoweringError
from derive.lowering.ground.axis_order import common_axis_order, with_binders
from derive.lowering.ground.context import Scope, neutral
from derive.lowering.ground.contract import JoinedOperands, contract, joins
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value
from derive.lowering.ground.windows import zero_padded
from derive.program.torch_ir import Code, Dim, FunctionCall, MethodCall, Name, Unary, literal


@dataclass(frozen=True)
class Running:
    """binder <= index, or binder >= index if reversed; strict excludes equality."""

    binder: Index
    index: Index
    is_reversed: bool
    is_strict: bool
    within: tuple[Expr, ...] = ()
    """The other conditions of the summand."""
    outside: tuple[Expr, ...] = ()
    """Conditions on the index alone."""


def running(
    bounds: Bounds, binders: Indices, condition: Expr, factors: Sequence[Expr] = ()
) -> Running | None:
    """Return the condition as a comparison of a binder with an index of the same extent.

    Of several, it is one with an index that no factor has, if there is one.
    """
    conditions, candidates = conditions_of(condition), []
    for c in conditions:
        found = compared_indices(bounds, binders, c)
        if found is None:
            continue
        others = [x for x in conditions if x is not c]
        outside = tuple(x for x in others if free_indices(x).isdisjoint(binders))
        within = tuple(x for x in others if x not in outside)
        if found.index not in indices_of(within):
            candidates.append(replace(found, within=within, outside=outside))
    free = indices_of(factors)
    return min(candidates, key=lambda found: found.index in free, default=None)


def compared_indices(bounds: Bounds, binders: Indices, c: Expr) -> Running | None:
    """Return the relation if it is 0 <= +-(binder - index) or 0 < +-(binder - index)."""
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
    """Sum over binders of x*weights, where only the weights have the compared index."""

    along: Running
    x: Expr
    """The factors without the weights, summed over all binders but the compared one."""
    weights: tuple[Expr, ...]
    whole: Summation


def running_sum(scope: Scope, s: Summation) -> RunningSum | None:
    """Return the sum as one over the positions on one side of an index, else None."""
    if not s.brackets:
        return None
    along = running(scope.frame.bounds, s.binders, s.condition, s.others)
    if along is None:
        return None
    beside = tuple(i for i in s.binders if i is not along.binder)
    weights = tuple(f for f in s.others if along.index in free_indices(f))
    kept: list[Expr] = [Iverson(conjunction(along.within))] if along.within else []
    kept += [f for f in s.others if f not in weights]
    return RunningSum(along, summed_product(beside, kept), weights, s)


def from_either_end(code: Code, place: Code, turned: bool) -> Code:
    """Return the code, flipped along the axis if ``turned``."""
    return MethodCall(code, "flip", (place,)) if turned else code


def where_outside(scope: Scope, found: RunningSum, value: Value) -> Value:
    """Return the value masked by the conditions on the index alone."""
    if not found.along.outside:
        return value
    return scope.only_where(conjunction(found.along.outside), value, found.whole.order)


def cumulative_sum(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [l <= k] f(l) = cumsum(f)[k]."""
    found = running_sum(scope, s)
    if found is None or found.weights or not s.others:
        return None
    if found.along.binder not in free_indices(found.x):
        return None
    inner = [found.along.binder if i is found.along.index else i for i in s.order]
    value = scope.frame.fit(scope.lower(found.x, inner), inner)
    if value.kind == "bool":
        value = scope.as_float(value)
    return where_outside(scope, found, _cumulative_call(scope, value, found.along, "cumsum"))


def weighted_cumulative_sum(scope: Scope, s: Summation) -> Value | None:
    """Sum_{l,d} [l <= k] w(k, d) f(l, d) = Sum_d w(k, d) cumsum(f)[k, d]."""
    found = running_sum(scope, s)
    if found is None or not found.weights or found.along.outside:
        return None
    along = found.along
    weighing = frozenset[Index]().union(*map(free_indices, found.weights))
    if along.binder in weighing or along.binder not in free_indices(found.x):
        return None
    shared = [i for i in s.binders if i in weighing]
    inside = tuple(i for i in s.binders if i is not along.binder and i not in shared)
    kept = [f for f in s.factors if f not in found.weights and not isinstance(f, Iverson)]
    kept += [Iverson(c) for c in along.within]
    if not _is_cheaper(along, kept, found.weights, shared, inside):
        return None
    x = summed_product(inside, kept)
    whole = with_binders([i for i in s.order if i in free_indices(s.expr)], shared, s.expr)
    inner = [along.binder if i is along.index else i for i in whole]
    value = scope.as_float(scope.frame.fit(scope.lower(x, inner), inner))
    value = scope.frame.squeeze(_cumulative_call(scope, value, along, "cumsum"))
    weights = [scope.as_float(scope.lower(w, common_axis_order(w))) for w in found.weights]
    return contract(scope.frame, [*weights, value], shared, whole)


def _is_cheaper(
    along: Running, kept: Sequence[Expr], weights: Sequence[Expr], shared: Indices, inside: Indices
) -> bool:
    """True if the cumulative sum has fewer multiplications than the masked product.

    For equal numbers, true if its largest tensor is not larger.
    """
    have = [free_indices(w) for w in weights]
    own = [free_indices(f) for f in kept]
    x = frozenset[Index]().union(*own).difference(inside)
    moved = frozenset(along.index if i is along.binder else i for i in x)
    cumulative = [*joins(own, inside), *joins([*have, moved], shared)]
    compared = frozenset((along.index, along.binder))
    masked = joins([*have, *own], [*shared, *inside, along.binder], [compared])
    return _join_cost(cumulative, x) <= _join_cost(masked, frozenset())


def _join_cost(joints: Iterable[JoinedOperands], least: frozenset[Index]) -> tuple[int, int]:
    """Return the number of indices of the largest product, and of the largest tensor."""
    found = [(least, least), *((j.indices, j.result) for j in joints)]
    return max(len(i) for i, _ in found), max(len(r) for _, r in found)


def cumulative_reduction(scope: Scope, let: Let) -> Value | None:
    """prod_{l <= k} f(l) = cumprod(f)[k].

    The same for logsumexp and extrema. What other conditions exclude is replaced by the neutral
    element.
    """
    name = let.reduction.cumulative
    if not name or let.condition is None or len(let.binders) > 1:
        return None
    along = running(scope.frame.bounds, let.binders, let.condition)
    if along is None or along.outside:
        return None
    if along.is_strict and name != "cumprod":
        return None
    free = free_indices(let.body)
    if along.index in free or along.binder not in free:
        return None
    order = [along.binder if i is along.index else i for i in let.formals]
    body = scope.nested(let.body)
    if along.within:
        body = under_condition(body, conjunction(along.within))
    value = scope.frame.fit(scope.lower(body, order), order)
    if along.within:
        # The first of nothing is 0, and no element that is left out may be a winner.
        if value.kind != "float" or let.reduction.part == "indices":
            return None
        test = scope.condition(conjunction(along.within), order)
        value = scope.where(test, value, neutral(let), order)
    if not let.reduction.sign:
        return _cumulative_call(scope, scope.as_float(value), along, name)
    sign = let.reduction.sign
    value = _signed(scope.as_float(value) if value.kind == "bool" else value, sign)
    n = value.axes.index(along.binder)
    args = [value.code, scope.frame.position(value.axes, n)]
    code = FunctionCall(name, (*args, *[Name("True")] * along.is_reversed))
    found = replace(value, code=code).at(n, along.index)
    is_position = let.reduction.part == "indices"
    return replace(found, kind="int") if is_position else _signed(found, sign)


def _signed(value: Value, sign: int) -> Value:
    return replace(value, code=Unary("-", value.code)) if sign < 0 else value


def _cumulative_call(scope: Scope, value: Value, along: Running, name: str) -> Value:
    """Return value.name(axis) from either end; its axis has the index instead of the binder."""
    n = value.axes.index(along.binder)
    place = scope.frame.position(value.axes, n)
    value = replace(value, code=from_either_end(value.code, place, along.is_reversed))
    shifted = along.is_strict and name == "cumsum"
    if shifted:
        value = zero_padded(scope, value, n, literal(1), literal(0))
    if along.is_strict and not shifted:
        code = FunctionCall("rt.exclusive_cumprod", (value.code, place))
        value = replace(value, code=code)
    else:
        value = value.call(name, place)
    if shifted:
        value = value.call("narrow", place, literal(0), Dim(along.binder.extent))
    value = replace(value, code=from_either_end(value.code, place, along.is_reversed))
    return value.at(n, along.index)


# --------------------------------------------------------------------
# The product over all other positions along an axis.


def product_of_others(scope: Scope, let: Let) -> Value | None:
    """Prod_{j != k} f(j) = Prod_{j<k} f Prod_{j>k} f.

    Without a quotient, zeros are fine.
    """
    if let.reduction is not OTHERS:
        return None
    (k,) = let.binders
    body = scope.nested(let.body)
    if let.condition is not None:
        body = under_condition(body, let.condition)
    value = scope.as_float(scope.lower(body, let.formals))
    if let.condition is not None:
        test = scope.condition(let.condition, let.formals)
        value = scope.where(test, value, neutral(let), let.formals)
    if k not in let.formals:
        raise LoweringError(
            f"no torch code for a product over {k.name} whose factor does not depend on {k.name}"
        )
    value = scope.frame.expand(value, let.formals, scope.like)
    code = FunctionCall("rt.exclusive_prod", (value.code, scope.frame.place(value, k)))
    return Value(code, value.axes)
