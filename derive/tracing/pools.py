"""Pools (means and maxima over windows), upsampling, and windows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.context import Context, operation
from derive.tracing.elementwise import number, op, times
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedNode,
    TracedValue,
    apply,
    reduced,
    substituted,
)
from derive.tracing.views import length_of
from derive.tracing.windows import Windows, conjunction, per_axis, window_position


def _kernel_axes(sizes: Sequence[Any]) -> list[Axis]:
    return [() if n == 1 else (Atom.new(n),) for n in sizes]


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
    kernel = _kernel_axes(sizes)
    padded = any(p != 0 for p in padding)
    if ceil_mode and padded:
        raise DeriveError("an average pool with both padding and ceil_mode is not supported")
    ones = [sympy.Integer(1)] * spatial
    shape = context.counted_shape()[-spatial:]
    windows = Windows(context, x, shape, kernel, stride, padding, ones, beyond=ceil_mode)
    atoms = [a for axis in kernel for a in axis]
    divisor = divisor_override
    if divisor is None and padded and count_include_pad:
        divisor = sympy.prod(sizes)
    kind = "mean" if divisor is None else "sum"
    node = windows.value.node
    if atoms:
        node = reduced(kind, atoms, node, windows.inside)
    made = replace(windows.value, node=node)
    return made if divisor is None else context.elementwise(op("/"), made, divisor)


@operation(
    *(f"max_pool{n}d" for n in (1, 2, 3)), *(f"max_pool{n}d_with_indices" for n in (1, 2, 3))
)
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
    kernel = _kernel_axes(sizes)
    found = context.node.meta["val"]
    shape = [context.sizes.counted(n) for n in _first_result(found).shape][-spatial:]
    windows = Windows(context, x, shape, kernel, stride, padding, dilation, beyond=ceil_mode)
    atoms = [a for axis in kernel for a in axis]
    node = windows.value.node
    made = replace(
        windows.value, node=reduced("max", atoms, node, windows.inside) if atoms else node
    )
    return (made, None) if isinstance(found, tuple | list) else made


def _first_result(found: Any) -> Any:
    return found[0] if isinstance(found, tuple | list) else found


@operation(*(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)))
def adaptive_pool(context: Context, x: TracedValue, output_size: Any) -> Any:
    """Pool an axis of size t to size o: position u covers u*t//o to ((u + 1)*t - 1)//o."""
    spatial, found = int(context.called[-2]), context.node.meta["val"]
    kind = "mean" if "avg" in context.called else "max"
    shape = [context.sizes.counted(n) for n in _first_result(found).shape]
    first = len(x.axes) - spatial
    x = context.simple(x)
    for dim in range(first, len(x.axes)):
        if x.axes[dim] and shape[dim] != 1:
            x, _ = context.single(x, dim)
    tests: list[TracedNode] = []
    atoms: list[Atom] = []
    axes = list(x.axes)
    for dim in range(first, len(x.axes)):
        whole, size = length_of(x, dim), shape[dim]
        if context.sizes.equal(whole, size):
            continue
        if size == 1:
            atoms += axes[dim]
            axes[dim] = ()
        elif context.sizes.hint(whole) % context.sizes.hint(size) == 0:
            sizes = [length_of(x, n) for n in range(len(x.axes))]
            inner = context.sizes.plain(whole / size)
            context.sizes.divided.append((whole, size))
            split = context.regrouped(x, [*sizes[:dim], size, inner, *sizes[dim + 1 :]])
            x = replace(
                split,
                axes=(
                    *split.axes[:dim],
                    (*split.axes[dim], *split.axes[dim + 1]),
                    *split.axes[dim + 2 :],
                ),
            )
            axes = [a if n != dim else split.axes[dim] for n, a in enumerate(axes)]
            atoms += split.axes[dim + 1]
        else:
            (atom,), new = x.axes[dim], Atom.new(size)
            low = apply("//", times(Position(new), number(whole)), number(size))
            after = times(apply("+", Position(new), number(1)), number(whole))
            high = apply("//", apply("-", after, number(1)), number(size))
            tests += [apply(">=", Position(atom), low), apply("<=", Position(atom), high)]
            atoms.append(atom)
            axes[dim] = (new,)
    node = reduced(kind, atoms, x.node, conjunction(tests)) if atoms else x.node
    made = TracedValue(tuple(axes), node, x.kind)
    return (made, None) if isinstance(found, tuple | list) else made


# -------------------------------------------------------------------- larger tensors


@operation(
    *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
    *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)),
)
def nearest_upsampling(context: Context, x: TracedValue, *_: Any, **__: Any) -> TracedValue:
    shape = context.shape()
    spatial = int(context.called[-2])
    for dim in range(len(x.axes) - spatial, len(x.axes)):
        whole, size = length_of(x, dim), shape[dim]
        times_more = context.sizes.quotient(size, whole)
        if times_more == 1:
            continue
        if times_more is not None and times_more.is_Integer:
            axis = (*x.axes[dim], Atom.new(times_more))
            x = replace(x, axes=(*x.axes[:dim], axis, *x.axes[dim + 1 :]))
            continue
        raise DeriveError(
            "nearest upsampling requires an integer factor; give an integer scale_factor instead "
            f"of the size {size}"
        )
    return x


@operation("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def linear_upsampling(
    context: Context, x: TracedValue, output_size: Any, align_corners: bool, *_: Any, **__: Any
) -> TracedValue:
    """Interpolate one axis after the other: (1 - a)*x[i] + a*x[i+1] at position i + a."""
    shape = context.counted_shape()
    for dim in range(2, len(x.axes)):
        if not context.sizes.equal(length_of(x, dim), shape[dim]):
            x = _interpolated_axis(context, context.simple(x), dim, shape[dim], align_corners)
    return x


def _interpolated_axis(
    context: Context, x: TracedValue, dim: int, size: sympy.Expr, align_corners: bool
) -> TracedValue:
    x, atom = context.single(x, dim)
    new, whole = Atom.new(size), atom.size
    if align_corners:
        above: TracedNode = times(Position(new), number(whole - 1))
        below = context.sizes.plain(size - 1)
    else:
        middle = apply("+", times(number(2), Position(new)), number(1))
        above = apply("-", times(middle, number(whole)), number(size))
        above = apply("maximum", above, number(0))
        below = context.sizes.plain(2 * size)
    low = apply("//", above, number(below))
    high = apply("int", apply("minimum", apply("+", low, number(1)), number(whole - 1)))
    part = apply("-", apply("/", above, number(below)), low)
    one, two = (substituted(x.node, {atom: at}) for at in (low, high))
    left = times(apply("-", number(1), part), one)
    node = apply("+", left, times(part, two))
    return TracedValue((*x.axes[:dim], (new,), *x.axes[dim + 1 :]), node)


# -------------------------------------------------------------------- windows as columns


def _count_of_windows(
    context: Context, whole: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    """Return the number of windows."""
    return (
        context.sizes.quotient_down(whole + 2 * padding - dilation * (kernel - 1) - 1, stride) + 1
    )


@operation("im2col")
def columns(
    context: Context, x: TracedValue, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> TracedValue:
    sizes, dilation, padding, stride = (
        per_axis(s, 2) for s in (kernel_size, dilation, padding, stride)
    )
    first = len(x.axes) - 2
    shape = [
        _count_of_windows(
            context, length_of(x, first + n), sizes[n], stride[n], padding[n], dilation[n]
        )
        for n in range(2)
    ]
    kernel = _kernel_axes(sizes)
    windows = Windows(context, x, shape, kernel, stride, padding, dilation)
    *batch, channels, down, right = windows.value.axes
    node = windows.value.node
    if windows.inside is not None:
        node = apply("where", windows.inside, node, number(0))
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
    counts = [
        _count_of_windows(context, out[n], sizes[n], stride[n], padding[n], dilation[n])
        for n in range(2)
    ]
    shape = [length_of(x, n) for n in range(len(x.axes))]
    channels = context.sizes.plain(shape[-2] / sympy.prod(sizes))
    x = context.regrouped(x, [*shape[:-2], channels, *sizes, *counts]).fresh()
    ends: list[Axis] = [() if n == 1 else (Atom.new(n),) for n in out]
    *left, rows, columns, down, right = x.axes
    tests: list[TracedNode] = []
    for n, (starts, inner) in enumerate(((down, rows), (right, columns))):
        at = window_position(starts, inner, stride[n], dilation[n], padding[n])
        tests.append(apply("==", Position(ends[n][0]) if ends[n] else number(0), at))
    atoms = [a for axis in (rows, columns, down, right) for a in axis]
    return TracedValue((*left, *ends), reduced("sum", atoms, x.node, conjunction(tests)), x.kind)
