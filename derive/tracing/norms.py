"""Normalizations, and similarities that divide by norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.context import Context, operation
from derive.tracing.elementwise import number, op
from derive.tracing.reductions import reduce_axes
from derive.tracing.values import TracedRead, TracedValue, apply


def _normalised(context: Context, x: TracedValue, dims: Sequence[int], eps: Any) -> TracedValue:
    """(x - mean)/sqrt(variance + eps) along these axes."""
    x = x if isinstance(x.node, TracedRead) else context.named(x, "h")
    mean = context.named(reduce_axes(context, "mean", x, dims, keepdim=True), "mu")
    centred = context.elementwise(op("-"), x, mean)
    squares = context.elementwise(lambda a: apply("**", a, number(2)), centred)
    variance = context.named(reduce_axes(context, "mean", squares, dims, keepdim=True), "variance")

    def f(a: Any, v: Any) -> Any:
        return apply("*", a, apply("rsqrt", apply("+", v, number(eps))))

    return context.elementwise(f, context.elementwise(op("-"), x, mean), variance)


def _affine_scaled(
    context: Context, x: TracedValue, weight: TracedValue | None, bias: TracedValue | None
) -> TracedValue:
    x = x if weight is None else context.elementwise(op("*"), x, weight)
    return x if bias is None else context.elementwise(op("+"), x, bias)


def _channels(x: TracedValue, rank: int) -> TracedValue:
    """Append axes of size 1 to a tensor of channels."""
    return TracedValue((*x.axes, *((),) * (rank - 2)), x.node, x.kind)


@operation("layer_norm")
def layer_norm(
    context: Context,
    x: TracedValue,
    shape: Sequence[Any],
    weight: TracedValue | None = None,
    bias: TracedValue | None = None,
    eps: Any = 1e-5,
    *_: Any,
) -> TracedValue:
    dims = list(range(len(x.axes) - len(shape), len(x.axes)))
    return _affine_scaled(context, _normalised(context, x, dims, eps), weight, bias)


@operation("group_norm")
def group_norm(
    context: Context,
    x: TracedValue,
    groups: Any,
    weight: TracedValue | None = None,
    bias: TracedValue | None = None,
    eps: Any = 1e-5,
    *_: Any,
) -> TracedValue:
    shape = [sympy.prod([a.size for a in axis]) for axis in x.axes]
    groups = sympy.sympify(groups)
    split = context.regrouped(x, [shape[0], groups, shape[1] / groups, *shape[2:]])
    made = _normalised(context, split, list(range(2, len(split.axes))), eps)
    whole = context.regrouped(made, shape)
    rank = len(x.axes)
    each = [None if t is None else _channels(t, rank) for t in (weight, bias)]
    return _affine_scaled(context, whole, *each)


@operation("batch_norm", "instance_norm")
def batch_norm(
    context: Context,
    x: TracedValue,
    weight: TracedValue | None,
    bias: TracedValue | None,
    mean: TracedValue | None,
    variance: TracedValue | None,
    training: bool,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
    *_: Any,
) -> TracedValue:
    rank = len(x.axes)
    alone = "instance" in str(context.node.target)
    each = [None if t is None else _channels(t, rank) for t in (weight, bias)]
    if training:
        if mean is not None and not alone:
            raise DeriveError("the module updates its running statistics; call it in eval mode")
        dims = [n for n in range(rank) if n != 1 and (n or not alone)]
        return _affine_scaled(context, _normalised(context, x, dims, eps), *each)
    assert mean is not None and variance is not None
    centred = context.elementwise(op("-"), x, _channels(mean, rank))

    def f(a: Any, v: Any) -> Any:
        return apply("*", a, apply("rsqrt", apply("+", v, number(eps))))

    made = context.elementwise(f, centred, _channels(variance, rank))
    return _affine_scaled(context, made, *each)


@operation("cosine_similarity")
def cosine_similarity(
    context: Context, a: TracedValue, b: TracedValue, dim: int = 1, eps: Any = 1e-8
) -> TracedValue:
    dim = context.place_of(a, dim)
    norms = [
        context.elementwise(
            lambda n: apply("maximum", n, number(eps)), reduce_axes(context, "norm2", x, dim)
        )
        for x in (a, b)
    ]
    product = reduce_axes(context, "sum", context.elementwise(op("*"), a, b), dim)
    scale = context.elementwise(op("*"), *norms)
    return context.elementwise(op("/"), product, scale)
