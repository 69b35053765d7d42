"""One function for the options of a choice that are reductions of one equation.

    loss[n] = |x[n]|;  reduction=mean|sum|none -> mean[n](loss[n]) | sum[n](loss[n]) | loss

The function computes loss and then reduces it. Its backward begins with the cotangent of each
element: G, divided by the number of elements for a mean. It has no axes where the lines broadcast
it, and is expanded elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import compress, product

from derive.algebra.expr import Access, Expr, Index, Mul, Num, Pow, Reduce, Size
from derive.lowering.ground.value import is_group
from derive.module.checks import shape_of_absent
from derive.notation.common_output import CommonOutput
from derive.notation.operation import Choice, KeepDim, Number, Operation, Tensor
from derive.program.argument_types import backward_types
from derive.program.cse import Line
from derive.program.dataflow import read_parts
from derive.program.mixed_precision import DTYPE, WIDE, Precision
from derive.program.program import Program, Tangent
from derive.program.roundings import Roundings
from derive.program.shape_rules import TensorType
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Subscript,
    Unary,
    literal,
    names_in,
)
from derive.program.torch_ops import torch_op
from derive.program.types import ABSENT, Types


@dataclass(frozen=True)
class Reduction:
    """The sum of all elements, over ``divisor``: the size of one axis, or of all for a mean."""

    divisor: int | None = None
    mean: bool = False

    def of(self, x: Name) -> Code:
        """Return the reduced tensor."""
        if self.mean:
            return MethodCall(x, "mean")
        total = MethodCall(x, "sum")
        return self._over(total, Attribute(x, "shape")) if self.divisor is not None else total

    def cotangent(self, G: Name, shape: Name) -> Code | None:
        """Return the cotangent of each element, or None if it is G."""
        if self.mean:
            return Binary("/", G, FunctionCall("math.prod", (shape,)))
        return self._over(G, shape) if self.divisor is not None else None

    def _over(self, x: Code, shape: Code) -> Code:
        assert self.divisor is not None
        return Binary("/", x, Subscript(shape, (literal(self.divisor),)))


@dataclass(frozen=True)
class Reductions:
    """A choice of which one option is an equation, and each other option a reduction of it."""

    choice: str
    option: str
    """The option that is not reduced."""
    equation: str
    others: Mapping[str, Reduction]

    def test(self, option: str, sign: str = "==") -> Code:
        """Return the test that the option is chosen."""
        return Binary(sign, Name(self.choice), Literal(f'"{option}"'))

    @property
    def usual(self) -> bool:
        """True if the options are those of most losses, for which the runtime has a function."""
        usual = {"mean": Reduction(mean=True), "sum": Reduction()}
        return self.option == "none" and self.others == usual

    def function(self, op: Operation) -> str:
        """Return the name of the function that reduces."""
        return "rt.reduced" if self.usual else f"_{op.name}_reduced"

    def call(self, op: Operation, x: Code) -> Code:
        """Return the chosen reduction of x."""
        return FunctionCall(self.function(op), (x, Name(self.choice)))


def reductions(split: CommonOutput) -> Reductions | None:
    """Return the options of a split as reductions inside of one function, if all are.

    None with a flag that keeps an axis: a reduction of all elements would lose it.
    """
    if any(isinstance(p, KeepDim) for p in split.common.parameters):
        return None
    (name,) = split.common.outputs
    axes = split.equation.axes
    found: dict[str, Reduction] = {}
    for option, rest in split.others.items():
        reduction = _reduction(rest.equations[-1].body, name, axes)
        if reduction is None or rest.equations[-1].axes:
            return None
        found[option] = reduction
    return Reductions(split.choice, split.option, name, found)


def _reduction(body: Expr, name: str, axes: Sequence[Expr]) -> Reduction | None:
    """Return a body as the reduction of all elements of a tensor with these axes, else None."""
    match body:
        case Reduce("sum" | "mean" as kind, binders, Access(tensor, read), None):
            alike = tensor == name and tuple(read) == tuple(axes) == tuple(binders)
            return Reduction(mean=kind == "mean") if alike else None
        case Mul(
            (Reduce("sum") as total, Pow(Size(extent), Num(Fraction(numerator=-1, denominator=1))))
        ):
            extents = [a.extent if isinstance(a, Index) else "" for a in axes]
            n = extents.index(extent) if extent in extents else None
            if n is None or _reduction(total, name, axes) is None or any(map(is_group, axes[:n])):
                return None
            return Reduction(divisor=n)
    return None


def with_parameter(op: Operation) -> Operation:
    """Return the operation in whose code the choice is an argument like other parameters."""
    parameters = tuple(Number(p.name) if isinstance(p, Choice) else p for p in op.parameters)
    parts = (op.inputs, parameters, op.equations, op.outputs, op.extents)
    return type(op).resolved(op.name, *parts, stable=op.stable)


def with_reductions(op: Operation, program: Program, r: Reductions) -> Program | None:
    """Return the program of the equation with its reductions, or None if it cannot have them."""
    (cotangent,) = (c for o, c in program.cotangents if o == r.equation)
    backward = (program.backward_precision, program.first_order_precision)
    narrow = any(cotangent in precision.narrow for precision in backward)
    if cotangent is None or narrow or any(s.name == r.equation for s in program.saved):
        return None
    forward = _reduced(op, program.forward, program.forward_precision, r)
    composed = _reduced(op, program.composed, program.composed_precision, r)
    if forward is None or (program.composed and composed is None):
        return None
    shape = Name(f"{r.equation}_shape")
    axes = next(e.axes for e in op.equations if e.name == r.equation)
    setup = Line(shape.id, shape_of_absent(op, Tensor(r.equation, axes)))
    bodies = [_of_any_shape(body, cotangent) for body in (program.backward, program.first_order)]
    program = replace(program, backward=bodies[0], first_order=bodies[1])
    broadcasts = _Broadcasts(op, program, cotangent)
    shapes = (None if broadcasts.all(body) else shape for body in bodies)
    starts = [_cotangent_lines(program, r, Name(cotangent), own) for own in shapes]
    return replace(
        program,
        forward=forward,
        composed=composed or (),
        forward_precision=_wide(program.forward_precision, r),
        composed_precision=_wide(program.composed_precision, r),
        backward=(*starts[0], *program.backward),
        first_order=(*starts[1], *program.first_order) if program.first_order else (),
        kept_parameters=(*program.kept_parameters, r.choice),
        setup=(*program.setup, setup),
        kept_groups=(*program.kept_groups, setup.name),
    )


def tangent_with_reductions(op: Operation, tangent: Tangent, r: Reductions) -> Tangent | None:
    """Return the tangent of the chosen reduction; None if it reads the equation itself."""
    if any(r.equation in names_in(line.code) for line in tangent.lines):
        return None
    name = tangent.results[r.equation]
    return replace(tangent, lines=(*tangent.lines, Line(name, r.call(op, Name(name)))))


def _reduced(
    op: Operation, lines: Sequence[Line], precision: Precision, r: Reductions
) -> tuple[Line, ...] | None:
    """Return the lines of a forward in which the equation is reduced before it is rounded."""
    at = max((n for n, line in enumerate(lines) if line.name == r.equation), default=None)
    rounds = precision.returned.get(r.equation) == DTYPE
    if at is None or not rounds or not precision.broad:
        return None
    code, is_view = unrounded(lines[at].code, precision)
    x = Name(r.equation)
    whole: Code = MethodCall(r.call(op, x), "to", (DTYPE,))
    whole = FunctionCall("rt.no_view", (whole,)) if is_view else whole
    before = [] if code == x else [replace(lines[at], code=code)]
    return (*lines[:at], *before, *lines[at + 1 :], Line(r.equation, whole))


def unrounded(code: Code, precision: Precision) -> tuple[Code, bool]:
    """Return a result before it is rounded, at least in float32; True if it is a view."""
    code, is_view = _uncast(code)
    return MethodCall(code, "to", (WIDE,)) if precision.has_products else code, is_view


def _uncast(code: Code) -> tuple[Code, bool]:
    """Return the code without its cast to the dtype of the result; True if it is a view."""
    match code:
        case FunctionCall("rt.no_view", (x,)):
            return _uncast(x)[0], True
        case MethodCall(x, "to", (dtype,)) if dtype == DTYPE:
            return x, False
        case Conditional(test, then, other):
            (one, view), (two, other_view) = _uncast(then), _uncast(other)
            return Conditional(test, one, two), view or other_view
    return code, False


def _cotangent_lines(
    program: Program, r: Reductions, G: Name, expanded: Name | None
) -> tuple[Line, ...]:
    """Return the lines that compute the cotangent of each element from that of the result."""
    codes: list[Code] = []
    for option, reduction in r.others.items():
        code = reduction.cotangent(G, Name(f"{r.equation}_shape"))
        codes += [] if code is None else [Conditional(r.test(option), code, G)]
    codes += [MethodCall(G, "expand", (expanded,))] if expanded else []
    return tuple(Line(G.id, code, needs=tuple(program.gradients)) for code in codes)


def _of_any_shape(body: Sequence[Line], cotangent: str) -> tuple[Line, ...]:
    """Return the lines without declared types of what the cotangent enters."""
    entered, made = {cotangent}, []
    for x in body:
        if entered.intersection(names_in(x.code)):
            entered.add(x.name)
            x = replace(x, type=None)
        made.append(x)
    return tuple(made)


class _Broadcasts:
    """Decides whether lines mean the same for a cotangent without axes.

    A value whose shape depends on that of the cotangent may only be read by elementwise operations.
    """

    def __init__(self, op: Operation, program: Program, cotangent: str) -> None:
        self.op, self.cotangent = op, cotangent
        self.gradients = program.gradients
        self.types = backward_types(op, program)

    def all(self, body: Sequence[Line]) -> bool:
        """True for each combination of optional tensors that are None."""
        optional = [t.name for t in self.op.inputs if t.default is not None]
        absences = product((False, True), repeat=len(optional))
        return all(self._holds(body, [*compress(optional, gone)]) for gone in absences)

    def _holds(self, body: Sequence[Line], absent: Sequence[str]) -> bool:
        known = self.types.known | dict.fromkeys(absent, ABSENT)
        full = Types(self.types.letters, known)
        small = Types(self.types.letters, known | {self.cotangent: TensorType(())})
        for x in (x for x in body if full.runs(x.needs)):
            if not _reads_elementwise(x.code, full, small):
                return False
            full.run([x])
            small.run([x])
        made = [g for t, g in self.gradients.items() if full.runs([t])]
        return all(full.shape(Name(g)) == small.shape(Name(g)) for g in made)


def _reads_elementwise(code: Code, full: Types, small: Types) -> bool:
    """True if what has two shapes is read by elementwise operations alone."""
    # The parts come first: another operation may have no result of the smaller shape.
    if not all(_reads_elementwise(x, full, small) for x in code.parts()):
        return False
    if isinstance(code, Attribute) and code.name == "shape":
        return full.shape(code.parts()[0]) == small.shape(code.parts()[0])
    return _is_elementwise(code) or all(full.shape(x) == small.shape(x) for x in read_parts(code))


def _is_elementwise(code: Code) -> bool:
    match code:
        case Binary(sign):
            return sign != "@"
        case Conditional() | Unary() | Keyword():
            return True
        case FunctionCall("torch.where" | "rt.where" | "rt.guarded" | "rt.keep_where_"):
            return True
        case FunctionCall(name) | MethodCall(_, name):
            row = torch_op(code)
            return (row.over == "_" and row.shape is None) or name == "to"
    return False


def _wide(precision: Precision, r: Reductions) -> Precision:
    """Return the precision of a forward whose equation is reduced in float32 at least."""
    where = None if precision.listed else r.test(r.option, "!=")
    return replace(precision, roundings=Roundings.MORE, listed=True, listed_where=where)
