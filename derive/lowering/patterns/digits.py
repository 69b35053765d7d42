"""Positions by their digits: one axis read as several, or several as one.

    X[s + size(d)*m + d]                        =  the positions from s on, as rows of size(d)
    X[n // size(d), n % size(d)]                =  X with both axes flattened, read at n

and the scatters along such positions. The digits of a number are in the order of the axes; the
last digit has coefficient 1. These are views, whereas a gather at computed positions copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.algebra.affine import Polynomial, polynomial
from derive.algebra.expr import Call, Expr, Guard, Index
from derive.algebra.inequalities import Bounds
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Value, place_number, zeros
from derive.lowering.ground.views import flattened
from derive.lowering.ground.windows import (
    ONE,
    ZERO,
    AxisRead,
    affine_position,
    is_given,
    number_of,
    zero_padded,
)
from derive.lowering.patterns.scatter_elements import Placed, Placement
from derive.program.torch_ir import Binary, Code, Dim, FunctionCall, MethodCall, Tuple, literal

_MOST_TERMS = 24


@dataclass(frozen=True)
class Digits:
    """The positions start + the number with these digits, the last digit varying fastest."""

    indices: tuple[Index, ...]
    start: Polynomial

    def count(self, bounds: Bounds) -> Polynomial:
        """Return the number of positions."""
        total = ONE
        for i in self.indices:
            total = total * bounds.size(i.extent)
        return total


def digits_of_position(bounds: Bounds, position: Expr) -> Digits | None:
    """Return the digits of an affine position; None if its coefficients are not row sizes."""
    found = affine_position(bounds, position)
    if found is None or not found.coefficients or any(i.group for i in found.coefficients):
        return None
    left = dict(found.coefficients)
    indices: list[Index] = []
    row = ONE
    while left:
        last = next((i for i, c in left.items() if c == row), None)
        if last is None:
            return None
        del left[last]
        indices.insert(0, last)
        row = row * bounds.size(last.extent)
    return Digits(tuple(indices), found.constant)


# Reads


def read_digits(scope: Scope, r: AxisRead) -> Value | None:
    """X[s + size(d)*m + d] = X.narrow(s).unflatten(..)[m, d]."""
    bounds = scope.frame.bounds
    found = None if r.is_guarded else digits_of_position(bounds, r.position)
    if found is None or any(i in r.value.axes for i in found.indices):
        return None
    count = found.count(bounds)
    code = _run_of(scope, r.value.code, r.place, r.extent, found.start, count)
    if code is None:
        return None
    if len(found.indices) > 1:
        sizes = Tuple(tuple(Dim(i.extent) for i in found.indices))
        code = MethodCall(code, "unflatten", (r.place, sizes))
    return replace(r.value, code=code).at(r.n, *found.indices)


def _run_of(
    scope: Scope, code: Code, place: Code, extent: str, start: Polynomial, count: Polynomial
) -> Code | None:
    """Return ``count`` positions from ``start`` on; the range is checked at run
    time if uncertain.
    """
    bounds = scope.frame.bounds
    size = bounds.size(extent)
    if start == ZERO and count == size:
        return code
    ends = number_of(scope, start), number_of(scope, count)
    if bounds.at_most(ZERO, start) and bounds.at_most(start + count, size):
        return MethodCall(code, "narrow", (place, *ends))
    return FunctionCall("rt.narrow", (code, place, *ends)) if is_given(start) else None


def read_as_one(scope: Scope, value: Value, positions: Sequence[tuple[int, Expr]]) -> Value | None:
    """X[n // size(d), n % size(d)] = X.flatten()[n], for adjacent axes."""
    axes = [value.axes[n] for n, _ in positions]
    found = _number_of_digits(scope.frame.bounds, axes, [e for _, e in positions])
    if found is None or found[0] in value.axes:
        return None
    index, start, count = found
    first, last = positions[0][0], positions[-1][0]
    ends = (place_number(scope.frame, value.axes, n) for n in (first, last))
    code = flattened(value.code, *ends)
    made = (*value.axes[:first], index, *value.axes[last + 1 :])
    place = scope.frame.position(made, first)
    bounds = scope.frame.bounds
    if start != ZERO or bounds.size(index.extent) != count:
        if not bounds.at_most(ZERO, start):
            return None
        code = MethodCall(code, "narrow", (place, number_of(scope, start), Dim(index.extent)))
    return Value(code, made, value.kind)


def _number_of_digits(
    bounds: Bounds, axes: Sequence[Index | None], positions: Sequence[Expr]
) -> tuple[Index, Polynomial, Polynomial] | None:
    """Return (n, s, the total number of positions) if these are the digits of n + s."""

    def atom(e: Expr) -> Polynomial | None:
        return Polynomial.of(e) if isinstance(e, Call) and e.function == "floordiv" else None

    total, row = ZERO, ONE
    for axis, position in zip(reversed(axes), reversed(positions), strict=True):
        if axis is None or axis.group or isinstance(position, Guard):
            return None
        form = polynomial(position, lambda e: atom(e) or bounds.form(e), _MOST_TERMS)
        if form is None or not any(isinstance(p, Call) for key in form.terms for p in key):
            return None
        total = total + row * form
        row = row * bounds.size(axis.extent)
    rest = dict(total.terms)
    indices = [key[0] for key, c in rest.items() if len(key) == 1 and isinstance(key[0], Index)]
    if len(indices) != 1 or rest.pop((indices[0],)) != Fraction(1):
        return None
    (n,) = indices
    start = Polynomial(rest)
    if not isinstance(n, Index) or n.group or not is_given(start):
        return None
    return n, start, row


# Placements


def digits_in_a_run(scope: Scope, p: Placement) -> Placed | None:
    """Sum_{m,d} delta(i, s + size(d)*m + d) f(m, d) = zeros.slice_scatter(f.flatten(), s)[i]."""
    if p.only is None:
        return None
    bounds, (axis, position) = scope.frame.bounds, p.only
    found = None if isinstance(position, Guard) else digits_of_position(bounds, position)
    if found is None or not {*found.indices} <= {*p.summed} & {*p.source.indices}:
        return None
    count, size = found.count(bounds), bounds.size(axis.extent)
    whole = found.start == ZERO and count == size
    inside = bounds.at_most(ZERO, found.start) and bounds.at_most(found.start + count, size)
    # A gradient scatters to positions that were read, so they are in range.
    if not (whole or inside or (scope.is_gradient and is_given(found.start))):
        return None
    others = [i for i in p.source.indices if i not in found.indices]
    at = p.source.indices.index(found.indices[0])
    at -= sum(i in found.indices for i in p.source.indices[:at])
    source = scope.frame.permute(p.source, [*others[:at], *found.indices, *others[at:]])
    ends = (place_number(scope.frame, source.axes, n) for n in (at, at + len(found.indices) - 1))
    axes = (*others[:at], axis, *others[at:])
    code = flattened(source.code, *ends)
    if whole:
        return Value(code, axes), False
    first, length = number_of(scope, found.start), number_of(scope, count)
    end = length if first is literal(0) else Binary("+", first, length)
    args = (code, scope.frame.position(axes, at), first, end)
    return Value(MethodCall(zeros(scope.like, axes), "slice_scatter", args), axes), False


def at_digits(scope: Scope, p: Placement) -> Placed | None:
    """Sum_n delta(m, n // size(d)) delta(d, n % size(d)) f(n) = f.unflatten(..)[m, d]."""
    if len(p.targets) < 2:
        return None
    bounds, axes = scope.frame.bounds, [axis for axis, _ in p.targets]
    order = sorted(range(len(axes)), key=lambda k: p.order.index(axes[k]))
    axes = [axes[k] for k in order]
    found = _number_of_digits(bounds, axes, [p.targets[k][1] for k in order])
    if found is None or found[0] not in p.summed or found[0] not in p.source.indices:
        return None
    index, start, count = found
    own = bounds.size(index.extent)
    after = count - own - start
    if not scope.is_gradient and not all(bounds.at_most(ZERO, end) for end in (start, after)):
        return None
    n = p.source.axes.index(index)
    value = p.source
    if (start, after) != (ZERO, ZERO):
        value = zero_padded(scope, value, n, number_of(scope, start), number_of(scope, after))
    sizes = Tuple(tuple(Dim(i.extent) for i in axes))
    place = scope.frame.position(value.axes, n)
    return value.call("unflatten", place, sizes).at(n, *axes), False
