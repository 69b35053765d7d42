"""The border of an operation whose axes are not one plain index each.

The inner operation, with one plain index for each axis, is lowered as usual. At the border a
tensor is seen with other axes: a group may be one axis, a composite axis (a b) is two, an axis of
size 1 on the left of an equation is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from derive.lowering.border import (
    Border,
    Piece,
    enter,
    finished,
    leave,
    lines_read,
    loses_axis,
    outer_shape,
    own_shapes,
    replaced,
    shapes_before,
    store,
    swapped,
)
from derive.lowering.code import Code, Name
from derive.lowering.groups import group_shapes
from derive.lowering.program import BackwardLine, Program
from derive.lowering.tidy import Line
from derive.notation.operation import Operation
from derive.notation.split import Inside

__all__ = ["through_facade"]


def through_facade(
    op: Operation, inside: Inside, inner: Program, adjoints: Mapping[str, str]
) -> Program:
    """The program of the operation inside with its tensors seen from outside.

    ``adjoints`` has the equation of each name that holds the adjoint of one.
    """
    border = Border.of(op, inside)
    groups = group_shapes(op)
    taken = {*inner.inputs, *(p.name for p in op.parameters)}
    forward = _forward(border, inner, groups, taken)
    kept, backward = _backward(border.again(), inner, adjoints, taken)
    kept_groups = lines_read(groups, [p.line for p in backward])
    read = {name for p in backward for name in p.reads}
    return replace(
        inner,
        parameters=tuple(p.name for p in op.parameters),
        kept_parameters=tuple(p.name for p in op.parameters if p.name in read),
        forward=forward,
        setup=tuple(kept_groups),
        kept_groups=tuple(g.name for g in kept_groups if g.name.endswith("_shape")),
        kept_shapes=kept,
        backward=tuple(BackwardLine(p.line, p.part) for p in backward),
    )


def _forward(
    border: Border, inner: Program, groups: Sequence[Line], taken: set[str]
) -> tuple[Line, ...]:
    op = border.op
    pieces = [Piece(line) for line in inner.forward]
    read = {name for p in pieces for name in p.reads}
    entry: list[Piece] = []
    for t in op.inputs:
        if t.name in read and border.changes(t.name):
            pieces, made = enter(border, pieces, t.name, t.name, ())
            entry += made
    inside = [e.name for e in op.equations if e.name not in inner.outputs]
    pieces = store(border, pieces, {name: name for name in inside})
    last: list[Piece] = []
    for name in inner.outputs:
        equation = next(e for e in op.equations if e.name == name)
        if border.changes(name) or loses_axis(op, equation):
            shape = outer_shape(op, border.shapes, equation, name)
            pieces, code = leave(border, pieces, name, name, shape)
            last += [Piece(Line(name, code))] if code is not Name(name) else []
    rebound = {p.line.name for p in entry}
    pieces = own_shapes([*entry, *pieces, *last], {t.name for t in op.inputs} - rebound)
    own = {*inner.inputs, *border.outside}
    later = [p.line for p in finished(pieces, own, taken)]
    later = [*shapes_before(border, later), *later]
    return (*lines_read(groups, later), *later)


def _backward(
    border: Border, inner: Program, adjoints: Mapping[str, str], taken: set[str]
) -> tuple[tuple[str, ...], list[Piece]]:
    """(inputs whose shape is kept, lines): tensors enter first, gradients leave last."""
    pieces, entry = _with_inner_shapes(border, inner)
    read = {name for p in pieces for name in p.reads}
    at_hand = {s.name: (s.name, s.needs) for s in inner.saved}
    at_hand |= {c: (o, inner.differentiable) for o, c in inner.cotangents if c is not None}
    rebound = set()
    for name, (tensor, needs) in at_hand.items():
        if name in read and (border.changes(tensor) or border.reshapes(tensor)):
            pieces, made = enter(border, pieces, name, tensor, needs)
            entry += made
            rebound |= {p.line.name for p in made}
    inside = {e.name: e.name for e in border.op.equations if e.name not in at_hand}
    pieces = store(border, pieces, inside | dict(adjoints))
    last: list[Piece] = []
    for tensor, gradient in inner.gradients.items():
        if border.changes(tensor):
            border.shapes.used[tensor] = None
            shape = Name(f"{tensor}_shape")
            pieces, code = leave(border, pieces, gradient, tensor, shape)
            last += [Piece(Line(gradient, code), (tensor,))] if code is not Name(gradient) else []
    pieces = [*entry, *pieces, *last]
    for s in inner.saved:
        parts = [p.part for p in pieces if f"{s.name}_shape" in p.reads]
        if s.name not in rebound and all(set(part) <= set(s.needs) for part in parts):
            pieces = own_shapes(pieces, {s.name})
    own = {*border.outside, *adjoints, *inner.gradients.values(), *at_hand}
    order = tuple(inner.gradients)
    pieces = finished(pieces, own | {p.line.name for p in entry}, taken, order)
    names = {name for p in pieces for name in p.reads}
    return tuple(name for name in border.shapes.used if f"{name}_shape" in names), pieces


def _with_inner_shapes(border: Border, inner: Program) -> tuple[list[Piece], list[Piece]]:
    """The lines of the backward with the shapes that they read, and the lines that give those."""
    entry: list[Piece] = []
    pieces = [Piece(b.line, b.needs) for b in inner.backward]
    for name in inner.kept_shapes:
        border.shapes.used[name] = None
        if not border.changes(name):
            continue
        shape: Code = Name(f"{name}_shape")
        # What stands for a single size reads the outer shape: it is kept apart from the inner.
        outer: Code = Name(f"{name} outside")
        single = border.single(name, shape).items()
        pieces = swapped(pieces, {code: replaced(size, {shape: outer}) for code, size in single})
        if any(f"{name}_shape" in p.reads for p in pieces):
            own = f"{name}_inner_shape"
            entry.append(Piece(Line(own, border.sizes(name)), inner.differentiable))
            pieces = swapped(pieces, {shape: Name(own)})
        pieces = swapped(pieces, {outer: shape})
    return pieces, entry
