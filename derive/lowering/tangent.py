"""Lowers the tangents of one operation, given its inputs, its outputs and their tangents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from derive.calculus.adjoint import Backward
from derive.calculus.lets import Let, Lets
from derive.lowering.assembly import (
    WIDTH,
    float_outputs,
    frame_of,
    input_values,
    integer_tensors,
    integers_of,
    legalize_lines,
    named_tensors,
    scope_statements,
    sources_of,
    vectors_of,
    with_display_names,
)
from derive.lowering.forward import keep_axes
from derive.lowering.ground.value import Frame, Value
from derive.lowering.keepdim import entered_axes
from derive.lowering.layout_conversion import (
    Border,
    enter_layout,
    leave_layout,
    lines_read,
    multiplied_once,
    own_shapes,
    resolve_sizes,
    shapes_before,
    store_layout,
)
from derive.lowering.nodes.lower import Lowering
from derive.notation.operation import Operation
from derive.program.cse import Line, tidy
from derive.program.mixed_precision import NAMES, all_wide, in_precision
from derive.program.program import Tangent
from derive.program.torch_ir import Conditional, MethodCall, Name, names_in


def tangent(op: Operation, lets: Lets, tangents: Backward, border: Border, low: bool) -> Tangent:
    """Lower the tangents of the outputs of ``op``.

    ``low`` means that its forward has matrix products, which may have another dtype.
    """
    display_name, given = lets.display_name, dict(tangents.cotangents)
    tensors = _tangent_inputs(op, lets, given)
    entry = _enter_outputs(op, lets, frame_of(op), tensors)
    made = {a.name: a.as_let() for a in tangents.adjoints}
    results = {a.tensor: a.name for a in tangents.adjoints if a.tensor in tangents.wanted}
    lines = _tangent_lines(op, lets, made, tensors, results.values())
    read = {name for line in lines for name in names_in(line.code)}
    known = {n: t for n, t in named_tensors(lets, tensors).items() if n in read}
    lines, entered = enter_layout(border, lines, known)
    inside = [n for n in (*lets.given, *made) if n not in {*tensors, *results.values()}]
    lines = store_layout(border, lines, named_tensors(lets, inside))
    for output, name in results.items():
        if output not in op.outputs:
            # A statistic has the axes with which the forward saves it.
            continue
        lines, code = leave_layout(
            border, lines, display_name(name), display_name(output), kept=True
        )
        lines += [Line(display_name(name), code)] if code is not Name(display_name(name)) else []
    # An output may have axes that flags keep, so its shape is not used for sizes.
    sources = {name: value for name, value in tensors.items() if name not in op.outputs}
    lines = [*entered, *resolve_sizes(border, lines, sources_of(border, lets, sources))]
    inputs = {t.name for t in border.op.inputs}
    lines = own_shapes(lines, {*inputs, *map(display_name, given.values())} - border.entered)
    lines = [*lines_read(with_display_names(entry, lets), lines), *lines]
    floats = [t.name for t in border.op.inputs if t.kind == "float"]
    floats += [*float_outputs(border.op), *map(display_name, given.values())]
    integers = integer_tensors(border.op)
    if low:
        vectors = vectors_of(border.op)
        lines, precision = in_precision(lines, floats, vectors=vectors, integers=integers)
    else:
        lines, precision = all_wide(lines, floats, integers)
    taken = {*lets.reserved, *(display_name(let.name) for let in lets)}
    lines = tidy(multiplied_once(border, lines, taken), taken | NAMES, WIDTH)
    lines = legalize_lines(border, lines)
    lines = [*shapes_before(border, lines), *lines]
    left = {name for line in lines for name in names_in(line.code)}
    precision = replace(
        precision,
        narrow=tuple(name for name in precision.narrow if name in left),
        broad=tuple(name for name in precision.broad if name in left),
    )
    return Tangent(
        given={display_name(name): display_name(own) for name, own in given.items()},
        lines=tuple(lines),
        results={display_name(output): display_name(name) for output, name in results.items()},
        precision=precision,
    )


def _tangent_inputs(op: Operation, lets: Lets, given: Mapping[str, str]) -> dict[str, Value]:
    """Return the tangents of inputs, then inputs and outputs; shapes are read in this order."""
    inputs = input_values(op)
    tensors = {own: Value(Name(own), inputs[name].axes) for name, own in given.items()}
    tensors |= inputs
    for name in op.outputs:
        tensors[name] = Value(Name(name), lets[name].formals, lets[name].dtype)
    return tensors


def _enter_outputs(
    op: Operation, lets: Lets, frame: Frame, tensors: dict[str, Value]
) -> list[Line]:
    """Give outputs the axes that flags may have kept; return the lines for it."""
    entry = []
    for name in op.outputs:
        axes, missing = entered_axes(op, lets[name].formals, frame)
        tensors[name] = replace(tensors[name], axes=axes)
        for flag, place in missing:
            wide = MethodCall(Name(name), "unsqueeze", (place,))
            entry.append(Line(name, Conditional(flag, Name(name), wide)))
    return entry


def _tangent_lines(
    op: Operation,
    lets: Lets,
    made: Mapping[str, Let],
    tensors: Mapping[str, Value],
    results: Collection[str],
) -> list[Line]:
    """Return the statements that compute the results, with the axes that flags keep."""

    def find(name: str) -> Let | None:
        return made.get(name) or lets.get(name)

    frame, like = frame_of(op), Name(next(iter(tensors)))
    scope = Lowering(*(find, frame, dict(tensors), like, integers_of(op)), adjoints=frozenset(made))
    for name in results:
        scope.tensor(name)
    lines = scope_statements(scope)
    for name in results:
        lines = keep_axes(op, made[name], frame, lines)
    return with_display_names(lines, lets)
