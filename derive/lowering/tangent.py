"""Lowers the tangents of one operation, given its inputs, its outputs and their tangents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from derive.calculus.lets import Let, Lets
from derive.lowering.assembly import TANGENTS, BodySpec, assemble
from derive.lowering.forward import keep_axes
from derive.lowering.ground.value import Value
from derive.lowering.lowering_input import (
    LoweringInput,
    argument_kinds,
    enter_kept,
    input_values,
    lowered,
    named_tensors,
    scope_statements,
    with_display_names,
)
from derive.notation.operation import Operation
from derive.program.cse import Line
from derive.program.program import Tangent
from derive.program.torch_ir import Name, names_in


def lower_tangents(given: LoweringInput, low: bool) -> Tangent:
    """Lower the tangents of the outputs of the operation.

    ``low`` means that its forward has matrix products, which may have another dtype.
    """
    op, lets, tangents, border = given.op, given.lets, given.backward, given.border.again()
    display_name, moved = lets.display_name, dict(tangents.cotangents)
    tensors = _tangent_inputs(op, lets, moved)
    entry = enter_kept(op, lets, tensors, zip(op.outputs, op.outputs, strict=True))
    made = {a.name: a.as_let() for a in tangents.adjoints}
    results = {a.tensor: a.name for a in tangents.adjoints if a.tensor in tangents.wanted}
    inside = [n for n in (*lets.given, *made) if n not in {*tensors, *results.values()}]
    own = [display_name(name) for name in moved.values()]
    spec = BodySpec(
        given,
        border,
        entering=named_tensors(lets, tensors),
        # A statistic has the axes with which the forward saves it.
        leaving={
            display_name(name): display_name(output)
            for output, name in results.items()
            if output in op.outputs
        },
        inside=named_tensors(lets, inside),
        keeps_axes=True,
        entry=with_display_names(entry, lets),
        # An output may have axes that flags keep, so its shape is not used for sizes.
        sizes={name: value for name, value in tensors.items() if name not in op.outputs},
        present=[*(t.name for t in border.op.inputs), *own],
        kinds=argument_kinds(border.op, border.op.outputs) | dict.fromkeys(own, "float"),
        low=low,
    )
    statements = _tangent_lines(given, made, tensors, results.values())
    body = assemble(spec, statements, TANGENTS)
    left = {name for line in body.lines for name in names_in(line.code)}
    precision = replace(
        body.precision,
        narrow=tuple(name for name in body.precision.narrow if name in left),
        broad=tuple(name for name in body.precision.broad if name in left),
    )
    return Tangent(
        given={display_name(name): display_name(own) for name, own in moved.items()},
        lines=body.lines,
        results={display_name(output): display_name(name) for output, name in results.items()},
        precision=precision,
        log=body.log,
    )


def _tangent_inputs(op: Operation, lets: Lets, given: Mapping[str, str]) -> dict[str, Value]:
    """Return the tangents of inputs, then inputs and outputs; shapes are read in this order."""
    inputs = input_values(op)
    tensors = {own: Value(Name(own), inputs[name].axes) for name, own in given.items()}
    tensors |= inputs
    for name in op.outputs:
        tensors[name] = Value(Name(name), lets[name].formals, lets[name].dtype)
    return tensors


def _tangent_lines(
    given: LoweringInput,
    made: Mapping[str, Let],
    tensors: Mapping[str, Value],
    results: Collection[str],
) -> list[Line]:
    """Return the statements that compute the results, with the axes that flags keep."""
    scope = lowered(given, tensors, results, made, Name(next(iter(tensors))))
    lines = scope_statements(scope, given)
    for name in results:
        lines = keep_axes(given.op, made[name], scope.frame, lines)
    return with_display_names(lines, given.lets)
