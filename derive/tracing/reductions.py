"""Reductions, normalizations, and softmax and cumulative operations along an axis."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.choices import where
from derive.tracing.context import Context, operation
from derive.tracing.elementwise import as_number
from derive.tracing.refusals import many
from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedReduce,
    TracedValue,
    all_of,
    apply,
    mask_along,
    reduced,
    substituted,
    under_mask,
)


def dims_of(x: TracedValue, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(len(x.axes)))
    dims = [dim] if isinstance(dim, int) else dim
    return [x.place_of(d) for d in dims]


def reduce_axes(
    kind: str, x: TracedValue, dim: Any, keepdim: bool = False, where: TracedNode | None = None
) -> TracedValue:
    """Reduce a value over these axes, ``where`` a condition holds, or the mask of these axes."""
    dims = dims_of(x, dim)
    atoms = [a for d in dims for a in x.axes[d]]
    beside = None
    if where is None:
        where, beside, x = mask_along(x, atoms)
        if where is not None and kind in ("argmax", "argmin"):
            raise many()  # a position among the selected elements
        if where is not None and kind == "norm2":  # which has no condition in the notation
            x, where = replace(x, node=apply("where", where, x.node, 0)), None
    axes = [() if n in dims else axis for n, axis in enumerate(x.axes) if keepdim or n not in dims]
    node = under_mask(beside, reduced(kind, atoms, x.node, where))
    return TracedValue(tuple(axes), node, x.kind)


@operation("sum")
def total(
    context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> TracedValue:
    if x.kind == "bool":
        x = context.elementwise(lambda a: where(a, 1, 0), x, kind="int")
    return reduce_axes("sum", x, dim, keepdim)


@operation("mean", "amax", "amin", "logsumexp", "prod")
def named(
    context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> TracedValue:
    return reduce_axes(context.called, x, dim, keepdim)


@operation("max", "min")
def extremum(context: Context, x: TracedValue, *args: Any, **named: Any) -> Any:
    name = context.called
    if args and isinstance(args[0], TracedValue):
        return context.elementwise(lambda a, b: TracedApply(f"{name}imum", (a, b)), x, args[0])
    dim = args[0] if args else named.get("dim")
    keepdim = (args[1] if len(args) > 1 else named.get("keepdim")) or False
    if dim is None:
        return reduce_axes(f"a{name}", x, None)
    if mask_along(x, x.axes[x.place_of(dim)])[0] is not None:
        # Its position is one among the selected elements.
        return reduce_axes(name, x, dim, keepdim), None
    x = context.with_one_index(x, x.place_of(dim))
    which = reduce_axes(f"arg{name}", x, dim, keepdim)
    return reduce_axes(name, x, dim, keepdim), replace(which, kind="int")


@operation("any", "all")
def truth(context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False) -> TracedValue:
    if x.kind != "bool":
        x = context.elementwise(lambda a: apply("!=", a, 0), x, kind="bool")
    return reduce_axes(context.called, x, dim, keepdim)


@operation("argmax", "argmin")
def which(context: Context, x: TracedValue, dim: Any = None, keepdim: bool = False) -> TracedValue:
    if dim is None:
        whole = context.regrouped(x, [sympy.prod(x.shape)])
        return replace(which(context, whole, 0), axes=((),) * len(x.axes) if keepdim else ())
    x = context.with_one_index(x, x.place_of(dim))
    return replace(reduce_axes(context.called, x, dim, keepdim), kind="int")


def _deviations(
    context: Context, x: TracedValue, dim: Any, correction: Any, keepdim: bool
) -> tuple[TracedValue, TracedValue]:
    """Return (the variance, the mean with its axes kept), of selected elements by their count."""
    dims = dims_of(x, dim)
    mask, _, plain = mask_along(x, [a for d in dims for a in x.axes[d]])
    if mask is None and not isinstance(x.node, TracedRead):
        x = context.named(x, "h")
    middle = context.named(reduce_axes("mean", x, dims, keepdim=True), "mu")
    squared = context.elementwise(lambda a, m: (a - m) ** 2, x, middle)
    if not correction:
        return reduce_axes("mean", squared, dims, keepdim), middle
    summed = reduce_axes("sum", squared, dims, keepdim)
    fewer = 1 if correction is True else correction
    if mask is None:
        count = context.value(sympy.prod([x.shape[d] for d in dims]) - fewer)
    else:
        ones = reduce_axes("sum", replace(plain, node=TracedNumber(1)), dims, keepdim, mask)
        count = context.elementwise(lambda n: apply("maximum", n - fewer, 0), ones)
    return context.elementwise(operator.truediv, summed, count), middle


@operation("var", "std", "var_mean", "std_mean")
def variance(
    context: Context,
    x: TracedValue,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    **named: Any,
) -> TracedValue | tuple[TracedValue, TracedValue]:
    """Return the variance or its root, and the mean if asked for.

    The root has no gradient where all values are equal.
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = named.get("correction", unbiased in (True, None))
    made, middle = _deviations(context, x, dim, 1 if correction is None else correction, keepdim)
    if "std" in context.called:
        made = context.elementwise(
            _but_at_zero(partial(apply, "sqrt")), context.named(made, "variance")
        )
        made = context.named(made, "std")
    if "mean" not in context.called:
        return made
    if not keepdim:
        dims = dims_of(x, dim)
        middle = replace(middle, axes=tuple(a for n, a in enumerate(middle.axes) if n not in dims))
    return made, middle


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
    if ord == 2:
        return reduce_axes("norm2", x, dim, keepdim)
    if ord == 0:
        x = context.elementwise(lambda a: apply("truth", apply("!=", a, 0)), x)
        return reduce_axes("sum", x, dim, keepdim)
    sizes = context.elementwise(partial(apply, "abs"), x)
    kind = {1: "sum", float("inf"): "amax", float("-inf"): "amin"}.get(ord)
    if kind is not None:
        return reduce_axes(kind, sizes, dim, keepdim)
    exponent = TracedNumber(sympy.Rational(1, int(ord)) if ord == int(ord) else 1 / ord)

    def power(a: TracedNode) -> TracedNode:
        return apply("abs", a) ** TracedNumber(ord)

    # Where |x|**p, or the root of their sum, is infinitely steep, the gradient is 0.
    powers = context.elementwise(_but_at_zero(power) if ord < 1 else power, x)
    total = context.named(reduce_axes("sum", powers, dim, keepdim), "total")
    made = context.elementwise(_but_at_zero(lambda a: a**exponent), total)
    if ord > 0:
        return made
    # One 0 among the values makes an infinite total, whose root is 0.
    least = context.simple(reduce_axes("amin", sizes, dim, keepdim))
    return context.elementwise(lambda a, b: where(apply("==", a, 0), 0, b), least, made)


def _but_at_zero(f: Callable[[TracedNode], TracedNode]) -> Callable[[TracedNode], TracedNode]:
    """Return f, with the value 0 and no gradient at 0."""
    return lambda a: apply("where", apply("==", a, 0), 0, f(a))


# -------------------------------------------------------------------- along an axis


@operation("softmax", "_softmax", "log_softmax", "_log_softmax", "special_softmax")
def softmax(context: Context, x: TracedValue, dim: int, *_: Any, **__: Any) -> TracedValue:
    """Return a softmax as an equation of its own, because it binds an index that it keeps."""
    dim = x.place_of(dim)
    name = "log_softmax" if "log" in str(context.node.target) else "softmax"
    if not x.axes[dim]:
        return replace(x, node=TracedNumber(1 if name == "softmax" else 0), kind="float")
    x, atom = context.single(x, dim)
    return softmax_along(context, name, x, atom)


def softmax_along(context: Context, name: str, x: TracedValue, atom: Atom) -> TracedValue:
    """name[k](x), an equation with index k; of selected elements, of those alone."""
    along, beside, x = mask_along(x, [atom])
    node = x.node if along is None else where(along, x.node, -math.inf)
    node = under_mask(all_of([along, beside]), TracedReduce(name, (atom,), node))
    made = TracedValue(x.axes, node)
    return context.named_variable(made, {"softmax": "p", "log_softmax": "logp"}[name])


@operation("cumsum", "logcumsumexp")
def cumulative(context: Context, x: TracedValue, dim: int, dtype: Any = None) -> TracedValue:
    """Return the sum or logsumexp of all elements up to each position."""
    dim, x = x.place_of(dim), as_number(x)
    if not x.axes[dim]:
        return x
    x, atom = context.single(x, dim)
    along, beside, x = mask_along(x, [atom])
    upto = Atom.new(atom.size)
    kind = "sum" if context.called == "cumsum" else "logsumexp"
    node = reduced(kind, (atom,), x.node, all_of([Position(atom) <= Position(upto), along]))
    here = None if along is None else substituted(along, {atom: Position(upto)})
    return replace(x.with_axis(dim, (upto,)), node=under_mask(all_of([here, beside]), node))


# -------------------------------------------------------------------- normalizations


def _normalised(context: Context, x: TracedValue, dims: Sequence[int], eps: Any) -> TracedValue:
    """(x - mean)/sqrt(variance + eps) along these axes."""
    x = x if isinstance(x.node, TracedRead) else context.named(x, "h")
    variance, mean = _deviations(context, x, dims, 0, keepdim=True)
    variance = context.named(variance, "variance")
    return _divided(context, context.elementwise(operator.sub, x, mean), variance, eps)


def _divided(context: Context, x: TracedValue, variance: TracedValue, eps: Any) -> TracedValue:
    return context.elementwise(lambda a, v: a * apply("rsqrt", v + eps), x, variance)


def _affine_scaled(
    context: Context, x: TracedValue, weight: TracedValue | None, bias: TracedValue | None
) -> TracedValue:
    x = x if weight is None else context.elementwise(operator.mul, x, weight)
    return x if bias is None else context.elementwise(operator.add, x, bias)


def _channels(x: TracedValue, rank: int) -> TracedValue:
    """Append axes of size 1 to a tensor of channels."""
    return replace(x, axes=(*x.axes, *((),) * (rank - 2)))


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
    dims = range(len(x.axes) - len(shape), len(x.axes))
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
    (batch, channels, *rest), groups = x.shape, sympy.sympify(groups)
    split = context.regrouped(x, [batch, groups, channels / groups, *rest])
    made = _normalised(context, split, range(2, len(split.axes)), eps)
    each = (None if t is None else _channels(t, len(x.axes)) for t in (weight, bias))
    return _affine_scaled(context, context.regrouped(made, x.shape), *each)


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
            text = "the module updates its running statistics; call it in eval mode"
            raise DeriveError(text, kind="torch-state")
        dims = [n for n in range(rank) if n != 1 and (n or not alone)]
        return _affine_scaled(context, _normalised(context, x, dims, eps), *each)
    assert mean is not None and variance is not None
    centred = context.elementwise(operator.sub, x, _channels(mean, rank))
    made = _divided(context, centred, _channels(variance, rank), eps)
    return _affine_scaled(context, made, *each)


@operation("cosine_similarity")
def cosine_similarity(
    context: Context, a: TracedValue, b: TracedValue, dim: int = 1, eps: Any = 1e-8
) -> TracedValue:
    whole = context.elementwise(lambda x, _: x, a, b), context.elementwise(lambda _, x: x, a, b)
    dim = whole[0].place_of(dim)
    norms = (reduce_axes("norm2", x, dim) for x in whole)
    norms = (context.elementwise(lambda n: apply("maximum", n, eps), n) for n in norms)
    product = reduce_axes("sum", context.elementwise(operator.mul, a, b), dim)
    scale = context.elementwise(operator.mul, *norms)
    return context.elementwise(operator.truediv, product, scale)
