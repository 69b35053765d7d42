"""Sums with what a kernel computes as that kernel.

Names are opened as far as an equation asks for it, and a kernel takes the place of whole terms
alone: what else such a name is part of stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import islice

from derive.algebra.expr import Access, Expr, tensors
from derive.algebra.poly import ZERO, Poly, Term, add, make_term, poly
from derive.calculus.lets import Find, Let
from derive.kernels.along import Along
from derive.kernels.elementwise import Elementwise, kinds_of
from derive.kernels.rebuild import opened
from derive.kernels.table import BACKWARD, FORWARD

Pattern = Elementwise | Along

_MOST_OPENED = 5
"""In how many steps names are opened."""


@cache
def patterns(backward: bool) -> tuple[Pattern, ...]:
    """The equations of kernels, those of a backward first where they are asked for."""
    rows = (*BACKWARD, *FORWARD) if backward else FORWARD
    return tuple(Along(row) if row.along else Elementwise(row) for row in rows)


def with_kernels(body: Poly, rows: Sequence[Pattern], find: Find) -> Poly:
    """The body with kernels, outermost first."""
    while (made := _replaced(body, rows, find)) is not None:
        body = made
    inside = partial(_inside, rows=rows, find=find)
    return add(ZERO, *(_term(t, inside) for t in body.terms))


def _term(t: Term, inside: Callable[[Expr], Expr]) -> Poly:
    factors = [inside(f) for f in t.factors]
    if all(a is b for a, b in zip(factors, t.factors, strict=True)):
        return poly([t])
    return poly([make_term(t.coef, t.binders, factors)])


def _inside(e: Expr, rows: Sequence[Pattern], find: Find) -> Expr:
    """What stands inside a factor, with kernels."""
    if isinstance(e, Poly):
        return with_kernels(e, rows, find)
    if isinstance(e, Access):
        return e
    whole: Expr = e.map(lambda part: _inside(part, rows, find))
    return whole


def _replaced(body: Poly, rows: Sequence[Pattern], find: Find) -> Poly | None:
    """The body with one part of it as a kernel."""
    levels = list(islice(_levels(body, find), _MOST_OPENED))
    for row in rows:
        for level in levels:
            if not row.may_be_in(level.kinds):
                continue
            for found in row.instances(level.whole):
                left = level.without(found.whole)
                if left is not None:
                    return add(ZERO, left, found.made)
    return None


@dataclass(frozen=True)
class _Level:
    """A body with some names opened: each of its terms by itself."""

    body: Poly
    names: dict[str, Let]

    @cached_property
    def own(self) -> list[Poly]:
        """What each term is."""
        return [opened(poly([t]), self.names.get) for t in self.body.terms]

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


def _levels(body: Poly, find: Find) -> Iterator[_Level]:
    """Which names are opened: none, those of parts of equations, then also others one by one."""
    names: dict[str, Let] = {}
    while True:
        level = _Level(body, names)
        yield level
        there = tensors(level.whole)
        reads = {name: let for name in there if (let := _elementwise(find, name)) is not None}
        parts = {name: let for name, let in reads.items() if let.internal}
        if not reads:
            return
        last = max(reads)
        names = {**names, **(parts or {last: reads[last]})}


def _elementwise(find: Find, name: str) -> Let | None:
    """The definition of a name that is one of each of its places, and sums nothing."""
    let = find(name)
    if let is None or let.kind != "sum" or let.dtype != "float":
        return None
    return None if any(t.binders for t in let.body.terms) else let
