"""``Sum(A[i, k]*B[k, j], k)``: a sum over every value of k, which plain SymPy refuses.

SymPy's ``Sum`` and ``Product`` raise ``ValueError`` for an index without limits. This module
patches them: a bare index k means (k, 0, size(k) - 1).

It also keeps a Piecewise inside the sum or head that binds an index of its conditions. SymPy
would fold the Piecewise out of the sum, and so move the index out of its scope. Nothing else
changes.
"""

from __future__ import annotations

from typing import Any

from sympy import Dummy, Expr, Idx, Piecewise, Product, Sum, Symbol, preorder_traversal
from sympy.core.containers import Tuple

from derive.notation import heads  # which may be at its own import of SymPy yet


def whole_range(limit: Any) -> Any:
    """Return (k, 0, size(k) - 1) for an index k without limits; anything else unchanged."""
    index = limit
    if isinstance(limit, tuple | list | Tuple) and len(limit) == 1:
        index = limit[0]
    if isinstance(index, Symbol) or (isinstance(index, Idx) and index.lower is None):
        return Tuple(index, 0, heads.size(index) - 1)
    return limit


def _has_bound_condition(binder: Any) -> bool:
    """True if a Piecewise under the binder has a condition on an index that it binds."""
    if isinstance(binder, heads.Head):
        bound = {s for index in binder.args[1] for s in index.free_symbols}
    elif isinstance(binder, heads.Concat):
        bound = binder.args[0].free_symbols
    else:
        bound = {s for limit in binder.limits for s in limit[0].free_symbols}
    cases = (case for piecewise in binder.atoms(Piecewise) for case in piecewise.args)
    return any(bound & case.cond.free_symbols for case in cases)


def _teach(kind: Any) -> None:
    """Wrap ``kind.__new__`` once."""
    plain = kind.__new__
    if getattr(plain, "accepts_bare_indices", False):
        return

    def new(cls: Any, function: Any, *limits: Any, **assumptions: Any) -> Any:
        limits = tuple(map(whole_range, limits))
        binders = Sum | Product | heads.Head | heads.Concat
        parts = preorder_traversal(function) if isinstance(function, Expr) else ()
        if not any(isinstance(e, binders) and _has_bound_condition(e) for e in parts):
            return plain(cls, function, *limits, **assumptions)
        # Build the sum of a symbol, which SymPy cannot fold, then substitute the function.
        made = plain(cls, Dummy(), *limits, **assumptions)
        made._args = (function, *made._args[1:])
        return made

    new.accepts_bare_indices = True  # type: ignore[attr-defined]
    new.__doc__ = plain.__doc__
    kind.__new__ = staticmethod(new)


_teach(Sum)
_teach(Product)
