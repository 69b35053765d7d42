"""Instances of equations without axes, which apply to any tensor elementwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from derive.algebra import expr as ex
from derive.algebra.logic import negate
from derive.algebra.poly import ZERO, Poly, Term, add, as_poly, is_mask, make_term, poly, sum_over
from derive.kernels.kernel_spec import KernelSpec, where_it_is
from derive.kernels.unify import Arguments, Found, contains, multiples, product_of, term_quotient


@dataclass(frozen=True)
class Instance:
    """A part of a sum that a kernel computes: ``whole`` equals ``made``, which has the kernel."""

    whole: Poly
    made: Poly


def jointly(found: Sequence[Instance | None], p: Poly) -> Iterator[Instance]:
    """The instances, all at once before each alone if p has all their terms."""
    instances = [instance for instance in found if instance is not None]
    if len(instances) > 1:
        whole = add(*(i.whole for i in instances))
        if contains(p, whole):
            yield Instance(whole, add(*(i.made for i in instances)))
    yield from instances


@dataclass(frozen=True)
class PointwisePattern:
    """The elementwise equation of a kernel as a pattern.

        whole = Sum_terms C*(p_1(x) + p_2(x) + ...)

    ``anchor`` is the largest factor of some p that depends on x; C is the cofactor.
    """

    row: KernelSpec

    @cached_property
    def arguments(self) -> Arguments:
        """The arguments of the equation, except the cotangent."""
        op, said = self.row.operation, self.row.canonical
        inputs = frozenset(said[t.name] for t in op.inputs if t.name != self.row.cotangent)
        return Arguments(inputs, frozenset(said[p.name] for p in op.parameters))

    @cached_property
    def anchors(self) -> tuple[tuple[Term, ex.Expr], ...]:
        """The (term, factor) pairs with the three largest factors, largest first."""
        pairs = ((t, f) for t in self.row.bare.terms for f in t.factors)
        found = [(t, f) for t, f in pairs if self.arguments.inside(f) and not self.arguments.of(f)]
        found.sort(key=lambda pair: -sum(1 for _ in ex.walk(pair[1])))
        return tuple(found[:3])

    @cached_property
    def nodes(self) -> frozenset[object]:
        """The node kinds that every instance contains."""
        return kinds_of(self.anchors[0][1]) if self.anchors else frozenset()

    def may_be_in(self, kinds: frozenset[object]) -> bool:
        """True if an expression with nodes of these kinds may contain an instance."""
        return self.row.functions <= kinds and self.nodes <= kinds

    def instances(self, p: Poly) -> Iterator[Instance]:
        """The parts of p that the kernel computes."""
        met = set()
        for t, anchor in self.anchors:
            for target in _all_factors(p):
                for found in self.arguments.bind(anchor, target, {}):
                    for complete in self._completed(found, t, target, p):
                        key = tuple(sorted((n, id(v)) for n, v in complete.items()))
                        if key not in met:
                            met.add(key)
                            yield from self._of(complete, p)

    def _completed(self, found: Found, t: Term, target: ex.Expr, p: Poly) -> Iterator[Found]:
        """``found`` with the missing arguments, from other factors or a quotient of terms."""
        missing = (self.arguments.tensors | self.arguments.numbers) - set(found)
        if not missing:
            yield found
            return
        yield from self._elsewhere(found, missing, p)
        if missing & self.arguments.tensors or len(missing) > 1:
            return
        (name,) = missing
        known = as_poly(self.arguments.instance(poly([t]), found))
        if len(known.terms) != 1 or name in self.arguments.inside(known):
            return
        for s in p.terms:
            beside = term_quotient(s, known.terms[0])
            if beside is None or target not in s.factors:
                continue
            for u in self.row.bare.terms:
                bare = [f for f in u.factors if self.arguments.of(f) != name]
                inside = self.arguments.inside(Term(u.coef, (), tuple(bare)))
                if len(bare) == len(u.factors) or name in inside:
                    continue
                rest = as_poly(self.arguments.instance(poly([make_term(u.coef, (), bare)]), found))
                if len(rest.terms) != 1:
                    continue
                (r,) = rest.terms
                both = make_term(beside.coef * r.coef, (), (*beside.factors, *r.factors))
                for v in p.terms:
                    left = term_quotient(v, both)
                    if left is not None and v.binders == s.binders:
                        value = product_of(left)
                        if self.arguments.admits(name, value):
                            yield {**found, name: value}

    def _elsewhere(self, found: Found, missing: Set[str], p: Poly) -> Iterator[Found]:
        """``found`` completed by the arguments inside other factors."""
        for f in dict.fromkeys(f for t in self.row.bare.terms for f in t.factors):
            if missing & self.arguments.inside(f) and self.arguments.of(f) is None:
                for target in _all_factors(p):
                    for extended in self.arguments.bind(f, target, found):
                        if missing <= set(extended):
                            yield extended

    def _of(self, found: Found, p: Poly) -> Iterator[Instance]:
        """The instance with these arguments, if p has it."""
        for t, _ in self.anchors:
            known = as_poly(self.arguments.instance(poly([t]), found))
            if len(known.terms) == 1:
                break
        else:
            return
        every = as_poly(self.arguments.instance(self.row.bare, found))
        parts = multiples(p, every, known.terms[0])
        cofactors = [(c, whole) for c, whole in parts if not _is_half(every, whole, p)]
        yield from jointly([self._made(c, whole, found) for c, whole in cofactors], p)

    def _made(self, cofactor: Term, whole: Poly, found: Found) -> Instance | None:
        # The sum of the tensor arguments has the axes of the kernel.
        main = add(ZERO, *(v for n, v in found.items() if n in self.arguments.tensors))
        free = ex.free_indices(main)
        given = {self.row.names[name]: value for name, value in found.items()}
        outside, binders = list(cofactor.factors), list(cofactor.binders)
        coef, number = cofactor.coef, Fraction(1)
        if self.row.cotangent:
            inside = [f for f in outside if ex.free_indices(f) <= free and not is_mask(f)]
            summed = [i for i in binders if i not in free]
            if any(ex.tensors(f) for f in outside if f not in inside):
                beside = [f for f in outside if f not in inside]
                joined = all(ex.free_indices(f) <= free | frozenset(summed) for f in beside)
                if joined and not any(map(is_mask, beside)):
                    inside = outside
            if not any(ex.tensors(f) for f in inside):
                return None
            own = [f for f in inside if ex.free_indices(f) == free and _is_cotangent(f)]
            if len(own) == 1 and not summed:
                # The cofactors may differ elsewhere, where the kernel is the same.
                inside, number = own, coef
            outside = [f for f in outside if f not in inside]
            taken = [i for i in summed if not any(i in ex.free_indices(f) for f in outside)]
            left = {i for i in binders if i not in taken}
            if not (left - free).isdisjoint(ex.indices_of(inside)):
                return None
            own_term = poly([make_term(coef / number, (), inside)])
            given[self.row.cotangent] = sum_over(own_term, taken)
            coef, binders = number, [i for i in binders if i in left]
        kernel = where_it_is(self.row, given)
        if kernel is None:
            return None
        made = poly([make_term(coef, (), [*outside, kernel])])
        return Instance(whole, sum_over(made, binders))


@lru_cache(maxsize=1024)
def _all_factors(p: Poly) -> tuple[ex.Expr, ...]:
    """The factors of all terms, memoized for all patterns."""
    return tuple(dict.fromkeys(f for t in p.terms for f in t.factors))


def _is_cotangent(f: ex.Expr) -> bool:
    """True if f is a named cotangent or adjoint."""
    return isinstance(f, ex.Access) and f.tensor.startswith("@")


def _is_half(equation: Poly, part: Poly, p: Poly) -> bool:
    """True if p has the other branch of a choice, [c]*a + [not c]*b, and the equation has not."""
    there = {f.condition for t in equation.terms for f in t.factors if isinstance(f, ex.Iverson)}
    rest = (f for t in p.terms if t not in part.terms for f in t.factors)
    return any(isinstance(f, ex.Iverson) and negate(f.condition) in there for f in rest)


@lru_cache(maxsize=4096)
def kinds_of(e: ex.Expr) -> frozenset[object]:
    """The kinds of nodes in e: functions, relations, brackets, and exponents of possible tensors.

    ("sum", n) and ("free", n) are the extents of summed indices and of those that e depends on.
    """
    return _node_kinds(e).union(("free", i.extent) for i in ex.free_indices(e))


@lru_cache(maxsize=2**13)
def _node_kinds(e: ex.Expr) -> frozenset[object]:
    own: tuple[object, ...] = ()
    match e:
        case ex.Call(name) | ex.Rel(name):
            own = (name,)
        case ex.Pow(base, exponent) if not isinstance(base, ex.Param):
            own = (exponent,)
        case ex.Iverson() | ex.Where() | ex.Guard():
            own = (type(e).__name__,)
        case Term(_, binders):
            own = tuple(("sum", i.extent) for i in binders if not i.group)
    return frozenset(own).union(*map(_node_kinds, e.parts()))
