"""Expand sums of squared differences if that saves a tensor of more axes.

    Sum_d (X[i,d] - Y[j,d])^2  =  Sum_d X[i,d]^2 + Sum_d Y[j,d]^2 - 2*Sum_d X[i,d]*Y[j,d]

The left side needs every difference, a tensor of the axes i, j and d. The right side is a matrix
product, with larger rounding errors. `derive.calculus.centering` decides where to expand, and
around which center. Displayed formulas are not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement

from derive.algebra.expr import (
    Call,
    Expr,
    Index,
    Mul,
    Pow,
    Rel,
    Where,
    accesses,
    free_indices,
    node,
    num,
)
from derive.algebra.poly import (
    FactoredSum,
    Poly,
    Term,
    add,
    atom,
    base_and_power,
    is_mask,
    make_term,
    mul,
    poly,
    sum_over,
)


@node
class Nonnegative(Expr):
    """The body clamped to at least 0, as rounding may make it negative."""

    body: Expr


@node
class RobustCenter(Expr):
    """The mean if most of the values lie about it, and 0 elsewhere.

        mean if 2*mean^2 > square else 0

    with the mean of the squares. A few distant outliers, or an infinite value, make no center.
    """

    mean: Expr
    square: Expr


def in_plain_nodes(e: Expr) -> Expr:
    """Return the tree with both in nodes that formulas have: a maximum, a choice."""
    mapped: Expr = e.map(in_plain_nodes)
    match mapped:
        case Nonnegative(body):
            return Call("maximum", (body, num(0)))
        case RobustCenter(mean, square):
            return Where(Rel(">", Mul((num(2), Pow(mean, num(2)))), square), mean, num(0))
    return mapped


@dataclass(frozen=True)
class Square:
    """Sum_bound inside * base^2, and its context in the term: Sum_left outside * ..."""

    base: Poly
    bound: tuple[Index, ...]
    inside: tuple[Expr, ...]
    outside: Term
    left: tuple[Index, ...]

    def opened(self, base: Poly, is_nonnegative: bool) -> Poly:
        """The term with an equal base, the square multiplied out."""
        total = _multiplied(base, self.inside, self.bound)
        if is_nonnegative:
            total = atom(Nonnegative(total))
        elif self.outside.factors or self.left:
            total = atom(FactoredSum(total))
        return self._around(total)

    def with_base(self, base: Poly) -> Poly:
        """The term with an equal base that is a single factor."""
        return self._around(_multiplied(base, self.inside, self.bound))

    def _around(self, total: Poly) -> Poly:
        return sum_over(mul(poly([self.outside]), total), self.left)


def square_to_open(t: Term) -> Square | None:
    """A square that alone has all axes of the term, if its expansion has no tensor of as many."""
    found = (_expandable_square(t, f) for f in t.factors if t.binders)
    return next((square for square in found if square is not None), None)


def _is_smaller_opened(base: Poly, inside: Sequence[Expr], bound: frozenset[Index]) -> bool:
    """True if every product of two terms, summed with these factors, needs fewer axes."""
    if any(is_mask(f) for f in inside):
        return False
    pairs = combinations_with_replacement(base.terms, 2)
    widths = (_widest([free_indices(f) for f in (*inside, *pair)], bound) for pair in pairs)
    return all(width < len(free_indices(base)) for width in widths)


def _expandable_square(t: Term, square: Expr) -> Square | None:
    """The square with its context, if its expansion needs no tensor of as many axes."""
    base, exponent = base_and_power(square)
    if exponent != 2 or not isinstance(base, Poly):
        return None
    if sum(any(accesses(part)) for part in base.terms) < 2:
        return None
    axes = free_indices(base)
    common = axes.intersection(*(free_indices(part) for part in base.terms))
    bound = [i for i in t.binders if i in common] or [i for i in t.binders if i in axes]
    inside = [f for f in t.factors if f is not square and not free_indices(f).isdisjoint(bound)]
    if not bound or not _is_smaller_opened(base, inside, frozenset(bound)):
        return None
    outside = make_term(t.coef, (), [f for f in t.factors if f not in (square, *inside)])
    left = tuple(i for i in t.binders if i not in bound)
    return Square(base, tuple(bound), tuple(inside), outside, left)


def _widest(operands: list[frozenset[Index]], bound: frozenset[Index]) -> int:
    """The most axes of any intermediate in a sum of this product, contracted pairwise.

    The pair with the fewest axes in total comes first, and among these the one with the smallest
    result.
    """
    found = max(map(len, operands))
    while len(operands) > 1:
        steps = (
            _contract_step(operands, pair, bound) for pair in combinations(range(len(operands)), 2)
        )
        _, most, operands = min(steps, key=lambda step: step[:2])
        found = max(found, most)
    return found


def _contract_step(
    operands: list[frozenset[Index]], pair: tuple[int, int], bound: frozenset[Index]
) -> tuple[int, int, list[frozenset[Index]]]:
    """(axes of a pair of operands, axes of its summed product, the operands afterwards)."""
    others = [axes for n, axes in enumerate(operands) if n not in pair]
    both = operands[pair[0]] | operands[pair[1]]
    result = both - bound.difference(*others)
    return len(both), len(result), [*others, result]


def _multiplied(base: Poly, inside: tuple[Expr, ...], bound: tuple[Index, ...]) -> Poly:
    """Sum_bound inside * base * base, with each sum in the base as one factor."""
    whole = add(
        poly(()), *(atom(FactoredSum(poly([x]))) if x.binders else poly([x]) for x in base.terms)
    )
    return sum_over(mul(poly([make_term(Fraction(1), (), inside)]), whole, whole), bound)
