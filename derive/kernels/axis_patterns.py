"""Instances of equations along one axis: sums, gathers and stacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from derive.algebra.expr import Access, Expr, Index, Size, free_indices, num, tensors, walk
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    as_poly,
    atom,
    is_mask,
    make_term,
    mul,
    poly,
    sum_over,
)
from derive.algebra.rules import DELTA_RULES, eliminate_deltas
from derive.algebra.substitution import rename_apart, substitute
from derive.kernels.kernel_spec import Kernel, KernelSpec, instantiate_atoms
from derive.kernels.pointwise_pattern import Instance, jointly
from derive.kernels.unify import Arguments, contains, multiples, product_of, term_quotient

# ------------------------------------------------------------------------------------- axis pattern
# Instances of equations that sum along one axis and are linear in a cotangent.
#
#     y[i]*(g[i] - Sum_j g[j]*y[j])
#
# Dividing a term with the unsummed cotangent by the other arguments yields the cotangent, which may
# be any product. Then all terms must be present.


@dataclass(frozen=True)
class AxisPattern:
    """The equation of a kernel with one index, as a pattern."""

    row: KernelSpec

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The arguments other than the cotangent."""
        names = (t.name for t in self.row.operation.inputs)
        return tuple(self.row.canonical[name] for name in names if name != self.row.cotangent)

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
        name = self.row.canonical[self.row.cotangent]
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
        cotangent = Access(self.row.canonical[self.row.cotangent], (i,))
        alone = [t for t in pattern.terms if cotangent in t.factors and not t.binders]
        if len(alone) != 1:
            return
        rest = [f for f in alone[0].factors if f is not cotangent]
        known = as_poly(_instance(poly([make_term(alone[0].coef, (), rest)]), found, i))
        if len(known.terms) != 1:
            return

        def whole(g: Poly) -> Poly:
            return as_poly(_instance(pattern, {**found, cotangent.tensor: g}, i))

        pairs = ((s, term_quotient(s, known.terms[0])) for s in p.terms)
        every = (sum_over(product_of(left), s.binders) for s, left in pairs if left is not None)
        gs = [g for g in every if contains(p, whole(g))]
        for g in (add(ZERO, *gs), *gs):
            axes = free_indices(found[self.others[0]])
            if not all(any(axes <= free_indices(f) for f in t.factors) for t in g.terms):
                continue  # cheaper to sum unfused
            if contains(p, part := whole(g)):
                brackets = common_masks(g, i)
                values = {**found, cotangent.tensor: without_factors(g, brackets)}
                given = {self.row.names[n]: v for n, v in values.items()}
                args = tuple(given[name] for name in self.row.arguments)
                kernel = Kernel(self.row.name, args, (i,))
                # Brackets pulled out do not occur in the other argument.
                made_of = make_term(Fraction(1), (), [*brackets, kernel])
                yield Instance(part, poly([made_of]))


@lru_cache(maxsize=1024)
def _may_sum_along_axis(kinds: frozenset[object]) -> bool:
    """True if an index may be free in a term and summed over, by its extent, in another."""
    extents = (kind[1] for kind in kinds if isinstance(kind, tuple) and kind[0] == "sum")
    return any(("free", extent) in kinds for extent in extents)


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


# -------------------------------------------------------------------------------- reduction pattern
# Instances of equations that sum a cotangent along one axis, if that sum is known.
#
#     g[i] - exp(y[i])*Sum_j g[j]   with   Sum_j g[j] = s   is   g[i] - s*exp(y[i])
#
# For example, the sum of a scattered value needs no reduction. Such a kernel is one pass if y is
# saved. Brackets common to all terms stay outside: where they are 0, the sum is 0 for any y.


@dataclass(frozen=True)
class ReductionPattern:
    """The equation of a kernel with one index, if its other argument is a ``held`` tensor."""

    row: KernelSpec
    held: Collection[str]

    @cached_property
    def along(self) -> AxisPattern:
        """The pattern of the same kernel with an explicit sum."""
        return AxisPattern(self.row)

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """True if an expression with nodes of these kinds may contain an instance."""
        return self.row.functions <= kinds

    def instances(self, p: Poly) -> Iterator[Instance]:
        """All of p as the kernel, if it matches."""
        if len(p.terms) < 2:
            return
        for i in sorted(free_indices(p), key=lambda i: i.name):
            for y in self._held(p, i):
                made = self._of(p, i, y)
                if made is not None:
                    yield Instance(p, made)

    def _held(self, p: Poly, i: Index) -> Iterator[Access]:
        """The held tensors that are read inside of factors."""
        inside = (e for t in p.terms for f in t.factors for e in f.parts())
        free = free_indices(p)
        for y in dict.fromkeys(as_atom(as_poly(e)) for e in inside):
            if isinstance(y, Access) and y.tensor in self.held and i in y.positions:
                if free_indices(y) <= free:
                    yield y

    def _of(self, p: Poly, i: Index, y: Access) -> Poly | None:
        """brackets*kernel(g, y) if it equals p."""
        slope = self.along.slope(as_poly(y), i)
        if slope is None:
            return None
        pairs = [(t, term_quotient(t, slope)) for t in p.terms]
        sums = [Term(s.coef, t.binders, s.factors) for t, s in pairs if s is not None]
        rest = poly([t for t, s in pairs if s is None])
        if not sums or not rest.terms or any(i in free_indices(s) for s in sums):
            return None
        if eliminate_deltas(sum_over(rest, [i]), DELTA_RULES, []) is not poly(sums):
            return None
        brackets = common_masks(p, i)
        given = {self.row.cotangent: without_factors(rest, brackets)}
        args = tuple(given.get(name, as_poly(y)) for name in self.row.arguments)
        kernel = Kernel(self.row.name, args, (i,))
        return poly([make_term(Fraction(1), (), [*brackets, kernel])])


# ------------------------------------------------------------------------------------ stack pattern
# Instances of equations of a tensor with a short axis, each position of which is an operand.
#
#     y = x[0]*sigmoid(x[1])
#     dx[t] = delta(t, 0)*g*sigmoid(x[1]) + delta(t, 1)*g*x[0]*sigmoid(x[1])*(1 - sigmoid(x[1]))
#
# If an axis of a tensor has the length that the equation requires, the kernel takes the whole axis.

Short = Callable[[str], Mapping[int, tuple[Index, int]]]
"""The axes of a tensor with a fixed size, by position, and that size."""


@dataclass(frozen=True)
class StackPattern:
    """The equation of a kernel as a pattern; ``short`` returns the fixed-size axes of a tensor."""

    row: KernelSpec
    short: Short

    @cached_property
    def argument(self) -> str:
        """The canonical name of the tensor with the axis."""
        (name,) = (t.name for t in self.row.operation.inputs if t.axes)
        return self.row.canonical[name]

    @cached_property
    def size(self) -> int:
        """The length of the axis."""
        (size,) = self.row.lengths.values()
        return size

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """True if an expression with nodes of these kinds may contain an instance."""
        return self.row.functions <= kinds

    def instances(self, p: Poly) -> Iterator[Instance]:
        """The parts of p that the kernel computes."""
        sizes = (size for name in tensors(p) for _, size in self.short(name).values())
        if self.size not in sizes:
            return
        read = (e for t in p.terms for f in t.factors for e in walk(f))
        for e in dict.fromkeys(e for e in read if isinstance(e, Access)):
            for n, (i, size) in self.short(e.tensor).items():
                if size == self.size and e.positions[n] is num(size - 1):
                    yield from self._along(e, n, i, p)

    def _along(self, e: Access, n: int, i: Index, p: Poly) -> Iterator[Instance]:
        """The instances for the tensor that e reads at the last position of axis n (index i)."""
        free = free_indices(p)
        new = rename_apart([i], {*free, *free_indices(e)})
        alike = (j for j in free - free_indices(e) if j.extent == i.extent and not j.group)
        for j in sorted(alike if self.row.along else new, key=lambda j: j.name):
            x = Access(e.tensor, (*e.positions[:n], j, *e.positions[n + 1 :]))
            yield from self._of(x, n, j, p)

    def _of(self, x: Access, n: int, i: Index, p: Poly) -> Iterator[Instance]:
        """The instances for this argument, one for each possible cofactor of its first term."""

        def become(part: Expr) -> Poly | None:
            if not isinstance(part, Access) or part.tensor != self.argument:
                return None
            (place,) = part.positions
            return atom(Access(x.tensor, (*x.positions[:n], place, *x.positions[n + 1 :])))

        bare = substitute(self.row.bare, dict.fromkeys(self.row.formals, i))
        every = as_poly(instantiate_atoms(bare, become))
        parts = multiples(p, every, every.terms[0])
        yield from jointly([self._made(c, whole, x, i) for c, whole in parts], p)

    def _made(self, c: Term, whole: Poly, x: Access, i: Index) -> Instance | None:
        """The kernel with its cofactor; a cotangent is the whole cofactor, summed if x is not."""
        rest = product_of(c)
        if not self.row.cotangent:
            kernel = Kernel(self.row.name, (as_poly(x),), (i,), (i,))
            return Instance(whole, sum_over(mul(rest, atom(kernel)), c.binders))
        outside = [b for b in c.binders if b in free_indices(x)]
        g = sum_over(rest, [b for b in c.binders if b not in outside])
        if not free_indices(g) <= free_indices(x) - {i}:
            return None
        given = {self.row.cotangent: g, self.row.names[self.argument]: as_poly(x)}
        kernel = Kernel(self.row.name, tuple(given[a] for a in self.row.arguments), (i,))
        return Instance(whole, sum_over(atom(kernel), outside))
