"""Sums of squared differences multiplied out, where that saves a tensor of more axes.

    Sum_d (X[i,d] - Y[j,d])^2  =  Sum_d X[i,d]^2 + Sum_d Y[j,d]^2 - 2*Sum_d X[i,d]*Y[j,d]

The left side needs every difference, a tensor of the axes i, j and d; the right side is a matrix
product. It rounds more: an operation that says ``stable`` names its differences, and nothing is
left here to multiply out. The formulas that a person sees stay as they are.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, combinations_with_replacement

from derive.algebra.expr import Access, Call, Expr, Index, accesses, free_indices, node
from derive.algebra.poly import (
    Group,
    Poly,
    Term,
    add,
    atom,
    base_and_power,
    is_mask,
    is_positive,
    make_term,
    mul,
    poly,
    sum_over,
)

__all__ = ["Nonnegative", "squares_multiplied_out"]


@node
class Nonnegative(Expr):
    """The body, which is at least 0 but for rounding: what is below is 0."""

    body: Expr


def squares_multiplied_out(e: Expr) -> Expr:
    """e, flat, with sums of squares multiplied out where that needs tensors of fewer axes."""
    if isinstance(e, Access):
        return e
    inner: Expr = e.map(squares_multiplied_out)
    if not isinstance(inner, Poly):
        return inner
    return add(poly(()), *(_opened(t) for t in inner.terms))


def _opened(t: Term) -> Poly:
    """The term with a square multiplied out that alone has all of its axes."""
    found = (_without(t, f) for f in t.factors if t.binders)
    return next((p for p in found if p is not None), poly([t]))


def _without(t: Term, square: Expr) -> Poly | None:
    """The term with the square multiplied out, if no tensor of as many axes is needed then."""
    base, exponent = base_and_power(square)
    if exponent != 2 or not isinstance(base, Poly):
        return None
    if sum(1 for part in base.terms if any(accesses(part))) < 2:
        return None
    axes = free_indices(base)
    common = axes.intersection(*(free_indices(part) for part in base.terms))
    bound = [i for i in t.binders if i in common] or [i for i in t.binders if i in axes]
    rest = [f for f in t.factors if f is not square]
    inside = [f for f in rest if free_indices(f) & frozenset(bound)]
    if not bound or any(is_mask(f) for f in inside):
        return None
    for pair in combinations_with_replacement(base.terms, 2):
        if _widest([free_indices(f) for f in (*inside, *pair)], frozenset(bound)) >= len(axes):
            return None
    outside = [f for f in rest if f not in inside]
    left = [i for i in t.binders if i not in bound]
    total = _multiplied(base, inside, bound)
    if all(_is_nonnegative(f) for f in inside):
        total = atom(Nonnegative(total))
    elif outside or left:
        total = atom(Group(total))
    return sum_over(mul(poly([make_term(t.coef, (), outside)]), total), left)


def _widest(operands: list[frozenset[Index]], bound: frozenset[Index]) -> int:
    """The most axes of any tensor in a sum over the product of these, joined in pairs.

    The pair with the fewest axes in all comes first, and of these that with the smallest result.
    """
    found = max(map(len, operands))
    while len(operands) > 1:
        steps = (_step(operands, pair, bound) for pair in combinations(range(len(operands)), 2))
        _, most, operands = min(steps, key=lambda step: step[:2])
        found = max(found, most)
    return found


def _step(
    operands: list[frozenset[Index]], pair: tuple[int, int], bound: frozenset[Index]
) -> tuple[int, int, list[frozenset[Index]]]:
    """(axes of a pair of operands, axes of its product summed, the operands then)."""
    others = [axes for n, axes in enumerate(operands) if n not in pair]
    both = operands[pair[0]] | operands[pair[1]]
    result = both - bound.difference(*others)
    return len(both), len(result), [*others, result]


def _multiplied(base: Poly, inside: list[Expr], bound: list[Index]) -> Poly:
    """Sum_bound inside * base * base, a sum in the base being one factor."""
    whole = add(poly(()), *(atom(Group(poly([x]))) if x.binders else poly([x]) for x in base.terms))
    return sum_over(mul(poly([make_term(Fraction(1), (), inside)]), whole, whole), bound)


def _is_nonnegative(factor: Expr) -> bool:
    """Whether the factor is at least 0 wherever it has a value."""
    base, exponent = base_and_power(factor)
    if exponent.denominator != 1 or exponent.numerator % 2 == 0 or is_positive(base):
        return True
    return isinstance(base, Call) and base.function in ("abs", "relu", "softplus")
