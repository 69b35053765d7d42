"""Replace atoms of flat expressions by sums, and restore the flat form."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from derive.algebra.expr import Access, Expr, Guard, Num, Param, Pow, tensors
from derive.algebra.poly import (
    ZERO,
    FactoredSum,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    make_term,
    mul,
    poly,
    power,
    sum_over,
)
from derive.budget import tick
from derive.calculus.lets import Find

Replacement = Callable[[Expr], Poly | None]
"""The replacement of an access or a parameter; None if it stays."""


def instantiate_atoms(e: Expr, become: Replacement) -> Expr:
    """e with accesses and parameters replaced; the replacements contain no bound index of e."""
    tick()
    match e:
        case Access() | Param():
            found = become(e)
            if found is not None:
                return found
            return e
        case Poly(terms):
            made = [_instantiate_term(t, become) for t in terms]
            if all(p.terms == (t,) for p, t in zip(made, terms, strict=True)):
                return e
            return add(ZERO, *made)
        case Pow(base, Num(exponent)):
            new = instantiate_atoms(base, become)
            return e if new is base else as_atom(power(as_poly(new), exponent))
        case FactoredSum(body):
            new = instantiate_atoms(body, become)
            if isinstance(new, Poly) and len(new.terms) > 1 and not tensors(new):
                return FactoredSum(new)
            return new
        case Guard(condition, position, elsewhere):
            parts = instantiate_atoms(condition, become), instantiate_atoms(position, become)
            return Guard(parts[0], as_atom(as_poly(parts[1])), elsewhere)
    whole: Expr = e.map(lambda part: instantiate_atoms(part, become))
    return whole


def as_poly(e: Expr) -> Poly:
    """An expression as a sum."""
    return e if isinstance(e, Poly) else atom(e)


def _instantiate_term(t: Term, become: Replacement) -> Poly:
    made = [(f, instantiate_atoms(f, become)) for f in t.factors]
    changed = [as_poly(new) for f, new in made if new is not f]
    if not changed:
        return Poly((t,))
    rest = make_term(t.coef, (), [f for f, new in made if new is f])
    return sum_over(mul(poly([rest]), *changed), t.binders)


def expand_names(p: Poly, find: Find, known: dict[Access, Poly] | None = None) -> Poly:
    """p with all names expanded for which ``find`` returns a plain definition, recursively.

    ``known`` memoizes the expansion of accesses, for the same ``find``.
    """
    seen = {} if known is None else known

    def become(e: Expr) -> Poly | None:
        if not isinstance(e, Access):
            return None
        if e not in seen:
            let = find(e.tensor)
            if let is None:
                return None
            seen[e] = expand_names(let.body_at(e.positions), find, seen)
        return seen[e]

    return as_poly(instantiate_atoms(p, become))


def most_terms(p: Poly, find: Find) -> int:
    """An upper bound of the terms of any sum in p after expanding the names that ``find`` knows."""
    known: dict[str, int] = {}
    most = 0

    def of(e: Expr) -> int:
        nonlocal most
        match e:
            case Access(name):
                let = find(name)
                if let is None:
                    return 1
                if name not in known:
                    known[name] = of(let.body)
                return known[name]
            case Poly(terms):
                n = min(sum(prod(map(of, t.factors)) for t in terms), _MANY)
                most = max(most, n)
                return n
            case Pow(Access() as base, Num(exponent)):
                n = of(base)
                whole = exponent.denominator == 1 and exponent > 0
                return int(min(n**exponent, _MANY)) if whole else 1
        for part in e.parts():
            of(part)
        return 1

    of(p)
    return most


_MANY = 10**6
