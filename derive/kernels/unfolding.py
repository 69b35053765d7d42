"""A sum with some names expanded, term by term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import Access
from derive.algebra.poly import ZERO, Poly, add, poly
from derive.calculus.lets import Find
from derive.kernels.instantiate import expand_names
from derive.kernels.pointwise_pattern import kinds_of


@dataclass(frozen=True)
class UnfoldedBody:
    """A body with some names expanded; a rewrite of the expansion must replace whole terms."""

    body: Poly
    names: Find
    form: Callable[[Poly], Poly] = lambda p: p

    @cached_property
    def own(self) -> list[Poly]:
        """The expansion of each term."""
        known: dict[Access, Poly] = {}
        return [self.form(expand_names(poly([t]), self.names, known)) for t in self.body.terms]

    @cached_property
    def whole(self) -> Poly:
        """The expansion of all terms."""
        return add(ZERO, *self.own)

    @cached_property
    def kinds(self) -> frozenset[object]:
        """The node kinds in all terms."""
        return frozenset(kinds_of(self.whole))

    def without(self, part: Poly) -> Poly | None:
        """The terms of the body without those that expand to this part; None if no subset does."""
        those = set(part.terms)
        touched = [not those.isdisjoint(p.terms) for p in self.own]
        used = [p for p, own in zip(self.own, touched, strict=True) if own]
        if add(ZERO, *used) is not part:
            return None
        return poly(t for t, own in zip(self.body.terms, touched, strict=True) if not own)
