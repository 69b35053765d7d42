"""X[e1, ...]: axes named by whole indices, the others read one after the other."""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Access, Expr, Index
from derive.lowering.ground.pattern import recognised
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.value import Value
from derive.lowering.ground.windows import reading
from derive.lowering.patterns import READS


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
        if isinstance(position, Index) and position.extent == home.extent and position not in axes:
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


def read(scope: Scope, value: Value, n: int, position: Expr) -> Value:
    """value with axis n read at a position."""
    made = recognised(READS, scope, reading(scope, value, n, position))
    assert made is not None
    return made
