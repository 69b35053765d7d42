"""Sums over the elements on one side of a bound: one sort, and a scan in its order.

    Sum_l [a(l) < b(k)]  =  the position of b(k) among the sorted a
    Sum_l [a(l) < b(k)] f(l)  =  cumsum of f in the order of a, read at this position
    Sum_l [a(l) < b(k)] f(l) exp(h(l) - F(k)),  F(k) = logsumexp_{l, a(l) < b(k)} h(l),
    Sum_k [a(l) < b(k)] f(k) exp(h(l) - F(k))  =  recurrences in the order of a, and of b

and the same for <=, > and >=. No mask of every l with every k is built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from derive.algebra.expr import (
    MIRRORED,
    Access,
    Expr,
    Index,
    Iverson,
    Rel,
    accesses,
    free_indices,
    indices_of,
)
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import as_atom
from derive.algebra.substitution import substitute
from derive.calculus.lets import Let
from derive.calculus.softmax import NormalizedExp
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Indices, Value
from derive.program.torch_ir import Binary, FunctionCall, Literal, literal

_FEW = 16
"""A mask with so few elements or bounds takes less time than a sort."""


@dataclass(frozen=True)
class _Side:
    """The elements x op bound along the binder, where the bound has axes of its own."""

    binder: Index
    x: Expr
    op: str
    bound: Expr
    within: tuple[Expr, ...]
    """The other conditions on the elements."""
    beside: tuple[Expr, ...]
    """The conditions on binders of the bound alone."""
    outside: tuple[Expr, ...]
    """The conditions without a binder."""

    @property
    def brackets(self) -> list[Expr]:
        """The other conditions on the elements, as one bracket."""
        return [Iverson(conjunction(self.within))] if self.within else []

    @property
    def condition(self) -> Expr:
        """The comparison, in the one form that it has in a spec."""
        sides = (self.x, self.bound) if self.op[0] == "<" else (self.bound, self.x)
        return Rel(self.op.replace(">", "<"), *sides)


@dataclass(frozen=True)
class _Operands:
    """Elements with the axes (shared, binder), and bounds with the axes (shared, apart)."""

    scope: Scope
    side: _Side
    order: tuple[Index, ...]
    shared: tuple[Index, ...]
    apart: tuple[Index, ...]

    @classmethod
    def of(
        cls,
        scope: Scope,
        side: _Side,
        summand: Iterable[Expr],
        order: tuple[Index, ...],
        beside: Collection[Index] = (),
    ) -> _Operands | None:
        """Return the operands of a sum over this side; None if a mask is as good.

        ``beside`` are axes of other elements than those of the summand.
        """
        bounds, own = free_indices(side.bound), free_indices(side.x)
        within = indices_of((*side.within, *summand)) & bounds
        shared = own.union(beside, within) - {side.binder}
        apart = bounds - shared
        many = all(_are_many(scope, axes) for axes in ((side.binder,), apart))
        if scope.frame.prefers_masks or not many:
            return None
        parts = (tuple(i for i in order if i in x) for x in (shared, apart))
        return cls(scope, side, order, *parts)

    def elements(self, e: Expr) -> Value:
        return self._expanded(e, (*self.shared, self.side.binder))

    def bounds(self, e: Expr) -> Value:
        return self._expanded(e, (*self.shared, *self.apart))

    def summand(self, e: Expr, convert: Callable[[Value], Value]) -> Value:
        """Return elements that may have other axes, which are the first ones."""
        other = free_indices(e).difference(self.shared, self.apart, (self.side.binder,))
        before = tuple(i for i in self.order if i in other)
        return self._expanded(e, (*before, *self.shared, self.side.binder), convert)

    def _expanded(
        self, e: Expr, axes: tuple[Index, ...], convert: Callable[[Value], Value] | None = None
    ) -> Value:
        scope, test = self.scope, e.condition if isinstance(e, Iverson) else None
        value = scope.lower(e, axes) if test is None else scope.condition(test, axes)
        return scope.frame.expand(value if convert is None else convert(value), axes, scope.like)

    def call(
        self,
        name: str,
        f: Value | None,
        elements: Sequence[Value] = (),
        bounds: Sequence[Value] = (),
    ) -> Value:
        """Return name(f, *elements, x, op, bound, *bounds), fitted to the order of the sum."""
        x, bound = self.elements(factor(self.side.x)), self.bounds(factor(self.side.bound))
        compared = x.code, Literal(f'"{self.side.op}"'), bound.code
        front = [v.code for v in ([] if f is None else [f]) + [*elements]]
        code = FunctionCall(name, (*front, *compared, *(v.code for v in bounds)))
        others = () if f is None else f.axes[: len(f.axes) - len(self.shared) - 1]
        made = Value(code, (*others, *self.shared, *self.apart), "int" if f is None else f.kind)
        made = self.scope.frame.fit(made, self.order)
        if not self.side.outside:
            return made
        return self.scope.only_where(conjunction(self.side.outside), made, self.order)


def sum_over_side(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [a(l) < b(k)] f(l) = cumsum of f in the order of a, at the place of b(k)."""
    return _over_sides(scope, s, _sum)


def any_over_side(scope: Scope, let: Let) -> Value | None:
    """any_l (a(l) < b(k)) = their number > 0.

    By the extremum of a; under conditions, by the sum of these.
    """
    if let.kind != "any":
        return None
    s = Summation(let.binders, (scope.nested(let.body),), let.formals)
    for side in _sides(scope, s.binders, s.condition) if s.brackets else ():
        operands = _Operands.of(scope, side, (), s.order)
        if operands is not None and len(s.binders) == 1 and not side.within and not side.outside:
            return replace(operands.call("rt.any_where", None), kind="bool")
    found = sum_over_side(scope, s)
    return found and replace(found, code=Binary(">", found.code, literal(0)), kind="bool")


def mean_over_side(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [a(l) < b(k)] f(l) exp(h(l) - F(k)) = a recurrence in the order of a,
    at the place of b(k).

    A sum weighted by a softmax over one side of each bound, or the adjoint of such a sum.
    """
    return _over_sides(scope, s, _mean)


def logsumexp_over_side(scope: Scope, let: Let) -> Value | None:
    """logsumexp_{l, a(l) < b(k)} f(l) = logcumsumexp of f in the order of a,
    at the place of b(k).
    """
    if let.kind != "logsumexp" or let.condition is None or len(let.binders) > 1:
        return None
    body = scope.nested(let.body)
    for side in _sides(scope, let.binders, let.condition):
        operands = _Operands.of(scope, side, [body], let.formals)
        if operands is not None and not side.outside and side.binder in free_indices(body):
            f = _only(scope, operands.summand(body, scope.as_float), side.within)
            return operands.call("rt.logsumexp_where", f)
    return None


def _only(scope: Scope, value: Value, conditions: Sequence[Expr]) -> Value:
    """Return the exponents at full size, -inf where a condition fails."""
    value = scope.as_float(value)
    if not conditions:
        return value
    test, axes = scope.condition(conjunction(conditions), value.indices), value.indices
    nothing = Value(literal(-inf), scalar=True)
    return scope.frame.expand(scope.where(test, value, nothing, axes), axes, scope.like)


def _over_sides(
    scope: Scope, s: Summation, sum_of: Callable[[Scope, Summation, _Side], Value | None]
) -> Value | None:
    """Return the sum over the elements of one side, and then over what its weights have beside."""
    for side in _sides(scope, s.binders, s.condition) if s.brackets else ():
        apart = [f for f in s.others if side.binder not in free_indices(f)]
        beside = indices_of(f for f in apart if not free_indices(f) <= {*s.binders})
        beside |= free_indices(side.bound)
        summed = [i for i in s.binders if i in beside]
        binders = tuple(i for i in s.binders if i not in beside)
        weights = [f for f in apart if free_indices(f).isdisjoint(binders)]
        factors = tuple(f for f in s.factors if f not in weights)
        inner = Summation(binders, factors, s.order)
        free = free_indices(inner.expr)
        order = tuple(i for i in (*s.order, *summed) if i in free)
        made = sum_of(scope, replace(inner, order=order), side)
        if made is None:
            continue
        if not weights and not summed:
            return made
        weights += [Iverson(conjunction(side.beside))] if side.beside else []
        return scope.lower(summed_product(summed, (*weights, scope.held(made))), s.order)
    return None


def _sum(scope: Scope, s: Summation, side: _Side) -> Value | None:
    kept = [*side.brackets, *s.others]
    operands = _Operands.of(scope, side, kept, s.order)
    if operands is None:
        return None
    if not kept:
        return operands.call("rt.count_where", None)
    f = operands.summand(_summand(s, side, kept), scope.as_int)
    return operands.call("rt.sum_where", f)


def _mean(scope: Scope, s: Summation, side: _Side) -> Value | None:
    """Return the sum if one factor is a softmax over the elements of this side."""
    for weight in s.others:
        if isinstance(weight, NormalizedExp) and weight.kind == "softmax":
            others = tuple(f for f in s.factors if f is not weight)
            made = _weighted(scope, replace(s, factors=others), side, weight)
            if made is not None:
                return made
    return None


def _weighted(scope: Scope, s: Summation, side: _Side, weight: NormalizedExp) -> Value | None:
    at = {weight.index: weight.position}
    every = _opened(scope, substitute(weight.condition, at)) if weight.condition else ()
    if side.condition not in every:
        return None
    own = [c for c in every if c is not side.condition]
    a, level = substitute(weight.body, at), weight.level
    if weight.position is side.binder:
        level = None
    elif level is None or side.binder in indices_of((a, *own)):
        return None
    kept = [*side.brackets, *s.others]
    beside = indices_of((a, *own)) if level is None else free_indices(level)
    if any(i in beside for i in s.binders if i is not side.binder):
        return None
    operands = _Operands.of(scope, side, kept, s.order, beside)
    if operands is None or weight.position not in (side.binder, *operands.apart):
        return None
    f = operands.summand(_summand(s, side, kept), scope.as_float)
    if level is None:
        return operands.call("rt.mean_where", f, [_only(scope, operands.elements(a), own)])
    at_bounds = _only(scope, operands.bounds(a), own)
    return operands.call("rt.mean_where_adjoint", f, [operands.elements(level)], [at_bounds])


def _sides(scope: Scope, binders: Indices, condition: Expr) -> Iterator[_Side]:
    """Yield each comparison of elements along one binder with bounds that lack it."""
    conditions = _opened(scope, condition)
    for c in conditions:
        if not isinstance(c, Rel) or c.op not in ("<", "<="):
            continue
        for x, op, bound in ((c.left, c.op, c.right), (c.right, MIRRORED[c.op], c.left)):
            own = [i for i in binders if i in free_indices(x) - free_indices(bound)]
            if len(own) != 1 or own[0].group or not any(accesses(x)):
                continue
            of_bound = free_indices(bound).intersection(binders)
            read = {o: free_indices(o).intersection(binders) for o in conditions if o is not c}
            yield _Side(
                *(own[0], x, op, bound),
                within=tuple(o for o, own in read.items() if not own <= of_bound),
                beside=tuple(o for o, own in read.items() if own and own <= of_bound),
                outside=tuple(o for o, own in read.items() if not own),
            )


def _opened(scope: Scope, condition: Expr) -> tuple[Expr, ...]:
    """Return the conjuncts, with the definitions of those that are named but not computed."""
    found: list[Expr] = []
    for c in conditions_of(condition):
        body: Expr = c
        if isinstance(c, Access) and (let := scope.absent(c.tensor)) and let.kind == "sum":
            body = as_atom(let.body_at(c.positions))
        found += conditions_of(body.condition) if isinstance(body, Iverson) else (c,)
    return tuple(found)


def _summand(s: Summation, side: _Side, factors: Sequence[Expr]) -> Expr:
    """Return the product of the factors, summed over all binders but that of the side."""
    return summed_product([i for i in s.binders if i is not side.binder], factors)


def _are_many(scope: Scope, axes: Collection[Index]) -> bool:
    """True unless the axes are known to have few positions."""
    sizes = [scope.frame.bounds.size(i.extent).number for i in axes]
    return any(n is None or n > _FEW for n in sizes)
