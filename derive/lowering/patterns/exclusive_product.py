"""The product over all other positions along an axis."""

from __future__ import annotations

from derive.algebra.reductions import OTHERS
from derive.calculus.lets import Let
from derive.errors import LoweringError
from derive.lowering.ground.context import Scope, neutral
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.value import Value
from derive.program.torch_ir import FunctionCall


def product_of_others(scope: Scope, let: Let) -> Value | None:
    """Prod_{j != k} f(j) as prefix times suffix product: no quotient, so zeros are fine."""
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
    code = FunctionCall("_product_of_others", (value.code, scope.frame.place(value, k)))
    return Value(code, value.axes)
