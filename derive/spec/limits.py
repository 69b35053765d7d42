"""``Sum(A[i, k]*B[k, j], k)``: a sum over every value of k, which plain SymPy refuses.

SymPy's ``Sum`` and ``Product`` raise ``ValueError`` for an index without limits. Here they are
taught that a bare index k means (k, 0, size(k) - 1). Nothing that they accepted before changes.
"""

from __future__ import annotations

from typing import Any

from sympy import Idx, Product, Sum, Symbol
from sympy.core.containers import Tuple

from derive.spec.heads import size

__all__ = ["whole_range"]


def whole_range(limit: Any) -> Any:
    """(k, 0, size(k) - 1) for an index k without limits; anything else as it is."""
    index = limit
    if isinstance(limit, tuple | list | Tuple) and len(limit) == 1:
        index = limit[0]
    if isinstance(index, Symbol) or (isinstance(index, Idx) and index.lower is None):
        return Tuple(index, 0, size(index) - 1)
    return limit


def _teach(kind: Any) -> None:
    """Wrap ``kind.__new__`` once."""
    plain = kind.__new__
    if getattr(plain, "accepts_bare_indices", False):
        return

    def new(cls: Any, function: Any, *limits: Any, **assumptions: Any) -> Any:
        return plain(cls, function, *map(whole_range, limits), **assumptions)

    new.accepts_bare_indices = True  # type: ignore[attr-defined]
    new.__doc__ = plain.__doc__
    kind.__new__ = staticmethod(new)


_teach(Sum)
_teach(Product)
