"""Axes that an output lost and that a flag keeps, with size 1.

Such an axis stands behind all that precedes it in the input, else before what follows it there.
Whether an axis is kept is known at run time only: where a result gets several, none moves the
place of one that comes later, and a cotangent gets those that it lacks in the opposite order.
"""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.expr import Expr, Index
from derive.errors import LoweringError
from derive.lowering.ground.value import Axes, Frame
from derive.notation.operation import KeepDim, Operation
from derive.program.torch_ir import Code, Name


def kept_place(op: Operation, axes: Sequence[Expr | None], p: KeepDim) -> int:
    """Before which of the axes the lost one stands."""
    home = next((t.axes for t in op.inputs if p.index in t.axes), None)
    if home is None:
        raise LoweringError(f"{p.name}=keep({p.index.name}): no input has axis {p.index.name}")
    n = home.index(p.index)
    before = [at + 1 for at, axis in enumerate(axes) if axis in home[:n]]
    after = [at for at, axis in enumerate(axes) if axis in home[n + 1 :]]
    return max(before) if before else min(after, default=len(axes))


def added_axes(op: Operation, formals: Axes, frame: Frame) -> list[tuple[Name, Code]]:
    """(flag, place) of each axis that a result may get, in the order in which it gets them."""
    # A place after a group counts from the end.
    before, after = _lost(op, formals)
    return [
        (Name(p.name), frame.position((*formals[:at], None, *formals[at:]), at))
        for p, at in (*reversed(before), *after)
    ]


def entered_axes(
    op: Operation, formals: Axes, frame: Frame
) -> tuple[Axes, list[tuple[Name, Code]]]:
    """All axes that a result may have, and (flag, place) of each that it may lack, in order."""
    before, after = _lost(op, formals)
    axes: list[Index | None] = list(formals)
    for _, at in reversed((*before, *after)):
        axes.insert(at, None)
    places = [
        (p, frame.position(tuple(axes), at + n)) for n, (p, at) in enumerate((*before, *after))
    ]
    placed = [(Name(p.name), place) for p, place in places]
    return tuple(axes), [*placed[: len(before)], *reversed(placed[len(before) :])]


def _lost(
    op: Operation, formals: Axes
) -> tuple[list[tuple[KeepDim, int]], list[tuple[KeepDim, int]]]:
    """The axes that are lost and their places: those before all groups, and the others."""
    lost = [
        (p, kept_place(op, formals, p))
        for p in op.parameters
        if isinstance(p, KeepDim) and p.index not in formals
    ]
    lost.sort(key=lambda pair: pair[1])
    groups = [n for n, i in enumerate(formals) if i is not None and i.group]
    first = min(groups, default=len(formals))
    return [x for x in lost if x[1] <= first], [x for x in lost if x[1] > first]
