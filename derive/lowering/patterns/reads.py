"""X[.., e, ..] at a number, on a diagonal, or at a computed position."""

from __future__ import annotations

from dataclasses import replace

from derive.algebra.expr import Index, Num
from derive.algebra.factor import factor
from derive.calculus.lets import layout
from derive.lowering.ground.context import Scope
from derive.lowering.ground.gather import of_any_size, read_at
from derive.lowering.ground.numbers import has_positions
from derive.lowering.ground.value import Value
from derive.lowering.ground.windows import AxisRead
from derive.lowering.patterns.empty_axes import may_be_empty_axis, zero_if_empty
from derive.program.torch_ir import Name, literal


def read_at_number(scope: Scope, r: AxisRead) -> Value | None:
    """X[n] = X.select(n)."""
    if not isinstance(r.position, Num):
        return None
    return r.value.call("select", r.place, literal(int(r.position.value))).at(r.n)


def read_on_diagonal(scope: Scope, r: AxisRead) -> Value | None:
    """X[.., i, .., i, ..] = X.diagonal, whose axis comes last."""
    if not isinstance(r.position, Index) or r.position not in r.value.axes:
        return None
    m = r.value.axes.index(r.position)
    ends = scope.frame.position(r.value.axes, m), r.place
    axes = tuple(i for x, i in enumerate(r.value.axes) if x not in (m, r.n))
    made = r.value.call("diagonal", literal(0), *ends)
    return Value(made.code, (*axes, r.position), made.kind)


def read_computed(scope: Scope, r: AxisRead) -> Value:
    """X[e] = X.select(e) for a number, X.index_select(e) or X.gather(e) for a tensor."""
    index = scope.lower(factor(r.position), layout(r.position))
    if index.kind != "int" and not index.scalar:
        # A condition as a position, 1 or 0.
        index = replace(index.call("to", Name("torch.int64")), kind="int")
    nowhere = may_be_empty_axis(scope, r.position, r.extent)
    if index.scalar:
        made = r.value.call("select", r.place, index.code).at(r.n)
        return zero_if_empty(scope, made, (r.extent,), made.indices) if nowhere else made
    # A gather needs a value without axes of size 1.
    value = scope.frame.squeeze(r.value)
    made = read_at(scope.frame, value, value.axes.index(r.value.axes[r.n]), index)
    if nowhere and not has_positions(scope.frame, r.extent):
        return replace(made, code=of_any_size(made.code, value.code))
    return made
