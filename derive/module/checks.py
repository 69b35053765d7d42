"""The checks of the public function: rank, dtype, device and sizes of its inputs.

A message names the tensor, the axis and both sizes. No check reads the values of a tensor.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from derive.algebra.expr import Const, Expr, Index, Mul, Num
from derive.errors import LoweringError
from derive.lowering.ground.runtime_sizes import axes_of
from derive.lowering.ground.value import Frame, axis_size
from derive.lowering.groups import SizeFrame, named_axes
from derive.module.arguments import (
    NOT_POSITIVE,
    WRONG_RANK,
    ArgumentCheck,
    argument_check,
    checks_if_given,
    divisor_checks,
    in_turn,
    is_tensor,
    not_of,
    parameter_kinds,
    required_of,
)
from derive.module.shape_checks import axes_agree, letters, shapes_from
from derive.notation.operation import BOUNDS, AxisOf, Number, Operation, SizeOf, Tensor
from derive.program.torch_ir import Code, Shape, text


def checks(op: Operation, frame: Frame) -> list[ArgumentCheck]:
    """Return all checks of op, ordered so that each may rely on the earlier ones."""
    required, optional = required_of(op), [t for t in op.inputs if t.default is not None]
    for t in optional:
        shape_of_absent(op, t)
    result = [is_tensor(op, t.name, t.kind) for t in required] + parameter_kinds(op)
    for t in required:
        result += _rank_check(op, t)
    for p in op.parameters:
        if isinstance(p, AxisOf):
            result += _axis_parameter_checks(op, p)
    result += _axes_in_turn(op)
    for p in op.parameters:
        if isinstance(p, SizeOf):
            message = f"{p.name} must be positive, not {{{p.name}}}"
            test = f"{p.name} < 1"
            result.append(argument_check(op, test, message, subject=p.name, clause=NOT_POSITIVE))
        elif isinstance(p, Number):
            result += _bound_checks(op, p)
    for t in optional:
        result += checks_if_given(t, [is_tensor(op, t.name, t.kind), *_rank_check(op, t)])
    result += _dtype_device_checks(op)
    result += divisor_checks(op, shapes_from(op, SizeFrame(), required))
    result += axes_agree(op, frame)
    order = ["", *(t.name for t in optional)]
    return sorted(result, key=lambda check: order.index(check.given))


def fill_absent_lines(op: Operation) -> list[ArgumentCheck]:
    """Return the lines that replace None by a constant, expanded without memory."""
    like = next(t.name for t in required_of(op) if t.kind == "float")
    result: list[ArgumentCheck] = []
    for t in op.inputs:
        if t.default is not None:
            made = f"{like}.new_full((), {constant_text(t.default)})"
            whole = f"{made}.expand({text(shape_of_absent(op, t))})"
            result.append(ArgumentCheck(then=(f"if {t.name} is None:", f"    {t.name} = {whole}")))
    return result


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


def _rank_check(op: Operation, t: Tensor) -> list[ArgumentCheck]:
    single = sum(1 for i in t.axes if not (isinstance(i, Index) and i.group))
    grouped = single < len(t.axes)
    if grouped and not single:
        return []
    relation, words = ("<", "at least ") if grouped else ("!=", "")
    plural = "axis" if single == 1 else "axes"
    message = f"{t.name} must have {words}{single} {plural} [{letters(t)}], not {{{t.name}.dim()}}"
    test = f"{t.name}.dim() {relation} {single}"
    return [argument_check(op, test, message, subject=t.name, clause=WRONG_RANK)]


def _bound_checks(op: Operation, p: Number) -> list[ArgumentCheck]:
    """Return the checks of a number's bounds; nan satisfies only ``!=``."""
    result: list[ArgumentCheck] = []
    for relation, value in p.bounds:
        number = constant_text(value)
        words = f"{BOUNDS[relation]} {number}"
        message = f"{p.name} must be {words}, not {{{p.name}}}"
        test = f"{p.name} == {number}" if relation == "!=" else f"not {p.name} {relation} {number}"
        clause = f"{{}} is {number}" if relation == "!=" else f"{{}} is not {words}"
        result.append(argument_check(op, test, message, subject=p.name, clause=clause))
    return result


def _axis_parameter_checks(op: Operation, p: AxisOf) -> list[ArgumentCheck]:
    home = next((t for t in op.inputs if p.index in t.axes), None)
    if home is None:
        raise LoweringError(f"{p.name}=axis({p.index.name}): no input has axis {p.index.name}")
    name, rank, what = p.name, f"{home.name}.dim()", f"axis {p.index.name}"
    message = f"{name} must be in [{{-{rank}}}, {{{rank}}}) for {home.name}, not {{{name}}}"
    test, clause = f"not -{rank} <= {name} < {rank}", f"{{}} is not the position of {what}"
    found = [argument_check(op, test, message, subject=name, clause=clause)]
    n = home.axes.index(p.index)
    before = any(isinstance(i, Index) and i.group for i in home.axes[:n])
    after = any(isinstance(i, Index) and i.group for i in home.axes[n + 1 :])
    message = (
        f"{name} must be the position of axis {p.index.name} in "
        f"{home.name}[{letters(home)}], not {{{name}}}"
    )
    if before and after:
        ahead, behind = (
            sum(1 for i in axes if not (isinstance(i, Index) and i.group))
            for axes in (home.axes[:n], home.axes[n + 1 :])
        )
        if not ahead and not behind:
            return found
        end = f"{rank} - {behind}" if behind else rank
        test = f"not {ahead} <= {name} % {rank} < {end}"
        return [*found, argument_check(op, test, message, subject=name, clause=clause)]
    place = f"{n}" if not before else f"{rank} - {len(home.axes) - n}"
    test = f"{name} % {rank} != {place}"
    return [*found, argument_check(op, test, message, subject=name, clause=clause)]


def _axes_in_turn(op: Operation) -> list[ArgumentCheck]:
    """Return the checks that axis parameters of one tensor are in the order of its axes."""
    found: list[ArgumentCheck] = []
    placed = [p for p in op.parameters if isinstance(p, AxisOf)]
    for t in op.inputs:
        own = sorted((p for p in placed if p.index in t.axes), key=lambda p: t.axes.index(p.index))
        for one, two in pairwise(own):
            between = t.axes[t.axes.index(one.index) + 1 : t.axes.index(two.index)]
            if not any(isinstance(i, Index) and i.group for i in between):
                continue
            rank = f"{t.name}.dim()"
            single = sum(1 for i in between if not (isinstance(i, Index) and i.group))
            least = f"{one.name} % {rank} + {single}" if single else f"{one.name} % {rank}"
            message = (
                f"{one.name} and {two.name} must be the positions of axes {one.index.name} and "
                f"{two.index.name} in {t.name}[{letters(t)}], in this order, "
                f"not {{{one.name}}} and {{{two.name}}}"
            )
            test, names = f"{least} >= {two.name} % {rank}", f"{one.name} and {two.name}"
            clause = "{} are not in the order of the axes"
            found.append(argument_check(op, test, message, subject=names, clause=clause))
        placed = [p for p in placed if p not in own]
    return found


def shape_of_absent(op: Operation, t: Tensor) -> Code:
    """Return the shape of the constant that replaces None."""
    required = required_of(op)
    if not any(r.kind == "float" for r in required):
        raise LoweringError(
            f"{t.name} is optional, but no required float tensor determines its dtype"
        )
    shapes = shapes_from(op, Frame(named_axes(op)), required)
    shape = Shape(tuple(axis_size(i) for i in axes_of(op, t) if i is not None))
    try:
        return shapes.resolve(shape)
    except (LoweringError, StopIteration) as error:
        raise LoweringError(
            f"{t.name} is optional, but no required tensor determines its shape: {error}"
        ) from None


def one_dtype(op: Operation) -> list[ArgumentCheck]:
    """Return the checks that all float tensors have the dtype of the first."""
    first, *others = (t for t in in_turn(op) if t.kind == "float")
    result: list[ArgumentCheck] = []
    for t in others:
        want = f"the dtype of {first.name}, {{{first.name}.dtype}}"
        message = f"{t.name} must have {want}, not {{{t.name}.dtype}}"
        test = f"{t.name}.dtype != {first.name}.dtype"
        clause = f"the dtype of {{}} differs from that of {first.name}"
        check = argument_check(op, test, message, "TypeError", subject=t.name, clause=clause)
        result += checks_if_given(t, [check])
    return result


def _dtype_device_checks(op: Operation) -> list[ArgumentCheck]:
    """Return the checks of dtypes (float, int64, bool) and of a single device."""
    result: list[ArgumentCheck] = []
    for t in op.inputs:
        if t.kind == "float":
            test = f"not {t.name}.is_floating_point()"
            want = "must be a floating-point tensor"
        else:
            dtype = "int64" if t.kind == "int" else "bool"
            test, want = f"{t.name}.dtype != torch.{dtype}", f"must be {dtype}"
        message = f"{t.name} {want}, not {{{t.name}.dtype}}"
        check = argument_check(
            op, test, message, "TypeError", subject=t.name, clause=not_of(t.kind)
        )
        result += checks_if_given(t, [check])
    first, *others = in_turn(op)
    for t in others:
        here, there = f"{t.name}.device", f"{first.name}.device"
        message = f"{t.name} is on {{{here}}}, but {first.name} is on {{{there}}}"
        clause = "the tensors are on different devices"
        check = argument_check(op, f"{here} != {there}", message, subject="", clause=clause)
        result += checks_if_given(t, [check])
    return result
