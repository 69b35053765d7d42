"""Values of an operation at small sizes that all differ, by loops; NumPy is not needed.

A browser evaluates formulas with this: an interpreter of Python has no NumPy there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

from derive.algebra.expr import Access, Expr, Index, Pow, walk
from derive.algebra.functions import OF_INTEGERS
from derive.algebra.interpret import Code, Machine, Scope
from derive.algebra.reference_values import function_at
from derive.budget import tick
from derive.errors import DeriveError
from derive.notation.operation import Number, Operation, SizeOf, declared_axes

_RANGES = ((-1.6, 1.6), (0.3, 1.7), (0.2, 0.8))
"""Where values are taken from: of both signs, positive, and within the domain of most functions."""
_TRIES = 24
_NEAR = 0.1
"""No value is nearer to 0, where functions have kinks."""


class Table:
    """Numbers in row-major order, with the part of an array that the interpreter reads."""

    def __init__(self, shape: tuple[int, ...], values: list[Any]) -> None:
        self.shape = shape
        self.values = values

    def item(self, place: int | tuple[int, ...]) -> Any:
        """Return one number."""
        at = 0
        places = place if isinstance(place, tuple) else (place,)
        for p, n in zip(places, self.shape, strict=True):
            at = at * n + p
        return self.values[at]


class Loops(Machine):
    """The interpreter over tables, with functions of Python floats."""

    def table(self, axes: Sequence[Expr], body: Expr) -> Table:
        """Return the table of body, one element at a time."""
        shape = tuple(n for axis in axes for n in self.shape(axis))
        indices = [i for axis in axes for i in walk(axis) if isinstance(i, Index)]
        found = [0.0] * math.prod(shape)
        place, value = self.places(axes, (None,) * len(axes)), self.code(body)
        for scope in self.scopes(indices, {}):
            at = 0
            for p, n in zip(place(scope), shape, strict=True):
                at = at * n + p
            found[at] = value(scope)
        return Table(shape, found)

    def scopes(self, indices: Sequence[Index], scope: Scope) -> Iterator[Scope]:
        for inner in super().scopes(indices, scope):
            tick()
            yield inner

    def compile(self, e: Expr) -> Code:
        if isinstance(e, Pow):
            below, above = self.code(e.base), self.code(e.exponent)
            return lambda s: _power(below(s), above(s))
        return super().compile(e)

    def call(self, name: str, args: Sequence[Expr]) -> Code:
        if name in ("detach", "int", "floordiv"):
            return super().call(name, args)
        parts = [self.code(a) for a in args]

        def compute(s: Scope) -> Any:
            values = [part(s) for part in parts]
            found = _function(name, *map(float, values))
            whole = name in OF_INTEGERS and all(isinstance(v, int) for v in values)
            return int(found) if whole else found

        return compute


@lru_cache(maxsize=1 << 14)
def _function(name: str, *arguments: float) -> float:
    return function_at(name, *arguments)


def _power(base: Any, exponent: Any) -> Any:
    try:
        found = base**exponent
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        return math.nan
    return math.nan if isinstance(found, complex) else found


# ------------------------------------------------------------------------------------- the points


@dataclass(frozen=True)
class Point:
    """Sizes, numbers and tables at which formulas of an operation are evaluated."""

    sizes: Mapping[str, Any]
    numbers: Mapping[str, Any]
    tables: dict[str, Table]
    """Inputs, equations and cotangents, by name."""

    def size(self, extent: str) -> int:
        """Return the size of an extent, of a group the product of its axes."""
        size = self.sizes[extent]
        return math.prod(size) if isinstance(size, tuple) else int(size)

    def shape(self, axis: Expr) -> tuple[int, ...]:
        """Return the sizes of an axis of the operation."""
        return Loops({}, self.sizes, self.numbers).shape(axis)

    def table(self, axes: Sequence[Expr], body: Expr, sizes: Mapping[str, Any]) -> Table:
        """Return the table of a formula that reads what the point has."""
        return Loops(self.tables, sizes, self.numbers).table(axes, body)


def points(op: Operation, cotangents: Mapping[str, str], count: int) -> list[Point]:
    """Return points at which every equation of op is finite.

    Raises:
        DeriveError: there are none, of those that are tried.
    """
    for low, high in _RANGES:
        found: list[Point] = []
        for turn in range(_TRIES):
            # Sizes and positions may not fit each other.
            with suppress(ArithmeticError, IndexError, KeyError, ValueError):
                point = _point(op, cotangents, turn, low, high)
                values = (v for table in point.tables.values() for v in table.values)
                found += [point] if all(map(math.isfinite, values)) else []
            if len(found) == count:
                return found
    text = "the equations have no finite values at the points that were tried"
    raise DeriveError(text, kind="no-sample")


def _point(
    op: Operation, cotangents: Mapping[str, str], turn: int, low: float, high: float
) -> Point:
    rng = random.Random(97 * turn + 1)
    numbers = {p.name: _number(p) for p in op.parameters if isinstance(p, Number)}
    sizes = _sizes_of(op, numbers, rng, turn // 6)
    for p in op.parameters:
        if isinstance(p, SizeOf):
            numbers[p.name] = sizes[p.extent]
    tables: dict[str, Table] = {}
    machine = Loops(tables, sizes, numbers, {t.name: t.axes for t in op.inputs})

    def random_table(axes: Sequence[Expr]) -> Table:
        shape = tuple(n for axis in axes for n in machine.shape(axis))
        values = [rng.uniform(low, high) for _ in range(math.prod(shape))]
        return Table(shape, [v if abs(v) > _NEAR else _NEAR + abs(v) for v in values])

    for t in op.inputs:
        table = tables[t.name] = random_table(t.axes)
        if t.kind == "bool":
            table.values[:] = [v > 0 for v in table.values]
        elif t.kind == "int":
            below = _range_of(op, t.name, machine)
            table.values[:] = [rng.randrange(below) for _ in table.values]
    for e in op.equations:
        tables[e.name] = machine.table(e.axes, e.body)
    axes = {e.name: e.axes for e in op.equations}
    for output, name in cotangents.items():
        tables[name] = random_table(axes[output])
    return Point(sizes, numbers, tables)


def _number(p: Number) -> float | int:
    """Return a value of a parameter, apart from its default, at which nothing vanishes."""
    default = p.default if isinstance(p.default, Fraction) else Fraction(1)
    if p.integer:
        return int(default)
    least = max((float(b) for op, b in p.bounds if op in (">", ">=")), default=-math.inf)
    most = min((float(b) for op, b in p.bounds if op in ("<", "<=")), default=math.inf)
    value = float(default) + 0.375
    return value if least < value < most else float(default)


def _sizes_of(
    op: Operation, numbers: Mapping[str, Any], rng: random.Random, spare: int
) -> dict[str, Any]:
    """Return sizes that differ, in a random order; those that follow from others are computed.

    Raises:
        ValueError: a size would be 0.
    """
    given = {p.name for p in op.parameters if isinstance(p, SizeOf)}
    free = [e for e in op.extents if e.size is None or getattr(e.size, "name", None) in given]
    sizes: dict[str, Any] = {}
    *values, one_more = rng.sample(range(2, 3 + len(free) + spare), len(free) + 1)
    for e, size in zip(free, values, strict=True):
        sizes[e.name] = (size,) if e.group else size
    _compute(op, sizes, numbers)
    for e in op.extents:
        # Of a composite axis and its parts, two follow from each other.
        if e.name not in sizes and not e.sources:
            sizes[e.name] = one_more
            _compute(op, sizes, numbers)
    if any(not sizes[e.name] or sizes[e.name] == (0,) for e in op.extents):
        raise ValueError("a size is 0")
    return sizes


def _compute(op: Operation, sizes: dict[str, Any], numbers: Mapping[str, Any]) -> None:
    """Add the sizes that follow from others."""
    rest = [e for e in op.extents if e.size is not None and e.name not in sizes]
    for _, e in product(rest, rest):
        assert e.size is not None
        with suppress(KeyError):
            sizes[e.name] = max(0, int(Loops({}, sizes, numbers).code(e.size)({})))


def _range_of(op: Operation, name: str, machine: Machine) -> int:
    """Return below which number an integer input is a position of all that it is read in."""
    axes = declared_axes(op)
    found = []
    for part in (part for e in op.equations for part in walk(e.body)):
        if isinstance(part, Access):
            for position, axis in zip(part.positions, axes[part.tensor], strict=True):
                if any(isinstance(p, Access) and p.tensor == name for p in walk(position)):
                    found.append(machine.extent(axis))
    return min(found, default=2)


def sizes_at(op: Operation, point: Point) -> dict[str, Any] | None:
    """Return the sizes of op whose inputs the point has; None if two axes of one size differ."""
    sizes: dict[str, Any] = {}
    for e in op.extents:
        found = {point.tables[t].shape[n] for t, n in e.sources}
        if len(found) > 1:
            return None
        if found:
            (size,) = found
            sizes[e.name] = (size,) if e.group else size
    _compute(op, sizes, point.numbers)
    return sizes
