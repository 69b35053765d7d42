"""Instances of equations that read a tensor at a position from an integer tensor.

    y = -[t != ignored]*w[t]*x[t]
    dx[c] = -[t != ignored]*g*w[t]*delta(c, t)

Without w in a term, w is 1. In the backward the cofactors are the cotangent, in the forward a
number. Where the bracket is 0, their values do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Param,
    free_indices,
    tensors,
)
from derive.algebra.poly import ONE, Poly, Term, atom, constant, make_term, mul, poly, sum_over
from derive.algebra.substitution import rename_apart
from derive.kernels.kernel_spec import Axes, Kernel, KernelSpec
from derive.kernels.pointwise_pattern import Instance
from derive.kernels.unify import Arguments, Found

Floats = Callable[[str], Axes | None]
"""The axes of a float tensor, empty for a float parameter; None for any other name."""


@dataclass(frozen=True)
class GatherPattern:
    """The one-term equation of a kernel, as a pattern."""

    row: KernelSpec
    floats: Floats

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """True if an expression with nodes of these kinds may contain an instance."""
        return {"Iverson", "Guard"} <= kinds

    def instances(self, p: Poly) -> Iterator[Instance]:
        """All of p, if the kernel computes it: within a larger sum it would save nothing."""
        if len(p.terms) != 1:
            return
        (t,) = p.terms
        for place in dict.fromkeys(e for f in t.factors for e in _guarded_positions(f)):
            mask = Iverson(place.condition)
            if mask in t.factors:
                yield from self._of(t, [f for f in t.factors if f is not mask], place)

    @cached_property
    def _arguments(self) -> Arguments:
        """The position, and the numbers that it is compared with."""
        op = self.row.operation
        said = {display_names: name for name, display_names in self.row.names.items()}
        places = frozenset(said[t.name] for t in op.inputs if t.kind == "int")
        return Arguments(places, frozenset(said[p.name] for p in op.parameters))

    @cached_property
    def _place(self) -> Guard:
        """The guarded position at which the equation reads."""
        (place,), numbers = self._arguments.tensors, self._arguments.numbers
        masks = (f for f in self.row.body.terms[0].factors if isinstance(f, Iverson))
        own = next(f for f in masks if not numbers.isdisjoint(self._arguments.inside(f)))
        return Guard(own.condition, Access(place, ()))

    def _of(self, t: Term, beside: Sequence[Expr], place: Guard) -> Iterator[Instance]:
        """The instances that read at this position; ``beside`` are the bracket's cofactors."""
        for found in self._arguments.bind(self._place, place, {}):
            if not self._are_integers(found):
                continue
            for f in beside:
                i = self._axis(f, place)
                if i is not None:
                    yield from self._made(t, [g for g in beside if g is not f], place, f, i, found)

    def _are_integers(self, found: Found) -> bool:
        """True if the values of the number arguments are integers."""
        numbers = [found[name] for name in self._arguments.numbers]
        return all(
            t.coef.denominator == 1
            and all(isinstance(f, Param) and self.floats(f.name) is None for f in t.factors)
            for number in numbers
            for t in number.terms
        )

    def _axis(self, f: Expr, place: Guard) -> Index | None:
        """The axis of f that this position indexes, by a read or by a delta; None if unsuitable."""
        free = free_indices(place)
        if self.row.cotangent:
            if isinstance(f, Delta) and f.position is place and isinstance(f.axis, Index):
                return f.axis if f.axis not in free else None
            return None
        if not isinstance(f, Access) or (axes := self.floats(f.tensor)) is None:
            return None
        others = [e for e in f.positions if e is not place]
        if len(others) != len(axes) - 1 or len(others) != len(free) or set(others) != free:
            return None
        (i,) = rename_apart([axes[f.positions.index(place)]], free)
        return i

    def _made(
        self, t: Term, beside: Sequence[Expr], place: Guard, f: Expr, i: Index, found: Found
    ) -> Iterator[Instance]:
        """The term as the kernel along this axis, with the remaining cofactors."""
        own = (w for w in beside if isinstance(w, Access) and w.positions == (place,))
        weight = next((w for w in own if self.floats(w.tensor) is not None), None)
        left = poly([make_term(t.coef, (), [g for g in beside if g is not weight])])
        bare = constant(1 / self.row.body.terms[0].coef)
        given = {self.row.names[name]: value for name, value in found.items()}
        given[self.row.shared] = ONE if weight is None else atom(Access(weight.tensor, (i,)))
        if self.row.cotangent:
            given[self.row.cotangent] = g = sum_over(mul(bare, left), t.binders)
            seen = free_indices(place)
            if not tensors(g) or not free_indices(g) <= seen or not seen.isdisjoint(t.binders):
                return
            made = atom(self._kernel(given, i))
        elif tensors(left):
            return
        else:
            given[self._read] = atom(_ungathered(f, place, i))
            made = sum_over(mul(bare, left, atom(self._kernel(given, i, (i,)))), t.binders)
        yield Instance(poly([t]), made)

    def _kernel(self, given: Mapping[str, Poly], i: Index, binders: Axes = ()) -> Kernel:
        return Kernel(self.row.name, tuple(given[a] for a in self.row.arguments), (i,), binders)

    @cached_property
    def _read(self) -> str:
        """The argument that is gathered: it is read at the position."""
        own = (t.name for t in self.row.operation.inputs if t.axes)
        return next(name for name in own if name != self.row.shared)


def _ungathered(f: Expr, place: Guard, i: Index) -> Access:
    """f with the index i instead of this position."""
    assert isinstance(f, Access)
    return Access(f.tensor, tuple(i if e is place else e for e in f.positions))


def _guarded_positions(f: Expr) -> Iterator[Guard]:
    """The guarded positions of f: those of a read, or that of a delta."""
    parts = f.positions if isinstance(f, Access) else ()
    parts = (f.position,) if isinstance(f, Delta) else parts
    yield from (e for e in parts if isinstance(e, Guard))
