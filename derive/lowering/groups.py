"""The shapes of groups: each one is a slice of some input's shape.

A tensor determines the last unknown one of its groups. If a parameter names an axis between two
groups, it splits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from derive.algebra.expr import Expr, Index
from derive.algebra.substitution import replace_inside_out
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.guards import bounds_of
from derive.calculus.lets import Let, Lets
from derive.errors import LoweringError
from derive.lowering.ground.value import Axes, Frame, Indices, NeedsFlatGroups, is_group
from derive.notation.operation import AxisOf, KeepDim, Operation, Tensor
from derive.program.cse import Line
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    MethodCall,
    Name,
    Slice,
    Subscript,
    joined,
    literal,
)

_Expr = TypeVar("_Expr", bound=Expr)


@dataclass(frozen=True)
class OuterFrame(Frame):
    """Positions on outer tensors, counted with the lengths of the groups' shapes."""

    def position(self, axes: Axes, n: int) -> Code:
        return _count_axes(axes[:n])


@dataclass(frozen=True)
class SizeFrame(OuterFrame):
    """Positions on outer tensors for reading a size: from the nearer end if that is known."""

    def position(self, axes: Axes, n: int) -> Code:
        try:
            return Frame.position(self, axes, n)
        except NeedsFlatGroups:
            return OuterFrame.position(self, axes, n)


def home_of(op: Operation, p: AxisOf | KeepDim) -> Tensor:
    """Return the first input that has the axis of a parameter."""
    home = next((t for t in op.inputs if p.index in t.axes), None)
    if home is None:
        clause = f"{'axis' if isinstance(p, AxisOf) else 'keep'}({p.index.name})"
        reason = f"{p.name}={clause}: no input has axis {p.index.name}"
        raise LoweringError(reason, kind="axis-parameter")
    return home


def named_axes(op: Operation) -> tuple[tuple[str, Index, Axes], ...]:
    """Return (parameter, index, axes of an input with the index) for axes named at run time."""
    named = []
    for p in op.parameters:
        if isinstance(p, AxisOf):
            axes = tuple(i if isinstance(i, Index) else None for i in home_of(op, p).axes)
            named.append((p.name, p.index, axes))
    return tuple(named)


def _count_axes(axes: Sequence[Expr | None]) -> Code:
    """Return the number of axes, given the shapes of groups."""
    groups = [i for i in axes if is_group(i)]
    counts: list[Code] = [FunctionCall("len", (Name(shape_name(i)),)) for i in groups]
    single = len(axes) - len(groups)
    return joined("+", [*counts, literal(single)] if single or not counts else counts)


def shape_name(group: Index) -> str:
    """Return the variable that holds the shape of a group."""
    return f"{group.extent}_shape"


def group_shapes(op: Operation) -> list[Line]:
    """Return one line for the shape of each group, in the order in which they become known."""
    lines: list[Line] = []
    known: set[str] = set()
    pending = [t for t in op.inputs if t.default is None and groups_of(t)]
    while pending:
        for t in pending:
            unknown = [i for i in groups_of(t) if i.extent not in known]
            if len(unknown) > 1:
                split = _split_groups(op, t, unknown)
            else:
                split = [_group_slice(t, group) for group in unknown]
            if split is not None:
                lines += split
                known |= {i.extent for i in unknown}
                break
        else:
            names = ", ".join(t.name for t in pending)
            raise LoweringError(
                f"the split of the axes of {names} into groups is ambiguous",
                kind="ambiguous-groups",
            )
        pending = [x for x in pending if x is not t]
    return lines


def groups_of(t: Tensor) -> list[Index]:
    return list(dict.fromkeys(filter(is_group, t.axes)))


def _group_slice(t: Tensor, group: Index) -> Line:
    """Return the line of shape[before : dim - after] for the only unknown group."""
    n = t.axes.index(group)
    start = _unless_zero(_count_axes(t.axes[:n]))
    return Line(shape_name(group), part_of_shape(t.name, start, _axis_end(t, n)))


def _axis_end(t: Tensor, n: int) -> Code | None:
    """Return the position of the first axis after axis n; None if axis n is the last."""
    after = t.axes[n + 1 :]
    if any(map(is_group, after)):
        return Binary("-", MethodCall(Name(t.name), "dim"), _count_axes(after))
    return literal(-len(after)) if after else None


def part_of_shape(tensor: str, start: Code | None, stop: Code | None) -> Code:
    """Return the sizes of the axes from start to stop; None is an open end."""
    shape = Attribute(Name(tensor), "shape")
    return Subscript(shape, (Slice(start, stop),)) if start or stop else shape


def _unless_zero(code: Code) -> Code | None:
    return None if code is literal(0) else code


def _split_groups(op: Operation, t: Tensor, unknown: Indices) -> list[Line] | None:
    """Return lines for the unknown groups of t, if a parameter names an axis between each two."""
    rank = MethodCall(Name(t.name), "dim")
    lines: list[Line] = []
    places = [t.axes.index(i) for i in unknown]
    starts = [_unless_zero(_count_axes(t.axes[: places[0]]))]
    stops: list[Code | None] = []
    named = [p for p in op.parameters if isinstance(p, AxisOf)]
    for left, right in pairwise(places):
        p = next((p for p in named if p.index in t.axes[left + 1 : right]), None)
        if p is None:
            return None
        n = t.axes.index(p.index)
        at = Name(f"{p.name}_axis")
        lines.append(Line(at.id, Binary("%", Name(p.name), rank)))
        back = _unless_zero(_count_axes(t.axes[left + 1 : n]))
        ahead = _unless_zero(_count_axes(t.axes[n + 1 : right]))
        stops.append(Binary("-", at, back) if back else at)
        starts.append(Binary("+", at, Binary("+", ahead, literal(1)) if ahead else literal(1)))
    stops.append(_axis_end(t, places[-1]))
    for group, start, stop in zip(unknown, starts, stops, strict=True):
        lines.append(Line(shape_name(group), part_of_shape(t.name, start, stop)))
    return lines


def with_flat_groups(
    op: Operation, lets: Lets, backward: Backward
) -> tuple[Operation, Lets, Backward]:
    """Return the operation, lets and backward with each group as one axis."""

    def let(x: Let) -> Let:
        condition = None if x.condition is None else _flat_index(x.condition)
        body, formals, binders = _flat_index(x.body), _all_flat(x.formals), _all_flat(x.binders)
        return replace(x, formals=formals, body=body, binders=binders, condition=condition)

    def flat(a: Adjoint) -> Adjoint:
        return replace(a, formals=_all_flat(a.formals), body=_flat_index(a.body))

    made = flat_operation(op)
    own = replace(lets, by_name={x.name: let(x) for x in lets}, bounds=bounds_of(made))
    return made, own, replace(backward.each(flat), lets=own, bounds=own.bounds)


def flat_operation(op: Operation) -> Operation:
    """Return the operation with one axis for each group, of the product of its sizes."""
    return Operation.resolved(
        op.name,
        tuple(replace(t, axes=_all_flat(t.axes)) for t in op.inputs),
        tuple(p for p in op.parameters if not isinstance(p, AxisOf | KeepDim)),
        tuple(replace(e, axes=_all_flat(e.axes), body=_flat_index(e.body)) for e in op.equations),
        op.outputs,
        tuple(replace(e, group=False) for e in op.extents),
        op.stable,
    )


def _all_flat(every: tuple[_Expr, ...]) -> tuple[_Expr, ...]:
    return tuple(map(_flat_index, every))


def _flat_index(e: _Expr) -> _Expr:
    made = replace_inside_out(e, lambda i: Index(i.name, i.extent) if isinstance(i, Index) else i)
    assert isinstance(made, type(e))
    return made
