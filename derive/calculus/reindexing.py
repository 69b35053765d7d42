"""Substitute an index of a sum or a branch: its subrange, or its positions from the end.

    Sum_i [s <= i and i < s + size(j)] f(i)  =  Sum_j f(s + j)
    Sum_j [j <= size(j) - 1 - i] f(j)        =  Sum_j [i <= j] f(size(j) - 1 - j)

A reduction in a branch runs over the subrange of an index that the branch admits.

    where(t < size(a), max_k x[t,k], y)  =  where(t < size(a), top[t], y)
    top[t] = max_k x[t,k]  for t of a

Over the whole axis it would also reduce the other entries, or nothing. That is wasted work, and an
infinity that the branch not taken multiplies by 0.

A sum over the positions on one side of an index is a cumulative sum. Code that flips an axis,
accumulates and flips the result has one of the two indices counted from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from derive.algebra import expr as ex
from derive.algebra.affine import Polynomial
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction, negate
from derive.algebra.poly import Poly, Term, add, as_atom, poly
from derive.algebra.reductions import REDUCTIONS
from derive.algebra.substitution import fresh, replace_inside_out, substitute
from derive.calculus.guards import (
    plain_positions,
    rebuilt_term,
    simplify_guards,
    with_guards_outside,
)


def part_of_range(
    bounds: Bounds, factors: Sequence[ex.Expr], i: ex.Index
) -> tuple[ex.Index, Polynomial, list[ex.Expr]] | None:
    """(j, s, remaining factors) if brackets restrict i to s + j for an index j of the operation.

    None if no bracket bounds i alone, or no extent has the remaining size.
    """
    edges: list[tuple[bool, Polynomial]] = []
    rest: list[ex.Expr] = []
    for f in factors:
        found = _index_bounds(bounds, f, i)
        edges += found
        if not found:
            rest.append(f)
    if i.group or not edges:
        return None
    start = _provable_extremum(bounds, [Polynomial({}), *(b for lower, b in edges if lower)], True)
    size = bounds.size(i.extent)
    stop = _provable_extremum(bounds, [size, *(b for lower, b in edges if not lower)], False)
    if start is None or stop is None:
        return None
    for extent in bounds.extents_of(stop - start):
        return ex.Index(i.name, extent), start, rest
    return None


def _index_bounds(bounds: Bounds, f: ex.Expr, i: ex.Index) -> list[tuple[bool, Polynomial]]:
    """The bounds that a bracket puts on this index; empty if it has other conditions or indices."""
    if not isinstance(f, ex.Iverson) or ex.free_indices(f) != {i}:
        return []
    found = [bounds.edge(c, i) for c in conditions_of(f.condition)]
    return [] if None in found else [edge for edge in found if edge is not None]


def _provable_extremum(
    bounds: Bounds, forms: Sequence[Polynomial], greatest: bool
) -> Polynomial | None:
    """The form that is provably the greatest, or the least; None if the order is unknown."""
    for one in forms:
        pairs = ((other, one) if greatest else (one, other) for other in forms)
        if all(bounds.at_most(low, high) for low, high in pairs):
            return one
    return None


@dataclass(frozen=True)
class SubRange:
    """The values of an index where conditions hold: ``start`` + an index of the subrange."""

    bounds: Bounds
    conditions: tuple[ex.Expr, ...]
    whole: ex.Index
    start: Polynomial
    own: ex.Index

    def inside(self, e: ex.Expr) -> ex.Expr:
        """e, evaluated where the conditions hold, in the subrange's index."""
        place = (Polynomial.of(self.own) + self.start).poly()
        return simplify_guards(self.bounds, substitute(e, {self.whole: place}))

    def outside(self, p: Poly) -> Poly:
        """p in the whole index again, with its positions guarded by the conditions."""
        place = as_atom((Polynomial.of(self.whole) - self.start).poly())
        moved = substitute(p, {self.own: ex.Guard(conjunction(self.conditions), place)})
        made = with_guards_outside(moved, frozenset(self.conditions))
        assert isinstance(made, Poly)
        return made


def part_in_branch(
    bounds: Bounds,
    conditions: Sequence[ex.Expr],
    indices: AbstractSet[ex.Index],
    binders: Sequence[ex.Index],
) -> SubRange | None:
    """The subrange that conditions leave of a free index, if an extent has its size."""
    brackets = [ex.Iverson(c) for c in conditions]
    for i in sorted(indices - set(binders), key=ex.sort_key) if brackets else ():
        found = part_of_range(bounds, brackets, i)
        if found is None:
            continue
        index, start, rest = found
        if bounds.size(index.extent) != bounds.size(i.extent):
            own = fresh(index, (indices | set(binders)) - {i})
            about = tuple(b.condition for b in brackets if b not in rest)
            return SubRange(bounds, about, i, start, own)
    return None


_ONE = Polynomial.of(1)


def reverse_term(bounds: Bounds, t: Term) -> Poly | None:
    """The term with a summed index reversed; None if no index qualifies."""
    conditions = [f.condition for f in t.factors if isinstance(f, ex.Iverson)] if t.binders else []
    i = _from_the_end(bounds, t.binders, conditions, t.factors) if conditions else None
    if i is None:
        return None
    back = as_atom(_reversed_position(i).poly())
    factors = [
        simplify_guards(bounds, plain_positions(substitute(f, {i: back}))) for f in t.factors
    ]
    plain = [_cancel_comparisons(bounds, f) if isinstance(f, ex.Iverson) else f for f in factors]
    return rebuilt_term(t, t.binders, plain)


def reverse_sum(bounds: Bounds, p: Poly) -> Poly:
    """The sum with the summed indices of each term reversed where possible."""
    made = [reverse_term(bounds, t) for t in p.terms]
    if not any(made):
        return p
    parts = (t if new is None else new for t, new in zip(p.terms, made, strict=True))
    return reverse_sum(bounds, add(*(poly([x]) if isinstance(x, Term) else x for x in parts)))


def reverse_reduction(bounds: Bounds, e: ex.Reduce) -> ex.Reduce:
    """The reduction with its indices reversed where possible, and a branch turned into a condition.

    Prod_l where(c, f, 1) = Prod_{l, c} f
    """
    body, condition = e.body, e.condition
    row = REDUCTIONS[e.kind]
    if row.cumulative and isinstance(body, ex.Where):
        for test, kept, left in (
            (body.condition, body.then, body.other),
            (negate(body.condition), body.other, body.then),
        ):
            if isinstance(left, ex.Num) and left.value == row.neutral:
                body, condition = kept, conjunction([test, *([condition] if condition else [])])
    if condition is None:
        return e
    while (i := _from_the_end(bounds, e.indices, [condition], [body])) is not None:
        back = {i: _reversed_position(i).expr()}
        body = substitute(body, back)
        condition = _cancel_comparisons(bounds, substitute(condition, back))
    return replace(e, body=body, condition=condition)


def _reversed_position(i: ex.Index) -> Polynomial:
    """The position of i counted from the other end."""
    return Polynomial.of(ex.Size(i.extent)) - _ONE - Polynomial.of(i)


def _from_the_end(
    bounds: Bounds,
    binders: Sequence[ex.Index],
    conditions: Sequence[ex.Expr],
    summed: Sequence[ex.Expr],
) -> ex.Index | None:
    """A binder that its conditions compare with a reversed index, alone in its positions.

    A read at a position of both is no cumulative sum, and its position gets longer by reversing.
    """
    for i in binders:
        own = [c for c in conditions if i in ex.free_indices(c)]
        relations = [r for e in own for r in conditions_of(e) if i in ex.free_indices(r)]
        if not own or i.group or not all(_is_side(bounds, r, i) for r in relations):
            continue
        read = (ex.free_indices(p) for e in summed for a in ex.accesses(e) for p in a.positions)
        if not any(i in free and len(free) > 1 for free in read):
            return i
    return None


def _is_side(bounds: Bounds, c: ex.Expr, i: ex.Index) -> bool:
    """True if the condition compares i reversed with another index of the same extent."""
    if not any(k.extent == i.extent for k in ex.free_indices(c) if k is not i):
        return False
    gap = _gap(bounds, c) if isinstance(c, ex.Rel) and c.op not in ("==", "!=") else None
    if gap is None:
        return False
    size = bounds.size(i.extent)
    left = gap.at(lambda e: size - _ONE - Polynomial.of(e) if e is i else Polynomial.of(e))
    rest = {key: n for key, n in left.terms.items() if key}
    return sorted(rest.values()) == [-1, 1] and all(
        len(key) == 1 and isinstance(key[0], ex.Index) and key[0].extent == i.extent for key in rest
    )


def _gap(bounds: Bounds, r: ex.Rel) -> Polynomial | None:
    """right - left."""
    left, right = bounds.form(r.left), bounds.form(r.right)
    return None if left is None or right is None else right - left


def _cancel_comparisons(bounds: Bounds, e: ex.Expr) -> ex.Expr:
    """e with common terms on both sides of integer comparisons canceled."""

    def visit(part: ex.Expr) -> ex.Expr:
        gap = _gap(bounds, part) if isinstance(part, ex.Rel) else None
        if gap is None:
            return part
        assert isinstance(part, ex.Rel)
        sides = ({k: abs(n) for k, n in gap.terms.items() if n * sign > 0} for sign in (-1, 1))
        left, right = (Polynomial(terms) for terms in sides)
        if isinstance(part.left, Poly):
            return ex.Rel(part.op, left.poly(), right.poly())
        return ex.Rel(part.op, left.expr(), right.expr())

    return replace_inside_out(e, visit)
