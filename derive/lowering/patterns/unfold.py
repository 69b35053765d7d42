"""Sliding windows: the positions step*i + dilation*k of window i and offset k.

    X[.., step*i + dilation*k - before, ..]

The axis, with ``before`` zeros in front and ``after`` zeros behind it, has exactly size(i) windows
by torch's formula, (length - dilation*(size(k) - 1) - 1) // step + 1. A negative amount crops
instead. Reads are views made by ``unfold`` and copy nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.affine import Polynomial, room
from derive.algebra.expr import (
    Call,
    Expr,
    Guard,
    Index,
    Iverson,
    Not,
    Rel,
    Size,
    indices_of,
    num,
    walk,
)
from derive.algebra.factor import factor
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.lowering.ground.context import Scope
from derive.lowering.ground.summation import Summation, summed_product
from derive.lowering.ground.value import Value, is_group
from derive.lowering.ground.windows import (
    ONE,
    ZERO,
    AxisRead,
    affine_position,
    lies_inside,
    number_of,
    pad,
    unguarded_position,
    zero_padded,
)
from derive.program.torch_ir import (
    Binary,
    Code,
    Dim,
    FunctionCall,
    Literal,
    MethodCall,
    Slice,
    Subscript,
    literal,
)


@dataclass(frozen=True)
class Sliding:
    """Positions step*place + dilation*within - before on an axis.

    An index that is ``turned`` counts from its end. ``counted`` means that the size of ``place``
    follows from that of the axis. ``chosen`` means that the sizes determine which index counts the
    windows. ``guarded`` means that positions off the axis are not read.
    """

    extent: str
    place: Index
    within: Index
    step: Polynomial
    dilation: Polynomial
    before: Polynomial
    after: Polynomial
    turned: tuple[Index, ...]
    counted: bool
    chosen: bool
    guarded: bool
    edges: tuple[Polynomial, Polynomial] = (ZERO, ZERO)
    """The forms that are at least 0 exactly on the axis; see `gap`."""
    needed: tuple[Polynomial, ...] = ()
    """The edges that only a guard ensures."""

    @property
    def is_padded(self) -> bool:
        """True if zeros in front are guarded, or none are needed."""
        return self.before == ZERO or (self.guarded and self.before.sign == 1)

    @property
    def is_torch(self) -> bool:
        """True if these are the windows of a convolution with symmetric zero padding."""
        return self.before == self.after and self.is_padded

    def reaches_all(self, bounds: Bounds) -> bool:
        """True if every position of the axis is certain to be in a window."""
        near = self.step == ONE == self.dilation
        return near and all(bounds.at_most(ZERO, z) for z in (self.before, self.after))

    def length(self, bounds: Bounds) -> Polynomial:
        """Return the size of the axis after padding or cropping."""
        return bounds.size(self.extent) + self.before + self.after

    def covered(self, bounds: Bounds) -> Polynomial:
        """Return the number of positions from the first to the last."""
        places = self.step * (bounds.size(self.place.extent) - ONE)
        return places + self.dilation * (bounds.size(self.within.extent) - ONE) + ONE


def runs_over(bounds: Bounds, position: Expr) -> Mapping[Index, Polynomial] | None:
    """Return the coefficient of each index of an affine position; None if it is not affine."""
    found = affine_position(bounds, position)
    return None if found is None else found.coefficients


def sliding(
    bounds: Bounds, position: Expr, extent: str, place: Index | None = None
) -> Sliding | None:
    """Return the windows of a position in two indices; None if it has another form.

    ``place`` is the index that counts the windows. By default it is the one whose size follows from
    that of the axis.
    """
    found = affine_position(bounds, unguarded_position(position))
    if found is None or len(found.coefficients) != 2:
        return None
    coefficients, start = found.coefficients, found.constant
    turned = []
    for i, c in coefficients.items():
        if c.sign == -1:
            turned.append(i)
            start = start + c * (bounds.size(i.extent) - ONE)
        elif c.sign != 1:
            return None
    i, k = sorted(coefficients, key=lambda i: (i is not place, -_follows(bounds, i.extent, extent)))
    if k.extent in (i.extent, extent):
        # The window is as long as the axis, which may be empty: torch has no empty windows.
        return None
    if any(bounds.size(j.extent).number == 0 for j in (i, k)):
        return None
    step, dilation = (-c if c.sign == -1 else c for c in (coefficients[i], coefficients[k]))
    if any(_may_be_zero(bounds, c) for c in (step, dilation)):
        return None
    reach = dilation * (bounds.size(k.extent) - ONE)
    # A remainder is behind the last window; if windows count from the end, the start leaves it out.
    places = step * (bounds.size(i.extent) - ONE)
    room = places if i in turned else _room(bounds, i.extent, step)
    after = room + reach + ONE - bounds.size(extent) + start
    made = Sliding(
        *(extent, i, k, step, dilation, -start, after, tuple(turned)),
        counted=_follows(bounds, i.extent, extent) == 2,
        chosen=_follows(bounds, i.extent, extent) > _follows(bounds, k.extent, extent),
        guarded=isinstance(position, Guard),
    )
    return _certain_windows(bounds, position, made)


def _may_be_zero(bounds: Bounds, step: Polynomial) -> bool:
    """True if the step is made of sizes and not certainly at least 1."""
    sizes = any(isinstance(part, Size) for key in step.terms for part in key)
    return sizes and not bounds.at_most(ONE, step)


def _certain_windows(bounds: Bounds, position: Expr, w: Sliding) -> Sliding | None:
    """Return the windows with the conditions that keep them on the axis; None if they may leave it.

    ``narrow`` rejects a run past the end, and counts a negative start from the end.
    """
    form = bounds.form(unguarded_position(position))
    assert form is not None
    low, high = form, bounds.size(w.extent) - ONE - form
    given = conditions_of(position.condition) if isinstance(position, Guard) else ()
    gaps = [nonnegative_form(bounds, c) for c in given]
    needed = []
    for certain, form in ((w.before, low), (w.after, high)):
        if form in gaps:
            needed.append(form)
        elif not bounds.at_most(certain, ZERO) and (w.guarded or form is low):
            return None
    return replace(w, edges=(low, high), needed=tuple(needed))


def nonnegative_form(bounds: Bounds, condition: Expr) -> Polynomial | None:
    """Return a form that is at least 0 exactly where the condition holds."""
    found = room(condition)
    return None if found is None else bounds.form(found)


def _follows(bounds: Bounds, extent: str, axis: str) -> int:
    """Return 2 if a size is computed from that of the axis, 1 if it is the same one, else 0."""
    if extent == axis:
        return 1
    given = bounds.definition(extent)
    if given is None:
        return 0
    of_axis = {part for key in bounds.size(axis).terms for part in key if isinstance(part, Size)}
    parts = (part for key in given.terms for part in key)
    return 2 * any(inner in of_axis for part in parts for inner in walk(part))


def _room(bounds: Bounds, extent: str, step: Polynomial) -> Polynomial:
    """Return r with size == r // step + 1: as in the size's definition, or without remainder."""
    size = bounds.size(extent)
    given = bounds.definition(extent)
    if step != ONE and given is not None:
        quotients = [k for k in given.terms if any(isinstance(part, Call) for part in k)]
        for key in quotients[:1]:
            match key:
                case (Call("floordiv", (above, below)),) if len(quotients) == 1:
                    numerator = bounds.form(above)
                    rest = given - Polynomial({key: Fraction(1)})
                    if numerator is not None and bounds.form(below) == step:
                        return numerator + (rest - ONE) * step
    return step * (size - ONE)


# Reads


def read_strided(scope: Scope, r: AxisRead) -> Value | None:
    """X[s + n*i] = X[s::n][i]."""
    bounds, w = scope.frame.bounds, r.along
    start = None if w is None else w.start.number
    if w is None or r.is_guarded or w.step < 2 or start is None or start < 0:
        return None
    step, size = Polynomial.of(w.step), bounds.size(w.index.extent)
    room = _room(bounds, w.index.extent, step)
    over = bounds.size(r.extent) - w.start - ONE - room
    within = bounds.at_most(ZERO, over) and bounds.at_most(over + ONE, step)
    exact = over == ZERO or (step * (size - ONE) == room and within)
    if not exact and not lies_inside(bounds, w, r.extent):
        return None
    first = literal(int(start)) if start else None
    taken, whole = Slice(first, None, literal(w.step)), Slice()
    sides = r.value.axes[: r.n], r.value.axes[r.n + 1 :]
    groups = [any(map(is_group, axes)) for axes in sides]
    if all(groups):
        return None
    items: tuple[Code, ...] = (*(whole,) * r.n, taken)
    if groups[0]:
        items = (Literal("..."), taken, *(whole,) * len(sides[1]))
    value = replace(r.value, code=Subscript(r.value.code, items)).at(r.n, w.index)
    return value if exact else value.call("narrow", r.place, literal(0), Dim(w.index.extent))


def read_sliding(scope: Scope, r: AxisRead) -> Value | None:
    """X[s*i + d*k] = X.unfold(size(k), s)[i, k].

    One axis counts windows; the window is the last axis.
    """
    bounds, axes = scope.frame.bounds, r.value.axes
    w = sliding(bounds, r.position, r.extent)
    if w is None or w.place in axes or w.within in axes:
        return None
    if w.guarded and any(map(is_group, axes[r.n + 1 :])):
        return None
    span = w.dilation * (bounds.size(w.within.extent) - ONE) + ONE
    size, step = number_of(scope, span), number_of(scope, w.step)
    if w.guarded and not all(bounds.at_most(ZERO, end) for end in (w.before, w.after)):
        # Torch crops before it pads, and an axis that is shorter than a window has none.
        start, count = number_of(scope, -w.before), Dim(w.place.extent)
        code: Code = FunctionCall("rt.windows", (r.value.code, r.place, start, count, size, step))
    else:
        code = fit_windows(scope, r.value.code, [(r.place, w)], len(axes) - r.n)
        code = MethodCall(code, "unfold", (r.place, size, step))
    if w.dilation != ONE:
        every = Slice(None, None, number_of(scope, w.dilation))
        code = Subscript(code, (Literal("..."), every))
    value = Value(code, (*r.value.at(r.n, w.place).axes, w.within), r.value.kind)
    for i in w.turned:
        value = value.call("flip", scope.frame.place(value, i))
    return value


def fit_windows(
    scope: Scope, code: Code, axes: Iterable[tuple[Code, Sliding]], behind: int
) -> Code:
    """Return the code with each of these axes padded or cropped to its windows.

    ``behind`` counts the axes from the first of these to the last of the code.
    """
    bounds, zero = scope.frame.bounds, literal(0)
    amounts: list[Code] = [zero, zero] * behind
    for m, (place, w) in enumerate(axes):
        if w.before == ZERO == w.after:
            continue
        if w.guarded:
            at = 2 * (behind - m - 1)
            amounts[at : at + 2] = (number_of(scope, f) for f in (w.before, w.after))
        else:
            ends = (number_of(scope, f) for f in (-w.before, w.length(bounds)))
            code = MethodCall(code, "narrow", (place, *ends))
    return pad(code, amounts)


# --------------------------------------------------------------------
# Sums over nearby positions: sums of windows of a zero-padded axis.
#
#     Sum_l [k - a <= l <= k + b] f(l)  =  padded f.unfold(size a + 1 + b).sum(-1)[k]
#
# l and k have the same extent, only the condition has k, and a and b are numbers or sizes. One of
# them is at least 0 and the other at least -1, like half a window of unknown size. Values outside a
# window are not read.

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
    """Sum_l [k - a <= l <= k + b] f(l) = windows of f.sum()[k]."""
    conditions = conditions_of(s.condition)
    found = {c: r for c in conditions if (r := _reach(scope.frame.bounds, s, c)) is not None}
    if len(found) != 2:
        return None
    one, other = found.values()
    if (one.binder, one.index) != (other.binder, other.index) or one.is_before == other.is_before:
        return None
    before, after = (one, other) if one.is_before else (other, one)
    if not (_is_nonempty(scope, before, after) or _is_nonempty(scope, after, before)):
        return None
    within = [c for c in conditions if c not in found]
    inside: list[Expr] = [Iverson(conjunction(within))] if within else []
    inside += s.others
    if one.index in indices_of(inside) or one.binder not in indices_of(s.others):
        return None
    f = summed_product(tuple(i for i in s.binders if i is not one.binder), inside)
    inner = [one.binder if i is one.index else i for i in s.order]
    value = scope.as_float(scope.frame.fit(scope.lower(f, inner), inner))
    return _window_sums(scope, value, before, after) if one.binder in value.axes else None


def _is_nonempty(scope: Scope, one: Reach, other: Reach) -> bool:
    """True if one reach includes the index, and either the other does or one is at least 1."""
    bounds = scope.frame.bounds
    least = ZERO if bounds.at_most(ZERO, other.above) else Polynomial.of(one.below)
    return bounds.at_most(ZERO, one.above) and bounds.at_most(least, one.above)


def _window_sums(scope: Scope, value: Value, before: Reach, after: Reach) -> Value:
    """Return the sums of windows; one more zero at the end, as the axis may be empty."""
    n = value.axes.index(before.binder)
    place = scope.frame.position(value.axes, n)
    left, right = before.code(scope), after.code(scope)
    wide = zero_padded(scope, value, n, left, Binary("+", right, literal(1)))
    size = Binary("+", Binary("+", left, right), literal(1))
    sums = wide.call("unfold", place, size, literal(1)).call("sum", literal(-1))
    return sums.at(n, before.index).call("narrow", place, literal(0), Dim(before.index.extent))


def _reach(bounds: Bounds, s: Summation, c: Expr) -> Reach | None:
    """Return the reach of a comparison of two indices."""
    sides = _bounded_below(c)
    found = None if sides is None else _integer_multiple(bounds, sides[0])
    if sides is None or found is None:
        return None
    room, below = found
    terms = room.terms.items()
    rest = {key: n for key, n in terms if not any(isinstance(p, Index) for p in key)}
    if len(room.indices) != 2 or len(room.terms) - len(rest) != 2:
        return None
    above = Polynomial(rest) - (ONE if sides[1] else ZERO)
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
