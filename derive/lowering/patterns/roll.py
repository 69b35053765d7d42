"""Positions on a ring: a shift past one end of an axis continues at the other end.

    [i < s] f(i - s + size(i)) + [s <= i] f(i - s)  =  f.roll(s)[i]
    X[(i - s) % size(i)]                            =  X.roll(s)[i]
    Sum_j X[j] Y[(i - j - s) % size(i)]             =  circular_convolution(X, Y).roll(s)[i]
    Sum_j X[j] Y[(i + j - s) % size(i)]             =  circular_correlation(X, Y).roll(s)[i]

A branch reads positions of the axis wherever it is taken. If any i takes the first branch, i = 0
does, so s <= size(i). If any takes the second, the last i does, so 0 <= s. Hence every i reads f
at (i - s) % size(i), and each position is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from derive.algebra.affine import Polynomial, remainder
from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    accesses,
    factors_of,
    free_indices,
    indices_of,
    product_of,
    sum_of,
    walk,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of
from derive.algebra.poly import Poly
from derive.algebra.substitution import replace, substitute
from derive.calculus.guards import without_guards
from derive.calculus.value_analysis import ValueFacts
from derive.lowering.ground.axis_order import with_binders
from derive.lowering.ground.context import Scope
from derive.lowering.ground.numbers import whole_divisor
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Added, Indices, Value, broadcast
from derive.lowering.ground.windows import AxisRead, is_given, number_of
from derive.lowering.patterns.recurrences import with_axes_of
from derive.program.torch_ir import Binary, FunctionCall


def added_ring(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """[m < s] f(m - s + size) + [not m < s] f(m - s) = f.roll(s)[m]."""
    cut = [a for a in addends if any(isinstance(f, Iverson) for f in factors_of(a))]
    for pair in combinations(cut, 2):
        for i in order:
            found = None if i.group else _ring_branches(scope.frame.bounds, pair, i)
            if found is None:
                continue
            whole, shift = found
            rolled = _roll_axis(scope, scope.lower(whole, order), i, shift)
            if rolled is not None:
                return rolled, [a for a in addends if a not in pair]
    return None


def _ring_branches(
    bounds: Bounds, pair: Sequence[Expr], i: Index
) -> tuple[Expr, Polynomial] | None:
    """Return (f, s) if the addends are f(i - s + size) for i < s, and f(i - s) otherwise."""
    found = filter(None, (_ring_side(bounds, e, i) for e in pair))
    sides = {above: (place, f) for above, place, f in found}
    if len(sides) < 2:
        return None
    (shift, before), (place, after) = sides[False], sides[True]
    if shift != place or not is_given(shift):
        return None
    turned = shift - bounds.size(i.extent)
    whole = _shift_index(bounds, after, i, shift)
    if _shift_index(bounds, before, i, turned) is not whole or not _is_along(whole, i):
        return None
    return whole, min(shift, turned, key=lambda s: len(s.terms))


def _ring_side(bounds: Bounds, e: Expr, i: Index) -> tuple[bool, Polynomial, Expr] | None:
    """Return (True, s, f) for [s <= i] f and (False, s, f) for [i < s] f, without guards of it."""
    brackets = [f for f in factors_of(e) if isinstance(f, Iverson)]
    if len(brackets) != 1 or free_indices(brackets[0]) != {i}:
        return None
    condition = brackets[0].condition
    edge = bounds.edge(condition, i)
    if edge is None:
        return None
    rest = product_of([f for f in factors_of(e) if f is not brackets[0]])
    return *edge, without_guards(rest, frozenset(conditions_of(condition)))


def _shift_index(bounds: Bounds, e: Expr, i: Index, by: Polynomial) -> Expr:
    """Return e at i + by, with affine positions in normal form."""

    def plain(position: Expr) -> Expr:
        form = bounds.form(position)
        return position if form is None else form.expr()

    def visit(part: Expr) -> Expr | None:
        if not isinstance(part, Access):
            return None
        read = (replace(p, visit) for p in part.positions)
        return Access(part.tensor, tuple(map(plain, read)))

    return replace(substitute(e, {i: (Polynomial.of(i) + by).expr()}), visit)


def _is_along(e: Expr, i: Index) -> bool:
    """True if e reads tensors at i, and has no delta and no guard."""
    read = any(i in a.positions for a in accesses(e))
    return read and not any(isinstance(x, Guard | Delta) for x in walk(e))


def read_ring(scope: Scope, r: AxisRead) -> Value | None:
    """X[(i + s) % size] = X.roll(-s)[i]."""
    found = _around(scope.frame.bounds, r.position, r.extent)
    steps, shift = ({}, None) if found is None else _steps(found)
    if shift is None or list(steps.values()) != [1]:
        return None
    (i,) = steps
    return None if i in r.value.axes else _roll_axis(scope, r.value.at(r.n, i), i, -shift)


def convolution_on_ring(scope: Scope, s: Summation) -> Value | None:
    """Sum_j X[j] Y[(i - j) % n] = circular_convolution(X, Y)[i].

    The same with i + j or j - i. What else is summed over is so before it if one of the two has it,
    after it if both do. The rounding of a transform is relative to the largest element: a sum of
    what is never negative, and one inside of a function, is added as it stands.
    """
    for j in s.binders:
        found = _factors_on_ring(scope.frame.bounds, s.factors, j)
        if found is None:
            continue
        if not _may_be_rounded(scope, s):
            return None
        i, steps, shift, sides = found
        others = [k for k in s.binders if k is not j]
        after = [k for k in others if all(k in indices_of(f) for f in sides)]
        inside = [[k for k in others if k not in after and k in indices_of(f)] for f in sides]
        terms = [summed_product(b, f) for b, f in zip(inside, sides, strict=True)]
        order = with_binders(s.order, after, s.expr)
        kept = [k for k in order if any(k in free_indices(e) for e in terms)]
        if all(set(kept) - free_indices(e) for e in terms) and after:
            continue  # a tensor of more axes than either
        values = [scope.lower(e, kept) for e in terms]
        if all(v.kind != "float" for v in values):
            continue  # a sum of integers is exact
        x, y = (with_axes_of(scope, v, kept) for v in values)
        shift = -shift
        if steps[i] < 0:
            # Of k = j - i + c: Sum_k y(k) x((i + k - c) % n).
            x, y, shift = y, x, -shift
        name = "rt.circular_convolution" if steps[j] < 0 else "rt.circular_correlation"
        code = FunctionCall(name, (x.code, y.code, scope.frame.place(x, i)))
        value = Value(code, broadcast(x.axes, y.axes))
        which = [n for n, k in enumerate(value.axes) if k in after]
        value = scope.frame.reduce(value, "sum", which, False, "float") if which else value
        return value if shift == Polynomial({}) else _roll_axis(scope, value, i, shift)
    return None


def _may_be_rounded(scope: Scope, s: Summation) -> bool:
    """True if the sum may have either sign, and no function of a sum is in the equation."""
    let, values = scope.defined, ValueFacts(scope.find)
    inside = (p for t in let.body.terms for f in t.factors for p in walk(f)) if let else ()
    nested = any(isinstance(p, Poly) and any(t.binders for t in p.terms) for p in inside)
    return not nested and any(values.facts(f).low < 0 for f in s.factors)


_Sides = tuple[Sequence[Expr], Sequence[Expr]]


def _factors_on_ring(
    bounds: Bounds, factors: Sequence[Expr], j: Index
) -> tuple[Index, Mapping[Index, int], Polynomial, _Sides] | None:
    """Return i, the signs of i and j, c, and the factors at j and on the ring, both at i."""
    apart: dict[Polynomial | None, list[Expr]] = {}
    for f in factors:
        read, place = _read_on_ring(bounds, f, j) or (f, None)
        apart.setdefault(place, []).append(read)
    alone = apart.pop(None, [])
    if len(apart) != 1 or not alone or not all(_is_along(f, j) for f in alone):
        return None
    ((place, turned),) = apart.items()
    steps, shift = ({}, None) if place is None else _steps(place)
    # Neither of more shifts than i nor the convolution at -i.
    if shift is None or j not in steps or sorted(steps.values()) not in ([-1, 1], [1, 1]):
        return None
    (i,) = (k for k in steps if k is not j)
    if i.extent != j.extent or i in indices_of([*alone, *turned]):
        return None
    sides = [[substitute(f, {j: i}) for f in side] for side in (alone, turned)]
    return i, steps, shift, (sides[0], sides[1])


def _read_on_ring(bounds: Bounds, f: Expr, i: Index) -> tuple[Expr, Polynomial] | None:
    """Return (f at i, x) of a factor that reads tensors at x % size(i), and i nowhere else."""
    if isinstance(f, Iverson) or i not in free_indices(f):
        return None
    read = {p for a in accesses(f) for p in a.positions if i in free_indices(p)}
    if len(read) != 1:
        return None
    (position,) = read
    found = _around(bounds, position, i.extent)
    if found is None or not free_indices(f).issuperset(found.indices):
        return None
    turned = Index(f"%{i.name}", i.extent)
    moved = replace(f, lambda part: turned if part is position else None)
    return None if i in free_indices(moved) else (substitute(moved, {turned: i}), found)


def _around(bounds: Bounds, position: Expr, extent: str) -> Polynomial | None:
    """Return x of x % size, if its indices have as many values as the axis."""
    if isinstance(position, Index | Guard):
        return None
    size, found = bounds.size(extent), remainder(position)
    above, below = (None, None) if found is None else map(bounds.form, found)
    if above is None or below != size or any(bounds.size(i.extent) != size for i in above.indices):
        return None
    return above


def _steps(place: Polynomial) -> tuple[Mapping[Index, int], Polynomial | None]:
    """Return the coefficients of the indices and the number beside them; None if it is no shift."""
    found = place.affine()
    steps = {} if found is None else {i: place.unit(i) for i in found.coefficients}
    if found is None or None in steps.values() or not is_given(found.constant):
        return {}, None
    return {i: step for i, step in steps.items() if step is not None}, found.constant


def added_remainder(scope: Scope, addends: Sequence[Expr], order: Indices) -> Added | None:
    """x - n*floor(x/n) = x % n, of integers."""
    found = remainder(sum_of(addends))
    if found is None:
        return None
    x, n = (scope.frame.fit(scope.lower(e, order), order) for e in found)
    n = whole_divisor(scope.frame, x, n)
    if (x.kind, n.kind) != ("int", "int") or x.scalar:
        return None
    return Value(Binary("%", x.code, n.code), broadcast(x.axes, n.axes), "int"), []


def _roll_axis(scope: Scope, value: Value, i: Index, shift: Polynomial) -> Value | None:
    """Return the value with position k of an axis moved to k + shift."""
    if i not in value.axes:
        return None
    return value.call("roll", number_of(scope, shift), scope.frame.place(value, i))
