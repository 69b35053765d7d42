"""Sums of one product in the form that patterns match: binders, factors, and outer layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.expr import Expr, Index, Iverson, Reduce, Rel, product_of
from derive.algebra.logic import conjunction
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Indices, Value
from derive.lowering.ground.windows import ONE, ZERO, affine_position, is_given, number_of


@dataclass(frozen=True)
class Summation:
    """Sum over binders of the product of the factors, its axes in ``order``."""

    binders: tuple[Index, ...]
    factors: tuple[Expr, ...]
    order: tuple[Index, ...]

    @property
    def brackets(self) -> list[Iverson]:
        return [f for f in self.factors if isinstance(f, Iverson)]

    @property
    def others(self) -> list[Expr]:
        """The factors that are not brackets."""
        return [f for f in self.factors if not isinstance(f, Iverson)]

    @property
    def condition(self) -> Expr:
        """The conjunction of all brackets."""
        return conjunction([b.condition for b in self.brackets])

    @property
    def expr(self) -> Expr:
        return summed_product(self.binders, self.factors)


def summed_product(binders: Indices, factors: Sequence[Expr]) -> Expr:
    """Return the sum of a product; the product itself without binders."""
    body = product_of(factors)
    return Reduce("sum", tuple(binders), body) if binders else body


# --------------------------------------------------------------------
# Triangles of a matrix: masks that compare the indices of its last two axes.
#
# [j - i <= c] x(i, j)  =  x.tril(c)[i, j]
# [i - j <= -c] x(i, j) =  x.triu(c)[i, j]


def masked_triangle(scope: Scope, condition: Expr, value: Value, order: Indices) -> Value:
    """Return the value where the condition holds, else 0; as tril or triu if possible."""
    made = _triangle(scope, condition, value)
    return scope.only_where(condition, value, order) if made is None else made


def _triangle(scope: Scope, condition: Expr, value: Value) -> Value | None:
    """Return the part of a matrix on one side of a diagonal; None for any other mask."""
    if value.scalar or value.kind != "float" or len(value.axes) < 2:
        return None
    if not (isinstance(condition, Rel) and condition.op in ("<", "<=")):
        return None
    i, j = value.axes[-2:]
    found = affine_position(scope.frame.bounds, condition.left - condition.right)
    if found is None or i is None or j is None or set(found.coefficients) != {i, j}:
        return None
    if not is_given(found.constant):
        return None
    strict = ONE if condition.op == "<" else ZERO
    match tuple(found.coefficients[k].number for k in (i, j)):
        case (-1, 1):
            name, diagonal = "tril", -found.constant - strict
        case (1, -1):
            name, diagonal = "triu", found.constant + strict
        case _:
            return None
    return value.call(name, *([] if diagonal == ZERO else [number_of(scope, diagonal)]))
