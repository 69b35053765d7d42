"""X[.., e, ..] at a computed position e, and its transpose: a value added at computed positions.

Reads use ``gather`` and ``index_select``, which reject a position out of range; advanced indexing
would wrap a negative one. Writes accumulate: a position that occurs twice counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from derive.algebra.expr import Index
from derive.algebra.substitution import replace as replaced
from derive.lowering.ground.value import (
    Frame,
    Indices,
    NeedsFlatGroups,
    Value,
    axis_size,
    is_group,
    shape_of,
    zeros,
)
from derive.lowering.ground.views import flattened, is_view
from derive.program.torch_ir import (
    Binary,
    Code,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Shape,
    Tuple,
    joined,
    literal,
)


def read_at(frame: Frame, value: Value, n: int, position: Value, suffix: str = "") -> Value:
    """value with axis n read at ``position``.

    X.index_select(n, T) where T has no axis of X's, and X.gather(n, T) where it has. With the
    suffix "if_any" or "inside", what is read from an empty axis or out of range is 0.
    """
    made = _read_at(frame, value, n, position, suffix)
    code = with_gather_suffix(made.code, value.code, suffix) if suffix else made.code
    return replace(made, code=code)


def _read_at(frame: Frame, value: Value, n: int, position: Value, suffix: str) -> Value:
    others = [i for m, i in enumerate(value.axes) if m != n]
    assert all(i is not None for i in others)
    new = [i for i in position.indices if i not in others]
    if len(new) < len(position.indices):
        return _gather_axis(frame, value, n, position, new)
    index = frame.squeeze(position)
    made = None if suffix else frame.read_first(value, n, index)
    return _index_select(frame, value, n, index) if made is None else made


def _index_select(frame: Frame, value: Value, n: int, index: Value) -> Value:
    """Read positions that are the same along all other axes."""
    place, new = frame.position(value.axes, n), index.indices
    groups = any(i.group for i in new)
    if not new:
        one = index.call("reshape", literal(1))
        return value.call("index_select", place, one.code).call("squeeze", place).at(n)
    if len(new) == 1 and not groups:
        return value.call("index_select", place, index.code).at(n, *new)
    if not frame.prefers_methods:
        code = FunctionCall("rt.index_select", (value.code, place, index.code))
        return Value(code, value.at(n, *new).axes, value.kind)
    value = value.call("index_select", place, index.call("flatten").code).at(n, *new)
    if groups:
        # A group may have no axes, and unflatten makes one at least.
        return value.call("reshape", shape_of(value.axes))
    return value.call("unflatten", place, shape_of(new))


def _gather_axis(frame: Frame, value: Value, n: int, position: Value, new: Indices) -> Value:
    """Read positions that vary along other axes; new axes replace axis n."""
    axes = value.axes
    spread = len(new) == 1 and not new[0].group
    if new and not spread and any(is_group(i) for i in (*axes, *new)):
        raise NeedsFlatGroups("an access along a group")
    place = frame.position(axes, n)
    if len(new) > 1:
        # Several new axes are one while gathering.
        layout = [i for i in (*axes[:n], *new, *axes[n + 1 :]) if i is not None]
        index = frame.expand(position, layout, value.code)
        index = index.call("flatten", literal(n), literal(n + len(new) - 1))
        value = value.call("gather", place, index.code)
        return value.call("unflatten", place, shape_of(new)).at(n, *new)
    slot = tuple(new) or (None,)
    index = frame.fill(position, (*axes[:n], *slot, *axes[n + 1 :]))
    value = value.call("gather", place, index.code)
    return value.at(n, *new) if new else value.call("squeeze", place).at(n)


def with_gather_suffix(code: Code, read: Code, suffix: str) -> Code:
    """Return the code with other gathers and scatters.

    Those "if_any" do nothing if the axis is empty, those "inside" skip positions out of range.
    """

    def visit(part: Code) -> Code | None:
        match part:
            case MethodCall(x, name, args) | FunctionCall(name, (x, *args)) if x is read:
                bare = name.removeprefix("rt.")
                return FunctionCall(f"rt.{bare}_{suffix}", (x, *args)) if bare in _PICKS else None
        return None

    return replaced(code, visit)


_PICKS = ("index_select", "gather", "index_add", "scatter_add")


def read_together(
    frame: Frame,
    value: Value,
    places: Sequence[int],
    positions: Sequence[Value],
    along: Callable[[Index], Value],
    any_size: bool,
) -> Value | None:
    """Return the value with several axes read at positions in one call.

    The positions may have axes of the value themselves. One gather after the other would copy, for
    the next one, all that the first position does not select. ``along(i)`` returns the positions of
    an axis. If ``any_size``, an empty axis reads as 0.
    """
    new = list(dict.fromkeys(i for p in positions for i in p.indices))
    if any(i is None or i.group for i in (*value.axes, *new)):
        return None
    first = len(value.axes) - len(places)
    if not set(new).isdisjoint(value.axes) and list(places) == [*range(first, len(value.axes))]:
        # Along the last axes a gather is faster, and leaves all others where they are.
        axes = [i for i in value.axes[first:] if i is not None]
        flat = value.call("flatten", literal(first), literal(len(value.axes) - 1))
        flat = replace(flat, axes=(*value.axes[:first], Index("#joined", "#joined")))
        position = joined_positions(frame, axes, positions, new)
        return read_at(frame, flat, first, position, "if_any" if any_size else "")
    read = dict(zip(places, positions, strict=True))
    for n, i in enumerate(value.axes):
        if n not in read and i in new and i is not None:
            read[n] = along(i)
    dims = sorted(read)
    others = [i for n, i in enumerate(value.axes) if n not in read]
    # Torch puts the axes of the positions in place of the indexed axes if these are adjacent.
    at = dims[0] if dims[-1] - dims[0] < len(dims) else 0
    given = (frame.fit(frame.squeeze(read[n]), new).code for n in dims)
    name = "rt.read_at_if_any" if any_size else "rt.read_at"
    code = FunctionCall(name, (value.code, Tuple(tuple(map(literal, dims))), *given))
    return Value(code, (*others[:at], *new, *others[at:]), value.kind)


def joined_positions(
    frame: Frame, axes: Indices, positions: Sequence[Value], layout: Indices
) -> Value:
    """Return the positions on these axes, row-major, as one; none of them where one is outside."""
    sizes = Shape(tuple(map(axis_size, axes)))
    codes = (frame.fit(frame.squeeze(p), layout).code for p in positions)
    return Value(FunctionCall("rt.joined_positions", (sizes, *codes)), tuple(layout), "int")


def placed_axes(
    source: Value, axis: Index, position: Value, binders: Indices, order: Indices
) -> list[Index]:
    """Return the axes of a source that is scattered along an axis and summed over binders."""
    known = (*source.indices, *position.indices)
    return [i for i in order if i is axis or (i in known and i not in binders)]


def add_at(
    frame: Frame,
    source: Value,
    axis: Index,
    position: Value,
    binders: Indices,
    order: Indices,
    base: Code | None,
    like: Code,
    scale: Code | None = None,
) -> Value:
    """Sum over binders of source * delta(axis, position), added to ``base`` (or to zeros).

    ``scale`` is a number that multiplies the sum. ``order`` lists the axes of the result. Binders
    without the position are summed already.
    """
    result = placed_axes(source, axis, position, binders, order)
    if base is None:
        base = zeros(like, result)
    n = result.index(axis)
    place = frame.position(tuple(result), n)
    summed = [i for i in position.indices if i in binders]
    if len(summed) < len(position.indices) or not summed:
        if scale is not None:
            source = replace(source, code=Binary("*", scale, source.code))
        index, values = _scatter_operands(frame, source, position, summed, result, n)
        return Value(MethodCall(base, "scatter_add", (place, index, values)), tuple(result))
    whole = frame.squeeze(position)
    full = frame.expand(source, [*result[:n], *whole.indices, *result[n + 1 :]], like)
    index, values = whole.code, full.code
    several = len(summed) > 1 or any(i.group for i in summed)
    if several and frame.prefers_methods:
        index, values = MethodCall(index, "flatten"), _merged_summed_axes(full, n, len(summed))
    args = (place, index, values, *(() if scale is None else (Keyword("alpha", scale),)))
    if several and not frame.prefers_methods:
        return Value(FunctionCall("rt.index_add", (base, *args)), tuple(result))
    return Value(MethodCall(base, "index_add", args), tuple(result))


def extremum_at(
    frame: Frame,
    source: Value,
    axis: Index,
    position: Value,
    binders: Indices,
    order: Indices,
    base: Code,
    kind: str,
) -> Value:
    """amax or amin over binders of the source at each position, and of ``base``.

    All binders are indices of the position.
    """
    result = placed_axes(source, axis, position, binders, order)
    n = result.index(axis)
    index, values = _scatter_operands(frame, source, position, binders, result, n)
    place = frame.position(tuple(result), n)
    args = (place, index, values, Literal(f'"{kind}"'))
    return Value(MethodCall(base, "scatter_reduce", args), tuple(result))


def _scatter_operands(
    frame: Frame, source: Value, position: Value, summed: Indices, result: Indices, n: int
) -> tuple[Code, Code]:
    """Return position and source in one shape, with one axis for all summed indices as axis n."""
    slot: tuple[Index | None, ...] = tuple(summed) if summed else (None,)
    if any(i.group for i in summed) or (len(summed) > 1 and any(i.group for i in result)):
        raise NeedsFlatGroups("an addition along a group")
    wide = (*result[:n], *slot, *result[n + 1 :])
    index, values = frame.fill(position, wide), frame.fill(source, wide)
    if len(summed) < 2:
        return index.code, values.code
    ends = (literal(n), literal(n + len(summed) - 1))
    return MethodCall(index.code, "flatten", ends), _merged_summed_axes(values, n, len(summed))


def _merged_summed_axes(value: Value, n: int, count: int) -> Code:
    """Return the code with ``count`` axes from n on merged."""
    axes = value.axes
    groups = [i is not None and i.group for i in axes]
    if not any(groups) and not is_view(value.code):
        return flattened(value.code, n, n + count - 1)
    if count == len(axes):
        return MethodCall(value.code, "reshape", (literal(-1),))
    sizes = [axis_size(i) for i in axes if i is not None]
    # A group may have no axes, and a flattened axis needs one at least.
    merged = joined("*", [Dim(i.extent) for i in axes[n : n + count] if i is not None])
    shape = Shape((*sizes[:n], merged, *sizes[n + count :]))
    return MethodCall(value.code, "reshape", (shape,))


def put_at(
    frame: Frame,
    source: Value,
    targets: Sequence[tuple[Index, Value]],
    binders: Indices,
    order: Indices,
    like: Code,
) -> Value:
    """Sum over binders of source * product of delta(axis, position), for several axes at once."""
    axes = [axis for axis, _ in targets]
    read = {i for _, p in targets for i in p.indices}
    inside = [i for i in order if i in read]
    inside += [i for i in binders if i in read and i not in inside]
    rest = [i for i in order if i in source.indices and i not in inside and i not in axes]
    if any(i.group for i in (*inside, *rest)):
        raise NeedsFlatGroups("an addition along a group")
    positions = Tuple(tuple(frame.fit(p, inside).code for _, p in targets))
    values = frame.expand(source, [*inside, *rest], like)
    args = (positions, values.code, Keyword("accumulate", Literal("True")))
    return Value(MethodCall(zeros(like, (*axes, *rest)), "index_put", args), (*axes, *rest))
