"""Reductions, normalizations, and softmax and cumulative operations along an axis."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.choices import where
from derive.tracing.context import Context, of_elements, operation
from derive.tracing.masks import over_all, selection
from derive.tracing.promotion import as_number
from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedReduce,
    TracedValue,
    apply,
    reduced,
)


def dims_of(context: Context, x: TracedValue, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(len(x.axes)))
    dims = dim if isinstance(dim, list | tuple) else [dim]
    return [context.place_of(x, d) for d in dims]


def reduce_axes(
    context: Context, kind: str, x: TracedValue, dim: Any, keepdim: bool = False
) -> TracedValue:
    """Reduce a value over these axes."""
    if selection(x) is not None:
        return over_all(kind, x, dim)
    dims = dims_of(context, x, dim)
    atoms = [a for d in dims for a in x.axes[d]]
    node = reduced(kind, atoms, x.node)
    axes = tuple(
        () if n in dims else axis for n, axis in enumerate(x.axes) if keepdim or n not in dims
    )
    return TracedValue(axes, node, x.kind)


def _with_single_index(context: Context, x: TracedValue, dim: int) -> TracedValue:
    """Return the value with at most one index on an axis."""
    dim = context.place_of(x, dim)
    return context.single(x, dim)[0] if x.axes[dim] else x


def _element_count(x: TracedValue, dims: Sequence[int]) -> sympy.Expr:
    return sympy.prod([a.size for d in dims for a in x.axes[d]])


@operation("sum")
@of_elements
def total(
    context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> TracedValue:
    if x.kind == "bool":
        x = context.elementwise(lambda a: where(a, 1, 0), x, kind="int")
    return reduce_axes(context, "sum", x, dim, keepdim)


@operation("mean")
@of_elements
def mean(
    context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> TracedValue:
    return reduce_axes(context, "mean", x, dim, keepdim)


@operation("amax", "amin", "logsumexp")
@of_elements
def named(context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False) -> TracedValue:
    name = context.called
    return reduce_axes(context, name, x, dim, keepdim)


@operation("max", "min")
@of_elements
def extremum(context: Context, x: TracedValue, *args: Any, **named: Any) -> Any:
    name = context.called
    if args and isinstance(args[0], TracedValue):
        return context.elementwise(lambda a, b: TracedApply(f"{name}imum", (a, b)), x, args[0])
    dim = args[0] if args else named.get("dim")
    keepdim = (args[1] if len(args) > 1 else named.get("keepdim")) or False
    if dim is None:
        return reduce_axes(context, f"a{name}", x, None)
    x = _with_single_index(context, x, dim)
    which = reduce_axes(context, f"arg{name}", x, dim, keepdim)
    return reduce_axes(context, name, x, dim, keepdim), TracedValue(which.axes, which.node, "int")


@operation("prod")
@of_elements
def product(
    context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> TracedValue:
    return reduce_axes(context, "prod", x, dim, keepdim)


@operation("any", "all")
def truth(context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False) -> TracedValue:
    if x.kind != "bool":
        x = context.elementwise(lambda a: apply("!=", a, 0), x, kind="bool")
    return reduce_axes(context, context.called, x, dim, keepdim)


@operation("argmax", "argmin")
def which(context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False) -> TracedValue:
    if dim is None:
        raise DeriveError(
            "the position of an extremum over all axes is not supported; give one axis"
        )
    name = context.called
    x = _with_single_index(context, x, dim)
    made = reduce_axes(context, name, x, dim, keepdim)
    return TracedValue(made.axes, made.node, "int")


def _deviations(
    context: Context, x: TracedValue, dim: Any, correction: Any, keepdim: bool
) -> tuple[TracedValue, TracedValue]:
    """Return (the variance, the mean with its axes kept)."""
    dims = dims_of(context, x, dim)
    x = x if isinstance(x.node, TracedRead) else context.named(x, "h")
    middle = reduce_axes(context, "mean", x, dims, keepdim=True)
    middle = context.named(middle, "mu")
    squared = context.elementwise(lambda a, m: (a - m) ** 2, x, middle)
    if correction in (0, None, False):
        return reduce_axes(context, "mean", squared, dims, keepdim), middle
    summed = reduce_axes(context, "sum", squared, dims, keepdim)
    count = _element_count(x, dims) - (1 if correction is True else correction)
    return context.elementwise(operator.truediv, summed, count), middle


def _correction(named: dict[str, Any], unbiased: Any) -> Any:
    if "correction" in named:
        return 1 if named["correction"] is None else named["correction"]
    return 1 if unbiased in (True, None) else 0


@operation("var", "std")
def variance(
    context: Context,
    x: TracedValue,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    **named: Any,
) -> TracedValue:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    keepdim = named.pop("keepdim", keepdim)
    made, _ = _deviations(context, x, dim, _correction(named, unbiased), keepdim)
    return _deviation(context, made) if "std" in context.called else made


def _deviation(context: Context, variance: TracedValue) -> TracedValue:
    """Return the root of a variance, without a gradient where all values are equal."""
    root = _but_at_zero(lambda a: apply("sqrt", a))
    return context.named(context.elementwise(root, context.named(variance, "variance")), "std")


@operation("var_mean", "std_mean")
def variance_and_mean(
    context: Context,
    x: TracedValue,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    **named: Any,
) -> tuple[TracedValue, TracedValue]:
    keepdim = named.pop("keepdim", keepdim)
    made, middle = _deviations(context, x, dim, _correction(named, unbiased), keepdim)
    dims = dims_of(context, x, dim)
    if not keepdim:
        axes = tuple(a for n, a in enumerate(middle.axes) if n not in dims)
        middle = TracedValue(axes, middle.node, middle.kind)
    return _deviation(context, made) if "std" in context.called else made, middle


@operation("linalg_vector_norm", "norm")
def norm(
    context: Context,
    x: TracedValue,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    **named: Any,
) -> TracedValue:
    ord = 2 if ord is None else ord
    if ord == 0:
        x = context.elementwise(lambda a: apply("truth", apply("!=", a, 0)), x)
        return reduce_axes(context, "sum", x, dim, keepdim)
    if ord == 2:
        return reduce_axes(context, "norm2", x, dim, keepdim)
    if ord == 1:
        x = context.elementwise(lambda a: apply("abs", a), x)
        return reduce_axes(context, "sum", x, dim, keepdim)
    if ord in (float("inf"), float("-inf")):
        x = context.elementwise(lambda a: apply("abs", a), x)
        return reduce_axes(context, "amax" if ord > 0 else "amin", x, dim, keepdim)

    def power(a: TracedNode) -> TracedNode:
        return apply("abs", a) ** TracedNumber(ord)

    def root(a: TracedNode) -> TracedNode:
        exponent = sympy.Rational(1, int(ord)) if ord == int(ord) else 1 / ord
        return a ** TracedNumber(exponent)

    # Where |x|**p, or the root of their sum, is infinitely steep, the gradient is 0.
    powers = context.elementwise(_but_at_zero(power) if ord < 1 else power, x)
    total = context.named(reduce_axes(context, "sum", powers, dim, keepdim), "total")
    made = context.elementwise(_but_at_zero(root), total)
    if ord > 0:
        return made
    # One 0 among the values makes an infinite total, whose root is 0.
    least = reduce_axes(
        context, "amin", context.elementwise(lambda a: apply("abs", a), x), dim, keepdim
    )
    least = context.simple(least)

    def unless_zero(a: TracedNode, b: TracedNode) -> TracedNode:
        return where(apply("==", a, 0), 0, b)

    return context.elementwise(unless_zero, least, made)


def _but_at_zero(f: Callable[[TracedNode], TracedNode]) -> Callable[[TracedNode], TracedNode]:
    """Return f, with the value 0 and no gradient at 0."""
    return lambda a: apply("where", apply("==", a, 0), 0, f(a))


# -------------------------------------------------------------------- along an axis


@operation("softmax", "_softmax", "log_softmax", "_log_softmax", "special_softmax")
def softmax(context: Context, x: TracedValue, dim: int, *_: Any, **__: Any) -> TracedValue:
    """Return a softmax as an equation of its own, because it binds an index that it keeps."""
    dim = context.place_of(x, dim)
    name = "log_softmax" if "log" in str(context.node.target) else "softmax"
    if not x.axes[dim]:
        return replace(x, node=TracedNumber(1 if name == "softmax" else 0), kind="float")
    x, atom = context.single(x, dim)
    return softmax_along(context, name, x, atom)


def softmax_along(context: Context, name: str, x: TracedValue, atom: Atom) -> TracedValue:
    """name[k](x), an equation with index k."""
    made = TracedValue(x.axes, TracedReduce(name, (atom,), x.node))
    stem = context.place.variable if context.place and context.place.variable else None
    return context.named(made, stem or {"softmax": "p", "log_softmax": "logp"}[name])


@operation("logcumsumexp")
def up_to(context: Context, x: TracedValue, dim: int) -> TracedValue:
    """Return the logsumexp of all elements up to each position."""
    dim = context.place_of(x, dim)
    x = as_number(x)
    if not x.axes[dim]:
        return x
    x, atom = context.single(x, dim)
    upto = Atom.new(atom.size)
    axes = tuple((upto,) if n == dim else a for n, a in enumerate(x.axes))
    test = Position(atom) <= Position(upto)
    return TracedValue(axes, reduced("logsumexp", (atom,), x.node, test), x.kind)


@operation("cumsum")
def cumulative(context: Context, x: TracedValue, dim: int, dtype: Any = None) -> TracedValue:
    dim = context.place_of(x, dim)
    x = as_number(x)
    if not x.axes[dim]:
        return x
    x, atom = context.single(x, dim)
    upto = Atom.new(atom.size)

    body = apply("where", Position(atom) <= Position(upto), x.node, 0)
    axes = tuple((upto,) if n == dim else a for n, a in enumerate(x.axes))
    return TracedValue(axes, reduced("sum", (atom,), body), x.kind)


# -------------------------------------------------------------------- normalizations


def _normalised(context: Context, x: TracedValue, dims: Sequence[int], eps: Any) -> TracedValue:
    """(x - mean)/sqrt(variance + eps) along these axes."""
    x = x if isinstance(x.node, TracedRead) else context.named(x, "h")
    mean = context.named(reduce_axes(context, "mean", x, dims, keepdim=True), "mu")
    centred = context.elementwise(operator.sub, x, mean)
    squares = context.elementwise(lambda a: a**2, centred)
    variance = context.named(reduce_axes(context, "mean", squares, dims, keepdim=True), "variance")

    def f(a: Any, v: Any) -> Any:
        return a * apply("rsqrt", v + eps)

    return context.elementwise(f, context.elementwise(operator.sub, x, mean), variance)


def _affine_scaled(
    context: Context, x: TracedValue, weight: TracedValue | None, bias: TracedValue | None
) -> TracedValue:
    x = x if weight is None else context.elementwise(operator.mul, x, weight)
    return x if bias is None else context.elementwise(operator.add, x, bias)


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
    centred = context.elementwise(operator.sub, x, _channels(mean, rank))

    def f(a: Any, v: Any) -> Any:
        return a * apply("rsqrt", v + eps)

    made = context.elementwise(f, centred, _channels(variance, rank))
    return _affine_scaled(context, made, *each)


@operation("cosine_similarity")
def cosine_similarity(
    context: Context, a: TracedValue, b: TracedValue, dim: int = 1, eps: Any = 1e-8
) -> TracedValue:
    dim = context.place_of(a, dim)
    norms = [
        context.elementwise(
            lambda n: apply("maximum", n, eps), reduce_axes(context, "norm2", x, dim)
        )
        for x in (a, b)
    ]
    product = reduce_axes(context, "sum", context.elementwise(operator.mul, a, b), dim)
    scale = context.elementwise(operator.mul, *norms)
    return context.elementwise(operator.truediv, product, scale)
