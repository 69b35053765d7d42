"""Brackets that ask for some position, beside one that has it.

    [c(k) for some k] [c(j)] = [c(j)]

Such a bracket guards what is infinite where nothing meets c. It is asked for where a reduction
stands, and says nothing any more where the slope of that reduction brings its own condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from derive.algebra.expr import Access, Expr, Index, Iverson, free_indices, sort_key
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.rules import Rule
from derive.algebra.substitution import substitute
from derive.calculus.conditions import conditions_of, plain_positions, rebuilt
from derive.calculus.lets import Lets

__all__ = ["witness_rule"]

_MOST = 200
"""More places than these are not tried."""


def witness_rule(lets: Lets) -> Rule:
    """The rule for brackets that read these definitions."""

    def witnessed(t: Term) -> Poly | None:
        for m in t.factors:
            if isinstance(m, Iverson) and _is_certain(lets, t, m):
                return rebuilt(t, t.binders, [f for f in t.factors if f is not m])
        return None

    return Rule(
        "witness",
        "[c(k) for some k]·[c(j)] = [c(j)]",
        "the number of brackets",
        witnessed,
    )


def _is_certain(lets: Lets, t: Term, bracket: Iverson) -> bool:
    """Whether indices of the term meet what the bracket asks some indices to meet."""
    asked = bracket.condition
    let = lets.get(asked.tensor) if isinstance(asked, Access) else None
    if let is None or let.kind != "any" or let.condition is not None:
        return False
    body = as_atom(let.body)
    if not isinstance(body, Iverson):
        return False
    assert isinstance(asked, Access)
    said = {
        plain_positions(c)
        for m in t.factors
        if isinstance(m, Iverson) and m is not bracket
        for c in conditions_of(m.condition)
    }
    there = dict(zip(let.formals, asked.positions, strict=True))
    return any(
        all(plain_positions(substitute(c, {**there, **found})) in said for c in _parts(body))
        for found in _places(t, let.binders)
    )


def _parts(body: Iverson) -> tuple[Expr, ...]:
    return tuple(conditions_of(body.condition))


def _places(t: Term, binders: tuple[Index, ...]) -> Iterator[dict[Index, Expr]]:
    """Indices of the term in place of the binders."""
    here = sorted({*free_indices(t), *t.binders}, key=sort_key)
    choices = [[i for i in here if (i.extent, i.group) == (b.extent, b.group)] for b in binders]
    for n, chosen in enumerate(product(*choices)):
        if n == _MOST:
            return
        yield dict(zip(binders, chosen, strict=True))
