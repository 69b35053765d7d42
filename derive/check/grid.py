"""Evaluate an expression at all points of the grid of its indices, in torch.

Each index is an ``arange`` along its own axis and an access is advanced indexing, so that
torch.autograd differentiates through it. Under a condition, an expression is evaluated at the
selected points only (flattened), and the results are scattered back. So no inf or nan at an
excluded point can reach a value or a gradient. A position out of range is an IndexError; it never
wraps.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from derive.algebra.expr import (
    RELATIONS,
    Access,
    Add,
    And,
    Call,
    Composite,
    Const,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    num,
    walk,
)
from derive.algebra.functions import FUNCTIONS, OF_INTEGERS
from derive.check.points import REDUCTIONS, GridScope, digits, reduced, spread

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from derive.algebra.interpret import Extents


_CONSTANTS = {"pi": math.pi, "inf": math.inf}


class Grid:
    """Evaluates expressions at the points of a scope; a value broadcasts to its shape.

    Integers are int64 and truth values bool; both become of the floating-point ``dtype`` only in
    arithmetic with one. ``axes`` are the declared axes of tensors, which give a composite
    position its part sizes.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        sizes: Extents,
        numbers: Mapping[str, Any],
        axes: Mapping[str, tuple[Expr, ...]],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.tensors = tensors
        self.sizes = sizes
        self.numbers = numbers
        self.axes = axes
        self.dtype = dtype
        self.device = device

    # Whole tensors

    def fill(self, axes: Sequence[Expr], body: Expr, kind: str) -> Tensor:
        """Return a new tensor Y with Y[axes] = body."""
        indices = [i for axis in axes for i in walk(axis) if isinstance(i, Index)]
        scope = GridScope((), {}).within(indices, self.sizes, self.device)
        made = self.cast(self.value(body, scope), kind).expand(scope.shape)
        return made.reshape([n for axis in axes for n in self.layout(axis)]).clone()

    def layout(self, axis: Expr) -> tuple[int, ...]:
        """Return the sizes of the tensor axes for one axis of a left side."""
        if isinstance(axis, Index):
            return digits(self.sizes[axis.extent])
        return (self.extent(axis),)

    def extent(self, axis: Expr) -> int:
        """Return the number of positions of an axis; 1 for a constant on the left."""
        if isinstance(axis, Index | Size):
            return math.prod(digits(self.sizes[axis.extent]))
        return math.prod(map(self.extent, axis.args)) if isinstance(axis, Composite) else 1

    def cast(self, value: Tensor, kind: str) -> Tensor:
        """Cast the value to ``float``, ``int`` or ``bool``."""
        import torch

        return value.to({"float": self.dtype, "int": torch.int64, "bool": torch.bool}[kind])

    # Values

    def value(self, e: Expr, scope: GridScope) -> Tensor:
        """Evaluate e at the points of the scope."""
        match e:
            case Num(value):
                return self.number(value.numerator if value.denominator == 1 else float(value))
            case Const(name):
                return self.number(_CONSTANTS[name])
            case Param(name):
                return self.number(self.numbers[name])
            case Size():
                return self.number(self.extent(e))
            case Index() | Composite():
                return self.place(e, None, scope)
            case Guard(condition, position):
                return self.where(condition, position, num(0), scope)
            case Access(tensor, positions):
                return self.access(tensor, positions, scope)
            case Add(args):
                return reduce(operator.add, [self.arithmetic(a, scope) for a in args])
            case Mul():
                return self.product(e, scope)
            case Pow(base, exponent):
                return self.power(base, exponent, scope)
            case Call(name, args):
                return self.call(name, args, scope)
            case Reduce(kind, indices, body, condition):
                return self.reduce(kind, indices, body, condition, scope)
            case Where(condition, then, other):
                return self.where(condition, then, other, scope)
            case Iverson(condition):
                return self.condition(condition, scope).long()
            case Delta(axis, position):
                return (self.value(axis, scope) == self.value(position, scope)).long()
        return self.condition(e, scope)

    def arithmetic(self, e: Expr, scope: GridScope) -> Tensor:
        """Evaluate e as a number: bools become 0 or 1."""
        import torch

        found = self.value(e, scope)
        return found.long() if found.dtype is torch.bool else found

    def number(self, value: float | int) -> Tensor:
        """Return a constant: an int64 if it is an integer that fits, else a float."""
        import torch

        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return torch.tensor(int(value), device=self.device)
        return torch.tensor(float(value), dtype=self.dtype, device=self.device)

    def real(self, value: Tensor) -> Tensor:
        """Cast integers to the float dtype."""
        return value if value.is_floating_point() else value.to(self.dtype)

    def product(self, e: Mul, scope: GridScope) -> Tensor:
        """Multiply; where a bracket or delta is 0, the other factors are not evaluated."""
        factors = _flat_factors(e)
        masks = [f for f in factors if isinstance(f, Iverson | Delta)]
        others = [f for f in factors if not isinstance(f, Iverson | Delta)]
        if masks:
            rest = Mul(tuple(others)) if others else num(1)
            return self.where(And(tuple(masks)), rest, num(0), scope)
        return reduce(operator.mul, [self.arithmetic(f, scope) for f in others])

    def power(self, base: Expr, exponent: Expr, scope: GridScope) -> Tensor:
        """Return base ** exponent; integers stay integers if the exponent is a natural number."""
        import torch

        below = self.arithmetic(base, scope)
        if not isinstance(exponent, Num):
            return torch.pow(self.real(below), self.real(self.arithmetic(exponent, scope)))
        n = exponent.value
        if n.denominator == 1 and n >= 0:
            return torch.pow(below, int(n))
        return torch.pow(self.real(below), float(n))

    def call(self, name: str, args: Sequence[Expr], scope: GridScope) -> Tensor:
        """Call the torch function of that name."""
        import torch

        parts = [self.arithmetic(a, scope) for a in args]
        if name == "detach":
            return parts[0].detach()
        if name == "floordiv":
            return torch.floor_divide(*parts)
        if name == "int":
            return parts[0].long()
        if name == "polygamma":
            return torch.polygamma(int(parts[0]), self.real(parts[1]))
        if name not in OF_INTEGERS or any(p.is_floating_point() for p in parts):
            parts = [self.real(p) for p in parts]
        function: Any = torch
        for attribute in FUNCTIONS[name].torch.split("."):
            function = getattr(function, attribute)
        made: Tensor = function(*parts)
        return made

    def reduce(
        self,
        kind: str,
        indices: tuple[Index, ...],
        body: Expr,
        condition: Expr | None,
        scope: GridScope,
    ) -> Tensor:
        """Reduce the values of body where the condition holds."""
        import torch

        points = inner = scope.within(indices, self.sizes, self.device)
        mask = None
        if condition is not None:
            mask = self.condition(condition, inner).expand(inner.shape)
            points = inner.taken(mask)
        if kind in ("any", "all"):
            values = self.condition(body, points)
        else:
            values = self.arithmetic(body, points)
        if kind in ("mean", "logsumexp", "norm2"):
            values = self.real(values)
        if not values.is_floating_point() and math.isinf(REDUCTIONS[kind].of_nothing):
            # An empty reduction gives an infinity, which needs a float.
            bound = len(inner.shape) - len(scope.shape)
            count = inner.shape[:bound] if mask is None else mask.flatten(0, bound - 1).sum(0)
            values = self.real(values) if bool((torch.as_tensor(count) == 0).any()) else values
        return reduced(kind, values, mask, inner.shape, len(scope.shape))

    # Conditions

    def condition(self, e: Expr, scope: GridScope) -> Tensor:
        """Evaluate a condition; later parts of and/or only where the earlier ones do not decide."""
        match e:
            case Rel(op, left, right):
                a, b = self.arithmetic(left, scope), self.arithmetic(right, scope)
                made: Tensor = RELATIONS[op](a, b)
                return made
            case And(args):
                return self.chain(args, True, scope)
            case Or(args):
                return self.chain(args, False, scope)
            case Not(arg):
                return ~self.condition(arg, scope)
        return self.value(e, scope) != 0

    def chain(self, args: Sequence[Expr], through: bool, scope: GridScope) -> Tensor:
        """Evaluate each condition where all earlier ones equal ``through``, the neutral element."""
        import torch

        held = torch.full(scope.shape, through, device=self.device)
        for arg in args:
            pending = held if through else ~held
            held = spread(held, pending, self.condition(arg, scope.taken(pending)))
        return held

    def where(self, condition: Expr, then: Expr, other: Expr, scope: GridScope) -> Tensor:
        """Evaluate each branch at its own points."""
        import torch

        mask = self.condition(condition, scope).expand(scope.shape)
        yes = self.arithmetic(then, scope.taken(mask))
        no = self.arithmetic(other, scope.taken(~mask))
        if yes.is_floating_point() or no.is_floating_point():
            yes, no = self.real(yes), self.real(no)
        zero = torch.zeros(scope.shape, dtype=yes.dtype, device=self.device)
        return spread(spread(zero, mask, yes), ~mask, no)

    # Positions

    def access(self, tensor: str, positions: tuple[Expr, ...], scope: GridScope) -> Tensor:
        """Read the elements at the positions; each must be within its axis."""
        data = self.tensors[tensor]
        at: list[Tensor] = []
        for position, axis in zip(positions, self.axes[tensor], strict=True):
            if isinstance(position, Index) and position.group:
                at += scope.at[position]
            else:
                at.append(self.place(position, axis, scope))
        for n, (place, size) in enumerate(zip(at, data.shape, strict=True)):
            _in_range(place, size, f"{tensor}: axis {n}")
        return data[tuple(at)] if at else data

    def place(self, position: Expr, axis: Expr | None, scope: GridScope) -> Tensor:
        """Evaluate a position as one integer; ``axis`` is the declared axis that it indexes."""
        match position:
            case Index(_, extent):
                return self.row_major([position], [self.sizes[extent]], scope)
            case Composite(args):
                declared: Sequence[Expr | None] = (None,) * len(args)
                if isinstance(axis, Composite) and len(axis.args) == len(args):
                    declared = axis.args
                sizes = [self.part(p, d) for p, d in zip(args, declared, strict=True)]
                return self.row_major(args, sizes, scope)
        found = self.arithmetic(position, scope)
        if found.is_floating_point() and bool((found != found.floor()).any()):
            raise IndexError(f"the position {position} is not an integer")
        return found.long()

    def part(self, part: Expr, declared: Expr | None) -> int | tuple[int, ...] | None:
        """Return the size of one part of a composite; None if unknown, as for a constant."""
        if isinstance(part, Guard):
            return self.part(part.position, declared)
        for e in (declared, part):
            if isinstance(e, Index):
                return self.sizes[e.extent]
        return 1 if part is declared or part is num(0) else None

    def row_major(
        self,
        parts: Sequence[Expr],
        sizes: Sequence[int | tuple[int, ...] | None],
        scope: GridScope,
    ) -> Tensor:
        """(a b c) = (a size(b) + b) size(c) + c, for the digits of a group too."""
        if None in sizes[1:]:
            raise ValueError(f"the size of a constant part of {parts} is not known")
        number = self.number(0)
        for part, size in zip(parts, sizes, strict=True):
            known = isinstance(part, Index)
            at = scope.at[part] if isinstance(part, Index) else (self.place(part, None, scope),)
            bases = (None,) if size is None else digits(size)
            for digit, base in zip(at, bases, strict=True):
                if base is not None and not known:
                    _in_range(digit, base, f"part {part} of {parts}")
                number = number * (base or 0) + digit
        return number


def _flat_factors(e: Expr) -> list[Expr]:
    if isinstance(e, Mul):
        return [factor for arg in e.args for factor in _flat_factors(arg)]
    return [e]


def _in_range(place: Tensor, size: int, of: str) -> None:
    if place.numel() and not 0 <= int(place.min()) <= int(place.max()) < size:
        raise IndexError(
            f"{of}: position {int(place.min())} or {int(place.max())} is not in [0, {size})"
        )
