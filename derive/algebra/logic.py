"""Conditions: their parts, their negation, and which hold for the same values of indices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from derive.algebra.expr import And, Expr, Index, Not, Or, Rel, free_indices

RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What the op of a `Rel` asks of two numbers, or of two tensors elementwise."""


def conditions_of(c: Expr) -> tuple[Expr, ...]:
    """The conditions that hold together where c does."""
    return tuple(p for a in c.args for p in conditions_of(a)) if isinstance(c, And) else (c,)


def conjunction(conditions: Sequence[Expr]) -> Expr:
    """The condition that all of these hold."""
    every = tuple(dict.fromkeys(conditions))
    return every[0] if len(every) == 1 else And(every)


def connected(
    conditions: Iterable[Expr], known: frozenset[Index]
) -> list[tuple[frozenset[Index], list[Expr]]]:
    """(indices that are not known, the conditions that share them), in order.

    A condition on known indices alone is in none.
    """
    groups: list[tuple[frozenset[Index], list[Expr]]] = []
    for c in conditions:
        indices = free_indices(c) - known
        if not indices:
            continue
        alike = [g for g in groups if g[0] & indices]
        groups = [g for g in groups if g not in alike]
        together = [d for _, members in alike for d in members]
        groups.append((indices.union(*(i for i, _ in alike)), [*together, c]))
    return groups


_OPPOSITE = {"==": "!=", "!=": "=="}


def negate(condition: Expr) -> Expr:
    """not condition, with double negation and negated (in)equality removed.

    ``not a < b`` is not ``a >= b`` for a NaN, so orders stay negated.
    """
    if isinstance(condition, Not):
        return condition.arg
    if isinstance(condition, And | Or) and not condition.args:
        return Or(()) if isinstance(condition, And) else And(())
    if isinstance(condition, Rel) and condition.op in _OPPOSITE:
        return Rel(_OPPOSITE[condition.op], condition.left, condition.right)
    return Not(condition)
