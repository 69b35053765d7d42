"""Axes of the elements that a mask selects, and of others concatenated to them.

    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, loops], 1)
    out.index_add(0, edges[1], x[edges[0]])

is a sum over the edges where the mask holds, plus one over the loops. A value along such an axis is
kept as consecutive pieces. Each piece has all its elements, and its mask. A sum or another
reduction over the axis takes the mask as its condition.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from derive.errors import DeriveError
from derive.tracing.context import Context, Length, is_of_each_element, symbol_of
from derive.tracing.masks import MANY, lifted_mask, selection, under_mask, with_outer_mask
from derive.tracing.segments import match_positions
from derive.tracing.values import Position, TracedValue, apply, reduced, walk


@dataclass(frozen=True)
class Pieces:
    """Values that follow one another along an axis."""

    values: tuple[TracedValue, ...]


_CARRIED = frozenset(
    "index index_select gather embedding linear matmul mm view reshape _unsafe_view unsqueeze "
    "squeeze expand expand_as select slice transpose permute t clone detach to _to_copy alias "
    "contiguous unbind lift_fresh_copy type_as float double ones zeros full ones_like zeros_like "
    "full_like new_ones new_zeros new_full repeat cat stack dropout sum".split()
)
"""Operations that map each element, or those along other axes, within one piece."""
_MADE = frozenset(
    "ones zeros full ones_like zeros_like full_like new_ones new_zeros new_full".split()
)
_ADDED = ("index_add", "index_add_", "scatter_add", "scatter_add_")
_REDUCED = ("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_")


def first_piece(context: Context, x: TracedValue, dim: int, mask: TracedValue) -> Pieces:
    """Return x at the positions of one axis where a mask holds."""
    if bool(x.axes[dim]) != bool(mask.axes[0]) or not mask.axes[0]:
        raise DeriveError(MANY)
    mask = context.simple(mask)
    around = tuple(mask.axes[0] if n == dim else () for n in range(len(x.axes)))
    x, wide = context.aligned(x, replace(mask, axes=around))
    record_pieces(context, dim, [(x.shape[dim], mask)])
    return Pieces((replace(x, node=under_mask(wide.node, x.node)),))


def record_pieces(context: Context, dim: int, lengths: Sequence[Length]) -> None:
    """Record the pieces that the axis of a node's result consists of."""
    size = context.node.meta["val"].shape[dim]
    if hasattr(size, "node"):
        context.lengths[size.node.expr] = list(lengths)


def has_pieces(context: Context, node: Any, given: Sequence[Any]) -> bool:
    """True if an operation takes or makes pieces."""
    if any(isinstance(x, Pieces) for x in given):
        return True
    if context.called in _MADE:
        return bool(_dims(context, node))
    return context.called in _CARRIED and any(map(_of_one_axis, given))


def _of_one_axis(x: Any) -> bool:
    found = selection(x)
    if found is None:
        return False
    atoms = {p.atom for p in walk(found[0]) if isinstance(p, Position)}
    return any(set(axis) == atoms for axis in x.axes)


def _dims(context: Context, node: Any) -> list[int]:
    """Return the axes of a node's result that consist of pieces."""
    shape = getattr(node.meta.get("val"), "shape", ())
    return [n for n, size in enumerate(shape) if symbol_of(size) in context.lengths]


def _piece(x: Any, k: int) -> Any:
    """Return the arguments for the k-th piece."""
    if isinstance(x, Pieces):
        return x.values[k]
    if isinstance(x, TracedValue) and (found := selection(x)) is not None:
        return replace(x, node=under_mask(*found))
    if isinstance(x, tuple | list):
        return type(x)(_piece(e, k) for e in x)
    return x


def leaves_of(x: Any) -> Iterator[Any]:
    if isinstance(x, tuple | list):
        for e in x:
            yield from leaves_of(e)
    elif isinstance(x, dict):
        yield from leaves_of(list(x.values()))
    else:
        yield x


def by_pieces(context: Context, f: Any, node: Any, args: Any, kwargs: Any) -> Any:
    """Apply an operation to each piece, or to all of them."""
    name = context.called
    counts = {len(x.values) for x in leaves_of([args, kwargs]) if isinstance(x, Pieces)}
    dims = _dims(context, node)
    if name == "cat":
        along = (args[1] if len(args) > 1 else 0) % len(node.meta["val"].shape)
        if any(symbol_of(x.meta["val"].shape[along]) in context.lengths for x in node.args[0]):
            return _concatenated_pieces(context, node, args[0], along)
    if not counts:
        made = symbol_of(node.meta["val"].shape[dims[0]]) if dims else None
        counts = {len(context.lengths[made]) if made is not None else 1}
    if len(counts) > 1:
        raise DeriveError(MANY)
    count = counts.pop()

    def of(k: int, *instead: Any) -> Any:
        own = _piece(args, k)
        named_ = {key: _piece(x, k) for key, x in kwargs.items()}
        own = (*instead, *own[len(instead) :])
        with context.in_piece(k):
            return f(context, *own, **named_)

    if name in _MADE and not dims:
        return of(0)
    if name in _ADDED:
        whole = args[0]
        for k in range(count):
            whole = of(k, whole)
        return whole
    if name in _REDUCED:
        return _reduced_pieces(context, f, count, args, kwargs)
    if name == "sum" and not dims:
        return _sum_of_pieces(context, node, args, kwargs)
    is_carried = name in _CARRIED or is_of_each_element(f)
    if not is_carried:
        raise DeriveError(MANY)
    if name == "unbind":
        return [
            Pieces(tuple(map(with_outer_mask, own)))
            for own in zip(*map(of, range(count)), strict=True)
        ]
    values = []
    for k in range(count):
        value = of(k)
        if name in _MADE:
            value = _masked_like(context, value, dims[0], k, node)
        values.append(with_outer_mask(value))
    return Pieces(tuple(values))


def _masked_like(context: Context, value: TracedValue, dim: int, k: int, node: Any) -> TracedValue:
    """Put a new tensor under the mask that determines its length."""
    _, mask = context.lengths[symbol_of(node.meta["val"].shape[dim])][k]
    value = lifted_mask(value)[1]
    if mask is None:
        return value
    around = tuple(mask.axes[0] if n == dim else () for n in range(len(value.axes)))
    value, wide = context.aligned(value, replace(mask, axes=around))
    return replace(value, node=under_mask(wide.node, value.node))


def _concatenated_pieces(context: Context, node: Any, tensors: Sequence[Any], dim: int) -> Pieces:
    """Concatenate tensors along an axis of pieces."""
    values: list[TracedValue] = []
    lengths: list[Length] = []
    for x, source in zip(tensors, node.args[0], strict=True):
        if isinstance(x, Pieces):
            values += x.values
            lengths += context.lengths[symbol_of(source.meta["val"].shape[dim])]
        elif _of_one_axis(x):
            values.append(_piece(x, 0))
            lengths += context.lengths[symbol_of(source.meta["val"].shape[dim])]
        else:
            values.append(x)
            lengths.append((x.shape[dim], None))
    record_pieces(context, dim, lengths)
    return Pieces(tuple(values))


def _sum_of_pieces(context: Context, node: Any, args: Any, kwargs: Any) -> TracedValue:
    """Return the sum over the pieces, where their masks hold."""
    source = node.args[0].meta["val"].shape
    places = [n for n, size in enumerate(source) if symbol_of(size) in context.lengths]
    wanted = args[1] if len(args) > 1 else kwargs.get("dim")
    keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    if wanted is None or wanted == []:
        wanted = range(len(source))
    dims = {d % len(source) for d in ([wanted] if isinstance(wanted, int) else wanted)}
    if not places or not dims >= set(places) or not isinstance(args[0], Pieces):
        raise DeriveError(MANY)
    made: TracedValue | None = None
    for value in args[0].values:
        mask, plain = lifted_mask(value)
        atoms = [a for d in dims for a in plain.axes[d]]
        body = reduced("sum", atoms, plain.node, mask)
        axes = [() if n in dims else axis for n, axis in enumerate(plain.axes)]
        kept = tuple(axis for n, axis in enumerate(axes) if keepdim or n not in dims)
        part = TracedValue(kept, body, plain.kind)
        made = part if made is None else context.elementwise(operator.add, made, part)
    assert made is not None
    return made


def _reduced_pieces(context: Context, f: Any, count: int, args: Any, kwargs: Any) -> TracedValue:
    """Reduce the values of all pieces at each position; positions without values keep theirs."""
    x, dim, index, source, kind, *rest = args
    include = rest[0] if rest else kwargs.get("include_self", True)
    if kind not in ("amax", "amin", "sum", "prod"):
        raise DeriveError(MANY)
    met: TracedValue | None = None
    for k in range(count):
        i, s = _piece(index, k), _piece(source, k)
        x = context.simple(x)
        if include:
            x = f(context, x, dim, i, s, kind, True)
            continue
        here = match_positions(context, x, dim, i, s)
        any_here = context.simple(replace(here.put(here.any()), kind="bool"))
        alone = f(context, x, dim, i, s, kind, False)
        if met is None:
            x, met = alone, any_here
            continue
        both = f(context, x, dim, i, s, kind, True)
        x = context.elementwise(partial(apply, "where"), met, both, alone, kind=x.kind)
        met = context.elementwise(operator.or_, met, any_here, kind="bool")
    made: TracedValue = x
    return made
