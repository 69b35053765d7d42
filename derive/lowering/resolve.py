"""Sizes at run time: which tensor at hand tells each of them.

A size is read on a tensor that the function has anyway; in a backward that saves no tensor with
the axis, on the shape that the forward kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from derive.algebra.expr import Add, Call, Expr, Index, Mul, Num, Param, Pow, Size
from derive.errors import LoweringError
from derive.lowering.code import (
    Binary,
    Code,
    Dim,
    Function,
    Literal,
    Name,
    Shape,
    Subscript,
    Tuple,
    Unary,
    literal,
)
from derive.lowering.value import Axes, Frame, NeedsFlatGroups
from derive.notation.operation import Extent, Operation, Tensor

__all__ = ["Shapes", "Source", "axes_of"]


@dataclass(frozen=True)
class Source:
    """A shape that can be read: the code of the shape and the axes it describes."""

    tensor: str
    shape: Code
    axes: Axes


def axes_of(op: Operation, t: Tensor) -> Axes:
    """One index for each axis of an input; that of a composite axis names the whole axis."""
    axes: list[Index | None] = []
    for n, axis in enumerate(t.axes):
        if isinstance(axis, Index):
            axes.append(axis)
        else:
            name = next((e.name for e in op.extents if (t.name, n) in e.sources), None)
            axes.append(None if name is None else Index(name, name))
    return tuple(axes)


@dataclass
class Shapes:
    """Turns `Dim` and `Shape` into code. ``at_hand`` is asked before ``kept``."""

    extents: Mapping[str, Extent]
    frame: Frame
    at_hand: Sequence[Source]
    kept: Sequence[Source] = ()
    groups: Mapping[str, Code] = field(default_factory=dict)
    """The shapes of groups, where each group is one axis."""
    used: dict[str, None] = field(default_factory=dict)
    """The kept shapes that were needed."""
    _found: dict[Code, Code] = field(default_factory=dict)

    def resolve(self, code: Code) -> Code:
        """code with every size and shape read from somewhere."""
        if not isinstance(code, Dim | Shape):
            return code.map(self.resolve)  # type: ignore[no-any-return]
        if code not in self._found:
            found = self.size(code.extent) if isinstance(code, Dim) else self._shape(code)
            self._found[code] = found
        return self._found[code]

    def size(self, extent: str) -> Code:
        """The number of values of an extent, a Python int."""
        if extent in self.groups:
            return Function("math.prod", (self.groups[extent],))
        definition = self.extents[extent].size
        if isinstance(definition, Num | Param):
            return self.number(definition)
        found = self._first(lambda source: self._read(source, extent))
        if found is not None:
            return found
        if definition is None:
            raise LoweringError(f"no tensor at hand tells the size of {extent}")
        return self.number(definition)

    def _first(self, read: Callable[[Source], Code | None]) -> Code | None:
        problem: NeedsFlatGroups | None = None
        for sources, kept in ((self.at_hand, False), (self.kept, True)):
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
        if problem is not None:
            raise problem
        return None

    def _read(self, source: Source, extent: str) -> Code | None:
        for n, i in enumerate(source.axes):
            if i is not None and i.extent == extent:
                if i.group:
                    return Function("math.prod", (self._group(source, n),))
                return Subscript(source.shape, (self.frame.position(source.axes, n),))
        return None

    def _group(self, source: Source, n: int) -> Code:
        """The slice of a shape that a group takes."""
        axes = source.axes
        if len(axes) == 1:
            return source.shape
        if any(i is not None and i.group for m, i in enumerate(axes) if m != n):
            raise NeedsFlatGroups("the shape of one group among several")
        after = len(axes) - n - 1
        end = f"-{after}" if after else ""
        start = str(n) if n else ""
        return Subscript(source.shape, (Literal(f"{start}:{end}"),))

    def _shape(self, code: Shape) -> Code:
        names = tuple(a.id if isinstance(a, Name) else None for a in code.axes)

        def exact(source: Source) -> Code | None:
            have = tuple(_key(i) for i in source.axes)
            return source.shape if have == names and None not in have else None

        if names and None not in names:
            found = self._first(exact)
            if found is not None:
                return found
        items: list[Code] = []
        for axis in code.axes:
            if not isinstance(axis, Name):
                items.append(self.resolve(axis))
            elif axis.id.startswith("*"):
                group = self._first(lambda s, key=axis.id: self._spread(s, key))  # type: ignore[misc]
                if group is None:
                    raise LoweringError(f"no tensor at hand tells the shape of {axis.id}")
                items.append(group)
            else:
                items.append(self.size(axis.id))
        return Tuple(tuple(items))

    def _spread(self, source: Source, key: str) -> Code | None:
        for n, i in enumerate(source.axes):
            if _key(i) == key:
                return Unary("*", self._group(source, n))
        return None

    def number(self, e: Expr) -> Code:
        """A size that is an expression in sizes, parameters and numbers."""
        if isinstance(e, Num) and e.value.denominator == 1:
            return literal(int(e.value))
        if isinstance(e, Size):
            return self.size(e.extent)
        if isinstance(e, Param):
            return Name(e.name)
        if isinstance(e, Add):
            return self._sum(e.args)
        if isinstance(e, Mul):
            code = self.number(e.args[0])
            for a in e.args[1:]:
                code = Binary("*", code, self.number(a))
            return code
        if isinstance(e, Call) and e.function == "floordiv":
            return Binary("//", self.number(e.args[0]), self.number(e.args[1]))
        if isinstance(e, Call) and e.function in ("minimum", "maximum"):
            name = {"minimum": "min", "maximum": "max"}[e.function]
            return Function(name, tuple(self.number(a) for a in e.args))
        if isinstance(e, Pow) and isinstance(e.exponent, Num) and e.exponent.value > 0:
            return Binary("**", self.number(e.base), literal(int(e.exponent.value)))
        raise LoweringError(f"a size given by {e!r}")

    def _sum(self, args: Sequence[Expr]) -> Code:
        """Positive addends first, then what is taken away."""
        positive: Code | None = None
        negative: list[Code] = []
        for a in args:
            coef = a.args[0] if isinstance(a, Mul) else a
            if isinstance(coef, Num) and coef.value < 0:
                rest = a.args[1:] if isinstance(a, Mul) else ()
                size = Num(-coef.value)
                parts = rest if rest and size.value == 1 else (size, *rest)
                negative.append(self.number(Mul(parts) if len(parts) > 1 else parts[0]))
            else:
                code = self.number(a)
                positive = code if positive is None else Binary("+", positive, code)
        result = positive if positive is not None else literal(0)
        for code in negative:
            result = Binary("-", result, code)
        return result


def _key(i: Index | None) -> str | None:
    if i is None:
        return None
    return f"{'*' if i.group else ''}{i.extent}"
