"""Outer and inner layouts of an operation's tensors, and the lines that convert between them.

Inside, each axis has one index: a composite axis (a b) becomes two axes, an axis of size 1 on the
left of an equation is dropped, and a group may be one axis. A name in a line may hold a tensor in
either layout. If only composite axes differ, one layout is a view of the other; each name then
holds the layout that takes fewer views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from derive.algebra.expr import Composite, Expr, Index, Mul, Size, walk
from derive.lowering.ground.group_axes import axes_lines
from derive.lowering.ground.runtime_sizes import ShapeSource, ShapeSources, axes_of
from derive.lowering.ground.value import Axes, Frame, is_group
from derive.lowering.ground.views import flattened, is_view, substitute_views, unflattened
from derive.lowering.groups import SizeFrame, group_shapes, groups_of, named_axes, shape_name
from derive.lowering.keepdim import kept_place
from derive.notation.operation import Equation, KeepDim, Operation
from derive.notation.split import is_plain, split_axes
from derive.program.argument_types import SizeFormulas
from derive.program.cse import Line
from derive.program.torch_ir import (
    Attribute,
    Code,
    Conditional,
    MethodCall,
    Name,
    Tuple,
    Unary,
    literal,
    names_in,
    replaced,
    subexpressions,
    text,
)


@dataclass
class Border:
    """The layouts of each tensor of an operation, and the names that hold the inner one.

    The conversions read sizes from the shapes of inputs.
    """

    op: Operation
    inside: Mapping[str, tuple[tuple[Index, ...], ...]]
    """The inner indices of each axis of each input and equation."""
    frame: Frame
    """Positions on tensors with one layout."""
    shapes: ShapeSources
    named: bool = False
    """True if the shapes and the axes of all groups have names."""
    entered: set[str] = field(default_factory=set)
    """The names converted to their inner layout by lines before all others."""
    stored: set[str] = field(default_factory=set)
    """The names that hold a computed tensor in its outer layout."""

    @classmethod
    def of(cls, op: Operation, flat: bool = False, named: bool = False) -> Border:
        """Return the border of an operation, with every size read from the shape of an input.

        With ``flat``, each group is one axis inside. ``named`` is the field.
        """
        inside = split_axes(op).axes
        if flat:
            inside = {
                name: tuple(tuple(Index(i.name, i.extent) for i in own) for own in axes)
                for name, axes in inside.items()
            }
        given = [t for t in op.inputs if t.default is None]
        sources = [ShapeSource(t.name, Name(f"{t.name}_shape"), axes_of(op, t)) for t in given]
        groups = {i.extent: Name(shape_name(i)) for t in op.inputs for i in groups_of(t)}
        extents = {e.name: e for e in op.extents}
        shapes = ShapeSources(extents, SizeFrame(), (), sources, groups=groups)
        return cls(op, inside, Frame(named_axes(op)), shapes, named)

    def again(self) -> Border:
        """Return a copy without entered names and without recorded reads of shapes."""
        return replace(self, shapes=replace(self.shapes, used={}), entered=set(), stored=set())

    @cached_property
    def outside(self) -> dict[str, tuple[Expr, ...]]:
        """The axes of each input and equation."""
        axes = {t.name: t.axes for t in self.op.inputs}
        return axes | {e.name: e.axes for e in self.op.equations}

    @cached_property
    def sizes(self) -> SizeFormulas:
        """The sizes of axes as formulas."""
        return SizeFormulas(self.op)

    @cached_property
    def is_crossed(self) -> bool:
        """True if any tensor has different layouts."""
        return not is_plain(self.op) or self.flattens

    @property
    def flattens(self) -> bool:
        """True if a group is one axis inside."""
        return any(map(self._flat, self.outside))

    @property
    def has_groups(self) -> bool:
        """True if a tensor has a group."""
        return any(is_group(axis) for axes in self.outside.values() for axis in axes)

    @cached_property
    def groups(self) -> list[Line]:
        """The shapes of groups, then the positions of their axes."""
        shapes = group_shapes(self.op)
        return [*shapes, *axes_lines(shapes)]

    def axes_outside(self, tensor: str) -> Axes:
        """Return the indices of the axes of an input or an equation."""
        for t in self.op.inputs:
            if t.name == tensor:
                return axes_of(self.op, t)
        return tuple(i if isinstance(i, Index) else None for i in self.outside[tensor])

    def changes(self, tensor: str, kept: bool = False) -> bool:
        """True if the tensor has other axes inside; with ``kept`` it has those of flags."""
        if not self.is_crossed or tensor not in self.outside:
            return False
        return self.reshapes(tensor, kept) or any(len(own) > 1 for own in self.inside[tensor])

    def reshapes(self, tensor: str, kept: bool = False) -> bool:
        """True if the layouts differ in more than composite axes."""
        lost = kept and any(e.name == tensor and self._lost(e) for e in self.op.equations)
        return lost or self._flat(tensor) or not all(self.inside[tensor])

    def _lost(self, equation: Equation) -> list[KeepDim]:
        """Return the flags that may keep an axis of which the equation has no part."""
        flags = [p for p in self.op.parameters if isinstance(p, KeepDim)]
        return [p for p in flags if all(p.index not in walk(axis) for axis in equation.axes)]

    def _flat(self, tensor: str) -> bool:
        """True if a group of the tensor is one axis inside."""
        outer, inner = self.outside[tensor], self.inside[tensor]
        pairs = zip(outer, inner, strict=True)
        return any(is_group(a) and not is_group(b[0]) for a, b in pairs if b)

    def shape(self, tensor: str, kept: bool) -> Code:
        """Return the outer shape: read from an input, built from its axes for an equation."""
        owner = next((e for e in self.op.equations if e.name == tensor), None)
        if owner is None:
            self.shapes.used[tensor] = None
            return Name(f"{tensor}_shape")
        items = list(self.outer_sizes(tensor))
        lost = [(kept_place(self.op, owner.axes, p), p) for p in self._lost(owner) if kept]
        for at, p in reversed(sorted(lost, key=lambda pair: pair[0])):
            items.insert(at, Unary("*", Conditional(Name(p.name), Tuple((literal(1),)), Tuple(()))))
        return Tuple(tuple(items))

    def outer_sizes(self, tensor: str) -> tuple[Code, ...]:
        """Return the sizes of the axes of an input or an equation, read from other tensors."""
        return tuple(map(self._size, self.outside[tensor]))

    def _size(self, axis: Expr) -> Code:
        match axis:
            case Index(_, _, True):
                return Unary("*", Name(shape_name(axis)))
            case Index(_, extent):
                return self.shapes.size(extent)
            case Composite(parts):
                sizes = tuple(Size(p.extent) for p in parts if isinstance(p, Index))
                return self.shapes.number(Mul(sizes))
        return literal(1)

    def inner(self, tensor: str, code: Code, kept: bool = False) -> Code:
        """Return the inner layout of the tensor, given the code of its outer one."""
        if self.reshapes(tensor, kept):
            sizes = Tuple(tuple(self._size(i) for axis in self.inside[tensor] for i in axis))
            return MethodCall(code, "reshape", (sizes,))
        # Last axis first if positions count from the start, first axis first if from the end.
        before, after = self._composites(tensor)
        for place, axis in (*reversed(before), *after):
            sizes = Tuple(tuple(self.shapes.size(i.extent) for i in axis))
            code = unflattened(code, place, sizes)
        return code

    def outer(self, tensor: str, code: Code) -> Code:
        """Return the outer layout of the tensor, given the code of its inner one."""
        before, after = self._composites(tensor)
        for place, axis in (*before, *reversed(after)):
            more = len(axis) - 1
            ends = (place - more, place) if place < 0 else (place, place + more)
            code = flattened(code, *ends)
        return code

    def _composites(
        self, tensor: str
    ) -> tuple[list[tuple[int, tuple[Index, ...]]], list[tuple[int, tuple[Index, ...]]]]:
        """Return (outer position, inner axes) of composite axes, counted from the start and end."""
        outer = tuple(i if isinstance(i, Index) else None for i in self.outside[tensor])
        several = ((n, axis) for n, axis in enumerate(self.inside[tensor]) if len(axis) > 1)
        found = [(int(text(Frame().position(outer, n))), axis) for n, axis in several]
        return [x for x in found if x[0] >= 0], [x for x in found if x[0] < 0]


def enter_layout(
    border: Border, lines: list[Line], held: Mapping[str, str]
) -> tuple[list[Line], list[Line]]:
    """Return the lines, and preceding lines that convert the tensors in ``held`` to inner axes.

    No conversion line is needed if one line alone reads the inner view: that line makes the view.
    """
    entry = []
    for name, tensor in held.items():
        if not border.changes(tensor, kept=True):
            continue
        inner = border.inner(tensor, Name(name), kept=True)
        if not border.reshapes(tensor, kept=True):
            tried = _with_inner_view(lines, name, inner)
            if _view_reads(tried)[inner] <= 1:
                lines = tried
                continue
        border.entered.add(name)
        entry.append(Line(name, inner))
    return lines, entry


def store_layout(
    border: Border,
    lines: list[Line],
    held: Mapping[str, str],
    chosen: Mapping[str, bool] | None = None,
) -> list[Line]:
    """Return the lines with the outer layout under these names, unless that takes more views.

    ``chosen`` fixes the layout of names that other lines read. A tensor that the operation does not
    have has one layout.
    """
    for name, tensor in held.items():
        if border.changes(tensor) and not border.reshapes(tensor):
            tried = _in_outer_layout(border, lines, name, tensor)
            known = (chosen or {}).get(name)
            if known or (known is None and _view_cost(tried) <= _view_cost(lines)):
                border.stored.add(name)
                lines = tried
    return lines


def leave_layout(
    border: Border, lines: list[Line], name: str, tensor: str, kept: bool = False
) -> tuple[list[Line], Code]:
    """Return the lines, and the code of the named tensor in its outer layout at their end.

    ``kept`` means that it has the axes that flags keep.
    """
    if not border.changes(tensor, kept):
        return lines, Name(name)
    if not border.reshapes(tensor, kept):
        tried = _in_outer_layout(border, lines, name, tensor)
        if _view_reads(tried)[border.inner(tensor, Name(name))] <= 1:
            return tried, Name(name)
        return lines, border.outer(tensor, Name(name))
    shape = border.shape(tensor, kept)
    if any(name in names_in(line.code) for line in lines):
        return lines, MethodCall(Name(name), "reshape", (shape,))

    def outer(code: Code) -> Code:
        return MethodCall(code, "reshape", (shape,))

    return _with_outer_layout(border, lines, name, tensor, outer), Name(name)


def _view_reads(lines: Sequence[Line]) -> Counter[Code]:
    """Count the reads of each view; equal expressions are computed once."""
    met = {part for line in lines for part in subexpressions(line.code)}
    codes = [line.code for line in lines] + [part for x in met for part in x.parts()]
    return Counter(code for code in codes if is_view(code))


def _view_cost(lines: Sequence[Line]) -> int:
    """Return the number of views, plus names for those that are read more than once."""
    return sum(min(count, 2) for count in _view_reads(lines).values())


def _in_outer_layout(border: Border, lines: Sequence[Line], name: str, tensor: str) -> list[Line]:
    """Return the lines with the name holding the tensor in its outer layout."""
    made = _with_inner_view(lines, name, border.inner(tensor, Name(name)))
    return _with_outer_layout(border, made, name, tensor, lambda code: border.outer(tensor, code))


def _with_inner_view(lines: Sequence[Line], name: str, code: Code) -> list[Line]:
    """Return the lines with the name replaced by the code; inverse views cancel."""
    return _mapped(lines, lambda part: substitute_views(part, {Name(name): code}))


def _with_outer_layout(
    border: Border, lines: Sequence[Line], name: str, tensor: str, f: Callable[[Code], Code]
) -> list[Line]:
    """Return the lines with f, which leads to the outer layout, applied to each value of a name."""
    shape = border.sizes.shape(border.outside[tensor])

    def outer(x: Line) -> Line:
        return replace(x, code=f(x.code), type=x.type and replace(x.type, shape=shape))

    return [outer(x) if x.name == name else x for x in lines]


def resolve_sizes(
    border: Border,
    lines: Sequence[Line],
    sources: Sequence[ShapeSource],
    kept: Sequence[ShapeSource] = (),
) -> list[Line]:
    """Return the lines with every size read from available tensors, else from kept shapes."""
    named = border.named or border.is_crossed
    frame = SizeFrame(border.frame.named if border.named else ()) if named else border.frame
    groups = border.shapes.groups if named else {}
    given = border.shapes.extents, frame, sources, kept, groups, border.shapes.used
    return _mapped(lines, ShapeSources(*given).resolve)


def own_shapes(lines: Sequence[Line], tensors: Iterable[str]) -> list[Line]:
    """Return the lines with shapes of these tensors read from the tensors themselves."""
    new: dict[Code, Code] = {Name(f"{t}_shape"): Attribute(Name(t), "shape") for t in tensors}
    return replaced_in_lines(lines, new)


def shapes_before(border: Border, later: Sequence[Line]) -> list[Line]:
    """Return lines for the shapes of groups and inputs that later lines read.

    They come first, as a tensor may change its shape later.
    """
    whole = [Line(f"{t}_shape", Attribute(Name(t), "shape")) for t in border.shapes.used]
    whole = lines_read(whole, later)
    return [*lines_read(border.groups, [*whole, *later]), *whole]


def lines_read(lines: Sequence[Line], later: Sequence[Line]) -> list[Line]:
    """Return the lines on which the later lines depend."""
    wanted = {name for line in later for name in names_in(line.code)}
    kept: list[Line] = []
    for line in reversed(lines):
        if line.name in wanted:
            kept.insert(0, line)
            wanted |= set(names_in(line.code))
    return kept


def replaced_in_lines(lines: Sequence[Line], new: Mapping[Code, Code]) -> list[Line]:
    return _mapped(lines, lambda code: replaced(code, new))


def _mapped(lines: Sequence[Line], f: Callable[[Code], Code]) -> list[Line]:
    return [x.having(f(x.code)) for x in lines]
