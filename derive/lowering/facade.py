"""Operations whose axes are not one plain index each, seen through tensors that have such axes.

A group becomes one axis, a composite axis (a b) becomes two, an axis of size 1 on the left of an
equation disappears. The inner operation is lowered as usual; at the border each tensor is
reshaped on its way in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from derive.algebra.expr import Access, Add, Composite, Expr, Guard, Index, Mul, Num, Size
from derive.errors import LoweringError
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Literal,
    Method,
    Name,
    Tuple,
    Unary,
    literal,
)
from derive.lowering.groups import OuterFrame, group_shapes, groups_of, shape_name
from derive.lowering.program import WIDTH, BackwardLine, Program
from derive.lowering.resolve import Shapes, Source, axes_of
from derive.lowering.tidy import Line, cut, names_in
from derive.spec.operation import AxisOf, Equation, Extent, KeepDim, Operation, Tensor

__all__ = ["inner_operation", "is_plain", "split_axes", "through_facade"]


def is_plain(op: Operation) -> bool:
    """Whether every axis of every tensor and equation is an index, possibly a group."""
    every = [t.axes for t in op.inputs] + [e.axes for e in op.equations]
    return all(isinstance(i, Index) for axes in every for i in axes)


def split_axes(op: Operation) -> Operation:
    """The same operation with one index or one group for each axis."""
    return _rewritten(op, lambda i: i)


def inner_operation(op: Operation) -> Operation:
    """The same operation with one plain index for each axis."""
    return _rewritten(op, _single)


def _rewritten(op: Operation, one: Callable[[Index], Index]) -> Operation:
    owners: dict[str, tuple[Expr, ...]] = {t.name: t.axes for t in op.inputs}
    owners |= {e.name: e.axes for e in op.equations}

    fixed = {e.name: int(e.size.value) for e in op.extents if isinstance(e.size, Num)}

    def inner(e: Expr) -> Expr:
        if isinstance(e, Index):
            return one(e)
        if isinstance(e, Access):
            positions: list[Expr] = []
            for position, axis in zip(e.positions, owners[e.tensor], strict=True):
                positions += _inner_position(e, inner(position), axis, fixed)
            return Access(e.tensor, tuple(positions))
        mapped: Expr = e.map(inner)
        return mapped

    inputs = tuple(replace(t, axes=_inner_axes(t.axes, one)) for t in op.inputs)
    equations = tuple(
        replace(e, axes=_inner_axes(e.axes, one), body=inner(e.body)) for e in op.equations
    )
    extents = []
    for extent in op.extents:
        sources = tuple(
            (t.name, n)
            for t in inputs
            for n, i in enumerate(t.axes)
            if isinstance(i, Index) and i.extent == extent.name
        )
        size = None if sources else extent.size
        group = one(Index(extent.name, extent.name, extent.group)).group
        extents.append(Extent(extent.name, group, sources, size))
    parameters = tuple(p for p in op.parameters if not isinstance(p, AxisOf | KeepDim))
    return Operation.resolved(op.name, inputs, parameters, equations, op.outputs, tuple(extents))


def _single(i: Index) -> Index:
    return Index(i.name, i.extent) if i.group else i


def _inner_axes(axes: Sequence[Expr], one: Callable[[Index], Index]) -> tuple[Expr, ...]:
    result: list[Expr] = []
    for axis in axes:
        if isinstance(axis, Index):
            result.append(one(axis))
        elif isinstance(axis, Composite):
            result += [one(i) for i in axis.args if isinstance(i, Index)]
        elif not isinstance(axis, Num):
            raise LoweringError(f"an axis written {axis!r}")
    return tuple(result)


def _inner_position(
    access: Access, position: Expr, axis: Expr, fixed: Mapping[str, int]
) -> list[Expr]:
    """The positions on the inner axes that stand for one position on an outer axis."""
    if isinstance(axis, Index):
        if isinstance(position, Composite):
            raise LoweringError(
                f"{access.tensor} is read at a composite position on an axis that is one index; "
                "write the axis as a composite on the op line, or the position as a*size(b) + b"
            )
        return [position]
    if isinstance(axis, Num):
        return []
    assert isinstance(axis, Composite)
    parts = list(axis.args)
    if isinstance(position, Guard):
        # The digits are in range by themselves, whatever the condition says.
        position = position.position
    if isinstance(position, Composite) and len(position.args) == len(parts):
        digits: list[Expr] | None = list(position.args)
    else:
        digits = _digits(position, parts, fixed)
    if digits is None:
        raise LoweringError(
            f"{access.tensor} has a composite axis that is read at {position!r}; "
            "read it as a composite of the same parts"
        )
    return [p for p, part in zip(digits, parts, strict=True) if isinstance(part, Index)]


def _digits(position: Expr, parts: Sequence[Expr], fixed: Mapping[str, int]) -> list[Expr] | None:
    """The positions on the parts: a*size(b) + b is (a, b), if b is sure to be below size(b)."""
    *front, last = parts
    if not isinstance(last, Index):
        return None
    if not front:
        return [position]
    above: list[Expr] = []
    below: list[Expr] = []
    for term in position.args if isinstance(position, Add) else (position,):
        factors = list(term.args) if isinstance(term, Mul) else [term]
        size = Size(last.extent)
        if size in factors:
            factors.remove(size)
            above.append(Mul(tuple(factors)) if factors else Num(Fraction(1)))
        else:
            below.append(term)
    if len(below) > 1:
        return None
    digit = below[0] if below else Num(Fraction(0))
    if isinstance(digit, Num):
        if not (digit.value == 0 or 0 <= digit.value < fixed.get(last.extent, 0)):
            return None
    elif not (isinstance(digit, Index) and digit.extent == last.extent):
        return None
    quotient: Expr = Num(Fraction(0))
    if above:
        quotient = above[0] if len(above) == 1 else Add(tuple(above))
    rest = _digits(quotient, front, fixed)
    return None if rest is None else [*rest, digit]


def through_facade(op: Operation, inner: Program) -> Program:
    """The program of the inner operation with its tensors reshaped at the border."""
    groups = group_shapes(op)
    taken = {*inner.inputs, *(p.name for p in op.parameters), *_defined(inner)}
    sources = [Source(t.name, Name(f"{t.name}_shape"), axes_of(op, t)) for t in op.inputs]
    outer = {e.name: e for e in op.extents}
    equations = {e.name: e for e in op.equations}
    named = {i.extent: Name(shape_name(i)) for t in op.inputs for i in groups_of(t)}
    shapes = Shapes(outer, OuterFrame(), (), sources, groups=named)

    def entered(name: str, axes: Sequence[Expr]) -> Line:
        return Line(name, Method(Name(name), "reshape", _inner_shape(shapes, axes)))

    read = {name for line in inner.forward for name in names_in(line.code)}
    entry = [entered(t.name, t.axes) for t in op.inputs if t.name in read and _changes(t.axes)]
    body = list(inner.forward)
    for name in inner.outputs:
        if _changes(equations[name].axes) or _kept(op, equations[name]):
            shape = _outer_shape(op, shapes, equations[name], name)
            plain = _reshaped(body, name, shape)
            body = plain or [*body, Line(name, Method(Name(name), "reshape", (shape,)))]
    # Shapes are read before the tensors change theirs.
    before = [Line(f"{name}_shape", Attribute(Name(name), "shape")) for name in shapes.used]
    later = [*before, *entry, *body]
    forward = tuple(cut([*_read(groups, later), *later], taken, WIDTH))

    kept, backward = _backward(op, inner, shapes, taken)
    kept_groups = _read(groups, [entry.line for entry in backward])
    read_backward = {name for entry in backward for name in names_in(entry.line.code)}
    return replace(
        inner,
        parameters=tuple(p.name for p in op.parameters),
        kept_parameters=tuple(p.name for p in op.parameters if p.name in read_backward),
        forward=forward,
        setup=tuple(kept_groups),
        kept_groups=tuple(g.name for g in kept_groups if g.name.endswith("_shape")),
        kept_shapes=kept,
        backward=backward,
    )


def _defined(inner: Program) -> set[str]:
    """Every name that a line of the inner program defines."""
    return {line.name for line in (*inner.forward, *(b.line for b in inner.backward))}


def _read(lines: Sequence[Line], later: Sequence[Line]) -> list[Line]:
    """The lines that a later one reads."""
    wanted = {name for line in later for name in names_in(line.code)}
    kept: list[Line] = []
    for line in reversed(lines):
        if line.name in wanted:
            kept.insert(0, line)
            wanted |= set(names_in(line.code))
    return kept


def _changes(axes: Sequence[Expr]) -> bool:
    return not all(isinstance(i, Index) and not i.group for i in axes)


def _kept(op: Operation, equation: Equation) -> bool:
    return any(isinstance(p, KeepDim) and p.index not in equation.axes for p in op.parameters)


def _inner_shape(shapes: Shapes, axes: Sequence[Expr]) -> tuple[Code, ...]:
    sizes: list[Code] = []
    for axis in axes:
        if isinstance(axis, Index):
            sizes.append(shapes.size(axis.extent))
        elif isinstance(axis, Composite):
            sizes += [shapes.size(i.extent) for i in axis.args if isinstance(i, Index)]
    return (Tuple(tuple(sizes)),)


def _outer_shape(op: Operation, shapes: Shapes, owner: Equation | Tensor, name: str) -> Code:
    """The shape that a person sees, from the sizes of the inner axes."""
    items: list[Code] = []
    kept = {
        _kept_place(op, owner, p): p.name
        for p in op.parameters
        if isinstance(owner, Equation) and isinstance(p, KeepDim) and p.index not in owner.axes
    }
    for n, axis in enumerate((*owner.axes, None)):
        if n in kept:
            flag = Conditional(Name(kept[n]), Literal("(1,)"), Literal("()"))
            items.append(Unary("*", flag))
        if axis is None:
            continue
        if isinstance(axis, Index) and axis.group:
            items.append(Unary("*", Name(shape_name(axis))))
        elif isinstance(axis, Index):
            items.append(shapes.size(axis.extent))
        elif isinstance(axis, Composite):
            parts = [shapes.size(i.extent) for i in axis.args if isinstance(i, Index)]
            code: Code = parts[0] if parts else literal(1)
            for part in parts[1:]:
                code = Binary("*", code, part)
            items.append(code)
        else:
            items.append(literal(1))
    return Tuple(tuple(items))


def _kept_place(op: Operation, owner: Equation | Tensor, p: KeepDim) -> int:
    home = next(t.axes for t in op.inputs if p.index in t.axes)
    n = home.index(p.index)
    before = [owner.axes.index(i) for i in home[:n] if i in owner.axes]
    after = [owner.axes.index(i) for i in home[n + 1 :] if i in owner.axes]
    return before[-1] + 1 if before else (after[0] if after else len(owner.axes))


def _backward(
    op: Operation, inner: Program, shapes: Shapes, taken: set[str]
) -> tuple[tuple[str, ...], tuple[BackwardLine, ...]]:
    """(inputs whose shape is kept, lines): tensors reshaped first, gradients reshaped last."""
    axes: dict[str, tuple[Expr, ...]] = {t.name: t.axes for t in op.inputs}
    axes |= {e.name: e.axes for e in op.equations}
    kept = shapes.kept
    local = Shapes(shapes.extents, shapes.frame, (), kept, groups=shapes.groups)
    read = {name for b in inner.backward for name in names_in(b.line.code)}
    lines: list[BackwardLine] = []
    for name in inner.kept_shapes:
        (shape,) = _inner_shape(local, axes[name])
        lines.append(BackwardLine(Line(f"{name}_inner_shape", shape), inner.differentiable))
    at_hand = {s.name: (s.name, s.needs) for s in inner.saved}
    at_hand |= {c: (o, inner.differentiable) for o, c in inner.cotangents if c is not None}
    for name, (owner, needs) in at_hand.items():
        if name in read and (_changes(axes[owner]) or _may_keep(op, owner)):
            code = Method(Name(name), "reshape", _inner_shape(local, axes[owner]))
            lines.append(BackwardLine(Line(name, code), needs))
    renaming = {Name(f"{n}_shape"): Name(f"{n}_inner_shape") for n in inner.kept_shapes}
    for entry in inner.backward:
        inside = _renamed(entry.line.code, renaming)
        lines.append(replace(entry, line=replace(entry.line, code=inside)))
    for tensor, gradient in inner.gradients.items():
        if _changes(axes[tensor]):
            local.used[tensor] = None
            shape = Name(f"{tensor}_shape")
            plain = _reshaped([b.line for b in lines], gradient, shape)
            if plain is None:
                code = Method(Name(gradient), "reshape", (shape,))
                lines.append(BackwardLine(Line(gradient, code), (tensor,)))
            else:
                lines = [replace(b, line=x) for b, x in zip(lines, plain, strict=True)]
    pieces = [(b.needs, cut([b.line], taken, WIDTH)) for b in lines]
    whole = tuple(BackwardLine(x, needs) for needs, piece in pieces for x in piece)
    return tuple(local.used), whole


def _reshaped(lines: Sequence[Line], name: str, shape: Code) -> list[Line] | None:
    """The lines with the named one reshaped where it is made; None where others read it."""
    if any(name in set(names_in(line.code)) for line in lines):
        return None
    return [
        replace(line, code=Method(line.code, "reshape", (shape,))) if line.name == name else line
        for line in lines
    ]


def _may_keep(op: Operation, owner: str) -> bool:
    equation = next((e for e in op.equations if e.name == owner), None)
    return equation is not None and _kept(op, equation)


def _renamed(code: Code, renaming: Mapping[Name, Name]) -> Code:
    if isinstance(code, Name):
        return renaming.get(code, code)
    return code.map(lambda part: _renamed(part, renaming))  # type: ignore[no-any-return]
