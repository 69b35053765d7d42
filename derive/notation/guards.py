"""Guard accesses: an access under a false condition is not made.

Where(c, x[p], b) becomes Where(c, x[Guard(c', p)], b), so that the algebra may move x[...] out of
the branch. c' has the conditions on indices of p. A condition on other indices becomes an
existential one: it holds for some value of these. If another condition keeps an affine p in
bounds, c' has the bounds themselves. A position that is always in bounds needs no guard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

from derive.algebra import expr as ex
from derive.algebra.affine import Affine, Polynomial, affine, room
from derive.algebra.logic import conditions_of, conjunction, connected, decided
from derive.algebra.substitution import substitute
from derive.notation.operation import Extent, Kind
from derive.notation.smart_constructors import difference

_MOST_TRIED = 16
"""At most this many positions of an index are tried as a witness."""


class UnderConditions(ABC):
    """Goes through an expression with the conditions under which each position is read."""

    @abstractmethod
    def position(self, tensor: str, n: int, e: ex.Expr, over: tuple[ex.Expr, ...]) -> ex.Expr:
        """Return what stands for e, read on axis n of a tensor where all of ``over`` hold."""

    def body(self, e: ex.Expr, over: tuple[ex.Expr, ...] = ()) -> ex.Expr:
        """Return e, under the conditions ``over``, with each position replaced."""
        match e:
            case ex.Access(tensor, positions):
                made = tuple(self.position(tensor, n, p, over) for n, p in enumerate(positions))
                return ex.Access(tensor, made)
            case ex.Where(condition, then, other):
                condition = self.body(condition, over)
                return ex.Where(
                    condition,
                    self.body(then, added_conditions(over, condition)),
                    self.body(other, added_conditions(over, _not(condition))),
                )
            case ex.Mul(args):
                return self._product(args, over)
            case ex.And(args) | ex.Or(args):
                # Short-circuit: a later operand is evaluated only if the earlier ones allow it.
                done: list[ex.Expr] = []
                known: list[ex.Expr] = []
                for arg in args:
                    done.append(self.body(arg, added_conditions(over, *known)))
                    known.append(done[-1] if isinstance(e, ex.And) else _not(done[-1]))
                return type(e)(tuple(done))
            case ex.Reduce(kind, indices, body, condition) if condition is not None:
                condition = self.body(condition, over)
                return ex.Reduce(
                    kind, indices, self.body(body, added_conditions(over, condition)), condition
                )
        mapped: ex.Expr = e.map(lambda part: self.body(part, over))
        return mapped

    def _product(self, args: tuple[ex.Expr, ...], over: tuple[ex.Expr, ...]) -> ex.Expr:
        brackets: list[ex.Expr] = []
        made: dict[int, ex.Expr] = {}
        for n, arg in enumerate(args):
            if isinstance(arg, ex.Iverson):
                condition = self.body(arg.condition, added_conditions(over, *brackets))
                brackets.append(condition)
                made[n] = ex.Iverson(condition)
        inner = added_conditions(over, *brackets)
        return ex.Mul(tuple(made.get(n) or self.body(arg, inner) for n, arg in enumerate(args)))


class Guards(UnderConditions):
    """Adds guards to the positions of one operation.

    ``axis`` returns the extent of an axis of a tensor; ``kinds`` has the kind of each tensor.
    """

    def __init__(
        self, extents: Sequence[Extent], axis: Callable[[str, int], str], kinds: Mapping[str, Kind]
    ) -> None:
        self._extents: Mapping[str, Extent] = {e.name: e for e in extents}
        self._axis = axis
        self._kinds = kinds

    def position(self, tensor: str, n: int, e: ex.Expr, over: tuple[ex.Expr, ...]) -> ex.Expr:
        """Return e, guarded by what the conditions say of its indices."""
        if isinstance(e, ex.Composite) or (isinstance(e, ex.Index) and e.group):
            return e
        axis = self._axis(tensor, n)
        made = self.body(e, over)
        if not over or (isinstance(e, ex.Index) and e.extent == axis):
            return made
        position = affine(e)
        inside = isinstance(e, ex.Num) and position is not None and all(self.within(position, axis))
        if inside:
            return made
        if position is None or position.tensors or isinstance(e, ex.Num):
            asked = self._asked(e, over)
            return ex.Guard(conjunction(asked), made) if asked else made
        qualified = [c for c in over if ex.free_indices(c) <= ex.free_indices(e)]
        below, above = self.within(position, axis)
        if below and above:
            return made
        if len(qualified) < len(over):
            bounds = [] if below else [ex.Rel("<=", ex.num(0), made)]
            bounds += [] if above else [ex.Rel("<", made, ex.Size(axis))]
            qualified = [self._said(b, qualified) for b in bounds]
        return ex.Guard(conjunction(qualified), made)

    def _said(self, bound: ex.Expr, conditions: Sequence[ex.Expr]) -> ex.Expr:
        """Return the first condition that implies the bound, else the bound."""
        own = room(bound)
        assert own is not None
        for c in conditions:
            other = room(c)
            more = None if other is None else affine(difference(own, other))
            if more is not None and not more.coefficients and not more.tensors:
                number = self._simple(more.constant).number
                if number is not None and number >= 0:
                    return c
        return bound

    def _asked(self, e: ex.Expr, over: Sequence[ex.Expr]) -> list[ex.Expr]:
        """Return what the conditions imply about the indices of e alone.

        [s[k] = n] for some n means 0 <= s[k] < size(n), and s[k] replaces n in other conditions.
        """
        own = ex.free_indices(e)
        asked: list[ex.Expr] = []
        left = list(over)
        for c in over:
            for index, value in self._equal(c):
                inside = ex.free_indices(value) <= own
                if index in own or index.group or not inside or c not in left:
                    continue
                composites = (p for x in left for p in ex.walk(x) if isinstance(p, ex.Composite))
                if any(index in p.args for p in composites):
                    # A part of a composite position must remain an index.
                    continue
                range_ = self._range(value, index)
                asked += range_
                moved = [substitute(x, {index: value}) for x in left if x is not c]
                left = [
                    _guarded_by_range(x, value, range_) for x in moved if not _holds_numerically(x)
                ]
        asked += [c for c in left if ex.free_indices(c) <= own]
        for others, members in connected(left, own):
            binders = tuple(sorted(others, key=ex.sort_key))
            if self._some(binders, members):
                continue
            asked.append(ex.Reduce("any", binders, conjunction(members)))
        return asked

    def _some(self, binders: Sequence[ex.Index], conditions: Sequence[ex.Expr]) -> bool:
        """True if some position of an index with constant size satisfies the conditions."""
        if len(binders) != 1:
            return False
        size = self._size(binders[0]).number
        return any(
            all(_holds_numerically(substitute(c, {binders[0]: ex.num(n)})) for c in conditions)
            for n in range(min(int(size or 0), _MOST_TRIED))
        )

    def _equal(self, c: ex.Expr) -> Iterator[tuple[ex.Index, ex.Expr]]:
        """Yield (index, number or integer element) if the condition equates the two."""
        if isinstance(c, ex.Rel) and c.op == "==":
            for one, other in ((c.left, c.right), (c.right, c.left)):
                integer = isinstance(other, ex.Access) and self._kinds[other.tensor] == "int"
                if isinstance(one, ex.Index) and (integer or isinstance(other, ex.Num)):
                    yield one, other

    def _range(self, value: ex.Expr, index: ex.Index) -> tuple[ex.Expr, ...]:
        """Return the parts of 0 <= value < size(index) that are not known to hold."""
        range_ = (ex.Rel("<=", ex.num(0), value), ex.Rel("<", value, ex.Size(index.extent)))
        found = affine(value) if isinstance(value, ex.Num) else None
        if found is None:
            return range_
        below, above = self._inside(found, self._size(index))
        return tuple(c for c, holds in zip(range_, (below, above), strict=True) if not holds)

    def within(self, position: Affine, axis: str) -> tuple[bool, bool]:
        """Return whether 0 <= position, and whether position < size(axis), always hold."""
        return self._inside(position, self._expand(ex.Size(axis)))

    def _inside(self, position: Affine, size: Polynomial) -> tuple[bool, bool]:
        numbers = [None if m is None else m.number for m in self._margins(position, size)]
        below, above = (n is not None and n >= 0 for n in numbers)
        return below, above

    def margins(self, position: Affine, axis: str) -> tuple[Polynomial | None, Polynomial | None]:
        """Return min(position) and size(axis) - 1 - max(position), None for unknown signs."""
        return self._margins(position, self._expand(ex.Size(axis)))

    def _margins(
        self, position: Affine, size: Polynomial
    ) -> tuple[Polynomial | None, Polynomial | None]:
        low, high = position.least(self._size), position.greatest(self._size)
        last = size - Polynomial.of(1)
        gap = None if high is None else self._simple(last) - self._simple(high)
        return None if low is None else self._simple(low), gap

    def _size(self, index: ex.Index) -> Polynomial:
        return self._expand(ex.Size(index.extent))

    def _simple(self, e: Polynomial) -> Polynomial:
        return e.at(lambda a: self._expand(a) if isinstance(a, ex.Size) else Polynomial.of(a))

    def _expand(self, size: ex.Size) -> Polynomial:
        """Return a size as a polynomial in sizes that are read from axes, if it is one."""
        extent = self._extents.get(size.extent)
        if extent is None or extent.size is None:
            return Polynomial.of(size)
        found = affine(extent.size)
        if found is None or found.coefficients or found.tensors:
            return Polynomial.of(size)
        return self._simple(found.constant)


def _holds_numerically(c: ex.Expr) -> bool:
    """True if it is a condition on exact numbers that holds."""
    return decided(c, lambda e: e.value if isinstance(e, ex.Num) else None) is True


def _guarded_by_range(e: ex.Expr, value: ex.Expr, range_: tuple[ex.Expr, ...]) -> ex.Expr:
    """Guard the value by its range in each position of e that contains it."""

    def guarded(position: ex.Expr) -> ex.Expr:
        made = _guarded_by_range(position, value, range_)
        if not any(part is value for part in ex.walk(made)):
            return made
        if isinstance(made, ex.Guard):
            return ex.Guard(conjunction(added_conditions(range_, made.condition)), made.position)
        return ex.Guard(conjunction(range_), made)

    if isinstance(e, ex.Access):
        return ex.Access(e.tensor, tuple(map(guarded, e.positions)))
    mapped: ex.Expr = e.map(lambda part: _guarded_by_range(part, value, range_))
    return mapped


def added_conditions(over: tuple[ex.Expr, ...], *more: ex.Expr) -> tuple[ex.Expr, ...]:
    """These conditions and the conjuncts of more, without duplicates."""
    return tuple(dict.fromkeys((*over, *(part for c in more for part in conditions_of(c)))))


def _not(condition: ex.Expr) -> ex.Expr:
    return condition.arg if isinstance(condition, ex.Not) else ex.Not(condition)
