"""Elementwise operations: functions, arithmetic, comparisons, choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.condition_folding import fold_comparison, fold_where, multiplied, negated
from derive.tracing.promotion import as_number, as_truth, is_whole, towards_zero
from derive.tracing.reader import Reader
from derive.tracing.registry import of_each_element
from derive.tracing.values import (
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedValue,
    apply,
    walk,
)

_SAME = (
    "exp log log1p expm1 exp2 log2 log10 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "sigmoid relu erf erfc erfinv lgamma digamma abs sign floor ceil trunc frac softplus square"
).split()


def number(x: Any) -> TracedNode:
    return TracedNumber(x)


def call(name: str) -> Callable[..., TracedNode]:
    return lambda *args: TracedApply(name, tuple(args))


def op(symbol: str) -> Callable[[TracedNode, TracedNode], TracedNode]:
    return lambda a, b: TracedApply(symbol, (a, b))


def plus(a: TracedNode, b: TracedNode) -> TracedNode:
    return apply("+", a, b)


def times(a: TracedNode, b: TracedNode) -> TracedNode:
    return apply("*", a, b)


for _name in _SAME:

    def _function(reader: Reader, x: TracedValue, *, _own: str = _name) -> TracedValue:
        x = as_number(x)
        return reader.elementwise(call(_own), x, kind="float" if _own != "abs" else None)

    of_each_element(_name, f"special_{_name}", f"{_name}_")(_function)


@of_each_element("fix")
def fixed(reader: Reader, x: TracedValue) -> TracedValue:
    return reader.elementwise(towards_zero, as_number(x))


@of_each_element("round", "round_")
def rounded(reader: Reader, x: TracedValue, decimals: int = 0) -> TracedValue:
    """round(x), or round(10**n*x)/10**n."""
    x = as_number(x)
    if not decimals:
        return reader.elementwise(call("round"), x)
    scale = number(sympy.Integer(10) ** decimals)
    return reader.elementwise(lambda a: apply("/", apply("round", times(scale, a)), scale), x)


@of_each_element("xlogy", "special_xlogy", "special_xlog1py")
def xlogy(reader: Reader, x: Any, y: Any) -> TracedValue:
    """Return x*log(y) or x*log(1 + y); 0 where x is 0 and the logarithm is not finite."""
    name, least = ("log1p", -1) if "1p" in reader.called else ("log", 0)
    alike = isinstance(x, TracedValue) and isinstance(y, TracedValue) and x.node == y.node

    def f(a: TracedNode, b: TracedNode) -> TracedNode:
        nothing = apply("==", a, number(0))
        if not alike:
            nothing = apply("and", nothing, apply("<=", b, number(least)))
        return where(nothing, number(0), times(a, apply(name, b)))

    return reader.elementwise(f, x, y)


@of_each_element("copy_", "copy")
def copy(reader: Reader, x: TracedValue, source: Any, *_: Any) -> TracedValue:
    kinds = x.kind, reader.value(source).kind
    if kinds == ("int", "float"):
        raise DeriveError("a copy of floats into an integer tensor is not supported")
    source = as_truth(source) if kinds[0] == "bool" else as_number(source)
    return reader.elementwise(lambda a, b: b, x, source, kind=x.kind)


@of_each_element("fill_", "fill", "zero_")
def filled(reader: Reader, x: TracedValue, value: Any = 0) -> TracedValue:
    """Return a tensor of one value."""
    return reader.elementwise(lambda a, b: b, x, value, kind=x.kind)


@of_each_element("neg", "neg_")
def neg(reader: Reader, x: TracedValue) -> TracedValue:
    return reader.elementwise(call("neg"), x)


@of_each_element("reciprocal")
def reciprocal(reader: Reader, x: TracedValue) -> TracedValue:
    return reader.elementwise(lambda a: apply("/", number(1), a), x)


def where(c: TracedNode, a: TracedNode, b: TracedNode) -> TracedNode:
    return fold_where(c, a, b)


@of_each_element("clamp", "clamp_", "clamp_min", "clamp_max")
def clamp(
    reader: Reader, x: TracedValue, low: Any = None, high: Any = None, **named: Any
) -> TracedValue:
    low, high = named.get("min", low), named.get("max", high)
    if reader.called == "clamp_max":
        low, high = None, low
    if x.kind == "int" and (low is None or high is None):
        # An integer has no infinite bound.
        name, bound = ("minimum", high) if low is None else ("maximum", low)
        return reader.elementwise(lambda a, b: apply(name, a, b), x, bound)
    low = sympy.S.NegativeInfinity if low is None else low
    high = sympy.S.Infinity if high is None else high
    return reader.elementwise(call("clamp"), x, low, high)


# -------------------------------------------------------------------- arithmetic


def _times_alpha(b: Any, alpha: Any, reader: Reader) -> Any:
    b = as_number(b)
    if alpha == 1:
        return b
    return reader.elementwise(times, alpha, b)


@of_each_element("add", "add_", "sub", "sub_", "subtract", "rsub")
def add(reader: Reader, a: Any, b: Any, alpha: Any = 1) -> TracedValue:
    name = str(reader.node.target)
    b, symbol = _times_alpha(b, alpha, reader), "-" if "sub" in name else "+"
    a, b = (b, as_number(a)) if "rsub" in name else (as_number(a), b)
    if type(b) is int and b == 0:
        # Python's sum() begins with 0.
        return reader.value(a)
    return reader.elementwise(op(symbol), a, b)


@of_each_element("mul", "mul_", "multiply")
def mul(reader: Reader, a: Any, b: Any) -> TracedValue:
    if reader.value(a).kind == reader.value(b).kind == "bool":
        return reader.elementwise(op("and"), a, b, kind="bool")
    return reader.elementwise(multiplied, as_number(a), as_number(b))


@of_each_element("div", "div_", "true_divide", "divide")
def div(reader: Reader, a: Any, b: Any, rounding_mode: str | None = None) -> TracedValue:
    a, b = as_number(a), as_number(b)
    if rounding_mode is None:
        return reader.elementwise(op("/"), a, b, kind="float")
    if rounding_mode != "floor":
        return reader.elementwise(lambda x, y: towards_zero(apply("/", x, y)), a, b)
    if reader.value(a).kind == reader.value(b).kind == "int":
        return reader.elementwise(op("//"), a, b)
    return reader.elementwise(lambda x, y: apply("floor", apply("/", x, y)), a, b)


@of_each_element("floor_divide", "floor_divide_")
def quotient(reader: Reader, a: Any, b: Any) -> TracedValue:
    return div(reader, a, b, "floor")


@of_each_element("remainder", "remainder_", "fmod", "fmod_")
def remainder(reader: Reader, a: Any, b: Any) -> TracedValue:
    """Return the remainder of a/b, with the sign of b, or for fmod with that of a."""
    name = reader.called.rstrip("_")
    if name == "remainder" and reader.value(a).kind == reader.value(b).kind == "int":
        return reader.elementwise(op("%"), a, b)
    return reader.elementwise(call(name), as_number(a), as_number(b))


@of_each_element("pow", "pow_", "float_power")
def power(reader: Reader, a: Any, b: Any) -> TracedValue:
    return reader.elementwise(op("**"), as_number(a), as_number(b))


@of_each_element("maximum", "minimum", "atan2", "hypot", "logaddexp")
def binary_function(reader: Reader, a: Any, b: Any) -> TracedValue:
    name = reader.called
    return reader.elementwise(call(name), as_number(a), as_number(b))


@of_each_element("addcmul", "addcmul_")
def addcmul(
    reader: Reader, x: TracedValue, a: TracedValue, b: TracedValue, value: Any = 1
) -> TracedValue:
    product = mul(reader, as_number(a), as_number(b))
    return reader.elementwise(op("+"), as_number(x), _times_alpha(product, value, reader))


@of_each_element("addcdiv", "addcdiv_")
def addcdiv(
    reader: Reader, x: TracedValue, a: TracedValue, b: TracedValue, value: Any = 1
) -> TracedValue:
    quotient = reader.elementwise(op("/"), a, b)
    return reader.elementwise(op("+"), x, _times_alpha(quotient, value, reader))


@of_each_element("lerp")
def lerp(reader: Reader, a: TracedValue, b: TracedValue, weight: Any) -> TracedValue:
    return reader.elementwise(lambda x, y, w: plus(x, times(w, apply("-", y, x))), a, b, weight)


# -------------------------------------------------------------------- truths

_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

for _name, _symbol in _COMPARED.items():

    def _compared(reader: Reader, a: Any, b: Any, *, _own: str = _symbol) -> TracedValue:
        sides = as_number(a), as_number(b)
        return reader.elementwise(partial(fold_comparison, _own), *sides, kind="bool")

    of_each_element(_name)(_compared)


@of_each_element("logical_and", "bitwise_and", "__and__")
def conjunction(reader: Reader, a: Any, b: Any) -> TracedValue:
    return reader.elementwise(op("and"), a, b, kind="bool")


@of_each_element("logical_or", "bitwise_or", "__or__")
def disjunction(reader: Reader, a: Any, b: Any) -> TracedValue:
    return reader.elementwise(op("or"), a, b, kind="bool")


@of_each_element("logical_not", "bitwise_not")
def negation(reader: Reader, a: TracedValue) -> TracedValue:
    return reader.elementwise(negated, a, kind="bool")


@of_each_element("where")
def choice(reader: Reader, c: TracedValue, a: Any, b: Any) -> TracedValue:
    kinds = {reader.value(x).kind for x in (a, b)}
    if kinds != {"bool"}:
        a, b = as_number(a), as_number(b)
    kind = next(k for k in ("float", "int", "bool") if k in kinds)
    return reader.elementwise(where, _as_condition(reader, c), a, b, kind=kind)


@of_each_element("masked_fill", "masked_fill_")
def masked_fill(reader: Reader, x: TracedValue, mask: TracedValue, value: Any) -> TracedValue:
    value = value if x.kind == "bool" else as_number(value)
    return reader.elementwise(where, _as_condition(reader, mask), value, x, kind=x.kind)


def _as_condition(reader: Reader, x: TracedValue) -> TracedValue:
    if x.kind == "bool":
        return x
    return reader.elementwise(partial(fold_comparison, "!="), x, 0, kind="bool")


# -------------------------------------------------------------------- the same elements


@of_each_element(
    *("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "to", "_to_copy", "type_as"),
    *(
        "float",
        "double",
        "requires_grad_",
        "long",
        "int",
        "bool",
        "_conj",
        "resolve_conj",
        "positive",
        "view_as_real",
    ),
    *("dropout", "native_dropout", "feature_dropout", "lift_fresh", "detach_"),
)
def same(reader: Reader, x: TracedValue, *args: Any, **named: Any) -> TracedValue:
    name = reader.called
    if "dropout" in name:
        p, train = (*args, *named.values())[:2]
        if p and train:
            raise DeriveError("dropout draws random numbers; use eval mode, or pass the mask")
        return x
    if name.startswith("detach"):
        # Numbers and positions have no gradient.
        plain = x.kind != "float" or not any(isinstance(part, TracedRead) for part in walk(x.node))
        return x if plain else reader.elementwise(call("detach"), x)
    return cast(reader, x)


def cast(reader: Reader, x: TracedValue) -> TracedValue:
    """Convert to float, int or bool, by the dtype of the node."""
    dtype = str(reader.node.meta["val"].dtype)
    kind = "bool" if "bool" in dtype else "int" if "int" in dtype else "float"
    if kind == x.kind:
        return x
    if kind == "bool":
        return as_truth(x)
    if x.kind == "bool":
        made: TracedValue = as_number(x)
        return replace(made, kind=kind)
    if kind == "float":
        return replace(x, kind=kind)

    def cut(a: TracedNode) -> TracedNode:
        return apply("int", a if is_whole(a, reader.equations) else towards_zero(a))

    return reader.elementwise(cut, x, kind="int")


@of_each_element("isnan", "isfinite", "isinf")
def float_class_test(reader: Reader, x: TracedValue) -> TracedValue:
    """Return isnan as x != x, isinf as abs(x) == inf, isfinite as abs(x) < inf."""
    x = reader.simple(reader.value(as_number(x)))
    infinite = number(sympy.S.Infinity)

    def f(a: TracedNode) -> TracedNode:
        match reader.called:
            case "isnan":
                return apply("!=", a, a)
            case "isinf":
                return apply("==", apply("abs", a), infinite)
        return apply("<", apply("abs", a), infinite)

    return reader.elementwise(f, x, kind="bool")
