"""Conditions as bool tensors; a condition that reads no tensor is a Python bool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive.algebra.expr import (
    MIRRORED,
    Access,
    And,
    Call,
    Delta,
    Expr,
    Iverson,
    Not,
    Num,
    Or,
    Param,
    Rel,
    accesses,
    free_indices,
)
from derive.algebra.factor import factor
from derive.errors import LoweringError
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Indices, Value, broadcast
from derive.lowering.nodes.access import lower_access
from derive.program.torch_ir import Attribute, Binary, Literal, Name, Unary, replaced


def lower_condition(scope: Scope, e: Expr, order: Indices) -> Value:
    """Lower a condition to a bool tensor, or to a Python bool if it reads no tensor."""
    free = free_indices(e)
    order = [i for i in order if i in free]
    match e:
        case Rel(op, left, right):
            if op in ("!=", "==") and isinstance(left, Expr):
                left, right = factor(left), factor(right)
                if isinstance(left, Num | Param):
                    left, right = right, left
            left, right = _below_logarithm(op, left, right)
            sides = (_comparison_side(scope, side, order) for side in (left, right))
            a, b = (scope.frame.fit(side, order) for side in sides)
            if a.scalar and not b.scalar:
                return Value(Binary(MIRRORED[op], b.code, a.code), b.axes, "bool")
            code = Binary(op, a.code, b.code)
            both = a.scalar and b.scalar
            return Value(code, broadcast(a.axes, b.axes), "bool", both)
        case Not(arg):
            return _negated(scope.condition(arg, order))
        case And(args) | Or(args):
            return _logical(scope, "&" if isinstance(e, And) else "|", args, order)
        case Access():
            return scope.frame.fit(lower_access(scope, e), order)
        case Delta(axis, position):
            return lower_condition(scope, Rel("==", axis, position), order)
        case Iverson(condition):
            return scope.condition(condition, order)
    raise LoweringError(f"no torch code for the condition {e!r}")


def _below_logarithm(op: str, left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Rewrite c <= log(x) as exp(c) <= x, which is false for negative x too."""
    match op, factor(left), factor(right):
        case "<" | "<=", Num() as c, Call("log", (x,)):
            return Call("exp", (c,)), x
    return left, right


def _comparison_side(scope: Scope, e: Expr, order: Indices) -> Value:
    """Return one side of a comparison; positions are exact in any dtype of the tensors."""
    value = scope.lower(factor(e), order)
    if any(scope.tensor(a.tensor).kind == "float" for a in accesses(e)):
        return value
    dtype = Attribute(scope.like, "dtype")
    return replace(value, code=replaced(value.code, {dtype: Name("torch.float64")}))


def _logical(scope: Scope, op: str, args: Sequence[Expr], order: Indices) -> Value:
    values = [scope.frame.fit(scope.condition(a, order), order) for a in args]
    if not values:
        return Value(Literal("True" if op == "&" else "False"), (), "bool", True)
    return _join_conditions(op, values)


def _negated(value: Value) -> Value:
    return replace(value, code=Unary("not" if value.scalar else "~", value.code))


def _join_conditions(op: str, values: Sequence[Value]) -> Value:
    word = {"&": "and", "|": "or"}[op]
    result = values[0]
    for value in values[1:]:
        both = result.scalar and value.scalar
        code = Binary(word if both else op, result.code, value.code)
        result = Value(code, broadcast(result.axes, value.axes), "bool", both)
    return result
