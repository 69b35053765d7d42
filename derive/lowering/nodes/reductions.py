"""Reductions other than sums; each is an equation of its own."""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Index, Iverson
from derive.algebra.poly import as_atom
from derive.calculus.lets import Let
from derive.calculus.value_analysis import ValueFacts
from derive.lowering.ground.axis_order import with_binders
from derive.lowering.ground.context import Scope, neutral
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.pattern import first_match
from derive.lowering.ground.value import Value, broadcast
from derive.lowering.patterns import REDUCED
from derive.program.torch_ir import Attribute, Binary, FunctionCall, Unary

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
    if let.condition is not None and not let.compared and let.reduction.dtype != "bool":
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
    if let.reduction.dtype == "bool":
        axes = broadcast(test.axes, value.axes)
        if let.kind == "any":
            return Value(Binary("&", test.code, value.code), axes, "bool")
        return Value(Binary("|", Unary("~", test.code), value.code), axes, "bool")
    if let.reduction.dtype == "int" and not ValueFacts(scope.find).facts(let.body).defined:
        # An infinite member must win against a masked-out one.
        clamp, bound = _BOUNDS[let.reduction.sign]
        limits = FunctionCall("torch.finfo", (Attribute(scope.like, "dtype"),))
        value = scope.as_float(value)
        value = value if value.scalar else value.call(clamp, Attribute(limits, bound))
    return scope.where(test, value, neutral(let), order)
