"""Estimate the cost of formulas, to compare two forms of the same gradient.

Each distinct elementwise operation costs 32^rank and each contraction 32^(number of indices), as if
every axis had 32 positions. It is an order, not a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Expr,
    Index,
    Iverson,
    Mul,
    Pow,
    Reduce,
    free_indices,
    num,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.poly import Poly
from derive.algebra.substitution import substitute
from derive.budget import tick

_SIDE = 32.0
_SIGN = num(-1)


def cost(polys: Iterable[Poly]) -> float:
    """The cost of computing these once, common subexpressions once."""
    found: dict[Expr, float] = {}
    for p in polys:
        found |= operation_costs(p)
    return sum(found.values())


def operation_costs(p: Poly) -> dict[Expr, float]:
    """Each distinct operation in p with its own cost."""
    found = {e: _operation_cost(e) for e in _subexpressions(_depth_named(factor(p)))}
    return {e: own for e, own in found.items() if own}


def price(axes: Sequence[Index]) -> float:
    """The cost of one elementwise operation over these axes."""
    return float(_SIDE ** len(axes))


def _subexpressions(e: Expr) -> Iterator[Expr]:
    """e and its subexpressions, each once, in preorder."""
    met: set[Expr] = set()
    pending = [e]
    while pending:
        part = pending.pop()
        if part not in met:
            met.add(part)
            tick()
            yield part
            pending += (inner for inner in reversed(part.parts()) if not isinstance(inner, Access))


def _operation_cost(e: Expr) -> float:
    rank = len(free_indices(e))
    if isinstance(e, Add | Mul):
        # A sign is no operation of its own: a + (-1)*b is a subtraction.
        return _accumulated([free_indices(a) for a in e.args if a is not _SIGN])
    if isinstance(e, Call | Pow | Iverson):
        return float(_SIDE**rank)
    if isinstance(e, Reduce):
        return float(_SIDE ** (rank + len(e.indices)))
    return 0.0


def _accumulated(operands: list[frozenset[Index]]) -> float:
    """Combine operands of low rank first, and numbers with the first of them."""
    first, *rest = sorted(operands, key=len)
    whole, total = first, 0.0
    for free in rest:
        whole |= free
        total += _SIDE ** len(whole)
    return total


@lru_cache(maxsize=4096)
def _depth_named(e: Expr) -> Expr:
    """e with bound indices named by depth, so that equal sums are one object."""
    mapped: Expr = e.map(_depth_named)
    if not isinstance(mapped, Reduce):
        return mapped
    depth = sum(1 for part in walk(mapped.body) if isinstance(part, Reduce))
    order = [i for i in dict.fromkeys(walk(mapped.body)) if i in mapped.indices]
    order += [i for i in mapped.indices if i not in order]
    names: dict[Index, Expr] = {}
    for n, i in enumerate(order):
        assert isinstance(i, Index)
        names[i] = Index(f"%{depth}.{n}", i.extent, i.group)
    body = substitute(mapped.body, names)
    condition = None if mapped.condition is None else substitute(mapped.condition, names)
    indices = tuple(i for i in names.values() if isinstance(i, Index))
    return Reduce(mapped.kind, indices, body, condition)
