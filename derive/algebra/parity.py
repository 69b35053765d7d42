"""Even and odd functions in two directions: f(b - a) = f(a - b) or -f(a - b).

The gradient of pairwise terms has both, one for each element of the pair.
"""

from __future__ import annotations

from functools import lru_cache

from derive.algebra.expr import Call, Expr, Num, Pow
from derive.algebra.functions import FUNCTIONS
from derive.algebra.poly import Poly, Term, base_and_power, make_term, poly, raised, scale


@lru_cache(maxsize=8192)
def _with_sign(e: Expr) -> tuple[Expr, int]:
    """Return (u, sign) with e = sign*u, where u is the same for e and its mirror images."""
    match e:
        case Poly():
            made = upright(e)
            assert isinstance(made, Poly)
            negative = bool(made.terms) and made.terms[0].coef < 0
            return (scale(made, -1), -1) if negative else (made, 1)
        case Call(name, (arg,)) if parity := FUNCTIONS[name].parity:
            u, sign = _with_sign(arg)
            return Call(name, (u,)), sign if parity < 0 else 1
        case Pow(base, Num(n)) if n.denominator == 1:
            u, sign = _with_sign(base)
            return Pow(u, e.exponent), sign if n % 2 else 1
    return e.map(upright), 1


def upright(e: Expr) -> Expr:
    """Return an equal expression whose even and odd functions are upright."""
    if isinstance(e, Poly):
        return poly(_turned_term(t) for t in e.terms)
    return _with_sign(e)[0] if _with_sign(e)[1] > 0 else e.map(upright)


def _turned_term(t: Term) -> Term:
    sign = 1
    factors: list[Expr] = []
    for f in t.factors:
        u, own = _with_sign(f)
        sign, factors = sign * own, [*factors, u]
    return make_term(t.coef * sign, t.binders, factors)


def in_one_direction(p: Poly) -> Poly | None:
    """Return a sum whose factors f(-u) are f(u) or -f(u), if it has both; else None.

    Roots of u and of -u stay, as neither is a number times the other.
    """
    if len(p.terms) < 2:
        return None
    alike: dict[Expr, dict[Expr, int]] = {}
    roots: set[Expr] = set()
    for base, power in dict.fromkeys(base_and_power(f) for t in p.terms for f in t.factors):
        u, sign = _with_sign(base)
        alike.setdefault(u, {})[base] = sign
        if power.denominator > 1:
            roots.add(u)
    instead: dict[Expr, tuple[Expr, int]] = {}
    for u, signs in alike.items():
        if len(signs) > 1 and not (u in roots and len({*signs.values()}) > 1):
            # Summed indices sort first, and x[i] - x[j] with a summed j reads best.
            kept = next(base for base in signs if base is not u)
            instead |= {base: (kept, signs[base] * signs[kept]) for base in signs}
    return poly(_turned(t, instead) for t in p.terms) if instead else None


def _turned(t: Term, instead: dict[Expr, tuple[Expr, int]]) -> Term:
    coef = t.coef
    factors: list[Expr] = []
    for f in t.factors:
        base, power = base_and_power(f)
        kept, sign = instead.get(base, (base, 1))
        coef = coef * sign if power % 2 else coef
        factors.append(raised(kept, power))
    return make_term(coef, t.binders, factors)
