"""The backward of which no graph is wanted, written over tensors that it made itself.

It is a body of its own where it is another anyway, or where it saves what a pass over the largest
tensor takes: two results that need no new memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from derive.cost.amount import degree
from derive.cost.costs import backward_trace, forward_trace, shapes_of
from derive.cost.trace import ABSENT
from derive.notation.operation import Operation
from derive.program.code import names_in
from derive.program.in_place import Writer
from derive.program.program import BackwardLine, Program
from derive.program.shapes import Shape, elements
from derive.program.tidy import renumbered

WIDTH = 76
"""Columns that a line of code may take; its indentation comes on top."""

_WORTH = 2
"""The fewest results without new memory that are worth a body of their own."""

_OPTIONAL = 4
"""The most optional tensors of which each may be None or not."""


def with_in_place(op: Operation, program: Program) -> Program:
    """The program with a first-order body that is written in place, where that is worth it."""
    body = program.first_order or program.backward
    optional = [t.name for t in op.inputs if t.default is not None]
    if program.rearranges or not body or len(optional) > _OPTIONAL:
        return program
    written, entries = _written(op, program, body, optional)
    if program.first_order:
        return replace(program, first_order=entries)
    if written < _WORTH:
        return program
    return replace(program, first_order=entries, first_order_precision=program.backward_precision)


def _written(
    op: Operation, program: Program, body: Sequence[BackwardLine], optional: Sequence[str]
) -> tuple[int, tuple[BackwardLine, ...]]:
    """How many results need no new memory, and the body."""
    inputs, equations = shapes_of(op)
    forward = forward_trace(op)
    forward.run(program.forward, equations)
    outputs = {name: forward.values[name] for name in (*program.outputs, *program.statistics)}
    gradients = {name: inputs[t] for t, name in program.gradients.items()}
    worlds = []
    for absent in product((False, True), repeat=len(optional)):
        world = backward_trace(op, program, outputs)
        missing = (name for name, gone in zip(optional, absent, strict=True) if gone)
        world.values.update(dict.fromkeys(missing, ABSENT))
        worlds.append(world)
    full = max(map(_axes, (*inputs.values(), *(x.shape for x in outputs.values()))))
    made = [e.name for e in op.equations if e.name in program.outputs and e.kind == "float"]
    cotangents = [name for _, name in program.cotangents if name is not None]
    given = [*cotangents, *(t.name for t in op.inputs if t.kind == "float"), *made]
    entries = [(x.line, x.needs) for x in body]
    lines = [line for line, _ in entries]
    reserved = {x.name for x in (*op.inputs, *op.parameters)}
    reserved |= {name for line in lines for name in names_in(line.code)}
    writer = Writer(
        floats=dict.fromkeys(given),
        results=tuple(program.gradients.values()),
        known=gradients,
        places={t.name: n for n, t in enumerate(op.inputs)},
        taken={*reserved, *(line.name for line in lines)},
        is_large=lambda shape: _axes(shape) >= full,
        width=WIDTH,
    )
    found = list(writer.write(entries, worlds))
    own = [line for line in lines if line.kept]
    reserved -= {line.name for line in lines if not line.kept}
    named = renumbered([line for line, _ in found], own, reserved)
    needs = [needs for _, needs in found]
    return writer.written, tuple(map(BackwardLine, named, needs))


def _axes(shape: Shape) -> int:
    return degree(elements(shape))
