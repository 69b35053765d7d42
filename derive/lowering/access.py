"""X[e1, ...]: axes named by whole indices, windows, and reads at computed positions."""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Access, Expr, Guard, Index, Num, Size
from derive.algebra.factor import factor
from derive.calculus.lets import layout
from derive.lowering.code import Dim, Method, literal
from derive.lowering.gather import read_at
from derive.lowering.nothing import may_be_nowhere, only_where_there_is
from derive.lowering.scope import Scope
from derive.lowering.sliding import read_sliding, read_strided
from derive.lowering.value import Value
from derive.lowering.windows import Window, number_of, read_guarded, read_window, window
from derive.notation.affine import Polynomial

__all__ = ["lower_access", "read"]


def lower_access(scope: Scope, e: Access) -> Value:
    """X[e1, ...]: plain positions name axes, any other is read one axis after the other."""
    value = scope.tensor(e.tensor)
    axes: list[Index | None] = []
    pending: list[tuple[Index, Expr]] = []
    positions = iter(e.positions)
    for n, home in enumerate(value.axes):
        if home is None:
            axes.append(None)
            continue
        position = next(positions)
        whole = isinstance(position, Index) and position.extent == home.extent
        if whole and position not in axes:
            assert isinstance(position, Index)
            axes.append(position)
            continue
        # An axis that is still to be read has an index that nothing else can have.
        marker = Index(f"#{n}", home.extent, home.group)
        axes.append(marker)
        pending.append((marker, position))
    value = replace(value, axes=tuple(axes))
    for marker, position in pending:
        value = read(scope, value, value.axes.index(marker), position)
    return value


def _is_block(scope: Scope, w: Window) -> bool:
    """Whether the window is a block of an axis that begins after others of the same size.

    It begins nowhere before the axis, and at 0 where it has no positions.
    """
    own = Size(w.index.extent)
    inside = scope.frame.bounds.at_most(Polynomial({}), w.start)
    return w.step == 1 and inside and all(own in key for key in w.start.terms)


def read(scope: Scope, value: Value, n: int, position: Expr) -> Value:
    """value with axis n read at a position."""
    place = scope.frame.position(value.axes, n)
    if isinstance(position, Num):
        at = literal(int(position.value))
        code = Method(value.code, "select", (place, at))
        return replace(value, code=code, axes=value.axes[:n] + value.axes[n + 1 :])
    if isinstance(position, Index) and position in value.axes:
        m = value.axes.index(position)
        ends = (scope.frame.position(value.axes, m), place)
        code = Method(value.code, "diagonal", (literal(0), *ends))
        axes = tuple(i for x, i in enumerate(value.axes) if x not in (m, n))
        return replace(value, code=code, axes=(*axes, position))
    found = window(scope.frame.bounds, position)
    if found is not None and found.index not in value.axes:
        along = read_window(scope, value, n, found)
        along = along or read_strided(scope, value, n, found)
        if along is None and _is_block(scope, found):
            # What is read is in range, whatever is known of that.
            args = (place, number_of(scope, found.start), Dim(found.index.extent))
            code = Method(value.code, "narrow", args)
            along = replace(
                value, code=code, axes=(*value.axes[:n], found.index, *value.axes[n + 1 :])
            )
        if along is not None:
            return along
    slid = read_sliding(scope, value, n, position)
    if slid is not None:
        return slid
    if isinstance(position, Guard):
        found = window(scope.frame.bounds, position.position)
        if found is not None and found.index not in value.axes:
            guarded = read_guarded(scope, value, n, found)
            if guarded is not None:
                return guarded
    where = layout(position)
    index = scope.lower(factor(position), where)
    marker = value.axes[n]
    assert marker is not None
    if index.scalar:
        code = Method(value.code, "select", (place, index.code))
        made = replace(value, code=code, axes=value.axes[:n] + value.axes[n + 1 :])
    else:
        # What is gathered has no axes of size 1 between its own.
        value = scope.frame.squeeze(value, ())
        made = read_at(scope.frame, value, value.axes.index(marker), index)
    if may_be_nowhere(scope, position, marker.extent):
        return only_where_there_is(scope, made, (marker.extent,), made.indices)
    return made
