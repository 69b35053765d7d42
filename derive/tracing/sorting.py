"""Sorted values and their positions, by the rank of each element, and others of an order.

    rank[k]   =  Sum_l [x[l] < x[k] or x[l] == x[k] and l < k]       of equal elements in order
    sorted[r] =  Sum_k [rank[k] == r] x[k],      order[r] = Sum_k [rank[k] == r] k
    place     =  Sum_k [x[k] < t]                of t among sorted x
    running maximum[l]  =  max_{k <= l} x[k]

These readings are for a spec. Where a function is to run with its own choice among equal elements,
torch computes the positions instead. Elements that are nan have no rank.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import sympy

from derive.tracing.context import Context, Translate
from derive.tracing.graph import in_block
from derive.tracing.refusals import unread
from derive.tracing.values import (
    Atom,
    Axis,
    Position,
    TracedNode,
    TracedNumber,
    TracedRead,
    TracedValue,
    apply,
    new_axis,
    reduced,
    substituted,
    walk,
)

_BY_RANKS = ContextVar("by ranks", default=False)


def by_ranks() -> AbstractContextManager[None]:
    """Read orders by ranks, not as positions that torch computes in each call."""
    return in_block(_BY_RANKS, True)


def sorting_of(name: str) -> Translate | None:
    """Return the reading of an operation that sorts, if orders are read by ranks."""
    return _SORTINGS.get(name) if _BY_RANKS.get() else None


def _ranked(
    context: Context, x: TracedValue, dim: int, descending: bool
) -> tuple[TracedValue, Atom, TracedNode]:
    """Return (x, its only index along dim, the rank of each element)."""
    x, k = context.single(context.simple(x), dim)
    other = Atom.new(k.size)
    there = substituted(x.node, {k: Position(other)})
    before = apply(">" if descending else "<", there, x.node)
    tied = apply("==", there, x.node) & apply("<", Position(other), Position(k))
    count = reduced("sum", (other,), apply("truth", before | tied))
    rank = context.named(replace(x, node=count, kind="int"), "rank")
    return x, k, rank.renamed(dict(zip(rank.atoms, x.atoms, strict=True))).node


def _at_ranks(
    context: Context, x: TracedValue, dim: int, descending: bool, axis: Axis, wanted: TracedNode
) -> tuple[TracedValue, TracedValue]:
    """Return the elements of the wanted ranks, along an axis in place of dim; their positions."""
    x, k, rank = _ranked(context, x, dim, descending)
    chosen, found = apply("==", rank, wanted), x.with_axis(dim, axis)
    value, position = (reduced("sum", (k,), e, chosen) for e in (x.node, Position(k)))
    return replace(found, node=value), replace(found, node=position, kind="int")


def _sort(
    context: Context, x: TracedValue, dim: int = -1, descending: bool = False, **_: Any
) -> tuple[TracedValue, TracedValue]:
    return _first(context, x, dim, descending, lambda: x.shape)


def _is_alone(x: TracedValue, dim: int) -> bool:
    """True if there is one element along dim."""
    return not x.axes or not x.axes[dim]


def _first(
    context: Context, x: TracedValue, dim: int, descending: bool, shape: Callable[[], list[Any]]
) -> tuple[TracedValue, TracedValue]:
    """Return the first elements in this order, and their positions."""
    dim = x.place_of(dim)
    if _is_alone(x, dim):
        return x, replace(x, node=TracedNumber(0), kind="int")
    axis = new_axis(shape()[dim])
    wanted = Position(axis[0]) if axis else TracedNumber(0)
    values, order = _at_ranks(context, x, dim, descending, axis, wanted)
    order = context.named(order, "order")
    if axis and isinstance(order.node, TracedRead):
        context.distinct[order.node.name] = sum(map(bool, order.axes[:dim]))
    return context.named(values, "ordered"), order


def _topk(
    context: Context, x: TracedValue, k: Any, dim: int = -1, largest: bool = True, *_: Any
) -> tuple[TracedValue, TracedValue]:
    return _first(context, x, dim, largest, context.counted_shape)


def _one(
    context: Context, x: TracedValue, wanted: TracedNode, dim: int = -1, keepdim: bool = False
) -> tuple[TracedValue, TracedValue]:
    """Return the element of one rank, and its position."""
    dim = x.place_of(dim)
    if _is_alone(x, dim):
        found = x, replace(x, node=TracedNumber(0), kind="int")
    else:
        found = _at_ranks(context, x, dim, False, (), wanted)
    if keepdim or not x.axes:
        return found
    return found[0].without_axis(dim), found[1].without_axis(dim)


def _median(context: Context, x: TracedValue, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the lower of the middle elements; with an axis, also its position."""
    if dim is None:
        return _median(context, context.regrouped(x, [sympy.prod(x.shape)]), 0)[0]
    many = x.shape[x.place_of(dim)] if x.axes else sympy.S.One
    return _one(context, x, apply("//", TracedNumber(many - 1), 2), dim, keepdim)


def _running(context: Context, x: TracedValue, dim: int) -> tuple[TracedValue, TracedValue]:
    """Return the extremum of all elements up to each one along dim, and its position."""
    dim = x.place_of(dim)
    if _is_alone(x, dim):
        return x, replace(x, node=TracedNumber(0), kind="int")
    x, k = context.single(x, dim)
    upto, kind = Atom.new(k.size), context.called.removeprefix("cum")
    test, found = Position(k) <= Position(upto), x.with_axis(dim, (upto,))
    value, position = (reduced(name, (k,), x.node, test) for name in (kind, f"arg{kind}"))
    return replace(found, node=value), replace(found, node=position, kind="int")


def _searchsorted(
    context: Context,
    boundaries: TracedValue,
    x: Any,
    *_: Any,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
    **__: Any,
) -> TracedValue:
    """Return the number of boundaries before each element."""
    if sorter is not None:
        raise unread("searchsorted with a sorter is not supported; gather the boundaries first")
    along = {Position(a) for a in boundaries.axes[-1]}
    for read in walk(boundaries.node):
        if isinstance(read, TracedRead) and read.name in context.inputs:
            places = (n for n, p in enumerate(read.positions) if along.intersection(walk(p)))
            context.ascending.update((read.name, n) for n in places)
    x, last = context.value(x), len(boundaries.axes) - 1
    if last:
        boundaries = boundaries.with_unit_axis(last)
    test = "<=" if right or side == "right" else "<"
    unit = x.with_unit_axis(len(x.axes))
    before = context.elementwise(partial(apply, test), boundaries, unit, kind="bool")
    count = reduced("sum", before.axes[-1], apply("truth", before.node))
    return context.named(TracedValue(before.axes[:-1], count, "int"), "place")


_SORTINGS: dict[str, Translate] = {
    "sort": _sort,
    "argsort": lambda context, x, *args, **named: _sort(context, x, *args, **named)[1],
    "msort": lambda context, x: _sort(context, x, 0)[0],
    "topk": _topk,
    "kthvalue": lambda context, x, k, *args, **named: _one(
        context, x, TracedNumber(k - 1), *args, **named
    ),
    "median": _median,
    "cummax": _running,
    "cummin": _running,
    "searchsorted": _searchsorted,
    "bucketize": lambda context, x, bounds, **named: _searchsorted(context, bounds, x, **named),
}
