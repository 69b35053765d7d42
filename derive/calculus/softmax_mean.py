"""Differences from a mean, P*(Y - Sum_k P*Y), for a share P = exp(f - logsumexp_k f).

If all of P is at one position, Y there and the mean are equal, and the difference is exactly 0.
That needs the mean to be taken of the same numbers. Computed otherwise, as Sum_e G[e]*o[e] for Y[k]
= Sum_e G[e]*v[k,e], it differs by a rounding error. The gradient of a saturated softmax is much
smaller than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from derive.algebra.expr import Access, Call, Expr, Index, Iverson, free_indices
from derive.algebra.match import match
from derive.algebra.poly import Poly, Term, make_term, poly
from derive.calculus.lets import Lets


def sums_apart(t: Term) -> Iterator[tuple[tuple[Index, ...], tuple[Expr, ...]]]:
    """The independent sums in t: bound indices and the factors that have them."""
    pending = list(t.binders)
    while pending:
        bound = {pending.pop(0)}
        while True:
            factors = [f for f in t.factors if free_indices(f) & bound]
            reached = {i for f in factors for i in free_indices(f) if i in t.binders}
            if reached <= bound:
                break
            bound |= reached
        pending = [i for i in pending if i not in bound]
        yield tuple(i for i in t.binders if i in bound), tuple(factors)


def _is_softmax_share(lets: Lets, f: Expr, k: Index) -> bool:
    """True if f is exp(f(k) - logsumexp_k f), or a name for it under brackets."""
    if isinstance(f, Access):
        let = lets.get(f.tensor)
        if let is None or let.kind != "sum" or k not in f.positions or len(let.body.terms) != 1:
            return False
        (t,) = let.body.terms
        formal = let.formals[f.positions.index(k)]
        return not t.binders and any(_is_softmax_share(lets, inner, formal) for inner in t.factors)
    if not isinstance(f, Call) or f.function != "exp" or k not in free_indices(f):
        return False
    (u,) = f.args
    assert isinstance(u, Poly)
    for t in u.terms:
        name = t.factors[0] if t.coef == -1 and len(t.factors) == 1 else None
        if isinstance(name, Access) and k not in free_indices(name):
            let = lets.get(name.tensor)
            if let is not None and let.kind == "logsumexp":
                return any(i.extent == k.extent for i in let.binders)
    return False


_Sum = tuple[tuple[Index, ...], tuple[Expr, ...]]
"""Bound indices, and the factors that have them, or the value itself without bound indices."""


def _means(lets: Lets, t: Term) -> Iterator[tuple[Index, _Sum]]:
    """(k, Y) for each sum over k of a share and Y in t."""
    for binders, factors in sums_apart(t):
        for k in binders:
            shares = [f for f in factors if _is_softmax_share(lets, f, k)]
            inner = tuple(i for i in binders if i is not k)
            # The binders of Y must not occur in the share.
            if not shares or any(free_indices(f) & frozenset(inner) for f in shares):
                continue
            rest = tuple(
                f
                for f in factors
                if f not in shares
                and not (isinstance(f, Iverson) and not free_indices(f) & frozenset(inner))
            )
            if rest and all(any(i in free_indices(f) for f in rest) for i in inner):
                yield k, (inner, rest)


def _values(t: Term, like: _Sum) -> Iterator[_Sum]:
    """Candidates for Y in t: its sums, or its factors if Y is no sum."""
    if like[0]:
        yield from sums_apart(t)
    elif len(like[1]) == 1:
        bound = frozenset(t.binders)
        yield from (((), (f,)) for f in t.factors if not free_indices(f) & bound)


def _compared_values(p: Poly, t: Term, k: Index, value: _Sum) -> Iterator[tuple[Term, Index, _Sum]]:
    """(another term, the position, Y there) for each term that reads Y outside of the mean."""
    binders, factors = value
    pattern = Term(Fraction(1), binders, factors)
    for u in p.terms:
        if u is t:
            continue
        for there in _values(u, value):
            target = make_term(Fraction(1), *there)
            for binding in match(pattern, target, frozenset((k,)), {}):
                at = binding.get(k)
                if isinstance(at, Index) and at not in u.binders:
                    yield u, at, there


def is_compared(lets: Lets, p: Poly, t: Term) -> bool:
    """True if the term has the mean of a value that another term of p reads."""
    return any(True for k, value in _means(lets, t) for _ in _compared_values(p, t, k, value))


def with_values_named(
    lets: Lets, p: Poly, formals: Sequence[Index], name: str
) -> tuple[Poly, Poly] | None:
    """(p with a name for Y, and Y), where p is P*(Y - Sum_k P*Y) and Y a sum over ``formals``."""
    for t in p.terms:
        for k, value in _means(lets, t):
            for u, at, there in _compared_values(p, t, k, value):
                whole = poly([make_term(Fraction(1), *there)])
                if there[0] and free_indices(whole) == frozenset(formals):
                    here = Access(name, tuple(formals))
                    mean = Access(name, tuple(k if i is at else i for i in formals))
                    terms = (x for x in p.terms if x is not t and x is not u)
                    named = (_sum_to_name(u, there, here), _sum_to_name(t, value, mean))
                    return poly([*terms, *named]), whole
    return None


def _sum_to_name(t: Term, gone: _Sum, name: Expr) -> Term:
    """t with one of its sums replaced by a name."""
    binders, factors = gone
    rest = [f for f in t.factors if f not in factors]
    return make_term(t.coef, [i for i in t.binders if i not in binders], [*rest, name])
