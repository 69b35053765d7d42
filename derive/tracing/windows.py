"""Sums over windows of the last axes: convolutions, pools, and windows as columns.

    conv1d            y[n,o,u] = sum[c,k](x[n,c,s*u + d*k - p]*w[o,c,k])
    conv_transpose1d  y[n,o,u] = sum[c,t,k | u == s*t + d*k - p](x[n,c,t]*w[c,o,k])

Elements outside the tensor are 0. With groups, channel (g c) of x meets channel (g o) of y.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import sympy

from derive.tracing.choices import conjunction, where
from derive.tracing.context import Context, operation
from derive.tracing.refusals import unread
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedValue,
    apply,
    joined,
    new_axis,
    reduced,
    size_of,
    walk,
)
from derive.tracing.views import moved


def per_axis(x: Any, count: int, default: Any = None) -> list[Any]:
    """Return a setting for every axis; one may be given for all."""
    if x is None or (isinstance(x, list | tuple) and not x):
        x = default
    found = list(x) if isinstance(x, list | tuple) else [x]
    found = found * count if len(found) == 1 else found
    return [sympy.sympify(e) for e in found]


def window_position(
    starts: Axis, inner: Axis, step: Any, dilation: Any, padding: Any
) -> TracedNode:
    """Return step*u + dilation*k - padding; an axis of size 1 has position 0."""
    terms: list[TracedNode] = []
    for atoms, by in ((starts, step), (inner, dilation)):
        for n, a in enumerate(atoms):
            times = by * size_of(atoms[n + 1 :])
            terms.append(Position(a) if times == 1 else TracedNumber(times) * Position(a))
    if not terms:
        return TracedNumber(-sympy.sympify(padding))
    return moved(reduce(operator.add, terms), -sympy.sympify(padding))


def windowed(
    context: Context,
    x: TracedValue,
    sizes: Sequence[sympy.Expr],
    kernel: Sequence[Axis],
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    beyond: bool = False,
) -> tuple[TracedValue, TracedNode | None]:
    """Return (x read in windows, the condition that an element is one of x, None if all are).

    The last axes of the value are the starts of the windows. Its elements depend on the indices of
    the ``kernel`` too.
    """
    tests: list[TracedNode] = []
    x = context.simple(x)
    if any(isinstance(p, TracedApply) and p.name in ("int", "%") for p in walk(x.node)):
        # Windows overlap: each computed position, as of a padding, would be read several times.
        x = context.named(x, "padded")
    first = len(x.axes) - len(kernel)
    # No equation for a whole axis may read windows of another one.
    x = context.with_one_index(x, *range(first, len(x.axes)))
    for n, (size, inner) in enumerate(zip(sizes, kernel, strict=True)):
        dim, starts = first + n, new_axis(size)
        at = window_position(starts, inner, stride[n], dilation[n], padding[n])
        whole = x.shape[dim]
        context.sizes.at_least(size - 1)
        if padding[n] != 0:
            tests.append(at >= 0)
        if padding[n] != 0 or (beyond and (starts or inner)):
            tests.append(at < whole)
        if x.axes[dim]:
            x = x.at({x.axes[dim][0]: at})
        x = x.with_axis(dim, starts)
    return x, conjunction(tests)


# -------------------------------------------------------------------- convolutions


@operation("conv1d", "conv2d", "conv3d")
def conv(
    context: Context,
    x: TracedValue,
    weight: TracedValue,
    bias: TracedValue | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> TracedValue:
    spatial = len(weight.axes) - 2
    stride, dilation = per_axis(stride, spatial), per_axis(dilation, spatial)
    sizes = context.counted_shape()[-spatial:]
    if padding == "same":
        sizes = x.shape[-spatial:]
        spans = [dilation[n] * (weight.shape[2 + n] - 1) for n in range(spatial)]
        padding = [context.sizes.quotient_down(span, sympy.Integer(2)) for span in spans]
    padding = [sympy.Integer(0)] * spatial if padding == "valid" else per_axis(padding, spatial)
    x = _grouped(context, _batch(x, spatial), 1, groups)
    weight = _grouped(context, weight, 0, groups).fresh()
    group, out, channels, *inner = weight.axes
    kernel = [tuple(Atom.new(a.size) for a in axis) for axis in inner]
    x, inside = windowed(context, x, sizes, kernel, stride, padding, dilation)
    batch, own_group, own_channels, *starts = x.axes
    free = ((),) * spatial
    wide = replace(x, axes=(batch, own_group, (), *starts, own_channels, *kernel))
    weight = replace(weight, axes=((), group, out, *free, channels, *inner))
    made = _windowed_contraction(context, wide, weight, inside, 3 + spatial)
    return _with_bias(context, made, bias)


@operation("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    context: Context,
    x: TracedValue,
    weight: TracedValue,
    bias: TracedValue | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> TracedValue:
    spatial = len(weight.axes) - 2
    stride, dilation = per_axis(stride, spatial), per_axis(dilation, spatial)
    padding = per_axis(padding, spatial)
    sizes = context.counted_shape()[-spatial:]
    x = _grouped(context, _batch(x, spatial), 1, groups).fresh()
    weight = _grouped(context, weight, 0, groups).fresh()
    x = context.with_one_index(x, *range(3, len(x.axes)))
    batch, group, channels, *places = x.axes
    own_group, own_channels, out, *kernel = weight.axes
    ends: list[Axis] = [*map(new_axis, sizes)]
    tests: list[TracedNode] = []
    for n, end in enumerate(ends):
        at = window_position(places[n], kernel[n], stride[n], dilation[n], padding[n])
        tests.append(apply("==", joined(end), at))
    free = ((),) * spatial
    test = conjunction(tests)
    # The test has the indices of both.
    marked = apply("where", test, x.node, 0) if test is not None else x.node
    wide = TracedValue((batch, group, (), *ends, channels, *places, *kernel), marked, x.kind)
    weight = replace(weight, axes=((), own_group, out, *free, own_channels, *free, *kernel))
    weight = weight.renamed({a: Atom.new(a.size) for a in weight.atoms})
    made = _windowed_contraction(context, wide, weight, None, 3 + spatial)
    return _with_bias(context, made, bias)


def _batch(x: TracedValue, spatial: int) -> TracedValue:
    """Return x with a batch axis, of size 1 if x has none."""
    return x if len(x.axes) > spatial + 1 else replace(x, axes=((), *x.axes))


def _grouped(context: Context, x: TracedValue, dim: int, groups: Any) -> TracedValue:
    """Split an axis of x into groups and the channels of each group."""
    if groups == 1:
        return x.with_unit_axis(dim)
    shape, groups = x.shape, sympy.sympify(groups)
    within = context.sizes.plain(shape[dim] / groups)
    if context.sizes.hint(within) == 1 and context.sizes.unify(shape[dim], groups):
        within = sympy.Integer(1)
    return context.regrouped(x, [*shape[:dim], groups, within, *shape[dim + 1 :]])


def _windowed_contraction(
    context: Context, x: TracedValue, weight: TracedValue, inside: TracedNode | None, left: int
) -> TracedValue:
    """Return the sum of x*weight over the axes from ``left`` on, where ``inside`` holds."""
    if inside is not None:
        x = replace(x, node=where(inside, x.node, 0))
    values = context.aligned(x, weight)
    axes = context.axes_of(values)
    one, two = (v.node for v in values)
    condition = None
    match one:
        case TracedApply("where", (test, inner, TracedNumber(0))):
            condition, one = test, inner
    atoms = [a for axis in axes[left:] for a in axis]
    return TracedValue(axes[:left], reduced("sum", atoms, one * two, condition))


def _with_bias(context: Context, made: TracedValue, bias: TracedValue | None) -> TracedValue:
    """Merge the channels to one axis, add the bias, and drop a batch axis that torch lacks."""
    batch, group, out, *rest = made.axes
    made = replace(made, axes=(batch, (*group, *out), *rest))
    if bias is not None:
        wide = TracedValue((bias.axes[0], *((),) * len(rest)), bias.node, bias.kind)
        made = context.elementwise(operator.add, made, wide)
    rank = len(context.node.meta["val"].shape)
    return made if rank == len(made.axes) else replace(made, axes=made.axes[1:])


# -------------------------------------------------------------------- pools


@operation("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    context: Context,
    x: TracedValue,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> TracedValue:
    spatial = int(context.called[8])
    sizes = per_axis(kernel_size, spatial)
    stride, padding = per_axis(stride, spatial, sizes), per_axis(padding, spatial)
    kernel = [*map(new_axis, sizes)]
    padded = any(p != 0 for p in padding)
    if ceil_mode and padded:
        raise unread("an average pool with both padding and ceil_mode is not supported")
    ones = [sympy.Integer(1)] * spatial
    shape = context.counted_shape()[-spatial:]
    x, inside = windowed(context, x, shape, kernel, stride, padding, ones, beyond=ceil_mode)
    divisor = divisor_override
    if divisor is None and padded and count_include_pad:
        divisor = sympy.prod(sizes)
    made = _pooled("mean" if divisor is None else "sum", x, kernel, inside)
    return made if divisor is None else context.elementwise(operator.truediv, made, divisor)


def _pooled(
    kind: str, x: TracedValue, kernel: Sequence[Axis], inside: TracedNode | None
) -> TracedValue:
    """Reduce x over the indices of a kernel."""
    atoms = [a for axis in kernel for a in axis]
    return replace(x, node=reduced(kind, atoms, x.node, inside)) if atoms else x


@operation(*(f"max_pool{n}d{more}" for n in (1, 2, 3) for more in ("", "_with_indices")))
def max_pool(
    context: Context,
    x: TracedValue,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Return the maxima over windows; the gradient goes to the first of equal values."""
    spatial = int(context.called[8])
    sizes = per_axis(kernel_size, spatial)
    stride, padding, dilation = (per_axis(s, spatial, sizes) for s in (stride, padding, dilation))
    kernel = [*map(new_axis, sizes)]
    shape = context.counted_shape()[-spatial:]
    x, inside = windowed(context, x, shape, kernel, stride, padding, dilation, beyond=ceil_mode)
    made = _pooled("max", x, kernel, inside)
    return (made, None) if isinstance(context.node.meta["val"], tuple | list) else made


@operation(*(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)))
def adaptive_pool(context: Context, x: TracedValue, output_size: Any) -> Any:
    """Pool an axis of size t to size o: position u covers u*t//o to ((u + 1)*t - 1)//o."""
    kind = "mean" if "avg" in context.called else "max"
    shape, first = context.counted_shape(), len(x.axes) - int(context.called[-2])
    x = context.simple(x)
    for dim in range(first, len(x.axes)):
        if x.axes[dim] and shape[dim] != 1:
            x, _ = context.single(x, dim)
    tests: list[TracedNode] = []
    atoms: list[Atom] = []
    axes = list(x.axes)
    for dim in range(first, len(x.axes)):
        whole, size = x.shape[dim], shape[dim]
        if context.sizes.equal(whole, size):
            continue
        if size == 1:
            atoms += axes[dim]
            axes[dim] = ()
        elif context.sizes.hint(whole) % context.sizes.hint(size) == 0:
            parts = [size, context.sizes.plain(whole / size)]
            context.sizes.divided.append((whole, size))
            split = context.regrouped(x, [*x.shape[:dim], *parts, *x.shape[dim + 1 :]])
            axes[dim], inner = split.axes[dim : dim + 2]
            x = split.without_axis(dim + 1).with_axis(dim, (*axes[dim], *inner))
            atoms += inner
        else:
            (atom,), new = x.axes[dim], Atom.new(size)
            low = Position(new) * whole // size
            high = ((Position(new) + 1) * whole - 1) // size
            tests += [Position(atom) >= low, Position(atom) <= high]
            atoms.append(atom)
            axes[dim] = (new,)
    node = reduced(kind, atoms, x.node, conjunction(tests)) if atoms else x.node
    made = TracedValue(tuple(axes), node, x.kind)
    return (made, None) if isinstance(context.node.meta["val"], tuple | list) else made


# -------------------------------------------------------------------- windows as columns


def _counts_of_windows(
    context: Context, whole: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> list[sympy.Expr]:
    """Return the number of windows along each axis."""
    settings = zip(whole, kernel, stride, padding, dilation, strict=True)
    down = context.sizes.quotient_down
    return [down(n + 2 * p - d * (k - 1) - 1, step) + 1 for n, k, step, p, d in settings]


@operation("im2col")
def columns(
    context: Context, x: TracedValue, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> TracedValue:
    sizes, dilation, padding, stride = (
        per_axis(s, 2) for s in (kernel_size, dilation, padding, stride)
    )
    shape = _counts_of_windows(context, x.shape[-2:], sizes, stride, padding, dilation)
    kernel = [*map(new_axis, sizes)]
    x, inside = windowed(context, x, shape, kernel, stride, padding, dilation)
    *batch, channels, down, right = x.axes
    node = x.node if inside is None else apply("where", inside, x.node, 0)
    return TracedValue((*batch, (*channels, *kernel[0], *kernel[1]), (*down, *right)), node)


@operation("col2im")
def folded(
    context: Context,
    x: TracedValue,
    output_size: Any,
    kernel_size: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> TracedValue:
    """Return for each element the sum over all columns that contain it."""
    sizes, dilation, padding, stride = (
        per_axis(s, 2) for s in (kernel_size, dilation, padding, stride)
    )
    out = context.shape()[-2:]
    counts = _counts_of_windows(context, out, sizes, stride, padding, dilation)
    channels = context.sizes.plain(x.shape[-2] / sympy.prod(sizes))
    x = context.regrouped(x, [*x.shape[:-2], channels, *sizes, *counts]).fresh()
    ends: list[Axis] = [*map(new_axis, out)]
    *left, rows, columns, down, right = x.axes
    tests: list[TracedNode] = []
    for n, (starts, inner) in enumerate(((down, rows), (right, columns))):
        at = window_position(starts, inner, stride[n], dilation[n], padding[n])
        tests.append(apply("==", joined(ends[n]), at))
    atoms = [a for axis in (rows, columns, down, right) for a in axis]
    return TracedValue((*left, *ends), reduced("sum", atoms, x.node, conjunction(tests)), x.kind)
