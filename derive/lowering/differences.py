"""Differences X[i,d] - Y[j,d] whose axes no tensor has: around a centre, or formed as written.

    Sum_d (X - Y)^2        =  Sum_d X'^2 + Sum_d Y'^2 - 2*Sum_d X'*Y'
    Sum_j G[i,j]*(X - Y)   =  X'*Sum_j G - Sum_j G*Y'               X' = X - c, Y' = Y - c

hold for every c[d]. Far from the origin the right sides lose the digits that X and Y share, so c
is the mean of one side: without gradient, since no derivative of any order depends on it, and 0
where it is no number, for nothing else to become one. Where a factor beside the square may be
infinite, inf - inf would be no number: there the difference is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

from derive.algebra.expr import Access, Call, Composite, Expr, Index, Size, accesses, free_indices
from derive.algebra.match import Binding, match
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    base_and_power,
    mul,
    poly,
    power,
    scale,
    sum_over,
)
from derive.algebra.squares import Centre, Square, square_to_open
from derive.algebra.substitution import substitute
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.lets import Let, Lets
from derive.lowering.moderate import Moderate
from derive.spec.operation import Operation

__all__ = ["with_centres"]


def with_centres(op: Operation, lets: Lets, backward: Backward) -> tuple[Lets, Backward]:
    """The definitions and gradients with every difference centred or formed."""
    work = _Differences.of(op, lets, backward)
    for let in lets:
        work.look(let.body)
    for let in lets:
        body, condition = work.rewritten(let.body), let.condition
        if condition is not None:
            condition = work.visit(condition)
        work.lets.by_name[let.name] = replace(let, body=body, condition=condition)

    def centred(a: Adjoint) -> Adjoint:
        return replace(a, body=work.rewritten(a.body))

    return work.lets, replace(
        backward,
        lets=work.lets,
        adjoints=tuple(map(centred, backward.adjoints)),
        gradients=tuple(map(centred, backward.gradients)),
    )


@dataclass
class _Differences:
    """The work on one operation.

    ``formed`` names the lets of differences beside which an equation has what may be infinite.
    """

    lets: Lets
    integers: frozenset[str]
    forward: Moderate
    backward: Moderate
    formed: set[str] = field(default_factory=set)
    _known: dict[Expr, Expr] = field(default_factory=dict)
    _centred: dict[Poly, Poly | None] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Operation, lets: Lets, backward: Backward) -> _Differences:
        """``lets`` stay as they are: formulas are told of them."""
        adjoints = {a.name: a.as_let() for a in (*backward.adjoints, *backward.gradients)}
        given = frozenset(op.outputs)

        def find(name: str) -> Let | None:
            return None if name in given else adjoints.get(name) or lets.get(name)

        kinds = {t.name: t.kind for t in op.inputs} | {let.name: let.dtype for let in lets}
        integers = frozenset(name for name, kind in kinds.items() if kind != "float")
        return cls(lets.apart(), integers, Moderate(lets.get), Moderate(find))

    # ---------------------------------------------------------------- squares

    def look(self, body: Poly) -> None:
        """Note the differences of an equation that are to be formed."""
        for t in _terms(body):
            square = square_to_open(t)
            if square is not None and not _is_safe(square, self.forward):
                self.formed.add(self._as_let(square.base).tensor)

    def _as_let(self, base: Poly) -> Access:
        found = as_atom(self.lets.reduction("sum", (), base))
        assert isinstance(found, Access)
        return found

    def _is_formed(self, base: Poly) -> bool:
        return bool(self.formed) and self._as_let(base).tensor in self.formed

    def rewritten(self, body: Poly) -> Poly:
        """A body with every difference in it centred or formed."""
        new = self.visit(body)
        assert isinstance(new, Poly)
        return new

    def visit(self, e: Expr) -> Expr:
        """e, flat, with every difference in it centred or formed."""
        found = self._known.get(e)
        if found is None:
            found = e
            if not isinstance(e, Access):
                found = e.map(self.visit)
            if isinstance(found, Poly):
                found = add(ZERO, *map(self._opened, found.terms))
                for base in self._bases:
                    found = self._recombined(found, base)
            self._known[e] = found
        return found

    def _opened(self, t: Term) -> Poly:
        square = square_to_open(t)
        if square is None:
            return poly([t])
        if self._is_formed(square.base) or not _is_safe(square, self.backward):
            return square.with_base(atom(self._as_let(square.base)))
        return square.opened(self.centred(square.base) or square.base)

    # ---------------------------------------------------------------- centres

    def centred(self, base: Poly) -> Poly | None:
        """The sum of its sides, each about 0; None where they have no centre in common."""
        if base not in self._centred:
            self._centred[base] = self._around_centre(base)
        return self._centred[base]

    def _around_centre(self, base: Poly) -> Poly | None:
        sides = _sides(base)
        read = [a.tensor for a in accesses(base)]
        if len(sides) < 2 or all(name in self.integers for name in read):
            return None
        if not all(_is_plain(position) for a in accesses(base) for position in a.positions):
            return None
        common = frozenset.intersection(*map(free_indices, sides))
        first, *others = sorted(sides, key=_simplicity)
        moved, whole = first, ZERO
        for side in others:
            sign = _sign(side)
            centre = scale(self._centre(scale(side, sign), common), sign)
            moved = add(moved, centre)
            whole = add(whole, self._named(add(side, scale(centre, -1)), side))
        return add(self._named(moved, first), whole)

    def _centre(self, side: Poly, common: frozenset[Index]) -> Poly:
        """The mean over all axes but the common ones."""
        over = sorted(free_indices(side) - common, key=lambda i: i.name)
        sizes = (power(atom(Size(i.extent)), Fraction(-1)) for i in over)
        mean = mul(sum_over(atom(Call("detach", (side,))), over), *sizes)
        return self._let(atom(Centre(mean)), side, "centre", "centre")

    def _named(self, centred: Poly, side: Poly) -> Poly:
        """A side about 0 as a tensor of its own, with the sign of what it is of."""
        sign = _sign(side)
        said = f"{self.lets.say(_main(side).tensor)}_centred"
        return scale(self._let(scale(centred, sign), side, "centred", said), sign)

    def _let(self, e: Poly, side: Poly, stem: str, spoken: str) -> Poly:
        stem = f"{_main(side).tensor}~{stem}"
        return self.lets.reduction("sum", (), e, stem=stem, spoken=spoken)

    # ---------------------------------------------------------------- products

    @cached_property
    def _bases(self) -> list[Poly]:
        """The sums that products were distributed over, the outermost first."""
        every = reversed(self.lets.distributed)
        return sorted(every, key=lambda base: not self._is_formed(base))

    def _recombined(self, p: Poly, base: Poly) -> Poly:
        """p where products that were distributed over the base are so over its centred sides."""
        new = None
        while (found := self._found(p, base)) is not None:
            if new is None:
                new = atom(self._as_let(base)) if self._is_formed(base) else self.centred(base)
                if new is None:
                    return p
            p = found(new)
        return p

    def _found(self, p: Poly, base: Poly) -> Callable[[Poly], Poly] | None:
        """What puts another base in the place of this one, where p has a multiple of it."""
        held = {(t.binders, t.factors): t.coef for t in p.terms}
        for lead in base.terms:
            for t in p.terms if any(accesses(lead)) else ():
                for outer, mapping in _quotients(p, t, lead, base):
                    multiple = _times(outer, base, mapping)
                    if len(multiple.terms) > 1 and _has(held, multiple):
                        if _loses_digits(outer, base, mapping):
                            rest = add(p, scale(multiple, -1))
                            return lambda new: add(rest, _times(outer, new, mapping))
        return None


def _is_safe(square: Square, moderate: Moderate) -> bool:
    """Whether no part of the square multiplied out is infinite where the square is not."""
    beside = [f for t in square.base.terms for f in t.factors if not isinstance(f, Access)]
    return all(map(moderate, (*square.inside, *beside)))


def _times(outer: Term, base: Poly, mapping: Binding) -> Poly:
    """Sum over the binders of the other factors times the base at these indices."""
    instance = substitute(base, mapping)
    assert isinstance(instance, Poly)
    whole = mul(poly([Term(outer.coef, (), outer.factors)]), instance)
    return sum_over(whole, outer.binders)


def _quotients(p: Poly, t: Term, lead: Term, base: Poly) -> Iterator[tuple[Term, Binding]]:
    """(t without the lead term of the base, and the indices at which it has it)."""
    if lead.binders:
        return
    near = sorted(free_indices(p) | set(t.binders), key=lambda i: i.name)
    for found in _within(lead.factors, t.factors, free_indices(base), {}):
        left = sorted(free_indices(base) - set(found), key=lambda i: i.name)
        taken = set(found.values())
        choices = (
            [i for i in near if (i.extent, i.group) == (own.extent, own.group) and i not in taken]
            for own in left
        )
        for images in product(*choices):
            if len(set(images)) == len(images):
                mapping: Mapping[Index, Expr] = {**found, **dict(zip(left, images, strict=True))}
                divided = mul(
                    poly([Term(t.coef / lead.coef, (), t.factors)]),
                    power(poly([Term(Fraction(1), (), _at(lead.factors, mapping))]), Fraction(-1)),
                )
                (outer,) = divided.terms
                yield Term(outer.coef, t.binders, outer.factors), mapping


def _at(factors: tuple[Expr, ...], mapping: Binding) -> tuple[Expr, ...]:
    return tuple(substitute(f, mapping) for f in factors)


def _within(
    patterns: tuple[Expr, ...], factors: tuple[Expr, ...], free: frozenset[Index], found: Binding
) -> Iterator[Binding]:
    """The indices at which the factors have those of a product."""
    if not patterns:
        yield found
        return
    base, exponent = base_and_power(patterns[0])
    for f in factors:
        other, power_of_it = base_and_power(f)
        if exponent * power_of_it > 0 and abs(power_of_it) >= abs(exponent):
            for extended in match(base, other, free, found):
                yield from _within(patterns[1:], factors, free, extended)


def _has(held: Mapping[Any, Fraction], multiple: Poly) -> bool:
    """Whether each of these terms is at least as often in what is held."""
    return all(held.get((t.binders, t.factors), Fraction(0)) / t.coef >= 1 for t in multiple.terms)


def _loses_digits(outer: Term, base: Poly, mapping: Binding) -> bool:
    """Whether the sides of a difference are summed one by one.

    They are put together again where nothing is summed, or beside a tensor of all their axes.
    """
    if len({t.coef > 0 for t in base.terms}) < 2:
        return False
    sides = [free_indices(substitute(side, mapping)) for side in _sides(base)]
    axes = frozenset().union(*sides)
    common = frozenset.intersection(*sides)
    bound = axes & set(outer.binders)
    covered = any(axes <= free_indices(f) for f in outer.factors)
    return bool(bound - common) or (bool(bound) and not covered)


def _sides(base: Poly) -> list[Poly]:
    """The terms in groups: each of the same axes, or of fewer than the first that has more."""
    free = [free_indices(t) for t in base.terms]
    most = [axes for n, axes in enumerate(free) if not any(axes < other for other in free)]
    groups: dict[frozenset[Index], list[Term]] = {axes: [] for axes in most}
    for t, axes in zip(base.terms, free, strict=True):
        groups[next(g for g in groups if axes <= g)].append(t)
    return [poly(terms) for terms in groups.values()]


def _simplicity(side: Poly) -> tuple[int, int]:
    """What is simple comes last: its mean takes the least time to take."""
    read = [a for t in side.terms for f in t.factors for a in accesses(f)]
    return -len(side.terms), -len(read)


def _sign(side: Poly) -> int:
    return -1 if all(t.coef < 0 for t in side.terms) else 1


def _main(side: Poly) -> Access:
    """The access that a side is called by."""
    return next(a for a in accesses(side))


def _is_plain(position: Expr) -> bool:
    """Whether every value of its indices is read once, or what a tensor says is read."""
    if isinstance(position, Composite):
        return all(map(_is_plain, position.args))
    return isinstance(position, Index | Access) or not free_indices(position)


def _terms(e: Expr) -> Iterator[Term]:
    """Every term in e, but in positions."""
    if isinstance(e, Access):
        return
    if isinstance(e, Term):
        yield e
    for part in e.parts():
        yield from _terms(part)
