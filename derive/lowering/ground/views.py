"""Flatten and unflatten of neighboring axes: the same elements in order.

``flatten`` of ``unflatten`` restores the original axes. If the two ranges overlap, the common part
cancels. Negative positions count from the end.
"""

from __future__ import annotations

from collections.abc import Mapping

from derive.program.torch_ir import Attribute, Code, Literal, MethodCall, Name, Tuple, literal


def flattened(code: Code, start: int, end: int) -> Code:
    """Return the code with its axes from start to end merged.

    If the code is x.unflatten(at, sizes), flattening exactly these axes gives x. A range around or
    beside them becomes a range of x.
    """
    if start == end:
        return code
    low, high = _end_distance(start), _end_distance(end)
    if start < 0:
        low, high = high, low
    taken = _unflatten_of(code)
    if taken is not None and (taken[1] < 0) == (start < 0):
        x, at, sizes = taken
        first, more = _end_distance(at), len(sizes.items) - 1
        if low <= first and first + more <= high:
            return _flatten_range(x, low, high - more, start < 0)
        if high < first:
            inner = _flatten_range(x, low, high, start < 0)
            return unflattened(inner, _far(first - high + low, start < 0), sizes)
        if first + more < low:
            return unflattened(_flatten_range(x, low - more, high - more, start < 0), at, sizes)
    joined = _flatten_of(code)
    if joined is not None and (joined[1] < 0) == (start < 0):
        x, one, other = joined
        first, last = sorted((_end_distance(one), _end_distance(other)))
        if low <= first <= high:
            return _flatten_range(x, low, high + last - first, start < 0)
    return MethodCall(code, "flatten", (literal(start), literal(end)))


def unflattened(code: Code, at: int, sizes: Tuple) -> Code:
    """Return the code with the axis ``at`` split into these sizes."""
    return MethodCall(code, "unflatten", (literal(at), sizes))


def substitute_views(code: Code, new: Mapping[Code, Code]) -> Code:
    """Return the code with names replaced, and views that this makes redundant removed.

    A name is not replaced in reads of its metadata, such as dtype or device.
    """
    if code in new:
        return new[code]
    match code:
        case Attribute(Name(), name) if name != "mT":
            return code
        case MethodCall(Name() as x, name, args) if name.startswith("new_"):
            return MethodCall(x, name, tuple(substitute_views(a, new) for a in args))
    made: Code = code.map(lambda part: substitute_views(part, new))
    taken = _flatten_of(made)
    return made if taken is None else flattened(*taken)


def is_view(code: Code) -> bool:
    """True if the code is a flatten or an unflatten."""
    return isinstance(code, MethodCall) and code.name in ("flatten", "unflatten")


def _end_distance(position: int) -> int:
    """Return the distance of the position from the end from which it counts."""
    return position if position >= 0 else -1 - position


def _far(distance: int, from_end: bool) -> int:
    return -1 - distance if from_end else distance


def _flatten_range(code: Code, low: int, high: int, from_end: bool) -> Code:
    ends = _far(low, from_end), _far(high, from_end)
    return flattened(code, min(ends), max(ends))


def _unflatten_of(code: Code) -> tuple[Code, int, Tuple] | None:
    match code:
        case MethodCall(x, "unflatten", (at, Tuple() as sizes)):
            position = _literal_integer(at)
            return None if position is None else (x, position, sizes)
    return None


def _flatten_of(code: Code) -> tuple[Code, int, int] | None:
    match code:
        case MethodCall(x, "flatten", (one, other)):
            start, end = _literal_integer(one), _literal_integer(other)
            if start is not None and end is not None and (start < 0) == (end < 0):
                return x, start, end
    return None


def _literal_integer(code: Code) -> int | None:
    match code:
        case Literal(words) if words.lstrip("-").isdigit():
            return int(words)
    return None
