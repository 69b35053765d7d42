"""Arguments of an equation for which it is another: found by its structure, to be proved after.

Where an argument stands alone in a sum, as the erf in x*(1 + erf(x/sqrt(2)))/2 has one, it is
solved for: x = sqrt(2)*e of any e that the other equation has the erf of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.expr import Access, Expr, Index, Param, Pow, free_indices, tensors, walk
from derive.algebra.poly import (
    Poly,
    Term,
    add,
    atom,
    constant,
    make_term,
    mul,
    poly,
    power,
    scale,
)
from derive.budget import tick
from derive.kernels.rebuild import as_poly, rebuilt

Found = Mapping[str, Poly]
"""What arguments are, by their canonical names."""


@dataclass(frozen=True)
class Arguments:
    """The names of tensors and of numbers that an equation is of."""

    tensors: frozenset[str]
    numbers: frozenset[str]
    index: Index | None = None
    """That of the tensors, where they have an axis."""

    def of(self, e: Expr) -> str | None:
        """The name of the argument that e is."""
        if isinstance(e, Access) and e.tensor in self.tensors:
            own = () if self.index is None else (self.index,)
            return e.tensor if e.positions == own else None
        return e.name if isinstance(e, Param) and e.name in self.numbers else None

    def inside(self, e: Expr) -> set[str]:
        """The arguments that e reads."""
        return {name for part in walk(e) if (name := self.of(part)) is not None}

    def instance(self, e: Expr, found: Found) -> Expr:
        """e of these arguments."""
        return rebuilt(e, lambda part: found.get(self.of(part) or ""))

    def admits(self, name: str, value: Poly) -> bool:
        """Whether a value may be that of an argument: a number reads no tensor and no index."""
        if name in self.numbers:
            return not tensors(value) and not free_indices(value)
        return bool(tensors(value))

    def bind(self, pattern: Expr, target: Expr, found: Found) -> Iterator[Found]:
        """Every extension of ``found`` that may make the pattern the target."""
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
                yield from self._pairs(pairs, found)

    def _bound(self, name: str, value: Poly, found: Found) -> Iterator[Found]:
        if name in found:
            if found[name] is value:
                yield found
        elif self.admits(name, value):
            yield {**found, name: value}

    def _pairs(self, pairs: Sequence[tuple[Expr, Expr]], found: Found) -> Iterator[Found]:
        if not pairs:
            yield found
            return
        (a, b), *rest = pairs
        for extended in self.bind(a, b, found):
            yield from self._pairs(rest, extended)

    def _sum(self, pattern: Poly, target: Poly, found: Found) -> Iterator[Found]:
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
        elif len(pattern.terms) == 2 and len(target.terms) == 2:
            for targets in (target.terms, target.terms[::-1]):
                pairs = zip(pattern.terms, targets, strict=True)
                yield from self._pairs([(poly([a]), poly([b])) for a, b in pairs], found)

    def _solved(self, pattern: Poly, target: Poly, name: str) -> Poly | None:
        """The argument that makes a sum the target, if it stands in one term alone."""
        own = [t for t in pattern.terms if name in self.inside(t)]
        if len(own) != 1:
            return None
        (t,) = own
        times = [f for f in t.factors if self.of(f) == name]
        beside = [f for f in t.factors if f not in times]
        plain = not tensors(Term(t.coef, (), tuple(beside))) and not t.binders
        if len(times) != 1 or not plain or any(name in self.inside(f) for f in beside):
            return None
        others = poly(o for o in pattern.terms if o is not t)
        over = power(poly([make_term(t.coef, (), beside)]), Fraction(-1))
        return mul(over, add(target, scale(others, -1)))

    def _product(self, pattern: Term, target: Term, found: Found) -> Iterator[Found]:
        """The factors one by one; or c*number*tensor, of any numbers and one more factor."""
        if pattern.binders:
            return
        if pattern.coef == target.coef and not target.binders:
            yield from self._factors(pattern.factors, target.factors, found)
        names = [self.of(f) for f in pattern.factors]
        numbers = [n for n in names if n in self.numbers]
        own = [n for n in names if n in self.tensors]
        if len(numbers) + len(own) == len(names) and len(numbers) == len(own) == 1:
            beside = [f for f in target.factors if not tensors(f) and not free_indices(f)]
            rest = [f for f in target.factors if f not in beside]
            number = poly([make_term(target.coef / pattern.coef, (), beside)])
            whole = poly([make_term(constant(1).terms[0].coef, target.binders, rest)])
            assert numbers[0] is not None
            for extended in self._bound(numbers[0], number, found):
                assert own[0] is not None
                yield from self._bound(own[0], whole, extended)

    def _factors(
        self, patterns: Sequence[Expr], targets: Sequence[Expr], found: Found
    ) -> Iterator[Found]:
        """Each pattern bound to a target of its own, all targets used, in any order."""
        if len(patterns) != len(targets):
            return
        if not patterns:
            yield found
            return
        first, *rest = patterns
        for n, target in enumerate(targets):
            for extended in self.bind(first, target, found):
                yield from self._factors(rest, [*targets[:n], *targets[n + 1 :]], extended)


def _in_pairs(pattern: Expr, target: Expr) -> list[tuple[Expr, Expr]] | None:
    """What stands in the same places of two nodes of a kind; None if other content differs."""
    if isinstance(pattern, Pow) and isinstance(target, Pow):
        same = pattern.exponent is target.exponent
        return [(pattern.base, target.base)] if same else None
    pairs: list[tuple[Expr, Expr]] = []
    for name in pattern.__match_args__:
        a, b = getattr(pattern, name), getattr(target, name)
        if isinstance(a, Expr) and isinstance(b, Expr):
            pairs.append((a, b))
        elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            pairs.extend(zip(a, b, strict=True))
        elif a != b:
            return None
    return pairs


def atoms_of(p: Poly) -> Iterator[Expr]:
    """Every factor of a sum, once."""
    yield from dict.fromkeys(f for t in p.terms for f in t.factors)


__all__ = ["Arguments", "Found", "atom", "atoms_of"]
