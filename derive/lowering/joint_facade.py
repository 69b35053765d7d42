"""A joint function of an operation whose axes are not one plain index each.

Tensors are seen with their inner axes on their way in; outputs and gradients leave with those
that they were given.
"""

from __future__ import annotations

from collections.abc import Mapping
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
)
from derive.lowering.code import Attribute, Code, Name
from derive.lowering.groups import group_shapes
from derive.lowering.joint import Joint
from derive.lowering.tidy import Line
from derive.notation.operation import Equation, Operation
from derive.notation.split import Inside

__all__ = ["joint_through_facade"]

_FORWARD, _BACKWARD = ("forward",), ("backward",)


def joint_through_facade(
    op: Operation, inside: Inside, inner: Joint, adjoints: Mapping[str, str]
) -> Joint:
    """The joint function of the operation inside with its tensors seen from outside."""
    border = Border.of(op, inside)
    equations = {e.name: e for e in op.equations}
    pieces = [Piece(line, _FORWARD) for line in inner.forward]
    pieces += [Piece(line, _BACKWARD) for line in inner.backward]
    read = {name for p in pieces for name in p.reads}
    entry: list[Piece] = []
    narrowed: list[Piece] = []
    for t in op.inputs:
        if t.name in read and border.changes(t.name):
            pieces, made = enter(border, pieces, t.name, t.name, _FORWARD)
            entry += made
    for c in inner.cotangents:
        if c.name in read and (border.changes(c.output) or border.reshapes(c.output)):
            pieces, made = enter(border, pieces, c.name, c.output, _BACKWARD)
            narrowed += made
    gradients = {variable: name for name, variable, _ in inner.gradients}
    inner_names = {e.name: e.name for e in op.equations if e.name not in op.outputs}
    inner_names |= {name: tensor for name, tensor in adjoints.items() if name not in gradients}
    pieces = store(border, pieces, inner_names)
    results: dict[str, Code] = {}
    shapes: dict[str, Code] = {}
    for name, code in inner.results:
        results[name], shapes[name] = code, Attribute(Name(name), "shape")
        if border.changes(name) or loses_axis(op, equations[name]):
            shapes[name] = outer_shape(op, border.shapes, equations[name], name)
            pieces, results[name] = leave(border, pieces, name, name, shapes[name])
    returned: dict[str, Code] = {}
    for variable, tensor in gradients.items():
        returned[variable] = Name(variable)
        if border.changes(tensor):
            shape = _given_shape(border, tensor)
            pieces, returned[variable] = leave(border, pieces, variable, tensor, shape)
    rebound = {p.line.name for p in (*entry, *narrowed)}
    plain = {t.name for t in op.inputs} - rebound
    own = {*border.outside, *adjoints, *gradients, *rebound}
    taken = {*border.outside, *(p.name for p in op.parameters), *read}
    pieces = own_shapes([*entry, *narrowed, *pieces], plain)
    whole = finished(pieces, own, taken, _FORWARD + _BACKWARD)
    # What both read is made in the forward.
    forward = [p.line for p in whole if p.part != _BACKWARD]
    backward = [p.line for p in whole if p.part == _BACKWARD]
    direct: dict[Code, Code] = {Name(f"{t}_shape"): Attribute(Name(t), "shape") for t in plain}
    results = {name: replaced(code, direct) for name, code in results.items()}
    shapes = {name: replaced(code, direct) for name, code in shapes.items()}
    returned = {name: replaced(code, direct) for name, code in returned.items()}
    codes = [Line("", code) for code in (*results.values(), *shapes.values(), *returned.values())]
    before = shapes_before(border, [*forward, *backward, *codes])
    groups = lines_read(group_shapes(op), [*before, *forward, *backward, *codes])
    return Joint(
        forward=(*groups, *before, *forward),
        results=tuple(results.items()),
        cotangents=tuple(replace(c, shape=shapes[c.output]) for c in inner.cotangents),
        backward=tuple(backward),
        gradients=tuple((gradients[v], v, code) for v, code in returned.items()),
    )


def _given_shape(border: Border, tensor: str) -> Code:
    """The shape of a tensor as it was given, no flag keeping an axis."""
    op = border.op
    if any(t.name == tensor for t in op.inputs):
        border.shapes.used[tensor] = None
        return Name(f"{tensor}_shape")
    owner = next(e for e in op.equations if e.name == tensor)
    plain = Operation.resolved(op.name, op.inputs, (), op.equations, op.outputs, op.extents)
    return outer_shape(plain, border.shapes, Equation("", owner.axes, owner.body), "")
