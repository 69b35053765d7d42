"""Kernels that are valid only for some parameters, with the equation as fallback."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from derive.algebra.expr import Access, Expr, Index, Param, Rel, Where
from derive.algebra.poly import Poly
from derive.kernels.instantiate import as_poly, instantiate_atoms
from derive.kernels.kernel_spec import Kernel, KernelSpec

_COMPARED = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}


def where_it_is(row: KernelSpec, given: Mapping[str, Poly]) -> Expr | None:
    """The kernel of these arguments, with the equation as fallback; None if it never applies."""
    kernel = Kernel(row.name, tuple(given[name] for name in row.arguments))
    if row.condition is None:
        return kernel
    condition = instantiate_atoms(
        row.condition, lambda e: given[e.name] if isinstance(e, Param) else None
    )
    holds = _compare_numbers(condition)
    if holds is not None:
        return kernel if holds else None

    def become(e: Expr) -> Poly | None:
        name = e.tensor if isinstance(e, Access) else getattr(e, "name", "")
        return None if isinstance(e, Index) else given.get(row.names.get(name, ""))

    return Where(condition, kernel, instantiate_atoms(row.body, become))


def _compare_numbers(condition: Expr) -> bool | None:
    """Whether a comparison of numbers holds; None unless both sides are known."""
    if not isinstance(condition, Rel):
        return None
    sides = [as_poly(side).terms for side in (condition.left, condition.right)]
    if any(t.factors for terms in sides for t in terms):
        return None
    left, right = (sum(t.coef for t in terms) for terms in sides)
    return bool(_COMPARED[condition.op](left, right))
