"""Decide conditions of a term by its index ranges and brackets, and simplify the guards of reads.

A guard keeps a read in range where the bracket beside it is 0. It therefore encloses the whole
position of a read or of a scattering delta. Elsewhere it has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from fractions import Fraction
from functools import lru_cache
from math import prod

from derive.algebra.affine import Polynomial
from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    PositionedExpr,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    accesses,
    free_indices,
    num,
    walk,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    as_atom,
    as_poly,
    base_and_power,
    make_term,
    mul,
    poly,
    scale,
    sum_over,
)
from derive.algebra.reductions import CONDITIONS
from derive.algebra.rules import Rule, contraction
from derive.algebra.substitution import replace, replace_inside_out, substitute
from derive.calculus.ranks import counted_axes
from derive.notation.operation import Equation, Extent, Number, Operation, SizeOf, declared_axes


def group_by_indices(condition: Expr) -> list[Expr]:
    """Split the condition into one per set of free indices.

    [a(e) and b(e,n)] = [a(e)]*[b(e,n)], of which the first can be pulled out of a sum over n.
    """
    groups: dict[frozenset[Index], list[Expr]] = {}
    for c in conditions_of(condition):
        groups.setdefault(free_indices(c), []).append(c)
    return [conjunction(parts) for parts in groups.values()]


def rebuilt_term(t: Term, binders: Sequence[Index], factors: Sequence[Expr]) -> Poly:
    """The term with these binders and factors, some of which may have become sums."""
    if not any(isinstance(f, Poly) for f in factors):
        return poly([make_term(t.coef, binders, factors)])
    whole = mul(*map(as_poly, factors))
    return scale(sum_over(whole, binders), t.coef)


def simplify_guards(bounds: Bounds, e: Expr) -> Expr:
    """e without guards and guard conditions that always hold, and without nested guards."""

    def visit(part: Expr) -> Expr | None:
        if not isinstance(part, Guard):
            return None
        condition, position = replace(part.condition, visit), replace(part.position, visit)
        every = conditions_of(condition)
        if isinstance(position, Guard) and position.elsewhere is part.elsewhere:
            # Where the inner condition fails both are 0.
            inner = position
            every = tuple(
                replace(c, lambda e: inner.position if e is inner else None) for c in every
            )
            every = (*conditions_of(inner.condition), *every)
            position = inner.position
        left = [c for c in every if bounds.holds(c) is not True]
        return Guard(conjunction(left), position, part.elsewhere) if left else position

    return plain_positions(replace(e, visit))


@lru_cache(maxsize=4096)
def plain_positions(e: Expr) -> Expr:
    """e with positions that are a lone atom stored as that atom."""

    def plain(part: Expr) -> Expr:
        if isinstance(part, Access):
            return Access(part.tensor, tuple(map(lone_atom, part.positions)))
        if isinstance(part, Guard | PositionedExpr):
            made: Expr = part.map(lambda p: lone_atom(p) if p is part.position else p)
            return Delta(lone_atom(made.axis), made.position) if isinstance(made, Delta) else made
        return part

    return replace_inside_out(e, plain)


def lone_atom(e: Expr) -> Expr:
    """The single atom of a sum that consists of it; anything else unchanged."""
    return as_atom(e) if isinstance(e, Poly) else e


def without_guards(e: Expr, beside: frozenset[Expr]) -> Expr:
    """e without the guards whose conditions are all in ``beside``."""

    def visit(part: Expr) -> Expr | None:
        if isinstance(part, Guard) and beside.issuperset(conditions_of(part.condition)):
            return replace(part.position, visit)
        return None

    return plain_positions(replace(e, visit))


def with_guards_outside(e: Expr, beside: frozenset[Expr]) -> Expr:
    """e with the guards of these conditions moved outward around whole positions."""
    known: dict[Expr, Expr] = {}

    def within(part: Expr, found: list[Expr]) -> Expr | None:
        """Remove the guards of a position, collect their conditions; nested reads keep theirs."""
        if isinstance(part, Guard) and part.elsewhere is num(0):
            if beside.issuperset(conditions_of(part.condition)):
                found += conditions_of(part.condition)
                return replace(part.position, lambda e: within(e, found))
        if isinstance(part, Access):
            return Access(part.tensor, tuple(map(whole, part.positions)))
        if isinstance(part, PositionedExpr):
            return part.map(lambda p: whole(p) if p is part.position else apart(p))  # type: ignore[no-any-return]
        return None

    def apart(e: Expr) -> Expr:
        return replace(e, lambda part: within(part, []))

    def whole(position: Expr) -> Expr:
        made = known.get(position)
        if made is None:
            found: list[Expr] = []
            inner = replace(position, lambda e: within(e, found))
            made = Guard(conjunction(found), lone_atom(inner)) if found else inner
            known[position] = made
        return made

    return plain_positions(apart(e))


def held_conditions(factors: Iterable[Expr]) -> tuple[Expr, ...]:
    """The conditions of the brackets among these factors."""
    return tuple(c for f in factors if isinstance(f, Iverson) for c in conditions_of(f.condition))


def beside(t: Term, factor: Expr) -> frozenset[Expr]:
    """The conditions of the other brackets of a term."""
    return frozenset(held_conditions(f for f in t.factors if f is not factor))


def move_guards_out(t: Term) -> Poly | None:
    """The term with each guard that another factor implies moved to the whole position."""
    if not any(isinstance(f, Iverson) for f in t.factors):
        return None
    for f in t.factors:
        if not any(isinstance(part, Guard) for part in walk(f)):
            continue
        new = with_guards_outside(f, beside(t, f))
        if new is not f:
            return rebuilt_term(t, t.binders, [new if x is f else x for x in t.factors])
    return None


def at_deltas(t: Term, indices: Sequence[Index]) -> tuple[Term, list[Index]]:
    """t with the summed indices that deltas fix substituted, and the indices left."""
    left = [] if set(indices) & set(t.binders) else list(indices)
    for d in t.factors:
        whole = Term(t.coef, (*t.binders, *left), t.factors)
        fixed = contraction(whole, d) if isinstance(d, Delta) else None
        if fixed is not None and fixed[0] in left:
            index, value = fixed
            factors = [substitute(f, {index: value}) for f in t.factors if f is not d]
            rest = [i for i in left if i is not index]
            return at_deltas(make_term(t.coef, t.binders, factors), rest)
    return t, list(indices)


def known(bounds: Bounds, t: Term) -> Poly | None:
    """The term without conditions that always hold; 0 if one never holds; None if unchanged.

    A condition that others imply, as i < j and j <= k imply i < k, is left out too, unless a part
    of the term has i and k without j: only conditions on its own indices guard a part.
    """
    held = held_conditions(t.factors)
    found = [bounds.holds(c) for c in held]
    if False in found or bounds.excludes(held):
        return ZERO
    left = [c for c, holds in zip(held, found, strict=True) if not holds]
    for c in left:
        others = [x for x in left if x is not c]
        if bounds.follows(c, others) and _is_guarded_without(bounds, t, c, others):
            left = others
    if len(left) == len(held):
        return None
    factors: list[Expr] = []
    for f in t.factors:
        if isinstance(f, Iverson):
            asked = [c for c in conditions_of(f.condition) if c in left]
            f = Iverson(conjunction(asked))
            if not asked:
                continue
        factors.append(f)
    return rebuilt_term(t, t.binders, [simplify_guards(bounds, f) for f in factors])


def _is_guarded_without(bounds: Bounds, t: Term, c: Expr, others: Sequence[Expr]) -> bool:
    """True if each part with the indices of c has those of other conditions that imply it."""
    asked = free_indices(c)
    parts = (part for f in t.factors if not isinstance(f, Iverson) for part in walk(f))
    values = (part for part in parts if not isinstance(part, Index))
    seen = {free for part in values if asked <= (free := free_indices(part))}
    return all(bounds.follows(c, [x for x in others if free_indices(x) <= free]) for free in seen)


_MOST_TRIED = 16
"""The largest number of positions of a fixed-size index tried as witnesses."""


def has_a_member(bounds: Bounds, condition: Expr, k: Index) -> bool:
    """True if some position of k certainly meets the condition; the sum of nothing is 0."""
    same = (i for i in free_indices(condition) if i.extent == k.extent and i is not k)
    size = bounds.size(k.extent).number
    known = range(min(int(size), _MOST_TRIED)) if size is not None else range(1)
    places: list[Expr] = [*sorted(same, key=lambda i: i.name), *map(num, known)]
    places += _solutions(bounds, condition, k)
    return any(
        all(bounds.holds(c) is True for c in conditions_of(substitute(condition, {k: place})))
        for place in places
    )


def some_meet(bounds: Bounds, condition: Expr, indices: Sequence[Index]) -> tuple[Expr, ...] | None:
    """Conditions on other indices that hold where some positions of these meet the condition.

    None if they are not found out; none if it is certain, as in has_a_member.
    """
    if len(indices) == 1 and has_a_member(bounds, condition, indices[0]):
        return ()
    return bounds.projected(condition, indices)


def _solutions(bounds: Bounds, condition: Expr, k: Index) -> Iterator[Expr]:
    """The positions of k that a conjunct T[i] = k names, where they certainly exist."""
    for c in conditions_of(condition):
        match c:
            case Rel("==", left, right):
                sides = as_atom(as_poly(left)), as_atom(as_poly(right))
                for place, own in (sides, sides[::-1]):
                    inside = Rel("<=", num(0), place), Rel("<", place, Size(k.extent))
                    if own is k and all(bounds.holds(x) is True for x in inside):
                        yield place


def _held_guards(t: Term) -> Iterator[tuple[Guard, Fraction, dict[Expr, Fraction]]]:
    """Yield each guard whose conditions brackets have, its power, and those of all factors."""
    held = frozenset(held_conditions(t.factors))
    powers = dict(map(base_and_power, t.factors))
    for base, power in powers.items():
        if isinstance(base, Guard) and held.issuperset(conditions_of(base.condition)):
            yield base, power, powers


def guard_rule() -> Rule:
    """The rule that drops a guard beside a bracket of the same condition."""

    def apply(t: Term) -> Poly | None:
        for base, power, powers in _held_guards(t):
            plain = base.position
            if plain not in powers:
                continue
            rest = [f for f in t.factors if base_and_power(f)[0] not in (base, plain)]
            total = power + powers[plain]
            kept = plain if total >= 0 and total.denominator == 1 else base
            left = [Pow(kept, Num(total))] if total else []
            return poly([make_term(t.coef, t.binders, [*rest, *left])])
        return None

    return Rule("guard", "[c]·u·Guard(c, u)⁻¹ = [c]", "the number of factors", apply)


def guarded_product_rule() -> Rule:
    """The rule that guards the factors of a product where one of them may cancel."""

    def apply(t: Term) -> Poly | None:
        for base, power, powers in _held_guards(t):
            inside = as_poly(base.position).terms
            if len(inside) != 1 or inside[0].binders or power.denominator != 1:
                continue
            (product,) = inside
            parts = dict(map(base_and_power, product.factors))
            if len(parts) < 2 or powers.keys().isdisjoint(parts):
                continue
            rest = [f for f in t.factors if base_and_power(f)[0] is not base]
            guarded = [
                Pow(Guard(base.condition, part, base.elsewhere), Num(power * own))
                for part, own in parts.items()
            ]
            coef = t.coef * product.coef ** int(power)
            return poly([make_term(coef, t.binders, [*rest, *guarded])])
        return None

    return Rule(
        "guarded product",
        "[c]·u·Guard(c, u/v)⁻¹ = [c]·u·Guard(c, u)⁻¹·Guard(c, v)",
        "the number of products under guards",
        apply,
    )


# ---------------------------------------------------------------------------------------- positions
# What is certain of positions: integers within an axis, and conditions that select one position.
#
#     y[k] = ... x[s[k]] ...  with x[n]   =>   0 <= s[k] < size(n) for every k
#     y[k] = ... x[3] ...     with x[n]   =>   4 <= size(n)
#
# An unguarded read out of range is an error, so every rewrite may assume that it is in range.
#
#     where(t == 0, a, where(t == 1, b, c))  =  delta(t, 0)*a + delta(t, 1)*b + delta(t, 2)*c
#
# Here t has three positions. A position may be row-major over several indices: 3*t + u == 5 is t =
# 1 and u = 2. The values are stacked, and an access at a fixed position reads one of them.


def bounds_of(op: Operation) -> Bounds:
    """The proven bounds of the sizes and the integers of an operation."""
    integers = (
        p.name for p in op.parameters if isinstance(p, SizeOf) or getattr(p, "integer", False)
    )
    checked = {p.name: p.bounds for p in op.parameters if isinstance(p, Number) and p.bounds}
    sizes = given_sizes(op.extents)
    return Bounds(sizes, integers, certain_positions(op), least_sizes(op), checked)


def given_sizes(extents: Iterable[Extent]) -> dict[str, Expr | None]:
    """Extent -> the size that the operation gives it, or None; groups are omitted."""
    return {e.name: e.size for e in extents if not e.group}


def certain_positions(op: Operation) -> dict[str, list[str]]:
    """Tensor -> the extents that every value of the tensor is a position of."""
    axes = declared_axes(op)
    found: dict[str, list[str]] = {}
    for position, extent in _unguarded_positions(op):
        if isinstance(position, Access) and _covers_tensor(position, axes[position.tensor]):
            extents = found.setdefault(position.tensor, [])
            extents += [] if extent in extents else [extent]
    for equation in op.equations:
        for i in counted_axes(equation):
            found.setdefault(equation.name, []).append(i.extent)
    return found


def least_sizes(op: Operation) -> dict[str, int]:
    """Extent -> a proven lower bound of its size.

    A size that is given as an argument is at least 1.
    """
    found = {p.extent: 1 for p in op.parameters if isinstance(p, SizeOf)}
    for position, extent in _unguarded_positions(op):
        if isinstance(position, Num) and position.value.denominator == 1:
            found[extent] = max(found.get(extent, 0), int(position.value) + 1)
    return found


def _unguarded_positions(op: Operation) -> Iterator[tuple[Expr, str]]:
    """The positions of unguarded reads, each with the extent of its axis."""
    axes = declared_axes(op)
    for equation in op.equations:
        for a in _always_read(equation.body):
            for position, axis in zip(a.positions, axes[a.tensor], strict=True):
                if isinstance(axis, Index) and not axis.group:
                    yield position, axis.extent


def freely_read(op: Operation) -> tuple[Equation, ...]:
    """The equations without guards of positions that are certainly valid."""
    axes, certain = declared_axes(op), certain_positions(op)

    def freed(e: Expr) -> Expr:
        if not isinstance(e, Access):
            return e
        pairs = zip(e.positions, axes[e.tensor], strict=True)
        return Access(e.tensor, tuple(bare(p, axis) for p, axis in pairs))

    def bare(position: Expr, axis: Expr) -> Expr:
        inner = position.position if isinstance(position, Guard) else position
        known = certain.get(inner.tensor, ()) if isinstance(inner, Access) else ()
        return inner if isinstance(axis, Index) and axis.extent in known else position

    if not certain:
        return op.equations
    return tuple(changed(q, body=replace_inside_out(q.body, freed)) for q in op.equations)


def partial_extents(op: Operation) -> frozenset[str]:
    """The extents of indices that run over a part of an axis, of another size."""
    axes = declared_axes(op)
    return frozenset(
        position.extent
        for equation in op.equations
        for a in accesses(equation.body)
        for position, axis in zip(a.positions, axes[a.tensor], strict=True)
        if isinstance(position, Index) and isinstance(axis, Index)
        if position.extent != axis.extent
    )


def _always_read(e: Expr) -> Iterator[Access]:
    """The accesses in e that no condition guards."""
    parts: tuple[Expr, ...] = ()
    match e:
        case Access():
            yield e
            parts = e.positions
        case Reduce(kind, _, body, None) if kind not in CONDITIONS:
            parts = (body,)
        case Add() | Pow() | Call() | Rel() | Not():
            parts = e.parts()
        case Reduce(_, _, _, Expr() as condition):
            parts = (condition,)
        case Mul(args):
            # The first bracket guards the other factors.
            parts = tuple(a for a in args if isinstance(a, Iverson))[:1] or args
        case Where(condition) | Iverson(condition):
            parts = (condition,)
        case And(args) | Or(args):
            # The first condition guards the others.
            parts = args[:1]
    for part in parts:
        yield from _always_read(part)


def _covers_tensor(a: Access, axes: tuple[Expr, ...]) -> bool:
    """True if the access reads the whole tensor, with distinct indices."""
    extents = [i.extent for i in axes if isinstance(i, Index)]
    read = [i for i in a.positions if isinstance(i, Index)]
    is_whole = len(set(read)) == len(a.positions) == len(extents)
    return is_whole and [i.extent for i in read] == extents


@dataclass(frozen=True)
class PositionCase:
    """The condition that indices are at a row-major position, negated if ``denied``."""

    denied: bool
    indices: tuple[tuple[Index, int], ...]
    """Each with its size, outermost first."""
    position: int

    def at(self, position: int) -> tuple[Delta, ...]:
        """Deltas that fix the indices at a position."""
        deltas: list[Delta] = []
        for i, size in reversed(self.indices):
            position, digit = divmod(position, size)
            deltas.insert(0, Delta(i, num(digit)))
        return tuple(deltas)

    def excludes(self, factor: Expr) -> bool:
        """True if the factor is a delta that fixes one of the indices at another position."""
        if not isinstance(factor, Delta) or not isinstance(factor.position, Num):
            return False
        return any(d.axis is factor.axis and d is not factor for d in self.at(self.position))


def case_of(bounds: Bounds, condition: Expr) -> PositionCase | None:
    """The case of t == 1, t != 1 or 3*t + u == 4 for indices whose sizes are numbers."""
    if not isinstance(condition, Rel) or condition.op not in ("==", "!="):
        return None
    left, right = condition.left, condition.right
    assert isinstance(left, Poly) and isinstance(right, Poly)
    sides = as_atom(left), as_atom(right)
    n = next((x.value for x in sides if isinstance(x, Num)), None)
    other = right if isinstance(sides[0], Num) else left
    form = bounds.form(other) if n is not None and free_indices(other) else None
    if n is None or form is None:
        return None
    terms = (form - Polynomial.of(num(n))).terms
    sign = -1 if any(c < 0 for key, c in terms.items() if key) else 1
    indices: list[tuple[Index, int]] = []
    whole = 1
    for key, c in sorted(terms.items(), key=lambda term: term[1] * sign):
        if not key:
            continue
        size = bounds.size(key[0].extent).number if isinstance(key[0], Index) else None
        if size is None or len(key) > 1 or c * sign != whole:
            return None
        assert isinstance(key[0], Index)
        indices.insert(0, (key[0], int(size)))
        whole *= int(size)
    position = -sign * terms.get((), Fraction(0))
    if not indices or position not in range(whole):
        return None
    return PositionCase(condition.op == "!=", tuple(indices), int(position))


def only_case(bounds: Bounds, condition: Expr, around: Sequence[Expr]) -> tuple[Delta, ...] | None:
    """Deltas of the only position that a condition admits.

    t == 1 admits one. t != 1 admits one if the conditions around it exclude all others but one.
    """
    case = case_of(bounds, condition)
    if case is None:
        return None
    if not case.denied:
        return case.at(case.position)
    others = (case_of(bounds, c) for c in around)
    gone = {c.position for c in others if c and c.denied and c.indices == case.indices}
    left = set(range(prod(size for _, size in case.indices))) - gone - {case.position}
    return case.at(left.pop()) if len(left) == 1 else None
