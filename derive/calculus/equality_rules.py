"""Solve sums in which a bracket leaves at most one term.

    Sum_i [i = e] f(i) = [0 <= e < size(i)] f(e)
    Sum_n [s[k] = n] f(n) = f(s[k])    where 0 <= s[k] < size(n) for every k

e is an integer, or an expression of sizes, parameters and at most one other index. A bound of e
that is not provable stays a bracket and guards the reads, as an axis may be empty. An integer
tensor s selects one term, a gather, only if these bounds are proven: the sum is 0 where s[k] is out
of range, and f(s[k]) would be an error.

If a sum within f does not depend on k, it is computed for every n first and its result is gathered:
once per n, however many s[k] equal n. It is computed for every k only if another sum beside it has
to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from derive.algebra import expr as ex
from derive.algebra.affine import Polynomial
from derive.algebra.inequalities import Bounds, relation
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import ZERO, Poly, Term, as_atom, poly
from derive.algebra.rules import Rule, SumRule
from derive.algebra.substitution import fresh, substitute
from derive.calculus.guards import (
    beside,
    known,
    lone_atom,
    move_guards_out,
    plain_positions,
    rebuilt_term,
    simplify_guards,
    with_guards_outside,
    without_guards,
)
from derive.calculus.reindexing import part_of_range, reverse_term

# ----------------------------------------------------------------------------------- shifted deltas
# Solve deltas with a shifted summed index, and simplify the conditions that remain.
#
#     Sum_j delta(i, j + s) f(j) = f(i - s)    where 0 <= i - s < size(j) for every i
#
# Solving without that proof would read out of range. If the solution is in range for only some
# values of i, the range becomes a bracket of the term and a guard of its reads.

_ONE = Polynomial.of(1)


def shift_rules(bounds: Bounds) -> tuple[Rule, ...]:
    """The rules for an operation with these extents."""
    return (
        Rule(
            "guarded position",
            "[c]·f(i where c) = [c]·f(i)",
            "the number of guards",
            move_guards_out,
        ),
        Rule(
            "known condition",
            "[c] = 1 where c always holds, 0 where it never does",
            "the number of conditions",
            lambda t: known(bounds, t),
        ),
        Rule(
            "solve delta",
            "Σⱼ δ(i, j + s)·f(j) = f(i − s), as 0 ≤ i − s < size(j)",
            "the number of summed indices",
            lambda t: next(_solve_delta(bounds, t, everywhere=True), None),
        ),
        Rule(
            "solve delta in part",
            "Σⱼ δ(i, j + s)·f(j) = [0 ≤ i − s < size(j)]·f(i − s)",
            "the number of summed indices",
            lambda t: next(_solve_delta(bounds, t, everywhere=False), None),
        ),
        Rule(
            "part of a range",
            "Σⱼ [s ≤ j < s + size(i)]·f(j) = Σᵢ f(i + s)",
            "the number of conditions",
            lambda t: next(_narrowed(bounds, t), None),
        ),
        Rule(
            "turn a sum",
            "Σⱼ [j ≤ size(j) − 1 − i]·f(j) = Σⱼ [i ≤ j]·f(size(j) − 1 − j)",
            "the number of indices that are compared with others from the end",
            lambda t: reverse_term(bounds, t),
        ),
    )


# Deltas


@dataclass(frozen=True)
class Solution:
    """The summed index that a delta or a condition fixes, and its value."""

    index: ex.Index
    value: Polynomial
    range: tuple[ex.Expr, ...]
    """The conditions on the value that are not known to hold."""


def _solve_delta(bounds: Bounds, t: Term, everywhere: bool) -> Iterator[Poly]:
    """The term without a delta and the summed index that it fixes."""
    for delta in t.factors:
        if not isinstance(delta, ex.Delta):
            continue
        for solution in _solutions(bounds, t, delta):
            rest = [f for f in t.factors if f is not delta]
            if everywhere != (not solution.range):
                continue
            if not everywhere and not _is_small_read(bounds, delta, solution, rest):
                continue
            if any(_is_skewed(a, solution) for f in rest for a in ex.accesses(f)):
                continue
            binders = [i for i in t.binders if i is not solution.index]
            brackets = [ex.Iverson(c) for c in solution.range]
            yield rebuilt_term(
                t, binders, [*brackets, *(read_at(bounds, f, solution) for f in rest)]
            )


def _solutions(bounds: Bounds, t: Term, delta: ex.Delta) -> Iterator[Solution]:
    """A solution for every summed index in the position with coefficient 1 or -1.

    A guard of the position that a bracket of the term implies is dropped.
    """
    axis, position = (
        bounds.form(without_guards(e, beside(t, delta))) for e in (delta.axis, delta.position)
    )
    if axis is None or position is None:
        return
    for i in t.binders:
        if i.group or i in ex.free_indices(delta.axis):
            continue
        value = (axis - position).solved(i)
        if value is not None:
            yield Solution(i, value, range_of(bounds, i, value))


def range_of(bounds: Bounds, i: ex.Index, value: Polynomial) -> tuple[ex.Expr, ...]:
    """The unproven part of 0 <= value < size(i), each negative term moved to the other side."""
    zero = Polynomial({})
    conditions: list[ex.Expr] = []
    if not bounds.at_most(zero, value):
        conditions.append(relation("<=", zero, value))
    if not bounds.at_most(value + _ONE, bounds.size(i.extent)):
        conditions.append(relation("<", value, Polynomial.of(ex.Size(i.extent))))
    return tuple(conditions)


def _is_small_read(
    bounds: Bounds, delta: ex.Delta, solution: Solution, factors: Sequence[ex.Expr]
) -> bool:
    """True if guarded reads are no larger than the scatter they replace.

    Either the reads are windows of their axes, or the summed index is as long as the axis of the
    delta. Then a guarded read is also valid on an empty axis.
    """
    axis, i = ex.free_indices(delta.axis), solution.index
    if isinstance(delta.axis, ex.Index) and i.extent == delta.axis.extent:
        return True
    return (
        len(axis) == 1
        and axis == {*solution.value.indices}
        and all(
            _is_window(bounds, a, i)
            for f in factors
            for a in ex.accesses(f)
            if i in ex.free_indices(a)
        )
    )


def _is_skewed(a: ex.Access, solution: Solution) -> bool:
    """True if the value would move one axis of the tensor by an index of another: k[i - a, a]."""
    moved = [p for p in a.positions if solution.index in ex.free_indices(p)]
    others = frozenset().union(*(ex.free_indices(p) for p in a.positions if p not in moved))
    return bool(moved) and not others.isdisjoint(solution.value.indices)


def _is_window(bounds: Bounds, a: ex.Access, i: ex.Index) -> bool:
    """True if the index occurs alone in one position, with step 1 or -1."""
    (position, *more) = (p for p in a.positions if i in ex.free_indices(p))
    bare = position.position if isinstance(position, ex.Guard) else position
    form = None if more else bounds.form(bare)
    return form is not None and form.indices == [i] and form.unit(i) is not None


def read_at(bounds: Bounds, factor: ex.Expr, solution: Solution) -> ex.Expr:
    """The factor with the index at its value; the range guards its reads."""
    i, value = solution.index, as_atom(solution.value.poly())
    if i not in ex.free_indices(factor):
        return factor
    if not solution.range:
        return simplify_guards(bounds, plain_positions(substitute(factor, {i: value})))
    guarded = substitute(factor, {i: ex.Guard(conjunction(solution.range), value)})
    return simplify_guards(bounds, with_guards_outside(guarded, frozenset(solution.range)))


# Ranges


def _narrowed(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The sum over a subrange that brackets leave, if some extent has exactly its size."""
    for i in t.binders:
        found = part_of_range(bounds, t.factors, i)
        if found is not None:
            index, start, rest = found
            new = fresh(index, ex.free_indices(t) | frozenset(t.binders))
            shifted = as_atom((Polynomial.of(new) + start).poly())
            factors = [
                simplify_guards(bounds, plain_positions(substitute(f, {i: shifted}))) for f in rest
            ]
            yield rebuilt_term(t, [new if b is i else b for b in t.binders], factors)


# ----------------------------------------------------------------------------------- equality rules

_FEW = 16
"""The largest size of an index whose positions are enumerated."""


def equality_rules(bounds: Bounds) -> tuple[Rule, ...]:
    """The rules for an operation with these extents."""
    return (
        Rule(
            "solve equality",
            "Σᵢ [i = s]·f(i) = [0 ≤ s < size(i)]·f(s)",
            "the number of summed indices",
            lambda t: next(_solve_index_equality(bounds, t), None),
        ),
        Rule(
            "one position left",
            "Σᵢ [c(i)]·f(i) = f(n) where c holds for n alone",
            "the number of conditions",
            lambda t: next(_left_with_one(bounds, t), None),
        ),
        Rule(
            "read at a delta",
            "δ(i, n)·f(i) = δ(i, n)·f(n)",
            "the number of factors that have an index",
            lambda t: next(_read_at_delta(bounds, t), None),
        ),
    )


def _bracket_conditions(t: Term) -> Iterator[tuple[ex.Iverson, ex.Expr]]:
    for f in t.factors:
        for c in conditions_of(f.condition) if isinstance(f, ex.Iverson) else ():
            assert isinstance(f, ex.Iverson)
            yield f, c


def _without_condition(t: Term, f: ex.Iverson, gone: ex.Expr) -> list[ex.Expr]:
    """The factors of a term without one condition of a bracket."""
    left = [c for c in conditions_of(f.condition) if c is not gone]
    rest = [x for x in t.factors if x is not f]
    return [*rest, ex.Iverson(conjunction(left))] if left else rest


def _equality_value(bounds: Bounds, c: ex.Expr, i: ex.Index) -> Polynomial | None:
    """The value of i if the condition is an equality that can be solved for i."""
    if not isinstance(c, ex.Rel) or c.op != "==" or i.group:
        return None
    left, right = bounds.form(c.left), bounds.form(c.right)
    if left is None or right is None:
        return None
    return (left - right).solved(i)


def _solve_index_equality(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The term without a summed index that an equality fixes to a value with at most one index."""
    for f, c in _bracket_conditions(t):
        for i in t.binders:
            value = _equality_value(bounds, c, i)
            if value is None or len(value.indices) > 1:
                continue
            solution = Solution(i, value, range_of(bounds, i, value))
            brackets = [ex.Iverson(x) for x in solution.range]
            rest = (read_at(bounds, x, solution) for x in _without_condition(t, f, c))
            yield rebuilt_term(t, [j for j in t.binders if j is not i], [*brackets, *rest])


def _left_with_one(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The term at the only position of a short axis that its conditions admit, or 0 without one."""
    conditions = dict.fromkeys(c for _, c in _bracket_conditions(t))
    for i in dict.fromkeys(i for c in conditions for i in ex.free_indices(c)):
        size = bounds.size(i.extent).number
        own = [c for c in conditions if ex.free_indices(c) == {i} and not ex.tensors(c)]
        if i.group or size is None or size > _FEW or len(own) < 2:
            continue
        places = _admitted_positions(bounds, i, int(size), own)
        if places is not None and not places:
            yield ZERO
        if places is not None and len(places) == 1:
            yield _at_number(
                bounds, t, i, ex.num(places[0]), [c for c in conditions if c not in own]
            )


def _admitted_positions(
    bounds: Bounds, i: ex.Index, size: int, conditions: Sequence[ex.Expr]
) -> list[int] | None:
    """The positions of the index that meet the conditions; None unless all are decided."""
    found = [[bounds.holds(substitute(c, {i: ex.num(n)})) for c in conditions] for n in range(size)]
    if any(None in holds for holds in found):
        return None
    return [n for n, holds in enumerate(found) if all(holds)]


def _at_number(
    bounds: Bounds, t: Term, i: ex.Index, at: ex.Num, conditions: Sequence[ex.Expr]
) -> Poly:
    """The term with the index fixed to a number, and only these conditions left."""
    rest = [f for f in t.factors if not isinstance(f, ex.Iverson)]
    rest += [ex.Iverson(conjunction(conditions))] if conditions else []
    if i not in t.binders:
        return rebuilt_term(t, t.binders, [ex.Delta(i, at), *rest])
    solution = Solution(i, Polynomial.of(at), ())
    moved = [read_at(bounds, f, solution) for f in rest]
    return rebuilt_term(t, [j for j in t.binders if j is not i], moved)


def _read_at_delta(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The term with the index of a delta replaced by the number the delta fixes it to."""
    for f in t.factors:
        if not isinstance(f, ex.Delta) or not isinstance(f.axis, ex.Index) or f.axis in t.binders:
            continue
        if not any(f.axis in ex.free_indices(x) for x in t.factors if x is not f):
            continue
        at = Polynomial.of(f.position) if isinstance(f.position, ex.Num) else None
        if at is not None and not range_of(bounds, f.axis, at):
            solution = Solution(f.axis, at, ())
            rest = [x if x is f else read_at(bounds, x, solution) for x in t.factors]
            yield rebuilt_term(t, t.binders, rest)


@dataclass(frozen=True)
class _Lookup:
    """[position = index] in a term, its other factors, and its other binders."""

    index: ex.Index
    position: ex.Access
    rest: tuple[ex.Expr, ...]
    others: tuple[ex.Index, ...]

    @property
    def beside(self) -> frozenset[str]:
        """The extents of the other sums."""
        return frozenset(i.extent for i in self.others)


def lookup_rule(bounds: Bounds) -> SumRule:
    """The gather rule for an operation with these extents and positions."""

    def looked_up(p: Poly) -> Poly | None:
        found = [next(_lookups(bounds, t), None) for t in p.terms]
        pairs = {t: x for t, x in zip(p.terms, found, strict=True) if x is not None}
        along = {(x.position, x.beside) for x in pairs.values() if not _is_made_first(x)}
        made = {
            t: _gathered_term(bounds, t, x)
            for t, x in pairs.items()
            if (x.position, x.beside) in along
        }
        if not made:
            return None
        return poly([x for t in p.terms for x in (made[t].terms if t in made else (t,))])

    return SumRule(
        "lookup",
        "Σₙ [s = n]·f(n) = f(s), as 0 ≤ s < size(n)",
        "the number of summed indices",
        looked_up,
    )


def _lookups(bounds: Bounds, t: Term) -> Iterator[_Lookup]:
    for m in t.factors:
        conditions = conditions_of(m.condition) if isinstance(m, ex.Iverson) else ()
        for index, c in product(t.binders, conditions):
            position = None if index.group else _equal_to(index, c)
            if position is None or not _is_inside(bounds, position, index):
                continue
            left = [x for x in conditions if x is not c]
            rest = [f for f in t.factors if f is not m]
            rest += [ex.Iverson(conjunction(left))] if left else []
            within = (e for f in rest for e in ex.walk(f) if e.bound())
            if not any(index in ex.free_indices(e) for e in within):
                known = {index, *ex.free_indices(position)}
                others = tuple(i for i in t.binders if i not in known)
                yield _Lookup(index, position, tuple(rest), others)


def _is_made_first(x: _Lookup) -> bool:
    """True if one of the other sums does not depend on the position, so it is computed first."""
    own = ex.free_indices(x.position)
    shared = frozenset().union(*(ex.free_indices(f) for f in x.rest if own & ex.free_indices(f)))
    return any(i not in shared for i in x.others)


def _gathered_term(bounds: Bounds, t: Term, x: _Lookup) -> Poly:
    moved = (plain_positions(substitute(f, {x.index: x.position})) for f in x.rest)
    binders = [i for i in t.binders if i is not x.index]
    return rebuilt_term(t, binders, [simplify_guards(bounds, f) for f in moved])


def _equal_to(index: ex.Index, c: ex.Expr) -> ex.Access | None:
    """The access that the condition equates with the index."""
    if not isinstance(c, ex.Rel) or c.op != "==":
        return None
    sides = [lone_atom(c.left), lone_atom(c.right)]
    for one, other in (sides, sides[::-1]):
        if one is index and isinstance(other, ex.Access) and index not in ex.free_indices(other):
            return other
    return None


def _is_inside(bounds: Bounds, position: ex.Expr, index: ex.Index) -> bool:
    inside = ex.Rel("<=", ex.num(0), position), ex.Rel("<", position, ex.Size(index.extent))
    return all(bounds.holds(c) is True for c in inside)
