"""Positions on a ring: a shift past one end of an axis continues at the other end.

    [i < s] f(i - s + size(i)) + [s <= i] f(i - s)  =  f.roll(s)[i]
    X[(i - s) % size(i)]                            =  X.roll(s)[i]
    X[(i - s) % size(i)] Y[(i - s) % size(i)]       =  (X Y).roll(s)[i]

A branch reads positions of the axis wherever it is taken. If any i takes the first branch, i = 0
does, so s <= size(i). If any takes the second, the last i does, so 0 <= s. Hence every i reads f
at (i - s) % size(i), and each position is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    product_of,
    sum_of,
    walk,
)
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of
from derive.algebra.substitution import replace, substitute
from derive.calculus.guards import without_guards
from derive.lowering.ground.context import Scope
from derive.lowering.ground.contract import elementwise_product
from derive.lowering.ground.value import Value, broadcast
from derive.lowering.ground.windows import AxisRead, is_given, number_of
from derive.program.torch_ir import Binary


def added_ring(
    scope: Scope, addends: Sequence[Expr], order: Sequence[Index]
) -> tuple[Value, list[Expr]] | None:
    """Return the two branches as one rolled tensor, and the other addends."""
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
    sides = {
        above: (place, f)
        for above, place, f in filter(None, (_ring_side(bounds, e, i) for e in pair))
    }
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
    """X[(i + c) % size] = X.roll(-c)[i]."""
    found = _on_ring(scope.frame.bounds, r.position, r.extent)
    if found is None or found[0] in r.value.axes:
        return None
    i, shift = found
    return _roll_axis(scope, r.value.at(r.n, i), i, -shift)


def product_on_ring(scope: Scope, factors: Sequence[Expr], order: Sequence[Index]) -> Value | None:
    """f((i + c) % size) g((i + c) % size) = (f g).roll(-c)[i]."""
    for i in order:
        found: dict[Polynomial, list[tuple[Expr, Expr]]] = {}
        for f in factors if not i.group else ():
            if (read := _read_on_ring(scope.frame.bounds, f, i)) is not None:
                found.setdefault(read[1], []).append((f, read[0]))
        for shift, several in found.items():
            if len(several) > 1:
                whole, turned = (product_of(x) for x in zip(*several, strict=True))
                value = _roll_axis(scope, scope.lower(turned, order), i, -shift)
                rest = [f for f in factors if f not in factors_of(whole)]
                if value is None or not rest:
                    return value
                other = scope.as_float(scope.lower(product_of(rest), order))
                return elementwise_product(scope.frame, other, scope.as_float(value), order)
    return None


def _read_on_ring(bounds: Bounds, f: Expr, i: Index) -> tuple[Expr, Polynomial] | None:
    """Return (f at i, c) of a factor that reads tensors at (i + c) % size, and i nowhere else."""
    if isinstance(f, Iverson) or i not in free_indices(f):
        return None
    read = {p for a in accesses(f) for p in a.positions if i in free_indices(p)}
    if len(read) != 1:
        return None
    (position,) = read
    found = _on_ring(bounds, position, i.extent)
    if found is None:
        return None
    turned = Index(f"%{i.name}", i.extent)
    moved = replace(f, lambda part: turned if part is position else None)
    return None if i in free_indices(moved) else (substitute(moved, {turned: i}), found[1])


def _on_ring(bounds: Bounds, position: Expr, extent: str) -> tuple[Index, Polynomial] | None:
    """Return (i, c) of (i + c) % size, if i has as many values as the axis."""
    if isinstance(position, Index | Guard):
        return None
    size, found = bounds.size(extent), remainder(position)
    above, below = (None, None) if found is None else map(bounds.form, found)
    at = None if above is None or below != size else above.affine()
    if at is None or len(at.coefficients) != 1 or not is_given(at.constant):
        return None
    ((i, step),) = at.coefficients.items()
    return (i, at.constant) if step.number == 1 and bounds.size(i.extent) == size else None


def added_remainder(
    scope: Scope, addends: Sequence[Expr], order: Sequence[Index]
) -> tuple[Value, list[Expr]] | None:
    """x - n*floor(x/n) = x % n, of integers."""
    found = remainder(sum_of(addends))
    if found is None:
        return None
    x, n = (scope.frame.fit(scope.lower(e, order), order) for e in found)
    if (x.kind, n.kind) != ("int", "int") or x.scalar:
        return None
    return Value(Binary("%", x.code, n.code), broadcast(x.axes, n.axes), "int"), []


def _roll_axis(scope: Scope, value: Value, i: Index, shift: Polynomial) -> Value | None:
    """Return the value with position k of an axis moved to k + shift."""
    if i not in value.axes:
        return None
    return value.call("roll", number_of(scope, shift), scope.frame.place(value, i))
