"""Generate the forward mode of a program: a class that computes its tangents.

torch cannot compile a Function with ``jvp``, so this is a class beside that of the backward.
"""

from __future__ import annotations

from collections.abc import Iterator

from derive.lowering.lowering_input import like_input
from derive.module.checks import constant_text, shape_of_absent, stand_in
from derive.module.function_codegen import (
    Dual,
    Variant,
    arguments,
    cast_inputs,
    class_name,
    floats_of,
    outcome_of,
    product_dtypes,
    unpack_wanted,
)
from derive.module.pretty_printer import assigned, indented, return_statement, statements
from derive.notation.operation import Operation
from derive.program.program import Program, Tangent
from derive.program.torch_ir import Code, names_in, text
from derive.program.torch_printer import broken


def name_of_dual(op: Operation, option: str | None) -> str:
    """Return the forward-mode class of one option."""
    return f"{class_name(op, option)}Dual"


def dual_of(op: Operation, variant: Variant) -> tuple[Dual, ...]:
    """Return the forward mode of one option, if it has its own."""
    if variant.tangent is None:
        return ()
    body = indented(_body(op, variant.program, variant.tangent), 8)
    names = name_of_dual(op, variant.option), class_name(op, variant.option)
    return (Dual(*names, outcome_of(op, variant.program), body),)


def _absent_tensors(op: Operation, tangent: Tangent) -> Iterator[tuple[str, Code]]:
    """Yield (name, constant) of each optional tensor, or its tangent, that is read."""
    read = {name for line in tangent.lines for name in names_in(line.code)}
    for t in op.inputs:
        if t.default is not None:
            for name, number in (
                (t.name, constant_text(t.default)),
                (tangent.given.get(t.name, ""), "0"),
            ):
                if name in read:
                    yield name, stand_in(op, t, number)


def _read_before(op: Operation, tangent: Tangent) -> set[str]:
    """Return the names that the prelude reads."""
    found = set(floats_of(op)) if tangent.precision.has_products else set()
    for t in op.inputs:
        if t.default is not None:
            found |= {*names_in(like_input(op)), *names_in(shape_of_absent(op, t))}
    return found


def _body(op: Operation, program: Program, tangent: Tangent) -> list[str]:
    """Return the lines that compute the tangents of all results."""
    read = {name for line in tangent.lines for name in names_in(line.code)}
    read |= _read_before(op, tangent)
    outcome, results = outcome_of(op, program), (*program.outputs, *program.statistics)
    lines = unpack_wanted(arguments(op), read, "inputs")
    if outcome != results[0]:
        lines += unpack_wanted(results, read.intersection(program.outputs), outcome)
    lines += unpack_wanted([tangent.given.get(n, "_") for n in arguments(op)], read, "tangents")
    lines += product_dtypes(op, tangent.precision, 8)
    for name, constant in _absent_tensors(op, tangent):
        lines += [f"if {name} is None:", f"    {name} = {text(constant)}"]
    lines += cast_inputs(tangent.precision, 8)
    moved = [tangent.results.get(n, "None") for n in results]
    *before, last = tangent.lines
    lines += statements(before, 8)
    if moved == [last.name]:
        return [*lines, *broken("return ", last.code, indent=8)]
    return [*lines, *assigned(last, 8), *return_statement(moved, 8)]
