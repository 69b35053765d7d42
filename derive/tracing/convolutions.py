"""Convolutions as sums over windows of positions.

    conv1d            y[n,o,u] = sum[c,k](x[n,c,s*u + d*k - p]*w[o,c,k])
    conv_transpose1d  y[n,o,u] = sum[c,t,k | u == s*t + d*k - p](x[n,c,t]*w[c,o,k])

Elements outside the tensor are 0. With groups, channel (g c) of x meets channel (g o) of y.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from derive.tracing.context import Context, operation
from derive.tracing.elementwise import number, op, where
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedValue,
    apply,
    reduced,
)
from derive.tracing.views import length_of
from derive.tracing.windows import Windows, conjunction, per_axis, window_position


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
        sizes = [length_of(x, len(x.axes) - spatial + n) for n in range(spatial)]
        spans = [dilation[n] * (length_of(weight, 2 + n) - 1) for n in range(spatial)]
        padding = [context.sizes.quotient_down(span, sympy.Integer(2)) for span in spans]
    padding = [sympy.Integer(0)] * spatial if padding == "valid" else per_axis(padding, spatial)
    x, weight = (
        _grouped(context, _batch(x, spatial), 1, groups),
        _grouped(context, weight, 0, groups),
    )
    weight = weight.fresh()
    group, out, channels, *inner = weight.axes
    kernel = [tuple(Atom.new(a.size) for a in axis) for axis in inner]
    windows = Windows(context, x, sizes, kernel, stride, padding, dilation)
    batch, own_group, own_channels, *starts = windows.value.axes
    free = ((),) * spatial
    wide = replace(windows.value, axes=(batch, own_group, (), *starts, own_channels, *kernel))
    weight = replace(weight, axes=((), group, out, *free, channels, *inner))
    made = _windowed_contraction(context, wide, weight, windows.inside, 3 + spatial)
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
    batch, group, channels, *places = x.axes
    for n, axis in enumerate(places):
        if len(axis) > 1:
            x, atom = context.single(x, 3 + n)
            places[n] = (atom,)
    batch, group, channels, *places = x.axes
    own_group, own_channels, out, *kernel = weight.axes
    ends: list[Axis] = [() if n == 1 else (Atom.new(n),) for n in sizes]
    tests: list[TracedNode] = []
    for n, end in enumerate(ends):
        at = window_position(places[n], kernel[n], stride[n], dilation[n], padding[n])
        tests.append(apply("==", Position(end[0]) if end else number(0), at))
    free = ((),) * spatial
    test = conjunction(tests)
    # The test has the indices of both.
    marked = apply("where", test, x.node, number(0)) if test is not None else x.node
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
        return replace(x, axes=(*x.axes[:dim], (), *x.axes[dim:]))
    shape = [length_of(x, n) for n in range(len(x.axes))]
    groups = sympy.sympify(groups)
    within = context.sizes.plain(shape[dim] / groups)
    if context.sizes.hint(within) == 1 and context.sizes.unify(shape[dim], groups):
        within = sympy.Integer(1)
    return context.regrouped(x, [*shape[:dim], groups, within, *shape[dim + 1 :]])


def _windowed_contraction(
    context: Context, x: TracedValue, weight: TracedValue, inside: TracedNode | None, left: int
) -> TracedValue:
    """Return the sum of x*weight over the axes from ``left`` on, where ``inside`` holds."""
    if inside is not None:
        x = replace(x, node=where(inside, x.node, number(0)))
    values = context.aligned(x, weight)
    axes = context.axes_of(values)
    one, two = (v.node for v in values)
    condition = None
    match one:
        case TracedApply("where", (test, inner, TracedNumber(0))):
            condition, one = test, inner
    atoms = [a for axis in axes[left:] for a in axis]
    return TracedValue(axes[:left], reduced("sum", atoms, apply("*", one, two), condition))


def _with_bias(context: Context, made: TracedValue, bias: TracedValue | None) -> TracedValue:
    """Merge the channels to one axis, add the bias, and drop a batch axis that torch lacks."""
    batch, group, out, *rest = made.axes
    made = replace(made, axes=(batch, (*group, *out), *rest))
    if bias is not None:
        wide = TracedValue((bias.axes[0], *((),) * len(rest)), bias.node, bias.kind)
        made = context.elementwise(op("+"), made, wide)
    rank = len(context.node.meta["val"].shape)
    return made if rank == len(made.axes) else replace(made, axes=made.axes[1:])
