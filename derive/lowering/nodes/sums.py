"""Sum_k of a product: by a pattern, as a contraction, or as a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from derive.algebra.expr import Delta, Index, Iverson, Mul, free_indices, product_of
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import as_atom
from derive.calculus.lets import Let
from derive.calculus.value_analysis import ValueFacts
from derive.lowering.ground.axis_order import binders_behind, common_axis_order, keeps, with_binders
from derive.lowering.ground.context import Scope, neutral
from derive.lowering.ground.contract import Mask, contract, elementwise_product
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.pattern import first_match
from derive.lowering.ground.summation import Summation, masked_triangle
from derive.lowering.ground.value import Indices, Value
from derive.lowering.nodes.access import lower_placed
from derive.lowering.patterns import MEANS, REDUCED, SUMS
from derive.program.torch_ir import Attribute, FunctionCall


def lower_sum(scope: Scope, s: Summation) -> Value:
    """Lower the sum over binders of a product."""
    if any(isinstance(f, Delta) for f in s.factors):
        return lower_placed(scope, s)[0]
    made = first_match(SUMS, scope, s)
    if made is not None:
        return made
    body, spread = product_of(s.factors), _map_layout(s)
    inner = with_binders([i for i in s.order if i in free_indices(body)], s.binders, body)
    operands = _masked_factors(scope, s, inner)
    if all(v.kind != "float" for v in operands):
        # A product of matrices would be computed in floats, which have fewer digits.
        return _lower_reduced_product(scope, s, spread, "sum")
    operands = [scope.as_float(v) for v in operands]
    if len(operands) > 1 and _is_tensor_contraction(operands):
        operands, masks = _apply_masks(scope, operands, _uncovered(s), inner)
        return contract(scope.frame, operands, s.binders, inner, masks)
    if len(operands) == 1 and (mask := _as_operand(scope, s, operands[0], inner)) is not None:
        return contract(scope.frame, [mask, *operands], s.binders, inner)
    return _lower_reduced_product(scope, s, spread, "sum")


def lower_mean(scope: Scope, s: Summation) -> Value:
    """Lower the sum over binders of a product, divided by the number of terms."""
    return first_match(MEANS, scope, s) or _lower_reduced_product(scope, s, _map_layout(s), "mean")


def _map_layout(s: Summation) -> tuple[Index, ...]:
    """Return the layout of a summand that maps several tensors."""
    body = product_of(s.factors)
    return binders_behind([i for i in s.order if i in free_indices(body)], s.binders, body)


def _lower_reduced_product(
    scope: Scope, s: Summation, inner: tuple[Index, ...], name: str
) -> Value:
    """Return the product as one tensor, reduced along the axes of the binders."""
    used = [i for i in inner if i not in s.binders]
    keep = keeps(inner, s.binders, used, s.order)
    if s.others:
        whole = scope.lower(Mul(s.factors), inner)
    else:
        whole = scope.lower(Mul(tuple(_masks(s))), inner)
        if whole.kind == "bool" and not whole.scalar:
            whole = replace(whole, kind="int")
    if None in whole.axes or set(whole.axes) != set(inner) or keep:
        whole = scope.frame.fit(whole, inner)
    if whole.scalar or any(i not in whole.axes for i in s.binders):
        whole = scope.frame.expand(whole, inner, scope.like)
    if whole.kind == "float" or name == "mean":
        whole = scope.as_float(whole)
    which = [n for n, i in enumerate(whole.axes) if i in s.binders]
    return scope.frame.reduce(whole, name, which, keep and whole.axes == inner, whole.kind)


def _masks(s: Summation) -> list[Iverson]:
    """Return the brackets, one for each condition."""
    return [Iverson(c) for b in s.brackets for c in conditions_of(b.condition)]


def _uncovered(s: Summation) -> list[Iverson]:
    """Return the masks whose indices no single factor covers."""
    have = [free_indices(a) for a in s.others]
    return [m for m in _masks(s) if not any(free_indices(m) <= own for own in have)]


def _masked_factors(scope: Scope, s: Summation, inner: Indices) -> list[Value]:
    """Return the factors, each under the brackets whose indices it has."""
    masks, operands = _masks(s), []
    for a in s.others:
        own = [m for m in masks if free_indices(m) <= free_indices(a)]
        masked = Mul((*own, a)) if own else a
        operands.append(scope.lower(masked, common_axis_order(masked)))
    lost = [i for i in s.binders if operands and all(i not in v.indices for v in operands)]
    if lost:
        # If c is certain, where(c, a, b[i]) is a: it is still summed over every i.
        first = operands[0]
        axes = [i for i in inner if i in first.indices or i in lost]
        operands[0] = scope.frame.expand(first, axes, scope.like)
    return operands


def _is_tensor_contraction(operands: Sequence[Value]) -> bool:
    """True if some operand lacks an index of another."""
    tensors = [v for v in operands if not v.scalar]
    sets = {frozenset(v.indices) for v in tensors}
    return len(sets) > 1 and len(tensors) == len(operands)


def _as_operand(scope: Scope, s: Summation, value: Value, order: Indices) -> Value | None:
    """Return the brackets as numbers, to be multiplied by the only factor and summed.

    None if the product, masked, has no more axes than one of the two.
    """
    uncovered = _uncovered(s)
    indices = free_indices(product_of(uncovered))
    own, bound = frozenset(value.indices), frozenset(s.binders)
    if indices <= own or own <= indices or not bound & indices & own or not bound <= own:
        return None
    test = scope.condition(conjunction([m.condition for m in uncovered]), order)
    return None if test.scalar else scope.as_float(test)


def _apply_masks(
    scope: Scope, operands: list[Value], brackets: Sequence[Iverson], order: Indices
) -> tuple[list[Value], list[Mask]]:
    """Return the operands, and masks for brackets whose indices no single operand covers.

    If no operand has some index of a bracket, operands whose indices are all in the bracket get it.
    Otherwise the operand that shares most indices with the bracket gets it.
    """
    masks: list[Mask] = []
    for bracket in brackets:
        needed, mask = free_indices(bracket), _mask(scope, bracket, order)
        if not needed <= frozenset(i for v in operands for i in v.indices):
            own = [v for v in operands if needed >= frozenset(v.indices)]
            own = own or [max(operands, key=lambda v: len(needed.intersection(v.indices)))]
            inside = [i for i in order if i in needed or i in own[0].indices]
            whole = reduce(lambda a, b: elementwise_product(scope.frame, a, b, order), own)
            operands = [v for v in operands if v not in own]
            operands.insert(0, scope.frame.expand(whole, inside, scope.like))
        masks.append(mask)
        # What was put together for this bracket may have all indices of one before it.
        operands, masks = _applied(operands, masks)
    return operands, masks


def _applied(operands: list[Value], masks: Sequence[Mask]) -> tuple[list[Value], list[Mask]]:
    """The operands with the masks whose indices one of them has, and the other masks."""
    left = []
    for mask in masks:
        covering = [v for v in operands if mask.indices <= frozenset(v.indices)]
        if covering:
            operands = [mask.applied(v) if v is covering[0] else v for v in operands]
        else:
            left.append(mask)
    return operands, left


def _mask(scope: Scope, bracket: Iverson, order: Indices) -> Mask:
    """Return the bracket as a mask of values that have its indices."""

    def applied(value: Value) -> Value:
        inside = [i for i in order if i in value.indices]
        return masked_triangle(scope, bracket.condition, value, inside)

    return Mask(free_indices(bracket), applied)


# --------------------------------------------------------------------
# Reductions other than sums; each is an equation of its own.

_BOUNDS = {1: ("clamp_min", "min"), -1: ("clamp_max", "max")}
"""The clamp of infinite values to the extreme finite number, by the sign of the extremum."""


def lower_reduction(scope: Scope, let: Let) -> Value:
    """Return the reduction of the body over its binders, restricted to the condition."""
    made = first_match(REDUCED, scope, let)
    if made is not None:
        return made
    order = with_binders(let.formals, let.binders, let.body)
    value = _reduced_body(scope, let, order)
    around = tuple(i for i in value.axes if i not in let.binders)
    if around != let.formals or let.condition is not None:
        value = scope.frame.fit(value, order)
    if any(i not in value.axes for i in let.binders):
        value = scope.frame.expand(value, order, scope.like)
    if let.condition is not None:
        value = scope.frame.expand(_masked_members(scope, let, value, order), order, scope.like)
    which = [n for n, i in enumerate(value.axes) if i in let.binders]
    row = let.reduction
    kind = value.kind if row.is_smooth else let.dtype
    reduced = scope.frame.reduce(value, let.kind, which, False, kind)
    # (values, indices): of max(dim), whose gradient goes to the first winner, and its position.
    return replace(reduced, code=Attribute(reduced.code, row.part)) if row.part else reduced


def _reduced_body(scope: Scope, let: Let, order: tuple[Index, ...]) -> Value:
    """Return the reduced tensor in a kind that torch reduces."""
    body = scope.nested(let.body)
    # The comparison with an extremum is exact only if both read the same tensor.
    if let.condition is not None and not let.compared:
        body = under_condition(body, let.condition)
    bracket = as_atom(let.body) if let.reduction.dtype == "bool" else None
    if isinstance(bracket, Iverson):
        return scope.condition(bracket.condition, order)
    value = scope.lower(body, order)
    return scope.as_float(value) if let.reduction.is_smooth else value


def _masked_members(scope: Scope, let: Let, value: Value, order: tuple[Index, ...]) -> Value:
    """Return the value where the condition holds, else the neutral element."""
    assert let.condition is not None
    test = scope.condition(let.condition, order)
    if let.reduction.dtype == "int" and not ValueFacts(scope.find).facts(let.body).defined:
        # An infinite member must win against a masked-out one.
        clamp, bound = _BOUNDS[let.reduction.sign]
        limits = FunctionCall("torch.finfo", (Attribute(scope.like, "dtype"),))
        value = scope.as_float(value)
        value = value if value.scalar else value.call(clamp, Attribute(limits, bound))
    return scope.where(test, value, neutral(let), order)
