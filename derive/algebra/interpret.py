"""Interpret expressions by loops: the slow, plain reference for every stage.

Each index takes one value at a time. There are no vectorized sums, and nothing is shared with the
lowering. A value that a condition excludes is not evaluated: a branch of ``where`` not taken, the
other factors of an Iverson bracket or delta that is 0, a guarded position. A position out of range
is an IndexError; it never wraps.

Sizes are given by extent: a number, or for a group the tuple of its axes' sizes. The value of an
index is its position, of a group a multi-index, which as a number is its row-major position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS, OF_INTEGERS
from derive.algebra.reference_values import REDUCTIONS, np

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, Any]"
Extents: TypeAlias = Mapping[str, "int | tuple[int, ...]"]
Scope: TypeAlias = dict[ex.Index, Any]
Code: TypeAlias = Callable[[Scope], Any]

_CONSTANTS = {"pi": math.pi, "inf": math.inf}


def _integer_or_sentinel(value: Any) -> int:
    """The value as an integer; nan and the infinities become an invalid position."""
    return int(value) if math.isfinite(value) else -(2**63)


def evaluate(
    e: ex.Expr,
    tensors: Mapping[str, Array],
    sizes: Extents,
    indices: Mapping[ex.Index, int | tuple[int, ...]],
    parameters: Mapping[str, float | int],
) -> float | int | bool:
    """The value of e at the given values of its free indices."""
    value = Machine(tensors, sizes, parameters).code(e)(dict(indices))
    assert isinstance(value, float | int)
    return value


def array(
    axes: Sequence[ex.Expr],
    body: ex.Expr,
    tensors: Mapping[str, Array],
    sizes: Extents,
    parameters: Mapping[str, float | int],
    kind: str = "float",
) -> Array:
    """The array Y with Y[axes] = body for every value of the indices in axes.

    ``kind`` is ``float``, ``int`` or ``bool``.
    """
    return Machine(tensors, sizes, parameters).fill(axes, body, kind)


class Machine:
    """Compile each node once to a function of the index values.

    ``tensors`` are arrays, or what has their ``shape`` and ``item``.
    ``axes`` are the declared axes of tensors, which give a composite position its part sizes.
    ``still`` is the machine that evaluates arguments of ``detach``; this one by default.
    """

    dtypes: Mapping[str, Any] = {"float": "float64", "int": "int64", "bool": "bool"}
    """The dtypes of result arrays, by kind."""

    def __init__(
        self,
        tensors: Mapping[str, Any],
        sizes: Extents,
        parameters: Mapping[str, Any],
        axes: Mapping[str, tuple[ex.Expr, ...]] | None = None,
        still: Machine | None = None,
    ) -> None:
        self.tensors = tensors
        self.sizes = sizes
        self.parameters = parameters
        self.axes = axes or {}
        self.still = still or self
        self.known: dict[ex.Expr, Code] = {}

    def fill(
        self, axes: Sequence[ex.Expr], body: ex.Expr, kind: str, into: Array | None = None
    ) -> Array:
        """The array of body, one element at a time; ``into`` is one of an earlier call."""
        indices = [i for axis in axes for i in ex.walk(axis) if isinstance(i, ex.Index)]
        if len(set(indices)) < len(indices):
            raise ValueError(f"an index appears twice among the axes {list(axes)}")
        shape = [n for axis in axes for n in self.shape(axis)]
        result: Array = np.empty(shape, self.dtypes[kind]) if into is None else into
        place, value = self.places(axes, (None,) * len(axes)), self.code(body)
        for scope in self.scopes(indices, {}):
            result[place(scope)] = value(scope)
        return result

    def shape(self, axis: ex.Expr) -> tuple[int, ...]:
        """The sizes of the array axes that one axis of a left side represents."""
        if isinstance(axis, ex.Index) and axis.group:
            found = self.sizes[axis.extent]
            assert isinstance(found, tuple)
            return found
        return (self.extent(axis),)

    def extent(self, axis: ex.Expr) -> int:
        """The number of positions of an axis: 1 for a constant on the left."""
        if isinstance(axis, ex.Index | ex.Size):
            found = self.sizes[axis.extent]
            return math.prod(found) if isinstance(found, tuple) else found
        if isinstance(axis, ex.Composite):
            return math.prod(self.extent(part) for part in axis.args)
        if isinstance(axis, ex.Num):
            return 1
        raise ValueError(f"{axis} is not an axis: write an index, a composite or 0")

    def scopes(self, indices: Sequence[ex.Index], scope: Scope) -> Iterator[Scope]:
        """The scope with every value of the indices, the last one running fastest."""
        inner = dict(scope)
        if len(indices) == 1 and not indices[0].group:
            for value in range(self.extent(indices[0])):
                inner[indices[0]] = value
                yield inner
            return
        ranges = []
        for i in indices:
            n = self.sizes[i.extent]
            ranges.append(product(*map(range, n)) if isinstance(n, tuple) else range(n))
        for values in product(*ranges):
            inner.update(zip(indices, values, strict=True))
            yield inner

    def code(self, e: ex.Expr) -> Code:
        """The function of the index values that computes e."""
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self.compile(e)
        return found

    def compile(self, e: ex.Expr) -> Code:
        match e:
            case ex.Num(value):
                return _constant_code(value.numerator if value.denominator == 1 else float(value))
            case ex.Const(name):
                return _constant_code(_CONSTANTS[name])
            case ex.Param(name):
                return _constant_code(self.parameters[name])
            case ex.Size(_):
                return _constant_code(self.extent(e))
            case ex.Index(_, extent, group):
                return self.row_major([e], [self.sizes[extent]]) if group else lambda s: s[e]
            case ex.Composite(args):
                return self.row_major(args, [self.part(p, None) for p in args])
            case ex.Guard(condition, position):
                return self.choice(condition, self.code(position), _constant_code(0))
            case ex.Access(tensor, positions):
                return self.access(tensor, positions)
            case ex.Add(args):
                parts = [self.code(a) for a in args]
                return lambda s: sum([part(s) for part in parts])
            case ex.Mul(_):
                return self.product(e)
            case ex.Pow(base, exponent):
                below, above = self.code(base), self.code(exponent)
                return lambda s: _ieee_power(below(s), above(s))
            case ex.Call(name, args):
                return self.call(name, args)
            case ex.Reduce(kind, indices, body, condition):
                return self.reduce(kind, indices, body, condition)
            case ex.Where(condition, then, other):
                return self.choice(condition, self.code(then), self.code(other))
            case _:
                return self.condition(e)

    def condition(self, e: ex.Expr) -> Code:
        """A truth value, or 1 and 0; a later part is evaluated only if it matters."""
        match e:
            case ex.Rel(op, left, right):
                relation, a, b = ex.RELATIONS[op], self.code(left), self.code(right)
                return lambda s: bool(relation(a(s), b(s)))
            case ex.And(args):
                return every([self.code(x) for x in args])
            case ex.Or(args):
                parts = [self.code(x) for x in args]
                return lambda s: any(part(s) for part in parts)
            case ex.Not(arg):
                inside = self.code(arg)
                return lambda s: not inside(s)
            case ex.Iverson(condition):
                holds = self.code(condition)
                return lambda s: 1 if holds(s) else 0
            case ex.Delta(axis, position):
                a, b = self.code(axis), self.code(position)
                return lambda s: 1 if a(s) == b(s) else 0
        raise TypeError(f"{type(e).__name__} cannot be evaluated; convert it to a tree first: {e}")

    def product(self, e: ex.Mul) -> Code:
        """Evaluate brackets first, then deltas: if one is 0, no other factor is evaluated."""
        factors = list(ex.flat_operands(e, ex.Mul))
        brackets = [self.code(f) for f in factors if isinstance(f, ex.Iverson)]
        deltas = [self.code(f) for f in factors if isinstance(f, ex.Delta)]
        others = [self.code(f) for f in factors if not isinstance(f, ex.Iverson | ex.Delta)]
        if not (masks := brackets + deltas):
            return lambda s: math.prod([factor(s) for factor in others])
        taken = every(masks)
        return lambda s: math.prod([factor(s) for factor in others]) if taken(s) else 0

    def choice(self, condition: ex.Expr, then: Code, other: Code) -> Code:
        """One value where the condition holds, the other elsewhere; only one is evaluated."""
        holds = self.code(condition)
        return lambda s: then(s) if holds(s) else other(s)

    def call(self, name: str, args: Sequence[ex.Expr]) -> Code:
        if name == "detach":
            return self.still.code(args[0])
        f = FUNCTIONS[name].numpy
        parts = [self.code(a) for a in args]
        if name == "int":
            return lambda s: _integer_or_sentinel(parts[0](s))
        if name == "floordiv":
            number, divisor = parts
            return lambda s: number(s) // divisor(s)
        if name == "polygamma":
            return lambda s: float(f(*[part(s) for part in parts]))
        if name not in OF_INTEGERS:
            return lambda s: float(f(*[float(part(s)) for part in parts]))

        def compute(s: Scope) -> Any:
            values = [part(s) for part in parts]
            if all(isinstance(value, int) for value in values):
                return int(f(*values))
            return float(f(*map(float, values)))

        return compute

    def reduce(
        self, kind: str, indices: tuple[ex.Index, ...], body: ex.Expr, condition: ex.Expr | None
    ) -> Code:
        """The reduction of the values of body where the condition holds."""
        value = self.code(body)
        holds = None if condition is None else self.code(condition)
        reduction = REDUCTIONS[kind]

        def compute(s: Scope) -> Any:
            # Read every element, as no condition excludes it, even if the result is already
            # decided.
            return reduction(
                [
                    (at, value(inner))
                    for at, inner in enumerate(self.scopes(indices, s))
                    if holds is None or holds(inner)
                ]
            )

        return compute

    def access(self, tensor: str, positions: tuple[ex.Expr, ...]) -> Code:
        """One element; each position must lie in its axis."""
        if tensor not in self.tensors:
            raise ValueError(f"the tensor {tensor} is missing")
        data = self.tensors[tensor]
        shape, item = data.shape, data.item
        if positions and tuple(map(self.run, positions)) == shape:
            # Indices of the axes' own extents are always in range.
            along = itemgetter(*positions)
            return lambda s: item(along(s))
        place = self.places(positions, self.axes.get(tensor, (None,) * len(positions)))

        def compute(s: Scope) -> Any:
            at = place(s)
            if len(at) != len(shape):
                raise ValueError(f"{tensor} has {len(shape)} axes but {len(at)} positions")
            for axis, (p, n) in enumerate(zip(at, shape, strict=True)):
                if not 0 <= p < n:
                    raise IndexError(f"{tensor}: position {p} on axis {axis} is not in [0, {n})")
            return item(at)

        return compute

    def run(self, position: ex.Expr) -> int | None:
        """The size of the extent if the position is a plain index, else None."""
        size = self.sizes[position.extent] if isinstance(position, ex.Index) else None
        return None if isinstance(size, tuple) else size

    def places(
        self, positions: Sequence[ex.Expr], axes: Sequence[ex.Expr | None]
    ) -> Callable[[Scope], tuple[int, ...]]:
        """The positions as one multi-index."""
        places = [self.place(p, a) for p, a in zip(positions, axes, strict=True)]
        return lambda s: tuple([p for place in places for p in place(s)])

    def place(
        self, position: ex.Expr, axis: ex.Expr | None = None
    ) -> Callable[[Scope], tuple[int, ...]]:
        """The position as one number, or as a multi-index for a group."""
        if isinstance(position, ex.Index) and position.group:
            return itemgetter(position)
        if isinstance(position, ex.Guard):
            holds, inside = self.code(position.condition), self.place(position.position, axis)
            group = isinstance(position.position, ex.Index) and position.position.group
            nowhere = (0,) * (len(self.shape(position.position)) if group else 1)
            return lambda s: inside(s) if holds(s) else nowhere
        if isinstance(position, ex.Composite):
            declared: Sequence[ex.Expr | None] = (None,) * len(position.args)
            if isinstance(axis, ex.Composite) and len(axis.args) == len(position.args):
                declared = axis.args
            parts = zip(position.args, declared, strict=True)
            number = self.row_major(position.args, [self.part(p, d) for p, d in parts])
        else:
            number = self.code(position)
        return lambda s: (_checked_integer(number(s), position),)

    def part(self, part: ex.Expr, declared: ex.Expr | None) -> int | tuple[int, ...] | None:
        """The size of one part of a composite; None for a constant without a declared axis."""
        if isinstance(part, ex.Guard):
            return self.part(part.position, declared)
        if isinstance(declared, ex.Index):
            return self.sizes[declared.extent]
        if isinstance(part, ex.Index):
            return self.sizes[part.extent]
        return 1 if part is declared or part is ex.num(0) else None

    def row_major(
        self, parts: Sequence[ex.Expr], sizes: Sequence[int | tuple[int, ...] | None]
    ) -> Code:
        """(a b c) = (a size(b) + b) size(c) + c, for the digits of a group too."""
        if None in sizes[1:]:
            raise ValueError(f"the size of a constant part of ({parts}) is unknown")
        codes = [itemgetter(p) if isinstance(p, ex.Index) else self.code(p) for p in parts]

        def compute(s: Scope) -> int:
            number = 0
            for code, size in zip(codes, sizes, strict=True):
                value = code(s)
                digits = value if isinstance(value, tuple) else (value,)
                bases = size if isinstance(size, tuple) else (size,)
                for digit, base in zip(digits, bases, strict=True):
                    if base is not None and not 0 <= digit < base:
                        raise IndexError(f"part {digit} of ({parts}) is not in [0, {base})")
                    number = number * (base or 0) + digit
            return number

        return compute


def every(conditions: Sequence[Code]) -> Code:
    """Whether all hold; a later condition is evaluated only if those before it do."""

    def holds(s: Scope) -> bool:
        for condition in conditions:
            if not condition(s):
                return False
        return True

    return holds


def _constant_code(value: Any) -> Code:
    return lambda s: value


def _checked_integer(value: Any, position: ex.Expr) -> int:
    whole = int(value)
    if value != whole:
        raise IndexError(f"the position {position} is {value}, which is not an integer")
    return whole


def _ieee_power(base: Any, exponent: Any) -> Any:
    """base ** exponent with IEEE results; exact for integers and a natural exponent."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        return base**exponent
    if base == -math.inf and float(exponent) % 1:
        return math.nan  # as for every negative number; IEEE's pow has a value here
    return float(FUNCTIONS["pow"].numpy(float(base), float(exponent)))
