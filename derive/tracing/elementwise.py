"""Elementwise operations: functions, arithmetic, comparisons, choices, activations, casts.

A bool is the number [c]. A float that becomes an integer loses its fraction by trunc, which makes
it an integer by its form: x.long() is int(trunc(x)).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derive.algebra.functions import STEPS, WRITTEN
from derive.errors import DeriveError
from derive.notation.advice import arity
from derive.tracing.choices import fold_comparison, multiplied, negated, sign_of, where
from derive.tracing.context import Context, of_each_element
from derive.tracing.refusals import unread
from derive.tracing.values import (
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedReduce,
    TracedValue,
    apply,
    joint_kind,
    walk,
)

# -------------------------------------------------------------------- bool, int and float


_KEEP = ("+", "-", "*", "neg", "abs", "sign", "maximum", "minimum", "clamp", "where", "%", "//")
"""Operations that map integers to integers."""


def as_number(x: Any) -> Any:
    """Return a bool as 1 or 0; anything else as it is."""
    if isinstance(x, bool):
        return int(x)
    if not isinstance(x, TracedValue) or x.kind != "bool":
        return x
    return replace(x, node=_bool_as_int(x.node), kind="int")


def _bool_as_int(node: TracedNode) -> TracedNode:
    match node:
        case TracedRead():
            return node
        case TracedNumber(value):
            return TracedNumber(int(bool(value)))
        case TracedApply("held", (mask, element)):
            return apply("held", mask, _bool_as_int(element))
    return apply("truth", node)


def as_truth(x: TracedValue) -> TracedValue:
    """Return x != 0 as a bool."""
    if x.kind == "bool":
        return x
    match x.node:
        case TracedApply("truth", (node,)):
            return replace(x, node=node, kind="bool")
    return replace(x, node=apply("!=", x.node, 0), kind="bool")


def is_whole(node: TracedNode, equations: Sequence[Any]) -> bool:
    """True if an expression is an integer by its form."""
    match node:
        case TracedNumber(value):
            return not isinstance(value, float) and bool(sympy.sympify(value).is_integer)
        case Position() | TracedApply("int" | "truth"):
            return True
        case TracedApply(name) if name in STEPS:
            return True
        case TracedRead(name):
            body = next((e for e in equations if e.name == name), None)
            return body is not None and (body.kind != "float" or is_whole(body.body, equations))
        case TracedApply("where", (_, a, b)):
            return is_whole(a, equations) and is_whole(b, equations)
        case TracedApply("clamp", (x, *bounds)):
            finite = [b for b in bounds if not sign_of(b)]
            return all(is_whole(part, equations) for part in (x, *finite))
        case TracedApply(name, args) if name in _KEEP:
            return all(is_whole(part, equations) for part in args)
    return False


# -------------------------------------------------------------------- functions


Function = Callable[..., TracedNode]
"""A function of elements."""


def _function_of(name: str) -> Function:
    return partial(apply, name)


def _between(
    low: Any, high: Any, below: Any, above: Any, a: TracedNode, f: TracedNode
) -> TracedNode:
    """Return ``f`` where a is between two numbers; at and beyond them ``below`` and ``above``.

    At the two ends, slopes are those of ``below`` and ``above``, as in torch; ``clamp`` takes those
    of the inside.
    """
    return where(a <= low, below, where(a >= high, above, f))


def _log(a: TracedNode) -> TracedNode:
    """Return log(a); of a sum of exponentials their logsumexp, which does not overflow."""
    match a:
        case TracedApply("held", (mask, element)):
            return apply("held", mask, _log(element))
        case TracedReduce("sum", atoms, TracedApply("exp", (x,)), condition):
            return TracedReduce("logsumexp", atoms, x, condition)
        case TracedApply("+", (b, c)):
            logs = [_log(part) for part in (b, c)]
            if not any(isinstance(x, TracedApply) and x.name == "log" for x in logs):
                return apply("logaddexp", *logs)
        case TracedApply("exp", (x,)):
            return x
    return apply("log", a)


def _elu(a: TracedNode, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> TracedNode:
    low = apply("expm1", a if input_scale == 1 else a * input_scale)
    made = where(a > 0, a, low if alpha == 1 else TracedNumber(alpha) * low)
    return made if scale == 1 else TracedNumber(scale) * made


def _gelu(a: TracedNode, approximate: str = "none") -> TracedNode:
    half = TracedNumber(sympy.Rational(1, 2))
    if approximate == "tanh":
        root = apply("sqrt", 2 / apply("pi"))
        return half * a * (1 + apply("tanh", root * (a + 0.044715 * a**3)))
    return half * a * (1 + apply("erf", a / apply("sqrt", 2)))


_APART = {"abs", "detach", "int", "log", "logsigmoid", "round", "softplus"}
"""Functions that have readings of their own."""
_SAME = [name for name in WRITTEN if arity(name) == 1 and name not in _APART]
"""Functions with the same name in torch and in the notation."""

_OF_NUMBERS: dict[str, Function] = {
    "abs special_abs abs_": _function_of("abs"),
    "fix": _function_of("trunc"),
    "neg neg_": operator.neg,
    "reciprocal": lambda a: 1 / a,
    "pow pow_ float_power": operator.pow,
    "lerp": lambda a, b, w: a + w * (b - a),
    "fmax": lambda a, b: where((a >= b) | apply("!=", b, b), a, b),
    "fmin": lambda a, b: where((a <= b) | apply("!=", b, b), a, b),
    **{name: _function_of(name) for name in "maximum minimum atan2 hypot logaddexp".split()},
}


def _logit(a: TracedNode, eps: Any = None) -> TracedNode:
    """Return log(a/(1 - a)), of a between eps and 1 - eps."""
    a = a if eps is None else apply("clamp", a, eps, 1 - eps)
    return apply("log", a / (1 - a))


_OF_TRUTHS: dict[str, Function] = {
    "logical_and bitwise_and __and__": operator.and_,
    "logical_or bitwise_or __or__": operator.or_,
    "logical_not bitwise_not": negated,
    "logical_xor bitwise_xor __xor__": lambda a, b: (a & negated(b)) | (b & negated(a)),
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ACTIVATIONS: dict[str, Function] = {
    "silu silu_": lambda a: a * apply("sigmoid", a),
    "gelu": _gelu,
    "logit special_logit": _logit,
    "special_ndtri": lambda a: apply("sqrt", TracedNumber(2)) * apply("erfinv", 2 * a - 1),
    "mish": lambda a: a * apply("tanh", apply("softplus", a)),
    "leaky_relu leaky_relu_": lambda a, slope=0.01: where(a > 0, a, TracedNumber(slope) * a),
    "elu elu_": _elu,
    "selu": lambda a: _elu(a, 1.6732632423543772, 1.0507009873554805),
    "celu": lambda a, alpha=1: where(a > 0, a, TracedNumber(alpha) * apply("expm1", a / alpha)),
    "hardtanh hardtanh_": lambda a, low=-1, high=1: _between(low, high, low, high, a, a),
    "relu6": lambda a: _between(0, 6, 0, 6, a, a),
    "hardsigmoid": lambda a: _between(-3, 3, 0, 1, a, (a + 3) / 6),
    "hardswish hardswish_": lambda a: _between(-3, 3, 0, a, a, a * (a + 3) / 6),
}
"""Activations and others, of an element that is read several times, and of settings."""


def _read_function(context: Context, *args: Any, own: Function, kind: str | None) -> TracedValue:
    return context.elementwise(own, *map(as_number, args), kind=kind)


def _read_truth(context: Context, *args: Any, own: Function) -> TracedValue:
    values = [x for x in args if isinstance(x, TracedValue)]
    if "logical" in context.called:
        args = tuple(as_truth(x) if x in values and x.kind != "bool" else x for x in args)
    elif any(x.kind != "bool" for x in values):
        if not all(_is_bit(x, context.equations) for x in args):
            raise unread("bits of integers are not supported; use //, % and comparisons")
        truths = (as_truth(x) if isinstance(x, TracedValue) else bool(x) for x in args)
        return context.elementwise(lambda *x: apply("truth", own(*x)), *truths, kind="int")
    return context.elementwise(own, *args, kind="bool")


def _is_bit(x: Any, equations: Sequence[Any]) -> bool:
    """True if a number is 0 or 1 by its form, as of a mask in bytes."""
    if not isinstance(x, TracedValue):
        return x in (0, 1)
    match x.node:
        case TracedApply("truth"):
            return True
        case TracedRead(name):
            body = next((e.body for e in equations if e.name == name), None)
            return x.kind == "bool" or (isinstance(body, TracedApply) and body.name == "truth")
    return x.kind == "bool"


def _read_activation(
    context: Context, x: TracedValue, *settings: Any, own: Function, **named: Any
) -> TracedValue:
    return context.elementwise(lambda a: own(a, *settings, **named), context.simple(x))


for _name in _SAME:
    _names = (_name, f"special_{_name}", f"{_name}_")
    of_each_element(*_names)(partial(_read_function, own=_function_of(_name), kind="float"))
for _name, _f in _OF_NUMBERS.items():
    of_each_element(*_name.split())(partial(_read_function, own=_f, kind=None))
for _name, _symbol in _COMPARED.items():
    _f = partial(fold_comparison, _symbol)
    of_each_element(_name)(partial(_read_function, own=_f, kind="bool"))
for _name, _f in _OF_TRUTHS.items():
    of_each_element(*_name.split())(partial(_read_truth, own=_f))
for _name, _f in _ACTIVATIONS.items():
    of_each_element(*_name.split())(partial(_read_activation, own=_f))


of_each_element("log", "log_")(partial(_read_function, own=_log, kind="float"))


@of_each_element("softplus")
def softplus(context: Context, x: TracedValue, beta: Any = 1, threshold: Any = 20) -> TracedValue:
    factor = TracedNumber(beta)

    def smooth(a: TracedNode) -> TracedNode:
        return apply("softplus", a) if beta == 1 else apply("softplus", factor * a) / factor

    if threshold >= _STRAIGHT:
        return context.elementwise(smooth, x)
    return context.elementwise(
        lambda a: where(factor * a > threshold, a, smooth(a)), context.simple(x)
    )


_STRAIGHT = 20
"""torch's default threshold, where softplus(x) - x is 2e-9."""


@of_each_element("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(context: Context, x: TracedValue) -> Any:
    made = context.elementwise(_function_of("logsigmoid"), x)
    return (made, None) if "forward" in str(context.node.target) else made


@of_each_element("round", "round_")
def rounded(context: Context, x: TracedValue, decimals: int = 0) -> TracedValue:
    """round(x), or round(10**n*x)/10**n."""
    x = as_number(x)
    if not decimals:
        return context.elementwise(_function_of("round"), x)
    scale = TracedNumber(sympy.Integer(10) ** decimals)
    return context.elementwise(lambda a: apply("round", scale * a) / scale, x)


@of_each_element("xlogy", "special_xlogy", "special_xlog1py")
def xlogy(context: Context, x: Any, y: Any) -> TracedValue:
    """Return x*log(y) or x*log(1 + y); 0 where x is 0 and the logarithm is not finite."""
    name, least = ("log1p", -1) if "1p" in context.called else ("log", 0)
    alike = isinstance(x, TracedValue) and isinstance(y, TracedValue) and x.node == y.node

    def f(a: TracedNode, b: TracedNode) -> TracedNode:
        nothing = apply("==", a, 0)
        if not alike:
            nothing &= b <= least
        return where(nothing, 0, a * apply(name, b))

    return context.elementwise(f, x, y)


@of_each_element("copy_", "copy")
def copy(context: Context, x: TracedValue, source: Any, *_: Any) -> TracedValue:
    kinds = x.kind, context.value(source).kind
    if kinds == ("int", "float"):
        raise unread("a copy of floats into an integer tensor is not supported")
    source = as_truth(source) if kinds[0] == "bool" else as_number(source)
    return context.elementwise(lambda a, b: b, x, source, kind=x.kind)


@of_each_element("fill_", "fill", "zero_")
def filled(context: Context, x: TracedValue, value: Any = 0) -> TracedValue:
    """Return a tensor of one value."""
    return context.elementwise(lambda a, b: b, x, value, kind=x.kind)


@of_each_element("clamp", "clamp_", "clamp_min", "clamp_max")
def clamp(
    context: Context, x: TracedValue, low: Any = None, high: Any = None, **named: Any
) -> TracedValue:
    low, high = named.get("min", low), named.get("max", high)
    if context.called == "clamp_max":
        low, high = None, low
    if x.kind == "int" and (low is None or high is None):
        # An integer has no infinite bound.
        name, bound = ("minimum", high) if low is None else ("maximum", low)
        return context.elementwise(lambda a, b: apply(name, a, b), x, bound)
    low = sympy.S.NegativeInfinity if low is None else low
    high = sympy.S.Infinity if high is None else high
    return context.elementwise(_function_of("clamp"), x, low, high)


# -------------------------------------------------------------------- arithmetic


def _times_alpha(b: Any, alpha: Any, context: Context) -> Any:
    b = as_number(b)
    if alpha == 1:
        return b
    return context.elementwise(operator.mul, alpha, b)


@of_each_element("add", "add_", "sub", "sub_", "subtract", "rsub")
def add(context: Context, a: Any, b: Any, alpha: Any = 1) -> TracedValue:
    name = str(context.node.target)
    b, combine = _times_alpha(b, alpha, context), operator.sub if "sub" in name else operator.add
    a, b = (b, as_number(a)) if "rsub" in name else (as_number(a), b)
    if type(b) is int and b == 0:
        # Python's sum() begins with 0.
        return context.value(a)
    return context.elementwise(combine, a, b)


@of_each_element("mul", "mul_", "multiply")
def mul(context: Context, a: Any, b: Any) -> TracedValue:
    if context.value(a).kind == context.value(b).kind == "bool":
        return context.elementwise(operator.and_, a, b, kind="bool")
    return context.elementwise(multiplied, as_number(a), as_number(b))


@of_each_element("div", "div_", "true_divide", "divide")
def div(context: Context, a: Any, b: Any, rounding_mode: str | None = None) -> TracedValue:
    a, b = as_number(a), as_number(b)
    if rounding_mode is None:
        return context.elementwise(operator.truediv, a, b, kind="float")
    if rounding_mode != "floor":
        return context.elementwise(lambda x, y: apply("trunc", x / y), a, b)
    if context.value(a).kind == context.value(b).kind == "int":
        return context.elementwise(operator.floordiv, a, b)
    return context.elementwise(lambda x, y: apply("floor", x / y), a, b)


@of_each_element("floor_divide", "floor_divide_")
def quotient(context: Context, a: Any, b: Any) -> TracedValue:
    return div(context, a, b, "floor")


@of_each_element("remainder", "remainder_", "fmod", "fmod_")
def remainder(context: Context, a: Any, b: Any) -> TracedValue:
    """Return the remainder of a/b, with the sign of b, or for fmod with that of a."""
    name = context.called.rstrip("_")
    if name == "remainder" and context.value(a).kind == context.value(b).kind == "int":
        return context.elementwise(operator.mod, a, b)
    return context.elementwise(_function_of(name), as_number(a), as_number(b))


@of_each_element("addcmul", "addcmul_")
def addcmul(
    context: Context, x: TracedValue, a: TracedValue, b: TracedValue, value: Any = 1
) -> TracedValue:
    product = mul(context, as_number(a), as_number(b))
    return context.elementwise(operator.add, as_number(x), _times_alpha(product, value, context))


@of_each_element("addcdiv", "addcdiv_")
def addcdiv(
    context: Context, x: TracedValue, a: TracedValue, b: TracedValue, value: Any = 1
) -> TracedValue:
    quotient = context.elementwise(operator.truediv, a, b)
    return context.elementwise(operator.add, x, _times_alpha(quotient, value, context))


# -------------------------------------------------------------------- choices


@of_each_element("where")
def choice(context: Context, c: TracedValue, a: Any, b: Any) -> TracedValue:
    kind = joint_kind(map(context.value, (a, b)))
    if kind != "bool":
        a, b = as_number(a), as_number(b)
    return context.elementwise(where, _as_condition(context, c), a, b, kind=kind)


@of_each_element("masked_fill", "masked_fill_")
def masked_fill(context: Context, x: TracedValue, mask: TracedValue, value: Any) -> TracedValue:
    value = value if x.kind == "bool" else as_number(value)
    return context.elementwise(where, _as_condition(context, mask), value, x, kind=x.kind)


def _as_condition(context: Context, x: TracedValue) -> TracedValue:
    if x.kind == "bool":
        return x
    return context.elementwise(partial(fold_comparison, "!="), x, 0, kind="bool")


# -------------------------------------------------------------------- the same elements


_UNCHANGED = (
    "clone detach alias contiguous lift_fresh_copy to _to_copy type_as float double requires_grad_ "
    "long int bool _conj resolve_conj positive view_as_real dropout native_dropout feature_dropout "
    "lift_fresh detach_"
)


@of_each_element(*_UNCHANGED.split())
def same(context: Context, x: TracedValue, *args: Any, **named: Any) -> Any:
    name = context.called
    if "dropout" in name:
        p, train = (*args, *named.values())[:2]
        if p and train:
            text = "dropout draws random numbers; use eval mode, or pass the mask"
            raise DeriveError(text, kind="torch-state")
        return x
    if name.startswith("detach"):
        # Numbers and positions have no gradient.
        plain = x.kind != "float" or not any(isinstance(part, TracedRead) for part in walk(x.node))
        return x if plain else context.elementwise(_function_of("detach"), x)
    return cast(context, x)


def cast(context: Context, x: Any) -> Any:
    """Convert to float, int or bool, by the dtype of the node."""
    if not isinstance(x, TracedValue):
        return x  # a number, which torch makes a tensor in a vmap
    dtype = str(context.node.meta["val"].dtype)
    if dtype.startswith(("torch.float8", "torch.float4")):
        raise unread(f"a cast to {dtype} rounds; pass the rounded tensor as an argument")
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
        return apply("int", a if is_whole(a, context.equations) else apply("trunc", a))

    return context.elementwise(cut, x, kind="int")


@of_each_element("isnan", "isfinite", "isinf")
def float_class_test(context: Context, x: TracedValue) -> TracedValue:
    """Return isnan as x != x, isinf as abs(x) == inf, isfinite as abs(x) < inf."""
    x = context.simple(context.value(as_number(x)))
    infinite = TracedNumber(sympy.S.Infinity)

    def f(a: TracedNode) -> TracedNode:
        match context.called:
            case "isnan":
                return apply("!=", a, a)
            case "isinf":
                return apply("==", apply("abs", a), infinite)
        return apply("abs", a) < infinite

    return context.elementwise(f, x, kind="bool")
