"""What forward and backward have in common: tensors at hand, sizes, and statements as lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import Index, Num
from derive.calculus.adjoint import Backward
from derive.calculus.lets import Lets
from derive.calculus.valid_positions import bounds_of
from derive.errors import LoweringError
from derive.kernels.gather_pattern import Floats
from derive.kernels.stack_pattern import Short
from derive.lowering.ground.context import Scope
from derive.lowering.ground.runtime_sizes import ShapeSource
from derive.lowering.ground.value import Frame, Value
from derive.lowering.groups import named_axes
from derive.lowering.layout_conversion import Border
from derive.notation.operation import Number, Operation, SizeOf
from derive.program.cse import Line
from derive.program.legalize_axes import along
from derive.program.legalize_positions import of_its_kind
from derive.program.program import Recognised
from derive.program.roundings import is_short
from derive.program.torch_ir import Attribute, Code, Dim, Name, literal

WIDTH = 76
"""Columns that a line of code may take; its indentation comes on top."""


@dataclass(frozen=True)
class LoweringInput:
    """What is to be code: an operation, and what was derived from it, in one layout of groups."""

    op: Operation
    lets: Lets
    backward: Backward
    border: Border

    def taken(self) -> set[str]:
        """The names that mean something."""
        return {*self.lets.reserved, *(self.lets.display_name(let.name) for let in self.lets)}


def integers_of(op: Operation) -> frozenset[str]:
    """The parameters that are integers."""
    return frozenset(
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )


def frame_of(op: Operation) -> Frame:
    """The positions that parameters name at run time, and what is certain of all."""
    given = frozenset(p.extent for p in op.parameters if isinstance(p, SizeOf))
    return Frame(named_axes(op), bounds_of(op), given)


def input_values(op: Operation) -> dict[str, Value]:
    """The inputs as they are at hand."""
    return {
        t.name: Value(Name(t.name), tuple(i for i in t.axes if isinstance(i, Index)), t.kind)
        for t in op.inputs
    }


def short_axes(op: Operation, lets: Lets) -> Short:
    """Which axes of a tensor have a number as their size, and that number."""
    inputs = input_values(op)

    def short(name: str) -> dict[int, tuple[Index, int]]:
        let = lets.get(name)
        axes = let.formals if let is not None else inputs[name].indices if name in inputs else ()
        sizes = (None if i.group else lets.bounds.size(i.extent).number for i in axes)
        found = enumerate(zip(axes, sizes, strict=True))
        return {n: (i, int(size)) for n, (i, size) in found if size is not None}

    return short


def float_axes(op: Operation, lets: Lets) -> Floats:
    """Which axes a tensor of floating-point numbers has."""
    inputs = input_values(op)
    numbers = {p.name for p in op.parameters if isinstance(p, Number) and not p.integer}

    def floats(name: str) -> tuple[Index, ...] | None:
        if name in numbers:
            return ()
        if (let := lets.get(name)) is not None:
            return let.formals if let.dtype == "float" else None
        value = inputs.get(name)
        return value.indices if value is not None and value.kind == "float" else None

    return floats


def like_input(op: Operation) -> Code:
    """The input that new tensors take dtype and device from."""
    floats = sorted(
        (t for t in op.inputs if t.kind == "float"), key=lambda t: t.default is not None
    )
    if not floats:
        raise LoweringError(
            "the operation has no floating-point input, so there is nothing to differentiate"
        )
    return Name(floats[0].name)


def sources_of(
    border: Border, lets: Lets, tensors: Mapping[str, Value], stored: Collection[str] = ()
) -> list[ShapeSource]:
    """The shapes of tensors at hand that are no None, each by the name that a reader knows.

    Inputs and outputs look as they do outside, and so do those ``stored``.
    """
    found = []
    absent = {t.name for t in border.op.inputs if t.default is not None}
    crossing = {*border.op.outputs, *(t.name for t in border.op.inputs), *stored}
    for name, value in tensors.items():
        ((said, tensor),) = tensors_of(lets, [name]).items()
        if tensor in absent:
            continue
        axes = tuple(i and Index(i.name, lets.display_name(i.extent), i.group) for i in value.axes)
        if tensor in crossing and border.changes(tensor) and said not in border.entered:
            axes = border.axes_outside(tensor)
        found.append(ShapeSource(said, Attribute(Name(said), "shape"), axes))
    return found


def tensors_of(lets: Lets, names: Iterable[str]) -> dict[str, str]:
    """Each name and the tensor whose axes it has, as a reader knows them."""
    return {lets.display_name(n): lets.display_name(lets.derived_from.get(n, n)) for n in names}


def statements(scope: Scope) -> list[Line]:
    """What was written, in lines."""
    lines = []
    for s in scope.statements:
        let = scope.find(s.name)
        assert let is not None
        lines.append(Line(s.name, s.code, kept=not let.internal))
    return lines


def noted(scope: Scope, lets: Lets) -> tuple[Recognised, ...]:
    return tuple(Recognised(lets.display_name(name), *row) for name, *row in scope.noted)


def with_display_names(lines: Sequence[Line], lets: Lets) -> list[Line]:
    """The lines under the names that a reader knows."""

    def display_name(code: Code) -> Code:
        if isinstance(code, Name):
            bare = code.id.removesuffix("_shape")
            return Name(lets.display_name(bare) + code.id[len(bare) :])
        if isinstance(code, Dim):
            return Dim(lets.display_name(code.extent))
        return code.map(display_name)  # type: ignore[no-any-return]

    return [replace(x, name=lets.display_name(x.name), code=display_name(x.code)) for x in lines]


def placed(border: Border, lines: Sequence[Line]) -> list[Line]:
    """The lines with softmaxes that are fast where groups have no axes, and any positions."""
    lines = [replace(line, code=of_its_kind(line.code)) for line in lines]
    if not border.flattens:
        return lines
    return [replace(line, code=along(line.code)) for line in lines]


def vectors_of(op: Operation) -> set[str]:
    """The tensors with one axis at most."""
    inputs = {t.name for t in op.inputs if len(t.axes) < 2}
    return inputs | {e.name for e in op.equations if len(e.axes) < 2}


def integer_tensors(op: Operation) -> set[str]:
    """The inputs and equations of integers, and the inputs that stand for a long number.

    Half precision does not have such a number, which is there where the input is None.
    """
    inputs = {t.name for t in op.inputs if t.kind != "float" or _is_long(t.default)}
    return inputs | {e.name for e in op.equations if e.kind != "float"}


def _is_long(default: object) -> bool:
    match default:
        case Num(value) | (Fraction() | int() as value):
            return not is_short(literal(float(value)))
    return default is not None


def float_outputs(op: Operation) -> list[str]:
    return [e.name for e in op.equations if e.name in op.outputs and e.kind == "float"]
