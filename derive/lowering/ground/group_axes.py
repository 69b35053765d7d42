"""Groups as several axes: reduced along a tuple of positions, broadcast by axes of size 1.

    mean over *s of x[*p,*s]         x.mean(s_axes), with s_axes = tuple(range(-w.dim(), 0))
    w[c] beside x[n,c,*q]            rt.unsqueeze(w, q_axes), with axes of size 1 at the end

A frame has positions as code; those of the last group are named later (`name_group_axes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.expr import Index
from derive.algebra.reductions import REDUCTIONS
from derive.lowering.ground.value import Axes, Frame, NeedsFlatGroups, Value, is_group, unit_group
from derive.notation.operation import Kind
from derive.program.cse import Line
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Dim,
    FunctionCall,
    MethodCall,
    Name,
    Slice,
    Subscript,
    Tuple,
    Unary,
    literal,
    text,
)

_AXES, _LEADING = "<axes>", "<leading>"
"""Calls that stand for the positions of a group at the end, and at the beginning."""


@dataclass(frozen=True)
class GroupAxesFrame(Frame):
    """Positions of groups too, where they are the first or the last axes."""

    def positions(self, axes: Axes, which: Sequence[int]) -> Code:
        """Return one position, or a tuple of several; those of a group count from the end."""
        if not any(is_group(axes[n]) for n in which):
            return super().positions(axes, which)
        found = [self._axes_at(axes, n) for n in which]
        if len(found) > 1:
            return Tuple(tuple(Unary("*", c) if _is_axes(c) else c for c in found))
        return found[0]

    def _axes_at(self, axes: Axes, n: int) -> Code:
        i = axes[n]
        if i is None or not i.group:
            return self.position(axes, n)
        if n and n != len(axes) - 1:
            raise NeedsFlatGroups("a reduction over a group that is neither first nor last")
        return FunctionCall(_AXES if n else _LEADING, (Dim(i.extent),))

    def reduce(
        self, value: Value, name: str, which: Sequence[int], keepdim: bool, kind: Kind
    ) -> Value:
        """Return value.name(dims); a group may have no axes, where torch would reduce all."""
        alone = which and all(is_group(value.axes[n]) for n in which)
        leading = name == "sum" and list(which) == list(range(len(which)))
        if not alone or len(which) == len(value.axes) or leading:
            if any(is_group(value.axes[n]) for n in which) and not REDUCTIONS[name].any_axes:
                raise NeedsFlatGroups("a reduction over one axis")
            return super().reduce(value, name, which, keepdim, kind)
        if name not in ("sum", "mean"):
            raise NeedsFlatGroups("a reduction over a group that may have no axes")
        code = FunctionCall(f"rt.{name}_over", (value.code, self.positions(value.axes, which)))
        return Value(code, tuple(i for n, i in enumerate(value.axes) if n not in which), kind)

    def broadcast_over(self, value: Value, built: Axes, at: int, group: Index) -> Value:
        """Return the value with axes of size 1 in the place of a group at the end."""
        if at != len(built):
            raise NeedsFlatGroups("a broadcast over a group that is not last")
        axes = FunctionCall(_AXES, (Dim(group.extent),))
        code = FunctionCall("rt.unsqueeze", (value.code, axes))
        return Value(code, (*built, unit_group(group)), value.kind)

    def rank(self, value: Value) -> Code:
        """Return the number of axes, of a group alone as that of its names."""
        match value:
            case Value(Name()):
                return super().rank(value)
            case Value(_, (Index(group=True, extent=extent),)):
                return FunctionCall("len", (FunctionCall(_AXES, (Dim(extent),)),))
        return super().rank(value)


@dataclass(frozen=True)
class MeansFrame(GroupAxesFrame):
    """Means of products as such, which share factors with other terms."""

    prefers_means = True


@dataclass(frozen=True)
class ReadableFrame(MeansFrame):
    """The shortest code, where a call may be slower or accept negative positions."""

    prefers_reductions = prefers_masks = prefers_methods = True

    def read_first(self, value: Value, n: int, index: Value) -> Value | None:
        """Return value[index] along the first axis; the index has no axis of the value."""
        if n or not index.indices:
            return None
        code = FunctionCall("_indexed", (value.code, index.code))
        return Value(code, (*index.axes, *value.axes[1:]), value.kind)


class RecordedFrame(ReadableFrame):
    """The same in a backward, which torch.func differentiates: there x[at] fails at no axes."""

    def read_first(self, value: Value, n: int, index: Value) -> Value | None:
        """Return value[index], or None if the index may have no axes."""
        groups = all(i is not None and i.group for i in index.indices)
        return None if groups else super().read_first(value, n, index)


def _is_axes(code: Code) -> bool:
    return isinstance(code, FunctionCall) and code.name in (_AXES, _LEADING)


def named_later(code: Code) -> Code | None:
    """Return what such a call stands for, under the names of the user; None for other code."""
    match code:
        case FunctionCall(name, (Dim(extent),)) if name == _AXES:
            return Name(f"{extent}_axes")
        case FunctionCall(name, (Dim(extent),)) if name == _LEADING:
            return Name(f"{extent}_leading")
    return None


def axes_lines(shapes: Sequence[Line]) -> list[Line]:
    """Return the lines of the names of the axes of groups, given those of their shapes."""
    made = []
    for line in shapes:
        group, rank = line.name.removesuffix("_shape"), _rank(line)
        span = FunctionCall("range", (_negative(rank), literal(0)))
        made.append(Line(f"{group}_axes", FunctionCall("tuple", (span,))))
        first = FunctionCall("range", (rank,))
        made.append(Line(f"{group}_leading", FunctionCall("tuple", (first,))))
    return made


def _rank(line: Line) -> Code:
    """Return the number of axes of a group, given the line of its shape."""
    match line.code:
        case Attribute(Name() as x, "shape"):
            return MethodCall(x, "dim")
        case Subscript(Attribute(Name() as x, "shape"), (Slice(start, stop),)):
            before = 0 if start is None else _integer(start)
            after = 0 if stop is None else _integer(stop)
            if before is not None and after is not None:
                return Binary("-", MethodCall(x, "dim"), literal(before - after))
    return FunctionCall("len", (Name(line.name),))


def _integer(code: Code) -> int | None:
    words = text(code)
    return int(words) if words.lstrip("-").isdigit() else None


def _negative(code: Code) -> Code:
    match code:
        case Binary("-", left, right):
            return Binary("-", right, left)
    return Unary("-", code)
