"""Parts of an axis, and what surrounds them: slices, windows, paddings, rotations.

x[:, 1:]   is x[n,u+1] with size(u) = size(t) - 1
pad(x, 1)  is x[n,u-1] where u is in 1 .. size(t), else 0
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derive.tracing.choices import conjunction, where
from derive.tracing.context import Context, operation
from derive.tracing.refusals import unread
from derive.tracing.values import (
    Atom,
    Position,
    TracedNode,
    TracedNumber,
    TracedParameter,
    TracedRead,
    TracedValue,
    apply,
    new_axis,
    reduced,
    rewritten,
    substituted,
)
from derive.tracing.views import cat, moved, select, with_runs_named
from derive.tracing.windows import window_position


def at_position(
    x: TracedValue, dim: int, atom: Atom, position: TracedNode, new: Sequence[Atom]
) -> TracedValue:
    """Return x with new indices on an axis, read at a position that depends on them."""
    return x.with_axis(dim, tuple(new)).at({atom: position})


# -------------------------------------------------------------------- slices


def beginning_at(
    context: Context, x: TracedValue, dim: int, first: sympy.Expr, length: sympy.Expr, step: Any = 1
) -> TracedValue:
    """Return ``length`` positions of an axis from ``first`` on, ``step`` apart."""
    whole = x.shape[dim]
    if length == 1:
        return select(context, x, dim, first).with_unit_axis(dim)
    if not x.axes[dim] and length == 0:
        return x.with_axis(dim, (Atom.new(length),))
    if not x.axes[dim]:
        raise unread("a part of an axis of size 1 is not supported")
    x, atom = context.single(with_runs_named(context, x, dim), dim)
    new = Atom.new(length)
    context.sizes.at_least(length)
    context.sizes.at_least(first)
    context.sizes.at_least(whole - first - (length - 1) * step - 1)
    position: TracedNode = Position(new) if step == 1 else TracedNumber(step) * Position(new)
    if first == 0 and step == 1:
        position = _with_start(context, position, length, whole)
    return at_position(x, dim, atom, moved(position, first), [new])


def _with_start(
    context: Context, at: TracedNode, length: sympy.Expr, whole: sympy.Expr
) -> TracedNode:
    """Return a position on an axis that may be longer than the index.

    A bare index would imply that the axis has its size, so a start parameter, 0, is added.
    """
    if not isinstance(at, Position) or context.sizes.equal(length, whole):
        return at
    if whole.is_Symbol and whole in length.free_symbols:
        return at
    return at + TracedParameter(context.start())


@operation("slice", "narrow", "slice_copy", "narrow_copy")
def slice_axis(
    context: Context,
    x: TracedValue,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> TracedValue:
    dim = x.place_of(dim)
    whole = x.shape[dim]
    made = context.counted_shape()[dim]
    if context.sizes.equal(whole, made) and step == 1:
        return x
    first = sympy.sympify(0 if start is None else start)
    first = whole + first if context.sizes.hint(first) < 0 else first
    return equal_part(context, x, dim, context.sizes.plain(first), made, step)


def equal_part(
    context: Context, x: TracedValue, dim: int, first: sympy.Expr, length: sympy.Expr, step: Any = 1
) -> TracedValue:
    """Slice an axis; if it has equal parts of that length for all sizes, select one of them."""
    whole = x.shape[dim]
    shape = x.shape
    if step != 1:
        # Whether a sum divides in the examples may be accidental.
        even = context.sizes.hint(whole) % step == 0 and not whole.is_Add
        even = even and first.is_Integer and first < step
        if not even or context.sizes.hint(length) * step != context.sizes.hint(whole):
            return beginning_at(context, x, dim, first, length, step)
        rows = context.sizes.plain(whole / step)
        if rows.free_symbols and (whole, sympy.sympify(step)) not in context.sizes.divided:
            context.sizes.divided.append((whole, sympy.sympify(step)))
        if length in context.sizes.rounded.values():
            context.sizes.alike[length] = rows
        split = context.regrouped(x, [*shape[:dim], rows, sympy.sympify(step), *shape[dim + 1 :]])
        return select(context, split, dim + 1, first)
    known = bool(length.free_symbols) or not whole.free_symbols
    count = context.sizes.quotient(whole, length) if known and length != 1 else None
    which = context.sizes.quotient(first, length) if first != 0 else sympy.Integer(0)
    if count is None or which is None or not count.is_Integer:
        return beginning_at(context, x, dim, first, length)
    split = context.regrouped(x, [*shape[:dim], count, length, *shape[dim + 1 :]])
    return select(context, split, dim, which)


@operation("chunk", "split", "split_with_sizes", "tensor_split", "unsafe_split", "unsafe_chunk")
def split_axis(context: Context, x: TracedValue, *args: Any, **named: Any) -> list[TracedValue]:
    dim = named.get("dim", args[1] if len(args) > 1 else 0)
    dim = x.place_of(dim)
    whole = x.shape[dim]
    sizes = [value.shape[dim] for value in context.node.meta["val"]]
    even = len({context.sizes.example(n) for n in sizes}) == 1
    made, first = [], sympy.Integer(0)
    for n in sizes:
        length = context.sizes.of(n) if even else context.sizes.counted(n)
        alone = context.sizes.equal(length, whole)
        first = context.sizes.plain(first)
        made.append(x if alone else equal_part(context, x, dim, first, length))
        first = first + length
    return made


@operation("diagonal")
def diagonal(
    context: Context, x: TracedValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TracedValue:
    """Return x[k,k+offset], with the axis of k last."""
    dim1, dim2 = x.place_of(dim1), x.place_of(dim2)
    length = _diagonal_length(context, x, offset, dim1, dim2)
    new = new_axis(length)
    at: TracedNode = Position(new[0]) if new else TracedNumber(0)
    row, column = (at, moved(at, offset)) if offset >= 0 else (moved(at, -offset), at)
    places = [(dim, at) for dim, at in ((dim1, row), (dim2, column)) if x.axes[dim]]
    for dim, _ in places:
        x, _ = context.single(x, dim)
    for dim, place in places:
        x = x.at({x.axes[dim][0]: place})
        within = _with_start(context, place, length, x.shape[dim])
        if within is not place:
            # Only now, because comparisons with the position are folded without a parameter.
            x = replace(x, node=rewritten(x.node, partial(_read_within, place, within)))
    kept = (axis for n, axis in enumerate(x.axes) if n not in (dim1, dim2))
    return replace(x, axes=(*kept, new))


def _read_within(place: TracedNode, within: TracedNode, node: TracedNode) -> TracedNode:
    """Replace a position by another one in a read."""
    if not isinstance(node, TracedRead):
        return node
    return node.with_parts([within if p == place else p for p in node.positions])


def _diagonal_length(
    context: Context, x: TracedValue, offset: int, dim1: int, dim2: int
) -> sympy.Expr:
    """Return the number of remaining rows or columns, the smaller; Min if sizes decide."""
    rows = x.shape[dim1] + min(offset, 0)
    columns = x.shape[dim2] - max(offset, 0)
    if context.sizes.equal(rows, columns):
        return rows
    if not (rows.free_symbols or columns.free_symbols):
        return min(rows, columns)
    return sympy.Min(rows, columns)


@operation("trace")
def trace(context: Context, x: TracedValue) -> TracedValue:
    """sum[k](x[k,k])."""
    made = diagonal(context, x)
    return TracedValue((), reduced("sum", made.axes[-1], made.node), made.kind)


@operation("diag_embed", "diag")
def on_a_diagonal(
    context: Context, x: TracedValue, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> TracedValue:
    """where(row + offset == column, x[row], 0)."""
    if context.called == "diag":
        if len(x.axes) == 2:
            return diagonal(context, x, offset)
        dim1, dim2 = 0, 1
    shape = context.counted_shape()
    dim1, dim2 = dim1 % len(shape), dim2 % len(shape)
    if not x.axes[-1] or offset < 0 or 1 in (shape[dim1], shape[dim2]):
        raise unread(f"{context.called} of these axes is not supported")
    x, atom = context.single(x, len(x.axes) - 1)
    row, column = Atom.new(shape[dim1]), Atom.new(shape[dim2])
    kept = iter(x.axes[:-1])
    own = {dim1: (row,), dim2: (column,)}
    axes = tuple(own[n] if n in own else next(kept) for n in range(len(shape)))
    test = apply("==", moved(Position(row), offset), Position(column))
    return replace(x, axes=axes, node=where(test, substituted(x.node, {atom: Position(row)}), 0))


@operation("unfold")
def windows(context: Context, x: TracedValue, dim: int, size: Any, step: Any) -> TracedValue:
    """x[n,step*u+k]."""
    dim = x.place_of(dim)
    shape = context.counted_shape()
    x, atom = context.single(x, dim)
    starts = new_axis(shape[dim])
    inner = new_axis(shape[-1])
    position = window_position(starts, inner, step, 1, 0)
    context.sizes.at_least(shape[dim] - 1)
    made = at_position(x, dim, atom, position, starts)
    return replace(made, axes=(*made.axes, inner))


@operation("diff")
def diff(
    context: Context,
    x: TracedValue,
    n: int = 1,
    dim: int = -1,
    prepend: Any = None,
    append: Any = None,
) -> TracedValue:
    dim = x.place_of(dim)
    x = cat(context, [part for part in (prepend, x, append) if part is not None], dim)
    for _ in range(n):
        length = x.shape[dim] - 1
        x = context.simple(x)
        later, sooner = (beginning_at(context, x, dim, sympy.Integer(k), length) for k in (1, 0))
        x = context.elementwise(operator.sub, later, sooner)
    return x


# -------------------------------------------------------------------- around an axis


@operation("pad", "constant_pad_nd")
def pad(
    context: Context,
    x: TracedValue,
    amounts: Sequence[Any],
    mode: Any = "constant",
    value: Any = None,
) -> TracedValue:
    if not isinstance(mode, str):
        mode, value = "constant", mode
    return padded(context, x, amounts, mode, 0 if value is None else value)


_KINDS = {"reflection": "reflect", "replication": "replicate"}


@operation(*(f"{kind}_pad{n}d" for kind in _KINDS for n in (1, 2, 3)), "_pad_circular")
def pad_with_itself(context: Context, x: TracedValue, amounts: Sequence[Any]) -> TracedValue:
    mode = _KINDS.get(context.called.partition("_")[0], "circular")
    return padded(context, x, amounts, mode, 0)


def padded(
    context: Context, x: TracedValue, amounts: Sequence[Any], mode: str, value: Any
) -> TracedValue:
    """Pad the last axes; ``amounts`` are (before, after) of each, from the last axis on."""
    shape = context.counted_shape()
    tests: list[TracedNode] = []
    around = {len(x.axes) - 1 - n // 2: amounts[n : n + 2] for n in range(0, len(amounts), 2)}
    around = {dim: own for dim, own in around.items() if any(a != 0 for a in own)}
    for dim in around:
        # An equation that this makes of x is to hold no position before an axis.
        if x.axes[dim]:
            x, _ = context.single(with_runs_named(context, x, dim), dim)
    for dim, own in around.items():
        before, after = map(sympy.sympify, own)
        new = Atom.new(shape[dim])
        whole, at = x.shape[dim], moved(Position(new), -before)
        context.sizes.at_least(shape[dim])
        if mode == "constant":
            if not (before.is_Integer and before <= 0):
                tests.append(Position(new) >= before)
            if not (after.is_Integer and after <= 0):
                tests.append(at < whole)
        else:
            at = _padded_position(context, mode, at, whole, before, after)
        if not x.axes[dim]:
            x = x.with_axis(dim, (new,))
            continue
        x = at_position(x, dim, x.axes[dim][0], at, [new])
    test = conjunction(tests)
    return x if test is None else replace(x, node=where(test, x.node, value))


def _padded_position(
    context: Context,
    mode: str,
    at: TracedNode,
    whole: sympy.Expr,
    before: sympy.Expr,
    after: sympy.Expr,
) -> TracedNode:
    """Return the position whose element is at a padded position."""
    last = context.sizes.plain(whole - 1)
    if mode == "replicate":
        return apply("int", apply("clamp", at, 0, last))
    if mode == "circular":
        for amount in (before, after):
            context.sizes.at_least(whole - amount)
        return at % TracedNumber(whole)
    if mode != "reflect":
        raise unread(f"the padding mode {mode!r} is not supported")
    for amount in (before, after):
        context.sizes.at_least(last - amount)
    folded = apply("abs", at) if before != 0 else at
    if after == 0:
        return apply("int", folded)
    back = apply("abs", TracedNumber(last) - folded)
    return apply("int", TracedNumber(last) - back)


@operation("roll")
def roll(context: Context, x: TracedValue, shifts: Any, dims: Any = ()) -> TracedValue:
    shifts = list(shifts) if isinstance(shifts, list | tuple) else [shifts]
    dims = list(dims) if isinstance(dims, list | tuple) else [dims]
    if not dims:
        shape = x.shape
        flat = context.regrouped(x, [sympy.prod(shape)])
        return context.regrouped(_rolled(context, flat, 0, shifts[0]), shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(context, x, x.place_of(dim), shift)
    return x


def _rolled(context: Context, x: TracedValue, dim: int, shift: Any) -> TracedValue:
    if not x.axes[dim]:
        return x
    x, atom = context.single(x, dim)
    new = Atom.new(atom.size)
    back = moved(Position(new), -sympy.sympify(shift)) % atom.size
    return at_position(x, dim, atom, back, [new])
