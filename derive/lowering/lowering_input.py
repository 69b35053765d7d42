"""The input of the lowering, and facts of its operation: tensors, sizes, kinds, display names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.expr import Index, Num
from derive.algebra.poly import as_atom
from derive.algebra.squares import RobustCenter
from derive.calculus.adjoint import Backward
from derive.calculus.guards import bounds_of
from derive.calculus.lets import Let, Lets
from derive.calculus.ranks import asked_ranks
from derive.errors import LoweringError
from derive.kernels.axis_patterns import Short
from derive.kernels.recognise import Pattern
from derive.lowering.ground.context import Scope
from derive.lowering.ground.group_axes import GroupAxesFrame
from derive.lowering.ground.runtime_sizes import ShapeSource
from derive.lowering.ground.value import Axes, Frame, Value, with_letters
from derive.lowering.groups import named_axes
from derive.lowering.keepdim import entered_axes
from derive.lowering.layout_conversion import Border
from derive.lowering.nodes.lower import Lowering
from derive.notation.operation import Kind, Operation, SizeOf
from derive.program.cse import Line
from derive.program.program import Recognised
from derive.program.roundings import is_short
from derive.program.shape_rules import TensorType
from derive.program.torch_ir import Attribute, Code, Dim, Literal, Name, literal


@dataclass(frozen=True)
class LoweringInput:
    """The input of the lowering: an operation and everything derived from it, in one layout."""

    op: Operation
    lets: Lets
    backward: Backward
    border: Border
    frames: type[Frame] = GroupAxesFrame

    def type_of(self, axes: Axes, kind: Kind) -> TensorType:
        """Return the type of a tensor with these axes."""
        said = (i and Index(i.name, self.lets.display_name(i.extent), i.group) for i in axes)
        return TensorType(self.border.sizes.shape(said), kind)

    def taken(self) -> set[str]:
        """Return the reserved names."""
        return {*self.lets.reserved, *(self.lets.display_name(let.name) for let in self.lets)}


def integers_of(op: Operation) -> frozenset[str]:
    """Return the names of the integer parameters."""
    return frozenset(
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )


def frame_of(op: Operation, frames: type[Frame] = GroupAxesFrame) -> Frame:
    """Return the frame of an operation: axes named at run time, bounds, and given sizes."""
    given = frozenset(p.extent for p in op.parameters if isinstance(p, SizeOf))
    return frames(named_axes(op), bounds_of(op), given, asked_ranks(op))


def input_values(op: Operation) -> dict[str, Value]:
    """Return the inputs as values, by name."""
    return {
        t.name: Value(Name(t.name), tuple(i for i in t.axes if isinstance(i, Index)), t.kind)
        for t in op.inputs
    }


def short_axes(op: Operation, lets: Lets) -> Short:
    """Return a function from a tensor's name to its axes of constant size, {n: (index, size)}."""
    inputs = input_values(op)

    def short(name: str) -> dict[int, tuple[Index, int]]:
        let = lets.get(name)
        axes = let.formals if let is not None else inputs[name].indices if name in inputs else ()
        sizes = (None if i.group else lets.bounds.size(i.extent).number for i in axes)
        found = enumerate(zip(axes, sizes, strict=True))
        return {n: (i, int(size)) for n, (i, size) in found if size is not None}

    return short


def found_first(own: Mapping[str, Let], lets: Lets, name: str) -> Let | None:
    """Return the definition of a name, of its own ones before the others."""
    return own.get(name) or lets.get(name)


def like_input(op: Operation) -> Code:
    """Return the input from which new tensors take dtype and device."""
    floats = [t for t in op.inputs if t.kind == "float"]
    if not floats:
        raise LoweringError(
            "the operation has no floating-point input, so there is nothing to differentiate",
            kind="nothing-to-differentiate",
        )
    return Name(min(floats, key=lambda t: t.default is not None).name)


def sources_of(
    border: Border, lets: Lets, tensors: Mapping[str, Value], stored: Collection[str] = ()
) -> list[ShapeSource]:
    """Return the shapes of the available tensors that are never None, under their display names.

    Inputs, outputs and ``stored`` tensors have the axes of their outer layout.
    """
    found = []
    absent = {t.name for t in border.op.inputs if t.default is not None}
    crossing = {*border.op.outputs, *(t.name for t in border.op.inputs), *stored}
    for name, value in tensors.items():
        ((said, tensor),) = named_tensors(lets, [name]).items()
        if tensor in absent:
            continue
        axes = tuple(i and Index(i.name, lets.display_name(i.extent), i.group) for i in value.axes)
        if tensor in crossing and border.changes(tensor) and said not in border.entered:
            axes = border.axes_outside(tensor)
        shape = Attribute(Name(said), "shape")
        found.append(ShapeSource(said, shape, axes, computed=name in lets.by_name))
    return found


def named_tensors(lets: Lets, names: Iterable[str]) -> dict[str, str]:
    """Map each name to the tensor whose axes it has, both as display names."""
    return {lets.display_name(n): lets.display_name(lets.derived_from.get(n, n)) for n in names}


def lowered(
    given: LoweringInput,
    tensors: Mapping[str, Value],
    names: Iterable[str],
    adjoints: Mapping[str, Let] | None = None,
    like: Code | None = None,
    kernels: Sequence[Pattern] = (),
    pulled: Sequence[str] = (),
) -> Lowering:
    """Return a scope with these names lowered from their definitions, or from these adjoints.

    ``pulled`` are adjoints to which cotangents are added. They are lowered first, in this order,
    and then nothing looks into them: a gradient that is made of their terms would lack those.
    """
    op, lets, opaque = given.op, given.lets, set[str]()

    def find(name: str) -> Let | None:
        return None if name in opaque else found_first(adjoints or {}, lets, name)

    parts = find, frame_of(op, given.frames), dict(tensors), like or like_input(op)
    scope = Lowering(*parts, integers_of(op), frozenset(adjoints or ()), kernels)
    for name in pulled:
        scope.tensor(name)
        opaque.add(name)
    for name in names:
        scope.tensor(name)
    opaque.clear()
    return scope


def enter_kept(
    op: Operation, lets: Lets, tensors: dict[str, Value], names: Iterable[tuple[str, str]]
) -> list[Line]:
    """Give tensors the axes that flags may have kept in an output; return the lines for it.

    ``names`` are pairs of an output and a tensor with its axes.
    """
    entry = []
    for output, name in names:
        if name in tensors:
            axes, lines = entered_axes(op, lets[output].formals, frame_of(op), name)
            tensors[name] = replace(tensors[name], axes=axes)
            entry += lines
    return entry


def scope_statements(scope: Scope, given: LoweringInput) -> list[Line]:
    """Return the statements of a scope as typed lines."""
    lines = []
    for s in scope.statements:
        let = scope.find(s.name)
        assert let is not None
        lines.append(Line(s.name, s.code, not let.internal, given.type_of(s.axes, s.kind)))
    return lines


def noted_patterns(scope: Scope, lets: Lets) -> tuple[Recognised, ...]:
    return tuple(Recognised(lets.display_name(name), *row) for name, *row in scope.noted)


def with_display_names(lines: Sequence[Line], lets: Lets) -> list[Line]:
    """Return the lines with display names for all tensors and extents."""

    def display_name(code: Code) -> Code:
        if isinstance(code, Name):
            bare = code.id.removesuffix("_shape")
            return Name(lets.display_name(bare) + code.id[len(bare) :])
        if isinstance(code, Dim):
            return Dim(lets.display_name(code.extent))
        if isinstance(code, Literal) and code.text.startswith('"'):
            return Literal(with_letters(code.text, lets.display_name))
        return code.map(display_name)  # type: ignore[no-any-return]

    return [replace(x, name=lets.display_name(x.name), code=display_name(x.code)) for x in lines]


def vectors_of(op: Operation) -> set[str]:
    """Return the inputs and equations with at most one axis."""
    inputs = {t.name for t in op.inputs if len(t.axes) < 2}
    return inputs | {e.name for e in op.equations if len(e.axes) < 2}


def differences_of(lets: Lets) -> set[str]:
    """Return the names of differences from a center: their products and squares all but cancel."""
    centres = {let.name for let in lets if isinstance(as_atom(let.body), RobustCenter)}
    centres |= {let.name for let in lets if let.reads() and let.reads() <= centres}
    return {lets.display_name(let.name) for let in lets if let.reads() & centres}


def argument_kinds(op: Operation, outputs: Collection[str] = ()) -> dict[str, Kind]:
    """Return the kinds of the inputs and of these outputs."""
    kinds = {e.name: e.kind for e in op.equations if e.name in outputs}
    return {t.name: t.kind for t in op.inputs} | kinds


def long_defaults(op: Operation) -> set[str]:
    """Return the inputs that, where they are None, are a number that half precision lacks."""
    return {t.name for t in op.inputs if _is_long(t.default)}


def _is_long(default: object) -> bool:
    match default:
        case Num(value) | (Fraction() | int() as value):
            return not is_short(literal(float(value)))
    return default is not None


def float_outputs(op: Operation) -> list[str]:
    return [e.name for e in op.equations if e.name in op.outputs and e.kind == "float"]
