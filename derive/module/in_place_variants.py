"""Forward and backward of which no graph is wanted, written over tensors that they made themselves.

Such a backward is a body of its own where it is another anyway, or where it saves what a pass over
the largest tensor takes: two results that need no new memory. A forward has fewer results than
that, and is one where it saves any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from derive.algebra.expr import Index
from derive.cost.costs import backward_trace, forward_trace, shapes_of
from derive.cost.shape_interpreter import ABSENT, ShapedTensor, Trace
from derive.cost.size_formula import degree
from derive.notation.operation import Operation
from derive.program.buffer_reuse import Entry, InPlaceWriter
from derive.program.cse import Line, renumbered
from derive.program.guard_elimination import unguarded
from derive.program.output_aliasing import apart
from derive.program.program import BackwardLine, Program
from derive.program.shape_rules import Shape, elements
from derive.program.torch_ir import names_in

WIDTH = 76
"""Columns that a line of code may take; its indentation comes on top."""

_WORTH = 2
"""The fewest results without new memory that are worth a body of their own."""

_OPTIONAL = 4
"""The most optional tensors of which each may be None or not."""


def with_in_place(op: Operation, program: Program) -> Program:
    """The program with bodies that are written in place, where that is worth it."""
    optional = [t.name for t in op.inputs if t.default is not None]
    if program.rearranges or len(optional) > _OPTIONAL:
        return program
    body = program.first_order or program.backward
    own = _Own(op, program, optional)
    if body:
        written, entries = own.backward(body)
        if program.first_order:
            program = replace(program, first_order=entries)
        elif written >= _WORTH:
            precision = program.backward_precision
            program = replace(program, first_order=entries, first_order_precision=precision)
    written, lines = own.forward()
    return replace(program, forward_in_place=lines) if written else program


def grouped(op: Operation, program: Program) -> set[str]:
    """The names of what comes with a group of axes."""
    axes = {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}
    found = {n for n, own in axes.items() if any(isinstance(a, Index) and a.group for a in own)}
    cotangents = {c for output, c in program.cotangents if c is not None and output in found}
    return found | cotangents | set(program.statistics if found else ())


class _Own:
    """The bodies of one program, each of its optional tensors being None or not."""

    def __init__(self, op: Operation, program: Program, optional: Sequence[str]) -> None:
        self.op, self.program, self.optional = op, program, optional
        self.inputs, self.equations = shapes_of(op)
        forward = forward_trace(op)
        forward.run(program.forward, self.equations)
        names = (*program.outputs, *program.statistics)
        self.outputs: dict[str, ShapedTensor] = {name: forward.values[name] for name in names}
        shapes = (*self.inputs.values(), *(x.shape for x in self.outputs.values()))
        self.full = max(map(_axes, shapes))
        self.floats = [t.name for t in op.inputs if t.kind == "float"]

    def backward(self, body: Sequence[BackwardLine]) -> tuple[int, tuple[BackwardLine, ...]]:
        """How many results need no new memory, and the body."""
        op, program = self.op, self.program
        made = [e.name for e in op.equations if e.name in program.outputs and e.kind == "float"]
        cotangents = [name for _, name in program.cotangents if name is not None]
        known = {name: self.inputs[t] for t, name in program.gradients.items()}
        results = tuple(program.gradients.values())
        written, entries = self._written(
            [(x.line, x.needs) for x in body],
            lambda: backward_trace(op, program, self.outputs),
            (*cotangents, *self.floats, *made, *program.float_statistics),
            (results, known),
        )
        return written, tuple(BackwardLine(line, needs) for line, needs in entries)

    def forward(self) -> tuple[int, tuple[Line, ...]]:
        """How many results need no new memory, and the body."""
        all_of_it = tuple(t.name for t in self.op.inputs)
        written, entries = self._written(
            [(line, all_of_it) for line in self.program.forward],
            lambda: forward_trace(self.op),
            self.floats,
            ((*self.program.outputs, *self.program.statistics), self.equations),
        )
        # What is written over a view of what was made here is a view.
        lines = [line for line, _ in entries]
        return written, tuple(apart(lines, self.program.outputs, self.inputs))

    def _written(
        self,
        entries: Sequence[Entry],
        trace: Callable[[], Trace],
        floats: Sequence[str],
        ends: tuple[Sequence[str], Mapping[str, Shape]],
    ) -> tuple[int, list[Entry]]:
        """How many results need no new memory, and the lines; ``ends``: results, known shapes."""
        results, known = ends
        entries = unguarded(entries, results)
        worlds = []
        for absent in product((False, True), repeat=len(self.optional)):
            world = trace()
            missing = (name for name, gone in zip(self.optional, absent, strict=True) if gone)
            world.values.update(dict.fromkeys(missing, ABSENT))
            worlds.append(world)
        lines = [line for line, _ in entries]
        reserved = {x.name for x in (*self.op.inputs, *self.op.parameters)}
        reserved |= {name for line in lines for name in names_in(line.code)}
        writer = InPlaceWriter(
            floats=dict.fromkeys(floats),
            results=results,
            known=known,
            places={t.name: n for n, t in enumerate(self.op.inputs)},
            taken={*reserved, *(line.name for line in lines)},
            is_large=lambda shape: _axes(shape) >= self.full,
            width=WIDTH,
            numbers={p.name for p in self.op.parameters},
            grouped=grouped(self.op, self.program),
        )
        found = list(writer.write(entries, worlds))
        own = [line for line in lines if line.kept]
        reserved -= {line.name for line in lines if not line.kept}
        named = renumbered([line for line, _ in found], own, reserved)
        return writer.written, list(zip(named, (needs for _, needs in found), strict=True))


def _axes(shape: Shape) -> int:
    return degree(elements(shape))
