"""Tensors in code with the index of each of their axes, and how one is fitted to others.

An axis is an `Index` (a group represents any number of neighboring axes) or None, an axis of
size 1. If the number of axes is known only at run time, positions count from the side without a
group, or are the run-time parameter that names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeGuard

from derive.algebra.expr import Expr, Index
from derive.algebra.inequalities import Bounds
from derive.algebra.reductions import REDUCTIONS
from derive.errors import LoweringError
from derive.notation.operation import Kind
from derive.program.torch_ir import (
    DTYPES,
    Attribute,
    Binary,
    Code,
    Dim,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Shape,
    Tuple,
    Unary,
    literal,
    text,
)

Axes = tuple[Index | None, ...]
Indices = Sequence[Index]


class NeedsFlatGroups(LoweringError):
    """The code needs each group as one axis."""


@dataclass(frozen=True)
class Value:
    """Code with the indices of its axes. A scalar is a Python number, which has no axes."""

    code: Code
    axes: Axes = ()
    kind: Kind = "float"
    scalar: bool = False

    @property
    def indices(self) -> tuple[Index, ...]:
        """The indices of the axes, without size-1 axes."""
        return tuple(i for i in self.axes if i is not None and not is_unit_group(i))

    def call(self, method: str, *args: Code) -> Value:
        """value.method(args), which keeps the axes."""
        return replace(self, code=MethodCall(self.code, method, args))

    def at(self, n: int, *axes: Index | None) -> Value:
        """Return the same code with axis n renamed to these axes."""
        return replace(self, axes=(*self.axes[:n], *axes, *self.axes[n + 1 :]))


ZERO = Value(literal(0), kind="int", scalar=True)

Added = tuple[Value, list[Expr]]
"""The value of some addends of a sum, and the addends that are left."""


def is_group(axis: object) -> TypeGuard[Index]:
    """True if an axis of a tensor or of an equation is a group."""
    return isinstance(axis, Index) and axis.group


_UNIT = "1 "
"""The beginning of the name of a group all of whose axes have size 1."""


def unit_group(group: Index) -> Index:
    """Return the axes of size 1 that stand in the place of a group."""
    return Index(f"{_UNIT}{group.name}", group.extent, True)


def is_unit_group(i: Index) -> bool:
    return i.name.startswith(_UNIT)


def broadcast(a: Axes, b: Axes) -> Axes:
    """The axes of an elementwise result: aligned at the right, an index wins over size 1."""
    longest = max(len(a), len(b))
    left = (None,) * (longest - len(a)) + a
    right = (None,) * (longest - len(b)) + b
    return tuple(_wider(x, y) for x, y in zip(left, right, strict=True))


def _wider(x: Index | None, y: Index | None) -> Index | None:
    """Return the axis of the elementwise result of two: an index wins over size 1."""
    if x is None:
        return y
    return y if is_unit_group(x) and y is not None else x


_LETTERS = "ijklmnopqrstuvwxyzabcdefgh"


def with_letters(equation: str, display_name: Callable[[str], str]) -> str:
    """Return the equation of an einsum with a letter for each ``<index extent>``.

    It is the letter of the index, else that of the extent, else any, if no other index has it.
    """
    letters: dict[str, str] = {}
    marks = dict.fromkeys(re.findall("<.*?>", equation))
    for mark in sorted(marks, key=lambda mark: mark.startswith("<_")):
        own = (display_name(name).rstrip("'") for name in mark.strip("<>").split())
        every = (*(x for x in own if len(x) == 1 and x.isascii() and x.isalpha()), *_LETTERS)
        letters[mark] = next(x for x in every if x not in letters.values())
    return re.sub("<.*?>", lambda match: letters[match[0]], equation)


@dataclass(frozen=True)
class Frame:
    """Known positions: the axes named at run time, and where they are."""

    named: tuple[tuple[str, Index, Axes], ...] = ()
    """(parameter, index, the axes of the tensors in which it counts)."""
    bounds: Bounds = field(default_factory=Bounds, compare=False)
    """Bounds of the values of indices and sizes."""
    given: frozenset[str] = frozenset()
    """The extents whose size is a parameter, which is checked to be at least 1."""
    asked_ranks: Mapping[str, Expr] = field(default_factory=dict, compare=False)
    """The number of first ranks that the operation distinguishes, by the name of the ranks."""
    prefers_means: ClassVar[bool] = False
    """True if a mean over a group of a product is preferred to a matrix product."""
    prefers_reductions: ClassVar[bool] = False
    """True if any reduction of a product is preferred to a matrix product."""
    prefers_masks: ClassVar[bool] = False
    """True if a mask of all pairs is preferred to a sort."""
    prefers_methods: ClassVar[bool] = False
    """True if several methods of torch are preferred to a function of the runtime."""

    def position(self, axes: Axes, n: int) -> Code:
        """Return the position of axis n as an argument of a torch function."""
        if n < len(axes) and is_group(axes[n]):
            raise NeedsFlatGroups("the position of a group")
        if not any(map(is_group, axes[:n])):
            return literal(n)
        if not any(map(is_group, axes[n + 1 :])):
            return Unary("-", literal(len(axes) - n))
        for name, index, home in self.named:
            k = home.index(index)
            if self._same(axes[:n], home[:k]) and self._same(axes[n + 1 :], home[k + 1 :]):
                return Name(name)
        raise NeedsFlatGroups("the position of an axis between two groups")

    @staticmethod
    def _same(axes: Axes, home: Axes) -> bool:
        """True if both have equal length at run time: equal groups, and as many single axes."""
        one, other = ([i.extent if is_group(i) else None for i in own] for own in (axes, home))
        return one == other

    def place(self, value: Value, i: Index) -> Code:
        """Return the position of the axis of an index."""
        return self.position(value.axes, value.axes.index(i))

    def positions(self, axes: Axes, which: Sequence[int]) -> Code:
        """Return one position, or a tuple of several."""
        if any(is_group(axes[n]) for n in which):
            raise NeedsFlatGroups("a reduction over a group")
        found = [self.position(axes, n) for n in which]
        return found[0] if len(found) == 1 else Tuple(tuple(found))

    def squeeze(self, value: Value) -> Value:
        """Return the value without axes of size 1."""
        while None in value.axes:
            n = value.axes.index(None)
            value = value.call("squeeze", self.position(value.axes, n)).at(n)
        return value

    def fit(self, value: Value, target: Sequence[Index | None]) -> Value:
        """Return the value as one that broadcasts against axes in the order of ``target``."""
        want = tuple(target)
        if value.scalar or self._fits(value.axes, want):
            return value
        value = self.squeeze(value)
        order = [i for i in want if i is not None and i in value.axes]
        if len(order) != len(value.axes):
            if any(i is not None and is_unit_group(i) for i in value.axes):
                raise NeedsFlatGroups("axes beside those of size 1 for a group")
            had, there = (", ".join(i.name for i in a if i is not None) for a in (value.axes, want))
            raise LoweringError(
                f"no torch code for a part with axes [{had}] among axes [{there}]; give the part "
                "its own equation"
            )
        value = self.permute(value, order)
        present = frozenset(order)
        first = next((n for n, i in enumerate(want) if i in present), len(want))
        built: list[Index | None] = list(order)
        for n in range(first, len(want)):
            i = want[n]
            if i in present:
                continue
            at = n - first
            if is_group(i):
                value = self.broadcast_over(value, tuple(built), at, i)
                built = list(value.axes)
                continue
            built.insert(at, None)
            place = self.position(tuple(built), at)
            value = replace(value, code=_unsqueezed(value.code, place), axes=tuple(built))
        return value

    def broadcast_over(self, value: Value, built: Axes, at: int, group: Index) -> Value:
        """Return the value with axes of size 1 in the place of a group."""
        raise NeedsFlatGroups("a broadcast over a group")

    def read_first(self, value: Value, n: int, index: Value) -> Value | None:
        """Return the value with its first axis read by a subscript; None: by other calls."""
        return None

    def rank(self, value: Value) -> Code:
        """Return the number of axes."""
        if any(map(is_group, value.axes)):
            return MethodCall(value.code, "dim")
        return literal(len(value.axes))

    def einsum_equation(self, sides: Sequence[Indices], layout: Indices) -> Code:
        """Return the equation of an einsum; the last of the sides are the indices of the result."""
        groups = [i for i in layout if i.group]
        if len(groups) > 1 or any(i not in sides[-1] for i in groups):
            raise NeedsFlatGroups("einsum over groups")
        names = {i: "..." if i.group else f"<{i.name} {i.extent}>" for i in layout}
        *operands, result = ("".join(names[i] for i in side) for side in sides)
        return Literal(f'"{",".join(operands)}->{result}"')

    @staticmethod
    def _fits(axes: Axes, want: Axes) -> bool:
        if len(axes) > len(want):
            return False
        pairs = zip(axes, want[len(want) - len(axes) :], strict=True)
        return all(
            not is_group(w) if a is None else a is w or (w is not None and a is unit_group(w))
            for a, w in pairs
        )

    def permute(self, value: Value, order: Indices) -> Value:
        """Return the value with its axes in this order; one group at most, fixed at either end."""
        axes, code = value.axes, value.code
        if tuple(order) == axes:
            return value
        moved = [n for n in range(len(axes)) if axes[n] is not order[n]]
        groups = [n for n, i in enumerate(axes) if is_group(i)]
        if len(groups) > 1 or any(n in moved or n not in (0, len(axes) - 1) for n in groups):
            raise NeedsFlatGroups("axes moved across a group")
        if moved == [len(axes) - 2, len(axes) - 1]:
            code = _transposed(code)
        elif groups:
            source = (self.position(axes, axes.index(order[n])) for n in moved)
            target = (self.position(tuple(order), n) for n in moved)
            code = MethodCall(code, "movedim", (Tuple(tuple(source)), Tuple(tuple(target))))
        elif len(moved) == 2:
            code = MethodCall(code, "transpose", tuple(literal(n) for n in moved))
        else:
            code = MethodCall(code, "permute", tuple(literal(axes.index(i)) for i in order))
        return replace(value, code=code, axes=tuple(order))

    def expand(self, value: Value, target: Indices, like: Code) -> Value:
        """Return the value with every axis of target at its full size.

        A scalar becomes a new tensor like ``like``.
        """
        shape = shape_of(target)
        if value.scalar:
            zero = value.code is literal(0)
            args: tuple[Code, ...] = (shape,) if zero else (shape, value.code)
            if value.kind in DTYPES:
                args = (*args, Keyword("dtype", DTYPES[value.kind]))
            code: Code = MethodCall(like, "new_zeros" if zero else "new_full", args)
            return Value(code, tuple(target), value.kind)
        value = self.fit(value, target)
        if value.axes == tuple(target):
            return value
        return Value(MethodCall(value.code, "expand", (shape,)), tuple(target), value.kind)

    def fill(self, value: Value, layout: Sequence[Index | None]) -> Value:
        """Return the value with exactly the axes of layout, at full size or, if None, at size 1."""
        layout = tuple(layout)
        value = self.fit(value, layout)
        front = layout[: len(layout) - len(value.axes)]
        if all(i is None for i in front):
            for _ in front:
                value = value.call("unsqueeze", literal(0))
                value = replace(value, axes=(None, *value.axes))
        if value.axes == layout:
            return value
        return Value(MethodCall(value.code, "expand", (shape_of(layout),)), layout, value.kind)

    def reduce(
        self, value: Value, name: str, which: Sequence[int], keepdim: bool, kind: Kind
    ) -> Value:
        """Return value.name(dims, keepdim)."""
        if not which:
            return replace(value, kind=kind)
        rest = value.axes[len(which) :]
        groups = any(is_group(value.axes[n]) for n in which)
        args: tuple[Code, ...]
        row = REDUCTIONS[name]
        if not rest and not keepdim and row.any_axes:
            args = ()
        elif groups and name == "sum" and not keepdim and list(which) == list(range(len(which))):
            # Also right for a group of no axes, where sum(()) would sum over everything.
            return Value(MethodCall(value.code, "sum_to_size", (shape_of(rest),)), rest, kind)
        else:
            args = (self.positions(value.axes, which),)
        if keepdim:
            args = (*args, Keyword("keepdim", Literal("True")))
            axes = tuple(None if n in which else i for n, i in enumerate(value.axes))
        else:
            axes = tuple(i for n, i in enumerate(value.axes) if n not in which)
        args = (*map(literal, row.order), *args)
        if "." in row.torch:
            return Value(FunctionCall(row.torch, (value.code, *args)), axes, kind)
        return Value(MethodCall(value.code, row.torch or name, args), axes, kind)


def place_number(frame: Frame, axes: Axes, n: int) -> int:
    """Return the position of axis n as an int, if no parameter determines it."""
    position = frame.position(axes, n)
    if not isinstance(position, Literal | Unary):
        raise NeedsFlatGroups("axes beside each other between two groups")
    return int(text(position))


def axis_size(i: Index) -> Code:
    """Return the entry of a shape for an axis, or for all axes of a group."""
    if is_unit_group(i):
        raise NeedsFlatGroups("the shape of a group of size 1")
    return Unary("*", Dim(i.extent)) if i.group else Dim(i.extent)


def shape_of(axes: Sequence[Index | None]) -> Shape:
    """Return the shape of a tensor with these axes, each at full size or, if None, of size 1."""
    return Shape(tuple(literal(1) if i is None else axis_size(i) for i in axes))


def zeros(like: Code, axes: Sequence[Index | None]) -> Code:
    """Zeros with these axes, of the dtype and on the device of a tensor."""
    return MethodCall(like, "new_zeros", (shape_of(axes),))


def _transposed(code: Code) -> Code:
    """Return code.mT; A + A.mT and a diagonal matrix are their own transposes, A.mT.mT is A."""
    if isinstance(code, MethodCall) and code.name == "diag_embed" and not code.args:
        return code
    if isinstance(code, Attribute) and code.name == "mT":
        return code.obj
    if isinstance(code, Binary) and code.op == "+":
        if code.right is Attribute(code.left, "mT") or code.left is Attribute(code.right, "mT"):
            return code
    return Attribute(code, "mT")


def _unsqueezed(code: Code, place: Code) -> Code:
    """Return the code with an axis of size 1 at that place; undoes a squeeze there."""
    match code:
        case MethodCall(whole, "squeeze", (removed,)) if removed is place:
            return whole
        case Binary(op, MethodCall(whole, "squeeze", (removed,)), Literal() as n) if (
            removed is place
        ):
            return Binary(op, whole, n)
    return MethodCall(code, "unsqueeze", (place,))
