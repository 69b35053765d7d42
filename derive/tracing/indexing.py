"""Indexing by integer tensors, and tensors of positions and numbers: arange, full, eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from derive.errors import DeriveError
from derive.tracing.context import Context, operation
from derive.tracing.masks import MANY, lifted_mask
from derive.tracing.ragged import Pieces, first_piece, record_pieces
from derive.tracing.values import (
    Atom,
    Position,
    TracedApply,
    TracedNode,
    TracedNumber,
    TracedParameter,
    TracedRead,
    TracedReduce,
    TracedValue,
    apply,
    joined,
    kind_of,
    new_axis,
    substituted,
    walk,
)


def _indexed_axis(context: Context, x: TracedValue, dim: int, index: TracedValue) -> TracedValue:
    """Return x with one axis replaced by the axes of an integer index."""
    if not x.axes[dim]:
        # An axis of size 1 has one element, whatever the index is.
        return replace(x, axes=(*x.axes[:dim], *index.fresh().axes, *x.axes[dim + 1 :]))
    x, atom = context.single(x, dim)
    index = _named_index(context, index).fresh()
    node = substituted(x.node, {atom: _axis_position(context, index.node, atom)})
    return TracedValue((*x.axes[:dim], *index.axes, *x.axes[dim + 1 :]), node, x.kind)


@operation("embedding")
def embedding(
    context: Context, weight: TracedValue, index: TracedValue, padding: int = -1, *_: Any
) -> TracedValue:
    if padding >= 0:
        raise DeriveError(
            "an embedding with padding_idx is not supported, because its gradient is 0 there"
        )
    return _indexed_axis(context, weight.fresh(), 0, index)


@operation("index_select")
def index_select(context: Context, x: TracedValue, dim: int, index: TracedValue) -> TracedValue:
    return _indexed_axis(context, x.fresh(), x.place_of(dim), index)


@operation("index")
def index(
    context: Context, x: TracedValue, indices: Sequence[TracedValue | None]
) -> TracedValue | Pieces:
    x = x.fresh()
    given = [(n, i) for n, i in enumerate(indices) if i is not None]
    if any(i.kind == "bool" for _, i in given):
        if len(given) > 1:
            raise DeriveError(MANY)
        if len(given[0][1].axes) == 1 and given[0][0] > 0:
            return first_piece(context, x, *given[0])
        if given[0][0] != 0:
            raise DeriveError(MANY)
        if len(given[0][1].axes) == 1 and given[0][1].axes[0]:
            record_pieces(context, 0, [(given[0][1].axes[0][0].size, context.simple(given[0][1]))])
        return context.masked(x, given[0][1])
    if len(given) == 1:
        return _indexed_axis(context, x, *given[0])
    places = [n for n, _ in given]
    if places != list(range(places[0], places[0] + len(places))):
        raise DeriveError("indices with axes between them are not supported")
    values = []
    for n, i in given:
        x = context.with_one_index(x, n)
        values.append(_named_index(context, i))
    values = context.aligned(*values)
    axes = context.axes_of(values)
    inner = {
        x.axes[n][0]: _axis_position(context, v.node, x.axes[n][0])
        for (n, _), v in zip(given, values, strict=True)
        if x.axes[n]
    }
    node = substituted(x.node, inner)
    kept = (*x.axes[: places[0]], *axes, *x.axes[places[-1] + 1 :])
    return TracedValue(kept, node, x.kind)


@operation("masked_select")
def masked_select(context: Context, x: TracedValue, mask: TracedValue) -> TracedValue:
    if len(mask.axes) != len(x.axes):
        raise DeriveError(MANY)
    return context.masked(x.fresh(), mask)


def _named_index(context: Context, index: TracedValue) -> TracedValue:
    """Return the index in a form that a position may have: a read, or a sum of positions."""
    if _is_plain_index(index):
        return index
    is_computed = any(
        isinstance(x, TracedRead | TracedReduce)
        or (isinstance(x, TracedApply) and x.name not in _OF_POSITIONS)
        for x in walk(index.node)
    )
    return context.named(index, "index") if is_computed else index


_OF_POSITIONS = ("+", "-", "*", "neg", "//")


def _is_plain_index(x: TracedValue) -> bool:
    return isinstance(lifted_mask(x)[1].node, TracedRead | Position)


def _axis_position(context: Context, node: TracedNode, atom: Atom) -> TracedNode:
    """Return a node as a position on an axis.

    A bare index would imply that the axis has its size. On a longer axis the position is index +
    start, with the parameter start = 0. A negative number counts from the end.
    """
    if isinstance(node, Position) and not context.sizes.equal(node.atom.size, atom.size):
        context.sizes.at_least(atom.size - node.atom.size)
        return node + TracedParameter(context.start())
    if isinstance(node, TracedNumber) and sympy.sympify(node.value).is_negative:
        return TracedNumber(atom.size + node.value)
    return node


@operation("gather")
def gather(context: Context, x: TracedValue, dim: int, index: TracedValue, **_: Any) -> TracedValue:
    dim = x.place_of(dim)
    x, index = x.fresh(), index.fresh()
    atom = None
    if x.axes[dim]:
        x, atom = context.single(x, dim)
        index = _named_index(context, index).fresh()
    rest = x.with_axis(dim, ())
    for n, (a, b) in enumerate(zip(rest.axes, index.axes, strict=True)):
        if n != dim and bool(a) != bool(b):
            raise DeriveError("a gather from a part of an axis is not supported")
    values = context.aligned(index, rest)
    node = values[1].node
    if atom is not None:
        node = substituted(node, {atom: _axis_position(context, values[0].node, atom)})
    return TracedValue(context.axes_of(values), node, x.kind)


# -------------------------------------------------------------------- positions and numbers


@operation("arange")
def arange(context: Context, *args: Any, **named: Any) -> TracedValue:
    plain = [a for a in args if not isinstance(a, str)]
    start, step = (plain[0] if len(plain) > 1 else 0), (plain[2] if len(plain) > 2 else 1)
    (size,) = context.shape()
    axis = new_axis(size)
    node = joined(axis)
    if step != 1 and axis:
        node = TracedNumber(step) * node
    if start != 0:
        node = node + start if axis else TracedNumber(start)
    return TracedValue((axis,), node, kind_of(context.node.meta["val"]))


@operation("linspace")
def linspace(context: Context, start: Any, end: Any, *_: Any, **__: Any) -> TracedValue:
    """Return start + n*(end - start)/(size - 1), or start for size 1."""
    (size,) = context.shape()
    if size == 1:
        return TracedValue(((),), TracedNumber(start))
    if any(isinstance(x, TracedValue) for x in (start, end)):
        raise DeriveError("a linspace between tensors is not supported; use torch.lerp")
    atom = Atom.new(size)
    whole = all(float(x).is_integer() for x in (start, end))
    rise = int(end) - int(start) if whole else end - start
    start = int(start) if whole else start
    node: TracedNode = Position(atom)
    if rise != size - 1:
        node = node if rise == 1 else TracedNumber(rise) * node
        node = node / (size - 1)
    return TracedValue(((atom,),), node if start == 0 else node + start)


@operation(
    *("zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like"),
    *("new_full", "scalar_tensor", "empty_like_"),
)
def full(context: Context, *args: Any, **named: Any) -> TracedValue:
    name = context.called
    if "full" in name:
        value = args[1] if name == "full" or name == "full_like" else args[2]
    else:
        value = args[0] if name == "scalar_tensor" else 1 if "ones" in name else 0
    if isinstance(value, TracedValue):
        return _of_one_element(context, value.node)
    is_bool = kind_of(context.node.meta["val"]) == "bool"
    return _of_one_element(context, TracedNumber(bool(value) if is_bool else value))


def _of_one_element(context: Context, node: TracedNode) -> TracedValue:
    """Return a new tensor like the current node's, all elements of which are the same."""
    axes = tuple(map(new_axis, context.shape()))
    return TracedValue(axes, node, kind_of(context.node.meta["val"]))


@operation("empty", "empty_like", "new_empty", "empty_permuted", "new_empty_strided")
def unset(context: Context, *_: Any, **__: Any) -> TracedValue:
    """Return uninitialized memory; an equation that reads it is an error."""
    return _of_one_element(context, apply("unset"))


@operation("tril", "triu", "tril_", "triu_")
def triangle(context: Context, x: TracedValue, diagonal: int = 0) -> TracedValue:
    for dim in (len(x.axes) - 1, len(x.axes) - 2):
        x = context.with_one_index(x, dim)
    row, column = map(joined, x.axes[-2:])
    lower = "tril" in str(context.node.target)
    edge = row + diagonal if diagonal else row
    test = apply("<=" if lower else ">=", column, edge)
    if x.kind == "bool":
        whole = isinstance(x.node, TracedNumber) and x.node.value is True
        return replace(x, node=test if whole else test & x.node)
    return replace(x, node=apply("where", test, x.node, 0))


@operation("eye")
def eye(context: Context, *_: Any, **__: Any) -> TracedValue:
    axes = tuple(map(new_axis, context.shape()))
    same = apply("==", *map(joined, axes))
    if kind_of(context.node.meta["val"]) == "bool":
        return TracedValue(axes, same, "bool")
    return TracedValue(axes, apply("where", same, 1, 0))


@operation("one_hot")
def one_hot(context: Context, x: TracedValue, num_classes: Any = -1) -> TracedValue:
    atom = Atom.new(context.shape()[-1])
    x = x if _is_plain_index(x) else context.named(x, "index")
    node = apply("where", apply("==", x.node, Position(atom)), 1, 0)
    return TracedValue((*x.axes, (atom,)), node, "int")
