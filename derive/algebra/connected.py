"""Conditions that have to hold for the same values of their indices."""

from __future__ import annotations

from collections.abc import Iterable

from derive.algebra.expr import Expr, Index, free_indices

__all__ = ["connected"]


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
