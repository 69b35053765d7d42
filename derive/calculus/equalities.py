"""Sums that a bracket leaves one term of.

    Sum_i [i = e] f(i) = [0 <= e < size(i)] f(e)

e is a number, made of sizes and parameters, or of one other index. What is not certain of its
range stays a bracket, and guards what is read: an axis may have no values.
"""

from __future__ import annotations

from collections.abc import Iterator

from derive.algebra.expr import Expr, Index, Iverson, Rel, free_indices, sort_key
from derive.algebra.poly import ZERO, Poly, Term, as_atom
from derive.algebra.rules import Rule
from derive.algebra.substitution import substitute
from derive.calculus.bounds import Bounds, as_poly
from derive.calculus.conditions import conditions_of, conjunction, rebuilt
from derive.calculus.shifts import Solution, range_of, read_at
from derive.spec.affine import Polynomial

__all__ = ["equality_rules"]


def equality_rules(bounds: Bounds) -> tuple[Rule, ...]:
    """The rules for an operation with these extents."""
    return (
        Rule(
            "condition beside an equality",
            "[i = s]·[c(i)] = [i = s] where c(s) holds, 0 where it does not",
            "the number of conditions",
            lambda t: next(_decided(bounds, t), None),
        ),
        Rule(
            "solve equality",
            "Σᵢ [i = s]·f(i) = [0 ≤ s < size(i)]·f(s)",
            "the number of summed indices",
            lambda t: next(_solved(bounds, t), None),
        ),
    )


def _conditions(t: Term) -> Iterator[tuple[Iverson, Expr]]:
    """Each bracket of a term with each condition in it."""
    for f in t.factors:
        for c in conditions_of(f.condition) if isinstance(f, Iverson) else ():
            assert isinstance(f, Iverson)
            yield f, c


def _decided(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The term without a condition that an equality beside it decides."""
    for _, c in _conditions(t):
        for i in sorted(free_indices(c), key=sort_key):
            value = _value(bounds, c, i)
            if value is None:
                continue
            at = {i: as_atom(as_poly(value))}
            for f, other in _conditions(t):
                if other is c or i not in free_indices(other):
                    continue
                holds = bounds.holds(substitute(other, at))
                if holds is False:
                    yield ZERO
                elif holds:
                    yield rebuilt(t, t.binders, _left(t, f, other))


def _left(t: Term, f: Iverson, gone: Expr) -> list[Expr]:
    """The factors of a term without one condition of a bracket."""
    left = [c for c in conditions_of(f.condition) if c is not gone]
    rest = [x for x in t.factors if x is not f]
    return [*rest, Iverson(conjunction(left))] if left else rest


def _value(bounds: Bounds, c: Expr, i: Index) -> Polynomial | None:
    """What i is where the condition holds."""
    if not isinstance(c, Rel) or c.op != "==" or i.group:
        return None
    left, right = bounds.form(c.left), bounds.form(c.right)
    if left is None or right is None:
        return None
    gap = left - right
    alone = gap.terms.get((i,))
    if alone not in (1, -1) or sum(i in key for key in gap.terms) > 1:
        return None
    # alone*i + rest = 0, so i = -alone*rest.
    return (Polynomial({(i,): alone}) - gap) * Polynomial({(): alone})


def _solved(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The term without a summed index that a condition fixes to what has at most one index."""
    for f, c in _conditions(t):
        for i in t.binders:
            value = _value(bounds, c, i)
            if (
                value is None
                or len({j for k in value.terms for j in k if isinstance(j, Index)}) > 1
            ):
                continue
            solution = Solution(i, value, range_of(bounds, i, value))
            brackets = [Iverson(x) for x in solution.range]
            rest = (read_at(bounds, x, solution) for x in _left(t, f, c))
            yield rebuilt(t, [j for j in t.binders if j is not i], [*brackets, *rest])
