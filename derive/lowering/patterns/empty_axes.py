"""Reads on an axis that may be empty: the value read there is 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive.algebra.expr import (
    Expr,
    Guard,
    Index,
    Size,
    accesses,
    free_indices,
    walk,
)
from derive.algebra.reductions import POSITIONS
from derive.lowering.ground.context import Scope
from derive.lowering.ground.numbers import has_positions
from derive.lowering.ground.value import Value
from derive.program.torch_ir import (
    Binary,
    Code,
    Conditional,
    Dim,
    Literal,
)


def may_be_empty_axis(scope: Scope, position: Expr, extent: str) -> bool:
    """True if the position has a guard that is false everywhere on an empty axis.

    A position that a tensor computes is assumed to exist. The exceptions are a comparison with the
    size, and the winner of a reduction over joined axes. The axis is also nonempty if another
    tensor certainly holds positions on it for the same indices.
    """
    if not isinstance(position, Guard):
        return False
    bounds = scope.frame.bounds
    size, extents = bounds.size(extent), {i.extent for i in free_indices(position)}
    for tensor, along in bounds.positions.items():
        own = (axis is not None and axis.extent in extents for axis in _tensor_axes(scope, tensor))
        if bounds.size(along) == size and all(own):
            return False
    compared = (
        isinstance(part, Size) and bounds.size(part.extent) == size
        for part in walk(position.condition)
    )
    read = [scope.find(a.tensor) for a in accesses(position.position)]
    won = (let is not None and let.kind in POSITIONS for let in read)
    return not read or any(won) or any(compared)


def zero_if_empty(
    scope: Scope, value: Value, needed: Sequence[str], order: Sequence[Index]
) -> Value:
    """Return the value, or zeros if one of the extents is empty."""
    needed = [e for e in dict.fromkeys(needed) if not has_positions(scope.frame, e)]
    if not needed:
        return value
    value = scope.frame.expand(value, order, scope.like)
    nothing = Value(Literal("0"), kind=value.kind, scalar=True)
    zero = scope.frame.expand(nothing, order, scope.like)
    test: Code = Dim(needed[0])
    for extent in needed[1:]:
        test = Binary("and", test, Dim(extent))
    return replace(value, code=Conditional(test, value.code, zero.code))


def _tensor_axes(scope: Scope, tensor: str) -> Sequence[Index | None]:
    let = scope.find(tensor)
    return scope.tensor(tensor).indices if let is None else let.formals
