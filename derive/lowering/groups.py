"""The shapes of groups: which slice of which input's shape each of them is.

A tensor whose other groups are known tells the one that is left; an axis whose place is a
parameter splits the two around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from derive.algebra.expr import Expr, Index
from derive.errors import LoweringError
from derive.lowering.code import (
    Attribute,
    Binary,
    Code,
    Function,
    Literal,
    Method,
    Name,
    Subscript,
    literal,
    text,
)
from derive.lowering.tidy import Line
from derive.lowering.value import Axes, Frame, NeedsFlatGroups
from derive.notation.operation import AxisOf, Operation, Tensor

__all__ = ["OuterFrame", "SizeFrame", "colon", "group_shapes", "groups_of", "shape_name"]


@dataclass(frozen=True)
class OuterFrame(Frame):
    """Positions on outer tensors, counted with the lengths of the groups' shapes."""

    def position(self, axes: Axes, n: int) -> Code:
        single = sum(1 for i in axes[:n] if i is None or not i.group)
        groups = [i for i in axes[:n] if i is not None and i.group]
        return _total(single, groups)


@dataclass(frozen=True)
class SizeFrame(OuterFrame):
    """Positions on outer tensors for reading a size: from the nearer end where that is known."""

    def position(self, axes: Axes, n: int) -> Code:
        try:
            return Frame.position(self, axes, n)
        except NeedsFlatGroups:
            return OuterFrame.position(self, axes, n)


def _total(single: int, groups: Sequence[Index]) -> Code:
    code: Code | None = None
    for i in groups:
        part = Function("len", (Name(shape_name(i)),))
        code = part if code is None else Binary("+", code, part)
    if code is None:
        return literal(single)
    return Binary("+", code, literal(single)) if single else code


def shape_name(group: Index) -> str:
    """The variable that holds the shape of a group."""
    return f"{group.extent}_shape"


def group_shapes(op: Operation) -> list[Line]:
    """The shape of each group, read where its place is known: one line each, in order."""
    lines: list[Line] = []
    known: set[str] = set()
    pending = [t for t in op.inputs if t.default is None and groups_of(t)]
    while pending:
        for t in pending:
            unknown = [i for i in groups_of(t) if i.extent not in known]
            if not unknown:
                break
            if len(unknown) == 1:
                lines.append(_slice(t, unknown[0]))
                known.add(unknown[0].extent)
                break
            split = _split(op, t, unknown)
            if split is not None:
                lines += split
                known |= {i.extent for i in unknown}
                break
        else:
            names = ", ".join(t.name for t in pending)
            raise LoweringError(f"nothing tells how the axes of {names} split into their groups")
        pending = [x for x in pending if x is not t]
    return lines


def groups_of(t: Tensor) -> list[Index]:
    found: list[Index] = []
    for axis in t.axes:
        if isinstance(axis, Index) and axis.group and axis not in found:
            found.append(axis)
    return found


def _slice(t: Tensor, group: Index) -> Line:
    """shape[before : dim - after] for the one group whose length the rest leaves."""
    n = t.axes.index(group)
    before = _total(*_counts(t.axes[:n]))
    after_single, after_groups = _counts(t.axes[n + 1 :])
    shape = Attribute(Name(t.name), "shape")
    start = "" if _is_zero(before) else text(before)
    end = ""
    if after_groups:
        end = text(_before(t, _total(after_single, after_groups)))
    elif after_single:
        end = f"-{after_single}"
    if not start and not end:
        return Line(shape_name(group), shape)
    return Line(shape_name(group), Subscript(shape, (Literal(colon(start, end)),)))


def _before(t: Tensor, after: Code) -> Code:
    """The place of the first of the last axes, given how many these are."""
    return Binary("-", Method(Name(t.name), "dim"), after)


def colon(start: str, end: str) -> str:
    """The slice from start to end, either of which may be left out, as a formatter writes it."""
    simple = all(s.lstrip("-").isidentifier() or s.lstrip("-").isdigit() for s in (start, end) if s)
    if simple:
        return f"{start}:{end}"
    return f"{start} : {end}".strip()


def _is_zero(code: Code) -> bool:
    return isinstance(code, Literal) and code.text == "0"


def _counts(axes: Sequence[Expr]) -> tuple[int, list[Index]]:
    single = sum(1 for i in axes if not (isinstance(i, Index) and i.group))
    return single, [i for i in axes if isinstance(i, Index) and i.group]


def _split(op: Operation, t: Tensor, unknown: Sequence[Index]) -> list[Line] | None:
    """The unknown groups of t where a parameter tells an axis between each two of them."""
    rank = Method(Name(t.name), "dim")
    lines: list[Line] = []
    places = [t.axes.index(i) for i in unknown]
    starts = [_plain(_total(*_counts(t.axes[: places[0]])))]
    stops: list[str] = []
    for left, right in pairwise(places):
        p = next(
            (
                p
                for p in op.parameters
                if isinstance(p, AxisOf) and p.index in t.axes[left + 1 : right]
            ),
            None,
        )
        if p is None:
            return None
        n = t.axes.index(p.index)
        name = f"{p.name}_axis"
        lines.append(Line(name, Binary("%", Name(p.name), rank)))
        back = _total(*_counts(t.axes[left + 1 : n]))
        ahead = _total(*_counts(t.axes[n + 1 : right]))
        stops.append(name if _is_zero(back) else text(Binary("-", Name(name), back)))
        next_ = literal(1) if _is_zero(ahead) else Binary("+", ahead, literal(1))
        starts.append(text(Binary("+", Name(name), next_)))
    single, groups = _counts(t.axes[places[-1] + 1 :])
    if groups:
        stops.append(text(_before(t, _total(single, groups))))
    else:
        stops.append(f"-{single}" if single else "")
    shape = Attribute(Name(t.name), "shape")
    for group, start, stop in zip(unknown, starts, stops, strict=True):
        lines.append(Line(shape_name(group), Subscript(shape, (Literal(colon(start, stop)),))))
    return lines


def _plain(code: Code) -> str:
    return "" if _is_zero(code) else text(code)
