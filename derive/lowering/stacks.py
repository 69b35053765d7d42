"""Cases of a short axis: one value for each position.

delta(t, 0)*a + delta(t, 1)*b  =  a and b stacked along t        where t has two positions
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.algebra.expr import Add, Delta, Expr, Index, Mul, Num
from derive.lowering.code import Code, Function, Tuple
from derive.lowering.scope import Scope
from derive.lowering.value import Value

__all__ = ["stacked"]


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
        values = [_whole(scope, cases[n], around) for n in sorted(cases)]
        place = scope.frame.position(tuple(order), list(order).index(axis))
        code: Code = Function("torch.stack", (Tuple(tuple(v.code for v in values)), place))
        return Value(code, tuple(order)), rest
    return None


def _whole(scope: Scope, contents: Sequence[Expr], around: Sequence[Index]) -> Value:
    e = contents[0] if len(contents) == 1 else Add(tuple(contents))
    return scope.frame.expand(scope.as_float(scope.lower(e, around)), around, scope.like)


def _case(e: Expr, axis: Index) -> tuple[int, Expr] | None:
    """(n, f) where e = delta(axis, n)*f."""
    args = e.args if isinstance(e, Mul) else (e,)
    for a in args:
        if isinstance(a, Delta) and a.axis is axis and isinstance(a.position, Num):
            rest = tuple(x for x in args if x is not a)
            if any(isinstance(x, Delta) for x in rest):
                return None
            content = Mul(rest) if len(rest) > 1 else rest[0] if rest else Num(Fraction(1))
            return int(a.position.value), content
    return None
