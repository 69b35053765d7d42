"""Lowers an operation and its gradients to one function, without autograd.

The gradients read the intermediates of the forward directly: nothing is saved or recomputed.
Values that neither side needs are not computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.algebra import substitution
from derive.calculus.lets import Let, Lets
from derive.lowering.ground.group_axes import named_later
from derive.lowering.ground.value import Frame, Value
from derive.lowering.keepdim import added_axes
from derive.lowering.layout_conversion import (
    Border,
    enter_layout,
    leave_layout,
    lines_read,
    own_shapes,
    resolve_sizes,
    shapes_before,
    store_layout,
)
from derive.lowering.lowering_input import (
    LoweringInput,
    enter_kept,
    frame_of,
    input_values,
    lowered,
    named_tensors,
    scope_statements,
    sources_of,
    with_display_names,
)
from derive.notation.operation import Operation
from derive.program.aliasing import copy_aliases
from derive.program.cse import Line, tidy
from derive.program.torch_ir import Attribute, Code, Conditional, MethodCall, Name, names_in


@dataclass(frozen=True)
class Cotangent:
    """An argument for dL/d output, and the shape that it must have."""

    name: str
    output: str
    shape: Code


@dataclass(frozen=True)
class Joint:
    """Outputs, then gradients by name.

    ``forward`` computes all outputs; ``backward`` may read all its variables.
    """

    forward: tuple[Line, ...]
    results: tuple[tuple[str, Code], ...]
    """(output, returned code), in order."""
    cotangents: tuple[Cotangent, ...]
    backward: tuple[Line, ...]
    gradients: tuple[tuple[str, str, Code], ...]
    """(input or equation, variable of its gradient, returned code)."""


def joint(given: LoweringInput) -> Joint:
    """Lower the outputs of the operation, then the wanted gradients."""
    op, lets, backward, border = given.op, given.lets, given.backward, given.border.again()
    display_name, tensors = lets.display_name, input_values(op)
    wanted = [*backward.gradients, *(a for a in backward.adjoints if a.tensor in backward.wanted)]
    own = {n: Value(Name(n), lets[output].formals) for output, n in backward.cotangents}
    available = {**tensors, **own}
    entered = enter_kept(op, lets, available, backward.cotangents)
    adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
    scope = lowered(given, available, (*op.outputs, *(a.name for a in wanted)), adjoints)
    lines = with_display_names(scope_statements(scope, given), lets)
    read = {name for line in lines for name in names_in(line.code)}
    held = {name: t for name, t in named_tensors(lets, available).items() if name in read}
    lines, entry = enter_layout(border, lines, held)
    left = {*op.outputs, *(a.name for a in wanted)}
    named = (*lets.given, *(a.name for a in backward.adjoints))
    inside = named_tensors(lets, [name for name in named if name not in left])
    lines = store_layout(border, lines, inside)
    lines, results, shapes = _joint_results(op, lets, border, lines)
    returned: dict[str, Code] = {}
    for name, tensor in ((display_name(a.name), display_name(a.tensor)) for a in wanted):
        lines, returned[name] = leave_layout(border, lines, name, tensor)
    lines = [replace(x, code=substitution.replace(x.code, named_later)) for x in lines]
    lines = resolve_sizes(border, lines, sources_of(border, lets, tensors))
    plain = {t.name for t in border.op.inputs} - border.entered
    first, second = _in_halves(given, border, lines, entry, plain, results.keys())
    second = [*lines_read(with_display_names(entered, lets), second), *second]
    results, shapes, returned = (_on_tensors(c, plain) for c in (results, shapes, returned))
    arguments = [*(t.name for t in border.op.inputs), *map(display_name, own)]
    parted = copy_aliases([*first, *second], {**results, **returned}, arguments)
    returned = {name: parted[name] for name in returned}
    codes = (*results.values(), *shapes.values(), *returned.values())
    whole = [*first, *second, *(Line("", code) for code in codes)]
    return Joint(
        forward=(*shapes_before(border, whole), *first),
        results=tuple(results.items()),
        cotangents=tuple(
            Cotangent(display_name(name), display_name(output), shapes[display_name(output)])
            for output, name in backward.cotangents
        ),
        backward=tuple(second),
        gradients=tuple(
            (display_name(a.tensor), display_name(a.name), returned[display_name(a.name)])
            for a in wanted
        ),
    )


def _joint_results(
    op: Operation, lets: Lets, border: Border, lines: list[Line]
) -> tuple[list[Line], dict[str, Code], dict[str, Code]]:
    """Return the lines, and the returned code and the shape of each output."""
    results: dict[str, Code] = {}
    shapes: dict[str, Code] = {}
    frame = frame_of(op)
    whole = [Line(n, _result(op, frame, lets[n])) for n in op.outputs]
    for line in with_display_names(whole, lets):
        name = line.name
        results[name], shapes[name] = line.code, Attribute(line.code, "shape")
        if border.changes(name, kept=True):
            shapes[name] = border.shape(name, kept=True)
            lines, results[name] = leave_layout(border, lines, name, name, kept=True)
    return lines, results, shapes


def _in_halves(
    given: LoweringInput,
    border: Border,
    lines: Sequence[Line],
    entry: Sequence[Line],
    plain: set[str],
    outputs: Collection[str],
) -> tuple[list[Line], list[Line]]:
    """Return the statements up to the last output, and those after, with layout conversions."""
    first, second = _halves(lines, outputs)
    before = [line for line in entry if line.name in border.outside]
    after = [line for line in entry if line not in before]
    taken = given.taken()
    whole = own_shapes([*before, *first, *after, *second], plain)
    return _halves(tidy(whole, taken), outputs)


def _on_tensors(codes: Mapping[str, Code], plain: set[str]) -> dict[str, Code]:
    """Return the codes with shapes read from the tensors themselves."""
    lines = own_shapes([Line(name, code) for name, code in codes.items()], plain)
    return {line.name: line.code for line in lines}


def _halves(lines: Sequence[Line], outputs: Collection[str]) -> tuple[list[Line], list[Line]]:
    """Split the lines after the last output."""
    last = max((n for n, line in enumerate(lines) if line.name in outputs), default=-1)
    return list(lines[: last + 1]), list(lines[last + 1 :])


def _result(op: Operation, frame: Frame, let: Let) -> Code:
    """Return an output with the axes that flags keep."""
    code: Code = Name(let.name)
    for flag, place in added_axes(op, let.formals, frame):
        code = Conditional(flag, MethodCall(code, "unsqueeze", (place,)), code)
    return code
