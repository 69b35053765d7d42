"""Sums of a convolution times another factor, without unfolding the windows.

Sum_{t,c,k} G[t] X[c, s*t + d*k] W[c, k]  =  Sum_t G[t] conv(X, W)[t]
"""

from __future__ import annotations

from derive.algebra.expr import Expr, Index, accesses, free_indices, indices_of, product_of
from derive.calculus.lets import layout
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Value
from derive.lowering.patterns.convolution_calls import convolution


def convolution_within(scope: Scope, s: Summation) -> Value | None:
    """Lower the sum over the indices that one factor lacks as a convolution, if it is one."""
    if len(s.others) < 3:
        return None
    for beside in sorted(s.others, key=_is_pulled_back):
        rest = [f for f in s.factors if f is not beside]
        inside = tuple(i for i in s.binders if i not in free_indices(beside))
        if inside and len(inside) < len(s.binders) and set(inside) <= indices_of(rest):
            made = _convolved(scope, inside, rest)
            if made is not None:
                outside = [i for i in s.binders if i not in inside]
                return scope.lower(summed_product(outside, [beside, scope.held(made)]), s.order)
    return None


def _is_pulled_back(f: Expr) -> bool:
    """True if f reads a cotangent; other gradients read it beside the same windows too."""
    return any(a.tensor.startswith("@") for a in accesses(f))


def _convolved(scope: Scope, binders: tuple[Index, ...], factors: list[Expr]) -> Value | None:
    around = tuple(i for i in layout(product_of(factors)) if i not in binders)
    return convolution(scope, Summation(binders, tuple(factors), around))
