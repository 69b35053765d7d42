"""Solve deltas with a shifted summed index, and simplify the conditions that remain.

    Sum_j delta(i, j + s) f(j) = f(i - s)    where 0 <= i - s < size(j) for every i

Solving without that proof would read out of range. If the solution is in range for only some values
of i, the range becomes a bracket of the term and a guard of its reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Rel,
    Size,
    accesses,
    free_indices,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conjunction
from derive.algebra.poly import (
    Poly,
    Term,
    as_atom,
)
from derive.algebra.rules import Rule
from derive.algebra.substitution import fresh, substitute
from derive.calculus.guards import (
    beside,
    known,
    move_guards_out,
    plain_positions,
    rebuilt_term,
    simplify_guards,
    with_guards_outside,
    without_guards,
)
from derive.calculus.reindexing import part_of_range, reverse_term

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

    index: Index
    value: Polynomial
    range: tuple[Expr, ...]
    """The conditions on the value that are not known to hold."""


def _solve_delta(bounds: Bounds, t: Term, everywhere: bool) -> Iterator[Poly]:
    """The term without a delta and the summed index that it fixes."""
    for delta in t.factors:
        if not isinstance(delta, Delta):
            continue
        for solution in _solutions(bounds, t, delta):
            rest = [f for f in t.factors if f is not delta]
            if everywhere != (not solution.range):
                continue
            if not everywhere and not _is_small_read(bounds, delta, solution, rest):
                continue
            binders = [i for i in t.binders if i is not solution.index]
            brackets = [Iverson(c) for c in solution.range]
            yield rebuilt_term(
                t, binders, [*brackets, *(read_at(bounds, f, solution) for f in rest)]
            )


def _solutions(bounds: Bounds, t: Term, delta: Delta) -> Iterator[Solution]:
    """A solution for every summed index in the position with coefficient 1 or -1.

    A guard of the position that a bracket of the term implies is dropped.
    """
    axis, position = (
        bounds.form(without_guards(e, beside(t, delta))) for e in (delta.axis, delta.position)
    )
    if axis is None or position is None:
        return
    for i in t.binders:
        if i.group or i in free_indices(delta.axis):
            continue
        value = (axis - position).solved(i)
        if value is not None:
            yield Solution(i, value, range_of(bounds, i, value))


def range_of(bounds: Bounds, i: Index, value: Polynomial) -> tuple[Expr, ...]:
    """The unproven part of 0 <= value < size(i), each negative term moved to the other side."""
    zero = Polynomial({})
    conditions: list[Expr] = []
    if not bounds.at_most(zero, value):
        conditions.append(_relation("<=", zero, value))
    if not bounds.at_most(value + _ONE, bounds.size(i.extent)):
        conditions.append(_relation("<", value, Polynomial.of(Size(i.extent))))
    return tuple(conditions)


def _relation(op: str, a: Polynomial, b: Polynomial) -> Rel:
    """a op b without negative terms: 0 <= i - 2 is 2 <= i."""
    gap = (b - a).terms
    left = Polynomial({k: -c for k, c in gap.items() if c < 0})
    right = Polynomial({k: c for k, c in gap.items() if c > 0})
    return Rel(op, left.poly(), right.poly())


def _is_small_read(
    bounds: Bounds, delta: Delta, solution: Solution, factors: Sequence[Expr]
) -> bool:
    """True if guarded reads are no larger than the scatter they replace.

    Either the reads are windows of their axes, or the summed index is as long as the axis of the
    delta. Then a guarded read is also valid on an empty axis.
    """
    axis, i = free_indices(delta.axis), solution.index
    if isinstance(delta.axis, Index) and i.extent == delta.axis.extent:
        return True
    return (
        len(axis) == 1
        and axis == {*solution.value.indices}
        and all(
            _is_window(bounds, a, i) for f in factors for a in accesses(f) if i in free_indices(a)
        )
    )


def _is_window(bounds: Bounds, a: Access, i: Index) -> bool:
    """True if the index occurs alone in one position, with step 1 or -1."""
    (position, *more) = (p for p in a.positions if i in free_indices(p))
    bare = position.position if isinstance(position, Guard) else position
    form = None if more else bounds.form(bare)
    return form is not None and form.indices == [i] and form.unit(i) is not None


def read_at(bounds: Bounds, factor: Expr, solution: Solution) -> Expr:
    """The factor with the index at its value; the range guards its reads."""
    i, value = solution.index, as_atom(solution.value.poly())
    if i not in free_indices(factor):
        return factor
    if not solution.range:
        return simplify_guards(bounds, plain_positions(substitute(factor, {i: value})))
    guarded = substitute(factor, {i: Guard(conjunction(solution.range), value)})
    return simplify_guards(bounds, with_guards_outside(guarded, frozenset(solution.range)))


# Ranges


def _narrowed(bounds: Bounds, t: Term) -> Iterator[Poly]:
    """The sum over a subrange that brackets leave, if some extent has exactly its size."""
    for i in t.binders:
        found = part_of_range(bounds, t.factors, i)
        if found is not None:
            index, start, rest = found
            new = fresh(index, free_indices(t) | frozenset(t.binders))
            shifted = as_atom((Polynomial.of(new) + start).poly())
            factors = [
                simplify_guards(bounds, plain_positions(substitute(f, {i: shifted}))) for f in rest
            ]
            yield rebuilt_term(t, [new if b is i else b for b in t.binders], factors)
