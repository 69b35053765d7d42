"""Sample a tensor between its elements: upsampling, and samples at the coordinates in a grid.

    row[n,h,w] = ((grid[n,h,w,1] + 1)*size(i) - 1)/2
    top[n,h,w] = int(floor(row[n,h,w]))

Along one axis, a sample is x[n,c,top]*(top + 1 - row) + x[n,c,top+1]*(row - top), without the terms
whose element is outside x.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from typing import Any

import sympy

from derive.tracing import values as tv
from derive.tracing.choices import conjunction, where
from derive.tracing.context import Context, operation
from derive.tracing.refusals import unread

# -------------------------------------------------------------------- upsampling


_ROUNDED_UP = (1, 3, 5, 7)
"""Numbers whose reciprocals are exact in float32, or rounded up, so that torch's floor(i*q/p),
computed in float32 with a power q of 2, is the one of integers."""


@operation(
    *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
    *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)),
)
def nearest_upsampling(
    context: Context, x: tv.TracedValue, output_size: Any, factors: Sequence[float] | None = None
) -> tv.TracedValue:
    """Repeat each element, or read x[floor(i/factor)] or x[floor(i*size(x)/size(y))].

    In float32, torch rounds the quotient of two sizes: for some, as 14 and 46, it reads one element
    before that.
    """
    shape, counted = context.shape(), context.counted_shape()
    spatial = int(context.called[-2])
    for dim in range(len(x.axes) - spatial, len(x.axes)):
        alike = context.sizes.hint(shape[dim]) == context.sizes.hint(x.shape[dim])
        if factors is None and alike and context.sizes.unify(shape[dim], x.shape[dim]):
            continue  # the size of another tensor, which has as many elements
        factor = sympy.Rational(1 if factors is None else factors[dim + spatial - len(x.axes)])
        # The size 2.0*n is rounded, and is 2*n exactly.
        whole = factors is not None and factor.is_Integer
        times = factor if whole else context.sizes.quotient(shape[dim], x.shape[dim])
        resized = factors is None and not (times is not None and times.is_Integer)
        known = factor.p in _ROUNDED_UP and 1 < factor.q <= 64 and "exact" not in context.called
        if resized or known:
            x, atom = context.single(context.simple(x), dim)
            new = tv.Atom.new(counted[dim])
            old, size = (atom.size, counted[dim]) if resized else (factor.q, factor.p)
            at: tv.TracedNode = tv.TracedNumber(old) * tv.Position(new)
            if "exact" in context.called:
                at, size = 2 * at + old, 2 * size
            at = at if size == 1 else at // context.sizes.plain(size)
            x = replace(x.with_axis(dim, (new,)), node=tv.substituted(x.node, {atom: at}))
            continue
        if times is None or not times.is_Integer:
            raise unread(
                "nearest upsampling requires a size, an integer factor, or a scale_factor as 0.5 "
                f"or 1.5, not {float(factor)}"
            )
        if times != 1:
            x = x.with_axis(dim, (*x.axes[dim], tv.Atom.new(times)))
    return x


@operation("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def linear_upsampling(
    context: Context,
    x: tv.TracedValue,
    output_size: Any,
    align_corners: bool,
    factors: Sequence[float] | None = None,
) -> tv.TracedValue:
    """Interpolate one axis after the other: (1 - a)*x[i] + a*x[i+1] at position i + a."""
    shape = context.counted_shape()
    for dim in range(2, len(x.axes)):
        if not context.sizes.equal(x.shape[dim], shape[dim]):
            factor = None if align_corners or factors is None else sympy.Rational(factors[dim - 2])
            ratio = None if factor is None or factor.is_Integer else 1 / factor
            x = _interpolated_axis(
                context, context.simple(x), dim, shape[dim], align_corners, ratio
            )
    return x


def _interpolated_axis(
    context: Context,
    x: tv.TracedValue,
    dim: int,
    size: sympy.Expr,
    align_corners: bool,
    ratio: sympy.Rational | None,
) -> tv.TracedValue:
    """Interpolate along an axis; ``ratio`` is that of the positions if the sizes are rounded."""
    x, atom = context.single(x, dim)
    new, whole = tv.Atom.new(size), atom.size
    if align_corners:
        above: tv.TracedNode = tv.Position(new) * (whole - 1)
        below = context.sizes.plain(size - 1)
    else:
        old, size = (whole, size) if ratio is None else (ratio.p, ratio.q)
        above = tv.apply("maximum", (2 * tv.Position(new) + 1) * old - size, 0)
        below = context.sizes.plain(2 * size)
    low = above // below
    high = tv.apply("int", tv.apply("minimum", low + 1, whole - 1))
    part = above / below - low
    one, two = (tv.substituted(x.node, {atom: at}) for at in (low, high))
    return replace(x.with_axis(dim, (new,)), node=(1 - part) * one + part * two, kind="float")


# -------------------------------------------------------------------- grids


_NEAREST, _CUBIC = 1, 2
_ZEROS, _REFLECTED = 0, 2
_STEMS = (("slice", "front"), ("row", "top"), ("column", "left"))


@operation("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sample(
    context: Context,
    x: tv.TracedValue,
    grid: tv.TracedValue,
    mode: int,
    padding: int,
    align_corners: bool,
) -> tv.TracedValue:
    if mode == _CUBIC:
        raise unread(
            "grid_sample with mode='bicubic' is not supported; use mode='bilinear', or compute "
            "the samples outside and pass them as an argument"
        )
    x, grid, spatial = context.simple(x).fresh(), context.simple(grid), len(x.axes) - 2
    sizes = [x.shape[2 + n] for n in range(spatial)]
    x = context.with_one_index(x, *range(2, len(x.axes)))
    places, firsts = [], []

    def rounded(a: tv.TracedNode) -> tv.TracedNode:
        return tv.apply("int", tv.apply("round" if mode == _NEAREST else "floor", a))

    for n, (name, first) in enumerate(_STEMS[-spatial:]):
        place = context.elementwise(
            partial(_grid_position, sizes[n], align_corners), _coordinate(grid, spatial - 1 - n)
        )
        if padding == _REFLECTED and not (align_corners and sizes[n] == 1):
            turned = partial(_reflected_position, sizes[n], align_corners)
            place = context.elementwise(turned, context.named(place, name))
        if padding != _ZEROS:
            place = context.elementwise(
                partial(_clamped_position, sizes[n]), context.named(place, name)
            )
        place = context.named(place, name)
        whole = context.elementwise(rounded, place, kind="int")
        places.append(place.with_unit_axis(1))
        firsts.append(context.named(whole, first).with_unit_axis(1))
    rest = replace(x, axes=(*x.axes[:2], *((),) * spatial))
    rest, *found = context.aligned(rest, *places, *firsts)
    own, low = ([v.node for v in part] for part in (found[:spatial], found[spatial:]))
    terms: list[tv.TracedNode] = []
    for steps in product((0, 1) if mode != _NEAREST else (0,), repeat=spatial):
        near = [p + 1 if step else p for p, step in zip(low, steps, strict=True)]
        at = {a: p for axis, p in zip(x.axes[2:], near, strict=True) for a in axis}
        term = tv.substituted(rest.node, at)
        if mode != _NEAREST:
            for u, p, step in zip(own, low, steps, strict=True):
                term = term * (u - p if step else p + 1 - u)
        test = _neighbor_in_bounds(near, steps, sizes, padding)
        terms.append(term if test is None else where(test, term, 0))
    return tv.TracedValue(context.axes_of([rest, *found]), reduce(operator.add, terms), x.kind)


def _coordinate(grid: tv.TracedValue, n: int) -> tv.TracedValue:
    """Return the n-th coordinate of each sample."""
    for atom in reversed(grid.axes[-1]):
        n, inner = divmod(n, int(atom.size))
        grid = grid.at({atom: tv.TracedNumber(inner)})
    return grid.without_axis(len(grid.axes) - 1)


def _grid_position(size: sympy.Expr, align_corners: bool, a: tv.TracedNode) -> tv.TracedNode:
    """Map a coordinate in [-1, 1] to a position on an axis."""
    if align_corners:
        return (a + 1) * tv.TracedNumber(size - 1) / 2
    return ((a + 1) * tv.TracedNumber(size) - 1) / 2


def _reflected_position(size: sympy.Expr, align_corners: bool, a: tv.TracedNode) -> tv.TracedNode:
    """Reflect a position at the centers of the outermost elements, or at their edges."""
    span = tv.TracedNumber(size - 1 if align_corners else size)
    half = tv.TracedNumber(sympy.Rational(1, 2))
    from_edge = tv.apply("remainder", a if align_corners else a + half, 2 * span)
    inner = span - tv.apply("abs", from_edge - span)
    return inner if align_corners else inner - half


def _clamped_position(size: sympy.Expr, a: tv.TracedNode) -> tv.TracedNode:
    """Clamp a position to the axis; the slope at an end is 0, as in torch."""
    end = tv.TracedNumber(size - 1)
    inner = where(a >= end, end, a)
    return where(a <= 0, 0, inner)


def _neighbor_in_bounds(
    near: Sequence[tv.TracedNode], steps: Sequence[int], sizes: Sequence[sympy.Expr], padding: int
) -> tv.TracedNode | None:
    """Return the test that an element is inside the tensor, or None.

    Unless padding is by zeros, the first neighbor always is.
    """
    tests: list[tv.TracedNode] = []
    for p, step, size in zip(near, steps, sizes, strict=True):
        if padding == _ZEROS:
            tests.append(p >= 0)
        if padding == _ZEROS or step:
            tests.append(p < size)
    return conjunction(tests)
