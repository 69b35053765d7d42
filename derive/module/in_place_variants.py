"""Bodies that reuse the memory of their own temporaries.

A first-order backward always does. All other bodies may be differentiated, and reuse memory where
that is not so at run time: a backward if at least two results need no new memory, and a forward if
some result needs none whichever branches run, or if a tensor is added to a matrix product in one
call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from derive.cost.size_formula import degree
from derive.lowering.ground.value import is_group
from derive.notation.operation import Operation
from derive.program.aliasing import unalias_outputs
from derive.program.argument_types import backward_types, forward_types, result_types, tensor_types
from derive.program.buffer_reuse import InPlaceWriter, Savings, where_allowed
from derive.program.cse import Line, renumbered
from derive.program.guard_elimination import unguarded
from derive.program.program import Program
from derive.program.shape_rules import Shape, TensorType, elements
from derive.program.torch_ir import names_in
from derive.program.types import ABSENT, Types

_WORTH = 2
"""Minimum number of results without new memory for a backward of any order."""

_OPTIONAL = 4
"""At most this many optional tensors: 2**n variants are analyzed."""


def with_in_place(op: Operation, program: Program, number: str | None = None) -> Program:
    """Return the program whose bodies reuse memory where that pays off.

    ``number`` is a cotangent that may have no axes.
    """
    optional = [t.name for t in op.inputs if t.default is not None]
    if program.rearranges or len(optional) > _OPTIONAL:
        return program
    body = program.first_order or program.backward
    own = _Own(op, program, optional, number)
    if body:
        saved, made = own.backward(body)
        if program.first_order:
            program = replace(program, first_order=tuple(made))
        elif saved.allocations >= _WORTH:
            program = replace(program, backward=tuple(made))
    saved, lines = own.forward()
    worth = saved.certain or saved.fused
    return replace(program, forward=lines) if worth else program


def grouped(op: Operation, program: Program) -> set[str]:
    """Return the names of tensors that have a group of axes."""
    axes = {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}
    found = {n for n, own in axes.items() if any(map(is_group, own))}
    cotangents = {c for output, c in program.cotangents if c is not None and output in found}
    return found | cotangents | set(program.statistics if found else ())


class _Own:
    """The in-place bodies of one program, for each combination of absent optional tensors."""

    def __init__(
        self, op: Operation, program: Program, optional: Sequence[str], number: str | None
    ) -> None:
        self.op, self.program, self.optional, self.number = op, program, optional, number
        self.inputs = [t.name for t in op.inputs]
        types = tensor_types(op) | result_types(op, program)
        whole = (*self.inputs, *program.outputs, *program.statistics)
        self.full = max(_axes(types[name].shape) for name in whole)

    def backward(self, body: Sequence[Line]) -> tuple[Savings, list[Line]]:
        """Return what is saved, and the body."""
        return self._written(
            body,
            backward_types(self.op, self.program),
            tuple(self.program.gradients.values()),
            differentiable=not self.program.first_order,
        )

    def forward(self) -> tuple[Savings, tuple[Line, ...]]:
        """Return what is saved, and the body."""
        all_of_it = tuple(t.name for t in self.op.inputs)
        saved, lines = self._written(
            [replace(line, needs=all_of_it) for line in self.program.forward],
            forward_types(self.op),
            (*self.program.outputs, *self.program.statistics),
            exact=True,
        )
        # A result that is written over a view of a temporary is itself a view.
        lines = [replace(line, needs=()) for line in lines]
        return saved, tuple(unalias_outputs(lines, self.program.outputs, self.inputs))

    def _written(
        self,
        lines: Sequence[Line],
        given: Types,
        results: Sequence[str],
        differentiable: bool = True,
        exact: bool = False,
    ) -> tuple[Savings, list[Line]]:
        """Return what is saved, and the lines in place."""
        numbers = {p.name for p in self.op.parameters}
        lines = unguarded(lines, results, numbers, differentiable)
        worlds = []
        for absent in product((False, True), repeat=len(self.optional)):
            missing = (name for name, gone in zip(self.optional, absent, strict=True) if gone)
            known = given.known | dict.fromkeys(missing, ABSENT)
            worlds.append(Types(given.letters, known))
            if self.number in known:
                worlds.append(Types(given.letters, known | {self.number: TensorType(())}))
        reserved = {x.name for x in (*self.op.inputs, *self.op.parameters, *self.op.extents)}
        reserved |= {name for line in lines for name in names_in(line.code)}
        writer = InPlaceWriter(
            results=results,
            places={t.name: n for n, t in enumerate(self.op.inputs)},
            taken={*reserved, *(line.name for line in lines)},
            is_large=lambda shape: _axes(shape) >= self.full,
            write_over=where_allowed if differentiable else lambda code: code,
            numbers=numbers,
            grouped=grouped(self.op, self.program),
            exact=exact,
        )
        found = list(writer.write(lines, worlds))
        own = [line for line in lines if line.kept]
        reserved -= {line.name for line in lines if not line.kept}
        return writer.saved, renumbered(found, own, reserved)


def _axes(shape: Shape) -> int:
    return degree(elements(shape))
