"""Sizes at run time: which available tensor determines each of them.

A size is read from a tensor that the function has anyway. If a backward saves no tensor with the
axis, the size is read from a shape that the forward saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from derive.algebra.expr import Add, Call, Expr, Index, Mul, Num, Param, Pow, Size
from derive.errors import LoweringError
from derive.lowering.ground.value import (
    Axes,
    Frame,
    NeedsFlatGroups,
    axis_size,
    is_group,
    is_unit_group,
)
from derive.notation.operation import Extent, Operation, Tensor
from derive.program.torch_ir import (
    Binary,
    Code,
    Dim,
    FunctionCall,
    Name,
    Shape,
    Slice,
    Subscript,
    Tuple,
    Unary,
    joined,
    literal,
    text,
)


@dataclass(frozen=True)
class ShapeSource:
    """A shape that can be read: the code of the shape and the axes it describes."""

    tensor: str
    shape: Code
    axes: Axes
    computed: bool = False
    """True for a value that another order of the backward may lack."""


def axes_of(op: Operation, t: Tensor) -> Axes:
    """Return one index for each axis of an input; a composite axis has one for the whole axis."""
    axes: list[Index | None] = []
    for n, axis in enumerate(t.axes):
        if isinstance(axis, Index):
            axes.append(axis)
        else:
            name = next((e.name for e in op.extents if (t.name, n) in e.sources), None)
            axes.append(None if name is None else Index(name, name))
    return tuple(axes)


@dataclass
class ShapeSources:
    """Turns `Dim` and `Shape` into code. ``available`` is searched before ``kept``."""

    extents: Mapping[str, Extent]
    frame: Frame
    available: Sequence[ShapeSource]
    kept: Sequence[ShapeSource] = ()
    groups: Mapping[str, Code] = field(default_factory=dict)
    """The shapes of groups, if preceding lines define them."""
    used: dict[str, None] = field(default_factory=dict)
    """The kept shapes that were read."""
    _found: dict[Code, Code] = field(default_factory=dict)

    def resolve(self, code: Code) -> Code:
        """Return the code with every size and shape replaced by a read of a source."""
        if not isinstance(code, Dim | Shape):
            return code.map(self.resolve)  # type: ignore[no-any-return]
        if code not in self._found:
            found = self.size(code.extent) if isinstance(code, Dim) else self._shape(code)
            self._found[code] = found
        return self._found[code]

    def size(self, extent: str) -> Code:
        """Return the size of an extent, a Python int."""
        definition = self.extents[extent].size
        if isinstance(definition, Num | Param):
            return self.number(definition)
        found = self._first(lambda source: self._read(source, extent), self._product(extent))
        if found is not None:
            return found
        if definition is None:
            raise LoweringError(f"no available tensor determines the size of {extent}")
        whole = self._whole(definition)
        if whole not in (None, extent):
            found = self._first(lambda source: self._read(source, whole))
        return self.number(definition) if found is None else found

    def _whole(self, definition: Expr) -> str | None:
        """Return the extent that is split into these factors: of size(g)*size(c), (g c)."""
        for part in definition.parts():
            own = self.extents[part.extent].size if isinstance(part, Size) else None
            match own:
                case Call("floordiv", (Size(whole), _)):
                    if self.extents[whole].size == definition:
                        return whole
        return None

    def _product(self, extent: str) -> Code | None:
        """Return the number of elements of a group whose shape is known."""
        known = self.groups.get(extent)
        return None if known is None else FunctionCall("math.prod", (known,))

    def _first(
        self, read: Callable[[ShapeSource], Code | None], known: Code | None = None
    ) -> Code | None:
        """Return the first result of ``read`` on available sources, then ``known``, then on kept
        ones.
        """
        problem: NeedsFlatGroups | None = None
        for sources, kept in ((self.available, False), (self.kept, True)):
            for source in sources:
                try:
                    code = read(source)
                except NeedsFlatGroups as error:
                    problem = error
                    continue
                if code is not None:
                    if kept:
                        self.used[source.tensor] = None
                    return code
            if known is not None:
                return known
        if problem is not None:
            raise problem
        return None

    def _read(self, source: ShapeSource, extent: str) -> Code | None:
        for n, i in enumerate(source.axes):
            if i is not None and i.extent == extent:
                if i.group:
                    return FunctionCall("math.prod", (self._group(source, n),))
                return Subscript(source.shape, (self.frame.position(source.axes, n),))
        return None

    def _group(self, source: ShapeSource, n: int) -> Code:
        """Return the slice of a shape that a group covers."""
        axes = source.axes
        if len(axes) == 1:
            return source.shape
        if any(is_group(i) for m, i in enumerate(axes) if m != n):
            group = axes[n]
            if group is not None and group.extent in self.groups:
                return self.groups[group.extent]
            raise NeedsFlatGroups("the shape of one group among several")
        after = len(axes) - n - 1
        start = literal(n) if n else None
        return Subscript(source.shape, (Slice(start, literal(-after) if after else None),))

    def _shape(self, code: Shape) -> Code:
        if code.axes and all(map(_is_axis, code.axes)):
            found = self._first(lambda source: self._exact(source, code.axes))
            if found is not None:
                return found
        items: list[Code] = []
        axes = list(code.axes)
        while axes:
            run, part = self._run(axes)
            if run > 1:
                items.append(Unary("*", part))
                del axes[:run]
                continue
            axis = axes.pop(0)
            if isinstance(axis, Unary) and _is_axis(axis):
                group = self._first(lambda s, axis=axis: self._spread(s, axis))  # type: ignore[misc]
                if group is None:
                    raise LoweringError(f"no available tensor determines the shape of {text(axis)}")
                items.append(group)
            else:
                items.append(self.resolve(axis))
        match items:
            case [Unary("*", whole)]:
                return whole
        return Tuple(tuple(items))

    @staticmethod
    def _exact(source: ShapeSource, axes: Sequence[Code]) -> Code | None:
        have = tuple(None if i is None else axis_size(i) for i in source.axes)
        return source.shape if have == axes else None

    def _run(self, axes: Sequence[Code]) -> tuple[int, Code]:
        """Return how many of the first axes an available shape has side by side, and these."""
        runs = (
            (len(part), source, k)
            for source in self.available
            for k in range(len(source.axes))
            if not source.computed
            and (part := [*takewhile(self._is_read, zip(source.axes[k:], axes, strict=False))])
        )
        best: tuple[int, Code] = (0, Tuple(()))
        for size, source, k in runs:
            if size > best[0] and (found := _slice(source, k, k + size)) is not None:
                best = size, found
        return best

    def _is_read(self, pair: tuple[Index | None, Code]) -> bool:
        """True if a shape has this axis, whose size is no number or parameter."""
        i, axis = pair
        if i is None or is_unit_group(i) or isinstance(self.extents[i.extent].size, Num | Param):
            return False
        return axis_size(i) is axis

    def _spread(self, source: ShapeSource, axis: Code) -> Code | None:
        for n, i in enumerate(source.axes):
            if i is not None and axis_size(i) is axis:
                return Unary("*", self._group(source, n))
        return None

    def number(self, e: Expr) -> Code:
        """Return the code of a size expression in sizes, parameters and numbers."""
        if isinstance(e, Num) and e.value.denominator == 1:
            return literal(int(e.value))
        if isinstance(e, Size):
            return self.size(e.extent)
        if isinstance(e, Param):
            return Name(e.name)
        if isinstance(e, Add):
            return self._sum(e.args)
        if isinstance(e, Mul):
            return joined("*", map(self.number, e.args))
        if isinstance(e, Call) and e.function == "floordiv":
            return Binary("//", self.number(e.args[0]), self.number(e.args[1]))
        if isinstance(e, Call) and e.function in ("minimum", "maximum"):
            name = {"minimum": "min", "maximum": "max"}[e.function]
            return FunctionCall(name, tuple(self.number(a) for a in e.args))
        if isinstance(e, Pow) and isinstance(e.exponent, Num) and e.exponent.value > 0:
            return Binary("**", self.number(e.base), literal(int(e.exponent.value)))
        raise LoweringError(f"no torch code for the size {e!r}")

    def _sum(self, args: Sequence[Expr]) -> Code:
        """Return the sum, positive addends first."""
        positive: list[Code] = []
        negative: list[Code] = []
        for a in args:
            coef = a.args[0] if isinstance(a, Mul) else a
            if isinstance(coef, Num) and coef.value < 0:
                rest = a.args[1:] if isinstance(a, Mul) else ()
                size = Num(-coef.value)
                parts = rest if rest and size.value == 1 else (size, *rest)
                negative.append(self.number(Mul(parts) if len(parts) > 1 else parts[0]))
            else:
                positive.append(self.number(a))
        return joined("-", [joined("+", positive or [literal(0)]), *negative])


def _slice(source: ShapeSource, start: int, stop: int) -> Code | None:
    """Return the entries of some neighboring axes; None if groups hide where they are."""
    axes = source.axes
    grouped = [n for n, i in enumerate(axes) if is_group(i)]

    def edge(n: int) -> Code | None:
        if not any(k < n for k in grouped):
            return literal(n)
        return None if any(k >= n for k in grouped) else literal(n - len(axes))

    first, last = (edge(n) for n in (start, stop))
    if (start, stop) == (0, len(axes)):
        return source.shape
    if first is None or (last is None and stop < len(axes)):
        return None
    last = None if stop == len(axes) else last
    return Subscript(source.shape, (Slice(first if start else None, last),))


def _is_axis(code: Code) -> bool:
    """True if the code is the entry of a shape for an axis, or for all axes of a group."""
    match code:
        case Dim() | Unary("*", Dim()):
            return True
    return False
