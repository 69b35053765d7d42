"""Stable forms, found while the equations are flattened and before anything is differentiated.

    (Sum_k exp f)^p               =  exp(p*lse),            lse = logsumexp_k f
    log(Sum_k exp f)              =  lse
    exp(f) * exp(-lse)            =  exp(f - lse)           within one term only
    log(c * exp(f))               =  log(c) + f
    logsumexp_k (f + g)           =  g + logsumexp_k f      g without k
    log(1 + exp f)                =  softplus(f)
    log(1 + f)                    =  log1p(f)
    1/(1 + exp f)                 =  sigmoid(-f)
    log(sigmoid f)                =  logsigmoid(f)
    log(1 - sigmoid f)            =  logsigmoid(-f)

exp(f) is never formed where only a ratio or a logarithm of such sums is wanted, so nothing
overflows. Each identity is exact wherever its left side is defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.expr import Access, And, Call, Expr, Index, Iverson, free_indices
from derive.algebra.poly import (
    ONE,
    Poly,
    Term,
    add,
    atom,
    base_and_power,
    constant,
    make_term,
    poly,
    power,
    scale,
)
from derive.calculus.lets import Lets

__all__ = ["merge_exponentials", "stable_log", "stable_logsumexp", "stable_power"]


def stable_power(lets: Lets, p: Poly, exponent: Fraction) -> Poly:
    """p ** exponent in a stable form."""
    lse = _as_logsumexp(lets, p)
    if lse is not None:
        return exponential(scale(lse, exponent))
    if exponent.denominator == 1 and exponent < 0:
        inner = _one_plus(p, 1)
        if inner is not None and (u := _lone_call(inner, "exp")) is not None:
            return power(atom(Call("sigmoid", (scale(u, -1),))), -exponent)
    return power(p, exponent)


def stable_logsumexp(
    lets: Lets, binders: tuple[Index, ...], body: Poly, condition: Expr | None
) -> Poly:
    """logsumexp over binders, with the terms that lack them outside."""
    bound = frozenset(binders)
    outside = poly(t for t in body.terms if not free_indices(t) & bound)
    inside = poly(t for t in body.terms if free_indices(t) & bound)
    if not inside.terms:
        inside, outside = body, poly(())
    return add(outside, lets.reduction("logsumexp", binders, inside, condition))


def stable_log(lets: Lets, p: Poly) -> Poly:
    """log p in a stable form."""
    lse = _as_logsumexp(lets, p)
    if lse is not None:
        return lse
    for sign in (1, -1):
        inner = _one_plus(p, sign)
        if inner is None:
            continue
        if sign == 1 and (u := _lone_call(inner, "exp")) is not None:
            return atom(Call("softplus", (u,)))
        if sign == -1 and (u := _lone_call(inner, "sigmoid")) is not None:
            return atom(Call("logsigmoid", (scale(u, -1),)))
        if sign == 1:
            return atom(Call("log1p", (inner,)))
    if len(p.terms) == 1 and not p.terms[0].binders:
        return _log_of_product(lets, p.terms[0])
    return atom(Call("log", (p,)))


def exponential(p: Poly) -> Poly:
    """exp p; exp 0 = 1."""
    return atom(Call("exp", (p,))) if p.terms else ONE


def merge_exponentials(lets: Lets, p: Poly) -> Poly:
    """exp(f)*exp(-lse) = exp(f - lse) in every term that divides by a sum of exponentials.

    Exponentials are left apart elsewhere: exp(a_k)*exp(b_l) factors, exp(a_k + b_l) does not.
    """
    return poly(_merge(lets, t) for t in p.terms)


def _merge(lets: Lets, t: Term) -> Term:
    exponents = [(f, u) for f in t.factors if (u := _exponent(f)) is not None]
    if len(exponents) < 2 or not any(_has_logsumexp(lets, u) for _, u in exponents):
        return t
    merged = [f for f, _ in exponents]
    rest = [f for f in t.factors if f not in merged]
    whole = add(*(u for _, u in exponents))
    factors = [Call("exp", (whole,))] if whole.terms else []
    return make_term(t.coef, t.binders, [*rest, *factors])


def _has_logsumexp(lets: Lets, p: Poly) -> bool:
    for t in p.terms:
        for f in t.factors:
            if isinstance(f, Access):
                let = lets.get(f.tensor)
                if let is not None and let.kind == "logsumexp":
                    return True
    return False


def _exponent(factor: Expr) -> Poly | None:
    """u where the factor is exp(u)."""
    base, exponent = base_and_power(factor)
    if isinstance(base, Call) and base.function == "exp":
        (u,) = base.args
        assert isinstance(u, Poly)
        return scale(u, exponent)
    return None


def _as_logsumexp(lets: Lets, p: Poly) -> Poly | None:
    """The logsumexp whose exponential is p = Sum_binders [conditions] exp(f), if it is one."""
    if len(p.terms) != 1 or not p.terms[0].binders or p.terms[0].coef != 1:
        return None
    (t,) = p.terms
    exponents = []
    conditions: list[Expr] = []
    for factor in t.factors:
        u = _exponent(factor)
        if u is not None:
            exponents.append(u)
        elif isinstance(factor, Iverson):
            conditions.append(factor.condition)
        else:
            return None
    if not exponents:
        return None
    condition = _conjunction(conditions)
    return stable_logsumexp(lets, t.binders, add(*exponents), condition)


def _conjunction(conditions: Sequence[Expr]) -> Expr | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _one_plus(p: Poly, sign: int) -> Poly | None:
    """f where p = 1 + sign*f and f is one term."""
    if len(p.terms) != 2:
        return None
    rest = add(p, constant(-1))
    if len(rest.terms) != 1 or rest.terms[0].coef != sign:
        return None
    return scale(rest, sign)


def _lone_call(p: Poly, function: str) -> Poly | None:
    """The argument where p is exactly that function of it."""
    if len(p.terms) != 1 or p.terms[0].coef != 1 or p.terms[0].binders:
        return None
    factors = p.terms[0].factors
    if len(factors) == 1 and isinstance(factors[0], Call) and factors[0].function == function:
        (u,) = factors[0].args
        assert isinstance(u, Poly)
        return u
    return None


def _log_of_product(lets: Lets, t: Term) -> Poly:
    """log(c*exp(f)*sigmoid(g)*...) = log(c) + f + logsigmoid(g) + ..."""
    outside: list[Poly] = []
    rest: list[Expr] = []
    for factor in t.factors:
        split = _known_log(lets, factor)
        if split is None:
            rest.append(factor)
        else:
            outside.append(split)
    remainder = poly([make_term(t.coef, (), rest)])
    if remainder is not ONE:
        outside.append(atom(Call("log", (remainder,))))
    return add(poly(()), *outside)


def _known_log(lets: Lets, factor: Expr) -> Poly | None:
    """log of a factor that is an exponential or a sigmoid, by itself or by its definition."""
    u = _exponent(factor)
    if u is not None:
        return u
    base, exponent = base_and_power(factor)
    if isinstance(base, Call) and base.function == "sigmoid":
        return scale(atom(Call("logsigmoid", base.args)), exponent)
    if isinstance(base, Access):
        let = lets.get(base.tensor)
        if let is not None and let.kind == "sum" and len(let.body.terms) == 1:
            (t,) = let.body_at(base.positions).terms
            if t.coef == 1 and not t.binders and len(t.factors) == 1:
                known = _known_log(lets, t.factors[0])
                return None if known is None else scale(known, exponent)
    return None
