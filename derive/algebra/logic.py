"""Conditions: conjuncts, negation, connected groups, and decisions from known numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from derive.algebra import expr as ex


def conditions_of(c: ex.Expr) -> tuple[ex.Expr, ...]:
    """The conjuncts of c."""
    return tuple(p for a in c.args for p in conditions_of(a)) if isinstance(c, ex.And) else (c,)


def conjunction(conditions: Sequence[ex.Expr]) -> ex.Expr:
    """The conjunction of these, without duplicates."""
    every = tuple(dict.fromkeys(conditions))
    return every[0] if len(every) == 1 else ex.And(every)


def connected(
    conditions: Iterable[ex.Expr], known: frozenset[ex.Index]
) -> list[tuple[frozenset[ex.Index], list[ex.Expr]]]:
    """Group conditions by shared unknown indices: (the indices, the conditions), in order.

    A condition on known indices alone is in no group.
    """
    groups: list[tuple[frozenset[ex.Index], list[ex.Expr]]] = []
    for c in conditions:
        indices = ex.free_indices(c) - known
        if not indices:
            continue
        alike = [g for g in groups if g[0] & indices]
        groups = [g for g in groups if g not in alike]
        together = [d for _, members in alike for d in members]
        groups.append((indices.union(*(i for i, _ in alike)), [*together, c]))
    return groups


_OPPOSITE = {"==": "!=", "!=": "=="}


def negate(condition: ex.Expr) -> ex.Expr:
    """not condition, with double negation and negated (in)equality removed.

    ``not a < b`` is not ``a >= b`` for a NaN, so orders stay negated.
    """
    if isinstance(condition, ex.Not):
        return condition.arg
    if isinstance(condition, ex.And | ex.Or) and not condition.args:
        return ex.Or(()) if isinstance(condition, ex.And) else ex.And(())
    if isinstance(condition, ex.Rel) and condition.op in _OPPOSITE:
        return ex.Rel(_OPPOSITE[condition.op], condition.left, condition.right)
    return ex.Not(condition)


def is_denial(condition: ex.Expr) -> bool:
    """True if the condition is a negation or an inequality, as `negate` may return."""
    return isinstance(condition, ex.Not) or (isinstance(condition, ex.Rel) and condition.op == "!=")


def truth(condition: ex.Expr, known: Callable[[ex.Expr], bool | None]) -> bool | None:
    """Whether a condition holds, by what is known of its parts; None if they leave it open."""
    match condition:
        case ex.Not(inner):
            found = truth(inner, known)
            return None if found is None else not found
        case ex.And(args) | ex.Or(args):
            every, is_all = [truth(a, known) for a in args], isinstance(condition, ex.And)
            if (not is_all) in every:
                return not is_all
            return None if None in every else is_all
    return known(condition)


def decided(condition: ex.Expr, number: Callable[[ex.Expr], Fraction | None]) -> bool | None:
    """Whether a condition on numbers holds; None if it depends on more."""

    def known(c: ex.Expr) -> bool | None:
        if not isinstance(c, ex.Rel):
            return None
        a, b = number(c.left), number(c.right)
        return None if a is None or b is None else bool(ex.RELATIONS[c.op](a, b))

    # An empty conjunction is the value of a boolean equation, so only others are decided.
    is_empty = isinstance(condition, ex.And | ex.Or) and not condition.args
    return None if is_empty else truth(condition, known)


def without_decided(mask: ex.Expr, number: Callable[[ex.Expr], Fraction | None]) -> ex.Expr | bool:
    """A delta or bracket without its decided conditions; True or False if all are decided."""
    if isinstance(mask, ex.Delta):
        a, b = number(mask.axis), number(mask.position)
        return mask if a is None or b is None else a == b
    assert isinstance(mask, ex.Iverson)
    found = decided(mask.condition, number)
    if found is not None:
        return found
    conditions = conditions_of(mask.condition)
    left = [c for c in conditions if decided(c, number) is None]
    return ex.Iverson(conjunction(left)) if len(left) < len(conditions) else mask
