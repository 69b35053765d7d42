"""Discharge existential brackets for which a witness is in scope.

    [s[j] = s[k] for some j] = 1

Such a bracket guards the infinite value of a reduction over nothing. It is a condition on the free
indices of the reduction. It holds trivially where the reduction is read at the position of one of
its own operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from derive.algebra.expr import Access, Expr, Guard, Index, Iverson, Rel, free_indices, sort_key
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.rules import Rule
from derive.algebra.substitution import replace, substitute
from derive.calculus.guards import rebuilt_term
from derive.calculus.lets import Find, Lets

_MOST = 200
"""At most this many candidate witnesses are tried."""

_NOWHERE: Mapping[Index, Expr] = {}


def witness_rule(lets: Lets) -> Rule:
    """The rule for existential brackets over these definitions."""

    def witnessed(t: Term) -> Poly | None:
        here = {*free_indices(t), *t.binders}
        for n, m in enumerate(t.factors):
            if isinstance(m, Iverson) and is_witnessed(lets.get, lets.bounds, m.condition, here):
                return rebuilt_term(t, t.binders, [*t.factors[:n], *t.factors[n + 1 :]])
            bare = without_witnessed(lets.get, lets.bounds, m, here)
            if bare is not m:
                return rebuilt_term(t, t.binders, [*t.factors[:n], bare, *t.factors[n + 1 :]])
        return None

    return Rule(
        "witness",
        "[s(j) = s(k) for some j] = 1",
        "the number of conditions",
        witnessed,
    )


def without_witnessed(
    find: Find, bounds: Bounds, e: Expr, here: Iterable[Index], at: Mapping[Index, Expr] = _NOWHERE
) -> Expr:
    """e without the existential conditions of guards that an index in ``here`` witnesses.

    ``at`` maps indices of e to their values.
    """

    def visit(part: Expr) -> Expr | None:
        if not isinstance(part, Guard):
            return None
        asked = list(conditions_of(part.condition))
        left = [c for c in asked if not is_witnessed(find, bounds, substitute(c, at), here)]
        if len(left) == len(asked):
            return None
        return Guard(conjunction(left), part.position, part.elsewhere) if left else part.position

    return replace(e, visit)


def is_witnessed(find: Find, bounds: Bounds, asked: Expr, here: Iterable[Index]) -> bool:
    """True if some index in ``here`` satisfies an existential condition."""
    let = find(asked.tensor) if isinstance(asked, Access) else None
    if let is None or let.kind != "any" or let.condition is not None:
        return False
    body = as_atom(let.body)
    if not isinstance(body, Iverson):
        return False
    assert isinstance(asked, Access)
    # A guarded position matters only where its condition holds, so compare what it guards.
    bare = [p.position if isinstance(p, Guard) else p for p in asked.positions]
    there = dict(zip(let.formals, bare, strict=True))
    return any(
        all(
            _certainly_holds(bounds, substitute(c, {**there, **found}))
            for c in conditions_of(body.condition)
        )
        for found in _witness_bindings(here, let.binders)
    )


def _certainly_holds(bounds: Bounds, c: Expr) -> bool:
    same = isinstance(c, Rel) and c.op == "==" and c.left is c.right
    return same or bounds.holds(c) is True


def _witness_bindings(
    indices: Iterable[Index], binders: tuple[Index, ...]
) -> Iterator[dict[Index, Expr]]:
    """Substitutions of indices in scope for the binders, of equal extents."""
    here = sorted(indices, key=sort_key)
    choices = [[i for i in here if (i.extent, i.group) == (b.extent, b.group)] for b in binders]
    for n, chosen in enumerate(product(*choices)):
        if n == _MOST:
            return
        yield dict(zip(binders, chosen, strict=True))
