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
    sqrt(Sum_k f^2)^2             =  Sum_k f^2              0 at 0, whatever its slope there

exp(f) is never formed where only a ratio or a logarithm of such sums is wanted, so nothing
overflows. Each identity is exact wherever its left side is defined. A name stands for its
definition: counts/total is such a ratio where counts = exp(f) and total = Sum_k counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from derive.algebra.expr import Access, Call, Expr, Index, Iverson, Rel, accesses, free_indices
from derive.algebra.logic import conjunction
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    constant,
    is_mask,
    is_positive,
    make_term,
    poly,
    power,
    scale,
    sum_over,
)
from derive.algebra.substitution import substitute
from derive.calculus.guards import some_meet
from derive.calculus.lets import Lets

_SHARE = "exp(f)/Σₖ exp(f) = exp(f − logsumexpₖ f)"
_SHIFT = "logsumexpₖ(f + g) = logsumexpₖ f + g, g without k"
_LOG_OF_EXP = "log exp(f) = f"
_LOG_OF_SIGMOID = "log sigmoid(f) = logsigmoid(f)"


def stable_power(lets: Lets, p: Poly, exponent: Fraction) -> Poly:
    """p ** exponent in a stable form."""
    for states, apply in POWERS.items():
        made = apply(lets, p, exponent)
        if made is not None:
            lets.used(states)
            return made
    return power(p, exponent)


def _power_of_total(lets: Lets, p: Poly, exponent: Fraction) -> Poly | None:
    factors = p.terms[0].factors if len(p.terms) == 1 else ()
    if not all(_exponent(f) is not None or isinstance(f, Iverson) for f in factors):
        return None
    lse = _as_logsumexp(lets, p)
    return None if lse is None else exponential(scale(lse, exponent))


def _sigmoid(lets: Lets, p: Poly, exponent: Fraction) -> Poly | None:
    inner = _one_plus(p, 1) if exponent.denominator == 1 and exponent < 0 else None
    u = None if inner is None else _lone_call(lets, inner, "exp")
    return None if u is None else power(atom(Call("sigmoid", (scale(u, -1),))), -exponent)


def _square_of_root(lets: Lets, p: Poly, exponent: Fraction) -> Poly | None:
    """An even power of the root of a sum of squares, which may be 0 by a case of its own."""
    root = as_atom(p) if exponent > 0 and exponent % 2 == 0 else None
    let = lets.get(root.tensor) if isinstance(root, Access) else None
    if let is None or let.name in lets.variables or let.condition is not None:
        return None
    assert isinstance(root, Access)
    inside = sum_over(power(let.body, Fraction(2)), let.binders) if let.kind == "norm2" else None
    if let.kind == "sum" and len(let.body.terms) == 1:
        inside = _under_root(lets, let.body.terms[0])
    at = dict(zip(let.formals, root.positions, strict=True))
    return None if inside is None else power(substitute(inside, at), exponent / 2)


def _under_root(lets: Lets, t: Term) -> Poly | None:
    """v if the term is [v != 0]*sqrt(v) or [0 < v]*sqrt(v), and v is nonnegative."""
    roots = [base_and_power(f) for f in t.factors if not isinstance(f, Iverson)]
    if len(roots) != 1 or roots[0][1] != Fraction(1, 2) or t.binders or t.coef != 1:
        return None
    base = roots[0][0]
    v = base if isinstance(base, Poly) else atom(base)
    zero = {Rel("!=", ZERO, v), Rel("!=", v, ZERO), Rel("<", ZERO, v)}
    asked = {f.condition for f in t.factors if isinstance(f, Iverson)}
    return v if asked <= zero and _is_sum_of_squares(lets, v) else None


def _is_sum_of_squares(lets: Lets, p: Poly) -> bool:
    """True if p is nonnegative by its form."""
    name = as_atom(p)
    let = lets.definition(name.tensor) if isinstance(name, Access) else None
    terms = p.terms if let is None else let.body.terms
    powers = [base_and_power(f) for t in terms for f in t.factors]
    return all(t.coef > 0 for t in terms) and all(
        n % 2 == 0 or is_mask(base) or is_positive(base) for base, n in powers
    )


POWERS: Mapping[str, Callable[[Lets, Poly, Fraction], Poly | None]] = {
    "(Σₖ exp(f))ᵖ = exp(p·logsumexpₖ f)": _power_of_total,
    "1/(1 + exp(f)) = sigmoid(−f)": _sigmoid,
    "√(Σₖ f²)² = Σₖ f²": _square_of_root,
}
"""The identities of powers; the first that applies is used."""


def stable_logsumexp(
    lets: Lets, binders: tuple[Index, ...], body: Poly, condition: Expr | None
) -> Poly:
    """logsumexp over binders, with the terms that lack them outside."""
    bound = frozenset(binders)
    if condition is not None and some_meet(lets.bounds, condition, binders) != ():
        # The logsumexp of nothing is -inf, which has no terms to pull out.
        return lets.reduction("logsumexp", binders, body, condition)
    body = _shifts_opened(lets, body, bound)
    outside = poly(t for t in body.terms if not free_indices(t) & bound)
    inside = poly(t for t in body.terms if free_indices(t) & bound)
    if not inside.terms:
        inside, outside = body, poly(())
    if outside.terms:
        lets.used(_SHIFT)
    return add(outside, lets.reduction("logsumexp", binders, inside, condition))


def stable_log(lets: Lets, p: Poly) -> Poly:
    """log p in a stable form."""
    for states, apply in LOGARITHMS:
        made = apply(lets, p)
        if made is not None:
            lets.used(states)
            return made
    if len(p.terms) == 1 and not p.terms[0].binders:
        return _log_of_product(lets, p.terms[0])
    return atom(Call("log", (p,)))


def _log_one_plus(sign: int, inside: str, function: str) -> Callable[[Lets, Poly], Poly | None]:
    """log(1 + sign*inside(f)) = function(sign*f)."""

    def stable(lets: Lets, p: Poly) -> Poly | None:
        inner = _one_plus(p, sign)
        u = None if inner is None else _lone_call(lets, inner, inside)
        return None if u is None else atom(Call(function, (scale(u, sign),)))

    return stable


def _log1p(lets: Lets, p: Poly) -> Poly | None:
    inner = _one_plus(p, 1)
    return None if inner is None else atom(Call("log1p", (inner,)))


def exponential(p: Poly) -> Poly:
    """exp p; exp 0 = 1."""
    return atom(Call("exp", (p,))) if p.terms else ONE


def merge_exponentials(lets: Lets, p: Poly) -> Poly:
    """exp(f)*exp(-lse) = exp(f - lse) in every term that divides by a sum of exponentials.

    Elsewhere exponentials stay separate: exp(a_k)*exp(b_l) factors, exp(a_k + b_l) does not.
    """
    return poly(_merge(lets, t) for t in p.terms)


def _merge(lets: Lets, t: Term) -> Term:
    merged = [f for f in t.factors if _exponent(f) is not None]
    named = [f for f in t.factors if f not in merged and _is_raw_or_total(lets, f)]
    if len(merged) + len(named) < 2 or not _divides_by_a_sum(lets, merged, named):
        return t
    merged += named
    rest = [f for f in t.factors if f not in merged]
    whole = expand_cancelling(lets, add(*(_by_definition(lets, f) for f in merged)))
    lets.used(_SHARE)
    factors = [Call("exp", (whole,))] if whole.terms else []
    return make_term(t.coef, t.binders, [*rest, *factors])


def _divides_by_a_sum(lets: Lets, plain: Sequence[Expr], named: Sequence[Expr]) -> bool:
    exponents = [u for f in plain if (u := _exponent(f)) is not None]
    return any(_has_logsumexp(lets, u) for u in exponents) or any(
        _has_exponential_sum(lets, f) for f in named
    )


def _has_logsumexp(lets: Lets, p: Poly) -> bool:
    """True if a logsumexp is a factor of a term."""
    found = (lets.get(f.tensor) for t in p.terms for f in t.factors if isinstance(f, Access))
    return any(let is not None and let.kind == "logsumexp" for let in found)


def _exponent(factor: Expr) -> Poly | None:
    """u if the factor is written as exp(u)."""
    base, exponent = base_and_power(factor)
    if isinstance(base, Call) and base.function == "exp":
        (u,) = base.args
        assert isinstance(u, Poly)
        return scale(u, exponent)
    return None


# -------------------------------------------------------------------- exponentials by definition


def _single_term(lets: Lets, factor: Expr) -> Term | None:
    """The single term that the factor's base equals: a name's definition or a sum in a power."""
    base, _ = base_and_power(factor)
    found = lets.opened(base)
    p = base if found is None else found
    if isinstance(p, Poly) and len(p.terms) == 1 and p.terms[0].coef == 1:
        return p.terms[0]
    return None


def _is_exponential(lets: Lets, factor: Expr) -> bool:
    """True if the factor is an exponential, or a sum of exponentials, after expanding names."""
    if _exponent(factor) is not None:
        return True
    t = _single_term(lets, factor)
    if t is None or not t.factors:
        return False
    return all(
        _is_exponential(lets, f) or (bool(t.binders) and isinstance(f, Iverson)) for f in t.factors
    ) and not all(isinstance(f, Iverson) for f in t.factors)


def _has_exponential_sum(lets: Lets, factor: Expr) -> bool:
    """True if an exponential after expanding names contains a sum of exponentials."""
    u = _exponent(factor)
    if u is not None:
        return _has_logsumexp(lets, u)
    t = _single_term(lets, factor)
    return t is not None and (
        bool(t.binders) or any(_has_exponential_sum(lets, f) for f in t.factors)
    )


def _is_raw_or_total(lets: Lets, factor: Expr) -> bool:
    """True for a named exp(f) or power of Sum_k exp(f), not for their bounded quotient."""
    return _is_exponential(lets, factor) and len(set(_leaves(lets, factor))) == 1


def _leaves(lets: Lets, factor: Expr) -> list[bool]:
    """For each exponential in the factor, whether it is a sum of exponentials."""
    u = _exponent(factor)
    if u is not None:
        return [False] if not _has_logsumexp(lets, u) else [True, *([False] * (len(u.terms) > 1))]
    t = _single_term(lets, factor)
    assert t is not None
    return [True] if t.binders else [total for f in t.factors for total in _leaves(lets, f)]


def _by_definition(lets: Lets, factor: Expr) -> Poly:
    """u such that an exponential, after expanding names, is exp(u)."""
    u = _exponent(factor)
    if u is not None:
        return u
    t = _single_term(lets, factor)
    assert t is not None
    base, exponent = base_and_power(factor)
    if t.binders:
        total = _logsumexp_of_name(lets, base) or _as_logsumexp(lets, poly([t]))
        assert total is not None
        return scale(total, exponent)
    return scale(add(poly(()), *(_by_definition(lets, f) for f in t.factors)), exponent)


def expand_cancelling(lets: Lets, p: Poly) -> Poly:
    """p with names expanded where their terms cancel: (f - m) - (lse - m) = f - lse."""
    for t in p.terms:
        opened = _with_opened(lets, p, t)
        if opened is not None and len(opened.terms) < len(p.terms):
            return expand_cancelling(lets, opened)
    return p


def _with_opened(lets: Lets, p: Poly, t: Term) -> Poly | None:
    """p with the name in a term replaced by the sum that defines it."""
    if t.binders or len(t.factors) != 1 or not isinstance(t.factors[0], Access):
        return None
    found = lets.opened(t.factors[0])
    if found is None or len(found.terms) < 2:
        return None
    return add(p, poly([make_term(-t.coef, (), t.factors)]), scale(found, t.coef))


def _shifts_opened(lets: Lets, p: Poly, bound: frozenset[Index]) -> Poly:
    """p with names expanded whose definitions have a term without the bound indices."""
    for t in p.terms:
        opened = _with_opened(lets, p, t) if free_indices(t) & bound else None
        if opened is not None:
            new = [x for x in opened.terms if x not in p.terms]
            inside = [x for x in new if free_indices(x) & bound]
            if len(inside) < len(new) and all(_is_name(x) for x in inside):
                return _shifts_opened(lets, opened, bound)
    return p


def _is_name(t: Term) -> bool:
    """True if the term is a bare tensor, so that expressions of it can fold to their names."""
    return not t.binders and len(t.factors) == 1 and isinstance(t.factors[0], Access)


def _as_logsumexp(lets: Lets, p: Poly) -> Poly | None:
    """The logsumexp with exponential p = Sum_binders [conditions] exp(f), if p has this form."""
    if len(p.terms) != 1 or p.terms[0].coef != 1:
        return None
    (t,) = p.terms
    if not t.binders:
        # The sum may have a name.
        if len(t.factors) == 1 and isinstance(t.factors[0], Access):
            body = _single_term(lets, t.factors[0])
            if body is not None and body.binders:
                named = _logsumexp_of_name(lets, t.factors[0])
                return named or _as_logsumexp(lets, poly([body]))
        return None
    exponentials = [f for f in t.factors if _is_exponential(lets, f)]
    conditions = [f.condition for f in t.factors if isinstance(f, Iverson)]
    if not exponentials or len(exponentials) + len(conditions) != len(t.factors):
        return None
    exponents = (_by_definition(lets, f) for f in exponentials)
    condition = conjunction(conditions) if conditions else None
    return stable_logsumexp(lets, t.binders, add(*exponents), condition)


def _logsumexp_of_name(lets: Lets, base: Expr) -> Poly | None:
    """The logsumexp of a named sum that is read at computed positions.

    It is computed once per entry of the sum and then gathered: t[s[k]] is not summed for every k.
    """
    let = lets.definition(base.tensor) if isinstance(base, Access) else None
    if let is None or not isinstance(base, Access):
        return None
    if all(isinstance(p, Index) for p in base.positions):
        return None
    total = _as_logsumexp(lets, let.body)
    if total is None:
        return None
    for a in accesses(total):
        if (made := lets.get(a.tensor)) is not None and made.kind == "logsumexp":
            lets.as_variable(a.tensor)
    return substitute(total, dict(zip(let.formals, base.positions, strict=True)))


def _one_plus(p: Poly, sign: int) -> Poly | None:
    """f if p = 1 + sign*f and f is one term."""
    if len(p.terms) != 2:
        return None
    rest = add(p, constant(-1))
    if len(rest.terms) != 1 or rest.terms[0].coef != sign:
        return None
    return scale(rest, sign)


def _lone_call(lets: Lets, p: Poly, function: str) -> Poly | None:
    """The argument if p is exactly this function of it, directly or by its definition."""
    if len(p.terms) != 1 or p.terms[0].coef != 1 or p.terms[0].binders:
        return None
    factors = p.terms[0].factors
    if len(factors) != 1:
        return None
    if isinstance(factors[0], Call) and factors[0].function == function:
        (u,) = factors[0].args
        assert isinstance(u, Poly)
        return u
    found = lets.opened(factors[0])
    return None if found is None else _lone_call(lets, found, function)


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
    return expand_cancelling(lets, add(poly(()), *outside))


def _known_log(lets: Lets, factor: Expr) -> Poly | None:
    """log of a factor that is an exponential or a sigmoid, directly or by its definition."""
    if _is_exponential(lets, factor):
        lets.used(_LOG_OF_EXP)
        return _by_definition(lets, factor)
    base, exponent = base_and_power(factor)
    if isinstance(base, Call) and base.function == "sigmoid":
        lets.used(_LOG_OF_SIGMOID)
        return scale(atom(Call("logsigmoid", base.args)), exponent)
    t = _single_term(lets, factor)
    if t is None or t.binders or len(t.factors) != 1:
        return None
    known = _known_log(lets, t.factors[0])
    return None if known is None else scale(known, exponent)


LOGARITHMS: Sequence[tuple[str, Callable[[Lets, Poly], Poly | None]]] = (
    ("log Σₖ exp(f) = logsumexpₖ f", _as_logsumexp),
    ("log(1 + exp(f)) = softplus(f)", _log_one_plus(1, "exp", "softplus")),
    ("log(1 + f) = log1p(f)", _log1p),
    (_LOG_OF_SIGMOID, _log_one_plus(-1, "sigmoid", "logsigmoid")),
)
"""The identities of logarithms; the first that applies is used."""
