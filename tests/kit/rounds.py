"""How long the loops of an operation are."""

import math
from collections.abc import Mapping
from functools import cache

from derive.algebra.expr import Expr, Index, Reduce, walk
from derive.notation.operation import Operation

__all__ = ["rounds"]


def rounds(op: Operation, sizes: Mapping[str, int | tuple[int, ...]]) -> int:
    """How many nodes the loops of all equations visit, if each element is found by itself."""

    def along(indices: set[Index]) -> int:
        found = (sizes[i.extent] for i in indices)
        return math.prod(math.prod(n) if isinstance(n, tuple) else n for n in found)

    @cache
    def inside(e: Expr) -> int:
        own = 1 + sum(map(inside, e.parts()))
        return along(set(e.indices)) * own if isinstance(e, Reduce) else own

    def whole(axes: tuple[Expr, ...]) -> set[Index]:
        return {i for axis in axes for i in walk(axis) if isinstance(i, Index)}

    return sum(along(whole(q.axes)) * inside(q.body) for q in op.equations)
