"""The rank of an element: the number of elements before it in the order of their values.

    Sum_l [a(l) < a(k) or a(l) == a(k) and l < k]  =  the position of a(k) after a stable sort
    Sum_l [a(l) > a(k) or a(l) == a(k) and l < k]  =  the same in descending order

No mask of every l with every k is built. Where a is nan, a comparison is false and the sum counts
no element; a sort puts nan behind all numbers, or before them in descending order.
"""

from __future__ import annotations

from derive.algebra.expr import And, Expr, Index, Or, Rel, Size, free_indices
from derive.algebra.factor import factor
from derive.algebra.logic import conditions_of
from derive.algebra.substitution import substitute
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation
from derive.lowering.ground.value import Value
from derive.program.torch_ir import FunctionCall, Keyword, Literal


def rank(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [a(l) < a(k) or a(l) == a(k) and l < k] = the position of a(k) after a sort."""
    if len(s.binders) != 1 or s.others:
        return None
    (other,) = s.binders
    found = _ordered(s.condition, other)
    if found is None:
        return None
    index, value, is_descending = found
    order = [i for i in s.order if i in free_indices(value)]
    sorted_along = scope.frame.fit(scope.lower(value, order), order)
    if sorted_along.scalar or index not in sorted_along.axes:
        return None
    named = (Keyword("descending", Literal("True")),) if is_descending else ()
    place = scope.frame.place(sorted_along, index)
    asked = scope.frame.asked_ranks.get(scope.defined.name) if scope.defined else None
    if asked is None or asked is Size(index.extent):
        code = FunctionCall("rt.sort_ranks", (sorted_along.code, place, *named))
    else:
        count = scope.lower(asked, ()).code
        code = FunctionCall("rt.first_ranks", (sorted_along.code, place, count, *named))
    return Value(code, sorted_along.axes, "int")


def _ordered(condition: Expr, other: Index) -> tuple[Index, Expr, bool] | None:
    """Return (k, a(k), whether descending) if ``other`` is l in a condition as above."""
    if not isinstance(condition, Or):
        return None
    compared = [c for c in condition.args if isinstance(c, Rel)]
    tied = [frozenset(conditions_of(c)) for c in condition.args if isinstance(c, And)]
    if len(condition.args) != 2 or len(compared) != 1 or len(tied) != 1:
        return None
    ((first, last),) = [(c.left, c.right) for c in compared]
    index = next((i for i in free_indices(last) ^ free_indices(first) if i is not other), None)
    if compared[0].op != "<" or index is None or index.extent != other.extent or index.group:
        return None
    is_descending = other in free_indices(last)
    value = first if is_descending else last
    there = substitute(value, {index: other})
    equal = (Rel("==", value, there), Rel("==", there, value))
    sides = (value, there) if is_descending else (there, value)
    if other in free_indices(value) or (first, last) != sides:
        return None
    if not any(tied[0] == {c, Rel("<", other, index)} for c in equal):
        return None
    return index, factor(value), is_descending
