"""Sums over nearby positions: sums of windows of a zero-padded axis.

    Sum_l [k - a <= l <= k + b] f(l)  =  padded f.unfold(size a + 1 + b).sum(-1)[k]

l and k have the same extent, only the condition has k, and a and b are numbers or sizes. One of
them is at least 0 and the other at least -1, like half a window of unknown size. Values outside a
window are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.affine import Polynomial
from derive.algebra.expr import Expr, Index, Iverson, Not, Rel, indices_of, num
from derive.algebra.factor import factor
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Value
from derive.lowering.ground.windows import number_of, zero_padded
from derive.program.torch_ir import Binary, Code, Dim, MethodCall, literal

_ZERO, _ONE = Polynomial({}), Polynomial.of(1)
_MOST_PARTS = 4
"""The greatest denominator of a distance."""


@dataclass(frozen=True)
class Reach:
    """binder <= index + floor(above/below), or binder >= index - floor(above/below)."""

    binder: Index
    index: Index
    is_before: bool
    above: Polynomial
    below: int

    def code(self, scope: Scope) -> Code:
        """Return the code of the distance."""
        above = number_of(scope, self.above)
        return above if self.below == 1 else Binary("//", above, literal(self.below))


def band_sum(scope: Scope, s: Summation) -> Value | None:
    """Sum_l [k - a <= l <= k + b] f(l) as sums of windows."""
    conditions = conditions_of(s.condition)
    found = {c: r for c in conditions if (r := _reach(scope.frame.bounds, s, c)) is not None}
    if len(found) != 2:
        return None
    one, other = found.values()
    if (one.binder, one.index) != (other.binder, other.index) or one.is_before == other.is_before:
        return None
    before, after = (one, other) if one.is_before else (other, one)
    if not any(scope.frame.bounds.at_most(_ZERO, r.above) for r in (before, after)):
        return None
    within = [c for c in conditions if c not in found]
    inside: list[Expr] = [Iverson(conjunction(within))] if within else []
    inside += s.others
    if one.index in indices_of(inside) or one.binder not in indices_of(s.others):
        return None
    f = summed_product(tuple(i for i in s.binders if i is not one.binder), inside)
    inner = [one.binder if i is one.index else i for i in s.order]
    value = scope.as_float(scope.frame.fit(scope.lower(f, inner), inner))
    if one.binder not in value.axes:
        return None
    return _window_sums(scope, value, before, after)


def _window_sums(scope: Scope, value: Value, before: Reach, after: Reach) -> Value:
    """Return the sums of windows; one more zero at the end, as the axis may be empty."""
    n = value.axes.index(before.binder)
    place = scope.frame.position(value.axes, n)
    left, right = before.code(scope), after.code(scope)
    wide = zero_padded(scope, value, n, left, Binary("+", right, literal(1)))
    size = Binary("+", Binary("+", left, right), literal(1))
    code = MethodCall(
        MethodCall(wide.code, "unfold", (place, size, literal(1))), "sum", (literal(-1),)
    )
    sums = Value(code, value.axes).at(n, before.index)
    return sums.call("narrow", place, literal(0), Dim(before.index.extent))


def _reach(bounds: Bounds, s: Summation, c: Expr) -> Reach | None:
    """Return the reach of a comparison of two indices."""
    sides = _bounded_below(c)
    found = None if sides is None else _integer_multiple(bounds, sides[0])
    if sides is None or found is None:
        return None
    room, below = found
    rest = {key: value for key, value in room.terms.items() if not any(map(_is_index, key))}
    if len(room.indices) != 2 or len(room.terms) - len(rest) != 2:
        return None
    above = Polynomial(rest) - (_ONE if sides[1] else _ZERO)
    one = Fraction(below)
    for i, k in (room.indices, room.indices[::-1]):
        signs = room.terms.get((i,)), room.terms.get((k,))
        same = i.extent == k.extent and not i.group and i in s.binders and k not in s.binders
        if same and signs in ((one, -one), (-one, one)):
            if bounds.at_most(Polynomial.of(-below), above):
                return Reach(i, k, signs[0] == one, above, below)
    return None


def _bounded_below(c: Expr) -> tuple[Expr, bool] | None:
    """Return the expression that a comparison bounds below by 0, and whether strictly."""
    match c:
        case Rel("<" | "<=" as op, low, high):
            return high - low, op == "<"
        case Not(Rel("<" | "<=" as op, high, low)):
            return high - low, op == "<="
    return None


def _integer_multiple(bounds: Bounds, e: Expr) -> tuple[Polynomial, int] | None:
    """Return an integer multiple of e that has a polynomial form, and the multiplier."""
    for n in range(1, _MOST_PARTS + 1):
        form = bounds.form(factor(num(n) * e))
        if form is not None:
            return form, n
    return None


def _is_index(part: Expr) -> bool:
    return isinstance(part, Index)
