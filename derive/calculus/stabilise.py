"""Stable forms, found while the equations are flattened and before anything is differentiated.

    (Sum_k exp f)^p               =  exp(p*lse),            lse = logsumexp_k f
    log(Sum_k exp f)              =  lse
    exp(f) * exp(-lse)            =  exp(f - lse)           within one term only
    log(c * exp(f))               =  log(c) + f             also of c * Sum_k exp f
    logsumexp_k (f + g)           =  g + logsumexp_k f      g without k
    log(1 + exp f)                =  softplus(f)            also of log1p
    log(exp f + exp g)            =  logaddexp(f, g)        each may be a sum of exponentials
    log(1 + f)                    =  log1p(f)
    1/(1 + exp f)                 =  sigmoid(-f)
    exp(f) * sigmoid(-f)          =  sigmoid(f)
    exp(f)/(exp f + exp g)        =  sigmoid(f - g)
    log(sigmoid f)                =  logsigmoid(f)
    log(1 - sigmoid f)            =  logsigmoid(-f)
    sqrt(Sum_k f^2)^2             =  Sum_k f^2              0 at 0, whatever its slope there

exp(f) is never formed where only a ratio or a logarithm of such sums is wanted, so nothing
overflows. Each identity is exact wherever its left side is defined. A name stands for its
definition: counts/total is such a ratio where counts = exp(f) and total = Sum_k counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from derive.algebra.expr import (
    Access,
    Call,
    Expr,
    Index,
    Iverson,
    Rel,
    Size,
    accesses,
    free_indices,
)
from derive.algebra.logic import conjunction
from derive.algebra.poly import (
    ONE,
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    as_poly,
    atom,
    base_and_power,
    constant,
    is_mask,
    is_positive,
    make_term,
    mul,
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
_OTHER_SIGMOID = "exp(f)·sigmoid(−f) = sigmoid(f)"


def stable_power(lets: Lets, p: Poly, exponent: Fraction) -> Poly:
    """p ** exponent in a stable form."""
    inside, times = _squared(lets, p, exponent) or (p, exponent)
    for states, apply in POWERS.items():
        made = apply(lets, inside, times)
        if made is not None:
            lets.used(states)
            return made
    return power(p, exponent)


def _squared(lets: Lets, p: Poly, exponent: Fraction) -> tuple[Poly, Fraction] | None:
    """(q, n) if p ** exponent = q ** n: a sum has a name of the engine where it is squared."""
    base, n = base_and_power(_lone_factor(p) or p)
    let = lets.definition(base.tensor) if isinstance(base, Access) else None
    opened = lets.opened(base) if let is not None and let.internal else None
    if opened is None or n.denominator != 1 or exponent.denominator != 1:
        return None
    return opened, n * exponent


def _lone_factor(p: Poly) -> Expr | None:
    """The only factor that p consists of."""
    match p.terms:
        case [Term(1, (), (factor,))]:
            return factor
    return None


def _power_of_total(lets: Lets, p: Poly, exponent: Fraction) -> Poly | None:
    if len(p.terms) != 1 or not p.terms[0].binders:
        return None
    found = _parts(lets, p.terms[0])
    if found is None or any(_exponent(f) is None for f in found.exponentials):
        return None
    if exponent.denominator != 1 and not _is_positive(found.outside.terms[0]):
        return None
    return mul(power(found.outside, exponent), exponential(scale(found.lse(lets), exponent)))


def _sigmoid(lets: Lets, p: Poly, exponent: Fraction) -> Poly | None:
    inner = _one_plus(p, 1) if exponent.denominator == 1 and exponent < 0 else None
    u = None if inner is None else _as_exponent(lets, inner)
    return None if u is None else power(atom(Call("sigmoid", (scale(u, -1),))), -exponent)


def _as_exponent(lets: Lets, p: Poly) -> Poly | None:
    """u if p = exp(u) as it is written, or by a sum of exponentials."""
    u = _lone_call(lets, p, "exp")
    if u is None and _is_exponential_term(lets, p.terms[0]):
        u = _as_logsumexp(lets, p)
    return u


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


def stable_log1p(lets: Lets, p: Poly) -> Poly:
    """log(1 + p) in a stable form; log1p is one."""
    for states, apply in LOGARITHMS:
        made = apply(lets, add(ONE, p))
        if made is not None and apply is not _log1p:
            lets.used(states)
            return made
    return atom(Call("log1p", (p,)))


def _softplus(lets: Lets, p: Poly) -> Poly | None:
    inner = _one_plus(p, 1)
    u = None if inner is None else _as_exponent(lets, inner)
    return None if u is None else atom(Call("softplus", (u,)))


def _log_of_other_sigmoid(lets: Lets, p: Poly) -> Poly | None:
    inner = _one_plus(p, -1)
    u = None if inner is None else _lone_call(lets, inner, "sigmoid")
    return None if u is None else atom(Call("logsigmoid", (scale(u, -1),)))


def _log1p(lets: Lets, p: Poly) -> Poly | None:
    inner = _one_plus(p, 1)
    return None if inner is None else atom(Call("log1p", (inner,)))


def exponential(p: Poly) -> Poly:
    """exp p; exp 0 = 1, and exp(f - logaddexp(f, g)) = sigmoid(f - g)."""
    for t in p.terms:
        match t:
            case Term(-1, (), (Call("logaddexp", (f, g)),)):
                rest = add(p, atom(t.factors[0]))
                for one, other in ((f, g), (g, f)):
                    if rest is one:
                        return atom(
                            Call("sigmoid", (add(as_poly(one), scale(as_poly(other), -1)),))
                        )
    return atom(Call("exp", (p,))) if p.terms else ONE


def merge_exponentials(lets: Lets, p: Poly) -> Poly:
    """exp(f)*exp(-lse) = exp(f - lse) in every term that divides by a sum of exponentials.

    Elsewhere exponentials stay separate: exp(a_k)*exp(b_l) factors, exp(a_k + b_l) does not.
    """
    return poly(_merge(lets, t) for t in p.terms)


def _merge(lets: Lets, t: Term) -> Term:
    t = _merge_sigmoid(lets, t)
    merged = [f for f in t.factors if _exponent(f) is not None]
    named = [f for f in t.factors if f not in merged and _may_merge(lets, f)]
    if len(merged) + len(named) < 2 or not _divides_by_a_sum(lets, merged, named):
        return t
    merged += named
    rest = [f for f in t.factors if f not in merged]
    whole = expand_cancelling(lets, add(*(_by_definition(lets, f) for f in merged)))
    lets.used(_SHARE)
    return make_term(t.coef, t.binders, [*rest, *exponential(whole).terms[0].factors])


def _merge_sigmoid(lets: Lets, t: Term) -> Term:
    """exp(f)*sigmoid(-f) = sigmoid(f)"""
    for f in t.factors:
        u = _exponent(f)
        if u is None:
            continue
        opposite = Call("sigmoid", (scale(u, -1),))
        for g in t.factors:
            base, n = base_and_power(g)
            if base is opposite and n >= 1:
                lets.used(_OTHER_SIGMOID)
                left = power(atom(opposite), n - 1).terms[0].factors
                rest = [x for x in t.factors if x is not f and x is not g]
                made = [*rest, *left, Call("sigmoid", (u,))]
                return _merge_sigmoid(lets, make_term(t.coef, t.binders, made))
    return t


def _may_merge(lets: Lets, factor: Expr) -> bool:
    """True for a named exponential, a sum of exponentials, and the reciprocal of several."""
    is_divisor = base_and_power(factor)[1] < 0 or _several(lets, factor) is None
    return is_divisor and _is_raw_or_total(lets, factor)


def _divides_by_a_sum(lets: Lets, plain: Sequence[Expr], named: Sequence[Expr]) -> bool:
    exponents = [u for f in plain if (u := _exponent(f)) is not None]
    return any(_has_logsumexp(lets, u) for u in exponents) or any(
        _has_exponential_sum(lets, f) for f in named
    )


def _has_logsumexp(lets: Lets, p: Poly) -> bool:
    """True if a logsumexp or a logaddexp is a factor of a term."""
    factors = [f for t in p.terms for f in t.factors]
    found = (lets.get(f.tensor) for f in factors if isinstance(f, Access))
    return any(let is not None and let.kind == "logsumexp" for let in found) or any(
        isinstance(f, Call) and f.function == "logaddexp" for f in factors
    )


def _exponent(factor: Expr) -> Poly | None:
    """u if the factor is written as exp(u)."""
    base, exponent = base_and_power(factor)
    if isinstance(base, Call) and base.function == "exp":
        (u,) = base.args
        assert isinstance(u, Poly)
        return scale(u, exponent)
    return None


# -------------------------------------------------------------------- exponentials by definition


def _sum_of(lets: Lets, factor: Expr) -> Poly | None:
    """The sum that the factor's base equals: a name's definition or a sum in a power."""
    base, _ = base_and_power(factor)
    found = lets.opened(base)
    p = base if found is None else found
    return p if isinstance(p, Poly) else None


def _single_term(lets: Lets, factor: Expr) -> Term | None:
    """The term that the factor's base equals, if it is a sum of one."""
    p = _sum_of(lets, factor)
    return p.terms[0] if p is not None and len(p.terms) == 1 and p.terms[0].coef == 1 else None


def _several(lets: Lets, factor: Expr) -> Poly | None:
    """The sum of several exponentials that the factor's base equals."""
    p = _sum_of(lets, factor)
    return p if p is not None and _is_several(lets, p) else None


def _is_exponential(lets: Lets, factor: Expr, several: bool = True) -> bool:
    """True if the factor is an exponential, or a sum of exponentials, after expanding names.

    Unless ``several``, such a sum has one term: those of several are not expanded inside others.
    """
    if _exponent(factor) is not None:
        return True
    t = _single_term(lets, factor)
    if t is None or not t.factors:
        return several and _several(lets, factor) is not None
    return all(
        _is_exponential(lets, f, several) or (bool(t.binders) and isinstance(f, Iverson))
        for f in t.factors
    ) and not all(isinstance(f, Iverson) for f in t.factors)


def _has_exponential_sum(lets: Lets, factor: Expr) -> bool:
    """True if an exponential after expanding names contains a sum of exponentials."""
    u = _exponent(factor)
    if u is not None:
        return _has_logsumexp(lets, u)
    t = _single_term(lets, factor)
    if t is None:
        return _several(lets, factor) is not None
    return bool(t.binders) or any(_has_exponential_sum(lets, f) for f in t.factors)


def _is_raw_or_total(lets: Lets, factor: Expr) -> bool:
    """True for a named exp(f) or power of Sum_k exp(f), not for their bounded quotient."""
    return _is_exponential(lets, factor) and len(set(_leaves(lets, factor))) == 1


def _leaves(lets: Lets, factor: Expr) -> list[bool]:
    """For each exponential in the factor, whether it is a sum of exponentials."""
    u = _exponent(factor)
    if u is not None:
        return [False] if not _has_logsumexp(lets, u) else [True, *([False] * (len(u.terms) > 1))]
    t = _single_term(lets, factor)
    if t is None or t.binders:
        return [True]
    return [total for f in t.factors for total in _leaves(lets, f)]


def _by_definition(lets: Lets, factor: Expr) -> Poly:
    """u such that an exponential, after expanding names, is exp(u)."""
    u = _exponent(factor)
    if u is not None:
        return u
    base, exponent = base_and_power(factor)
    t = _single_term(lets, factor)
    if t is None:
        p = _several(lets, factor)
        assert p is not None
        return scale(_log_of_several(lets, p), exponent)
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


@dataclass(frozen=True)
class _Total:
    """The parts of outside*Sum_binders [conditions] exponentials."""

    binders: tuple[Index, ...]
    outside: Poly
    exponentials: Sequence[Expr]
    conditions: Sequence[Expr]

    def lse(self, lets: Lets) -> Poly:
        """The logsumexp with this sum as its exponential."""
        condition = conjunction(self.conditions) if self.conditions else None
        whole = add(*(_by_definition(lets, f) for f in self.exponentials))
        return stable_logsumexp(lets, self.binders, whole, condition)


def _parts(lets: Lets, t: Term) -> _Total | None:
    """The parts of a sum of exponentials; no index of the sum is outside."""
    exponentials = [f for f in t.factors if _is_exponential(lets, f)]
    masks = [f for f in t.factors if isinstance(f, Iverson)]
    outside = [f for f in t.factors if f not in exponentials and f not in masks]
    bound = frozenset(t.binders)
    if not exponentials or any(is_mask(f) or free_indices(f) & bound for f in outside):
        return None
    whole = poly([make_term(t.coef, (), outside)])
    return _Total(t.binders, whole, exponentials, [m.condition for m in masks])


def _as_logsumexp(lets: Lets, p: Poly) -> Poly | None:
    """log p if p = c*Sum_binders [conditions] exp(f), or the name of such a sum."""
    if len(p.terms) != 1:
        return None
    (t,) = p.terms
    if t.binders:
        found = _parts(lets, t)
        if found is None:
            return None
        return add(_log_of_outside(lets, found.outside), found.lse(lets))
    if len(t.factors) != 1 or t.coef != 1 or not isinstance(t.factors[0], Access):
        return None
    body = _single_term(lets, t.factors[0])
    if body is None or not body.binders:
        return None
    return _logsumexp_of_name(lets, t.factors[0]) or _as_logsumexp(lets, poly([body]))


def _log_of_outside(lets: Lets, p: Poly) -> Poly:
    """log p; log(c/size(k)) = log c - log size(k), and log(1/c) = -log c"""
    (t,) = p.terms
    lone = _lone_factor(p)
    apart = [f for f in t.factors if _is_size(f) or (f is lone and base_and_power(f)[1] == -1)]
    rest = poly([make_term(t.coef, (), [f for f in t.factors if f not in apart])])
    powers = map(base_and_power, apart)
    logs = (scale(stable_log(lets, as_poly(base)), n) for base, n in powers)
    return add(ZERO if rest is ONE else stable_log(lets, rest), *logs)


def _is_several(lets: Lets, p: Poly) -> bool:
    """True for exp(f) + exp(g), exp(f) + exp(g) + 1, and Sum_k exp(f) + 1."""
    rest = [t for t in p.terms if t.factors]
    if not all(t.coef == 1 for t in p.terms if t not in rest):
        return False
    if len(p.terms) < 2 or not all(_is_exponential_term(lets, t) for t in rest):
        return False
    return len(rest) > 1 or _is_total(lets, rest[0])


def _is_total(lets: Lets, t: Term) -> bool:
    """True if the term is a sum of exponentials, or the name of one, times sizes."""
    factors = [f for f in t.factors if not _is_size(f)]
    return bool(t.binders) or all(_leaves(lets, f) == [True] for f in factors)


def _is_exponential_term(lets: Lets, t: Term) -> bool:
    """True if the term is an exponential, or a sum of some, times sizes and a positive number."""
    factors = [f for f in t.factors if not _is_size(f)]
    if t.binders:
        factors = [f for f in factors if not isinstance(f, Iverson)]
    return t.coef > 0 and bool(factors) and all(_is_exponential(lets, f, False) for f in factors)


def _is_positive(t: Term) -> bool:
    """True if the term is a product of sizes and a positive number."""
    return t.coef > 0 and all(map(_is_size, t.factors))


def _is_size(factor: Expr) -> bool:
    return isinstance(base_and_power(factor)[0], Size)


def _as_logaddexp(lets: Lets, p: Poly) -> Poly | None:
    return _log_of_several(lets, p) if _is_several(lets, p) else None


def _log_of_several(lets: Lets, p: Poly) -> Poly:
    """log(exp f + exp g + 1) = softplus(logaddexp(f, g))"""
    logs = []
    for t in p.terms:
        log = _as_logsumexp(lets, poly([t])) if t.binders else _log_of_product(lets, t)
        assert log is not None
        logs += [log] if t.factors else []
    made = reduce(lambda f, g: atom(Call("logaddexp", (f, g))), logs)
    return made if len(logs) == len(p.terms) else atom(Call("softplus", (made,)))


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
    ("log(1 + exp(f)) = softplus(f)", _softplus),
    ("log(exp(f) + exp(g)) = logaddexp(f, g)", _as_logaddexp),
    ("log(1 + f) = log1p(f)", _log1p),
    (_LOG_OF_SIGMOID, _log_of_other_sigmoid),
)
"""The identities of logarithms; the first that applies is used."""
