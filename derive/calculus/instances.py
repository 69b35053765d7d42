"""Find what an expression contains: candidates for an instance of an equation, multiples of a sum.

    Sum_j G[i,j]*x[i,d] - Sum_j G[i,j]*y[j,d] + x[i,d]  has  Sum_j G[i,j]*(x[i,d] - y[j,d])

The equations are indexed by a tensor they read. For the multiples of a sum, over which products
were distributed, dividing a term by a term of the base gives the cofactors. The base times these,
distributed again, is a multiple of the base if all of its terms occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product
from typing import Any

from derive.algebra.expr import Expr, Index, Num, Pow, free_indices, tensors
from derive.algebra.match import Binding, match
from derive.algebra.poly import (
    Poly,
    Term,
    add,
    base_and_power,
    make_term,
    mul,
    poly,
    scale,
    sum_over,
)
from derive.algebra.substitution import substitute
from derive.calculus.lets import Let, Lets


class DefinitionIndex:
    """The equations of the spec that satisfy ``fits``, each indexed under a tensor it reads.

    An instance of an equation reads every tensor that the equation does. Equations that are added
    later are found too.
    """

    def __init__(self, lets: Lets, fits: Callable[[Let], bool]) -> None:
        self._lets = lets
        self._fits = fits
        self._seen = 0
        self._under: dict[str | None, list[tuple[int, Let]]] = {}

    def like(self, e: Expr) -> list[Let]:
        """The equations that read only tensors of e, in order of definition."""
        self._update()
        there = tensors(e)
        found = list(self._under.get(None, ()))
        for name in there:
            found += (
                entry for entry in self._under.get(name, ()) if tensors(entry[1].body) <= there
            )
        return [let for _, let in sorted(found, key=lambda entry: entry[0])]

    def _update(self) -> None:
        given = self._lets.given
        new = islice(given.values(), self._seen, None) if len(given) > self._seen else ()
        for n, let in enumerate(new, self._seen):
            if self._fits(let):
                # Index under the tensor with the fewest entries: many may read the same weight.
                names = sorted(tensors(let.body))
                key = min(names, key=lambda name: len(self._under.get(name, ())), default=None)
                self._under.setdefault(key, []).append((n, let))
        self._seen = len(given)


@dataclass(frozen=True)
class Multiple:
    """Sum over the binders of outer, of its factors times the base at these indices."""

    base: Poly
    outer: Term
    mapping: Binding

    def of(self, base: Poly) -> Poly:
        """The same multiple of another sum with the same indices, distributed."""
        whole = mul(poly([Term(self.outer.coef, (), self.outer.factors)]), self.at(base))
        return sum_over(whole, self.outer.binders)

    def at(self, part: Poly) -> Poly:
        """A part of the base at the indices of this multiple."""
        return substitute(part, self.mapping)


def multiples(p: Poly, base: Poly, said: Callable[[Poly], Poly]) -> Iterator[tuple[Multiple, Poly]]:
    """(a multiple of the base that p contains, the rest of p).

    ``said`` normalizes sums as those in p are: a known sum is its name, or 0.
    """
    held = {(t.binders, t.factors): t.coef for t in p.terms}
    for lead in base.terms:
        named = tensors(lead)
        within = [t for t in p.terms if named <= tensors(t)] if named and not lead.binders else []
        for t in within:
            for outer, mapping in _quotients(p, t, lead, base):
                multiple = Multiple(base, outer, mapping)
                whole = multiple.of(base)
                if len(whole.terms) < 2:
                    continue
                if not _contains_multiple(held, whole):
                    whole = said(whole)
                if whole.terms and _contains_multiple(held, whole):
                    yield multiple, add(p, scale(whole, -1))


def _contains_multiple(held: Mapping[Any, Fraction], whole: Poly) -> bool:
    """True if p contains each of these terms with at least this coefficient."""
    counts = (held.get((t.binders, t.factors), Fraction(0)) / t.coef for t in whole.terms)
    return all(count >= 1 for count in counts)


def _quotients(p: Poly, t: Term, lead: Term, base: Poly) -> Iterator[tuple[Term, Binding]]:
    """(t divided by a term of the base, the substitution for the indices of the base).

    An index of the base that the divisor lacks may be any index in scope.
    """
    near = sorted(free_indices(p) | set(t.binders), key=lambda i: i.name)
    for found in _match_submultiset(lead.factors, t.factors, free_indices(base), {}):
        left = sorted(free_indices(base) - set(found), key=lambda i: i.name)
        choices = (
            [i for i in near if _same_extent(i, own) and i not in found.values()] for own in left
        )
        for images in product(*choices):
            if len(set(images)) == len(images):
                mapping = {**found, **dict(zip(left, images, strict=True))}
                yield _divide_term(t, lead, mapping), mapping


def _same_extent(one: Index, other: Index) -> bool:
    return (one.extent, one.group) == (other.extent, other.group)


def _divide_term(t: Term, lead: Term, mapping: Binding) -> Term:
    powers = (base_and_power(substitute(f, mapping)) for f in lead.factors)
    below = [Pow(base, Num(-exponent)) for base, exponent in powers]
    outer = make_term(t.coef / lead.coef, (), (*t.factors, *below))
    return Term(outer.coef, t.binders, outer.factors)


def _match_submultiset(
    patterns: tuple[Expr, ...], factors: tuple[Expr, ...], free: frozenset[Index], found: Binding
) -> Iterator[Binding]:
    """Bindings under which the factors contain those of a pattern, with multiplicity."""
    if not patterns:
        yield found
        return
    base, exponent = base_and_power(patterns[0])
    for f in factors:
        other, times = base_and_power(f)
        if exponent * times > 0 and abs(times) >= abs(exponent):
            for extended in match(base, other, free, found):
                yield from _match_submultiset(patterns[1:], factors, free, extended)
