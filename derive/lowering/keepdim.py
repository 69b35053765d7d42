"""Reduced axes of an output that a flag keeps with size 1.

Such an axis comes after all axes that precede it in the input, or else before those that follow
it there. The flag is known only at run time. So axes are inserted in an order in which none moves
the position of a later one, and a cotangent gets its missing axes in the opposite order.
"""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.expr import Expr, Index
from derive.lowering.ground.value import Axes, Frame, is_group
from derive.lowering.groups import home_of
from derive.notation.operation import KeepDim, Operation
from derive.program.cse import Line
from derive.program.torch_ir import Code, Conditional, MethodCall, Name


def kept_place(op: Operation, axes: Sequence[Expr | None], p: KeepDim) -> int:
    """Return the position in ``axes`` before which the reduced axis is inserted."""
    home = home_of(op, p).axes
    n = home.index(p.index)
    before = [at + 1 for at, axis in enumerate(axes) if axis in home[:n]]
    after = [at for at, axis in enumerate(axes) if axis in home[n + 1 :]]
    return max(before) if before else min(after, default=len(axes))


def added_axes(op: Operation, formals: Axes, frame: Frame) -> list[tuple[Name, Code]]:
    """Return (flag, position) of each axis that a result may keep, in order of insertion."""
    # A position after a group counts from the end.
    before, after = _reduced_axes(op, formals)
    return [
        (Name(p.name), frame.position((*formals[:at], None, *formals[at:]), at))
        for p, at in (*reversed(before), *after)
    ]


def entered_axes(op: Operation, formals: Axes, frame: Frame, name: str) -> tuple[Axes, list[Line]]:
    """Return all axes that a result may have, and the lines that add those that a name may lack."""
    before, after = _reduced_axes(op, formals)
    axes: list[Index | None] = list(formals)
    for _, at in reversed((*before, *after)):
        axes.insert(at, None)
    placed = [
        (Name(p.name), frame.position(tuple(axes), at + n))
        for n, (p, at) in enumerate((*before, *after))
    ]
    missing = (*placed[: len(before)], *reversed(placed[len(before) :]))
    it = Name(name)
    wide = (Conditional(flag, it, MethodCall(it, "unsqueeze", (place,))) for flag, place in missing)
    return tuple(axes), [Line(name, code) for code in wide]


def _reduced_axes(
    op: Operation, formals: Axes
) -> tuple[list[tuple[KeepDim, int]], list[tuple[KeepDim, int]]]:
    """Return the reduced axes with their positions: those before all groups, and the others."""
    flags = (p for p in op.parameters if isinstance(p, KeepDim) and p.index not in formals)
    lost = sorted(((p, kept_place(op, formals, p)) for p in flags), key=lambda pair: pair[1])
    groups = [n for n, i in enumerate(formals) if is_group(i)]
    first = min(groups, default=len(formals))
    return [x for x in lost if x[1] <= first], [x for x in lost if x[1] > first]
