"""Normalised exponentials, found by their structure in the flat form.

exp(f(k) - logsumexp_k f)  =  softmax_k f
f(k) - logsumexp_k f       =  log_softmax_k f
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from derive.algebra.expr import (
    Access,
    Call,
    Expr,
    Index,
    free_indices,
    fresh,
    node,
    substitute,
)
from derive.algebra.poly import Poly, Term, add, atom, make_term, poly
from derive.calculus.lets import Let

__all__ = ["Normal", "recognise"]


@node
class Normal(Expr):
    """softmax or log_softmax of body over the bound index, read at a position.

    Where the condition fails the value is undefined; what reads it there is masked.
    """

    kind: str
    index: Index
    body: Expr
    position: Expr
    condition: Expr | None = None

    def bound(self) -> tuple[Index, ...]:
        return (self.index,)


Find = Callable[[str], Let | None]


def recognise(e: Expr, find: Find) -> Expr:
    """e with normalised exponentials as `Normal` nodes, innermost first."""
    if isinstance(e, Poly):
        terms = add(poly(()), *(poly([_term(t, find)]) for t in e.terms))
        return _log_softmax(terms, find)
    new: Expr = e.map(lambda part: recognise(part, find))
    if isinstance(new, Call) and new.function == "exp":
        (u,) = new.args
        if isinstance(u, Poly) and len(u.terms) == 1:
            (t,) = u.terms
            if t.coef == 1 and not t.binders and len(t.factors) == 1:
                inner = t.factors[0]
                if isinstance(inner, Normal) and inner.kind == "log_softmax":
                    return replace(inner, kind="softmax")
    return new


def _term(t: Term, find: Find) -> Term:
    return make_term(t.coef, t.binders, [recognise(f, find) for f in t.factors])


def _log_softmax(p: Poly, find: Find) -> Poly:
    for t in p.terms:
        for let, k, body in _candidates(p, t, find):
            if all(other in p.terms for other in body.terms):
                own = fresh(k, free_indices(p))
                inside = substitute(body, {k: own})
                condition = None
                if let.condition is not None:
                    condition = substitute(let.condition, _mapping(let, t, own))
                rest = poly(x for x in p.terms if x is not t and x not in body.terms)
                return add(rest, atom(Normal("log_softmax", own, inside, k, condition)))
    return p


def _mapping(let: Let, t: Term, k: Index) -> dict[Index, Expr]:
    access = t.factors[0]
    assert isinstance(access, Access)
    return {**dict(zip(let.formals, access.positions, strict=True)), let.binders[0]: k}


def _candidates(p: Poly, t: Term, find: Find) -> Iterator[tuple[Let, Index, Poly]]:
    """(the logsumexp, the index it may run over, its body at that index) for a term -lse[..]."""
    if t.coef != -1 or t.binders or len(t.factors) != 1 or not isinstance(t.factors[0], Access):
        return
    let = find(t.factors[0].tensor)
    if let is None or let.kind != "logsumexp" or len(let.binders) != 1:
        return
    k = let.binders[0]
    free = sorted(
        (i for i in free_indices(p) - free_indices(t) if i.extent == k.extent),
        key=lambda i: i.name,
    )
    for i in free:
        body = substitute(let.body, _mapping(let, t, i))
        assert isinstance(body, Poly)
        if i in free_indices(body):
            yield let, i, body
