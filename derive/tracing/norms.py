"""Normalizations, and similarities that divide by norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.elementwise import number, op
from derive.tracing.reader import Reader
from derive.tracing.reductions import reduce_axes
from derive.tracing.registry import operation
from derive.tracing.values import TracedRead, TracedValue, apply


def _normalised(reader: Reader, x: TracedValue, dims: Sequence[int], eps: Any) -> TracedValue:
    """(x - mean)/sqrt(variance + eps) along these axes."""
    x = x if isinstance(x.node, TracedRead) else reader.named(x, "h")
    mean = reader.named(reduce_axes(reader, "mean", x, dims, keepdim=True), "mu")
    centred = reader.elementwise(op("-"), x, mean)
    squares = reader.elementwise(lambda a: apply("**", a, number(2)), centred)
    variance = reader.named(reduce_axes(reader, "mean", squares, dims, keepdim=True), "variance")

    def f(a: Any, v: Any) -> Any:
        return apply("*", a, apply("rsqrt", apply("+", v, number(eps))))

    return reader.elementwise(f, reader.elementwise(op("-"), x, mean), variance)


def _affine_scaled(
    reader: Reader, x: TracedValue, weight: TracedValue | None, bias: TracedValue | None
) -> TracedValue:
    x = x if weight is None else reader.elementwise(op("*"), x, weight)
    return x if bias is None else reader.elementwise(op("+"), x, bias)


def _channels(x: TracedValue, rank: int) -> TracedValue:
    """Append axes of size 1 to a tensor of channels."""
    return TracedValue((*x.axes, *((),) * (rank - 2)), x.node, x.kind)


@operation("layer_norm")
def layer_norm(
    reader: Reader,
    x: TracedValue,
    shape: Sequence[Any],
    weight: TracedValue | None = None,
    bias: TracedValue | None = None,
    eps: Any = 1e-5,
    *_: Any,
) -> TracedValue:
    dims = list(range(len(x.axes) - len(shape), len(x.axes)))
    return _affine_scaled(reader, _normalised(reader, x, dims, eps), weight, bias)


@operation("group_norm")
def group_norm(
    reader: Reader,
    x: TracedValue,
    groups: Any,
    weight: TracedValue | None = None,
    bias: TracedValue | None = None,
    eps: Any = 1e-5,
    *_: Any,
) -> TracedValue:
    shape = [sympy.prod([a.size for a in axis]) for axis in x.axes]
    groups = sympy.sympify(groups)
    split = reader.regrouped(x, [shape[0], groups, shape[1] / groups, *shape[2:]])
    made = _normalised(reader, split, list(range(2, len(split.axes))), eps)
    whole = reader.regrouped(made, shape)
    rank = len(x.axes)
    each = [None if t is None else _channels(t, rank) for t in (weight, bias)]
    return _affine_scaled(reader, whole, *each)


@operation("batch_norm", "instance_norm")
def batch_norm(
    reader: Reader,
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
    alone = "instance" in str(reader.node.target)
    each = [None if t is None else _channels(t, rank) for t in (weight, bias)]
    if training:
        if mean is not None and not alone:
            raise DeriveError("the module updates its running statistics; call it in eval mode")
        dims = [n for n in range(rank) if n != 1 and (n or not alone)]
        return _affine_scaled(reader, _normalised(reader, x, dims, eps), *each)
    assert mean is not None and variance is not None
    centred = reader.elementwise(op("-"), x, _channels(mean, rank))

    def f(a: Any, v: Any) -> Any:
        return apply("*", a, apply("rsqrt", apply("+", v, number(eps))))

    made = reader.elementwise(f, centred, _channels(variance, rank))
    return _affine_scaled(reader, made, *each)


@operation("cosine_similarity")
def cosine_similarity(
    reader: Reader, a: TracedValue, b: TracedValue, dim: int = 1, eps: Any = 1e-8
) -> TracedValue:
    dim = reader.place_of(a, dim)
    norms = [
        reader.elementwise(
            lambda n: apply("maximum", n, number(eps)), reduce_axes(reader, "norm2", x, dim)
        )
        for x in (a, b)
    ]
    product = reduce_axes(reader, "sum", reader.elementwise(op("*"), a, b), dim)
    scale = reader.elementwise(op("*"), *norms)
    return reader.elementwise(op("/"), product, scale)
