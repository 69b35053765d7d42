"""Cases of a short axis: one value for each position.

delta(t, 0)*a + delta(t, 1)*b  =  a and b stacked along t        where t has two positions
"""

from __future__ import annotations

from collections.abc import Sequence

from derive.algebra.expr import Delta, Expr, Index, Num, factors_of, product_of, sum_of
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.value import Value
from derive.program.code import Function, Tuple


def stacked(
    scope: Scope, addends: Sequence[Expr], order: Sequence[Index]
) -> tuple[Value, list[Expr]] | None:
    """(the cases of an axis as one tensor, the addends that are none of them), if all are there."""
    for axis in order:
        cases: dict[int, list[Expr]] = {}
        rest: list[Expr] = []
        for e in addends:
            at = None if axis.group else _case(e, axis)
            if at is None:
                rest.append(e)
            else:
                position, content = at
                cases.setdefault(position, []).append(content)
        size = scope.frame.bounds.size(axis.extent).number
        if not cases or size is None or sorted(cases) != list(range(int(size))):
            continue
        around = [i for i in order if i is not axis]
        wholes = (scope.as_float(scope.lower(sum_of(cases[n]), around)) for n in sorted(cases))
        codes = tuple(scope.frame.expand(v, around, scope.like).code for v in wholes)
        place = scope.frame.position(tuple(order), list(order).index(axis))
        return Value(Function("torch.stack", (Tuple(codes), place)), tuple(order)), rest
    return None


def _case(e: Expr, axis: Index) -> tuple[int, Expr] | None:
    """(n, f) where e = delta(axis, n)*f."""
    deltas = [a for a in factors_of(e) if isinstance(a, Delta)]
    if len(deltas) != 1 or deltas[0].axis is not axis or not isinstance(deltas[0].position, Num):
        return None
    rest = [a for a in factors_of(e) if a not in deltas]
    return int(deltas[0].position.value), product_of(rest)
