"""Equations that are a number times a function, whose name tells the value of the function."""

from __future__ import annotations

from derive.algebra.expr import Call, Const, Num, Pow, Size, is_number, walk
from derive.algebra.poly import Poly, Term, base_and_power, make_term


def scaled_call(body: Poly) -> tuple[Call, Term] | None:
    """f(u) and c where the body is c*f(u), and c is a number that is not 0.

    A parameter is none where u is divided by it.
    """
    if len(body.terms) != 1:
        return None
    (t,) = body.terms
    calls = [f for f in t.factors if isinstance(f, Call)]
    if len(calls) != 1 or t.binders:
        return None
    divisors = {f.base for f in walk(calls[0]) if isinstance(f, Pow) and _is_negative(f)}
    rest = tuple(f for f in t.factors if f is not calls[0])
    bases = [base_and_power(f)[0] for f in rest]
    if not all(isinstance(b, Const | Size) or (b in divisors and is_number(b)) for b in bases):
        return None
    return calls[0], make_term(t.coef, (), rest)


def _is_negative(f: Pow) -> bool:
    return isinstance(f.exponent, Num) and f.exponent.value < 0
