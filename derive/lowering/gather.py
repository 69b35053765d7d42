"""X[.., e, ..] where e is computed, and the transpose: a value added at computed positions.

Reads go through ``gather`` and ``index_select``, which refuse a position out of range; advanced
indexing would wrap a negative one. Writes add: a position that occurs twice counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.expr import Index, Num
from derive.lowering.code import (
    Binary,
    Code,
    Dim,
    Literal,
    Method,
    Name,
    Shape,
    Tuple,
    literal,
)
from derive.lowering.value import Frame, NeedsFlatGroups, Value, index_key

__all__ = ["add_at", "extremum_at", "put_at", "read_at", "select_at"]


def _sizes(frame: Frame, indices: Sequence[Index]) -> Code:
    return Shape(tuple(Name(index_key(i)) for i in indices))


def read_at(frame: Frame, value: Value, n: int, position: Value) -> Value:
    """value with axis n read at ``position``.

    X.index_select(n, T) where T has no axis of X's, and X.gather(n, T) where it has.
    """
    axes = value.axes
    others = [i for m, i in enumerate(axes) if m != n]
    assert all(i is not None for i in others)
    shared = [i for i in position.indices if i in others]
    new = [i for i in position.indices if i not in others]
    place = frame.position(axes, n)
    if any(i.group for i in new) and (len(new) > 1 or shared):
        raise NeedsFlatGroups("an access along a group")
    if not shared:
        index = frame.squeeze(position, ())
        if len(new) == 1 and not new[0].group:
            code: Code = Method(value.code, "index_select", (place, index.code))
            return Value(code, (*axes[:n], new[0], *axes[n + 1 :]), value.kind)
        if not new:
            one = Method(index.code, "reshape", (literal(1),))
            code = Method(value.code, "index_select", (place, one))
            code = Method(code, "squeeze", (place,))
            return Value(code, (*axes[:n], *axes[n + 1 :]), value.kind)
        flat = Method(index.code, "flatten")
        code = Method(value.code, "index_select", (place, flat))
        made = (*axes[:n], *index.indices, *axes[n + 1 :])
        if any(i.group for i in new):
            # A group may have no axes, and unflatten makes one at least.
            sizes = _sizes(frame, [i for i in made if i is not None])
            return Value(Method(code, "reshape", (sizes,)), made, value.kind)
        code = Method(code, "unflatten", (place, _sizes(frame, index.indices)))
        return Value(code, made, value.kind)
    if any(i is not None and i.group for i in axes) and len(new) > 0:
        raise NeedsFlatGroups("an access along a group")
    # The new axes stand where axis n stood; several of them are one while gathering.
    slot: tuple[Index | None, ...] = tuple(new) if new else (None,)
    layout = (*axes[:n], *slot, *axes[n + 1 :])
    full = tuple(i for i in layout)
    if len(new) > 1:
        flat_axes = [i for i in layout if i is not None]
        index = frame.expand(position, flat_axes, value.code)
        code = Method(index.code, "flatten", (literal(n), literal(n + len(new) - 1)))
        code = Method(value.code, "gather", (place, code))
        code = Method(code, "unflatten", (place, _sizes(frame, new)))
        return Value(code, full, value.kind)
    index = frame.fill(position, layout)
    code = Method(value.code, "gather", (place, index.code))
    if not new:
        code = Method(code, "squeeze", (place,))
        return Value(code, (*axes[:n], *axes[n + 1 :]), value.kind)
    return Value(code, full, value.kind)


def add_at(
    frame: Frame,
    source: Value,
    axis: Index,
    position: Value,
    binders: Sequence[Index],
    order: Sequence[Index],
    base: Code | None,
    like: Code,
) -> Value:
    """Sum over binders of source * delta(axis, position), added to ``base`` (or to zeros).

    ``order`` lists the axes of the result; binders that the position lacks are summed already.
    """
    result = [i for i in order if i is axis or i in source.indices or i in position.indices]
    result = [i for i in result if i is axis or i not in binders]
    n = result.index(axis)
    if base is None:
        base = Method(like, "new_zeros", (_sizes(frame, result),))
    summed = [i for i in position.indices if i in binders]
    place = frame.position(tuple(result), n)
    if len(summed) == len(position.indices) and summed:
        if any(i.group for i in summed) and len(summed) > 1:
            raise NeedsFlatGroups("an addition along a group")
        index = frame.squeeze(position, ())
        layout = [*result[:n], *index.indices, *result[n + 1 :]]
        full = frame.expand(source, layout, like)
        first, code = index.code, full.code
        if len(index.indices) > 1 or index.indices[0].group:
            if index.indices[0].group:
                raise NeedsFlatGroups("an addition along a group")
            first = Method(first, "flatten")
            code = _merged(full, n, len(index.indices))
        return Value(Method(base, "index_add", (place, first, code)), tuple(result))
    index_code, value_code = _along(frame, source, position, summed, result, n)
    code = Method(base, "scatter_add", (place, index_code, value_code))
    return Value(code, tuple(result))


def extremum_at(
    frame: Frame,
    source: Value,
    axis: Index,
    position: Value,
    binders: Sequence[Index],
    order: Sequence[Index],
    base: Code,
    kind: str,
) -> Value:
    """amax or amin over binders of what source has at each position, and of ``base``.

    All binders are indices of the position.
    """
    result = [i for i in order if i is axis or i in source.indices or i in position.indices]
    n = result.index(axis)
    index, values = _along(frame, source, position, binders, result, n)
    place = frame.position(tuple(result), n)
    args = (place, index, values, Literal(f'"{kind}"'))
    return Value(Method(base, "scatter_reduce", args), tuple(result))


def _along(
    frame: Frame,
    source: Value,
    position: Value,
    summed: Sequence[Index],
    result: Sequence[Index],
    n: int,
) -> tuple[Code, Code]:
    """Position and source in one shape, with one axis for all that is summed in place of axis n."""
    slot: tuple[Index | None, ...] = tuple(summed) if summed else (None,)
    if any(i.group for i in summed) or (len(summed) > 1 and any(i.group for i in result)):
        raise NeedsFlatGroups("an addition along a group")
    wide = (*result[:n], *slot, *result[n + 1 :])
    index, values = frame.fill(position, wide), frame.fill(source, wide)
    if len(summed) < 2:
        return index.code, values.code
    ends = (literal(n), literal(n + len(summed) - 1))
    return Method(index.code, "flatten", ends), _merged(values, n, len(summed))


def _merged(value: Value, n: int, count: int) -> Code:
    """The value with this many axes from n on as one, in a form that autograd can batch."""
    whole: Code | None = None
    for axis in value.axes[n : n + count]:
        assert axis is not None
        size = Dim(axis.extent)
        whole = size if whole is None else Binary("*", whole, size)
    assert whole is not None
    rest = [Name(index_key(i)) for i in value.axes if i is not None]
    return Method(value.code, "reshape", (Shape((*rest[:n], whole, *rest[n + count :])),))


def select_at(
    frame: Frame,
    source: Value,
    axis: Index,
    position: Num,
    order: Sequence[Index],
    like: Code,
) -> Value:
    """source * delta(axis, n) for a number n: zeros with the source at n."""
    n = list(order).index(axis)
    zeros = Method(like, "new_zeros", (_sizes(frame, order),))
    value = frame.expand(source, [i for i in order if i is not axis], like)
    place = frame.position(tuple(order), n)
    # Not select_scatter, whose derivative under two vmaps is wrong in torch 2.13.
    one = Method(value.code, "unsqueeze", (place,))
    at = int(position.value)
    args = (one, place, literal(at), literal(at + 1))
    return Value(Method(zeros, "slice_scatter", args), tuple(order))


def put_at(
    frame: Frame,
    source: Value,
    targets: Sequence[tuple[Index, Value]],
    binders: Sequence[Index],
    order: Sequence[Index],
    like: Code,
) -> Value:
    """Sum over binders of source * product of delta(axis, position), for several axes at once."""
    inside = [i for i in order if any(i in p.indices for _, p in targets)]
    inside += [i for i in binders if i not in inside and any(i in p.indices for _, p in targets)]
    rest = [
        i
        for i in order
        if i in source.indices and i not in inside and all(i is not a for a, _ in targets)
    ]
    layout = [*inside, *rest]
    if any(i.group for i in layout):
        raise NeedsFlatGroups("an addition along a group")
    axes = [axis for axis, _ in targets]
    positions = [frame.fit(p, inside).code for _, p in targets]
    sizes = _sizes(frame, [*axes, *rest])
    values = frame.expand(source, layout, like)
    code: Code = Method(like, "new_zeros", (sizes,))
    accumulate = Literal("accumulate=True")
    code = Method(code, "index_put", (Tuple(tuple(positions)), values.code, accumulate))
    return Value(code, (*axes, *rest))
