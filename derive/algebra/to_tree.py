"""Convert the flat form to nested nodes, term by term, for the oracle and the printers."""

from __future__ import annotations

from functools import lru_cache

from derive.algebra.expr import Add, Expr, Mul, Num, Reduce, num
from derive.algebra.poly import FactoredSum, Poly, Term


@lru_cache(maxsize=4096)
def to_tree(e: Expr) -> Expr:
    """The same expression in nested nodes only."""
    if isinstance(e, Poly):
        terms = tuple(_term_tree(t) for t in e.terms)
        if not terms:
            return num(0)
        return terms[0] if len(terms) == 1 else Add(terms)
    if isinstance(e, Term):
        return _term_tree(e)
    if isinstance(e, FactoredSum):
        return to_tree(e.body)
    mapped: Expr = e.map(to_tree)
    return mapped


def _term_tree(t: Term) -> Expr:
    parts: list[Expr] = [to_tree(f) for f in t.factors]
    inner: Expr = num(1)
    if parts:
        inner = parts[0] if len(parts) == 1 else Mul(tuple(parts))
    if t.binders:
        inner = Reduce("sum", t.binders, inner)
    if t.coef == 1 and (parts or t.binders):
        return inner
    if not parts and not t.binders:
        return Num(t.coef)
    return Mul((Num(t.coef), inner))
