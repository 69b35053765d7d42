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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS, OF_INTEGERS
from derive.check import oracle
from derive.check.lazy import Tensor, torch

if TYPE_CHECKING:
    from derive.algebra.interpret import Extents


# ------------------------------------------------------------------------------------------- points
# Points of an index grid: scattering values back, and reductions over axes.
#
# Used by `derive.check.grid`; all of it is differentiable torch code.


@dataclass
class GridScope:
    """The points at which an expression is evaluated, and the value of each index there.

    ``shape`` is the shape of the points: the sizes of the indices, or a single axis after a mask
    was applied. ``at`` has the positions of each index, one tensor per axis of a group, which
    broadcast to the shape. Bound indices are prepended as leading axes.
    """

    shape: tuple[int, ...]
    at: Mapping[ex.Index, tuple[Tensor, ...]]

    def within(
        self, indices: Sequence[ex.Index], sizes: Extents, device: torch.device
    ) -> GridScope:
        """Prepend the indices as leading axes, row-major."""
        spans = [digits(sizes[i.extent]) for i in indices]
        shape = (*(n for span in spans for n in span), *self.shape)
        at = dict(self.at)
        axis = 0
        for index, span in zip(indices, spans, strict=True):
            places = []
            for n in span:
                axis += 1
                ones = [1] * (len(shape) - axis)
                places.append(torch.arange(n, device=device).reshape(n, *ones))
            at[index] = tuple(places)
        return GridScope(shape, at)

    def taken(self, mask: Tensor) -> GridScope:
        """Select the points where the mask holds, as one axis."""
        at = {
            index: tuple(place.expand(self.shape)[mask] for place in places)
            for index, places in self.at.items()
        }
        return GridScope((int(mask.sum()),), at)


def digits(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the size of each axis of an index or group."""
    return size if isinstance(size, tuple) else (size,)


def spread(onto: Tensor, mask: Tensor, points: Tensor) -> Tensor:
    """Scatter the points into ``onto`` where the mask holds."""
    return onto.masked_scatter(mask, points.expand(int(mask.sum())).to(onto.dtype))


def reduced(
    kind: str, points: Tensor, mask: Tensor | None, shape: tuple[int, ...], rank: int
) -> Tensor:
    """Reduce all but the last ``rank`` axes of ``shape``, where the mask holds.

    With a mask, ``points`` are the values where it holds, in order. Several axes are reduced as
    one: the first winner is the first in row-major order.
    """
    count, rest = math.prod(shape[: len(shape) - rank]), shape[len(shape) - rank :]
    if count == 0:
        empty = REDUCTIONS[kind].of_nothing
        whole = not points.is_floating_point() and math.isfinite(empty)
        return torch.full(rest, empty, dtype=points.dtype if whole else None, device=points.device)
    if mask is None:
        return REDUCTIONS[kind].over(points.expand(shape).reshape(count, *rest), None)
    fill = torch.full(shape, _neutral(kind, points.dtype), dtype=points.dtype, device=mask.device)
    values, taken = spread(fill, mask, points), mask.reshape(count, *rest)
    return REDUCTIONS[kind].over(values.reshape(count, *rest), taken)


def _neutral(kind: str, dtype: torch.dtype) -> float | bool:
    value = REDUCTIONS[kind].neutral
    if dtype.is_floating_point or math.isfinite(value):
        return value
    return torch.iinfo(dtype).max if value > 0 else torch.iinfo(dtype).min


Taken: TypeAlias = "Tensor | None"


def _winner_position(sign: int) -> Callable[[Tensor, Taken], Tensor]:
    """Return argmax of sign*value: the first winner, or the first nan; 0 for no elements."""

    def winner(values: Tensor, taken: Taken) -> Tensor:
        best = values.detach()
        best = best.amax(0) if sign > 0 else best.amin(0)
        wins = (values == best) | (values != values)
        if taken is not None:
            wins = wins & taken
        return wins.long().argmax(0)

    return winner


def _first_winner(sign: int) -> Callable[[Tensor, Taken], Tensor]:
    """Return the maximum of sign*value, with the gradient to the first winner alone."""
    winner = _winner_position(sign)

    def first(values: Tensor, taken: Taken) -> Tensor:
        return values.gather(0, winner(values, taken).unsqueeze(0)).squeeze(0)

    return first


def _tied_extremum(name: str) -> Callable[[Tensor, Taken], Tensor]:
    """Return torch.amax or amin, which share the gradient among tied winners."""

    def shared(values: Tensor, taken: Taken) -> Tensor:
        if taken is None:
            made: Tensor = getattr(torch, name)(values, 0)
            return made
        n = values[0].numel()
        place = torch.arange(n, device=values.device).reshape(values.shape[1:])
        # The start value counts as a winner if it ties with one; nan never ties.
        start = math.nan if values.is_floating_point() else 0
        made = torch.full((n,), start, dtype=values.dtype, device=values.device).scatter_reduce(
            0, place.expand(values.shape)[taken], values[taken], name, include_self=False
        )
        made = made.reshape(values.shape[1:])
        return torch.where(taken.any(0), made, _neutral(name, values.dtype))

    return shared


def _mean(values: Tensor, taken: Taken) -> Tensor:
    return values.mean(0) if taken is None else values.sum(0) / taken.sum(0)


def _norm(values: Tensor, taken: Taken) -> Tensor:
    """Return torch's norm, whose gradient is 0 where all elements are 0."""
    made: Tensor = torch.linalg.vector_norm(values, dim=0)
    return made


class GridReduction(NamedTuple):
    """A reduction: its value for no elements, its neutral element, and the function over axis 0."""

    of_nothing: float | bool
    neutral: float | bool
    over: Callable[[Tensor, Taken], Tensor]


_INF = math.inf

REDUCTIONS: Mapping[str, GridReduction] = {
    "sum": GridReduction(0, 0, lambda values, taken: values.sum(0)),
    "prod": GridReduction(1, 1, lambda values, taken: values.prod(0)),
    "mean": GridReduction(math.nan, 0, _mean),
    "max": GridReduction(-_INF, -_INF, _first_winner(1)),
    "min": GridReduction(_INF, _INF, _first_winner(-1)),
    "amax": GridReduction(-_INF, -_INF, _tied_extremum("amax")),
    "amin": GridReduction(_INF, _INF, _tied_extremum("amin")),
    "argmax": GridReduction(0, -_INF, _winner_position(1)),
    "argmin": GridReduction(0, _INF, _winner_position(-1)),
    "logsumexp": GridReduction(-_INF, -_INF, lambda values, taken: values.logsumexp(0)),
    "norm2": GridReduction(0, 0, _norm),
    "any": GridReduction(False, False, lambda values, taken: values.any(0)),
    "all": GridReduction(True, True, lambda values, taken: values.all(0)),
}
"""Masked-out values are neutral elements already."""


# --------------------------------------------------------------------------------------------- grid

_CONSTANTS = {"pi": math.pi, "inf": math.inf}


@dataclass
class Grid:
    """Evaluates expressions at the points of a scope; a value broadcasts to its shape.

    Integers are int64 and truth values bool; both become of the floating-point ``dtype`` only in
    arithmetic with one. ``axes`` are the declared axes of tensors, which give a composite
    position its part sizes.
    """

    tensors: Mapping[str, Tensor]
    sizes: Extents
    numbers: Mapping[str, Any]
    axes: Mapping[str, tuple[ex.Expr, ...]]
    dtype: torch.dtype
    device: torch.device

    # Whole tensors

    def fill(self, axes: Sequence[ex.Expr], body: ex.Expr, kind: str) -> Tensor:
        """Return a new tensor Y with Y[axes] = body."""
        indices = [i for axis in axes for i in ex.walk(axis) if isinstance(i, ex.Index)]
        scope = GridScope((), {}).within(indices, self.sizes, self.device)
        made = self.cast(self.value(body, scope), kind).expand(scope.shape)
        return made.reshape(oracle.shape_of(axes, self.sizes)).clone()

    def cast(self, value: Tensor, kind: str) -> Tensor:
        """Cast the value to ``float``, ``int`` or ``bool``."""
        return value.to({"float": self.dtype, "int": torch.int64, "bool": torch.bool}[kind])

    # Values

    def value(self, e: ex.Expr, scope: GridScope) -> Tensor:
        """Evaluate e at the points of the scope."""
        match e:
            case ex.Num(value):
                return self.number(value.numerator if value.denominator == 1 else float(value))
            case ex.Const(name):
                return self.number(_CONSTANTS[name])
            case ex.Param(name):
                return self.number(self.numbers[name])
            case ex.Size(extent):
                return self.number(oracle.positions(self.sizes[extent]))
            case ex.Index() | ex.Composite():
                return self.place(e, None, scope)
            case ex.Guard(condition, position):
                return self.where(condition, position, ex.num(0), scope)
            case ex.Access(tensor, positions):
                return self.access(tensor, positions, scope)
            case ex.Add(args):
                return reduce(operator.add, [self.arithmetic(a, scope) for a in args])
            case ex.Mul():
                return self.product(e, scope)
            case ex.Pow(base, exponent):
                return self.power(base, exponent, scope)
            case ex.Call(name, args):
                return self.call(name, args, scope)
            case ex.Reduce(kind, indices, body, condition):
                return self.reduce(kind, indices, body, condition, scope)
            case ex.Where(condition, then, other):
                return self.where(condition, then, other, scope)
            case ex.Iverson(condition):
                return self.condition(condition, scope).long()
            case ex.Delta(axis, position):
                return (self.value(axis, scope) == self.value(position, scope)).long()
        return self.condition(e, scope)

    def arithmetic(self, e: ex.Expr, scope: GridScope) -> Tensor:
        """Evaluate e as a number: bools become 0 or 1."""
        found = self.value(e, scope)
        return found.long() if found.dtype is torch.bool else found

    def number(self, value: float | int) -> Tensor:
        """Return a constant: an int64 if it is an integer that fits, else a float."""
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return torch.tensor(int(value), device=self.device)
        return torch.tensor(float(value), dtype=self.dtype, device=self.device)

    def real(self, value: Tensor) -> Tensor:
        """Cast integers to the float dtype."""
        return value if value.is_floating_point() else value.to(self.dtype)

    def product(self, e: ex.Mul, scope: GridScope) -> Tensor:
        """Multiply; where a bracket or delta is 0, the other factors are not evaluated."""
        factors = list(ex.flat_operands(e, ex.Mul))
        masks = [f for f in factors if isinstance(f, ex.Iverson | ex.Delta)]
        others = [f for f in factors if not isinstance(f, ex.Iverson | ex.Delta)]
        if masks:
            rest = ex.Mul(tuple(others)) if others else ex.num(1)
            return self.where(ex.And(tuple(masks)), rest, ex.num(0), scope)
        return reduce(operator.mul, [self.arithmetic(f, scope) for f in others])

    def power(self, base: ex.Expr, exponent: ex.Expr, scope: GridScope) -> Tensor:
        """Return base ** exponent; integers stay integers if the exponent is a natural number."""
        below = self.arithmetic(base, scope)
        if not isinstance(exponent, ex.Num):
            return torch.pow(self.real(below), self.real(self.arithmetic(exponent, scope)))
        n = exponent.value
        if n.denominator == 1 and n >= 0:
            return torch.pow(below, int(n))
        return torch.pow(self.real(below), float(n))

    def call(self, name: str, args: Sequence[ex.Expr], scope: GridScope) -> Tensor:
        """Call the torch function of that name."""
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
        indices: tuple[ex.Index, ...],
        body: ex.Expr,
        condition: ex.Expr | None,
        scope: GridScope,
    ) -> Tensor:
        """Reduce the values of body where the condition holds."""
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

    def condition(self, e: ex.Expr, scope: GridScope) -> Tensor:
        """Evaluate a condition; later parts of and/or only where the earlier ones do not decide."""
        match e:
            case ex.Rel(op, left, right):
                a, b = self.arithmetic(left, scope), self.arithmetic(right, scope)
                made: Tensor = ex.RELATIONS[op](a, b)
                return made
            case ex.And(args):
                return self.chain(args, True, scope)
            case ex.Or(args):
                return self.chain(args, False, scope)
            case ex.Not(arg):
                return ~self.condition(arg, scope)
        return self.value(e, scope) != 0

    def chain(self, args: Sequence[ex.Expr], through: bool, scope: GridScope) -> Tensor:
        """Evaluate each condition where all earlier ones equal ``through``, the neutral element."""
        held = torch.full(scope.shape, through, device=self.device)
        for arg in args:
            pending = held if through else ~held
            held = spread(held, pending, self.condition(arg, scope.taken(pending)))
        return held

    def where(self, condition: ex.Expr, then: ex.Expr, other: ex.Expr, scope: GridScope) -> Tensor:
        """Evaluate each branch at its own points."""
        mask = self.condition(condition, scope).expand(scope.shape)
        yes = self.arithmetic(then, scope.taken(mask))
        no = self.arithmetic(other, scope.taken(~mask))
        if yes.is_floating_point() or no.is_floating_point():
            yes, no = self.real(yes), self.real(no)
        zero = torch.zeros(scope.shape, dtype=yes.dtype, device=self.device)
        return spread(spread(zero, mask, yes), ~mask, no)

    # Positions

    def access(self, tensor: str, positions: tuple[ex.Expr, ...], scope: GridScope) -> Tensor:
        """Read the elements at the positions; each must be within its axis."""
        data = self.tensors[tensor]
        at: list[Tensor] = []
        for position, axis in zip(positions, self.axes[tensor], strict=True):
            if isinstance(position, ex.Index) and position.group:
                at += scope.at[position]
            else:
                at.append(self.place(position, axis, scope))
        for n, (place, size) in enumerate(zip(at, data.shape, strict=True)):
            _in_range(place, size, f"{tensor}: axis {n}")
        return data[tuple(at)] if at else data

    def place(self, position: ex.Expr, axis: ex.Expr | None, scope: GridScope) -> Tensor:
        """Evaluate a position as one integer; ``axis`` is the declared axis that it indexes."""
        match position:
            case ex.Index(_, extent):
                return self.row_major([position], [self.sizes[extent]], scope)
            case ex.Composite(args):
                declared: Sequence[ex.Expr | None] = (None,) * len(args)
                if isinstance(axis, ex.Composite) and len(axis.args) == len(args):
                    declared = axis.args
                sizes = [self.part(p, d) for p, d in zip(args, declared, strict=True)]
                return self.row_major(args, sizes, scope)
        found = self.arithmetic(position, scope)
        if found.is_floating_point() and bool((found != found.floor()).any()):
            raise IndexError(f"the position {position} is not an integer")
        return found.long()

    def part(self, part: ex.Expr, declared: ex.Expr | None) -> int | tuple[int, ...] | None:
        """Return the size of one part of a composite; None if unknown, as for a constant."""
        if isinstance(part, ex.Guard):
            return self.part(part.position, declared)
        for e in (declared, part):
            if isinstance(e, ex.Index):
                return self.sizes[e.extent]
        return 1 if part is declared or part is ex.num(0) else None

    def row_major(
        self,
        parts: Sequence[ex.Expr],
        sizes: Sequence[int | tuple[int, ...] | None],
        scope: GridScope,
    ) -> Tensor:
        """(a b c) = (a size(b) + b) size(c) + c, for the digits of a group too."""
        if None in sizes[1:]:
            raise ValueError(f"the size of a constant part of {parts} is not known")
        number = self.number(0)
        for part, size in zip(parts, sizes, strict=True):
            known = isinstance(part, ex.Index)
            at = scope.at[part] if isinstance(part, ex.Index) else (self.place(part, None, scope),)
            bases = (None,) if size is None else digits(size)
            for digit, base in zip(at, bases, strict=True):
                if base is not None and not known:
                    _in_range(digit, base, f"part {part} of {parts}")
                number = number * (base or 0) + digit
        return number


def _in_range(place: Tensor, size: int, of: str) -> None:
    if place.numel() and not 0 <= int(place.min()) <= int(place.max()) < size:
        raise IndexError(
            f"{of}: position {int(place.min())} or {int(place.max())} is not in [0, {size})"
        )
