"""Positions of axes of inputs, as text that needs no line before it.

The shape of a group is a slice of some input's shape, so that its length is a sum of ranks: of
x[*p,*s] and w[*s], *s has w.dim() axes and *p has x.dim() - w.dim().
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import Expr, Index
from derive.lowering.ground.runtime_sizes import axes_of
from derive.lowering.ground.value import Axes, Frame, NeedsFlatGroups, is_group
from derive.lowering.groups import group_shapes, shape_name
from derive.notation.operation import Operation, Tensor
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    FunctionCall,
    Literal,
    Name,
    Slice,
    Subscript,
    Unary,
    names_in,
    text,
)

Count = Mapping[str, int]
"""A number of axes as a sum: text -> factor, with "" for the constant."""


@dataclass(frozen=True)
class Positions:
    """The positions of the axes of an operation's inputs."""

    op: Operation
    frame: Frame

    @cached_property
    def _groups(self) -> tuple[dict[str, str], dict[str, Count]]:
        """(tensor that determines each group, number of its axes), by the name of its shape."""
        homes: dict[str, str] = {}
        lengths: dict[str, Count] = {}
        named: dict[str, Code] = {}
        tensors = {t.name for t in self.op.inputs}
        for line in group_shapes(self.op):
            match line.code:
                case Attribute(Name(home), "shape"):
                    lengths[line.name] = {f"{home}.dim()": 1}
                case Subscript(Attribute(Name(home), "shape"), (Slice(start, stop, None),)):
                    end = _total(stop, named, lengths) if stop else {}
                    if stop is None or _negative(stop):
                        end = added(end, {f"{home}.dim()": 1})
                    begin = _total(start, named, lengths) if start else {}
                    lengths[line.name] = added(end, begin, -1)
                case code:
                    named[line.name] = code
                    continue
            homes[line.name] = next(n for n in names_in(line.code) if n in tensors)
        return homes, lengths

    def home(self, group: Index) -> str:
        """Return the tensor from which the shape of a group is read."""
        return self._groups[0][shape_name(group)]

    def count(self, axes: Sequence[Expr | None]) -> Count:
        """Return the number of axes that the indices have."""
        total: Count = {}
        for axis in axes:
            total = added(total, self._groups[1][shape_name(axis)] if is_group(axis) else {"": 1})
        return total

    def position(self, axes: Axes, n: int) -> Code:
        """Return the position of axis n: of the frame, or counted between groups."""
        try:
            return self.frame.position(axes, n)
        except NeedsFlatGroups:
            return Literal(written(self.count(axes[:n])))

    def item(self, t: Tensor, n: int) -> str:
        """Return the size of axis n of t."""
        return f"{t.name}.shape[{text(self.position(axes_of(self.op, t), n))}]"

    def part(self, t: Tensor, start: int, stop: int) -> str:
        """Return the sizes of the axes from start to stop."""
        first = "" if start == 0 else self._bound(t, start)
        last = "" if stop == len(t.axes) else self._bound(t, stop)
        if not first and not last:
            return f"{t.name}.shape"
        simple = all(re.fullmatch(r"-?\w*", bound) for bound in (first, last))
        return f"{t.name}.shape[{f'{first}:{last}' if simple else f'{first} : {last}'.strip()}]"

    def _bound(self, t: Tensor, n: int) -> str:
        """Return the position of axis n in a slice: from the side without a group."""
        if any(map(is_group, t.axes[:n])) and not any(map(is_group, t.axes[n:])):
            return str(n - len(t.axes))
        return written(self.count(t.axes[:n]))


@dataclass(frozen=True)
class InputFrame(Frame):
    """Positions on inputs, for reading a size without a line before it."""

    inputs: Positions | None = None

    def position(self, axes: Axes, n: int) -> Code:
        assert self.inputs is not None
        return self.inputs.position(axes, n)


def input_frame(op: Operation, frame: Frame) -> InputFrame:
    """Return the frame of an operation's inputs."""
    return InputFrame(inputs=Positions(op, frame))


def added(one: Count, other: Count, factor: int = 1) -> Count:
    """Return the sum of a count and a multiple of another."""
    total = Counter(dict(one))
    for term, n in other.items():
        total[term] += factor * n
    return {term: n for term, n in total.items() if n}


def written(count: Count) -> str:
    """Return a count as text, positive terms first."""
    terms = sorted(count.items(), key=lambda term: (term[1] < 0, not term[0]))
    parts = [
        (n, f"{abs(n)} * {term}" if term and abs(n) > 1 else term or str(abs(n)))
        for term, n in terms
    ]
    whole = " ".join(f"{'-' if n < 0 else '+'} {part}" for n, part in parts) or "+ 0"
    return whole.removeprefix("+ ")


def _negative(code: Code) -> bool:
    return isinstance(code, Unary) or (isinstance(code, Literal) and code.text.startswith("-"))


def _total(code: Code, named: Mapping[str, Code], lengths: Mapping[str, Count]) -> Count:
    """Return the count that a position in a shape is."""
    match code:
        case Literal(number):
            return added({}, {"": int(number)})
        case FunctionCall("len", (Name(shape),)):
            return lengths[shape]
        case Binary("+" | "-" as sign, left, right):
            factor = 1 if sign == "+" else -1
            return added(_total(left, named, lengths), _total(right, named, lengths), factor)
        case Name(name):
            return {text(named[name]): 1}
    return {text(code): 1}
