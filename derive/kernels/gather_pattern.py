"""Instances of equations that read a tensor at the place which an integer tensor says.

    y = -[t != ignored]*w[t]*x[t]
    dx[c] = -[t != ignored]*g*w[t]*delta(c, t)

A term without w has it as 1. What stands beside is the cotangent, elsewhere a number: where the
bracket does not hold, it may be anything.
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
from derive.algebra.substitution import apart
from derive.kernels.kernel_spec import Axes, Kernel, KernelSpec
from derive.kernels.pointwise_pattern import Instance
from derive.kernels.unify import Arguments, Found

Floats = Callable[[str], Axes | None]
"""The axes of what is of floating-point numbers, none of a parameter; None of all else."""


@dataclass(frozen=True)
class Picked:
    """The equation of a row, one term, as a pattern."""

    row: KernelSpec
    floats: Floats

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """Whether what has nodes of these kinds may hold an instance."""
        return "Iverson" in kinds

    def instances(self, p: Poly) -> Iterator[Instance]:
        """All of p, if the kernel computes it: what is chosen beside more costs no more so."""
        if len(p.terms) != 1:
            return
        (t,) = p.terms
        for place in dict.fromkeys(e for f in t.factors for e in _places(f)):
            mask = Iverson(place.condition)
            if mask in t.factors:
                yield from self._of(t, [f for f in t.factors if f is not mask], place)

    @cached_property
    def _arguments(self) -> Arguments:
        """The place, and the numbers that it is compared with."""
        op = self.row.operation
        said = {display_names: name for name, display_names in self.row.names.items()}
        places = frozenset(said[t.name] for t in op.inputs if t.kind == "int")
        return Arguments(places, frozenset(said[p.name] for p in op.parameters))

    @cached_property
    def _place(self) -> Guard:
        """Where the equation reads."""
        (place,), numbers = self._arguments.tensors, self._arguments.numbers
        masks = (f for f in self.row.body.terms[0].factors if isinstance(f, Iverson))
        own = next(f for f in masks if not numbers.isdisjoint(self._arguments.inside(f)))
        return Guard(own.condition, Access(place, ()))

    def _of(self, t: Term, beside: Sequence[Expr], place: Guard) -> Iterator[Instance]:
        """Those that read here, of what stands beside the bracket."""
        for found in self._arguments.bind(self._place, place, {}):
            if not self._are_integers(found):
                continue
            for f in beside:
                i = self._axis(f, place)
                if i is not None:
                    yield from self._made(t, [g for g in beside if g is not f], place, f, i, found)

    def _are_integers(self, found: Found) -> bool:
        """Whether the numbers are."""
        numbers = [found[name] for name in self._arguments.numbers]
        return all(
            t.coef.denominator == 1
            and all(isinstance(f, Param) and self.floats(f.name) is None for f in t.factors)
            for number in numbers
            for t in number.terms
        )

    def _axis(self, f: Expr, place: Guard) -> Index | None:
        """The axis that f is read at this place of, or has a value there and 0 elsewhere."""
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
        (i,) = apart([axes[f.positions.index(place)]], free)
        return i

    def _made(
        self, t: Term, beside: Sequence[Expr], place: Guard, f: Expr, i: Index, found: Found
    ) -> Iterator[Instance]:
        """The term as the kernel along this axis, with what is left of what stands beside it."""
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
            given[self._read] = atom(_at(f, place, i))
            made = sum_over(mul(bare, left, atom(self._kernel(given, i, (i,)))), t.binders)
        yield Instance(poly([t]), made)

    def _kernel(self, given: Mapping[str, Poly], i: Index, binders: Axes = ()) -> Kernel:
        return Kernel(self.row.name, tuple(given[a] for a in self.row.arguments), (i,), binders)

    @cached_property
    def _read(self) -> str:
        """The argument that is read at the place, at each position beside it."""
        own = (t.name for t in self.row.operation.inputs if t.axes)
        return next(name for name in own if name != self.row.shared)


def _at(f: Expr, place: Guard, i: Index) -> Access:
    """f at each position in place of this one."""
    assert isinstance(f, Access)
    return Access(f.tensor, tuple(i if e is place else e for e in f.positions))


def _places(f: Expr) -> Iterator[Guard]:
    """The guarded positions that f is read at, or has a value at and 0 elsewhere."""
    parts = f.positions if isinstance(f, Access) else ()
    parts = (f.position,) if isinstance(f, Delta) else parts
    yield from (e for e in parts if isinstance(e, Guard))
