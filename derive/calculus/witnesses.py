"""Brackets that ask for some position of which one is known.

    [s[j] = s[k] for some j] = 1

Such a bracket guards what is infinite where a reduction takes nothing. It is asked for where the
reduction stands, and says nothing where the reduction is read at the place of what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from derive.algebra.expr import Access, Expr, Index, Iverson, Rel, free_indices, sort_key
from derive.algebra.logic import conditions_of
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.rules import Rule
from derive.algebra.substitution import substitute
from derive.calculus.conditions import rebuilt
from derive.calculus.lets import Lets

_MOST = 200
"""More places than these are not tried."""


def witness_rule(lets: Lets) -> Rule:
    """The rule for brackets that read these definitions."""

    def witnessed(t: Term) -> Poly | None:
        for m in t.factors:
            if isinstance(m, Iverson) and _is_certain(lets, t, m.condition):
                return rebuilt(t, t.binders, [f for f in t.factors if f is not m])
        return None

    return Rule(
        "witness",
        "[s(j) = s(k) for some j] = 1",
        "the number of brackets",
        witnessed,
    )


def _is_certain(lets: Lets, t: Term, asked: Expr) -> bool:
    """Whether an index of the term meets what some index is asked to meet."""
    let = lets.get(asked.tensor) if isinstance(asked, Access) else None
    if let is None or let.kind != "any" or let.condition is not None:
        return False
    body = as_atom(let.body)
    if not isinstance(body, Iverson):
        return False
    assert isinstance(asked, Access)
    there = dict(zip(let.formals, asked.positions, strict=True))
    return any(
        all(_holds(lets, substitute(c, {**there, **found})) for c in conditions_of(body.condition))
        for found in _places(t, let.binders)
    )


def _holds(lets: Lets, c: Expr) -> bool:
    same = isinstance(c, Rel) and c.op == "==" and c.left is c.right
    return same or lets.bounds.holds(c) is True


def _places(t: Term, binders: tuple[Index, ...]) -> Iterator[dict[Index, Expr]]:
    """Indices of the term in place of the binders."""
    here = sorted({*free_indices(t), *t.binders}, key=sort_key)
    choices = [[i for i in here if (i.extent, i.group) == (b.extent, b.group)] for b in binders]
    for n, chosen in enumerate(product(*choices)):
        if n == _MOST:
            return
        yield dict(zip(binders, chosen, strict=True))
