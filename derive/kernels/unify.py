"""Unify an equation with another for candidate arguments, which must be verified afterwards.

If an argument occurs alone in a term of a sum, it is solved for. In x*(1 + erf(x/sqrt(2)))/2, any
erf(e) in the other equation yields x = sqrt(2)*e.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from derive.algebra.expr import Access, Expr, Index, Param, Pow, free_indices, tensors, walk
from derive.algebra.match import bind_all, bind_pairs, parts_in_pairs
from derive.algebra.poly import (
    Poly,
    Term,
    add,
    as_poly,
    base_and_power,
    make_term,
    mul,
    poly,
    power,
    raised,
    scale,
    sum_over,
)
from derive.budget import tick
from derive.kernels.kernel_spec import instantiate_atoms

Found = Mapping[str, Poly]
"""The values of arguments, by canonical name."""


@dataclass(frozen=True)
class Arguments:
    """The names of the tensor and number arguments of an equation."""

    tensors: frozenset[str]
    numbers: frozenset[str]
    index: Index | None = None
    """The index of the tensors, if they have an axis."""

    def of(self, e: Expr) -> str | None:
        """The name of the argument that e is, or None."""
        if isinstance(e, Access) and e.tensor in self.tensors:
            own = () if self.index is None else (self.index,)
            return e.tensor if e.positions == own else None
        return e.name if isinstance(e, Param) and e.name in self.numbers else None

    def inside(self, e: Expr) -> frozenset[str]:
        """The arguments that e reads."""
        return self._inside(e)

    @cached_property
    def _inside(self) -> Callable[[Expr], frozenset[str]]:
        """`inside` with a cache, as patterns are examined repeatedly."""

        def inside(e: Expr) -> frozenset[str]:
            return frozenset(name for part in walk(e) if (name := self.of(part)) is not None)

        return lru_cache(maxsize=1024)(inside)

    def instance(self, e: Expr, found: Found) -> Expr:
        """e with these arguments substituted."""
        return instantiate_atoms(e, lambda part: found.get(self.of(part) or ""))

    def admits(self, name: str, value: Poly) -> bool:
        """True if a value suits the argument: a number reads no tensor and has no index."""
        if name in self.numbers:
            return not tensors(value) and not free_indices(value)
        return bool(tensors(value))

    def bind(self, pattern: Expr, target: Expr, found: Found) -> Iterator[Found]:
        """Every extension of ``found`` that may make the pattern equal the target."""
        tick()
        name = self.of(pattern)
        if name is not None:
            yield from self._bound(name, as_poly(target), found)
        elif isinstance(pattern, Poly):
            yield from self._sum(pattern, as_poly(target), found)
        elif not self.inside(pattern):
            if pattern is target:
                yield found
        elif type(pattern) is type(target):
            pairs = _in_pairs(pattern, target)
            if pairs is not None:
                yield from bind_pairs(pairs, found, self.bind)

    def _bound(self, name: str, value: Poly, found: Found) -> Iterator[Found]:
        if name in found:
            if found[name] is value:
                yield found
        elif self.admits(name, value):
            yield {**found, name: value}

    def _sum(self, pattern: Poly, target: Poly, found: Found) -> Iterator[Found]:
        if not self.inside(pattern).isdisjoint(found):
            pattern = as_poly(self.instance(pattern, found))
        left = self.inside(pattern)
        if not left:
            if pattern is target:
                yield found
            return
        if len(left) == 1:
            (name,) = left
            solution = self._solved(pattern, target, name)
            if solution is not None:
                yield from self._bound(name, solution, found)
                return
        if len(pattern.terms) == len(target.terms) == 1:
            yield from self._product(pattern.terms[0], target.terms[0], found)
        elif (sides := self._difference(pattern)) is not None:
            values = _difference_sides(target)
            for extended in self._bound(sides[0], values[0], found):
                yield from self._bound(sides[1], values[1], extended)
        elif len(pattern.terms) == 2 and len(target.terms) == 2:
            for targets in (target.terms, target.terms[::-1]):
                pairs = zip(pattern.terms, targets, strict=True)
                alone = [(poly([a]), poly([b])) for a, b in pairs]
                yield from bind_pairs(alone, found, self.bind)

    def _difference(self, pattern: Poly) -> tuple[str, str] | None:
        """The two arguments whose difference the sum is."""
        bare = {t.coef: self.of(t.factors[0]) for t in pattern.terms if len(t.factors) == 1}
        if len(pattern.terms) == 2 and set(bare) == {1, -1}:
            first, second = bare[Fraction(1)], bare[Fraction(-1)]
            return None if first is None or second is None else (first, second)
        return None

    def _solved(self, pattern: Poly, target: Poly, name: str) -> Poly | None:
        """The argument value that makes a sum equal the target, if it occurs in one term only."""
        own = [t for t in pattern.terms if name in self.inside(t)]
        if len(own) != 1:
            return None
        (t,) = own
        times = [f for f in t.factors if self.of(base_and_power(f)[0]) == name]
        beside = [f for f in t.factors if f not in times]
        if len(times) != 1 or t.binders or any(name in self.inside(f) for f in beside):
            return None
        _, exponent = base_and_power(times[0])
        if abs(exponent) != 1:
            return None
        others = poly(o for o in pattern.terms if o is not t)
        found, by = add(target, scale(others, -1)), Term(t.coef, (), tuple(beside))
        if not tensors(by):
            found = mul(power(poly([make_term(t.coef, (), beside)]), Fraction(-1)), found)
        else:
            parts = [term_quotient(s, by) for s in found.terms if not s.binders]
            if len(parts) != len(found.terms) or not all(parts):
                return None
            found = poly(part for part in parts if part is not None)
        return power(found, exponent)

    def _product(self, pattern: Term, target: Term, found: Found) -> Iterator[Found]:
        """Bind factors one by one: one that is not an argument itself is bound first."""
        if pattern.binders:
            return
        if pattern.coef == target.coef and not target.binders:
            yield from bind_all(pattern.factors, target.factors, found, self.bind)
        for f in pattern.factors:
            if self.inside(f) and self.of(base_and_power(f)[0]) is None:
                for g in target.factors:
                    for extended in self.bind(f, g, found):
                        yield from self._sum(
                            _without_factor(pattern, f), _without_factor(target, g), extended
                        )
                return


def _without_factor(t: Term, factor: Expr) -> Poly:
    return poly([make_term(t.coef, t.binders, [f for f in t.factors if f is not factor])])


def _difference_sides(target: Poly) -> tuple[Poly, Poly]:
    """Two sums whose difference is the target."""
    less = [t for t in target.terms if t.coef < 0]
    if len(less) in (0, len(target.terms)):
        less = list(target.terms[1:])
    return add(target, scale(poly(less), -1)), scale(poly(less), -1)


def _in_pairs(pattern: Expr, target: Expr) -> list[tuple[Expr, Expr]] | None:
    """The corresponding children of two nodes; the exponents of powers must be the same."""
    if isinstance(pattern, Pow) and isinstance(target, Pow):
        same = pattern.exponent is target.exponent
        return [(pattern.base, target.base)] if same else None
    return parts_in_pairs(pattern, target)


def split_numbers(t: Term) -> tuple[Poly, Term]:
    """The number factors of a term, and its other factors."""
    numbers = [f for f in t.factors if not tensors(f) and not free_indices(f)]
    rest = [f for f in t.factors if f not in numbers]
    return poly([make_term(t.coef, (), numbers)]), make_term(Fraction(1), t.binders, rest)


def term_quotient(s: Term, t: Term) -> Term | None:
    """s/t if each factor of t divides one of s, else None."""
    powers = dict(map(base_and_power, s.factors))
    for f in t.factors:
        base, exponent = base_and_power(f)
        have = powers.get(base)
        if have is None or have * exponent < 0 or abs(have) < abs(exponent):
            return None
        powers[base] = have - exponent
    left = tuple(raised(base, e) for base, e in powers.items() if e)
    return Term(s.coef / t.coef, (), left)


def product_of(t: Term) -> Poly:
    """The product that a term sums."""
    return poly([make_term(t.coef, (), t.factors)])


def contains(p: Poly, part: Poly) -> bool:
    """True if p has all terms of a part."""
    return bool(part.terms) and all(t in p.terms for t in part.terms)


def multiples(p: Poly, part: Poly, first: Term) -> Iterator[tuple[Term, Poly]]:
    """(c, Sum_binders c*part) for each multiple in p of a sum that has the term ``first``."""
    for s in p.terms:
        beside = term_quotient(s, first)
        if beside is not None:
            cofactor = Term(beside.coef, s.binders, beside.factors)
            whole = sum_over(mul(product_of(cofactor), part), s.binders)
            if contains(p, whole):
                yield cofactor, whole
