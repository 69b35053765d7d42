"""What a formula costs, to compare two forms of the same gradient.

Each distinct elementwise operation costs 32^rank and each contraction 32^(number of indices),
as if every axis had 32 positions. It is an order, not a time.
"""

from __future__ import annotations

from derive.algebra.expr import Access, Add, Call, Expr, Iverson, Mul, Pow, Reduce, free_indices
from derive.algebra.factor import factor
from derive.algebra.poly import Poly

__all__ = ["cost"]

_SIDE = 32.0


def cost(p: Poly) -> float:
    """The cost of computing p once."""
    seen: set[Expr] = set()
    return _cost(factor(p), seen)


def _cost(e: Expr, seen: set[Expr]) -> float:
    if e in seen:
        return 0.0
    seen.add(e)
    inside = sum(_cost(part, seen) for part in e.parts() if not isinstance(part, Access))
    rank = len(free_indices(e))
    if isinstance(e, Add | Mul):
        tensors = sum(1 for a in e.args if free_indices(a))
        return inside + max(tensors - 1, 1) * _SIDE**rank
    if isinstance(e, Call | Pow | Iverson):
        return inside + _SIDE**rank
    if isinstance(e, Reduce):
        return inside + _SIDE ** (rank + len(e.indices))
    return inside
