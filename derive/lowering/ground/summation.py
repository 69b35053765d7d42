"""Sums of one product, as the patterns see them: binders, factors, and the layout around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.expr import Expr, Index, Iverson, Reduce, product_of
from derive.algebra.logic import conjunction


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
        """The factors that are no brackets."""
        return [f for f in self.factors if not isinstance(f, Iverson)]

    @property
    def condition(self) -> Expr:
        """Where all brackets are 1."""
        return conjunction([b.condition for b in self.brackets])

    @property
    def expr(self) -> Expr:
        return total(self.binders, self.factors)


def total(binders: Sequence[Index], factors: Sequence[Expr]) -> Expr:
    """The sum of a product; the product itself where nothing is summed."""
    body = product_of(factors)
    return Reduce("sum", tuple(binders), body) if binders else body
