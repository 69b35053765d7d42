"""Sum_k of a product: a reduction, a contraction or a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive.algebra.expr import Access, Delta, Expr, Index, Iverson, Mul, Reduce, free_indices
from derive.calculus.conditions import conditions_of
from derive.calculus.emptiness import is_singular
from derive.calculus.lets import layout
from derive.lowering.binders import keeps, with_binders
from derive.lowering.code import literal
from derive.lowering.contract import contract, times
from derive.lowering.convolve import convolution, pooled
from derive.lowering.cumulative import cumulative_sum
from derive.lowering.equalities import without_equalities
from derive.lowering.pieces import narrowed
from derive.lowering.recurrences import recurrent_sum
from derive.lowering.scatter import scatter
from derive.lowering.scope import Scope
from derive.lowering.segments import segment_sum
from derive.lowering.value import Value

__all__ = ["lower_sum"]


def lower_sum(
    scope: Scope, binders: Sequence[Index], body: Expr, order: Sequence[Index], name: str = "sum"
) -> Value:
    """Sum over binders of a product."""
    args: Sequence[Expr] = body.args if isinstance(body, Mul) else (body,)
    if any(isinstance(a, Delta) for a in args):
        return scatter(scope, Reduce("sum", tuple(binders), body), order, None)[0]
    simpler = without_equalities(scope.frame.bounds, binders, args) if name == "sum" else None
    if simpler is not None:
        binders, args = simpler
        body = args[0] if len(args) == 1 else Mul(tuple(args))
        return scope.lower(Reduce("sum", tuple(binders), body) if binders else body, order)
    binders, args = narrowed(scope, binders, args)
    convolved = pooled(scope, binders, args) if name == "mean" else None
    if name == "sum":
        convolved = convolution(scope, binders, args, order)
    if convolved is not None:
        return convolved
    if name == "sum":
        for recognised in (cumulative_sum, recurrent_sum, segment_sum):
            found = recognised(scope, binders, args, order)
            if found is not None:
                return found
    body = args[0] if len(args) == 1 else Mul(tuple(args))
    used = [i for i in order if i in free_indices(body)]
    inner = with_binders(used, binders, body)
    asked = [a.condition for a in args if isinstance(a, Iverson)]
    masks = [Iverson(c) for whole in asked for c in conditions_of(whole)]
    rest = [a for a in args if not isinstance(a, Iverson)]
    covered = {m: [a for a in rest if free_indices(m) <= free_indices(a)] for m in masks}
    guards = {a: _guards(scope, a, masks, binders) for a in rest}
    guarded = [_masked(a, [m for m in masks if a in covered[m] or m in guards[a]]) for a in rest]
    operands = [_operand(scope, a) for a in guarded]
    lost = [i for i in binders if operands and all(i not in v.indices for v in operands)]
    if lost:
        # Of where(c, a, b[i]) only a is left where c is certain: still as often as i has values.
        first = operands[0]
        axes = [i for i in inner if i in first.indices or i in lost]
        operands[0] = scope.frame.expand(first, axes, scope.like)
    if name == "sum" and len(operands) > 1 and _is_contraction(operands, inner):
        operands = _mask_product(scope, operands, [m for m in masks if not covered[m]], inner)
        value = contract(scope.frame, operands, binders, inner)
        return value
    if not rest:
        whole = scope.lower(Mul(tuple(masks)), inner)
        if whole.kind == "bool" and not whole.scalar:
            whole = replace(whole, kind="int")
    else:
        whole = scope.lower(Mul(tuple(args)), inner)
    if None in whole.axes or set(whole.axes) != set(inner) or keeps(inner, binders, used, order):
        whole = scope.frame.fit(whole, inner)
    if whole.scalar or any(i not in whole.axes for i in binders):
        whole = scope.frame.expand(whole, inner, scope.like)
    if whole.kind == "float" or name == "mean":
        whole = scope.as_float(whole)
    which = [n for n, i in enumerate(whole.axes) if i in binders]
    keep = whole.axes == tuple(inner) and keeps(inner, binders, used, order)
    return scope.frame.reduce(whole, name, which, keep, whole.kind)


def _guards(
    scope: Scope, a: Expr, masks: Sequence[Iverson], binders: Sequence[Index]
) -> list[Iverson]:
    """The masks with more indices than a factor that may be infinite, which they keep out.

    [c(p,j)]*x[p,j]/b[j] is not [c(p,j)]*x[p,j] times 1/b[j]: c says nothing of that alone. Where b
    lacks summed indices only, whether any of them meets c is asked by a bracket of its own.
    """
    let = scope.find(a.tensor) if isinstance(a, Access) else None
    inside = [f for t in let.body.terms for f in t.factors] if let is not None else [a]
    if not any(map(is_singular, inside)):
        return []
    own = free_indices(a)
    return [m for m in masks if free_indices(m) & own and free_indices(m) - own - set(binders)]


def _operand(scope: Scope, a: Expr) -> Value:
    return scope.as_float(scope.lower(a, layout(a)))


def _is_contraction(operands: Sequence[Value], order: Sequence[Index]) -> bool:
    """Whether some operand lacks an index of another: no elementwise product of equals."""
    tensors = [v for v in operands if not v.scalar]
    sets = {frozenset(v.indices) for v in tensors}
    return len(sets) > 1 and len(tensors) == len(operands)


def _masked(a: Expr, masks: Sequence[Iverson]) -> Expr:
    return Mul((*masks, a)) if masks else a


def _mask_product(
    scope: Scope, operands: list[Value], masks: Sequence[Iverson], order: Sequence[Index]
) -> list[Value]:
    """Each mask that no operand has the indices of, applied to a product of some that has."""
    for mask in masks:
        needed = free_indices(mask)
        whole, *rest = operands
        while rest and not needed <= frozenset(whole.indices):
            whole = times(scope.frame, whole, rest.pop(0), order)
        inside = [i for i in order if i in needed or i in whole.indices]
        whole = scope.frame.expand(whole, inside, scope.like)
        test = scope.condition(mask.condition, inside)
        zero = Value(literal(0), kind="int", scalar=True)
        operands = [scope.where(test, whole, zero, inside), *rest]
    return operands
