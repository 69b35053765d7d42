"""X[.., e, ..] at a number, on a diagonal, or at a computed position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from derive.algebra.expr import (
    Access,
    Expr,
    Guard,
    Index,
    Num,
    Size,
    accesses,
    free_indices,
    is_number,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of
from derive.algebra.reductions import POSITIONS
from derive.algebra.substitution import replace_inside_out
from derive.calculus.lets import layout
from derive.lowering.ground.context import Scope
from derive.lowering.ground.gather import read_at
from derive.lowering.ground.numbers import has_positions
from derive.lowering.ground.value import Indices, Value
from derive.lowering.ground.windows import ONE, ZERO, AxisRead, unguarded_position
from derive.lowering.patterns.unfold import nonnegative_form
from derive.program.torch_ir import Conditional, Dim, FunctionCall, Literal, Name, joined, literal


def read_at_number(scope: Scope, r: AxisRead) -> Value | None:
    """X[n] = X.select(n)."""
    if not isinstance(r.position, Num):
        return None
    return r.value.call("select", r.place, literal(int(r.position.value))).at(r.n)


def read_on_diagonal(scope: Scope, r: AxisRead) -> Value | None:
    """X[i, i] = X.diagonal()[i].

    The axis of the diagonal comes last.
    """
    if not isinstance(r.position, Index) or r.position not in r.value.axes:
        return None
    m = r.value.axes.index(r.position)
    ends = scope.frame.position(r.value.axes, m), r.place
    axes = tuple(i for x, i in enumerate(r.value.axes) if x not in (m, r.n))
    made = r.value.call("diagonal", literal(0), *ends)
    return Value(made.code, (*axes, r.position), made.kind)


def read_computed(scope: Scope, r: AxisRead) -> Value:
    """X[e] = X.index_select(e) or X.gather(e).

    X.select(e) if e is a number.
    """
    position = _number_of(scope, r.position)
    index = scope.lower(factor(position), layout(position))
    if index.kind != "int" and not index.scalar:
        # A condition as a position, 1 or 0.
        index = replace(index.call("to", Name("torch.int64")), kind="int")
    nowhere = may_lack_positions(scope, r.position, r.extent)
    if index.scalar:
        certain = _is_not_negative(scope, r.position, r.extent)
        at = index.code if certain else FunctionCall("rt.nonnegative", (index.code,))
        made = r.value.call("select", r.place, at).at(r.n)
        return zero_if_empty(scope, made, (r.extent,), made.indices) if nowhere else made
    # A gather needs a value without axes of size 1.
    value, suffix = scope.frame.squeeze(r.value), "if_any" if nowhere else ""
    return read_at(scope.frame, value, value.axes.index(r.value.axes[r.n]), index, suffix)


def _number_of(scope: Scope, position: Expr) -> Expr:
    """Return the body of an equation of parameters and sizes alone for its name."""
    let = scope.find(position.tensor) if isinstance(position, Access) else None
    return let.body if let is not None and is_number(let.body) else position


def _is_not_negative(scope: Scope, position: Expr, extent: str) -> bool:
    """True if the position is at least 0, by its sizes or its guard; an empty axis has no last."""
    bounds = scope.frame.bounds
    form = bounds.form(unguarded_position(position))
    if form is None:
        return False
    given = conditions_of(position.condition) if isinstance(position, Guard) else ()
    gaps = (nonnegative_form(bounds, c) for c in given)
    return form in (bounds.size(extent) - ONE, *gaps) or bounds.at_most(ZERO, form)


# --------------------------------------------------------------------
# Reads on an axis that may be empty: the value read there is 0.


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
        if size in map(bounds.size, along) and all(own):
            return False
    sizes = (part for part in walk(position.condition) if isinstance(part, Size))
    compared = any(bounds.size(part.extent) == size for part in sizes)
    # A condition computes no position.
    bare = replace_inside_out(position, lambda e: e.position if isinstance(e, Guard) else e)
    read = [scope.find(a.tensor) for a in accesses(bare)]
    won = (let is not None and let.kind in POSITIONS for let in read)
    return not read or any(won) or compared


def may_lack_positions(scope: Scope, position: Expr, extent: str) -> bool:
    """True if such a position is read on an axis that is not certain to be nonempty."""
    return may_be_empty_axis(scope, position, extent) and not has_positions(scope.frame, extent)


def zero_if_empty(scope: Scope, value: Value, needed: Sequence[str], order: Indices) -> Value:
    """Return the value, or zeros if one of the extents is empty."""
    needed = [e for e in dict.fromkeys(needed) if not has_positions(scope.frame, e)]
    if not needed:
        return value
    value = scope.frame.expand(value, order, scope.like)
    nothing = Value(Literal("0"), kind=value.kind, scalar=True)
    zero = scope.frame.expand(nothing, order, scope.like)
    test = joined("and", map(Dim, needed))
    return replace(value, code=Conditional(test, value.code, zero.code))


def _tensor_axes(scope: Scope, tensor: str) -> Sequence[Index | None]:
    let = scope.find(tensor)
    return scope.tensor(tensor).indices if let is None else let.formals
