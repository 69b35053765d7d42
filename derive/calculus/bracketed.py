"""Brackets that a name beside them has already.

    [c]*v = v       where v is 0 wherever c does not hold: v = [c]*(...), or a product with such a v

They guarded what else the term has: that must be finite.
"""

from __future__ import annotations

from collections.abc import Iterator

from derive.algebra.expr import Access, Expr, Iverson, free_indices
from derive.algebra.poly import Poly, Term, base_and_power
from derive.algebra.rules import Rule
from derive.calculus.conditions import beside, conditions_of, rebuilt, without_guards
from derive.calculus.emptiness import is_finite
from derive.calculus.lets import Find

__all__ = ["bracket_rule"]

_DEEPEST = 4
"""So many names are opened to find a bracket."""


def bracket_rule(find: Find) -> Rule:
    """The rule for these definitions."""
    return Rule(
        "bracket of a name",
        "[c]·v = v, v = [c]·f",
        "the number of brackets",
        lambda t: next(_without(find, t), None),
    )


def _without(find: Find, t: Term) -> Iterator[Poly]:
    for m in t.factors:
        if not isinstance(m, Iverson):
            continue
        wanted = frozenset(conditions_of(m.condition))
        rest = [f for f in t.factors if f is not m]
        bare = [f for f in rest if not isinstance(f, Iverson)]
        # Where the other brackets hold, what they guard is read as it stands.
        known = beside(t, m)
        read = [without_guards(f, known) for f in bare]
        if any(_vanishes(find, f, wanted, _DEEPEST) for f in read) and all(
            is_finite(find, f) for f in bare
        ):
            yield rebuilt(t, t.binders, rest)


def _vanishes(find: Find, f: Expr, wanted: frozenset[Expr], depth: int) -> bool:
    """Whether the factor is 0 wherever one of the conditions does not hold."""
    base, power = base_and_power(f)
    let = find(base.tensor) if isinstance(base, Access) and power > 0 and depth else None
    if let is None or let.kind != "sum" or not let.body.terms:
        return False
    assert isinstance(base, Access)
    return all(_holds_in(find, t, wanted, depth) for t in let.body_at(base.positions).terms)


def _holds_in(find: Find, t: Term, wanted: frozenset[Expr], depth: int) -> bool:
    brackets = (c for f in t.factors if isinstance(f, Iverson) for c in conditions_of(f.condition))
    bound = frozenset(t.binders)
    left = wanted.difference(c for c in brackets if not free_indices(c) & bound)
    return not left or any(_vanishes(find, f, left, depth - 1) for f in t.factors)
