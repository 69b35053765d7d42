"""A sum in which some names are opened, each of its terms by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import Access
from derive.algebra.poly import ZERO, Poly, add, poly
from derive.calculus.lets import Find
from derive.kernels.instantiate import opened
from derive.kernels.pointwise_pattern import kinds_of


@dataclass(frozen=True)
class UnfoldedBody:
    """A body with some names opened: what takes the place of a part takes that of whole terms."""

    body: Poly
    names: Find
    form: Callable[[Poly], Poly] = lambda p: p

    @cached_property
    def own(self) -> list[Poly]:
        """What each term is."""
        known: dict[Access, Poly] = {}
        return [self.form(opened(poly([t]), self.names, known)) for t in self.body.terms]

    @cached_property
    def whole(self) -> Poly:
        """What all terms are."""
        return add(ZERO, *self.own)

    @cached_property
    def kinds(self) -> frozenset[object]:
        """What stands in all terms."""
        return frozenset(kinds_of(self.whole))

    def without(self, part: Poly) -> Poly | None:
        """The terms of the body but for those that are this part; None where no terms are."""
        those = set(part.terms)
        touched = [not those.isdisjoint(p.terms) for p in self.own]
        used = [p for p, own in zip(self.own, touched, strict=True) if own]
        if add(ZERO, *used) is not part:
            return None
        return poly(t for t, own in zip(self.body.terms, touched, strict=True) if not own)
