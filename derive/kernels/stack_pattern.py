"""Instances of equations of a tensor with a short axis, each position of which is an operand.

    y = x[0]*sigmoid(x[1])
    dx[t] = delta(t, 0)*g*sigmoid(x[1]) + delta(t, 1)*g*x[0]*sigmoid(x[1])*(1 - sigmoid(x[1]))

If an axis of a tensor has the length that the equation requires, the kernel takes the whole axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from derive.algebra.expr import Access, Expr, Index, free_indices, num, tensors, walk
from derive.algebra.poly import Poly, Term, add, atom, make_term, mul, poly, sum_over
from derive.algebra.substitution import rename_apart, substitute
from derive.kernels.instantiate import as_poly, instantiate_atoms
from derive.kernels.kernel_spec import Kernel, KernelSpec
from derive.kernels.pointwise_pattern import Instance
from derive.kernels.unify import term_quotient

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
        return self._said[name]

    @cached_property
    def size(self) -> int:
        """The length of the axis."""
        (size,) = self.row.lengths.values()
        return size

    @cached_property
    def _said(self) -> dict[str, str]:
        return {display_names: name for name, display_names in self.row.names.items()}

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
        if self.row.along:
            own = [j for j in free - free_indices(e) if j.extent == i.extent and not j.group]
        else:
            own = list(rename_apart([i], {*free, *free_indices(e)}))
        for j in sorted(own, key=lambda j: j.name):
            x = Access(e.tensor, (*e.positions[:n], j, *e.positions[n + 1 :]))
            yield from self._of(x, n, j, p)

    def _of(self, x: Access, n: int, i: Index, p: Poly) -> Iterator[Instance]:
        """The instances for this argument, one for each possible cofactor of its first term."""

        def become(part: Expr) -> Poly | None:
            if not isinstance(part, Access) or part.tensor != self.argument:
                return None
            (place,) = part.positions
            return atom(Access(x.tensor, (*x.positions[:n], place, *x.positions[n + 1 :])))

        every = as_poly(
            instantiate_atoms(substitute(self._bare, dict.fromkeys(self.row.formals, i)), become)
        )
        made = [
            instance
            for s in p.terms
            if (beside := term_quotient(s, every.terms[0])) is not None
            and (instance := self._made(s, beside, every, x, i)) is not None
            and all(t in p.terms for t in instance.whole.terms)
        ]
        if len(made) > 1:
            whole = add(*(m.whole for m in made))
            if all(t in p.terms for t in whole.terms):
                yield Instance(whole, add(*(m.made for m in made)))
        yield from made

    @cached_property
    def _bare(self) -> Poly:
        """The equation for the cotangent 1."""
        bare = self._said.get(self.row.cotangent)
        return poly(
            make_term(t.coef, (), [f for f in t.factors if getattr(f, "tensor", "") != bare])
            for t in self.row.body.terms
        )

    def _made(self, s: Term, beside: Term, every: Poly, x: Access, i: Index) -> Instance | None:
        """The kernel with its cofactor; a cotangent is the whole cofactor."""
        rest = poly([make_term(beside.coef, (), beside.factors)])
        whole = sum_over(mul(rest, every), s.binders)
        if not self.row.cotangent:
            kernel = Kernel(self.row.name, (as_poly(x),), (i,), (i,))
            return Instance(whole, sum_over(mul(rest, atom(kernel)), s.binders))
        g = sum_over(rest, s.binders)
        if not free_indices(g) <= free_indices(x) - {i}:
            return None
        given = {self.row.cotangent: g, self.row.names[self.argument]: as_poly(x)}
        kernel = Kernel(self.row.name, tuple(given[a] for a in self.row.arguments), (i,))
        return Instance(whole, poly([make_term(Fraction(1), (), [kernel])]))
