"""Scalar functions and normalised exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from derive.algebra.expr import Call, Index, Num, free_indices
from derive.algebra.functions import FUNCTIONS
from derive.algebra.substitution import fresh, substitute
from derive.lowering.access import read
from derive.lowering.binders import with_binders
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Function,
    Keyword,
    Literal,
    Method,
    text,
)
from derive.lowering.guarded import protected
from derive.lowering.products import chain
from derive.lowering.recognise import Normal
from derive.lowering.scope import Scope
from derive.lowering.value import Value, broadcast


def lower_call(scope: Scope, e: Call, order: Sequence[Index]) -> Value:
    """f(a, ...) as the torch function of the table, or as a number where all arguments are."""
    args = [scope.lower(a, order) for a in e.args]
    if e.function == "floordiv":
        return replace(chain(scope, "//", args, order), kind="int")
    if e.function == "int" and (args[0].kind != "float" or args[0].scalar):
        whole = args[0].kind != "float"
        return (
            args[0]
            if whole
            else replace(args[0], code=Function("int", (args[0].code,)), kind="int")
        )
    if e.function != "detach":
        args = [scope.as_float(a) for a in args]
    args = [scope.frame.fit(a, order) for a in args]
    function = FUNCTIONS[e.function]
    code: Code
    if all(a.scalar for a in args) and function.in_math:
        constants = [float(a.value) for a in e.args if isinstance(a, Num)]
        if len(constants) == len(args) and not isfinite(value := function.numpy(*constants)):
            # Python's log(0) is an error.
            return Value(Literal("-math.inf" if value < 0 else f"math.{value}"), scalar=True)
        code = Function(f"math.{e.function}", tuple(a.code for a in args))
        return Value(code, scalar=True)
    if e.function == "polygamma":
        n, x = args
        return replace(x, code=Function("torch.polygamma", (n.code, x.code)))
    if e.function == "pow" and args[1].scalar and not args[0].scalar:
        return replace(args[0], code=Binary("**", args[0].code, args[1].code))
    numbers = e.function == "clamp" and all(a.scalar for a in args[1:])
    if numbers and not args[0].scalar:
        return replace(args[0], code=_clamped(*(a.code for a in args)))
    if all(a.scalar for a in args) or (len(args) > 1 and not numbers):
        args = [scope.as_tensor(a) for a in args]
    axes: tuple[Index | None, ...] = ()
    for a in args:
        axes = broadcast(axes, a.axes)
    if e.function == "int":
        code = Method(args[0].code, "long")
    elif function.torch_method is not None:
        rest = tuple(a.code for a in args[1:])
        code = Method(args[0].code, function.torch_method, rest)
    else:
        code = Function(f"torch.{function.torch}", tuple(a.code for a in args))
    if e.function == "int":
        return Value(code, axes, "int")
    return Value(code, axes, args[0].kind if e.function == "detach" else "float")


def _clamped(x: Code, low: Code, high: Code) -> Code:
    """x between two numbers, either of which may be no bound."""
    bounds = {"min": low, "max": high}
    given = {name: code for name, code in bounds.items() if text(code).lstrip("-") != "math.inf"}
    if len(given) == 2:
        return Method(x, "clamp", (low, high))
    return Method(x, "clamp", tuple(Keyword(name, code) for name, code in given.items()))


def lower_normal(scope: Scope, e: Normal, order: Sequence[Index]) -> Value:
    """The normalised exponential along its index, then read where it is wanted."""
    parts = (e.body,) if e.condition is None else (e.body, e.condition)
    inside = frozenset().union(*map(free_indices, parts)) - {e.index}
    if isinstance(e.position, Index) and e.position not in inside:
        return _along(scope, e, e.position, order)
    used = [i for i in order if i in inside]
    k = fresh(e.index, order)
    around = with_binders(used, (k,), substitute(e.body, {e.index: k}))
    value = scope.frame.expand(_along(scope, e, k, around), around, scope.like)
    return read(scope, value, around.index(k), e.position)


def _along(scope: Scope, e: Normal, k: Index, order: Sequence[Index]) -> Value:
    body = substitute(e.body, {e.index: k})
    condition = None if e.condition is None else substitute(e.condition, {e.index: k})
    if condition is not None:
        body = protected(scope, body, condition)
    value = scope.frame.fit(scope.as_float(scope.lower(body, order)), order)
    if condition is not None:
        # A finite bound keeps rows without any member free of nan; the caller masks them.
        bound = Attribute(Function("torch.finfo", (Attribute(scope.like, "dtype"),)), "min")
        test = scope.condition(condition, order)
        value = scope.where(test, value, Value(bound, scalar=True), order)
    if k not in value.axes:
        value = scope.frame.expand(value, order, scope.like)
    place = scope.frame.position(value.axes, value.axes.index(k))
    return replace(value, code=Function(f"torch.{e.kind}", (value.code, place)))
