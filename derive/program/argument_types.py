"""Types of what the bodies of an operation are given, with sizes as formulas of its letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from derive.algebra.expr import Add, Call, Composite, Expr, Index, Mul, Num, Param, Size
from derive.algebra.poly import ONE, Poly, atom, constant
from derive.notation.operation import AxisOf, KeepDim, Operation, SizeOf
from derive.program.program import Program
from derive.program.shape_rules import Shape, TensorType, elements, formula, whole
from derive.program.types import NUMBER, Types


class SizeFormulas:
    """Sizes as formulas: what is always one number is that number, a composite axis a product.

    ``defined`` has the sizes that follow from others, and ``letters`` maps their formulas to
    letters.
    """

    def __init__(self, op: Operation) -> None:
        self._sizes = {e.name: e.size for e in op.extents}
        self._numbers: dict[str, Poly] = {}
        self.defined = {e.name: formula(e.size, self._letter) for e in op.extents if e.size}
        self._numbers = {name: size for name, size in self.defined.items() if _is_number(size)}
        named = (name for name in self.defined if isinstance(self._sizes[name], Add | Call))
        known = {atom(Size(name)) for name in self._sizes}
        letters = {self.defined[name]: atom(Size(name)) for name in named}
        no_letters = known | {*self._numbers.values()}
        self.letters = {size: letter for size, letter in letters.items() if size not in no_letters}

    def shape(self, axes: Iterable[Expr | None]) -> Shape:
        """Return the sizes of the axes."""
        return tuple(map(self._axis, axes))

    def _axis(self, axis: Expr | None) -> Poly:
        match axis:
            case Index():
                return self._letter(Size(axis.extent))
            case Composite(args):
                return elements(self.shape(args))
        return ONE

    def _letter(self, e: Expr) -> Poly:
        if not isinstance(e, Size):
            return atom(e)
        size = self._sizes[e.extent]
        if isinstance(size, Num | Mul):
            return formula(size, self._letter)
        return self._numbers.get(e.extent, atom(e))


def _is_number(size: Poly) -> bool:
    return not any(t.factors for t in size.terms)


def tensor_types(op: Operation) -> dict[str, TensorType]:
    """Return the types of the inputs and the equations."""
    shape = SizeFormulas(op).shape
    inputs = {t.name: TensorType(shape(t.axes), t.kind) for t in op.inputs}
    return inputs | {e.name: TensorType(shape(e.axes), e.kind) for e in op.equations}


def forward_types(op: Operation) -> Types:
    """Return the types of what the forward is given."""
    return Types(SizeFormulas(op).letters, given_values(op))


def backward_types(op: Operation, program: Program) -> Types:
    """Return the types of what the backward is given."""
    return Types(SizeFormulas(op).letters, backward_values(op, program))


def result_types(op: Operation, program: Program) -> dict[str, TensorType]:
    """Return the types of the outputs and the statistics of the forward."""
    types = forward_types(op)
    types.run(program.forward)
    return {name: types.known[name] for name in (*program.outputs, *program.statistics)}


def given_values(op: Operation) -> dict[str, Any]:
    """Return the values of inputs and parameters; groups are one axis, flags are unset."""
    types = tensor_types(op)
    found: dict[str, Any] = {t.name: types[t.name] for t in op.inputs}
    for p in op.parameters:
        match p:
            case AxisOf(name, index):
                home = next(t.axes for t in op.inputs if index in t.axes)
                found[name] = constant(home.index(index))
            case KeepDim(name):
                found[name] = False
            case SizeOf(name, extent):
                found[name] = atom(Size(extent))
            case _:
                integer = getattr(p, "integer", False)
                found[p.name] = whole(Param(p.name)) if integer else NUMBER
    return found


def backward_values(op: Operation, program: Program) -> dict[str, Any]:
    """Return the values of saved tensors, of the setup and of cotangents."""
    given = given_values(op)
    available = given | result_types(op, program)
    setup = Types(SizeFormulas(op).letters, available)
    setup.run(program.setup)
    names = (*program.kept_parameters, *(s.name for s in program.saved))
    values = {name: setup.known.get(name) for name in program.kept_groups}
    values |= {name: available[name] for name in names}
    values |= {f"{name}_shape": given[name].shape for name in program.kept_shapes}
    return values | {c: available[o] for o, c in program.cotangents if c is not None}
