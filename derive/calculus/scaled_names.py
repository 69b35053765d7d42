"""Equations that are a number times a function, so that the name gives the function's value."""

from __future__ import annotations

from collections.abc import Set

from derive.algebra.expr import Call, Const, Expr, Num, Pow, Size, free_indices, is_number, walk
from derive.algebra.poly import Poly, Term, base_and_power, make_term


def scaled_call(body: Poly) -> tuple[Call, Term] | None:
    """f(u) and c if the body is c*f(u), with c a nonzero number.

    A parameter is nonzero if u is divided by it. A size is nonzero if it is a divisor, or the size
    of an axis of f(u), which would otherwise have no elements.
    """
    if len(body.terms) != 1:
        return None
    (t,) = body.terms
    calls = [f for f in t.factors if isinstance(f, Call)]
    if len(calls) != 1 or t.binders:
        return None
    divisors = {f.base for f in walk(calls[0]) if isinstance(f, Pow) and _is_negative(f)}
    rest = tuple(f for f in t.factors if f is not calls[0])
    own = {i.extent for i in free_indices(calls[0])}
    if not all(_is_not_zero(f, divisors, own) for f in rest):
        return None
    return calls[0], make_term(t.coef, (), rest)


def _is_not_zero(f: Expr, divisors: Set[Expr], extents: Set[str]) -> bool:
    base = base_and_power(f)[0]
    if isinstance(base, Size):
        return _is_negative(f) or base.extent in extents
    return isinstance(base, Const) or (base in divisors and is_number(base))


def _is_negative(f: Expr) -> bool:
    return isinstance(f, Pow) and isinstance(f.exponent, Num) and f.exponent.value < 0
