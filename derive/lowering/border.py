"""How the tensors of an operation look from outside and from inside, and lines between the two.

A name in a line may hold a tensor in either layout. Where only composite axes differ one layout
is a view of the other: each name holds the one that takes fewer views.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from derive.algebra.expr import Composite, Expr, Index, walk
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Function,
    Literal,
    Method,
    Name,
    Subscript,
    Tuple,
    Unary,
    literal,
    occurrences,
    subexpressions,
    text,
)
from derive.lowering.groups import SizeFrame, groups_of, shape_name
from derive.lowering.kept import kept_place
from derive.lowering.program import WIDTH
from derive.lowering.resolve import Shapes, Source, axes_of
from derive.lowering.tidy import Line, cut, names_in, numbered
from derive.lowering.value import Frame
from derive.lowering.views import flattened, in_place_of, unflattened, unflattenings, views
from derive.notation.operation import Equation, KeepDim, Operation, Parameter, Tensor
from derive.notation.split import Inside

__all__ = [
    "Border",
    "Piece",
    "enter",
    "finished",
    "leave",
    "lines_read",
    "loses_axis",
    "outer_shape",
    "own_shapes",
    "replaced",
    "shapes_before",
    "store",
    "swapped",
]


@dataclass(frozen=True)
class Piece:
    """A line, and the part of the program that it belongs to: the gradients that need it."""

    line: Line
    part: tuple[str, ...] = ()

    @cached_property
    def reads(self) -> Counter[str]:
        """The names that the line reads, and how often it does."""
        return Counter(names_in(self.line.code))


@dataclass
class Border:
    """How each tensor looks from outside and inside; sizes are read by ``shapes``."""

    op: Operation
    inside: Mapping[str, tuple[tuple[Index, ...], ...]]
    shapes: Shapes
    outside: dict[str, tuple[Expr, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.outside = {t.name: t.axes for t in self.op.inputs}
        self.outside |= {e.name: e.axes for e in self.op.equations}

    @classmethod
    def of(cls, op: Operation, inside: Inside) -> Border:
        """The border of an operation, every size read on the shape of an input."""
        sources = [Source(t.name, Name(f"{t.name}_shape"), axes_of(op, t)) for t in op.inputs]
        named = {i.extent: Name(shape_name(i)) for t in op.inputs for i in groups_of(t)}
        extents = {e.name: e for e in op.extents}
        return cls(op, inside.axes, Shapes(extents, SizeFrame(), (), sources, groups=named))

    def again(self) -> Border:
        """The same, no shape being read so far."""
        shapes = self.shapes
        fresh = Shapes(shapes.extents, shapes.frame, (), shapes.kept, groups=shapes.groups)
        return replace(self, shapes=fresh)

    def changes(self, tensor: str) -> bool:
        """Whether the tensor has other axes inside."""
        return self._flat(tensor) or any(len(inner) != 1 for inner in self.inside[tensor])

    def reshapes(self, tensor: str) -> bool:
        """Whether more than composite axes differs."""
        kept = any(e.name == tensor and loses_axis(self.op, e) for e in self.op.equations)
        return kept or self._flat(tensor) or any(not inner for inner in self.inside[tensor])

    def _flat(self, tensor: str) -> bool:
        """Whether a group is one axis inside."""
        outer, inner = self.outside[tensor], self.inside[tensor]
        return any(_group(a) and not _group(b[0]) for a, b in zip(outer, inner, strict=True) if b)

    def single(self, tensor: str, shape: Code) -> dict[Code, Code]:
        """What reads one size of the inner shape, and the size."""
        axes = tuple(i for axis in self.inside[tensor] for i in axis)
        return {
            Subscript(shape, (Frame().position(axes, n),)): self.shapes.size(i.extent)
            for n, i in enumerate(axes)
            if not i.group
        }

    def sizes(self, tensor: str) -> Tuple:
        """The inner shape."""
        inner = [i for axis in self.inside[tensor] for i in axis]
        sizes = self.shapes
        return Tuple(
            tuple(
                Unary("*", Name(shape_name(i))) if i.group else sizes.size(i.extent) for i in inner
            )
        )

    def entered(self, tensor: str, code: Code) -> Code:
        """What the tensor is inside, the code being what it is outside."""
        if self.reshapes(tensor):
            return Method(code, "reshape", (self.sizes(tensor),))
        # The last first, where places count from the start; the first first, from the end.
        before, after = self._composites(tensor)
        for place, axis in (*reversed(before), *after):
            sizes = Tuple(tuple(self.shapes.size(i.extent) for i in axis))
            code = unflattened(code, place, sizes)
        return code

    def left(self, tensor: str, code: Code) -> Code:
        """What the tensor is outside, the code being what it is inside."""
        before, after = self._composites(tensor)
        for place, axis in (*before, *reversed(after)):
            more = len(axis) - 1
            ends = (place - more, place) if place < 0 else (place, place + more)
            code = flattened(code, *ends)
        return code

    def _composites(
        self, tensor: str
    ) -> tuple[list[tuple[int, tuple[Index, ...]]], list[tuple[int, tuple[Index, ...]]]]:
        """(place outside, inner axes) of each composite axis: counted from the start, the end."""
        outer = tuple(i if isinstance(i, Index) else None for i in self.outside[tensor])
        found = [
            (int(text(Frame().position(outer, n))), axis)
            for n, axis in enumerate(self.inside[tensor])
            if len(axis) > 1
        ]
        return [x for x in found if x[0] >= 0], [x for x in found if x[0] < 0]


def _group(i: Expr) -> bool:
    return isinstance(i, Index) and i.group


def loses_axis(op: Operation, equation: Equation) -> bool:
    """Whether a flag may keep an axis that the equation lacks."""
    return any(_loses(equation, p) for p in op.parameters)


def _loses(equation: Equation, p: Parameter) -> bool:
    """Whether it is a flag, and no axis is that of the index, nor has it as a part."""
    return isinstance(p, KeepDim) and all(p.index not in walk(axis) for axis in equation.axes)


def enter(
    border: Border, pieces: list[Piece], name: str, tensor: str, part: tuple[str, ...]
) -> tuple[list[Piece], list[Piece]]:
    """The lines, and the line that gives the tensor its inner axes where they need one."""
    whole = Name(name)
    if not border.reshapes(tensor):
        shape = Attribute(whole, "shape")
        seen: dict[Code, Code] = {whole: border.entered(tensor, whole)}
        tried = swapped(pieces, border.single(tensor, shape))
        sliced = any(_slices(p.line.code, shape) for p in tried)
        tried = swapped(tried, {shape: border.sizes(tensor)})
        tried = _mapped(tried, lambda code: in_place_of(code, seen))
        if not sliced and sum(unflattenings(p.line.code, name) for p in tried) <= 1:
            return tried, []
    return pieces, [Piece(Line(name, border.entered(tensor, whole)), part)]


def _slices(code: Code, shape: Code) -> bool:
    """Whether the code reads a part of the shape."""
    if isinstance(code, Subscript) and code.obj is shape:
        return True
    return any(_slices(part, shape) for part in code.parts())


def store(border: Border, pieces: list[Piece], owners: Mapping[str, str]) -> list[Piece]:
    """Names that hold a tensor hold it as it looks outside, unless that takes more views.

    A tensor that the operation does not have looks only one way.
    """
    for name, tensor in owners.items():
        seen = tensor in border.outside and border.changes(tensor)
        if seen and not border.reshapes(tensor):
            tried = _outside(border, pieces, name, tensor)
            if sum(views(p.line.code) for p in tried) <= sum(views(p.line.code) for p in pieces):
                pieces = tried
    return pieces


def _outside(border: Border, pieces: Sequence[Piece], name: str, tensor: str) -> list[Piece]:
    """The lines with the name holding the tensor as it looks outside."""
    seen: dict[Code, Code] = {Name(name): border.entered(tensor, Name(name))}
    made = _mapped(pieces, lambda code: in_place_of(code, seen))
    return _redefined(made, name, lambda code: border.left(tensor, code))


def leave(
    border: Border, pieces: list[Piece], name: str, tensor: str, shape: Code
) -> tuple[list[Piece], Code]:
    """The lines, and what is at their end the tensor that the name holds as it looks outside."""
    if not border.reshapes(tensor):
        tried = _outside(border, pieces, name, tensor)
        if sum(unflattenings(p.line.code, name) for p in tried) <= 1:
            return tried, Name(name)
        return pieces, border.left(tensor, Name(name))
    if any(name in p.reads for p in pieces):
        return pieces, Method(Name(name), "reshape", (shape,))
    made = _redefined(pieces, name, lambda code: Method(code, "reshape", (shape,)))
    return made, Name(name)


def _redefined(pieces: Sequence[Piece], name: str, f: Callable[[Code], Code]) -> list[Piece]:
    """The lines with f of what the name was."""
    return [_with(p, f(p.line.code)) if p.line.name == name else p for p in pieces]


def finished(
    pieces: list[Piece], own: set[str], taken: set[str], order: Sequence[str] = ()
) -> list[Piece]:
    """The lines without superfluous names, none too long, names of the engine's numbered anew.

    ``own`` are the names that are not the engine's, ``taken`` others that stand around the lines,
    ``order`` that of the parts of the program.
    """
    pieces = _multiplied_once(pieces, own | taken, order)
    made = {p.line.name for p in pieces} - own
    reserved = own | (taken.union(*(p.reads for p in pieces)) - made)
    pieces = _read(pieces, own)
    named = [p.line.name for p in pieces if p.line.name not in own]
    pieces = _renumbered(_cleared(pieces, named), own, reserved)
    while True:
        lines = [p.line for p in pieces]
        names = reserved | {line.name for line in lines}
        parts = [Piece(line, p.part) for p in pieces for line in cut([p.line], names, WIDTH, lines)]
        if parts == pieces:
            return pieces
        # The new numbers may make a line too long.
        pieces = _renumbered(parts, own, reserved)


def _multiplied_once(pieces: list[Piece], taken: set[str], order: Sequence[str]) -> list[Piece]:
    """The lines with the size of a group that several reads have made before the first of them."""
    counted = Counter[Code]()
    for p in pieces:
        counted.update({c: n for c, n in occurrences(p.line.code).items() if _is_size(c)})
    names = taken.union(*(p.reads for p in pieces), (p.line.name for p in pieces))
    for code in [c for c, n in counted.items() if n > 1]:
        readers = [p for p in pieces if code in subexpressions(p.line.code)]
        part = tuple(name for name in order if any(name in p.part for p in readers))
        size = Line(numbered("size", names), code, kept=False)
        before = pieces.index(readers[0])
        pieces = swapped(pieces, {code: Name(size.name)})
        pieces.insert(before, Piece(size, part))
    return pieces


def _is_size(code: Code) -> bool:
    """Whether the code multiplies the sizes of a group."""
    return isinstance(code, Function) and code.name == "math.prod"


def _read(pieces: Sequence[Piece], own: set[str]) -> list[Piece]:
    """The lines that a later one reads, and those whose names are not the engine's."""
    read: set[str] = set()
    kept: list[Piece] = []
    for p in reversed(pieces):
        if p.line.name in own or p.line.name in read:
            kept.insert(0, p)
            read.update(p.reads)
    return kept


def _cleared(pieces: list[Piece], named: Sequence[str]) -> list[Piece]:
    """The lines without names that only stand for another, or whose one reader has room."""
    for name in named:
        own = next(p for p in pieces if p.line.name == name)
        new: dict[Code, Code] = {Name(name): own.line.code}
        if not isinstance(own.line.code, Name):
            readers = [p for p in pieces if name in p.reads]
            if sum(p.reads[name] for p in readers) != 1 or readers[0].part != own.part:
                continue
            whole = text(replaced(readers[0].line.code, new))
            if len(f"{readers[0].line.name} = {whole}") > WIDTH:
                continue
        pieces = [
            _with(p, replaced(p.line.code, new)) if name in p.reads else p
            for p in pieces
            if p is not own
        ]
    return pieces


def _renumbered(pieces: list[Piece], own: set[str], reserved: set[str]) -> list[Piece]:
    """The lines with the names of the engine's numbered by appearance."""
    used = set(reserved)
    made = dict.fromkeys(p.line.name for p in pieces if p.line.name not in own)
    new = {name: numbered(name.rstrip("0123456789"), used) for name in made}
    codes: dict[Code, Code] = {Name(name): Name(other) for name, other in new.items()}
    return [
        replace(p, line=replace(p.line, name=new.get(p.line.name, p.line.name)))
        for p in swapped(pieces, codes)
    ]


def own_shapes(pieces: Sequence[Piece], tensors: set[str]) -> list[Piece]:
    """The lines with the shapes of the tensors read on the tensors."""
    return swapped(pieces, {Name(f"{t}_shape"): Attribute(Name(t), "shape") for t in tensors})


def shapes_before(border: Border, later: Sequence[Line]) -> list[Line]:
    """The shapes of inputs that later lines read, before the tensors change theirs."""
    names = {name for line in later for name in names_in(line.code)}
    return [
        Line(f"{name}_shape", Attribute(Name(name), "shape"))
        for name in border.shapes.used
        if f"{name}_shape" in names
    ]


def lines_read(lines: Sequence[Line], later: Sequence[Line]) -> list[Line]:
    """The lines that a later one reads."""
    wanted = {name for line in later for name in names_in(line.code)}
    kept: list[Line] = []
    for line in reversed(lines):
        if line.name in wanted:
            kept.insert(0, line)
            wanted |= set(names_in(line.code))
    return kept


def swapped(pieces: Sequence[Piece], new: Mapping[Code, Code]) -> list[Piece]:
    """The lines with codes replaced."""
    return _mapped(pieces, lambda code: replaced(code, new))


def _mapped(pieces: Sequence[Piece], f: Callable[[Code], Code]) -> list[Piece]:
    return [_with(p, f(p.line.code)) for p in pieces]


def _with(p: Piece, code: Code) -> Piece:
    return p if code is p.line.code else replace(p, line=replace(p.line, code=code))


def replaced(code: Code, new: Mapping[Code, Code]) -> Code:
    """The code with parts replaced."""
    if code in new:
        return new[code]
    return code.map(lambda part: replaced(part, new))  # type: ignore[no-any-return]


def outer_shape(op: Operation, shapes: Shapes, owner: Equation | Tensor, name: str) -> Code:
    """The shape that a person sees, from the sizes of the inner axes."""
    items: list[Code] = []
    lost = [p for p in op.parameters if isinstance(owner, Equation) and _loses(owner, p)]
    for n, axis in enumerate((*owner.axes, None)):
        for p in lost:
            if isinstance(p, KeepDim) and kept_place(op, owner.axes, p) == n:
                flag = Conditional(Name(p.name), Literal("(1,)"), Literal("()"))
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
