"""Instances of equations that sum a cotangent along one axis, if that sum is known.

    g[i] - exp(y[i])*Sum_j g[j]   with   Sum_j g[j] = s   is   g[i] - s*exp(y[i])

For example, the sum of a scattered value needs no reduction. Such a kernel is one pass if y is
saved. Brackets common to all terms stay outside: where they are 0, the sum is 0 for any y.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from derive.algebra.expr import Access, Index, free_indices
from derive.algebra.poly import Poly, Term, as_atom, make_term, poly, sum_over
from derive.algebra.rules import DELTA_RULES
from derive.algebra.simplify import eliminate_deltas
from derive.kernels.axis_pattern import AxisPattern, common_masks, without_factors
from derive.kernels.instantiate import as_poly
from derive.kernels.kernel_spec import Kernel, KernelSpec
from derive.kernels.pointwise_pattern import Instance
from derive.kernels.unify import term_quotient


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
