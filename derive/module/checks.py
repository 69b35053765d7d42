"""The checks of the public function: rank, dtype, device and sizes of its inputs.

No check reads the values of a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Const, Expr, Mul, Num
from derive.calculus.reads_out_of_range import reads_out_of_range
from derive.errors import LoweringError
from derive.lowering.ground.runtime_sizes import ShapeSources, axes_of
from derive.lowering.ground.value import Frame, NeedsFlatGroups, axis_size, is_group
from derive.lowering.groups import group_shapes, groups_of, home_of, named_axes, shape_name
from derive.lowering.lowering_input import like_input
from derive.module.arguments import (
    ArgumentCheck,
    checks_if_given,
    divisor_checks,
    in_turn,
    kind_checks,
    parameter_kinds,
    required_of,
    spelled_check,
)
from derive.module.positions import input_frame
from derive.module.shape_checks import ShapeChecks, shapes_from
from derive.notation.operation import AxisOf, Number, Operation, SizeOf, Tensor
from derive.program.none_specialization import expanded
from derive.program.torch_ir import DTYPES, Binary, Code, Literal, Name, Shape, replaced, text
from derive.show.formula import unicode


def checks(op: Operation, frame: Frame) -> list[ArgumentCheck]:
    """Return all checks of op, ordered so that each may rely on the earlier ones."""
    required, optional = required_of(op), [t for t in op.inputs if t.default is not None]
    for t in optional:
        shape_of_absent(op, t)
    shapes = ShapeChecks(op, frame)
    placed = [p for p in op.parameters if isinstance(p, AxisOf)]
    # No position is right in a tensor without axes.
    implied = {f"{home_of(op, p).name}.dim() < 1" for p in placed}
    ranks = [check for check in shapes.ranks() if check.test not in implied]
    result = [*kind_checks(op), *parameter_kinds(op), *ranks]
    result += (check for p in placed for check in _axis_parameter_checks(op, p))
    result += _axes_in_turn(op)
    for p in op.parameters:
        if isinstance(p, SizeOf):
            result.append(ArgumentCheck(f"{p.name} < 1", (f"{p.name}=size({p.extent})",)))
        elif isinstance(p, Number):
            result += _bound_checks(p)
    result += divisor_checks(op, shapes_from(op, input_frame(op, frame), required))
    result += shapes.sizes()
    result += _range_checks(op, shapes_from(op, input_frame(op, frame), required))
    for t in optional:
        result += checks_if_given(t, shapes.of_optional(t))
    return result


def _range_checks(op: Operation, shapes: ShapeSources) -> list[ArgumentCheck]:
    """Return the checks of sizes at which a guarded read is out of range."""
    result: list[ArgumentCheck] = []
    for found in reads_out_of_range(op):
        try:
            test = " and ".join(text(_at_least_zero(shapes, form)) for form in found.forms)
            size = text(shapes.number(found.size))
        except (LoweringError, NeedsFlatGroups):
            continue
        told = size if size.isdigit() else f"{{{size}}}"
        message = (
            f"axis {found.axis} of {found.tensor} has size {told}, but is read at "
            f"{unicode(found.position)} out of range"
        )
        result.append(spelled_check(op, test, message, error="IndexError"))
    return result


def _at_least_zero(shapes: ShapeSources, form: Polynomial) -> Code:
    """Return the comparison form >= 0, with no negative number."""
    positive = Polynomial({key: c for key, c in form.terms.items() if c > 0})
    more, less = (shapes.number(side.expr()) for side in (positive, positive - form))
    return Binary("<=", less, more) if positive.number is not None else Binary(">=", more, less)


def fill_absent_lines(op: Operation) -> list[ArgumentCheck]:
    """Return the lines that replace None by a constant, expanded without memory."""
    result: list[ArgumentCheck] = []
    for t in op.inputs:
        if t.default is not None:
            whole = text(stand_in(op, t, constant_text(t.default)))
            result.append(ArgumentCheck(then=(f"if {t.name} is None:", f"    {t.name} = {whole}")))
    return result


def stand_in(op: Operation, t: Tensor, number: str) -> Code:
    """Return the code of a tensor of one number with the kind and the axes of an optional one."""
    return expanded(like_input(op), Literal(number), shape_of_absent(op, t), DTYPES.get(t.kind))


def constant_text(value: Fraction | Expr | int | None) -> str:
    """Return a default as Python text: a number, pi, inf, or the negative of one."""
    if isinstance(value, Const):
        return f"math.{value.name}"
    if isinstance(value, Mul):
        return "-" + constant_text(value.args[-1])
    if isinstance(value, Num):
        value = value.value
    if not isinstance(value, Fraction | int):
        raise LoweringError(f"no torch code for the default {value!r}")
    return repr(int(value)) if value == int(value) else repr(float(value))


def _bound_checks(p: Number) -> list[ArgumentCheck]:
    """Return the checks of a number's bounds; nan satisfies only ``!=``."""
    result: list[ArgumentCheck] = []
    for relation, value in p.bounds:
        number = constant_text(value)
        test = f"{p.name} == {number}" if relation == "!=" else f"not {p.name} {relation} {number}"
        result.append(ArgumentCheck(test, (f"{p.name}{relation}{number}",)))
    return result


def _axis_parameter_checks(op: Operation, p: AxisOf) -> list[ArgumentCheck]:
    home = home_of(op, p)
    name, rank = p.name, f"{home.name}.dim()"
    found = [ArgumentCheck(f"not -{rank} <= {name} < {rank}", (f"{name}=axis({p.index.name})",))]
    n = home.axes.index(p.index)
    before, after = home.axes[:n], home.axes[n + 1 :]
    ahead, behind = _single(before), _single(after)
    if ahead < len(before) and behind < len(after):
        end = f"{rank} - {behind}" if behind else rank
        within = ArgumentCheck(f"not {ahead} <= {name} % {rank} < {end}")
        return [*found, within] if ahead or behind else found
    place = f"{n}" if ahead == len(before) else f"{rank} - {len(home.axes) - n}"
    return [*found, ArgumentCheck(f"{name} % {rank} != {place}")]


def _single(axes: Sequence[Expr]) -> int:
    """Return the number of axes that are no groups."""
    return sum(1 for i in axes if not is_group(i))


def _axes_in_turn(op: Operation) -> list[ArgumentCheck]:
    """Return the checks that axis parameters of one tensor are in the order of its axes."""
    found: list[ArgumentCheck] = []
    placed = [p for p in op.parameters if isinstance(p, AxisOf)]
    for t in op.inputs:
        own = sorted((p for p in placed if p.index in t.axes), key=lambda p: t.axes.index(p.index))
        for one, two in pairwise(own):
            between = t.axes[t.axes.index(one.index) + 1 : t.axes.index(two.index)]
            if _single(between) < len(between):
                rank, single = f"{t.name}.dim()", _single(between)
                least = f"{one.name} % {rank} + {single}" if single else f"{one.name} % {rank}"
                found.append(ArgumentCheck(f"{least} >= {two.name} % {rank}"))
        placed = [p for p in placed if p not in own]
    return found


def shape_of_absent(op: Operation, t: Tensor) -> Code:
    """Return the shape of the constant that replaces None."""
    required = required_of(op)
    if not any(r.kind == "float" for r in required):
        raise LoweringError(
            f"{t.name} is optional, but no required float tensor determines its dtype",
            kind="optional-input",
        )
    shapes = shapes_from(op, Frame(named_axes(op)), required)
    shapes = replace(shapes, groups=_slices_of_groups(op))
    shape = Shape(tuple(axis_size(i) for i in axes_of(op, t) if i is not None))
    try:
        return shapes.resolve(shape)
    except (LoweringError, StopIteration) as error:
        reason = error.text if isinstance(error, LoweringError) else error
        raise LoweringError(
            f"{t.name} is optional, but no required tensor determines its shape: {reason}",
            kind="optional-input",
        ) from None


def _slices_of_groups(op: Operation) -> dict[str, Code]:
    """Return the shape of each group as a slice of the shape of a required tensor."""
    known: dict[Code, Code] = {}
    for line in group_shapes(op):
        known[Name(line.name)] = replaced(line.code, known)
    groups = {i for t in op.inputs for i in groups_of(t)}
    return {i.extent: known[Name(shape_name(i))] for i in groups}


def one_dtype(op: Operation) -> list[ArgumentCheck]:
    """Return the checks that all float tensors have the dtype of the first."""
    first, *others = (t for t in in_turn(op) if t.kind == "float")
    result: list[ArgumentCheck] = []
    for t in others:
        want = f"the dtype of {first.name}, {{{first.name}.dtype}}"
        message = f"{t.name} must have {want}, not {{{t.name}.dtype}}"
        check = spelled_check(op, f"{t.name}.dtype != {first.name}.dtype", message, "TypeError")
        result += checks_if_given(t, [check])
    return result
