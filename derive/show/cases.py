"""Merge the terms of a sum that have brackets (indicator factors), for real numbers.

    [a]*x + [b]*x/2             x*([a] + [b]/2)
    [a < b]*x + [a = b]*x       [a ≤ b]*x
    [c]*x + [not c]*x           x
    [c]*x + [not c]*y           where(c, x, y)

The code keeps the left sides where they differ for a nan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, permutations, product

from derive.algebra.affine import room
from derive.algebra.expr import (
    And,
    Expr,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Rel,
    Size,
    Where,
    factors_of,
    num,
    product_of,
    sum_of,
)
from derive.show.identities import form, limited

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
DENIED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_HOLDS_FOR = {"<": "<", "<=": "<=", ">": ">", ">=": "=>", "==": "=", "!=": "<>"}
"""Comparison to the cases (less, equal, greater) that satisfy it, in this order."""


def by_cases(args: Sequence[Expr]) -> Expr:
    """Return the sum with bracketed terms merged and common factors in front."""
    shared, left = _bracket_common_factors(args)
    whole = _cases(_merge_disjoint_terms(left))
    if not shared or whole is num(1):
        return product_of(shared) if shared else whole
    return Mul((*shared, whole))


def _bracket_common_factors(args: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """Return (common factors, remaining terms) of a sum; no factors if a term has no bracket."""
    terms = [list(factors_of(a)) for a in args]
    if len(terms) < 2 or not all(any(isinstance(f, Iverson) for f in t) for t in terms):
        return [], list(args)
    shared = [f for f in terms[0] if not isinstance(f, Num) and all(f in t for t in terms)]
    return shared, [product_of([f for f in t if f not in shared]) for t in terms]


def _merge_disjoint_terms(args: list[Expr]) -> list[Expr]:
    """Return the addends, two with disjoint conditions and equal values merged into one."""
    guarded = [a for a in args if any(_bracket_cofactors(a))]
    for one, two in combinations(guarded, 2):
        for (c, then), (d, other) in product(_bracket_cofactors(one), _bracket_cofactors(two)):
            either = _exclusive_disjunction(c, d) if then is other else None
            if either is not None:
                whole = then if either is And(()) else _times_bracket(either, then)
                return _merge_disjoint_terms(
                    [whole if a is one else a for a in args if a is not two]
                )
    return args


def _times_bracket(c: Expr, e: Expr) -> Expr:
    factors = [] if e is num(1) else list(factors_of(e))
    factors.insert(isinstance(e, Mul) and isinstance(e.args[0], Num), Iverson(c))
    return product_of(factors)


def _exclusive_disjunction(c: Expr, d: Expr) -> Expr | None:
    """Return the disjunction of two disjoint conditions; None if disjointness is not known."""
    if _denied(c) is d or _denied(d) is c or _are_apart(c, d):
        return And(())
    if not isinstance(c, Rel) or not isinstance(d, Rel):
        return None
    op = d.op if (d.left, d.right) == (c.left, c.right) else MIRRORED[d.op]
    if {d.left, d.right} != {c.left, c.right} or set(_HOLDS_FOR[op]) & set(_HOLDS_FOR[c.op]):
        return None
    whole = "".join(sorted(_HOLDS_FOR[op] + _HOLDS_FOR[c.op]))
    found = (o for o, holds in _HOLDS_FOR.items() if holds == whole)
    return next((Rel(o, c.left, c.right) for o in found), And(()))


def _are_apart(c: Expr, d: Expr) -> bool:
    """True if exactly one of two comparisons of positions holds: j ≤ i and j ≥ i + 1."""
    rooms = [form(r) for r in map(room, (c, d)) if r is not None]
    atoms = [part for r in rooms for key in r.terms for part in key]
    whole = all(r.is_whole for r in rooms) and all(isinstance(a, Index | Size) for a in atoms)
    return len(rooms) == 2 and whole and (rooms[0] + rooms[1]).number == -1


def _cases(args: Sequence[Expr]) -> Expr:
    """Return the sum with a pair of addends under c and not c as one ``where(c, x, y)``."""
    guarded = [a for a in args if any(_bracket_cofactors(a))]
    for one, two in permutations(guarded, 2):
        for (c, then), (d, other) in product(_bracket_cofactors(one), _bracket_cofactors(two)):
            if _denied(c) is not d or _is_denial(c):
                continue
            if isinstance(then, Num) and isinstance(other, Num):
                continue
            rest = [a for a in args if a is not one and a is not two]
            return sum_of([limited(Where(c, then, other)), *rest])
    return sum_of(args)


def _bracket_cofactors(e: Expr) -> list[tuple[Expr, Expr]]:
    """Return (condition, cofactor) for each bracket of a product."""
    args = factors_of(e)
    return [
        (a.condition, product_of([b for b in args if b is not a]))
        for a in args
        if isinstance(a, Iverson)
    ]


def _denied(c: Expr) -> Expr:
    if isinstance(c, Not):
        return c.arg
    return Rel(DENIED[c.op], c.left, c.right) if isinstance(c, Rel) else Not(c)


def _is_denial(c: Expr) -> bool:
    """True if the negation of the condition is the case to name first."""
    return isinstance(c, Not) or (isinstance(c, Rel) and c.op in ("!=", "<", "<="))
