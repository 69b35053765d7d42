"""Scalar functions and softmaxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from derive.algebra.expr import Call, Index, Num, free_indices
from derive.algebra.functions import FUNCTIONS
from derive.algebra.reference_values import function_at
from derive.algebra.substitution import fresh, substitute
from derive.calculus.softmax import NormalizedExp
from derive.lowering.ground.axis_order import with_binders
from derive.lowering.ground.context import Scope
from derive.lowering.ground.guard_lowering import under_condition
from derive.lowering.ground.numbers import math_call, whole_divisor
from derive.lowering.ground.value import Indices, Value, broadcast
from derive.lowering.nodes.access import read
from derive.lowering.nodes.products import chain
from derive.notation.operation import Kind
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    text,
)


def lower_call(scope: Scope, e: Call, order: Indices) -> Value:
    """Lower f(a, ...) to the torch function of the table, or to a number if all arguments are."""
    args = [scope.lower(a, order) for a in e.args]
    if e.function == "floordiv":
        kind: Kind = "float" if any(a.kind == "float" for a in args) else "int"
        args = [args[0], whole_divisor(scope.frame, *args)]
        return replace(chain(scope, "//", args, order), kind=kind)
    if e.function == "int":
        return _truncate_to_int(scope, args[0], order)
    if e.function in _OF_INTEGERS and {a.kind for a in args} == {"int"}:
        # A position as a float of 16 bits would be rounded.
        fitted = [scope.frame.fit(a, order) for a in args]
        if (made := _of_integers(e, fitted)) is not None:
            return made
    if e.function != "detach":
        args = [scope.as_float(a) for a in args]
    args = [scope.frame.fit(a, order) for a in args]
    made = _python_function(e, args) or _tensor_with_numbers(e, args)
    return made or _tensor_function(scope, e, args)


_OF_INTEGERS = {"abs": "", "clamp": "", "maximum": "min", "minimum": "max"}
"""Functions that are integers at integers, and the bound of clamp that says them of a number."""


def _of_integers(e: Call, args: Sequence[Value]) -> Value | None:
    """Return a function of integer tensors, or of one and numbers; None for numbers alone."""
    tensors = [a for a in args if not a.scalar]
    numbers = [a.code for a in args if a.scalar]
    if not tensors or (e.function == "clamp" and tensors != [args[0]]):
        return None
    if len(tensors) > 1:
        both = FunctionCall(f"torch.{e.function}", tuple(a.code for a in args))
        return Value(both, broadcast(*(a.axes for a in tensors)), "int")
    bound = _OF_INTEGERS[e.function]
    given = [Keyword(bound, n) for n in numbers] if bound else numbers
    return tensors[0].call("clamp" if bound else e.function, *given)


def _truncate_to_int(scope: Scope, value: Value, order: Indices) -> Value:
    if value.kind != "float":
        return value
    if value.scalar:
        return replace(value, code=FunctionCall("int", (value.code,)), kind="int")
    return replace(scope.frame.fit(value, order).call("long"), kind="int")


def _python_function(e: Call, args: Sequence[Value]) -> Value | None:
    """Return the function of Python numbers, if the math module has it."""
    function = FUNCTIONS[e.function]
    if not function.in_math or not all(a.scalar for a in args):
        return None
    constants = [float(a.value) for a in e.args if isinstance(a, Num)]
    if len(constants) == len(args) and not isfinite(value := function_at(e.function, *constants)):
        # math.log(0) raises an exception.
        return Value(Literal("-math.inf" if value < 0 else f"math.{value}"), scalar=True)
    return Value(math_call(e.function, *(a.code for a in args)), scalar=True)


def _tensor_with_numbers(e: Call, args: Sequence[Value]) -> Value | None:
    """Return a function of one tensor whose other arguments are numbers."""
    x, *rest = args
    numbers = not x.scalar and bool(rest) and all(a.scalar for a in rest)
    if e.function == "polygamma":
        return replace(rest[0], code=FunctionCall("torch.polygamma", (x.code, rest[0].code)))
    if e.function == "pow" and numbers:
        return replace(x, code=Binary("**", x.code, rest[0].code))
    if e.function == "clamp" and numbers:
        return replace(x, code=_clamped(*(a.code for a in args)))
    return None


def _tensor_function(scope: Scope, e: Call, args: Sequence[Value]) -> Value:
    if all(a.scalar for a in args) or len(args) > 1:
        args = [scope.as_tensor(a) for a in args]
    axes: tuple[Index | None, ...] = ()
    for a in args:
        axes = broadcast(axes, a.axes)
    function = FUNCTIONS[e.function]
    code: Code = FunctionCall(f"torch.{function.torch}", tuple(a.code for a in args))
    if function.torch_method is not None:
        code = MethodCall(args[0].code, function.torch_method, tuple(a.code for a in args[1:]))
    return Value(code, axes, args[0].kind if e.function == "detach" else "float")


def _clamped(x: Code, low: Code, high: Code) -> Code:
    """Clamp x between two numbers; an infinite bound is dropped."""
    bounds = {"min": low, "max": high}
    given = {name: code for name, code in bounds.items() if text(code).lstrip("-") != "math.inf"}
    if len(given) == 2:
        return MethodCall(x, "clamp", (low, high))
    return MethodCall(x, "clamp", tuple(Keyword(name, code) for name, code in given.items()))


def lower_normal(scope: Scope, e: NormalizedExp, order: Indices) -> Value:
    """Lower a softmax along its index, then read it at its position."""
    parts = (e.body,) if e.condition is None else (e.body, e.condition)
    inside = frozenset().union(*map(free_indices, parts)) - {e.index}
    at = e.position
    # An index of another size covers only a part of the normalized axis.
    if isinstance(at, Index) and at not in inside and at.extent == e.index.extent:
        return _softmax_along(scope, e, at, order)
    used = [i for i in order if i in inside]
    k = fresh(e.index, order)
    around = with_binders(used, (k,), substitute(e.body, {e.index: k}))
    value = scope.frame.expand(_softmax_along(scope, e, k, around), around, scope.like)
    return read(scope, value, around.index(k), e.position)


def _softmax_along(scope: Scope, e: NormalizedExp, k: Index, order: Indices) -> Value:
    body = substitute(e.body, {e.index: k})
    condition = None if e.condition is None else substitute(e.condition, {e.index: k})
    if condition is not None:
        body = under_condition(body, condition)
    value = scope.frame.fit(scope.as_float(scope.lower(body, order)), order)
    if condition is not None:
        # A finite fill value avoids nan in fully masked rows; the caller masks these.
        bound = Attribute(FunctionCall("torch.finfo", (Attribute(scope.like, "dtype"),)), "min")
        test = scope.condition(condition, order)
        value = scope.where(test, value, Value(bound, scalar=True), order)
    if k not in value.axes:
        value = scope.frame.expand(value, order, scope.like)
    place = scope.frame.place(value, k)
    return replace(value, code=FunctionCall(f"torch.{e.kind}", (value.code, place)))
