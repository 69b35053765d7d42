"""Elementwise activations; at kinks, slopes are those of torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import sympy

from derive.tracing.choices import where
from derive.tracing.context import Context, of_each_element
from derive.tracing.values import TracedApply, TracedNode, TracedNumber, TracedValue, apply


@of_each_element("softplus")
def softplus(context: Context, x: TracedValue, beta: Any = 1, threshold: Any = 20) -> TracedValue:
    def smooth(a: TracedNode) -> TracedNode:
        if beta == 1:
            return apply("softplus", a)
        return apply("softplus", TracedNumber(beta) * a) / TracedNumber(beta)

    def straight(a: TracedNode) -> TracedNode:
        return where(TracedNumber(beta) * a > threshold, a, smooth(a))

    if threshold >= _STRAIGHT:
        return context.elementwise(smooth, x)
    return context.elementwise(straight, context.simple(x))


_STRAIGHT = 20
"""torch's default threshold, where softplus(x) - x is 2e-9."""


@of_each_element("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(context: Context, x: TracedValue) -> Any:
    made = context.elementwise(partial(apply, "logsigmoid"), x)
    return (made, None) if "forward" in str(context.node.target) else made


@of_each_element("silu", "silu_")
def silu(context: Context, x: TracedValue) -> TracedValue:
    x = context.simple(x)
    return context.elementwise(lambda a: a * apply("sigmoid", a), x)


@of_each_element("gelu")
def gelu(context: Context, x: TracedValue, approximate: str = "none") -> TracedValue:
    x = context.simple(x)
    half = TracedNumber(sympy.Rational(1, 2))

    def exact(a: TracedNode) -> TracedNode:
        inner = apply("erf", a / apply("sqrt", 2))
        return half * a * (1 + inner)

    def by_tanh(a: TracedNode) -> TracedNode:
        cubed = 0.044715 * a**3
        root = apply("sqrt", 2 / TracedApply("pi", ()))
        inner = apply("tanh", root * (a + cubed))
        return half * a * (1 + inner)

    return context.elementwise(by_tanh if approximate == "tanh" else exact, x)


@of_each_element("mish")
def mish(context: Context, x: TracedValue) -> TracedValue:
    x = context.simple(x)
    return context.elementwise(lambda a: a * apply("tanh", apply("softplus", a)), x)


@of_each_element("leaky_relu", "leaky_relu_")
def leaky_relu(context: Context, x: TracedValue, slope: Any = 0.01) -> TracedValue:
    x = context.simple(x)

    def f(a: TracedNode) -> TracedNode:
        return where(a > 0, a, TracedNumber(slope) * a)

    return context.elementwise(f, x)


@of_each_element("elu", "elu_")
def elu(
    context: Context, x: TracedValue, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0
) -> TracedValue:
    x = context.simple(x)

    def f(a: TracedNode) -> TracedNode:
        inner = a if input_scale == 1 else a * input_scale
        low = apply("expm1", inner)
        low = low if alpha == 1 else TracedNumber(alpha) * low
        made = where(a > 0, a, low)
        return made if scale == 1 else TracedNumber(scale) * made

    return context.elementwise(f, x)


@of_each_element("selu")
def selu(context: Context, x: TracedValue) -> TracedValue:
    return elu(context, x, 1.6732632423543772, 1.0507009873554805)


@of_each_element("celu")
def celu(context: Context, x: TracedValue, alpha: Any = 1.0) -> TracedValue:
    x = context.simple(x)

    def f(a: TracedNode) -> TracedNode:
        low = TracedNumber(alpha) * apply("expm1", a / alpha)
        return where(a > 0, a, low)

    return context.elementwise(f, x)


@of_each_element("hardtanh", "hardtanh_")
def hardtanh(context: Context, x: TracedValue, low: Any = -1, high: Any = 1) -> TracedValue:
    return _piecewise_clamp(context, x, low, high, (low, high), lambda a: a)


@of_each_element("relu6")
def relu6(context: Context, x: TracedValue) -> TracedValue:
    return _piecewise_clamp(context, x, 0, 6, (0, 6), lambda a: a)


@of_each_element("hardsigmoid")
def hardsigmoid(context: Context, x: TracedValue) -> TracedValue:
    return _piecewise_clamp(context, x, -3, 3, (0, 1), lambda a: (a + 3) / 6)


@of_each_element("hardswish", "hardswish_")
def hardswish(context: Context, x: TracedValue) -> TracedValue:
    def inner(a: TracedNode) -> TracedNode:
        return a * (a + 3) / 6

    return _piecewise_clamp(context, x, -3, 3, (0, None), inner)


def _piecewise_clamp(
    context: Context,
    x: TracedValue,
    low: Any,
    high: Any,
    outside: Any,
    f: Callable[[TracedNode], TracedNode],
) -> TracedValue:
    """Return f(x) between two numbers; at and beyond them the values ``outside``, None for x.

    At the two ends, slopes are those of ``outside``, as in torch. ``clamp`` takes those of the
    inside.
    """

    def made(a: TracedNode) -> TracedNode:
        below, above = (a if v is None else TracedNumber(v) for v in outside)
        rest = where(a >= high, above, f(a))
        return where(a <= low, below, rest)

    return context.elementwise(made, context.simple(x))
