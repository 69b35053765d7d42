"""Merge quotients by x and by max(x, e), where a bracket selects between the two.

a/max(x, e) + [x ≥ e]*b/x       (a + [x ≥ e]*b)/max(x, e)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.expr import (
    Add,
    Call,
    Expr,
    Iverson,
    Num,
    Pow,
    Rel,
    factors_of,
    product_of,
    walk,
)
from derive.algebra.poly import raised
from derive.show.legible import map_legible


def bounded(e: Expr) -> Expr:
    """Merge quotients by x and by max(x, e) into one; return e if nothing changed."""
    if not any(isinstance(part, Call) and part.function == "clamp" for part in walk(e)):
        return e
    return map_legible(
        e, lambda part: _merge_bounded_quotients(part) if isinstance(part, Add) else part
    )


def _merge_bounded_quotients(e: Add) -> Expr:
    terms = [_exponents_by_base(a) for a in e.args]
    changed = False
    for bound in dict.fromkeys(b for t in terms for b, n in t.items() if _is_bound(b) and n < 0):
        assert isinstance(bound, Call)
        x, least = bound.args
        for t in terms:
            if Iverson(Rel(">=", x, least)) in t and x in t:
                t[bound] = t.get(bound, Fraction(0)) + t.pop(x)
                changed = True
    return _factor_exponents(terms) if changed else e


def _is_bound(e: Expr) -> bool:
    return isinstance(e, Call) and e.function == "max"


def _exponents_by_base(e: Expr) -> dict[Expr, Fraction]:
    """Return base -> exponent of a product; a number is a base of its own."""
    found: dict[Expr, Fraction] = {}
    for f in factors_of(e):
        base, n = f, Fraction(1)
        if isinstance(f, Pow) and isinstance(f.exponent, Num):
            base, n = f.base, f.exponent.value
        found[base] = found.get(base, Fraction(0)) + n
    return found


def _factor_exponents(terms: Sequence[dict[Expr, Fraction]]) -> Expr:
    """Return the sum of the terms with their common factors pulled out."""
    outside: dict[Expr, Fraction] = {}
    for base, n in terms[0].items():
        every = [t.get(base, Fraction(0)) for t in terms]
        if isinstance(base, Num | Iverson) or not (max(every) < 0 or min(every) > 0):
            continue
        outside[base] = max(every) if n < 0 else min(every)
    left = [{b: n - outside.get(b, 0) for b, n in t.items()} for t in terms]
    return product_of(
        [*_factors_of_powers(outside), Add(tuple(product_of(_factors_of_powers(t)) for t in left))]
    )


def _factors_of_powers(powers: dict[Expr, Fraction]) -> list[Expr]:
    return [raised(base, n) for base, n in powers.items() if n]
