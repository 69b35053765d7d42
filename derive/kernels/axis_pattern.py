"""Instances of equations that sum along one axis and are linear in a cotangent.

    y[i]*(g[i] - Sum_j g[j]*y[j])

Dividing a term with the unsummed cotangent by the other arguments yields the cotangent, which may
be any product. Then all terms must be present.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from derive.algebra.expr import Access, Expr, Index, Size, free_indices
from derive.algebra.poly import ZERO, Poly, Term, add, atom, is_mask, make_term, poly, sum_over
from derive.algebra.substitution import substitute
from derive.kernels.instantiate import as_poly, instantiate_atoms
from derive.kernels.kernel_spec import Kernel, KernelSpec
from derive.kernels.pointwise_pattern import Instance
from derive.kernels.unify import Arguments, term_quotient


@dataclass(frozen=True)
class AxisPattern:
    """The equation of a kernel with one index, as a pattern."""

    row: KernelSpec

    @cached_property
    def said(self) -> dict[str, str]:
        """Map the equation's names to the canonical names."""
        return {display_names: name for name, display_names in self.row.names.items()}

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The arguments other than the cotangent."""
        names = (t.name for t in self.row.operation.inputs)
        return tuple(self.said[name] for name in names if name != self.row.cotangent)

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """True if an expression with nodes of these kinds may contain an instance."""
        return self.row.functions <= kinds and _may_sum_along_axis(kinds)

    def instances(self, p: Poly) -> Iterator[Instance]:
        """The parts of p that the kernel computes."""
        if len(p.terms) < len(self.row.body.terms):
            return
        bound = {i.extent for t in p.terms for i in t.binders if not i.group}
        for i in sorted(free_indices(p), key=lambda i: i.name):
            if not i.group and i.extent in bound:
                yield from self._at(i, p)

    def _at(self, i: Index, p: Poly) -> Iterator[Instance]:
        (formal,) = self.row.formals
        pattern = as_poly(_equation_at(self.row.body, formal, i))
        (other,) = self.others
        factors = dict.fromkeys(f for t in p.terms for f in t.factors if i in free_indices(f))
        for f in factors:
            for value in self._values(pattern, f, i, other):
                yield from self._of({other: value}, pattern, i, p)

    def _values(self, pattern: Poly, f: Expr, i: Index, name: str) -> Iterator[Poly]:
        """The values of the argument for which a factor f matches one of the pattern."""
        arguments = Arguments(frozenset({name}), frozenset(), i)
        for part in dict.fromkeys(g for t in pattern.terms for g in t.factors):
            if arguments.inside(part) and i in free_indices(part):
                for found in arguments.bind(part, f, {}):
                    yield found[name]

    @cached_property
    def has_slope(self) -> bool:
        """True if the equation is g[i] + K(y)*Sum_j g[j]."""
        (formal,) = self.row.formals
        (other,) = self.others
        return self.slope(atom(Access(other, (formal,))), formal) is not None

    def slope(self, y: Poly, i: Index) -> Term | None:
        """K(y) if the equation is g[i] + K(y)*Sum_j g[j]."""
        (formal,) = self.row.formals
        (other,) = self.others
        name = self.said[self.row.cotangent]
        pattern = as_poly(_equation_at(self.row.body, formal, i))
        alone = [t for t in pattern.terms if t.factors == (Access(name, (i,)),)]
        rest = [t for t in pattern.terms if t not in alone]
        if len(alone) != 1 or len(rest) != 1:
            return None
        factors = [f for f in rest[0].factors if not isinstance(f, Access) or f.tensor != name]
        if any(b in free_indices(f) for f in factors for b in rest[0].binders):
            return None
        known = as_poly(_instance(poly([make_term(rest[0].coef, (), factors)]), {other: y}, i))
        return known.terms[0] if len(known.terms) == 1 else None

    def _of(self, found: dict[str, Poly], pattern: Poly, i: Index, p: Poly) -> Iterator[Instance]:
        """The instances with this value of the other argument."""
        cotangent = Access(self.said[self.row.cotangent], (i,))
        alone = [t for t in pattern.terms if cotangent in t.factors and not t.binders]
        if len(alone) != 1:
            return
        rest = [f for f in alone[0].factors if f is not cotangent]
        known = as_poly(_instance(poly([make_term(alone[0].coef, (), rest)]), found, i))
        if len(known.terms) != 1:
            return
        made: list[tuple[Poly, Poly]] = []
        for s in p.terms:
            left = term_quotient(s, known.terms[0])
            if left is None:
                continue
            g = sum_over(poly([make_term(left.coef, (), left.factors)]), s.binders)
            whole = as_poly(_instance(pattern, {**found, cotangent.tensor: g}, i))
            if all(t in p.terms for t in whole.terms):
                made.append((g, whole))
        for gs in ([g for g, _ in made], *([g] for g, _ in made)):
            if not gs:
                continue
            g = add(ZERO, *gs)
            if not _is_as_large(g, free_indices(found[self.others[0]])):
                continue
            whole = as_poly(_instance(pattern, {**found, cotangent.tensor: g}, i))
            if all(t in p.terms for t in whole.terms):
                brackets = common_masks(g, i)
                values = {**found, cotangent.tensor: without_factors(g, brackets)}
                given = {self.row.names[n]: v for n, v in values.items()}
                args = tuple(given[name] for name in self.row.arguments)
                kernel = Kernel(self.row.name, args, (i,))
                # Brackets pulled out do not occur in the other argument.
                made_of = make_term(Fraction(1), (), [*brackets, kernel])
                yield Instance(whole, poly([made_of]))


@lru_cache(maxsize=1024)
def _may_sum_along_axis(kinds: frozenset[object]) -> bool:
    """True if an index may be free in a term and summed over, by its extent, in another."""
    extents = (kind[1] for kind in kinds if isinstance(kind, tuple) and kind[0] == "sum")
    return any(("free", extent) in kinds for extent in extents)


def _is_as_large(g: Poly, indices: frozenset[Index]) -> bool:
    """True if each term has a factor with these indices; otherwise it is cheaper to sum unfused."""
    return all(any(indices <= free_indices(f) for f in t.factors) for t in g.terms)


def _equation_at(e: Expr, formal: Index, i: Index) -> Expr:
    """The equation with i for its own index."""
    if isinstance(e, Index) and e.extent == formal.extent:
        return i if e.name == formal.name else Index(e.name, i.extent)
    if isinstance(e, Size) and e.extent == formal.extent:
        return Size(i.extent)
    whole: Expr = e.map(lambda part: _equation_at(part, formal, i))
    return whole


def _instance(e: Expr, found: dict[str, Poly], i: Index) -> Expr:
    """e with these arguments substituted, given as functions of i."""

    def become(part: Expr) -> Poly | None:
        value = found.get(part.tensor) if isinstance(part, Access) else None
        if value is None:
            return None
        assert isinstance(part, Access)
        return as_poly(substitute(value, {i: part.positions[0]}))

    return instantiate_atoms(e, become)


def common_masks(p: Poly, i: Index) -> list[Expr]:
    """The brackets common to all terms that have neither the index nor bound indices."""
    first, *others = p.terms
    inside = {i, *(b for t in p.terms for b in t.binders)}
    masks = [f for f in first.factors if is_mask(f) and inside.isdisjoint(free_indices(f))]
    return [f for f in masks if all(f in t.factors for t in others)]


def without_factors(p: Poly, gone: Collection[Expr]) -> Poly:
    kept = ([f for f in t.factors if f not in gone] for t in p.terms)
    made = (make_term(t.coef, t.binders, own) for t, own in zip(p.terms, kept, strict=True))
    return poly(made)
