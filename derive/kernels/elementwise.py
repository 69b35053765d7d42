"""Instances of equations without axes: of any tensor at each of its places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from derive.algebra.expr import Expr, Pow, free_indices, tensors, walk
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    base_and_power,
    constant,
    make_term,
    mul,
    poly,
    raised,
    sum_over,
)
from derive.kernels.bind import Arguments, Found
from derive.kernels.rebuild import as_poly
from derive.kernels.row import Kernel, Row


@dataclass(frozen=True)
class Instance:
    """A part of a sum that a kernel computes: ``whole`` is the same as ``made``."""

    whole: Poly
    made: Poly


@dataclass(frozen=True)
class Elementwise:
    """The equation of a row as a pattern.

        whole = Sum_terms C*(p_1(x) + p_2(x) + ...)

    ``anchor`` is the factor of one p that tells most of x; C is what stands beside it.
    """

    row: Row

    @cached_property
    def arguments(self) -> Arguments:
        """What the equation is of, but for the cotangent."""
        op = self.row.operation
        said = {spoken: name for name, spoken in self.row.names.items()}
        inputs = frozenset(said[t.name] for t in op.inputs if t.name != self.row.cotangent)
        return Arguments(inputs, frozenset(said[p.name] for p in op.parameters))

    @cached_property
    def pattern(self) -> Poly:
        """The equation for the cotangent 1."""
        if not self.row.cotangent:
            return self.row.body
        said = {spoken: name for name, spoken in self.row.names.items()}
        cotangent = Arguments(frozenset({said[self.row.cotangent]}), frozenset())
        one = cotangent.instance(self.row.body, {said[self.row.cotangent]: constant(1)})
        return as_poly(one)

    @cached_property
    def anchors(self) -> tuple[tuple[Term, Expr], ...]:
        """The term and its factor that says most, then others."""
        found = []
        for t in self.pattern.terms:
            for f in t.factors:
                if self.arguments.inside(f) and self.arguments.of(f) is None:
                    found.append((sum(1 for _ in walk(f)), t, f))
        found.sort(key=lambda entry: -entry[0])
        return tuple((t, f) for _, t, f in found[:3])

    @cached_property
    def nodes(self) -> frozenset[object]:
        """What any instance has somewhere."""
        return frozenset(kinds_of(self.anchors[0][1])) if self.anchors else frozenset()

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """Whether what has nodes of these kinds may hold an instance."""
        return self.row.functions <= kinds and self.nodes <= kinds

    def instances(self, p: Poly) -> Iterator[Instance]:
        """The parts of p that the kernel computes."""
        met = set()
        for t, anchor in self.anchors:
            for target in dict.fromkeys(f for s in p.terms for f in s.factors):
                for found in self.arguments.bind(anchor, target, {}):
                    for complete in self._completed(found, t, target, p):
                        key = tuple(sorted((n, id(v)) for n, v in complete.items()))
                        if key not in met:
                            met.add(key)
                            yield from self._of(complete, p)

    def _completed(self, found: Found, t: Term, target: Expr, p: Poly) -> Iterator[Found]:
        """``found`` with the numbers that stand as factors, from what they stand beside."""
        missing = (self.arguments.tensors | self.arguments.numbers) - set(found)
        if not missing:
            yield found
            return
        if missing & self.arguments.tensors or len(missing) > 1:
            return
        (name,) = missing
        known = as_poly(self.arguments.instance(poly([t]), found))
        if len(known.terms) != 1 or name in self.arguments.inside(known):
            return
        for s in p.terms:
            beside = over(s, known.terms[0])
            if beside is None or target not in s.factors:
                continue
            for u in self.pattern.terms:
                bare = [f for f in u.factors if self.arguments.of(f) != name]
                if len(bare) == len(u.factors) or name in self.arguments.inside(
                    Term(u.coef, (), tuple(bare))
                ):
                    continue
                rest = as_poly(self.arguments.instance(poly([make_term(u.coef, (), bare)]), found))
                if len(rest.terms) != 1:
                    continue
                (r,) = rest.terms
                both = make_term(beside.coef * r.coef, (), (*beside.factors, *r.factors))
                for v in p.terms:
                    left = over(v, both)
                    if left is not None and v.binders == s.binders:
                        value = poly([make_term(left.coef, (), left.factors)])
                        if self.arguments.admits(name, value):
                            yield {**found, name: value}

    def _of(self, found: Found, p: Poly) -> Iterator[Instance]:
        """The instance of these arguments, if p has it."""
        for t, _ in self.anchors:
            known = as_poly(self.arguments.instance(poly([t]), found))
            if len(known.terms) == 1:
                break
        else:
            return
        every = as_poly(self.arguments.instance(self.pattern, found))
        cofactors = []
        for s in p.terms:
            beside = over(s, known.terms[0])
            if beside is None:
                continue
            cofactor = Term(beside.coef, s.binders, beside.factors)
            whole = _times(cofactor, every)
            if all(x in p.terms for x in whole.terms):
                cofactors.append((cofactor, whole))
        if not cofactors:
            return
        instances = [made for c, whole in cofactors if (made := self._made(c, whole, found))]
        if len(instances) > 1:
            whole = add(*(i.whole for i in instances))
            if all(x in p.terms for x in whole.terms):
                yield Instance(whole, add(*(i.made for i in instances)))
        yield from instances

    def _made(self, cofactor: Term, whole: Poly, found: Found) -> Instance | None:
        free = free_indices(self._main(found))
        said = {spoken: name for name, spoken in self.row.names.items()}
        given = {self.row.names[name]: value for name, value in found.items()}
        outside = list(cofactor.factors)
        coef = cofactor.coef
        binders = list(cofactor.binders)
        if self.row.cotangent:
            inside = [f for f in outside if free_indices(f) <= free and _may_be_inside(f)]
            summed = [i for i in binders if i not in free]
            if any(tensors(f) for f in outside if f not in inside):
                beside = [f for f in outside if f not in inside]
                joined = all(free_indices(f) <= free | frozenset(summed) for f in beside)
                if joined and all(map(_may_be_inside, beside)):
                    inside = outside
            if not any(tensors(f) for f in inside):
                return None
            outside = [f for f in outside if f not in inside]
            over = [i for i in summed if not any(i in free_indices(f) for f in outside)]
            if any(
                i in free_indices(f) for f in inside for i in binders if i not in (*over, *free)
            ):
                return None
            given[self.row.cotangent] = sum_over(poly([make_term(coef, (), inside)]), over)
            coef = constant(1).terms[0].coef
            binders = [i for i in binders if i not in over]
        assert said
        args = tuple(given[name] for name in self.row.arguments)
        made = poly([make_term(coef, (), [*outside, Kernel(self.row.name, args)])])
        return Instance(whole, sum_over(made, binders))

    def _main(self, found: Found) -> Expr:
        """The tensor that the kernel is of."""
        return add(ZERO, *(v for n, v in found.items() if n in self.arguments.tensors))


def _may_be_inside(f: Expr) -> bool:
    """Whether a factor is no mask, which guards what stands beside it."""
    from derive.algebra.poly import is_mask

    return not is_mask(f)


def _times(cofactor: Term, p: Poly) -> Poly:
    """Sum_binders c*p"""
    bare = poly([make_term(cofactor.coef, (), cofactor.factors)])
    return sum_over(mul(bare, p), cofactor.binders)


def over(s: Term, t: Term) -> Term | None:
    """s/t where each factor of t is one of s."""
    powers = dict(map(base_and_power, s.factors))
    for f in t.factors:
        base, exponent = base_and_power(f)
        have = powers.get(base)
        if have is None or have * exponent < 0 or abs(have) < abs(exponent):
            return None
        powers[base] = have - exponent
    left = tuple(raised(base, e) for base, e in powers.items() if e)
    return Term(s.coef / t.coef, (), left)


def kinds_of(e: Expr) -> Iterator[object]:
    """What stands somewhere in e: functions, brackets, powers."""
    for part in walk(e):
        name = getattr(part, "function", None)
        if name is not None:
            yield name
        elif isinstance(part, Pow):
            yield part.exponent
        elif type(part).__name__ in ("Iverson", "Where"):
            yield type(part).__name__
