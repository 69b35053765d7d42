"""Subranges of an index that brackets leave.

[s <= i and i < s + size(j)] f(i)  =  f(s + j)
"""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Expr, Index, Iverson, free_indices
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of


def part_of_range(
    bounds: Bounds, factors: Sequence[Expr], i: Index
) -> tuple[Index, Polynomial, list[Expr]] | None:
    """(j, s, remaining factors) if brackets restrict i to s + j for an index j of the operation.

    None if no bracket bounds i alone, or no extent has the remaining size.
    """
    edges: list[tuple[bool, Polynomial]] = []
    rest: list[Expr] = []
    for f in factors:
        found = _index_bounds(bounds, f, i)
        edges += found
        if not found:
            rest.append(f)
    if i.group or not edges:
        return None
    start = _provable_extremum(bounds, [Polynomial({}), *(b for lower, b in edges if lower)], True)
    size = bounds.size(i.extent)
    stop = _provable_extremum(bounds, [size, *(b for lower, b in edges if not lower)], False)
    if start is None or stop is None:
        return None
    for extent in bounds.extents_of(stop - start):
        return Index(i.name, extent), start, rest
    return None


def _index_bounds(bounds: Bounds, f: Expr, i: Index) -> list[tuple[bool, Polynomial]]:
    """The bounds that a bracket puts on this index; empty if it has other conditions or indices."""
    if not isinstance(f, Iverson) or free_indices(f) != {i}:
        return []
    found = [bounds.edge(c, i) for c in conditions_of(f.condition)]
    return [] if None in found else [edge for edge in found if edge is not None]


def _provable_extremum(
    bounds: Bounds, forms: Sequence[Polynomial], greatest: bool
) -> Polynomial | None:
    """The form that is provably the greatest, or the least; None if the order is unknown."""
    for one in forms:
        pairs = ((other, one) if greatest else (one, other) for other in forms)
        if all(bounds.at_most(low, high) for low, high in pairs):
            return one
    return None
