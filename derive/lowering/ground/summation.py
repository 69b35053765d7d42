"""Sums of one product in the form that patterns match: binders, factors, and outer layout."""

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
        """The factors that are not brackets."""
        return [f for f in self.factors if not isinstance(f, Iverson)]

    @property
    def condition(self) -> Expr:
        """The conjunction of all brackets."""
        return conjunction([b.condition for b in self.brackets])

    @property
    def expr(self) -> Expr:
        return summed_product(self.binders, self.factors)


def summed_product(binders: Sequence[Index], factors: Sequence[Expr]) -> Expr:
    """Return the sum of a product; the product itself without binders."""
    body = product_of(factors)
    return Reduce("sum", tuple(binders), body) if binders else body
